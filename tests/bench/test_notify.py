"""The bench of notifications: it measures every message to both kinds of target."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import notify


def test_measures_each_message_to_a_webhook_and_to_a_mail_server(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    found = notify.measure(3, tmp_path)

    assert {kind: len(delays) for kind, delays in found.items()} == {"webhook": 3, "mail": 3}
    assert all(delays == sorted(delays) for delays in found.values())


@pytest.mark.parametrize(("longest", "code"), [(1.9, 0), (2.1, 1)])
def test_fails_if_a_message_exceeds_the_bound(
    longest: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    delays = {"webhook": [0.5, 0.6, 0.7], "mail": [0.4, 0.5, longest]}
    monkeypatch.setattr(notify, "measure", lambda messages, directory: delays)

    assert notify.main(()) == code
    assert f"{longest:.2f} s" in capsys.readouterr().out
