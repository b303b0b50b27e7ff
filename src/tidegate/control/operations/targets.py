"""Test targets."""

from __future__ import annotations

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.outbox.targets import TargetDone, configured
from tidegate.control.queries.log_reader import LogReader
from tidegate.domain.access import callers, roles, steps
from tidegate.kernel.model import Position


class TargetTest(Struct, frozen=True):
    """A target's response, or what is wrong with it, and the log position."""

    ok: bool
    detail: str
    position: Position


class TargetOperations:
    """The verbs of a target."""

    def __init__(self, settings: Settings, clock: Clock, log: LogReader) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log

    def test(self, caller: callers.Caller, name: str) -> TargetTest:
        """Test a target without sending it an effect. Nothing is recorded.

        Raises:
            MissingPermission, TargetUnknown.
        """
        caller.demand(steps.TEST_TARGET, roles.EVERYWHERE)
        outcome = configured.try_target(self._settings, name, self._clock)
        is_done = isinstance(outcome, TargetDone)
        detail = outcome.detail if isinstance(outcome, TargetDone) else outcome.reason
        return TargetTest(is_done, detail, self._log.head())
