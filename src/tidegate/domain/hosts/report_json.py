"""Reports as agents send them: a JSON object with a ``kind`` and the members of that event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from tidegate import decoders
from tidegate.domain.hosts import facts
from tidegate.errors import InvalidInput
from tidegate.kernel import codec, model

KINDS: Final[Mapping[str, type[facts.AgentEvent]]] = {
    event.__name__: event for event in get_args(facts.AgentEvent)
}
_REPORTED: Final = frozenset(KINDS.values())
for _event in KINDS.values():
    decoders.build(_event)

CLOSURE_BYTES_MAX = 256
REASON_BYTES_MAX = 512
STDERR_BYTES_MAX = 4_096


def event_from_json(content: Mapping[str, Any]) -> facts.AgentEvent:
    """Build the event from a decoded JSON object.

    Raises:
        InvalidInput: agents report no event of this kind, or a member is wrong.
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


def event_to_json(event: facts.AgentEvent) -> dict[str, Any]:
    """Build the object that ``event_from_json`` reads, ready for JSON."""
    content = codec.decode(codec.encode(event), dict)
    return {"kind": type(event).__name__, **content}


def check_event(event: facts.AgentEvent) -> None:
    """Check that it is a report, and that its texts fit into a record and a log line.

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
    for what, name, allowed in _TEXTS.get(type(event), ()):
        _check_text(what, getattr(event, name), allowed)
    if isinstance(event, facts.ProbeTopologyDeclared):
        for probe in event.probes:
            _check_text("a probe's kind", probe.kind, REASON_BYTES_MAX)


def _check_text(what: str, text: str | None, allowed: int) -> None:
    if text:
        model.at_most(f"bytes of {what}", len(text.encode()), allowed)


_TEXTS: Final[Mapping[type[facts.AgentEvent], tuple[tuple[str, str, int], ...]]] = {
    facts.DispatchAck: (("a closure", "current_closure_at_dispatch", CLOSURE_BYTES_MAX),),
    facts.RollbackComplete: (("a closure", "reverted_to_closure", CLOSURE_BYTES_MAX),),
    facts.DispatchReject: (("a reason", "reason", REASON_BYTES_MAX),),
    facts.ActivationStarted: (("a switch method", "switch_method", REASON_BYTES_MAX),),
    facts.ActivationDeferred: (("a component", "component", REASON_BYTES_MAX),),
    facts.ActivationFailed: (("stderr_tail", "stderr_tail", STDERR_BYTES_MAX),),
    facts.ProbeResult: (("a failure_reason", "failure_reason", REASON_BYTES_MAX),),
    facts.RollbackFailed: (("a phase", "phase", REASON_BYTES_MAX),),
}
