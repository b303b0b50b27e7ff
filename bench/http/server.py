"""`tidegate serve` as a process that is measured: CPU, memory, a graceful stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import free_port, speaks_http

SECONDS_MAX = 60.0
PROCESS_CPU_CLOCK = 2  # combined with the process id it is a clock id, see clock_getcpuclockid(3)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PLAIN = ("-m", "tidegate")
METERED = ("-m", "bench.http.metered")
LIMITS = ("reads", "writes", "agent-requests")
FAR = tuple(word for name in LIMITS for word in (f"--{name}-per-second", "1000000"))


@dataclass(frozen=True)
class Server:
    """A server on a port of loopback."""

    port: int
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far, in nanoseconds rather than ticks."""
        return time.clock_gettime(~self.process.pid << 3 | PROCESS_CPU_CLOCK)

    def memory_bytes(self) -> tuple[int, int]:
        """The resident memory, and its private part: every reader of the log maps its file, and the
        system counts a mapped page for each of them.
        """
        resident, mapped = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1:3]
        return int(resident) * PAGE_BYTES, (int(resident) - int(mapped)) * PAGE_BYTES


@contextmanager
def serving(
    data: Path, *flags: str, program: Sequence[str] = PLAIN, log: Path | None = None
) -> Iterator[Server]:
    """Serve this data directory while the block runs."""
    port = free_port()
    words = ["serve", "--data", str(data), "--port", str(port), *FAR, *flags]
    with (log or data.parent / "server.log").open("ab") as said:
        process = subprocess.Popen([sys.executable, *program, *words], stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not speaks_http(port):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)
        yield Server(port, process)
    finally:
        process.terminate()
        try:
            process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
