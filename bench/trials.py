"""Run the parts of a reliability bench as many small trials, each in a process of its own.

    python -m bench faults power --mode ci --seed 1

A part has a number of trials per mode. Each finished trial is one line of the state file, so a run
that was stopped continues where it ended when you start it again. Every failure is printed with the
command that repeats its trial. A part that could not have found anything says so, and fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import tidegate
from bench import options
from bench.faults import preload
from bench.tables import table
from tests.servers import shared
from tests.servers.fixtures import AWS_DEFAULTS

ROOT = Path(__file__).parents[1]
MODES = ("smoke", "ci", "full", "long")
MEMORY = Path("/dev/shm")  # a file system in memory, where trials need not wait for a disk
TRIAL_SECONDS_MAX = 1_500.0
FAILURES_SHOWN_MAX = 20
TAIL_CHARS = 2_000


@dataclass
class Findings:
    """The counts of a trial, and what it found wrong, a sentence each."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """One trial of a part; the same seed and number repeat it exactly."""

    part: str
    mode: str
    seed: int
    number: int

    def random(self) -> Random:
        return Random(f"{self.part}/{self.seed}/{self.number}")


def no_complaint(counts: Counter[str]) -> list[str]:
    return []


@dataclass(frozen=True)
class Part:
    """What is tried, how often in each mode, and what the sum must show."""

    name: str
    trials: Mapping[str, int]  # by mode
    run: Callable[[Trial], Findings]
    blind_spots: Callable[[Counter[str]], list[str]] = no_complaint
    is_alone: bool = False  # its figures suffer from other load
    preload: str = ""  # the C file of bench/faults that its process is started with
    server: str = ""  # the database server that all of its trials share


@dataclass(frozen=True)
class Subject:
    """The parts of one subject of the command line."""

    name: str
    parts: Sequence[Part]

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)


class StateFile:
    """One line for each finished trial, appended."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def finished(self) -> dict[str, dict[str, Any]]:
        """The lines by their key; a line that was cut off by a stop does not count."""
        found = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    said = json.loads(line)
                except ValueError:
                    continue
                found[said["key"]] = said
        return found

    def add(self, key: str, findings: Findings, seconds: float) -> None:
        line = {
            "key": key,
            "seconds": round(seconds, 2),
            "counts": findings.counts,
            "failures": findings.failures,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main(subject: Subject, arguments: Sequence[str]) -> int:
    asked = _parser(subject).parse_args(arguments)
    os.environ.update({k: os.environ.get(k, value) for k, value in AWS_DEFAULTS.items()})
    if asked.trial is not None:
        os.environ.setdefault("TMPDIR", _home() or tempfile.gettempdir())
        if name := subject.part(*asked.parts).preload:
            _preload(name)
    with shared.run():  # database servers, started when a trial needs one
        return _run_one(subject, asked) if asked.trial is not None else _run(subject, asked)


def _run(subject: Subject, asked: argparse.Namespace) -> int:
    began = time.monotonic()
    state = StateFile(asked.state / f"{subject.name}.jsonl")
    end = None if asked.minutes is None else began + 60 * asked.minutes
    rows, failures = [], []
    names = asked.parts or [part.name for part in subject.parts]
    for name in names:
        part = subject.part(name)
        if part.server:
            shared.url(part.server)  # started here: it outlives the first trial
        count = asked.trials or part.trials[asked.mode]
        trials = [Trial(name, asked.mode, asked.seed, number) for number in range(count)]
        found, missing, seconds = _run_all(subject, part, trials, state, asked, end)
        wrong = [*found.failures]
        if not missing and not asked.trials:
            wrong += [f"{name} is blind: {spot}" for spot in part.blind_spots(found.counts)]
        failures += wrong
        told = ", ".join(f"{what} {count:,}" for what, count in sorted(found.counts.items()))
        rows.append([name, told, f"{seconds:.0f} s", _verdict(wrong, missing)])
        print(f"{name}: {told} ({seconds:.0f} s)", flush=True)
    for failure in failures[:FAILURES_SHOWN_MAX]:
        print(f"FAILED {failure}", flush=True)
    print(table(["part", "counted", "took", "verdict"], rows))
    print(f"seed {asked.seed}, mode {asked.mode}, {time.monotonic() - began:.0f} s in this run")
    return 1 if failures else 0


def _verdict(wrong: Sequence[str], missing: int) -> str:
    if wrong:
        return f"{len(wrong)} failures"
    return f"{missing} trials left" if missing else "held"


def _run_all(
    subject: Subject,
    part: Part,
    trials: Sequence[Trial],
    state: StateFile,
    asked: argparse.Namespace,
    end: float | None,
) -> tuple[Findings, int, float]:
    """The sum of all trials, the number of trials left, and the seconds that the others took."""
    total, seconds, left = Findings(), 0.0, 0
    tree = fingerprint()
    finished = {} if asked.fresh else state.finished()
    waiting: list[Trial] = []
    for trial in trials:
        if said := finished.get(_key(tree, subject, trial)):
            _add(total, Findings(Counter(said["counts"]), said["failures"]))
            seconds += said["seconds"]
        else:
            waiting.append(trial)
    jobs = 1 if part.is_alone else asked.jobs
    for trial, findings, took in _results(subject, iter(waiting), jobs, end):
        if findings is None:
            left += 1
            continue
        findings.failures = [f"{what}: {command(subject, trial)}" for what in findings.failures]
        for failure in findings.failures:
            print(f"FAILED {failure}", file=sys.stderr, flush=True)
        state.add(_key(tree, subject, trial), findings, took)
        _add(total, findings)
        seconds += took
    return total, left, seconds


def _add(total: Findings, more: Findings) -> None:
    for name, count in more.counts.items():
        is_peak = name.startswith("most ")
        total.counts[name] = (
            max(total.counts[name], count) if is_peak else (total.counts[name] + count)
        )
    total.failures += more.failures


def _results(
    subject: Subject, trials: Iterator[Trial], jobs: int, end: float | None
) -> Iterator[tuple[Trial, Findings | None, float]]:
    """Results as they complete; None for a trial that did not start because the time was over."""

    def run(trial: Trial) -> tuple[Trial, Findings | None, float]:
        if end is not None and time.monotonic() > end:
            return trial, None, 0.0
        began = time.monotonic()
        return trial, _run_apart(subject, trial), time.monotonic() - began

    with ThreadPoolExecutor(jobs) as pool:
        under_way: set[Future[tuple[Trial, Findings | None, float]]] = set()
        while True:
            under_way |= {
                pool.submit(run, trial) for trial in islice(trials, jobs - len(under_way))
            }
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def _words(subject: Subject, trial: Trial) -> list[str]:
    words = [subject.name, trial.part, "--mode", trial.mode, "--seed", str(trial.seed)]
    return [*words, "--trial", str(trial.number)]


def command(subject: Subject, trial: Trial) -> str:
    """The command that repeats the trial."""
    bug = os.environ.get("TIDEGATE_BENCH_BUG")
    planted = f"TIDEGATE_BENCH_BUG={bug} " if bug else ""
    return f"{planted}python -m bench {shlex.join(_words(subject, trial))}"


def _run_apart(subject: Subject, trial: Trial) -> Findings:
    with tempfile.TemporaryDirectory(prefix="tidegate-trial-", dir=_home()) as home:
        Path(home).chmod(0o755)  # as root, PostgreSQL runs as another user
        result = Path(home) / "result.json"
        words = ["-m", "bench", *_words(subject, trial), "--result", str(result)]
        with (Path(home) / "said").open("w+b") as said:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, "TMPDIR": home},
            )
            try:
                code = process.wait(TRIAL_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return Findings(failures=[f"no end within {TRIAL_SECONDS_MAX:.0f} s"])
            if not result.exists():
                said.seek(0)
                tail = said.read().decode(errors="replace")[-TAIL_CHARS:]
                print(tail, file=sys.stderr, flush=True)
                last = tail.strip().rpartition("\n")[2]
                return Findings(failures=[f"the trial ended with {code}: {last}"])
        found = json.loads(result.read_text())
        return Findings(Counter(found["counts"]), found["failures"])


def _home() -> str | None:
    """A directory in memory if there is room, or else one for temporary files."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    return str(MEMORY)


def _run_one(subject: Subject, asked: argparse.Namespace) -> int:
    (name,) = asked.parts
    findings = subject.part(name).run(Trial(name, asked.mode, asked.seed, asked.trial))
    told = {"counts": findings.counts, "failures": findings.failures}
    if asked.result:
        asked.result.write_text(json.dumps(told))
    else:
        print(json.dumps(told, indent=1))
    return 1 if findings.failures else 0


def _preload(name: str) -> None:
    """Start this process again with the library, unless it is loaded."""
    library = str(preload.library(name))
    if os.environ.get("LD_PRELOAD") != library:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "LD_PRELOAD": library})


def imported(module: str) -> Callable[[Trial], Findings]:
    """The function `run` of a module that is imported when the first trial runs."""

    def run(trial: Trial) -> Findings:
        found: Findings = import_module(module).run(trial)
        return found

    return run


def _key(tree: str, subject: Subject, trial: Trial) -> str:
    bug = os.environ.get("TIDEGATE_BENCH_BUG", "")
    return "/".join([tree, bug, *_words(subject, trial)])


def fingerprint() -> str:
    """A digest of the source and the bench: results of other versions are not counted."""
    digest = sha256()
    for home in (Path(tidegate.__file__).parent, ROOT / "bench"):
        for path in sorted([*home.rglob("*.py"), *home.rglob("*.c")]):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _parser(subject: Subject) -> argparse.ArgumentParser:
    names = [part.name for part in subject.parts]
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {subject.name}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("parts", nargs="*", metavar="part", help=f"one or more of {', '.join(names)}; default: all")
    add("--mode", choices=MODES, default="ci")
    add("--seed", type=int, default=1)
    add("--trials", type=int, help="trials of each part, instead of the mode's number")
    add("--trial", type=int, help="run only this trial, in this process, to repeat it")
    add("--minutes", type=float, help="start no more trials after this time")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="trials that run at the same time")
    add("--fresh", action="store_true", help="ignore the results of earlier runs")
    add("--state", type=Path, default=options.STATE, help="the directory for finished trials")
    add("--result", type=Path, help=argparse.SUPPRESS)
    return parser
