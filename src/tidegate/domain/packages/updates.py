"""Changes of a revision: content, tasks, gates, metadata, lifecycle, as one commit or not at all.

A Draft may change in every respect at once. Any other revision is refused whole if the update
touches more than metadata and an allowed step of the lifecycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar, cast

from msgspec import Struct

from tidegate.domain.content.digests import check_digest
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import Content, FileManifest
from tidegate.domain.packages.deletions import deletion_facts
from tidegate.domain.packages.facts import (
    Clone,
    Condition,
    Init,
    Metadata,
    OwnerReference,
    PackageEmptied,
    ProposalRejected,
    ProposalWithdrawn,
    RevisionConditionsChanged,
    RevisionContentReplaced,
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionGatesChanged,
    RevisionMetadataChanged,
    RevisionProposed,
    RevisionTaskAdded,
    Task,
)
from tidegate.domain.packages.folds import RevisionFact, step_revision
from tidegate.domain.packages.lifecycle import MUTABILITY, Operation, edge_of, parse_desired
from tidegate.domain.packages.metadata import (
    CONDITIONS_MAX,
    check_conditions,
    check_gates,
    check_metadata,
    check_reason,
)
from tidegate.domain.packages.names import check_user, parse
from tidegate.domain.packages.origins import Rows, choose_content, find_origin, source_keys
from tidegate.domain.packages.refusals import (
    DigestMismatch,
    Immutable,
    NotDraft,
    OriginFixed,
    Terminating,
    TooManyTasks,
)
from tidegate.domain.packages.revision_commands import (
    RevisionCommand,
    demand_alive,
    demand_companion,
    demand_versioned,
    expects,
    own_row,
    step_fact,
)
from tidegate.domain.packages.rows import (
    PackageRow,
    Revision,
    RevisionLinks,
    links_key,
    package_key,
    revision_key,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel.model import Key, at_most
from tidegate.kernel.slices import Slice

TASKS_MAX = 32
EDITORS_MAX = 64

Value = TypeVar("Value")


class UpdateRevision(RevisionCommand, frozen=True, kw_only=True):
    """The revision as it shall be; None: as it is. Whole values replace whole values."""

    files: tuple[File, ...] | None = None
    tasks: tuple[Task, ...] | None = None
    readiness_gates: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    lifecycle: str | None = None
    reason: str = ""


class ReplaceResources(RevisionCommand, frozen=True, kw_only=True):
    """These files instead of all that were there."""

    files: tuple[File, ...]


class SetConditions(RevisionCommand, frozen=True, kw_only=True):
    """What was found out about the content of this digest; other conditions stay."""

    digest: str
    conditions: tuple[Condition, ...]


class RevisionDiff(Struct, frozen=True):
    """What an update would make different, and only that."""

    content: Content | None = None
    tasks: tuple[Task, ...] | None = None
    gates: tuple[str, ...] | None = None
    metadata: Metadata | None = None
    lifecycle: Lifecycle | None = None

    @property
    def operations(self) -> frozenset[Operation]:
        wanted = {
            Operation.RESOURCES: self.content,
            Operation.TASKS: self.tasks,
            Operation.GATES: self.gates,
            Operation.METADATA: self.metadata,
            Operation.LIFECYCLE: self.lifecycle,
        }
        return frozenset(item for item, value in wanted.items() if value is not None)


# ── update ────────────────────────────────────────────────────────────────────────────────────────


def rows_of_update(command: UpdateRevision) -> tuple[Key, ...]:
    """Raises: Invalid, TooLarge."""
    _check_form(command)
    return _keys(command)


def _keys(command: UpdateRevision) -> tuple[Key, ...]:
    """An update that leaves no finalizer may delete; one with tasks may add its last one."""
    place = parse(command.name)
    keys = [revision_key(place)]
    if command.finalizers == ():
        keys += [package_key(place.package), links_key(place.name)]
    if command.tasks:
        keys += source_keys(command.tasks[-1])
    return tuple(dict.fromkeys(keys))


def _check_form(command: UpdateRevision) -> None:
    """What can be said without knowing the revision. Raises: Invalid, TooLarge."""
    check_user(command.by)
    check_reason(command.reason, needed=False)
    check_metadata(
        Metadata(
            command.labels or {},
            command.annotations or {},
            command.finalizers or (),
            command.owner_references or (),
        )
    )
    check_gates(command.readiness_gates or ())
    if command.files is not None:
        FileManifest(command.files)
    if command.lifecycle is not None:
        parse_desired(command.lifecycle)


def decide_update(
    rows: tuple[Struct | None, ...], command: UpdateRevision, now: datetime
) -> Sequence[Struct]:
    """Raises: Invalid, NotFound, Conflict, Refused and Forbidden leaves of ``refusals``."""
    seen: Rows = dict(zip(_keys(command), rows, strict=True))
    revision, state = demand_versioned(cast(Revision | None, rows[0]), command)
    change = change_of(revision, state, command)
    if revision.deletion_timestamp is not None:
        return _while_terminating(revision, change, command, seen)
    frozen = [
        item for item in Operation if item in change.operations and not MUTABILITY[item, state]
    ]
    if frozen:
        raise Immutable(state, frozen)
    edits = _edits(revision, change, command, seen)
    if change.lifecycle is None:
        return edits
    edge = edge_of(state, change.lifecycle, own=command.by == revision.proposed_by)
    return (*edits, *step_fact(_after(revision, edits, now), edge, command.by, command.reason))


def change_of(revision: Revision, state: Lifecycle, command: UpdateRevision) -> RevisionDiff:
    """What differs from what stands."""
    metadata = Metadata(
        _or(command.labels, revision.metadata.labels),
        _or(command.annotations, revision.metadata.annotations),
        _or(command.finalizers, revision.metadata.finalizers),
        _or(command.owner_references, revision.metadata.owner_references),
    )
    content = None if command.files is None else FileManifest(command.files).content
    lifecycle = None if command.lifecycle is None else parse_desired(command.lifecycle)
    return RevisionDiff(
        content=_unless(content, revision.content),
        tasks=_unless(command.tasks, revision.tasks),
        gates=_unless(command.readiness_gates, revision.gates),
        metadata=_unless(metadata, revision.metadata),
        lifecycle=_unless(lifecycle, state),
    )


def _edits(
    revision: Revision, change: RevisionDiff, command: UpdateRevision, seen: Rows
) -> Sequence[RevisionFact]:
    """The facts of all but the lifecycle."""
    name, uid, by = revision.name, revision.uid, command.by
    facts: list[RevisionFact] = []
    content = change.content
    if change.operations & {Operation.TASKS, Operation.RESOURCES, Operation.GATES}:
        at_most("editors of a revision", len({*revision.editors, by}), EDITORS_MAX)
    if change.tasks is not None:
        task = _added(revision, change.tasks)
        came = find_origin(task, revision.package, seen, revision)
        brought = None if command.files is None else content or revision.content
        content = _unless(choose_content(came, task, brought), revision.content)
        facts.append(
            RevisionTaskAdded(name, uid, by, task, revision.upstream, came.upstream, came.warnings)
        )
    if content is not None:
        before = revision.content.digest
        facts.append(RevisionContentReplaced(name, uid, by, before, content))
    if change.gates is not None:
        facts.append(RevisionGatesChanged(name, uid, by, change.gates))
    if change.metadata is not None:
        state = Lifecycle(revision.lifecycle)
        former = revision.metadata.owner_references
        facts.append(RevisionMetadataChanged(name, uid, by, state, change.metadata, former))
    return facts


def _added(revision: Revision, tasks: tuple[Task, ...]) -> Task:
    """The task that an update appends. Raises: OriginFixed, TooManyTasks, LimitExceeded."""
    kept = len(revision.tasks)
    if tasks[:kept] != revision.tasks:
        raise OriginFixed(f"the {kept} tasks of {revision.name} stay as they are; add behind them")
    if len(tasks) > kept + 1:
        raise TooManyTasks(f"an update adds one task, found {len(tasks) - kept}")
    at_most("tasks of a revision", len(tasks), TASKS_MAX)
    if isinstance(tasks[-1], Init | Clone):
        raise OriginFixed(f"{revision.name} has its origin; only edit and upgrade come later")
    return tasks[-1]


def _while_terminating(
    revision: Revision, change: RevisionDiff, command: UpdateRevision, seen: Rows
) -> Sequence[Struct]:
    """Labels and annotations change, finalizers go; with the last one the revision does.

    Raises:
        Terminating: anything else.
    """
    if not change.operations:
        return ()
    if change.metadata is None or change.operations != {Operation.METADATA}:
        raise Terminating(revision.name)
    old, new = revision.metadata, change.metadata
    if not set(new.finalizers) <= set(old.finalizers):
        raise Terminating(revision.name)
    if new.owner_references != old.owner_references:
        raise Terminating(revision.name)
    facts: list[Struct] = [
        RevisionMetadataChanged(
            revision.name,
            revision.uid,
            command.by,
            Lifecycle(revision.lifecycle),
            new,
            revision.metadata.owner_references,
        )
    ]
    if not new.finalizers:
        package = cast(PackageRow | None, seen[package_key(revision.package)])
        links = cast(RevisionLinks | None, seen[links_key(revision.name)])
        facts += deletion_facts(
            revision,
            demand_companion(package, revision.name),
            demand_companion(links, revision.name),
            command.by,
        )
    return facts


def _after(revision: Revision, facts: Sequence[RevisionFact], now: datetime) -> Revision:
    """The revision as these facts leave it, by the very function that will write it."""
    for fact in facts:
        stepped = step_revision(revision, fact, now)
        assert stepped is not None, "an edit deletes nothing"
        revision = stepped
    return revision


# ── resources, conditions ─────────────────────────────────────────────────────────────────────────


def rows_of_resources(command: ReplaceResources) -> tuple[Key, ...]:
    """Raises: Invalid, TooLarge."""
    FileManifest(command.files)
    return own_row(command)


def rows_of_conditions(command: SetConditions) -> tuple[Key, ...]:
    """Raises: Invalid, TooLarge."""
    check_conditions(command.conditions)
    check_digest(command.digest)
    return own_row(command)


def decide_resources(
    rows: tuple[Revision | None], command: ReplaceResources, now: datetime
) -> Sequence[Struct]:
    revision, state = demand_versioned(rows[0], command)
    content = FileManifest(command.files).content
    demand_alive(revision)
    if not MUTABILITY[Operation.RESOURCES, state]:
        raise NotDraft(state, (Operation.RESOURCES,))
    if content == revision.content:
        return ()
    at_most("editors of a revision", len({*revision.editors, command.by}), EDITORS_MAX)
    before = revision.content.digest
    return (RevisionContentReplaced(revision.name, revision.uid, command.by, before, content),)


def decide_conditions(
    rows: tuple[Revision | None], command: SetConditions, now: datetime
) -> Sequence[Struct]:
    revision, state = demand_versioned(rows[0], command)
    demand_alive(revision)
    if not MUTABILITY[Operation.CONDITIONS, state]:
        raise Immutable(state, (Operation.CONDITIONS,))
    if command.digest != revision.content.digest:
        raise DigestMismatch(command.digest, revision.content.digest)
    by_type = {condition.type: condition for condition in revision.conditions}
    by_type.update((condition.type, condition) for condition in command.conditions)
    conditions = tuple(by_type.values())
    at_most("conditions of a revision", len(conditions), CONDITIONS_MAX)
    if conditions == revision.conditions:
        return ()
    return (
        RevisionConditionsChanged(
            revision.name, revision.uid, command.by, state, command.digest, conditions
        ),
    )


def _or(wanted: Value | None, stored: Value) -> Value:
    return stored if wanted is None else wanted


def _unless(wanted: Value | None, stored: Value) -> Value | None:
    return None if wanted == stored else wanted


update_revision = Slice(
    name="update-revision",
    command=UpdateRevision,
    writes=(
        RevisionTaskAdded,
        RevisionContentReplaced,
        RevisionGatesChanged,
        RevisionMetadataChanged,
        RevisionProposed,
        ProposalWithdrawn,
        ProposalRejected,
        RevisionDeletionProposed,
        RevisionDeletionRejected,
        RevisionDeleted,
        PackageEmptied,
    ),
    rows=rows_of_update,
    expects=expects,
    decide=decide_update,
)
replace_resources = Slice(
    name="replace-resources",
    command=ReplaceResources,
    writes=(RevisionContentReplaced,),
    rows=rows_of_resources,
    expects=expects,
    decide=decide_resources,
)
set_conditions = Slice(
    name="set-conditions",
    command=SetConditions,
    writes=(RevisionConditionsChanged,),
    rows=rows_of_conditions,
    expects=expects,
    decide=decide_conditions,
)

SLICES = (update_revision, replace_resources, set_conditions)
