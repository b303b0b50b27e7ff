"""`python -m tidegate.main serve` as a process, which takes its settings from the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.operations.processes import ServerProcess


def main_process(data: Path) -> ServerProcess:
    return ServerProcess(data, module="tidegate.main")


@contextmanager
def start_server(data: Path) -> Iterator[ServerProcess]:
    with main_process(data) as process:
        process.wait()
        yield process
