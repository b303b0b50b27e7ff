"""What a run was made on: enough to read its figures, nothing that identifies the machine."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from statistics import median

import apsw

SYNCS = 200
BLOCK = b"." * 4096


def described(home: Path) -> dict[str, str]:
    """Processor, memory, disk and versions, as words."""
    return {
        "processor": f"{os.cpu_count()} × {_processor()}",
        "fdatasync of 4 KiB appended": f"{_sync_microseconds(home):,.0f} µs median",
        "Python": f"{platform.python_version()} ({sys.implementation.name})",
        "SQLite": apsw.sqlite_lib_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _sync_microseconds(home: Path) -> float:
    probe = home / "sync-probe"
    took = []
    with probe.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(BLOCK)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - begun)
    probe.unlink()
    return median(took) * 1e6
