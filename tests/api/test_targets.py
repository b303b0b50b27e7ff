"""Targets over HTTP: shown without their secrets, and tested without a real intent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import serving
from tests.contract.webhook_receiver import SECRET, reply, serve_webhooks, verified
from tidegate.config import TargetSetting
from tidegate.control.outbox.targets.webhook import TEST_TYPE
from tidegate.domain.access.roles import Role


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    file = tmp_path / "webhook-secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return str(file)


def test_shows_where_intents_go_without_secrets(tmp_path: Path, secret_file: str) -> None:
    (tmp_path / "effects").mkdir()
    targets = {
        "notify": TargetSetting(
            kind="webhook", url="https://hooks.example.com/T0K3N?key=T0K3N", secret_file=secret_file
        ),
        "alias": TargetSetting(kind="command", program=("deploy-alias", "--password=T0K3N")),
        "record": TargetSetting(kind="file", directory=str(tmp_path / "effects")),
        "wrong": TargetSetting(kind="webhook", url="https://me:T0K3N@example.com"),
    }
    with serving(tmp_path / "data", targets=targets) as served:
        viewer = served.as_role(Role.VIEWER)
        shown = viewer.get("/v1/targets")
        first = viewer.get("/v1/targets", params={"limit": 3}).json()
        rest = viewer.get("/v1/targets", params={"limit": 3, "next": first["next"]}).json()

    assert [(item["name"], item["kind"], item["to"]) for item in shown.json()["items"]] == [
        ("alias", "command", "deploy-alias"),
        ("notify", "webhook", "https://hooks.example.com:443"),
        ("record", "file", str(tmp_path / "effects")),
        ("wrong", "webhook", ""),
    ]
    assert first["items"] + rest["items"] == shown.json()["items"]
    assert rest["next"] is None
    assert "T0K3N" not in shown.text
    assert "webhook-secret" not in shown.text


def test_sends_a_receiver_a_signed_test_event(tmp_path: Path, secret_file: str) -> None:
    with serve_webhooks() as receiver:
        said: dict[str, Any] = {"allowed": (receiver.place,), "secret_file": secret_file}
        url = f"http://{receiver.place}/hooks"
        targets = {"notify": TargetSetting(kind="webhook", url=url, **said)}
        with serving(tmp_path / "data", targets=targets) as served:
            operator = served.as_role(Role.FLEET_OPERATOR)
            viewer = served.as_role(Role.VIEWER)
            good = operator.post("/v1/targets/notify/test")
            now = served.installation.clock()
            receiver.answer = lambda handler: reply(handler, 500)
            bad = operator.post("/v1/targets/notify/test")
            unknown = operator.post("/v1/targets/nothing/test")
            forbidden = viewer.post("/v1/targets/notify/test")

    assert good.json() == {"name": "notify", "ok": True, "detail": "status 204"}
    assert bad.json() == {"name": "notify", "ok": False, "detail": "status 500"}
    assert (unknown.status_code, unknown.json()["code"]) == (404, "target_unknown")
    assert forbidden.status_code == 403
    assert len(receiver.requests) == 2
    _, headers, body = receiver.requests[0]
    event = verified(SECRET, headers, body, now)
    assert event["type"] == TEST_TYPE
    assert "data" not in event


def test_checks_that_a_program_exists_without_running_it(tmp_path: Path) -> None:
    ran, effects = tmp_path / "ran", tmp_path / "effects"
    effects.mkdir()
    touching = ("-c", f"open({str(ran)!r}, 'w')")
    program = (sys.executable, *touching)
    targets = {
        "there": TargetSetting(kind="command", program=program),
        "gone": TargetSetting(kind="command", program=("no-such-program",)),
        "blind": TargetSetting(kind="command", program=program, observing=("no-such-program",)),
        "record": TargetSetting(kind="file", directory=str(effects)),
        "nowhere": TargetSetting(kind="file", directory=str(tmp_path / "nowhere")),
        "unsigned": TargetSetting(kind="webhook", url="https://hooks.example.com"),
    }
    with serving(tmp_path / "data", targets=targets) as served:
        operator = served.as_role(Role.FLEET_OPERATOR)
        found = {name: operator.post(f"/v1/targets/{name}/test").json() for name in targets}

    assert {name: item["ok"] for name, item in found.items()} == {
        "there": True,
        "gone": False,
        "blind": False,
        "record": True,
        "nowhere": False,
        "unsigned": False,
    }
    assert "no-such-program" in found["gone"]["detail"]
    assert not ran.exists()
    assert list(effects.iterdir()) == []
