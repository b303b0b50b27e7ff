"""Fixtures that several tests of the domain use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.publication.publishing import LOG, SCHEMA, T0, Publishing, publishing_at
from tests.domain.package_log import PackageLog
from tidegate.clock import ManualClock
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.engines.memory import MemoryStore


@pytest.fixture
def package_log() -> PackageLog:
    """A log with one repository."""
    package_log = PackageLog()
    package_log.repository()
    return package_log


@pytest.fixture
def publishing(tmp_path: Path) -> Iterator[Publishing]:
    """Publications in memory, with bodies in files."""
    clock = ManualClock(T0)
    blobs = FileBlobs(tmp_path / "blobs", LOG, clock=clock)
    with publishing_at(MemoryStore(SCHEMA), blobs, clock) as publishing:
        yield publishing
