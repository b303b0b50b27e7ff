"""``tidegate simulate`` on the data of an installation: a table for people, JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.api.served_fleet import CHANNEL, HOSTS, serve_fleet
from tests.operations.processes import run


def test_reports_when_waves_would_end_and_what_would_stop_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serve_fleet(data) as fleet:
        fleet.create()
    calm = ("--activation-fails", "0", "--probe-fails", "0", "--runs", "3")

    found = run("simulate", CHANNEL, "--data", str(data), *calm)
    failing = run("simulate", CHANNEL, "--data", str(data), *calm, "--fail", HOSTS[0], "-o", "json")

    assert found.returncode == 0, found.stderr
    assert f"{CHANNEL}: 2 hosts, 3 runs from seed 1" in found.stdout
    assert "1 canary" in found.stdout
    assert "succeeds: 3 of 3 runs" in found.stdout
    told = json.loads(failing.stdout)
    assert told["ends"] == {"Reverted": 3}
    assert told["stops"] == [{"what": "a host failed: probes", "runs": 3}]


def test_simulates_a_future_start_and_takes_rates_from_one_place(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serve_fleet(data) as fleet:
        fleet.create()
    words = ("simulate", CHANNEL, "--data", str(data), "--from-history", "--runs", "1")

    found = run(*words, "--start-at", "3h")
    both = run(*words, "--lost", "0.1")

    assert found.returncode == 0, found.stderr
    assert "the first host starts 3 h 00 min after the opening" in found.stdout
    assert "held by the start: 2 hosts, 0 s to 3 h 00 min after the opening" in found.stdout
    assert both.returncode != 0
    assert "give either --from-history or shares of your own" in both.stderr


def test_names_a_missing_channel(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serve_fleet(data):
        pass

    lost = run("simulate", "nowhere", "--data", str(data))
    empty = run("simulate", CHANNEL, "--data", str(tmp_path / "void"))

    assert lost.returncode != 0
    assert "nowhere" in lost.stderr
    assert empty.returncode != 0
    assert "there is no log" in empty.stderr
