"""``views verify`` finds changes that did not go through the log; ``views rebuild`` repairs
them.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.operations.processes import Process, prepared, run, served
from tests.operations.tampering import tamper
from tidegate.engines.presence import present


@pytest.mark.req("RO-14", engines=None, reason="rows are changed by hand in a SQLite file")
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (
            "UPDATE repositories SET data = replace(data, 'default', 'defect')",
            "repositories/default: data",
        ),
        ("DELETE FROM users", "users/user_admin0000: missing row"),
        ("UPDATE users SET version = version - 1", "users/user_admin0000: stamp"),
    ],
    ids=["changed", "deleted", "restamped"],
)
def test_finds_a_row_that_was_changed_by_hand_and_repairs_it(
    tmp_path: Path, statement: str, what: str
) -> None:
    data = tmp_path / "data"
    prepared(data)
    assert tamper(data, statement) == 1

    found = run("views", "verify", "--data", str(data))

    assert found.returncode == 1
    assert what in found.stdout
    assert "tidegate views rebuild" in found.stderr
    assert run("views", "rebuild", "--data", str(data)).returncode == 0
    assert run("views", "verify", "--data", str(data)).returncode == 0


def test_rebuilds_nothing_while_a_server_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, prepared(data)):
        ran = run("views", "rebuild", "--data", str(data))

        assert ran.returncode == 6
        assert "another server serves data" in ran.stderr


def test_rebuilds_nothing_while_a_worker_runs_and_no_worker_starts_meanwhile(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    prepared(data)
    rebuild = ("views", "rebuild", "--data", str(data))
    with Process(["worker", "--data", str(data)], tmp_path / "said") as worker:
        worker.says("working")

        refused = run(*rebuild)
        looked = run("views", "verify", "--data", str(data))

        assert refused.returncode == 6
        assert "another process has the log open" in refused.stderr
        assert looked.returncode == 0
        assert worker.process.poll() is None
        assert worker.stop() == 0
    with present(f"sqlite:///{data / 'tidegate.db'}", alone=True):
        late = run("worker", "--data", str(data))
        twice = run(*rebuild)

    assert (late.returncode, twice.returncode) == (6, 6)
    assert "are being rebuilt" in late.stderr
    assert run(*rebuild).returncode == 0


def test_a_rebuild_may_follow_a_worker_that_was_killed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepared(data)
    with Process(["worker", "--data", str(data)], tmp_path / "said") as worker:
        worker.says("working")
        worker.stop(signal.SIGKILL)

    assert run("views", "rebuild", "--data", str(data)).returncode == 0


def test_reports_a_missing_log(tmp_path: Path) -> None:
    ran = run("views", "verify", "--data", str(tmp_path / "nowhere"))

    assert ran.returncode == 4
    assert not (tmp_path / "nowhere").exists()
