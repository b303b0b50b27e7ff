"""The lifecycle of a package revision as data: its transitions, and what may change in each state.

    Draft ◀──▶ Proposed ──▶ Published ◀──▶ DeletionProposed ──▶ (deleted)

The rules, the API, the command line, the docs and the tests all use this one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidegate.domain.packages import refusals, states


class LifecycleVerb(StrEnum):
    """The commands that move a revision along its lifecycle."""

    PROPOSE = "propose"
    WITHDRAW = "withdraw"
    REJECT = "reject"
    APPROVE = "approve"
    PROPOSE_DELETION = "propose_deletion"
    REJECT_DELETION = "reject_deletion"


class LifecycleEdge(NamedTuple):
    """One step of the lifecycle."""

    old: states.Lifecycle
    new: states.Lifecycle
    verb: LifecycleVerb
    needs_reason: bool = False
    by_update: bool = True  # whether an update may request it

    @property
    def permission(self) -> str:
        return f"revision.{self.verb}"


_D, _P, _PUBLISHED, _DP = states.Lifecycle

# An update by the proposer is a withdrawal, by anyone else a rejection: see ``edge_of``.
EDGES: Final = (
    LifecycleEdge(_D, _P, LifecycleVerb.PROPOSE),
    LifecycleEdge(_P, _D, LifecycleVerb.WITHDRAW),
    LifecycleEdge(_P, _D, LifecycleVerb.REJECT, needs_reason=True),
    LifecycleEdge(_P, _PUBLISHED, LifecycleVerb.APPROVE, by_update=False),
    LifecycleEdge(_PUBLISHED, _DP, LifecycleVerb.PROPOSE_DELETION),
    LifecycleEdge(_DP, _PUBLISHED, LifecycleVerb.REJECT_DELETION, needs_reason=True),
)
BY_VERB: Final[Mapping[LifecycleVerb, LifecycleEdge]] = MappingProxyType(
    {edge.verb: edge for edge in EDGES}
)


class Operation(StrEnum):
    """What a request may change: the rows of the mutability matrix."""

    TASKS = "tasks"
    RESOURCES = "resources"
    GATES = "readinessGates"
    CONDITIONS = "conditions"
    METADATA = "metadata"
    LIFECYCLE = "lifecycle"
    DELETE = "delete"


_RULINGS: Final[Mapping[Operation, tuple[bool, bool, bool, bool]]] = {
    # Draft, Proposed, Published, DeletionProposed
    Operation.TASKS: (True, False, False, False),
    Operation.RESOURCES: (True, False, False, False),
    Operation.GATES: (True, False, False, False),
    Operation.CONDITIONS: (True, True, False, False),  # so that CI may report on a frozen proposal
    Operation.METADATA: (True, True, True, True),
    Operation.LIFECYCLE: (True, True, True, True),  # along EDGES
    Operation.DELETE: (True, True, False, True),
}
MUTABILITY: Final[Mapping[tuple[Operation, states.Lifecycle], bool]] = MappingProxyType(
    {
        (operation, state): ruling
        for operation, rulings in _RULINGS.items()
        for state, ruling in zip(states.Lifecycle, rulings, strict=True)
    }
)


def parse_initial(value: str) -> states.Lifecycle:
    """Parse the state of a new revision; empty means Draft.

    Raises:
        LifecycleInvalidCreate, LifecycleUnsupported.
    """
    if value in ("", states.Lifecycle.DRAFT):
        return states.Lifecycle.DRAFT
    if value in states.PUBLISHED_STATES:
        raise refusals.LifecycleInvalidCreate("Final")  # for both: docs/design/packages.md
    if value == states.Lifecycle.PROPOSED:
        raise refusals.LifecycleInvalidCreate(value)
    raise refusals.LifecycleUnsupported(value)


def parse_desired(value: str) -> states.Lifecycle:
    """Parse the state that an update requests. Raises: LifecycleInvalidDesired."""
    try:
        return states.Lifecycle(value)
    except ValueError:
        raise refusals.LifecycleInvalidDesired(value) from None


def parse_stored(value: str) -> states.Lifecycle:
    """Parse the stored state. Raises: LifecycleInvalidOriginal."""
    try:
        return states.Lifecycle(value)
    except ValueError:
        raise refusals.LifecycleInvalidOriginal(value) from None


def next_states(old: states.Lifecycle) -> tuple[states.Lifecycle, ...]:
    """The states that can follow this one."""
    return tuple(dict.fromkeys(edge.new for edge in EDGES if edge.old is old))


def edge_by_verb(old: states.Lifecycle, verb: LifecycleVerb) -> LifecycleEdge:
    """The step that a verb takes from this state. Raises: TransitionRefused."""
    edge = BY_VERB[verb]
    if edge.old is not old:
        raise refusals.TransitionRefused(old, edge.new, next_states(old))
    return edge


def edge_of(old: states.Lifecycle, new: states.Lifecycle, *, own: bool) -> LifecycleEdge:
    """The step that an update requests by naming the next state.

    ``own``: the caller made the proposal that the update would undo. Raises: TransitionRefused.
    """
    edges = [edge for edge in EDGES if (edge.old, edge.new) == (old, new)]
    if not edges:
        raise refusals.TransitionRefused(old, new, next_states(old))
    if not edges[0].by_update:
        raise refusals.TransitionRefused(
            old, new, (state for state in next_states(old) if state is not new), ", or be approved"
        )
    return edges[0] if own else edges[-1]
