"""The release check passes a good tree and refuses each kind of bad one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.release import (
    STEPS,
    Finding,
    Section,
    lock_faults,
    newest,
    notes_faults,
    passes,
    uncut,
    upload_faults,
    version_faults,
    wheel_faults,
)

ROOT = Path(__file__).parents[1]
DRY_RUN_SECONDS_MAX = 100
PROVES = pytest.mark.req("RS-18", engines=None, reason="judges files, not what an engine holds")

PROJECT: dict[str, Any] = {
    "dependencies": ["apsw>=3.54"],
    "optional-dependencies": {"dev": ["Ruff", "psycopg[binary,pool]>=3.3,<4"]},
}
HASH = f"--hash=sha256:{'0a' * 32}"
LOCK = f"""\
apsw==3.54.1.0 \\
    {HASH} \\
    {HASH}
psycopg[binary, pool]==3.3.8 \\
    {HASH}
ruff==0.14.1 ; sys_platform != 'emscripten' \\
    {HASH}
"""
CUT = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-03-01

Kind: breaking

- The port is another one.

## [0.1.0]

Kind: additive
"""
WHEEL = {
    "tidegate/__init__.py": b'__version__ = "0.2.0"\n',
    "tidegate/engines/memory.py": b"class MemoryStore: ...\n",
    "tidegate-0.2.0.dist-info/METADATA": b"Name: tidegate\nVersion: 0.2.0\n",
    "tidegate-0.2.0.dist-info/licenses/LICENSE": b"Apache License\n",
}


# ── the lock ──────────────────────────────────────────────────────────────────────────────────────


@PROVES
def test_accepts_a_lock_with_hashes_that_fits_the_project() -> None:
    assert lock_faults(PROJECT, LOCK) == []


@PROVES
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (f"3.3.8 \\\n    {HASH}", "3.3.8", "psycopg has no hash"),
        (HASH, "--hash=md5:0a0a", "apsw has something else than SHA-256 hashes"),
        (HASH, "--hash=sha256:0a0a", "apsw has something else than SHA-256 hashes"),
        ("ruff==", "ruff>=", "ruff is not pinned to one version"),
        ("ruff==0.14.1", "ruff==0.14.*", "ruff is not pinned to one version"),
        ("ruff==0.14.1", "ruff", "ruff is not pinned to one version"),
        ("ruff==", "rough==", "Ruff is not in the lock: run script/lock"),
        ("3.54.1.0", "3.53.0", "apsw>=3.54 is locked at 3.53.0: run script/lock"),
        ("apsw==", "--index-url=x\napsw==", "the lock says what is no requirement: --index-url=x"),
    ],
)
def test_refuses_a_lock_that_is_loose_or_stale(old: str, new: str, fault: str) -> None:
    assert old in LOCK

    assert lock_faults(PROJECT, LOCK.replace(old, new, 1)) == [fault]


# ── versions and notes ────────────────────────────────────────────────────────────────────────────


@PROVES
def test_accepts_one_version_everywhere() -> None:
    assert uncut(CUT) == []
    assert version_faults("0.2.0", CUT, {}) == []
    assert version_faults("0.2.0", CUT, {"openapi.json": "0.2.0"}) == []


@PROVES
@pytest.mark.parametrize(
    ("package", "heading", "openapi", "fault"),
    [
        ("0.3.0", "[0.2.0]", "0.3.0", "the changelog says 0.2.0, the package 0.3.0"),
        ("0.2.0", "[0.2.0]", "0.1.0", "OpenAPI (openapi.json) says 0.1.0, the package 0.2.0"),
        ("0.2.0", "v0.2.0", "0.2.0", "the changelog says “v0.2.0”, the package 0.2.0"),
        ("0.2.0", "0.2.0", "0.2.0", "the changelog says “0.2.0”, the package 0.2.0"),
        ("0.2.0", "[0.2.0] x", "0.2.0", "the changelog says “[0.2.0] x”, the package 0.2.0"),
    ],
)
def test_refuses_two_versions(package: str, heading: str, openapi: str, fault: str) -> None:
    changelog = CUT.replace("[0.2.0] - 2026-03-01", heading)

    assert version_faults(package, changelog, {"openapi.json": openapi}) == [fault]


@PROVES
@pytest.mark.parametrize(
    ("changelog", "why"),
    [
        ("# Changelog\n\n## [Unreleased]\n\n- New.\n", "the changelog has no version"),
        (
            CUT.replace("[Unreleased]\n", "[Unreleased]\n\n- New.\n"),
            "the changelog has entries under [Unreleased]",
        ),
    ],
)
def test_reports_that_a_release_is_not_cut_yet(changelog: str, why: str) -> None:
    assert uncut(changelog) == [f"not cut yet: {why}"]


@PROVES
def test_checks_the_notes_of_the_newest_version() -> None:
    section = newest(CUT)

    assert section == Section("0.2.0", "Kind: breaking\n\n- The port is another one.")
    assert notes_faults(section) == []
    assert notes_faults(Section("0.1.0", "Kind: additive")) == []


@PROVES
@pytest.mark.parametrize(
    "notes",
    ["", "- additive", "Kind: big", "Kind:", "Kind: additive\nKind: breaking", "- Kind: additive"],
)
def test_refuses_notes_without_the_word_additive_or_breaking(notes: str) -> None:
    (fault,) = notes_faults(Section("0.2.0", notes))

    assert fault.startswith("the notes of 0.2.0 need one line “Kind: additive” or “Kind: breaking”")


# ── the wheel, and uploads ────────────────────────────────────────────────────────────────────────


@PROVES
def test_accepts_a_wheel_with_only_the_package() -> None:
    assert wheel_faults(WHEEL, "0.2.0", {"OffByOne"}) == []


@PROVES
@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("tests/__init__.py", b"", "tests/__init__.py must not be shipped"),
        ("bench/speed.py", b"", "bench/speed.py must not be shipped"),
        ("tidegate/tests/test_it.py", b"", "tidegate/tests/test_it.py must not be shipped"),
        ("conftest.py", b"", "conftest.py must not be shipped"),
        ("tidegate/a.py", b"class OffByOne: ...", "tidegate/a.py has the planted bug OffByOne"),
        (
            "tidegate-0.2.0.dist-info/METADATA",
            b"Name: tidegate\nVersion: 0.2.0.dev1\n",
            "the wheel is not one of version 0.2.0",
        ),
    ],
)
def test_refuses_a_wheel_with_foreign_files(name: str, content: bytes, fault: str) -> None:
    assert wheel_faults({**WHEEL, name: content}, "0.2.0", {"OffByOne"}) == [fault]


@PROVES
def test_refuses_a_wheel_without_the_package() -> None:
    described = {name: text for name, text in WHEEL.items() if "dist-info" in name}

    assert wheel_faults(described, "0.2.0", {"OffByOne"}) == ["the wheel has no package"]


@PROVES
def test_refuses_a_wheel_without_the_licence() -> None:
    unlicensed = {name: text for name, text in WHEEL.items() if "licenses" not in name}

    assert wheel_faults(unlicensed, "0.2.0", {"OffByOne"}) == ["the wheel has no licence"]


@PROVES
@pytest.mark.parametrize(
    "line",
    ["twine check dist/*", ".tools/bin/uv --no-config publish", "hatch publish", "npm publish"],
)
def test_refuses_a_script_that_uploads_a_package(line: str) -> None:
    scripts = {"script/a": "uv pip sync", "script/b": f"set -e\n{line}\n"}

    assert upload_faults(scripts) == [f"script/b:2 would send a package away: {line}"]


# ── the command ───────────────────────────────────────────────────────────────────────────────────


@PROVES
@pytest.mark.parametrize(
    ("finding", "dry_run", "outcome"),
    [
        (Finding("good"), False, True),
        (Finding("good", pending=("not cut yet",)), True, True),
        (Finding("good", pending=("not cut yet",)), False, False),
        (Finding("bad", faults=("no hash",)), True, False),
        (Finding("bad", faults=("no hash",)), False, False),
    ],
)
def test_stops_at_the_first_check_that_fails(
    finding: Finding, dry_run: bool, outcome: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [("first", lambda: finding), ("second", lambda: Finding("good"))]

    passed = passes(steps, dry_run=dry_run)

    said = [line.split()[1:3] for line in capsys.readouterr().out.splitlines()]
    assert passed is outcome
    if outcome:
        assert said == [["first", "ok:"], ["second", "ok:"]]
    else:
        assert said[0] == ["first", "FAILED"]
        assert len(said) == 2, "the verdict and the fault, and nothing of the second"


def release(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a dead proxy as the only way out of the machine.

    There is also no Python to create an environment with. So a stale .venv fails the test, and is
    not rebuilt under the other tests that run at the same time.
    """
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    nowhere |= {name.lower(): address for name, address in nowhere.items()}
    return subprocess.run(
        [ROOT / "script" / "release", *arguments],
        env={**inherited, **nowhere, "PYTHON": "false"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DRY_RUN_SECONDS_MAX,
    )


@PROVES
def test_passes_a_dry_run_of_this_tree_without_a_network() -> None:
    done = release("--dry-run", "--no-suite")

    assert done.returncode == 0, f"{done.stdout}{done.stderr}(is .venv stale? script/bootstrap)"
    *lines, verdict = done.stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == [
        [name, "ok:"] for name in STEPS if name != "suite"
    ]
    assert verdict.endswith("dry run passed, this releases nothing")


@PROVES
def test_skips_the_suite_only_in_a_dry_run() -> None:
    done = release("--no-suite")

    assert done.returncode == 2
    assert "--no-suite goes with --dry-run only" in done.stderr
