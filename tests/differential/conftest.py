"""Fresh logs for tests that compare engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.logs import Logs
from tests.differential.tiny import shrunk


@pytest.fixture
def logs(engine: str, tmp_path: Path) -> Iterator[Logs]:
    """Fresh logs on the test's engine."""
    with closing(Logs(engine, tmp_path)) as logs:
        yield logs


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cache of the engines drops its contents at nearly every step, in this process."""
    shrunk(monkeypatch)
