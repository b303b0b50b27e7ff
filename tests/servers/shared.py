"""One server of a kind for a whole test run, started when the first test needs it.

The run is a directory that its first process (pytest's controller) creates and names in the
environment, so that workers and the processes of tests find it. The first process that needs a
server starts a keeper (`python -m tests.servers KIND --run …`) under a file lock. The keeper stops
its server on a signal, or when the first process has ended for any reason.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.servers import dynamodb, postgres, s3
from tests.servers.process import (
    READY_SECONDS_MAX,
    RUN_VARIABLE,
    STOP_SECONDS_MAX,
    ServerUnavailable,
    until,
)

ROOT = Path(__file__).parents[2]
KINDS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "postgres": postgres.running,
    "dynamodb": dynamodb.running,
    "s3": s3.running,
}
GIVEN = {
    "postgres": postgres.URL_VARIABLE,
    "dynamodb": dynamodb.URL_VARIABLE,
    "s3": s3.URL_VARIABLE,
}
FETCH_SECONDS_MAX = 300.0
WATCH_SECONDS = 0.5

_keepers: list[subprocess.Popen[bytes]] = []


@contextmanager
def run() -> Iterator[None]:
    """The span in which `url` works; the outermost one, in the first process, stops servers."""
    if RUN_VARIABLE in os.environ:
        yield
        return
    home = Path(tempfile.mkdtemp(prefix="tidegate-run-"))
    os.environ[RUN_VARIABLE] = str(home)
    (home / "owner").write_text(str(os.getpid()))
    try:
        yield
    finally:
        del os.environ[RUN_VARIABLE]
        for note in home.glob("*.json"):
            os.kill(json.loads(note.read_text())["keeper"], signal.SIGTERM)
        until(lambda: not list(home.glob("*.json")), seconds_max=2 * STOP_SECONDS_MAX)
        shutil.rmtree(home, ignore_errors=True)


def url(kind: str) -> str:
    """The URL of this run's server of that kind, which is started if none runs yet.

    Raises:
        ServerUnavailable: it could not be started; the message ends with the keeper's output.
    """
    if given := os.environ.get(GIVEN[kind]):
        return given
    home = Path(os.environ[RUN_VARIABLE])
    note, log = home / f"{kind}.json", home / f"{kind}.log"
    with (home / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            with log.open("wb") as sink:
                keeper = subprocess.Popen(
                    [sys.executable, "-m", "tests.servers", kind, "--run", str(home)],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            _keepers.append(keeper)
            until(
                lambda: note.exists() or keeper.poll() is not None,
                seconds_max=FETCH_SECONDS_MAX + READY_SECONDS_MAX,
            )
            if not note.exists():
                raise ServerUnavailable(f"no {kind} for the tests\n{log.read_text()}")
    answer: str = json.loads(note.read_text())["url"]
    return answer


def keep(kind: str, home: Path) -> None:
    """Run the server of that kind for the run at `home`, as its keeper process."""
    stop_on_sigterm()
    owner = int((home / "owner").read_text())
    note, draft = home / f"{kind}.json", home / f"{kind}.draft"
    try:
        with KINDS[kind]() as served:
            draft.write_text(json.dumps({"url": served, "keeper": os.getpid()}))
            draft.rename(note)
            while _alive(owner):
                time.sleep(WATCH_SECONDS)
        shutil.rmtree(home, ignore_errors=True)  # the owner died and did not remove it
    finally:
        note.unlink(missing_ok=True)


def stop_on_sigterm() -> None:
    """Let SIGTERM unwind this process like an exit, so that its servers are stopped."""

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        sys.exit()

    signal.signal(signal.SIGTERM, stop)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
