"""Power loss: cut the writes of a whole installation at random points, and open what remains.

    work, recorded ─▶ cut ─▶ open, compare with the ledger, verify ─▶ (recorded too) ─▶ cut again …

The engine is the one that we ship. A preloaded library records each write, truncation, rename and
sync of the process. The ledger is a file of the recorded directory, so its lines are in order with
the writes. The same work with ``synchronous=NORMAL`` must lose commits: a bench that sees no
difference is blind.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import apsw

from bench.faults import workload
from bench.faults.disk import Disk, FileCall, Kind, recorded, write_tree
from bench.faults.workload import Ledger, Line
from bench.trials import Findings, Trial
from tidegate.engines.sqlite import connection
from tidegate.errors import TidegateError

CUTS = 50  # of one recording
DOUBLE_EVERY = 4  # one of so many cuts is followed by another cut, in the writes of the restart
BLIND_CUTS = 10  # with synchronous=NORMAL
LEDGER = "ledger"
DATA = "data"
# Small, so that checkpoints and spills happen in the middle of a recording.
SIZES = {
    "CHECKPOINT_PAGES": (20, 60, 16_000),
    "WAL_ROOM_MIN": (4_096, 128 * 1024),
    "CACHE_KIB": (64, 16 * 1024),
}


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    for name, choices in SIZES.items():
        setattr(connection, name, random.choice(choices))
    calls = _record(lambda home: _work(home, random, 3, 15))
    cuts = CUTS // 5 if trial.mode == "smoke" else CUTS
    for number, (disk, ledger) in enumerate(_cuts(calls, Disk({f"{DATA}/": b""}), random, cuts)):
        findings.counts["cuts"] += 1
        tree = disk.cut(random)
        again = _open_and_check(tree, ledger, random, findings, f"cut {number}")
        if number % DOUBLE_EVERY == 0 and again is not None:
            for second, more in _cuts(again, Disk(tree), random, 1):
                findings.counts["double cuts"] += 1
                _open_and_check(
                    second.cut(random), ledger + more, random, findings, f"cuts {number} and again"
                )
    findings.counts["acknowledged"] += len(_ledger(calls))
    _look_for_loss(random, findings)
    return findings


def _work(home: Path, random: Random, people: int, steps: int) -> None:
    """Set up and work in two sittings, with a restart between them."""
    with closing(Ledger(home / LEDGER)) as ledger:
        for sitting in range(2):
            with closing(workload.opened(home / DATA)) as installation:
                workload.begin(installation, ledger)
                names = [f"p{sitting}{number}" for number in range(people)]
                workload.work_together(installation, ledger, random, names, steps)


def _open_and_check(
    tree: dict[str, bytes], ledger: list[Line], random: Random, findings: Findings, where: str
) -> list[FileCall] | None:
    """Open what remains, check it, and work on; the recorded calls, or None after a failure."""
    findings.counts["acknowledged before cuts"] += len(ledger)

    def restart(home: Path) -> None:
        write_tree({path: content for path, content in tree.items() if path != LEDGER}, home)
        (home / DATA).mkdir(mode=0o700, exist_ok=True)
        with _recording(home), closing(Ledger(home / LEDGER)) as more:
            with closing(workload.opened(home / DATA)) as installation:
                found.extend(workload.wrongs(installation, ledger))
                workload.begin(installation, more)
                workload.work(
                    installation, more, random, name=f"after-{random.getrandbits(40)}", steps=2
                )
                found.extend(workload.differences_of(installation))
            found.extend(_damage(home / DATA / "tidegate.db"))

    found: list[str] = []
    try:
        calls = _in_directory(restart)
    except (TidegateError, apsw.Error, OSError) as error:
        found.append(f"it does not start: {type(error).__name__}: {error}")
        calls = None
    findings.failures += [f"{where}: {wrong}" for wrong in found[:3]]
    return calls


def _damage(database: Path) -> list[str]:
    with closing(apsw.Connection(str(database))) as opened:
        said = opened.execute("PRAGMA quick_check").fetchall()
    return [] if said == [("ok",)] else [f"the database is damaged: {said[:3]}"]


def _look_for_loss(random: Random, findings: Findings) -> None:
    """Run the same work with settings that must lose commits."""
    demanded, open_connection = dict(connection._DEMANDED), connection._open

    def open_careless(path: str, threads: int = apsw.SQLITE_OPEN_FULLMUTEX) -> apsw.Connection:
        opened = open_connection(path, threads)
        opened.execute("PRAGMA synchronous = NORMAL").fetchall()
        return opened

    connection.CHECKPOINT_PAGES = max(SIZES["CHECKPOINT_PAGES"])  # each checkpoint syncs
    connection._DEMANDED["synchronous"] = 1
    connection._open = open_careless
    try:
        calls = _record(lambda home: _work(home, random, 2, 10))
    finally:
        connection._DEMANDED.update(demanded)
        connection._open = open_connection
    for disk, ledger in _cuts(calls, Disk({f"{DATA}/": b""}), random, BLIND_CUTS):
        lost = Findings()
        _open_and_check(disk.cut(random), ledger, random, lost, "blind")
        findings.counts["cuts with synchronous=NORMAL"] += 1
        findings.counts["of them lost commits"] += any("acknowl" in w for w in lost.failures)


# ── recording ─────────────────────────────────────────────────────────────────────────────────────


def _cuts(
    calls: list[FileCall], disk: Disk, random: Random, count: int
) -> Iterator[tuple[Disk, list[Line]]]:
    """The disk at this many random points, in order, with the lines acknowledged before each."""
    answers = [at for at, call in enumerate(calls) if call.path == LEDGER] or [0]
    points = [random.randrange(len(calls) + 1) for _ in range(count)]
    for at in range(0, count, 3):  # most calls belong to the start; the later ones matter more
        points[at] = random.choice(answers) + random.randint(0, 2)
        points[at + 1 : at + 2] = [random.randint(answers[0], len(calls))]
    points = sorted(min(point, len(calls)) for point in points[:count])
    done, ledger = 0, b""
    for point in points:
        for call in calls[done:point]:
            if call.path == LEDGER:
                ledger += call.data if call.kind == Kind.WRITE else b""
            elif not call.path.endswith("-shm"):
                disk.apply(call)
        done = point
        yield disk, workload.lines_of(ledger)


def _ledger(calls: list[FileCall]) -> list[Line]:
    written = (call.data for call in calls if (call.path, call.kind) == (LEDGER, Kind.WRITE))
    return workload.lines_of(b"".join(written))


def _record(do: Callable[[Path], None]) -> list[FileCall]:
    def recorded_do(home: Path) -> None:
        (home / DATA).mkdir(mode=0o700)
        with _recording(home):
            do(home)

    return _in_directory(recorded_do)


def _in_directory(do: Callable[[Path], None]) -> list[FileCall]:
    home = Path(tempfile.mkdtemp(prefix="cut-"))
    try:
        do(home)
        return recorded(home.with_suffix(".log"), home)
    finally:
        shutil.rmtree(home)
        home.with_suffix(".log").unlink(missing_ok=True)


@contextmanager
def _recording(home: Path) -> Iterator[None]:
    """Record what this process does to files below the directory."""
    library = ctypes.CDLL(None)  # the preloaded library among them
    log = home.with_suffix(".log")
    assert library.recorder_start(str(home).encode(), str(log).encode()) == 0
    try:
        yield
    finally:
        library.recorder_stop()
