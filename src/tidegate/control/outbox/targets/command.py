"""A target that runs a program, without a shell.

The effect is a JSON object on standard input; the key is in TIDEGATE_IDEMPOTENCY_KEY. Exit status 0
means done. 64, 65 and 78 (usage, data, configuration: sysexits.h) mean that a retry is useless; any
other status means that it may work later. The program gets only the environment variables that are
named here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import msgspec

from tidegate.control.outbox.targets import (
    Effect,
    TargetDone,
    TargetFailed,
    Unobservable,
    observation_of,
)
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.errors import InvalidInput

TIMEOUT_SECONDS = 10.0
OUTPUT_BYTES_MAX = 64 * 1024
HOPELESS = frozenset({64, 65, 78})


@dataclass(frozen=True, slots=True)
class _Ended:
    status: int | None  # None: it was killed at its timeout
    output: bytes
    errors: bytes


class CommandTarget:
    """Runs ``argv`` for each effect, and ``observing``, if given, to observe.

    ``environment`` is the program's whole environment, besides the key, scope and operation.

    Raises:
        InvalidInput: the argument list is invalid.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        observing: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        name: str = "command",
    ) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._argv = _checked(argv)
        self._observing = None if observing is None else _checked(observing)
        self._environment = dict(environment or {})

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        variables = {"TIDEGATE_IDEMPOTENCY_KEY": key}
        try:
            ended = self._run(self._argv, effect.scope, effect.operation, variables, effect)
        except OSError as error:
            return TargetFailed(f"the program did not start: {error.strerror}")
        if ended.status is None:
            return TargetFailed("the program took too long and was ended")
        if ended.status == 0:
            return TargetDone()
        words = ended.errors.decode(errors="replace")
        return TargetFailed(f"exit status {ended.status}: {words}", ended.status not in HOPELESS)

    def try_out(self) -> TargetDone | TargetFailed:
        """Check that the programs can be found, without running them."""
        places = os.pathsep.join(os.get_exec_path(self._environment))
        for argv in (self._argv, self._observing or self._argv):
            if shutil.which(argv[0], path=places) is None:
                return TargetFailed(f"there is no program {argv[0]!r} that we may run")
        return TargetDone("the program is there; it was not run")

    def observe(self, scope: str, operation: str) -> Observation | None:
        if self._observing is None:
            return None
        try:
            ended = self._run(self._observing, scope, operation, {}, None)
        except OSError as error:
            raise Unobservable("the observing program did not start") from error
        if ended.status != 0:
            raise Unobservable(f"the observing program ended with status {ended.status}")
        return observation_of(ended.output)

    def _run(
        self,
        argv: tuple[str, ...],
        scope: str,
        operation: str,
        variables: dict[str, str],
        effect: Effect | None,
    ) -> _Ended:
        about = {"TIDEGATE_SCOPE": scope, "TIDEGATE_OPERATION": operation}
        # Files, not pipes: endless output cannot block us, and only a part of it is read.
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            if effect is not None:
                given.write(msgspec.json.encode(effect))
                given.seek(0)
            process = subprocess.Popen(
                argv,
                stdin=given,
                stdout=output,
                stderr=errors,
                env={**self._environment, **about, **variables},
                start_new_session=True,  # so that its children are killed with it
                close_fds=True,
            )
            try:
                status: int | None = process.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
            return _Ended(status, _beginning(output), _beginning(errors))


def _checked(argv: Sequence[str]) -> tuple[str, ...]:
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise InvalidInput("a command is a list of words, never one text for a shell", field="argv")
    if any("\0" in word for word in argv):
        raise InvalidInput("a command holds no NUL", field="argv")
    return tuple(argv)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole process group, including children of a finished program."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _beginning(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(OUTPUT_BYTES_MAX)
