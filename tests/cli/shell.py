"""A person at a shell: runs ``tidegate`` as a process of its own, on a pipe or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_MAX = 90.0
Dialogue = Sequence[tuple[str, str]]  # a prompt, and the input for it
COLUMNS = 100


@dataclass(frozen=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


INTERRUPT = "\x03"  # the character that Ctrl-C sends


class Shell:
    """The shell of one person: a home directory, and the server that it talks to."""

    def __init__(self, home: Path, url: str | None = None, token: str | None = None) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "COLUMNS": str(COLUMNS),
            "LANG": "C.UTF-8",
        }
        if url is not None:
            self.environ["TIDEGATE_URL"] = url
        if token is not None:
            self.environ["TIDEGATE_TOKEN"] = token

    def run(self, *args: str, stdin: str = "", **environ: str) -> Ran:
        """Run a command with its output on pipes."""
        done = subprocess.run(
            [sys.executable, "-m", "tidegate", *args],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.home,
            env={**self.environ, **environ},
            timeout=SECONDS_MAX,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a command, and do not wait for its end."""
        return subprocess.Popen(
            [sys.executable, "-m", "tidegate", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env=self.environ,
        )

    def on_terminal(self, *args: str, typed: Dialogue = (), **environ: str) -> Ran:
        """Run a command on a terminal of its own; its output and errors are mixed.

        Each input is typed when its prompt appears.
        """
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.home,
            env={**self.environ, "TERM": "xterm-256color", **environ},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)
        try:
            seen = _read_all(ours, list(typed))
        finally:
            os.close(ours)
            process.kill() if process.poll() is None else None
            process.wait()
        return Ran(process.returncode, seen.decode(), "")


def _own_terminal() -> None:
    """Make standard input the controlling terminal, for interrupts and for secrets."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the test runner may ignore it
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_all(terminal: int, typed: list[tuple[str, str]]) -> bytes:
    seen, last = b"", ""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if not ready:
            if last == INTERRUPT:  # Python may start to read only after it, and miss it
                os.write(terminal, last.encode())
            continue
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # the other end is closed: the command has ended
            return seen
        if not part:
            return seen
        seen += part
        if typed and seen.endswith(typed[0][0].encode()):
            last = typed.pop(0)[1]
            os.write(terminal, last.encode())
    raise AssertionError(f"the command did not end: {seen!r}")
