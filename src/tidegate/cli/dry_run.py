"""``--dry-run``: the server decides the command and returns the facts; nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.cli import output, symbols

if TYPE_CHECKING:
    from tidegate.cli.context import CommandContext

SILENT = frozenset({"at", "by", "freed", "opened_at", "operator", "recorded_at", "uid"})
UNNAMED = frozenset({"command_id", "digest", "request", "request_id"})  # new with every attempt
IDS = ("sha256:", "user_")  # how values begin that say nothing to people
WAVES = frozenset({"wave", "current_wave", "from_wave", "to_wave"})  # counted from 0 in facts
HOST_OR_ROLLOUT_STATES = frozenset({"from", "to", "state"})


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
    facts, request = answer["facts"], answer.get("request")
    mark = output.coloured("✔", "green")
    if not facts:
        output.say(f"{mark} This is so already: nothing would be recorded, and nothing was changed")
        return
    if request:
        mark = output.coloured("◐", "yellow")
        line = "This would make a request, and change nothing yet"
        output.say(f"{mark} {line}: {symbols.clean(request)}")
    else:
        output.say(f"{mark} This would succeed; nothing was changed.")
    for sentence in answer.get("summary") or ():
        output.say(f"  {symbols.clean(sentence)}")
    output.say("It would record:")
    width = max(len(fact["type"]) for fact in facts)
    for fact in facts:
        name = output.coloured(f"{symbols.clean(fact['type']):<{width}}", "cyan")
        output.say(f"  {name}  {output.fact_members(_for_people(fact['value']))}".rstrip())


def _for_people(value: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a fact without ids, digests and times; waves from 1; states in words."""
    shown = {
        name: item
        for name, item in value.items()
        if name not in SILENT | UNNAMED and item not in (None, "") and not str(item).startswith(IDS)
    }
    if shown.pop("left", False):  # how the fact of a skipped host says it
        shown |= {"to": "Left"}
    for name, item in shown.items():
        if name in WAVES and isinstance(item, int):
            shown[name] = item + 1
        elif name.endswith("_at"):
            shown[name] = symbols.moment(item)
        elif name in HOST_OR_ROLLOUT_STATES:
            shown[name] = "done" if item == "Converged" else symbols.state_word(str(item)).lower()
    return shown
