"""The result of a dry run: the command was decided but not committed."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs


class DryRunFact(Struct, frozen=True):
    """A fact that the command would record."""

    type: str
    value: dict[str, Any]


class DryRunShown(Struct, frozen=True):
    """All facts that a command would record, in order. Nothing was changed."""

    facts: tuple[DryRunFact, ...]
    dry_run: bool = True
    summary: tuple[str, ...] = ()  # what it would do, in sentences
    request: str = ""  # who must approve it, if it would only make a request; empty: it would not


class DryRunEnded(Exception):
    """Ends an operation before its commit. This is not an error, and nothing was written."""

    def __init__(self, result: DryRunShown) -> None:
        super().__init__(f"a dry run of {len(result.facts)} facts")
        self.result = result

    def describe(self, *summary: str, request: str = "") -> DryRunEnded:
        """Return this with more sentences, which come first."""
        found = self.result
        return DryRunEnded(
            structs.replace(
                found,
                summary=(*summary, *found.summary),
                request=request or found.request,
            )
        )
