"""The cache of filled logs between runs: each is filled once, under a name, completely or not at
all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import tidegate


class LogCache:
    """A directory of filled logs, each a directory of files that are copied before use."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)

    def kept(self, name: str, fill: Callable[[Path], None]) -> Path:
        """The directory with that name; `fill` creates it if it does not exist."""
        place = self.home / name
        if not place.exists():
            draft = self.home / f"{name}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            fill(draft)
            draft.rename(place)
        return place

    @contextmanager
    def copy(self, original: Path | None = None) -> Iterator[Path]:
        """A new directory, removed after the block: empty, or with the original's files."""
        with TemporaryDirectory(prefix="run-", dir=self.home) as name:
            if original is not None:
                shutil.copytree(original, name, copy_function=_copy, dirs_exist_ok=True)
            yield Path(name)


def _copy(original: str, copy: str) -> None:
    """Copy a file and flush it: a later flush would slow the first cells."""
    shutil.copyfile(original, copy)
    with open(copy, "rb") as file:
        os.fsync(file.fileno())


def fingerprint() -> str:
    """A digest of our engines' source: a log filled by other engines is not reused."""
    digest = sha256()
    for package in ("engines", "kernel"):
        for path in sorted((Path(tidegate.__file__).parent / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
