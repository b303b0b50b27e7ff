"""That a command was decided and not carried out, because the caller asked for a dry run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class DryRunFact(Struct, frozen=True):
    """A fact that the command would record."""

    type: str
    value: dict[str, Any]


class DryRunShown(Struct, frozen=True):
    """What a command would record, in order, with all that follows from it. Nothing was changed."""

    facts: tuple[DryRunFact, ...]
    dry_run: bool = True


class DryRunEnded(Exception):
    """The command would have been carried out here. It is no error, and nothing was written."""

    def __init__(self, result: DryRunShown) -> None:
        super().__init__(f"a dry run of {len(result.facts)} facts")
        self.result = result
