"""Python environments that hold only a built package and what it requires."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def list_required(names: Iterable[str]) -> set[str]:
    """The names of these distributions and of everything that they require on this machine."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                left.append(requirement.name)
    return found


def build_wheel(project: Path, home: Path) -> Path:
    """Build the wheel of a project into this directory."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)]
    built = subprocess.run(build, cwd=project, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = home.glob("*.whl")
    return wheel


def make_environment(home: Path, wheel: Path) -> Path:
    """Make an environment with only this wheel. Return its site-packages."""
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def link_distributions(site: Path, names: Iterable[str]) -> None:
    """Add these distributions of this environment to another one."""
    for name in names:
        there = distribution(name)
        for top in {file.parts[0] for file in there.files or () if file.parts[0] != ".."}:
            (site / top).symlink_to(Path(str(there.locate_file(top))))


def run_alone(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this Python without the variables of this process."""
    return subprocess.run(
        [str(python), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=python.parent,
        env={"PATH": "/usr/bin:/bin", "HOME": str(python.parent)},
    )
