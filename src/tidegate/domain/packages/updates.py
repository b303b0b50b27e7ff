"""Change a revision's content, tasks, gates, metadata and lifecycle, all in one commit or none.

A Draft may change in every respect at once. In any other state, the whole update is refused if it
changes more than metadata and an allowed step of the lifecycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar, cast

from msgspec import Struct

from tidegate.domain.content import digests, entries, manifests
from tidegate.domain.packages import (
    deletions,
    facts as package_facts,
    folds,
    lifecycle as package_lifecycle,
    metadata as package_metadata,
    names,
    origins,
    refusals,
    revision_commands,
    rows as package_rows,
    states,
)
from tidegate.kernel import model, slices

TASKS_MAX = 32
EDITORS_MAX = 64

Value = TypeVar("Value")


class UpdateRevision(revision_commands.RevisionCommand, frozen=True, kw_only=True):
    """The new values of a revision; None: unchanged. Each value is replaced as a whole."""

    files: tuple[entries.File, ...] | None = None
    tasks: tuple[package_facts.Task, ...] | None = None
    readiness_gates: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[package_facts.OwnerReference, ...] | None = None
    lifecycle: str | None = None
    reason: str = ""


class ReplaceResources(revision_commands.RevisionCommand, frozen=True, kw_only=True):
    """Replace all files of a revision by these."""

    files: tuple[entries.File, ...]


class SetConditions(revision_commands.RevisionCommand, frozen=True, kw_only=True):
    """Set conditions for the content with this digest. Other conditions stay."""

    digest: str
    conditions: tuple[package_facts.Condition, ...]


class RevisionDiff(Struct, frozen=True):
    """Only what an update would change."""

    content: manifests.Content | None = None
    tasks: tuple[package_facts.Task, ...] | None = None
    gates: tuple[str, ...] | None = None
    metadata: package_facts.Metadata | None = None
    lifecycle: states.Lifecycle | None = None

    @property
    def operations(self) -> frozenset[package_lifecycle.Operation]:
        wanted = {
            package_lifecycle.Operation.RESOURCES: self.content,
            package_lifecycle.Operation.TASKS: self.tasks,
            package_lifecycle.Operation.GATES: self.gates,
            package_lifecycle.Operation.METADATA: self.metadata,
            package_lifecycle.Operation.LIFECYCLE: self.lifecycle,
        }
        return frozenset(item for item, value in wanted.items() if value is not None)


# ── update ────────────────────────────────────────────────────────────────────────────────────────


def rows_of_update(command: UpdateRevision) -> tuple[model.Key, ...]:
    """Raises: Invalid, TooLarge."""
    _check_form(command)
    return _keys(command)


def _keys(command: UpdateRevision) -> tuple[model.Key, ...]:
    """The rows read. An update that removes all finalizers may delete the revision; one with tasks
    reads the sources of the last one.
    """
    place = names.parse(command.name)
    keys = [package_rows.revision_key(place)]
    if command.finalizers == ():
        keys += [package_rows.package_key(place.package), package_rows.links_key(place.name)]
    if command.tasks:
        keys += origins.source_keys(command.tasks[-1])
    return tuple(dict.fromkeys(keys))


def _check_form(command: UpdateRevision) -> None:
    """Check what can be checked without the revision. Raises: Invalid, TooLarge."""
    names.check_user(command.by)
    package_metadata.check_reason(command.reason, needed=False)
    package_metadata.check_metadata(
        package_facts.Metadata(
            command.labels or {},
            command.annotations or {},
            command.finalizers or (),
            command.owner_references or (),
        )
    )
    package_metadata.check_gates(command.readiness_gates or ())
    if command.files is not None:
        manifests.FileManifest(command.files)
    if command.lifecycle is not None:
        package_lifecycle.parse_desired(command.lifecycle)


def decide_update(
    rows: tuple[Struct | None, ...], command: UpdateRevision, now: datetime
) -> Sequence[Struct]:
    """Raises: Invalid, NotFound, Conflict, Refused and Forbidden leaves of ``refusals``."""
    seen: origins.Rows = dict(zip(_keys(command), rows, strict=True))
    revision, state = revision_commands.demand_versioned(
        cast(package_rows.Revision | None, rows[0]), command
    )
    change = change_of(revision, state, command)
    if revision.deletion_timestamp is not None:
        return _while_terminating(revision, change, command, seen)
    frozen = [
        item
        for item in package_lifecycle.Operation
        if item in change.operations and not package_lifecycle.MUTABILITY[item, state]
    ]
    if frozen:
        raise refusals.Immutable(state, frozen)
    edits = _edits(revision, change, command, seen)
    if change.lifecycle is None:
        return edits
    edge = package_lifecycle.edge_of(
        state, change.lifecycle, own=command.by == revision.proposed_by
    )
    return (
        *edits,
        *revision_commands.step_fact(
            _after(revision, edits, now), edge, command.by, command.reason
        ),
    )


def change_of(
    revision: package_rows.Revision, state: states.Lifecycle, command: UpdateRevision
) -> RevisionDiff:
    """The difference between the update and the revision."""
    metadata = package_facts.Metadata(
        _or(command.labels, revision.metadata.labels),
        _or(command.annotations, revision.metadata.annotations),
        _or(command.finalizers, revision.metadata.finalizers),
        _or(command.owner_references, revision.metadata.owner_references),
    )
    content = None if command.files is None else manifests.FileManifest(command.files).content
    lifecycle = (
        None if command.lifecycle is None else package_lifecycle.parse_desired(command.lifecycle)
    )
    return RevisionDiff(
        content=_unless(content, revision.content),
        tasks=_unless(command.tasks, revision.tasks),
        gates=_unless(command.readiness_gates, revision.gates),
        metadata=_unless(metadata, revision.metadata),
        lifecycle=_unless(lifecycle, state),
    )


def _edits(
    revision: package_rows.Revision,
    change: RevisionDiff,
    command: UpdateRevision,
    seen: origins.Rows,
) -> Sequence[folds.RevisionFact]:
    """The facts of everything but the lifecycle."""
    name, uid, by = revision.name, revision.uid, command.by
    facts: list[folds.RevisionFact] = []
    content = change.content
    if change.operations & {
        package_lifecycle.Operation.TASKS,
        package_lifecycle.Operation.RESOURCES,
        package_lifecycle.Operation.GATES,
    }:
        model.at_most("editors of a revision", len({*revision.editors, by}), EDITORS_MAX)
    if change.tasks is not None:
        task = _added(revision, change.tasks)
        origin = origins.find_origin(task, revision.package, seen, revision)
        brought = None if command.files is None else content or revision.content
        content = _unless(origins.choose_content(origin, task, brought), revision.content)
        facts.append(
            package_facts.RevisionTaskAdded(
                name, uid, by, task, revision.upstream, origin.upstream, origin.warnings
            )
        )
    if content is not None:
        before = revision.content.digest
        facts.append(package_facts.RevisionContentReplaced(name, uid, by, before, content))
    if change.gates is not None:
        facts.append(package_facts.RevisionGatesChanged(name, uid, by, change.gates))
    if change.metadata is not None:
        state = states.Lifecycle(revision.lifecycle)
        former = revision.metadata.owner_references
        facts.append(
            package_facts.RevisionMetadataChanged(name, uid, by, state, change.metadata, former)
        )
    return facts


def _added(
    revision: package_rows.Revision, tasks: tuple[package_facts.Task, ...]
) -> package_facts.Task:
    """The task that an update appends. Raises: OriginFixed, TooManyTasks, LimitExceeded."""
    kept = len(revision.tasks)
    if tasks[:kept] != revision.tasks:
        raise refusals.OriginFixed(
            f"the {kept} tasks of {revision.name} stay as they are; add behind them"
        )
    if len(tasks) > kept + 1:
        raise refusals.TooManyTasks(f"an update adds one task, found {len(tasks) - kept}")
    model.at_most("tasks of a revision", len(tasks), TASKS_MAX)
    if isinstance(tasks[-1], package_facts.Init | package_facts.Clone):
        raise refusals.OriginFixed(
            f"{revision.name} has its origin; only edit and upgrade come later"
        )
    return tasks[-1]


def _while_terminating(
    revision: package_rows.Revision,
    change: RevisionDiff,
    command: UpdateRevision,
    seen: origins.Rows,
) -> Sequence[Struct]:
    """The facts of an update of a revision that is being deleted. Labels and annotations may change
    and finalizers be removed; the removal of the last one deletes the revision.

    Raises:
        Terminating: anything else would change.
    """
    if not change.operations:
        return ()
    if change.metadata is None or change.operations != {package_lifecycle.Operation.METADATA}:
        raise refusals.Terminating(revision.name)
    old, new = revision.metadata, change.metadata
    if not set(new.finalizers) <= set(old.finalizers):
        raise refusals.Terminating(revision.name)
    if new.owner_references != old.owner_references:
        raise refusals.Terminating(revision.name)
    facts: list[Struct] = [
        package_facts.RevisionMetadataChanged(
            revision.name,
            revision.uid,
            command.by,
            states.Lifecycle(revision.lifecycle),
            new,
            revision.metadata.owner_references,
        )
    ]
    if not new.finalizers:
        package = cast(
            package_rows.PackageRow | None, seen[package_rows.package_key(revision.package)]
        )
        links = cast(package_rows.RevisionLinks | None, seen[package_rows.links_key(revision.name)])
        facts += deletions.deletion_facts(
            revision,
            revision_commands.demand_companion(package, revision.name),
            revision_commands.demand_companion(links, revision.name),
            command.by,
        )
    return facts


def _after(
    revision: package_rows.Revision, facts: Sequence[folds.RevisionFact], now: datetime
) -> package_rows.Revision:
    """The revision after these facts, computed by the fold that will write it."""
    for fact in facts:
        stepped = folds.step_revision(revision, fact, now)
        assert stepped is not None, "an edit deletes nothing"
        revision = stepped
    return revision


# ── resources, conditions ─────────────────────────────────────────────────────────────────────────


def rows_of_resources(command: ReplaceResources) -> tuple[model.Key, ...]:
    """Raises: Invalid, TooLarge."""
    manifests.FileManifest(command.files)
    return revision_commands.own_row(command)


def rows_of_conditions(command: SetConditions) -> tuple[model.Key, ...]:
    """Raises: Invalid, TooLarge."""
    package_metadata.check_conditions(command.conditions)
    digests.check_digest(command.digest)
    return revision_commands.own_row(command)


def decide_resources(
    rows: tuple[package_rows.Revision | None], command: ReplaceResources, now: datetime
) -> Sequence[Struct]:
    revision, state = revision_commands.demand_versioned(rows[0], command)
    content = manifests.FileManifest(command.files).content
    revision_commands.demand_alive(revision)
    if not package_lifecycle.MUTABILITY[package_lifecycle.Operation.RESOURCES, state]:
        raise refusals.NotDraft(state, (package_lifecycle.Operation.RESOURCES,))
    if content == revision.content:
        return ()
    model.at_most("editors of a revision", len({*revision.editors, command.by}), EDITORS_MAX)
    before = revision.content.digest
    return (
        package_facts.RevisionContentReplaced(
            revision.name, revision.uid, command.by, before, content
        ),
    )


def decide_conditions(
    rows: tuple[package_rows.Revision | None], command: SetConditions, now: datetime
) -> Sequence[Struct]:
    revision, state = revision_commands.demand_versioned(rows[0], command)
    revision_commands.demand_alive(revision)
    if not package_lifecycle.MUTABILITY[package_lifecycle.Operation.CONDITIONS, state]:
        raise refusals.Immutable(state, (package_lifecycle.Operation.CONDITIONS,))
    if command.digest != revision.content.digest:
        raise refusals.DigestMismatch(command.digest, revision.content.digest)
    by_type = {condition.type: condition for condition in revision.conditions}
    by_type.update((condition.type, condition) for condition in command.conditions)
    conditions = tuple(by_type.values())
    model.at_most("conditions of a revision", len(conditions), package_metadata.CONDITIONS_MAX)
    if conditions == revision.conditions:
        return ()
    return (
        package_facts.RevisionConditionsChanged(
            revision.name, revision.uid, command.by, state, command.digest, conditions
        ),
    )


def _or(wanted: Value | None, stored: Value) -> Value:
    return stored if wanted is None else wanted


def _unless(wanted: Value | None, stored: Value) -> Value | None:
    return None if wanted == stored else wanted


update_revision = slices.Slice(
    name="update-revision",
    command=UpdateRevision,
    writes=(
        package_facts.RevisionTaskAdded,
        package_facts.RevisionContentReplaced,
        package_facts.RevisionGatesChanged,
        package_facts.RevisionMetadataChanged,
        package_facts.RevisionProposed,
        package_facts.ProposalWithdrawn,
        package_facts.ProposalRejected,
        package_facts.RevisionDeletionProposed,
        package_facts.RevisionDeletionRejected,
        package_facts.RevisionDeleted,
        package_facts.PackageEmptied,
    ),
    rows=rows_of_update,
    expects=revision_commands.expects,
    decide=decide_update,
)
replace_resources = slices.Slice(
    name="replace-resources",
    command=ReplaceResources,
    writes=(package_facts.RevisionContentReplaced,),
    rows=rows_of_resources,
    expects=revision_commands.expects,
    decide=decide_resources,
)
set_conditions = slices.Slice(
    name="set-conditions",
    command=SetConditions,
    writes=(package_facts.RevisionConditionsChanged,),
    rows=rows_of_conditions,
    expects=revision_commands.expects,
    decide=decide_conditions,
)

SLICES = (update_revision, replace_resources, set_conditions)
