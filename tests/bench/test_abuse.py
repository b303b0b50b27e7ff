"""Abusive clients cost a server little: bench/abuse runs whole, without bounds on times."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from bench.abuse import report
from bench.abuse.attacks import ATTACKS, ENDLESS, is_endless_taken
from bench.abuse.results import Case, Results
from tests.bench.harness import ROOT

ALONE = Case("none", 0, 20, 0.1, 1.0, live_tail_ms=80.0, polls=9, is_served=True)


@pytest.mark.in_bench
def test_abusive_clients_neither_fill_memory_nor_lock_others_out(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "abuse", "--ci", "--state", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    results = msgspec.json.decode((tmp_path / "abuse.json").read_bytes(), type=Results)

    assert (run.returncode, results.broken()) == (0, []), run.stdout
    assert report.text(results) in run.stdout
    assert [case.name for case in results.cases] == list(ATTACKS)
    assert all(case.polls >= results.agents for case in results.cases)


def take_bytes(listener: socket.socket, bytes_max: float) -> None:
    """Accept one connection, read this many bytes, and close it."""
    connection, _ = listener.accept()
    with connection:
        taken = 0
        while taken < bytes_max and (part := connection.recv(65_536)):
            taken += len(part)


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize(
    ("bytes_max", "is_taken"), [(65_536, False), (float("inf"), True)], ids=["limit", "no limit"]
)
def test_finds_a_server_that_reads_an_endless_request(
    name: str, bytes_max: float, is_taken: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=take_bytes, args=(listener, bytes_max))
        server.start()
        assert is_endless_taken(name, listener.getsockname()[1]) is is_taken
        server.join()


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, []),
        ({"growth_bytes": 21}, ["none: memory grew by 0 MB, allowed 0 MB"]),
        ({"is_served": False}, ["none: another client was not served"]),
        ({"live_tail_ms": 160.0}, []),
        ({"live_tail_ms": 161.0}, ["none: p99 of /livez is 161 ms, allowed 160 ms"]),
    ],
)
def test_names_the_exceeded_bound(changes: dict[str, object], broken: list[str]) -> None:
    case = msgspec.structs.replace(ALONE, **changes)

    results = Results("now", {}, 3.0, 200, 3.0, ALONE, (case,), are_times_judged=True)

    assert results.broken() == broken
