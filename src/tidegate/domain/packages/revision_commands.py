"""The common part of all commands on a revision: the rows that they read and their checks.

The order of checks is the same everywhere: form 400, exists 404, version given 428, version
current 409, not being deleted 409, state 422, policy 403. The form is checked in the function that
lists the rows of a slice, before any of them is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from tidegate.domain.packages import (
    facts,
    lifecycle,
    metadata,
    names,
    refusals,
    rows as package_rows,
    states,
)
from tidegate.errors import VersionRequired
from tidegate.kernel.model import Key, Position

Row = TypeVar("Row", bound=Struct)


class RevisionCommand(Struct, frozen=True, kw_only=True):
    """A command on a revision at the version that the caller saw."""

    name: str
    by: str
    expected_version: Position | None = None


def own_row(command: RevisionCommand) -> tuple[Key, ...]:
    """The rows of a command that reads only the revision. Raises: InvalidName."""
    names.check_user(command.by)
    return (package_rows.revision_key(command.name),)


def expects(command: RevisionCommand) -> dict[Key, Position]:
    """The version that the client saw. ``demand_versioned`` refuses a command without one."""
    if command.expected_version is None:
        return {}
    return {package_rows.revision_key(command.name): command.expected_version}


def demand_revision(
    row: package_rows.Revision | None, command: RevisionCommand
) -> tuple[package_rows.Revision, states.Lifecycle]:
    """The revision and its state. Raises: RevisionNotFound, LifecycleInvalidOriginal."""
    if row is None:
        raise refusals.RevisionNotFound(command.name)
    return row, lifecycle.parse_stored(row.lifecycle)


def demand_versioned(
    row: package_rows.Revision | None, command: RevisionCommand
) -> tuple[package_rows.Revision, states.Lifecycle]:
    """As ``demand_revision``, for a command that must name a version. Raises: VersionRequired."""
    revision, state = demand_revision(row, command)
    if command.expected_version is None:
        raise VersionRequired(f"say which version of {command.name} you saw", revision=command.name)
    return revision, state


def demand_alive(revision: package_rows.Revision) -> None:
    """Raises: Terminating."""
    if revision.deletion_timestamp is not None:
        raise refusals.Terminating(revision.name)


def demand_ready(revision: package_rows.Revision) -> None:
    """Check that every readiness gate has a condition of status True. Raises: NotReady."""
    unmet = list_unmet(revision)
    if unmet:
        raise refusals.NotReady(unmet)


def list_unmet(revision: package_rows.Revision) -> list[str]:
    """The readiness gates without a condition of status True."""
    met = {item.type for item in revision.conditions if item.status is facts.ConditionStatus.TRUE}
    return [gate for gate in revision.gates if gate not in met]


def demand_companion(row: Row | None, name: str) -> Row:
    """Return a row that exists as long as the revision does.

    Rows are not all read at one moment, so if it is missing, the revision was deleted in between.

    Raises:
        RevisionNotFound.
    """
    if row is None:
        raise refusals.RevisionNotFound(name)
    return row


def step_fact(
    revision: package_rows.Revision, edge: lifecycle.LifecycleEdge, by: str, reason: str
) -> Sequence[Struct]:
    """The fact of one step of the lifecycle, except approval (see approvals.py).

    Raises:
        ReasonRequired, NotProposer, NotReady.
    """
    name, package, uid = revision.name, revision.package, revision.uid
    metadata.check_reason(reason, needed=edge.needs_reason)
    match edge.verb:
        case lifecycle.LifecycleVerb.PROPOSE:
            demand_ready(revision)
            return (
                facts.RevisionProposed(name, package, uid, by, revision.content.digest, reason),
            )
        case lifecycle.LifecycleVerb.WITHDRAW:
            if by != revision.proposed_by:
                raise refusals.NotProposer(
                    f"{name} was proposed by {revision.proposed_by}; reject it instead, "
                    "with a reason",
                    proposed_by=revision.proposed_by,
                )
            return (facts.ProposalWithdrawn(name, package, uid, by, reason),)
        case lifecycle.LifecycleVerb.REJECT:
            digest = revision.content.digest
            return (facts.ProposalRejected(name, package, uid, by, digest, reason),)
        case lifecycle.LifecycleVerb.PROPOSE_DELETION:
            return (facts.RevisionDeletionProposed(name, package, uid, by, reason),)
        case lifecycle.LifecycleVerb.REJECT_DELETION:
            return (facts.RevisionDeletionRejected(name, package, uid, by, reason),)
        case lifecycle.LifecycleVerb.APPROVE:
            raise AssertionError("an approval publishes; see approvals")


class StepCommand(RevisionCommand, frozen=True, kw_only=True):
    """A verb of the lifecycle."""

    reason: str = ""


def step_rows(verb: lifecycle.LifecycleVerb) -> Callable[[Any], tuple[Key, ...]]:
    """The function that checks the form of a verb's command and lists its rows."""

    def rows(command: StepCommand) -> tuple[Key, ...]:
        metadata.check_reason(command.reason, needed=lifecycle.BY_VERB[verb].needs_reason)
        return own_row(command)

    return rows


def step_decision(
    verb: lifecycle.LifecycleVerb,
) -> Callable[[Any, Any, datetime], Sequence[Struct]]:
    """The decision function of a verb that changes only the lifecycle."""

    def decide(
        rows: tuple[package_rows.Revision | None], command: StepCommand, now: datetime
    ) -> Sequence[Struct]:
        revision, state = demand_versioned(rows[0], command)
        demand_alive(revision)
        edge = lifecycle.edge_by_verb(state, verb)
        return step_fact(revision, edge, command.by, command.reason)

    return decide
