"""Drivers: how a closure becomes what runs, and what runs now.

    symlink   <root>/current ──▶ releases/sha256-…      swapped by one rename
    command   an argv with TIDEGATE_TARGET, TIDEGATE_PRIOR, TIDEGATE_CONTENT; no shell
    fake      says yes

A switch may be repeated: after a crash it is, and must come to the same end.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tidegate import decoders
from tidegate.agent import config, content as agent_content, durable_files
from tidegate.agent.errors import UNPROVIDED
from tidegate.agent.references import HTTP_ALONE, References

EXIT_BROKEN: Final = -1
EXIT_UNVERIFIED: Final = -3
EXIT_TIMED_OUT: Final = -4
EXIT_DEFERRED: Final = 75  # a command's way to say: staged, takes effect with the next reboot
STDERR_BYTES: Final = 4_096
REASON_BYTES: Final = 512
RELEASES: Final = "releases"
CURRENT: Final = "current"


@dataclass(frozen=True, slots=True)
class Switched:
    """The closure runs."""


@dataclass(frozen=True, slots=True)
class Staged:
    """It will run after a reboot, because this component cannot be swapped live."""

    component: str


@dataclass(frozen=True, slots=True)
class SwitchFailed:
    """It could not be brought to run."""

    exit_code: int
    stderr_tail: str


SwitchOutcome = Switched | Staged | SwitchFailed


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """Run this closure in place of the prior one.

    ``content`` is where it is fetched; empty: on the way back, to what ran before and is here.
    """

    closure: str
    prior: str
    content: str

    @property
    def is_rollback(self) -> bool:
        return not self.content


class Driver(Protocol):
    """One channel's way to run things."""

    def current(self) -> str:
        """The closure that runs; empty: none that we know."""
        ...

    def switch(self, change: SwitchRequest) -> SwitchOutcome:
        """Make the closure run.

        Raises:
            ServerAway: nothing was switched; try again.
        """
        ...

    def keep(self, closures: set[str]) -> None:
        """Nothing but these is gone back to."""
        ...


def tail(text: bytes | str, limit: int = STDERR_BYTES) -> str:
    """The end of a text, in so many bytes, cut where a character begins."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    return data[-limit:].decode(errors="ignore").replace("\0", "")


def _placed(
    change: SwitchRequest, place: Path, source: agent_content.Source, references: References
) -> Path:
    """The content's directory. Raises: those of ``provide``; FileNotFoundError: no way back."""
    if not change.is_rollback:
        return agent_content.provide(change.closure, change.content, place, source, references)
    path = place / agent_content.name_of(change.closure)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is gone, so there is no way back to it")
    return path


class SymlinkDriver:
    """Content in a directory per closure, and one symbolic link to that which runs."""

    def __init__(
        self, root: Path, source: agent_content.Source, references: References = HTTP_ALONE
    ) -> None:
        self._root = root
        self._source = source
        self._references = references
        self._releases = root / RELEASES

    def current(self) -> str:
        try:
            target = os.readlink(self._root / CURRENT)
        except OSError:
            return ""
        parent, _, name = target.rpartition("/")
        return agent_content.closure_of(name) if parent == RELEASES else ""

    def switch(self, change: SwitchRequest) -> SwitchOutcome:
        try:
            placed = _placed(change, self._releases, self._source, self._references)
            self._swap(placed.name)
        except UNPROVIDED as error:
            return SwitchFailed(EXIT_UNVERIFIED, tail(error.detail))
        except OSError as error:
            return SwitchFailed(EXIT_BROKEN, tail(str(error)))
        return Switched()

    def keep(self, closures: set[str]) -> None:
        agent_content.keep_only(self._releases, {*closures, self.current()})

    def _swap(self, name: str) -> None:
        """One rename: readers see the old directory or the new one, never none."""
        link, new = self._root / CURRENT, self._root / f".{CURRENT}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(f"{RELEASES}/{name}", target_is_directory=True)
        os.replace(new, link)
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


_running = decoders.build(dict[str, str])


class RunningArtifacts:
    """What runs by the word of drivers that cannot look, one file for all channels."""

    def __init__(self, state: Path) -> None:
        self._path = state / "running.json"

    def __getitem__(self, channel: str) -> str:
        return self._read().get(channel, "")

    def __setitem__(self, channel: str, closure: str) -> None:
        durable_files.replace_file(
            self._path, msgspec.json.encode({**self._read(), channel: closure})
        )

    def _read(self) -> dict[str, str]:
        try:
            return _running.decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}


class FakeDriver:
    """For demonstrations: everything works, and nothing is done."""

    def __init__(self, channel: str, running: RunningArtifacts) -> None:
        self._channel = channel
        self._running = running

    def current(self) -> str:
        return self._running[self._channel]

    def switch(self, change: SwitchRequest) -> SwitchOutcome:
        self._running[self._channel] = change.closure
        return Switched()

    def keep(self, closures: set[str]) -> None:
        pass


class CommandDriver:
    """A program of the operator's. It gets verified content, and may be run again after a crash."""

    def __init__(
        self,
        name: str,
        channel: config.ChannelSettings,
        state: Path,
        running: RunningArtifacts,
        source: agent_content.Source,
        references: References = HTTP_ALONE,
    ) -> None:
        self._name = name
        self._argv = channel.command
        self._seconds = channel.timeout_seconds
        self._content = state / "content" / name
        self._stderr = state / f"{name}.stderr"
        self._child = state / f"{name}.child"
        self._running = running
        self._source = source
        self._references = references

    def current(self) -> str:
        return self._running[self._name]

    def switch(self, change: SwitchRequest) -> SwitchOutcome:
        try:
            placed = _placed(change, self._content, self._source, self._references)
            outcome = self._run(change, placed)
        except UNPROVIDED as error:
            return SwitchFailed(EXIT_UNVERIFIED, tail(error.detail))
        except OSError as error:
            return SwitchFailed(EXIT_BROKEN, tail(str(error)))
        if isinstance(outcome, Switched):
            self._running[self._name] = change.closure
        return outcome

    def keep(self, closures: set[str]) -> None:
        if self._content.is_dir():
            agent_content.keep_only(self._content, {*closures, self.current()})

    def _run(self, change: SwitchRequest, place: Path) -> SwitchOutcome:
        self._end_orphan()
        with self._stderr.open("wb") as stderr:  # no pipe: it may outlive us
            child = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=place,
                env=environment(
                    TIDEGATE_CHANNEL=self._name,
                    TIDEGATE_TARGET=change.closure,
                    TIDEGATE_PRIOR=change.prior,
                    TIDEGATE_CONTENT=str(place),
                ),
                start_new_session=True,
            )
        self._child.write_text(f"{child.pid} {_started(child.pid)}")
        try:
            code = child.wait(self._seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return SwitchFailed(EXIT_TIMED_OUT, f"killed after {self._seconds:g} s")
        finally:
            self._child.unlink(missing_ok=True)
        told = tail(self._stderr.read_bytes())
        if code == 0:
            return Switched()
        if code == EXIT_DEFERRED:
            return Staged(tail(told.strip(), REASON_BYTES) or "reboot")
        return SwitchFailed(code if code > 0 else 128 - code, told)

    def _end_orphan(self) -> None:
        """A child of an agent that was killed still runs: two at once must not be."""
        try:
            pid, started = self._child.read_text().split()
        except (OSError, ValueError):
            return
        if started and started == _started(int(pid)):
            os.killpg(int(pid), signal.SIGKILL)
        self._child.unlink(missing_ok=True)


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot: with its number it is one process only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "unknown"


def environment(**more: str) -> Mapping[str, str]:
    """What programs of the operator's see: our own surroundings without our own settings."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("TIDEGATE_")}
    return {**kept, **more}


def build_drivers(
    settings: config.AgentSettings, source: agent_content.Source
) -> Mapping[str, Driver]:
    """The driver of each channel that this host serves."""
    state = Path(settings.state)
    running = RunningArtifacts(state)
    references = References(
        tuple(map(Path, settings.reference_directories)),
        hosts=frozenset(settings.reference_hosts),
    )
    made: dict[str, Driver] = {}
    for name, channel in settings.channels.items():
        match channel.driver:
            case "symlink":
                made[name] = SymlinkDriver(Path(channel.root), source, references)
            case "command":
                made[name] = CommandDriver(name, channel, state, running, source, references)
            case "fake":
                made[name] = FakeDriver(name, running)
    return made
