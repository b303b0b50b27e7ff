"""The bench of faults: each part runs in its smallest mode, and its simulated disk is correct."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from bench.faults import preload
from bench.faults.disk import Disk, FileCall, Kind
from tests.bench.harness import ROOT, run_part


@pytest.mark.in_bench
def test_power_cuts_lose_nothing_acknowledged_and_the_bench_can_see_losses(tmp_path: Path) -> None:
    code, found = run_part("faults", "power", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["acknowledged before cuts"] > 0
    assert found["counts"]["of them lost commits"] > 0


@pytest.mark.in_bench
def test_killed_servers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    code, found = run_part("faults", "kills", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["kills"] == 2
    assert found["counts"]["acknowledged"] > 0


@pytest.mark.in_bench
def test_failing_writes_and_syncs_lose_nothing_and_answer_no_500(tmp_path: Path) -> None:
    code, found = run_part("faults", "io", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["points"] >= 5
    assert found["counts"]["answers of 503"] > 0


@pytest.mark.in_bench
def test_a_killed_postgres_loses_nothing_acknowledged(tmp_path: Path) -> None:
    code, found = run_part("faults", "postgres", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["kills"] == 1
    assert found["counts"]["acknowledged"] > 0


@pytest.mark.in_bench
def test_a_bad_dynamodb_loses_nothing_acknowledged(tmp_path: Path) -> None:
    code, found = run_part("faults", "dynamodb", tmp_path)

    assert (code, found["failures"]) == (0, [])
    assert found["counts"]["answer lost"] > 0
    assert found["counts"]["acknowledged"] > 0


CUT_EVERYWHERE = """
import sys, tempfile
from pathlib import Path
from random import Random
from bench.faults import preload
from bench.faults.disk import Disk, recorded, write_tree
from bench.faults.power import _recording
from tidegate.control.secrets import Secrets

def recorded_start(home):
    with _recording(home):
        Secrets.in_directory(home / "data")
    return recorded(home.with_suffix(".log"), home)

with tempfile.TemporaryDirectory() as name:
    home = Path(name) / "first"
    (home / "data").mkdir(mode=0o700, parents=True)
    calls = recorded_start(home)
    disk, random, tried = Disk({"data/": b""}), Random(1), 0
    for point in range(len(calls) + 1):
        for again in range(20):
            left = Path(name) / f"{point}-{again}"
            write_tree(disk.cut(random), left)
            Secrets.in_directory(left / "data")
            tried += 1
        if point < len(calls):
            disk.apply(calls[point])
    print(len(calls), tried)
"""


def test_a_first_start_can_be_repeated_after_a_power_cut_at_any_point_of_it(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CUT_EVERYWHERE],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(preload.library("recorder"))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    calls, tried = map(int, run.stdout.split())
    assert calls >= 3
    assert tried == 20 * (calls + 1)


# ── the disk that forgets ─────────────────────────────────────────────────────────────────────────


def _disk(*calls: FileCall) -> Disk:
    disk = Disk({"d/": b""})
    for call in calls:
        disk.apply(call)
    return disk


def _trees(disk: Disk) -> list[dict[str, bytes]]:
    return [disk.cut(Random(seed)) for seed in range(200)]


CREATE = FileCall(Kind.CREATE, "d/f", 0, b"")
WRITE = FileCall(Kind.WRITE, "d/f", 0, b"x" * 1_024)
SYNC = FileCall(Kind.SYNC, "d/f", 0, b"")
SYNC_DIRECTORY = FileCall(Kind.SYNC, "d", 0, b"")


def test_keeps_what_was_synced_under_a_name_that_was_synced() -> None:
    disk = _disk(CREATE, WRITE, SYNC, SYNC_DIRECTORY)

    assert {tree["d/f"] for tree in _trees(disk)} == {b"x" * 1_024}


def test_may_lose_tear_and_corrupt_what_was_not_synced() -> None:
    disk = _disk(CREATE, SYNC_DIRECTORY, WRITE)

    left = {tree["d/f"] for tree in _trees(disk)}
    x, lost = b"x" * 512, bytes(512)
    assert {b"", x + x, x, lost + x} <= left
    assert any(set(content) - {0, ord("x")} for content in left), "no sector is ever garbage"


def test_may_lose_a_name_that_was_not_synced_although_its_file_was() -> None:
    disk = _disk(CREATE, WRITE, SYNC)

    assert {"d/f" in tree for tree in _trees(disk)} == {True, False}


def test_may_keep_either_name_of_a_rename_and_never_both() -> None:
    rename = FileCall(Kind.RENAME, "d/f", 0, b"d/g")
    disk = _disk(CREATE, WRITE, SYNC, SYNC_DIRECTORY, rename)

    names = {frozenset(tree) & {"d/f", "d/g"} for tree in _trees(disk)}
    assert names == {frozenset({"d/f"}), frozenset({"d/g"})}


@pytest.mark.parametrize("seed", [1, 2])
def test_leaves_the_same_tree_for_the_same_seed(seed: int) -> None:
    disk = _disk(CREATE, SYNC_DIRECTORY, WRITE)

    assert disk.cut(Random(seed)) == disk.cut(Random(seed))
