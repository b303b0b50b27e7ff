"""What processes used, from /proc: CPU seconds of a server and its children, resident memory."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(root: int) -> float:
    """User and system time of a process and all its descendants, ended children included."""
    stats = {pid: stat for pid in _processes() if (stat := _stat(pid)) is not None}
    family = {root}
    grown = True
    while grown:
        children = {pid for pid, stat in stats.items() if int(stat[1]) in family}
        grown = not children <= family
        family |= children
    # The name is followed by state, parent, …; utime, stime, cutime, cstime are fields 11 … 14.
    return sum(sum(map(int, stats[pid][11:15])) for pid in family if pid in stats) / TICKS


def resident_bytes() -> tuple[int, int]:
    """Of this process: all resident memory, and the part that maps files or is shared."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * PAGE_BYTES, int(fields[2]) * PAGE_BYTES


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended between the listing and the read
    return text.rpartition(")")[2].split()
