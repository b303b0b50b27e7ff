"""Reports as agents send them: an object with a ``kind`` and the members of that event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from tidegate.domain.hosts.facts import (
    ActivationDeferred,
    ActivationFailed,
    ActivationStarted,
    AgentEvent,
    DispatchAck,
    DispatchReject,
    ProbeResult,
    ProbeTopologyDeclared,
    RollbackComplete,
    RollbackFailed,
)
from tidegate.errors import InvalidInput
from tidegate.kernel import codec
from tidegate.kernel.model import at_most

KINDS: Final[Mapping[str, type[AgentEvent]]] = {
    event.__name__: event for event in get_args(AgentEvent)
}
_REPORTED: Final = frozenset(KINDS.values())

CLOSURE_BYTES_MAX = 256
REASON_BYTES_MAX = 512
STDERR_BYTES_MAX = 4_096


def agent_event(content: Mapping[str, Any]) -> AgentEvent:
    """The event of a decoded JSON object.

    Raises:
        InvalidInput: its kind is none that agents report, or a member is wrong.
    """
    kind = content.get("kind")
    struct = KINDS.get(kind) if isinstance(kind, str) else None
    if struct is None:
        raise InvalidInput(
            f"agents report no event of kind {str(kind)[:80]!r}; allowed are {', '.join(KINDS)}",
            field="kind",
        )
    members = {name: value for name, value in content.items() if name != "kind"}
    event = codec.convert(members, struct)
    check_event(event)
    return event


def wire_object(event: AgentEvent) -> dict[str, Any]:
    """The object that ``agent_event`` reads, ready for JSON."""
    content = codec.decode(codec.encode(event), dict)
    return {"kind": type(event).__name__, **content}


def check_event(event: AgentEvent) -> None:
    """That it is a report, and no text of it is longer than a record or a log line may hold.

    Raises:
        InvalidInput, LimitExceeded.
    """
    if type(event) not in _REPORTED:
        raise InvalidInput(
            f"agents do not report {type(event).__name__}; allowed are {', '.join(KINDS)}",
            field="kind",
        )
    if event.seq < 1:
        raise InvalidInput(f"reports are numbered from 1 on, found {event.seq}", field="seq")
    for what, text, allowed in _texts(event):
        at_most(f"bytes of {what}", len((text or "").encode()), allowed)


def _texts(event: AgentEvent) -> tuple[tuple[str, str | None, int], ...]:
    match event:
        case DispatchAck():
            return (("a closure", event.current_closure_at_dispatch, CLOSURE_BYTES_MAX),)
        case RollbackComplete():
            return (("a closure", event.reverted_to_closure, CLOSURE_BYTES_MAX),)
        case DispatchReject():
            return (("a reason", event.reason, REASON_BYTES_MAX),)
        case ActivationStarted():
            return (("a switch method", event.switch_method, REASON_BYTES_MAX),)
        case ActivationDeferred():
            return (("a component", event.component, REASON_BYTES_MAX),)
        case ActivationFailed():
            return (("stderr_tail", event.stderr_tail, STDERR_BYTES_MAX),)
        case ProbeResult():
            return (("a failure_reason", event.failure_reason, REASON_BYTES_MAX),)
        case ProbeTopologyDeclared():
            return tuple(("a probe's kind", p.kind, REASON_BYTES_MAX) for p in event.probes)
        case RollbackFailed():
            return (("a phase", event.phase, REASON_BYTES_MAX),)
        case _:
            return ()
