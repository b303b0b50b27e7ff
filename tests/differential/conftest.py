"""Fresh logs for tests that compare engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.logs import Logs


@pytest.fixture
def logs(engine: str, tmp_path: Path) -> Iterator[Logs]:
    """Fresh logs on the test's engine."""
    with closing(Logs(engine, tmp_path)) as logs:
        yield logs
