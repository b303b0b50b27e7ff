"""What a large file costs: a revision pushed, read in review, approved and pulled by the CLI.

    python -m bench content               64 MiB, as in CI
    python -m bench content --mode long   1 GiB

The server and each command are processes of their own. The growth of the server is its peak of
private memory, sampled, less what it had before its first transfer. The memory of a command is its
peak resident memory.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import httpx2
from msgspec import Struct

from bench.http.prepared_data import fill
from bench.http.server import Server, serving

MIB = 1024 * 1024
SIZES = {"ci": 64 * MIB, "long": 1024 * MIB}
SERVER_GROWTH_MAX = 50 * 1000 * 1000
CLI_RESIDENT_MAX = 60 * MIB  # a command that transfers nothing needs 23 MB
SAMPLE_SECONDS = 0.02
PIECE_BYTES = 4 * MIB
# The system's figure for a child that has ended includes the memory of its parent.
CHILD = """
import runpy, sys
from pathlib import Path
try:
    runpy.run_module("tidegate", run_name="__main__", alter_sys=True)
finally:
    print(next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x))
"""


class Transfer(Struct, frozen=True):
    """One step: how long it took, and what it cost."""

    name: str
    seconds: float
    server_growth: int
    cli_resident: int | None = None  # None: the step is not a command


class _Growth:
    """The growth of a server's private memory while a block runs, at its peak."""

    def __init__(self, server: Server, before: int) -> None:
        self._server = server
        self._before = before
        self._stop = Event()
        self.most = 0

    def __enter__(self) -> _Growth:
        self._thread = Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.most = max(self.most, self._server.memory_bytes()[1] - self._before)
            if self._stop.wait(SAMPLE_SECONDS):
                return


def write_file(place: Path, size: int, seed: int) -> None:
    """Write bytes that cannot be compressed."""
    numbers = random.Random(seed)
    with place.open("wb") as file:
        for _ in range(0, size, PIECE_BYTES):
            file.write(numbers.randbytes(min(PIECE_BYTES, size)))


def command(url: str, token: str, *words: str) -> int:
    """Run a command of the CLI; return its peak resident memory."""
    environment = {**os.environ, "TIDEGATE_URL": url, "TIDEGATE_TOKEN": token}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(ran.stdout.split()[-2]) * 1024  # "VmHWM: 45678 kB"


def measure(size: int, place: Path, seed: int) -> list[Transfer]:
    """Run every step for one revision with one file of this size."""
    prepared = fill(place / "data", 1, 1)
    tree, pulled = place / "tree", place / "pulled"
    tree.mkdir()
    write_file(tree / "image.bin", size, seed)
    limits = [f"--{name}-bytes-max={size}" for name in ("file", "revision")]
    found = []
    with serving(prepared.data, *limits) as server:
        url = f"http://127.0.0.1:{server.port}"

        def run(*words: str) -> int:
            return command(url, prepared.token, *words)

        run("rev", "create", "image", "--workspace", "v1")
        before = server.memory_bytes()[1]

        def step(name: str, work: Callable[[], int | None]) -> None:
            with _Growth(server, before) as growth:
                begun = time.perf_counter()
                resident = work()
                seconds = time.perf_counter() - begun
            found.append(Transfer(name, seconds, growth.most, resident))

        step("push", lambda: run("rev", "push", "image.v1", str(tree)))
        run("rev", "propose", "image.v1")
        step("approve (reads every byte)", lambda: run("rev", "approve", "image.v1"))
        step("pull", lambda: run("rev", "pull", "image.v1", str(pulled)))
        step("download", lambda: _download(url, prepared.token))
        step("download of the second half", lambda: _download(url, prepared.token, size // 2))
    same = (tree / "image.bin").stat().st_size == (pulled / "image.bin").stat().st_size
    assert same, "the pulled bytes differ from the pushed ones"
    return found


def _download(url: str, token: str, start: int = 0) -> None:
    headers = {"authorization": f"Bearer {token}"}
    if start:
        headers["range"] = f"bytes={start}-"
    path = f"{url}/v1/revisions/default.image.v1/resources/image.bin"
    with httpx2.stream("GET", path, headers=headers, timeout=300) as answer:
        assert answer.status_code == (206 if start else 200)
        for _ in answer.iter_raw():
            pass


def report(size: int, transfers: Sequence[Transfer]) -> str:
    lines = [
        f"| one file of {size // MIB:,} MiB | seconds | MB/s | server memory, MB more | CLI, MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for item in transfers:
        moved = size // 2 if "half" in item.name else size
        cli = "" if item.cli_resident is None else f"{item.cli_resident / 1e6:.0f}"
        lines.append(
            f"| {item.name} | {item.seconds:.1f} | {moved / 1e6 / item.seconds:.0f} |"
            f" {item.server_growth / 1e6:.1f} | {cli} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench content",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mode", choices=tuple(SIZES), default="ci")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--state", type=Path, help="where files are written; default: a temporary directory"
    )
    options = parser.parse_args(arguments)
    size = SIZES[options.mode]
    with TemporaryDirectory(dir=options.state) as place:
        if shutil.disk_usage(place).free < 4 * size:
            print(f"{place} has less than {4 * size // MIB} MiB free", file=sys.stderr)
            return 2
        found = measure(size, Path(place), options.seed)
    print(report(size, found))
    grown = max(item.server_growth for item in found)
    resident = max(item.cli_resident or 0 for item in found)
    is_within = grown <= SERVER_GROWTH_MAX and resident <= CLI_RESIDENT_MAX
    print(f"\nseed {options.seed}; bounds {'held' if is_within else 'BROKEN'}")
    return int(not is_within)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
