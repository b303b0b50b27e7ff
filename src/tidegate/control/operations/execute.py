"""Execute a command for a caller, and notify the followers of the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NoReturn

import msgspec
from msgspec import Struct

from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.access import callers, dry_runs
from tidegate.domain.rollouts.facts import RolloutConcluded
from tidegate.kernel import model, slices

CONCLUDED = RolloutConcluded.__name__


class VerbResult(Struct, frozen=True):
    """The log position of a verb, and what to tell the caller if it changed nothing.

    The words have the id of a user instead of the name.
    """

    position: model.Position
    warnings: tuple[str, ...] = ()


class Execute:
    """Executes commands for callers."""

    def __init__(self, control: Control, notify: Callable[[], None]) -> None:
        self._control = control
        self.notify = notify

    def __call__(
        self,
        item: slices.Slice,
        command: Struct,
        caller: callers.Caller,
        *,
        asked: Struct | None = None,
    ) -> CommandOutcome:
        """Call ``Control.execute`` with the caller's name and idempotency key.

        Raises:
            DryRunEnded: the caller asked for a dry run, and the command would have succeeded.
        """
        if caller.dry_run:
            end_dry_run(self._control, item, command, caller.meta, caller.alongside)
        outcome = self._control.execute(
            item,
            command,
            meta=caller.meta,
            key=caller.commit_key,
            asked=asked,
            alongside=caller.alongside,
        )
        self.notify()
        return outcome

    def run(
        self,
        item: slices.Slice,
        command: Struct,
        *,
        meta: model.Meta,
        key: str | None = None,
        asked: Struct | None = None,
    ) -> CommandOutcome:
        """Call ``Control.execute``, then notify the followers of the log."""
        outcome = self._control.execute(item, command, meta=meta, key=key, asked=asked)
        self.notify()
        return outcome

    def rehearse(self, item: slices.Slice, command: Struct) -> None:
        """Call ``Control.rehearse``."""
        self._control.rehearse(item, command)

    def now(self) -> datetime:
        """Return the time of the control plane's clock."""
        return self._control.clock()

    def earlier(
        self, item: slices.Slice, asked: Struct, caller: callers.Caller
    ) -> CommandOutcome | None:
        """Return the outcome of this request's first copy; None: this is the first.

        Raises:
            IdempotencyMismatch.
        """
        return self._control.earlier(item, asked, meta=caller.meta, key=caller.commit_key)


def end_dry_run(
    control: Control,
    item: slices.Slice,
    command: Struct,
    meta: model.Meta,
    alongside: slices.Alongside | None,
) -> NoReturn:
    """Decide a command without committing it, and raise what it would have recorded.

    Raises:
        DryRunEnded: it would have succeeded. Also every error of the command.
    """
    facts = control.rehearse(item, command, meta=meta, alongside=alongside)
    shown = [dry_runs.DryRunFact(fact.type, msgspec.json.decode(fact.body)) for fact in facts]
    ends = (fact.value for fact in shown if fact.type == CONCLUDED)
    summary = tuple(
        f"{value['rollout_id']} would end: {value['outcome'].replace('_', ' ')}" for value in ends
    )
    raise dry_runs.DryRunEnded(dry_runs.DryRunShown(tuple(shown), summary=summary))
