"""Drivers: how a host switches to an artifact, and which one runs now.

    symlink   <root>/current ──▶ releases/sha256-…      swapped by one rename
    command   an argv with TIDEGATE_TARGET, TIDEGATE_PRIOR, TIDEGATE_CONTENT; no shell
    fake      records the artifact and does nothing

A switch is repeated after a crash, so it must be idempotent.
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
    """The artifact runs."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The artifact will run after a reboot: this component cannot be swapped live."""

    component: str


@dataclass(frozen=True, slots=True)
class SwitchFailed:
    """The switch failed; the artifact does not run."""

    exit_code: int
    stderr_tail: str


SwitchOutcome = Switched | Staged | SwitchFailed


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """Run this artifact in place of the prior one.

    ``content`` is where it is fetched. It is empty for a rollback: the prior artifact is on disk.
    """

    closure: str
    prior: str
    content: str

    @property
    def is_rollback(self) -> bool:
        return not self.content


class Driver(Protocol):
    """Switches one channel's artifact on this host."""

    def current(self) -> str:
        """The artifact that runs; empty: none, or an unknown one."""
        ...

    def switch(self, change: SwitchRequest) -> SwitchOutcome:
        """Switch to the artifact.

        Raises:
            ServerAway: nothing was switched; retry.
        """
        ...

    def keep(self, closures: set[str]) -> None:
        """Remove every other artifact: no rollback needs it."""
        ...


def tail(text: bytes | str, limit: int = STDERR_BYTES) -> str:
    """The last ``limit`` bytes of a text, without half a character at the start."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    return data[-limit:].decode(errors="ignore").replace("\0", "")


def _provide(
    change: SwitchRequest, place: Path, source: agent_content.Source, references: References
) -> Path:
    """Return the artifact's directory.

    Raises:
        What ``provide`` raises. FileNotFoundError: the artifact to roll back to is gone.
    """
    if not change.is_rollback:
        return agent_content.provide(change.closure, change.content, place, source, references)
    path = place / agent_content.name_of(change.closure)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is gone, so there is no way back to it")
    return path


class SymlinkDriver:
    """A directory per artifact, and one symbolic link to the one that runs."""

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
            place = _provide(change, self._releases, self._source, self._references)
            self._swap(place.name)
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
    """What runs on each channel, for drivers that cannot detect it. One file for all."""

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
    """For demonstrations: every switch succeeds and does nothing."""

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
    """Runs a program of the operator with verified content; again after a crash."""

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
            place = _provide(change, self._content, self._source, self._references)
            outcome = self._run(change, place)
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
        with self._stderr.open("wb") as stderr:  # no pipe: the child may outlive the agent
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
        self._child.write_text(f"{child.pid} {_start_time(child.pid)}")
        try:
            code = child.wait(self._seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return SwitchFailed(EXIT_TIMED_OUT, f"killed after {self._seconds:g} s")
        finally:
            self._child.unlink(missing_ok=True)
        stderr_tail = tail(self._stderr.read_bytes())
        if code == 0:
            return Switched()
        if code == EXIT_DEFERRED:
            return Staged(tail(stderr_tail.strip(), REASON_BYTES) or "reboot")
        return SwitchFailed(code if code > 0 else 128 - code, stderr_tail)

    def _end_orphan(self) -> None:
        """Kill a child that an earlier, killed agent left running: only one may run at once."""
        try:
            pid, started = self._child.read_text().split()
        except (OSError, ValueError):
            return
        if started and started == _start_time(int(pid)):
            os.killpg(int(pid), signal.SIGKILL)
        self._child.unlink(missing_ok=True)


def _start_time(pid: int) -> str:
    """When a process started, in ticks since boot: with the pid it identifies one process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "unknown"


def environment(**more: str) -> Mapping[str, str]:
    """The environment of an operator's program: ours, without TIDEGATE_ variables."""
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
