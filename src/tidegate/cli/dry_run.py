"""``--dry-run``: the server decides the command and returns the facts; nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.cli import output, symbols

if TYPE_CHECKING:
    from tidegate.cli.context import CommandContext

SILENT = frozenset({"at", "by", "operator", "uid"})
VALUE_CHARS_MAX = 160


class DryRunAnswered(Exception):
    """Ends a command with the response to its dry run."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__("a dry run")
        self.answer = answer


def print_dry_run(context: CommandContext, answer: Mapping[str, Any]) -> None:
    """Print a line for each fact that would be recorded."""
    if not context.is_for_people:
        output.say(output.line_of(answer))
        return
    facts = answer["facts"]
    mark = output.coloured("✔", "green")
    if not facts:
        output.say(f"{mark} This is so already: nothing would be recorded, and nothing was changed")
        return
    output.say(f"{mark} This would succeed; nothing was changed. It would record:")
    width = max(len(fact["type"]) for fact in facts)
    for fact in facts:
        name = output.coloured(f"{symbols.clean(fact['type']):<{width}}", "cyan")
        output.say(f"  {name}  {_describe(fact['value'])}")


def _describe(value: Mapping[str, Any]) -> str:
    shown = {
        name: item
        for name, item in value.items()
        if name not in SILENT and not isinstance(item, dict | list)
    }
    words = output.text(shown)
    return words if len(words) <= VALUE_CHARS_MAX else f"{words[:VALUE_CHARS_MAX]}…"
