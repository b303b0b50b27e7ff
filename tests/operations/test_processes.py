"""Servers and workers as processes: how they end, how they are killed, and their state
afterwards.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.operations.processes import (
    SECONDS_MAX,
    Load,
    Process,
    Server,
    opened,
    prepared,
    run,
    served,
)
from tests.servers.process import until
from tidegate.domain.packages.rows import Repository, repository_key

ENOUGH = 60


def missing(data: Path, names: list[str]) -> list[str]:
    with opened(data) as installation:
        return [
            name
            for name in names
            if installation.reads.find(repository_key(name), Repository) is None
        ]


def test_stops_gracefully_under_load_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, prepared(data)) as server, Load(server) as load:
        load.reach(ENOUGH)
        assert server.stop(signal.SIGTERM) == 0, server.said()

    assert missing(data, load.acknowledged) == []
    assert run("views", "verify", "--data", str(data)).returncode == 0


def test_restarts_after_a_kill_under_load_with_every_view_correct(tmp_path: Path) -> None:
    data = tmp_path / "data"
    token = prepared(data)
    with served(data, token) as server, Load(server) as load:
        load.reach(ENOUGH)
        server.stop(signal.SIGKILL)
    with served(data, token) as server, server.client() as http:
        names = load.acknowledged
        found = [http.get(f"/v1/repositories/{name}").status_code for name in names]
        assert set(found) == {200}
        verified = run("views", "verify", "--data", str(data))  # in addition to the server
        assert verified.returncode == 0, verified.stderr
        assert server.stop() == 0


def test_refuses_a_second_server_on_one_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    token = prepared(data)
    with served(data, token):
        second = Server(data, token)

        assert second.process.wait(SECONDS_MAX) == 6
        assert "another server serves" in second.said()


def test_a_worker_runs_in_a_process_of_its_own_with_a_server_that_only_serves(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    token = prepared(data)
    archive = tmp_path / "archive"
    with served(data, token, "--worker", "false") as server, server.client() as http:
        assert "tidegate_worker_rounds_total" not in http.get("/metrics").text
        http.post("/v1/repositories", json={"name": "mirrored"}).raise_for_status()
        words = ["worker", "--data", str(data), "--archive", str(archive)]
        with Process(words, tmp_path / "worker") as worker:
            worker.says("working")
            wait_for_segment(archive, b"mirrored")
            assert worker.stop() == 0, worker.said()


def wait_for_segment(archive: Path, text: bytes) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if any(text in path.read_bytes() for path in archive.rglob("*") if path.is_file()):
            return
        time.sleep(0.1)
    raise AssertionError("it was not archived")


def test_counts_the_rounds_of_its_worker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, prepared(data)) as server, server.client() as http:
        done = 'tidegate_worker_rounds_total{loop="orders",outcome="done"}'
        assert until(lambda: done in http.get("/metrics").text, seconds_max=SECONDS_MAX)
        text = http.get("/metrics").text

    assert 'outcome="failed"' not in text
