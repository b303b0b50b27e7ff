"""The release check of Tidegate itself: `script/release` runs it, docs/releasing.md describes it.

Each check is a function from what was read to the faults found. The checks run in the order of
STEPS and print a line each. The first one that finds a fault ends the run.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tests.fixtures.copies import find_missing

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidegate"
UNRELEASED = "Unreleased"
KINDS = ("additive", "breaking")
NOT_SHIPPED = {"bench", "conftest.py", "examples", "script", "tests"}
MAKE_LOGS = "tests.fixtures.make_logs"
SCENARIOS = "tests/contract/test_scenarios.py"
WHEEL_TESTS = (  # RS-13: all four exist, and the wheel passes them
    f"{SCENARIOS}::test_has_the_four_scenarios_of_the_seed",
    f"{SCENARIOS}::test_the_built_wheel_passes_in_a_fresh_environment",
)
BUILD_SECONDS_MAX = 120
WHEEL_TESTS_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    said: str  # what is true if there are no faults
    faults: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()  # required only when a release is cut


# ── the lock ──────────────────────────────────────────────────────────────────────────────────────


def locked(lock: str) -> list[tuple[str, list[str]]]:
    """The requirements of a lock, each with the options that follow it."""
    entries = []
    for line in lock.replace("\\\n", " ").splitlines():
        requirement, *options = re.split(r"\s+(?=--)", line.strip())
        if requirement and not requirement.startswith("#"):
            entries.append((requirement, options))
    return entries


def pin_faults(line: str, options: Collection[str]) -> list[str]:
    """Why a line of the lock does not pin one version of one package by its hashes."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return [f"the lock says what is no requirement: {line}"]
    faults = []
    if not re.fullmatch(r"==[^*,]+", str(requirement.specifier)):
        faults.append(f"{requirement.name} is not pinned to one version")
    if not options:
        faults.append(f"{requirement.name} has no hash")
    if not all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options):
        faults.append(f"{requirement.name} has something else than SHA-256 hashes")
    return faults


def lock_faults(project: Mapping[str, Any], lock: str) -> list[str]:
    """What is wrong with the lock, by itself and compared with pyproject.toml."""
    entries = locked(lock)
    faults = [fault for line, options in entries for fault in pin_faults(line, options)]
    if faults:
        return faults
    versions: dict[str, list[str]] = {}
    for requirement in (Requirement(line) for line, _ in entries):
        name = canonicalize_name(requirement.name)
        versions.setdefault(name, []).append(str(requirement.specifier).removeprefix("=="))
    extras = project.get("optional-dependencies", {}).values()
    for wanted in map(Requirement, chain(project["dependencies"], *extras)):
        found = versions.get(canonicalize_name(wanted.name), [])
        if not found:
            faults.append(f"{wanted} is not in the lock: run script/lock")
        faults += [
            f"{wanted} is locked at {version}: run script/lock"
            for version in found
            if not wanted.specifier.contains(version, prereleases=True)
        ]
    return faults


# ── the changelog and the versions ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Section:
    """The changelog's section for one version."""

    version: str
    notes: str


def sections(changelog: str) -> list[Section]:
    """The changelog's sections, newest first, including the unreleased one."""
    _, *parts = re.split(r"^## ", changelog, flags=re.MULTILINE)
    divided = (part.partition("\n") for part in parts)
    return [Section(_version(heading), notes.strip()) for heading, _, notes in divided]


def _version(heading: str) -> str:
    """`[0.1.0] - 2026-01-31` is 0.1.0; any other heading is quoted and equals nothing."""
    found = re.fullmatch(r"\[([^\]]+)\](?: - \d{4}-\d{2}-\d{2})?", heading.strip())
    return found[1] if found else f"“{heading}”"


def newest(changelog: str) -> Section | None:
    """The newest released section."""
    return next((found for found in sections(changelog) if found.version != UNRELEASED), None)


def uncut(changelog: str) -> list[str]:
    """Why the changelog is not ready for a release that is being cut."""
    if newest(changelog) is None:
        return ["not cut yet: the changelog has no version"]
    if any(found.version == UNRELEASED and found.notes for found in sections(changelog)):
        return [f"not cut yet: the changelog has entries under [{UNRELEASED}]"]
    return []


def version_faults(package: str, changelog: str, openapi: Mapping[str, str]) -> list[str]:
    """Places with another version than the package's own; `openapi` maps files to versions."""
    said = {f"OpenAPI ({name})": version for name, version in openapi.items()}
    if section := newest(changelog):
        said = {"the changelog": section.version, **said}
    return [
        f"{where} says {version}, the package {package}"
        for where, version in said.items()
        if version != package
    ]


def kinds(notes: str) -> list[str]:
    """The kinds that the notes mention."""
    return re.findall(r"^Kind: *(.*?) *$", notes, re.MULTILINE)


def notes_faults(section: Section) -> list[str]:
    """What the release notes fail to tell people who upgrade."""
    said = kinds(section.notes)
    if len(said) == 1 and said[0] in KINDS:
        return []
    wanted = " or ".join(f"“Kind: {kind}”" for kind in KINDS)
    return [f"the notes of {section.version} need one line {wanted}, they say {said or 'none'}"]


# ── the wheel ─────────────────────────────────────────────────────────────────────────────────────


def classes(module: str) -> set[str]:
    """The names of the classes that a module's text defines."""
    return {node.name for node in ast.walk(ast.parse(module)) if isinstance(node, ast.ClassDef)}


def wheel_faults(files: Mapping[str, bytes], version: str, bugs: Collection[str]) -> list[str]:
    """What a wheel contains that must not be shipped; `bugs` are the classes with a planted bug."""
    faults = []
    described = f"tidegate-{version}.dist-info"
    if f"\nVersion: {version}\n".encode() not in files.get(f"{described}/METADATA", b""):
        faults.append(f"the wheel is not one of version {version}")
    if "tidegate/__init__.py" not in files:
        faults.append("the wheel has no package")
    if f"{described}/licenses/LICENSE" not in files:
        faults.append("the wheel has no licence")
    for name, content in files.items():
        parts = PurePosixPath(name).parts
        if parts[0] not in ("tidegate", described) or NOT_SHIPPED & set(parts):
            faults.append(f"{name} must not be shipped")
        elif name.endswith(".py"):
            planted = classes(content.decode()) & set(bugs)
            faults += [f"{name} has the planted bug {bug}" for bug in sorted(planted)]
    return faults


def built(home: Path) -> dict[str, bytes]:
    """The files of a wheel that is built from the tree, with the packages installed here."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX
    )
    if done.returncode:
        sys.exit(f"release: no wheel could be built\n{done.stdout}{done.stderr}")
    (wheel,) = home.glob("*.whl")
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# ── nothing is sent ───────────────────────────────────────────────────────────────────────────────

UPLOAD = re.compile(
    r"\btwine\b|\b(?:uv|hatch|hatchling|flit|poetry|pdm|npm)\b.*\b(?:publish|upload)\b"
)


def upload_faults(scripts: Mapping[str, str]) -> list[str]:
    """The lines of our scripts that would upload a package to a registry."""
    return [
        f"{name}:{number} would send a package away: {line.strip()}"
        for name, text in scripts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if UPLOAD.search(line)
    ]


# ── the checks, on this tree ──────────────────────────────────────────────────────────────────────


def package_version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (SOURCE / "__init__.py").read_text(), re.MULTILINE)
    assert found, "the build reads the version there"
    return found[1]


def changelog_text() -> str:
    return (ROOT / "CHANGELOG.md").read_text()


def check_lock() -> Finding:
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = f"{len(locked(lock))} requirements, all with hashes, as pyproject.toml asks"
    return Finding(said, tuple(lock_faults(project, lock)))


def check_versions() -> Finding:
    changelog, package = changelog_text(), package_version()
    descriptions = sorted([*SOURCE.rglob("openapi.json"), *(ROOT / "docs").rglob("openapi.json")])
    openapi = {
        str(path.relative_to(ROOT)): msgspec.json.decode(path.read_bytes())["info"]["version"]
        for path in descriptions
    }
    pending = uncut(changelog)
    if not openapi and (SOURCE / "api").exists():
        pending.append("there is an API, but no openapi.json in src or docs")
    places = ["package", *(["changelog"] if newest(changelog) else []), *openapi]
    said = f"{package} in {', '.join(places)}" + ("" if openapi else "; no OpenAPI document yet")
    return Finding(said, tuple(version_faults(package, changelog, openapi)), tuple(pending))


def check_notes() -> Finding:
    section = newest(changelog_text())
    if section is None:
        return Finding("", pending=("not cut yet: no notes to judge",))
    said = f"{section.version} is {' '.join(kinds(section.notes))}"
    return Finding(said, tuple(notes_faults(section)))


def check_logs() -> Finding:
    """Later versions must open what this one writes."""
    version = package_version()
    missing = [name for names in find_missing(version) for name in names]
    said = f"every type of fact and collection is in the fixture logs of {version}"
    if not missing:
        return Finding(said)
    why = f"no fixture log of {version} has {', '.join(missing)}: run python -m {MAKE_LOGS}"
    return Finding("", pending=(why,))


def check_wheel() -> Finding:
    bugs = classes((ROOT / "tests" / "differential" / "mutants.py").read_text())
    assert bugs, "a list of no bugs would let all of them through"
    with TemporaryDirectory() as home:
        files = built(Path(home))
    said = f"{len(files)} files, nothing of tests and benches, none of {len(bugs)} planted bugs"
    return Finding(said, tuple(wheel_faults(files, package_version(), bugs)))


def check_uploads() -> Finding:
    homes = (ROOT / "script", ROOT / ".github")
    paths = [path for home in homes for path in sorted(home.rglob("*")) if path.is_file()]
    scripts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return Finding(f"{len(scripts)} scripts send nothing", tuple(upload_faults(scripts)))


def check_scenarios() -> Finding:
    run = [sys.executable, "-m", "pytest", "-q", *WHEEL_TESTS]
    done = subprocess.run(
        run, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WHEEL_TESTS_SECONDS_MAX
    )
    passed = done.returncode == 0 and f"{len(WHEEL_TESTS)} passed" in done.stdout  # none skipped
    faults = () if passed else (done.stdout + done.stderr,)
    return Finding("06 to 09 hold against the built wheel in a fresh environment", faults)


def check_suite() -> Finding:
    done = subprocess.run([ROOT / "script" / "test"], cwd=ROOT, check=False)
    faults = ("script/test failed",) if done.returncode else ()
    return Finding("lint, types and every test on every engine", faults)


STEPS: Mapping[str, Callable[[], Finding]] = {
    "lock": check_lock,
    "versions": check_versions,
    "notes": check_notes,
    "logs": check_logs,
    "uploads": check_uploads,
    "wheel": check_wheel,
    "scenarios": check_scenarios,
    "suite": check_suite,
}


def passes(steps: Iterable[tuple[str, Callable[[], Finding]]], *, dry_run: bool) -> bool:
    """Run the checks in order, print a line each, and stop at the first fault."""
    for name, check in steps:
        finding = check()
        wrong = finding.faults if dry_run else (*finding.faults, *finding.pending)
        if wrong:
            print(f"release: {name} FAILED", *wrong, sep="\n  ", flush=True)
            return False
        said = "; ".join(filter(None, (finding.said, *finding.pending)))
        print(f"release: {name} ok: {said}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/release", description="May this be released?")
    parser.add_argument("--dry-run", action="store_true", help="let pass what is not cut yet")
    parser.add_argument("--no-suite", action="store_true", help="with --dry-run: leave it out")
    asked = parser.parse_args()
    if asked.no_suite and not asked.dry_run:
        parser.error("--no-suite goes with --dry-run only: a release has passed the suite")
    steps = [step for step in STEPS.items() if step[0] != "suite" or not asked.no_suite]
    if not passes(steps, dry_run=asked.dry_run):
        return 1
    verdict = "dry run passed, this releases nothing" if asked.dry_run else "may be released"
    print(f"release: tidegate {package_version()}: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
