"""Describe a request in a few words that follow "asks to", such as "promote web.4"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate.domain.access import steps
from tidegate.domain.rollouts.names import ref_of

Command = Mapping[str, Any]


def describe_request(kind: str, channel: str, command: Command) -> str:
    """Describe what the command of a request does on its channel."""
    words = _WORDS.get(kind)
    return f"{kind} on {channel}" if words is None else words(channel, command)


def _promote(channel: str, command: Command) -> str:
    release = command.get("release_id", "")
    if command.get("refresh"):
        return f"confirm {release} on {channel} with new evidence"
    gates = command.get("overrides") or ()
    passed = f", passing the gate {', '.join(gates)}" if gates else ""
    start = f", starting at {command['start_at']}" if command.get("start_at") else ""
    return f"promote {release} on {channel}{passed}{start}"


def _roll_back(channel: str, command: Command) -> str:
    parts = [f"roll {channel} back to {command['to']}"]
    if command.get("now"):
        parts.append("on all hosts at once")
    if command.get("ignore_budgets"):
        parts.append("past budgets")
    if command.get("lift_quarantine"):
        parts.append("lifting its quarantine")
    return ", ".join(parts)


def _edit(channel: str, command: Command) -> str:
    members = [name for name in ("selector", "policy") if command.get(name) is not None]
    named = {"selector": "hosts", "policy": "policy"}
    return f"change the {' and the '.join(named[name] for name in members)} of {channel}"


def _protect(channel: str, command: Command) -> str:
    if command.get("protection") is None:
        return f"protect {channel} no longer"
    return f"protect {channel} less than before"


def _clear(channel: str, command: Command) -> str:
    release = ref_of(command["rollout_id"])
    hosts = ", ".join(command.get("host_ids") or ())
    if command.get("mode") == "waive":
        return f"continue {release} on {channel} without {hosts or 'the failed hosts'}"
    return f"retry {release} on {channel}{f' on {hosts}' if hosts else ''}"


def _override(channel: str, command: Command) -> str:
    until = f" until {command['until']}" if command.get("until") else ""
    return (
        f"let {ref_of(command['rollout_id'])} on {channel} pass the gate {command['gate']}{until}"
    )


def _budget(channel: str, command: Command) -> str:
    return f"loosen the budget {command['budget_id']}, which limits {channel}"


def _window(verb: str) -> Callable[[str, Command], str]:
    def words(channel: str, command: Command) -> str:
        name = command.get("window_id") or command["window"]["window_id"]
        return f"{verb} the window {name}, which covers {channel}"

    return words


_WORDS: Final[Mapping[str, Callable[[str, Command], str]]] = {
    steps.PROMOTE.name: _promote,
    steps.ROLL_BACK.name: _roll_back,
    steps.EDIT_CHANNEL.name: _edit,
    steps.PROTECT_CHANNEL.name: _protect,
    steps.DELETE_CHANNEL.name: lambda channel, command: f"delete {channel}",
    steps.UNHOLD_CHANNEL.name: lambda channel, command: f"release the hold on {channel}",
    steps.LIFT_QUARANTINE.name: lambda channel, command: f"lift a quarantine on {channel}",
    steps.RETRY_ROLLOUT.name: _clear,
    steps.CLEAR_ROLLOUT.name: _clear,
    steps.OVERRIDE_GATE.name: _override,
    steps.SKIP_WAVE.name: lambda channel, command: (
        f"skip wave {command['wave']} of {ref_of(command['rollout_id'])} on {channel}"
    ),
    steps.PROMOTE_ALL.name: lambda channel, command: (
        f"let every wave of {ref_of(command['rollout_id'])} on {channel} go now"
    ),
    steps.END_FREEZE.name: lambda channel, command: (
        f"end the freeze {command['freeze_id']}, which covers {channel}"
    ),
    steps.CREATE_WINDOW.name: _window("create"),
    steps.EDIT_WINDOW.name: _window("edit"),
    steps.DELETE_WINDOW.name: _window("delete"),
    steps.SET_BUDGET.name: _budget,
    steps.REMOVE_BUDGET.name: lambda channel, command: (
        f"remove the budget {command['budget_id']}, which limits {channel}"
    ),
    steps.LABEL_HOST.name: lambda channel, command: (
        f"change the labels of {command['host_id']}, a host of {channel}"
    ),
}
