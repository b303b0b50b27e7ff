"""Describe the events of a rollout: a line for each, with names that commands accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.cli import output, symbols

# Fields that other columns show, or that only programs need.
QUIET: Final = frozenset(
    {
        *("rollout_id", "host_id", "at", "channel", "operator", "policy", "waves", "seq"),
        *("target_closure", "target_ref", "plan_digest", "cause", "cause_id", "opened_at", "freed"),
        *(
            "offline_grace_seconds",
            "on_failure",
            "retention_seconds",
            "current_closure_at_dispatch",
        ),
    }
)
WAVES: Final = frozenset({"wave", "from_wave", "to_wave", "current_wave"})  # counted from 1
STATES: Final = frozenset({"from", "to", "state"})

Data = dict[str, Any]


def columns(items: Sequence[output.Item]) -> tuple[output.Column, ...]:
    """The columns of a table of these events. The rollout's artifact is shown as its release,
    because people know that name and commands accept it.
    """
    opened = next((item for item in items if _type(item) == "RolloutOpened"), None)
    target, release = (
        output.dig(opened, "data", name) for name in ("target_closure", "target_ref")
    )
    names = {str(target): str(release)} if target and release else {}
    return (
        output.column("POSITION", "position"),
        output.time_column("TIME", "time"),
        output.Column("WHAT", _type),
        output.Column("HOST", lambda item: output.text(output.dig(item, "data", "host_id"))),
        output.Column("SAYS", lambda item: describe_event(item, names)),
        output.Column("BY", _actor),
    )


def _actor(item: output.Item) -> str:
    """The name of the person, the host, or the part of the server."""
    return output.text(item.get("actorname") or str(item["actor"]).removeprefix("host_"))


def _type(item: output.Item) -> str:
    return str(item["type"]).removeprefix("tidegate.")


def describe_event(item: output.Item, names: dict[str, str]) -> str:
    """Describe an event without its actor, place and time. ``names``: digest → release."""
    data = {
        key: names.get(value, value) if isinstance(value, str) else value
        for key, value in (output.dig(item, "data") or {}).items()
    }
    special = _SPECIAL.get(_type(item))
    if special is not None:
        return output.text(special(data))
    return output.text(
        {key: _member(key, value) for key, value in data.items() if key not in QUIET}
    )


def _member(name: str, value: Any) -> Any:
    if name in WAVES and isinstance(value, int):
        return value + 1
    return symbols.state_word(value) if name in STATES and isinstance(value, str) else value


def _because(data: Data) -> str:
    return f": {data['reason']}" if data.get("reason") else ""


def _opened(data: Data) -> str:
    waves = data.get("waves") or []
    hosts = sum(wave.get("hosts", 0) for wave in waves)
    size = f"{output.counted(hosts, 'host')} in {output.counted(len(waves), 'wave')}"
    return f"{data.get('target_ref')} to {size}{_because(data)}"


def _moved(data: Data) -> str:
    before, after = data.get("from"), str(data.get("to"))
    if before in (None, after):
        return f"{symbols.state_word(after)}{_because(data)}"
    return f"{symbols.state_word(str(before))} → {symbols.state_word(after)}{_because(data)}"


def _concluded(data: Data) -> str:
    counts = data.get("counts") or {}
    how = str(data.get("outcome")).replace("_", " ")
    done, hosts = counts.get("converged", 0), counts.get("hosts", 0)
    return f"{how}: {done} of {output.counted(hosts, 'host')} run {data.get('target_ref')}"


def _gate(data: Data) -> str:
    return f"{data.get('gate')} {'holds it' if data.get('blocked') else 'is open'}{_because(data)}"


def _probe(data: Data) -> str:
    why = f": {data['failure_reason']}" if data.get("failure_reason") else ""
    word = "passes" if data.get("status") == "pass" else "fails"
    return f"probe {data.get('probe_name')} {word}{why}"


def _reserved(data: Data) -> str:
    budgets = [str(budget.get("budget_id")) for budget in data.get("budgets") or []]
    taken = f", takes a slot of {', '.join(budgets)}" if budgets else ""
    return f"wave {int(data.get('wave') or 0) + 1}{taken}"


def _started(data: Data) -> str:
    return f"driver {str(data.get('switch_method')).removesuffix('driver')}"


def _activated(data: Data) -> str:
    return f"now on {data.get('observed_current_closure')}"


def _converged(data: Data) -> str:
    return f"runs {data.get('current_closure')}"


def _advanced(data: Data) -> str:
    return f"wave {int(data.get('from_wave') or 0) + 1} → {int(data.get('to_wave') or 0) + 1}"


def _probes(data: Data) -> str:
    return output.text([probe.get("probe_name") for probe in data.get("probes") or []])


_SPECIAL: Final[dict[str, Callable[[Data], str]]] = {
    "RolloutOpened": _opened,
    "DispatchReserved": _reserved,
    "ActivationStarted": _started,
    "ActivationCompleted": _activated,
    "Converged": _converged,
    "WaveAdvanced": _advanced,
    "RolloutTransitioned": _moved,
    "HostStateChanged": _moved,
    "RolloutConcluded": _concluded,
    "GateChanged": _gate,
    "ProbeResult": _probe,
    "ProbeTopologyDeclared": _probes,
}
