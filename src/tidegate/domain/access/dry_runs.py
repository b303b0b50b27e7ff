"""The result of a dry run: the command was decided but not committed."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class DryRunFact(Struct, frozen=True):
    """A fact that the command would record."""

    type: str
    value: dict[str, Any]


class DryRunShown(Struct, frozen=True):
    """All facts that a command would record, in order. Nothing was changed."""

    facts: tuple[DryRunFact, ...]
    dry_run: bool = True


class DryRunEnded(Exception):
    """Ends an operation before its commit. This is not an error, and nothing was written."""

    def __init__(self, result: DryRunShown) -> None:
        super().__init__(f"a dry run of {len(result.facts)} facts")
        self.result = result
