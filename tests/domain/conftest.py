"""Fixtures that several tests of the domain use."""

from __future__ import annotations

import pytest

from tests.domain.package_log import PackageLog


@pytest.fixture
def package_log() -> PackageLog:
    """A log with one repository."""
    package_log = PackageLog()
    package_log.repository()
    return package_log
