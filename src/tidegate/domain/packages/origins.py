"""The origin of a revision: the sources of its task, the content taken from them, its lineage.

A revision descends from its upstream: a clone from the cloned revision, an edit from its source's
upstream, an upgrade from the new upstream. While it exists, its upstream cannot be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tidegate.domain.content.manifests import Content
from tidegate.domain.packages import (
    facts,
    lifecycle,
    merging,
    refusals,
    revision_commands,
    rows as package_rows,
    states,
)
from tidegate.kernel.model import Key

Rows = Mapping[Key, Struct | None]


class Origin(Struct, frozen=True):
    """What a revision gets from its task. Without content, the command must bring it."""

    content: Content | None
    upstream: facts.Lineage | None
    warnings: tuple[str, ...] = ()


def source_names(task: facts.Task) -> tuple[str, ...]:
    """The revisions that a task names."""
    match task:
        case facts.Init():
            return ()
        case facts.Clone(upstream=name) | facts.Edit(source=name):
            return (name,)
        case facts.Upgrade(old_upstream=old, new_upstream=new, local_package_revision=local):
            return (old, new, local)


def source_keys(task: facts.Task) -> tuple[Key, ...]:
    """The rows of the revisions that a task names. Raises: InvalidName."""
    return tuple(dict.fromkeys(map(package_rows.revision_key, source_names(task))))


def find_origin(
    task: facts.Task, package: str, rows: Rows, draft: package_rows.Revision | None = None
) -> Origin:
    """Find what the task gives to a revision of this package, or to its existing ``draft``.

    Raises:
        RevisionNotFound, Terminating, SourceNotPublished, SourceMismatch.
    """
    match task:
        case facts.Init():
            return Origin(None, None)
        case facts.Clone(upstream=name):
            upstream = _demand_published(name, rows)
            return Origin(upstream.content, lineage(upstream), warnings(upstream))
        case facts.Edit(source=name):
            source = _demand_published(name, rows)
            _demand_package(source, package)
            return Origin(source.content, source.upstream)
        case facts.Upgrade():
            return _upgrade(task, package, rows, draft)


def _upgrade(
    task: facts.Upgrade, package: str, rows: Rows, draft: package_rows.Revision | None
) -> Origin:
    old, new = (
        _demand_published(task.old_upstream, rows),
        _demand_published(task.new_upstream, rows),
    )
    itself = draft is not None and draft.name == task.local_package_revision
    local = (
        draft
        if draft is not None and itself
        else _demand_published(task.local_package_revision, rows)
    )
    _demand_package(local, package)
    if local.upstream is None or local.upstream.name != old.name:
        descent = "nothing" if local.upstream is None else local.upstream.name
        raise refusals.SourceMismatch(
            f"{local.name} descends from {descent}, not from {old.name}", revision=local.name
        )
    if new.package != old.package:
        raise refusals.SourceMismatch(
            f"{new.name} is no revision of {old.package}, from which {local.name} descends",
            revision=new.name,
        )
    if task.strategy is facts.Strategy.FAST_FORWARD and local.content.digest != old.content.digest:
        raise refusals.SourceMismatch(
            f"{local.name} was changed since {old.name}; a fast-forward needs it as it was",
            revision=local.name,
        )
    content = new.content if task.strategy in merging.WHOLE else None
    return Origin(content, lineage(new), warnings(new))


def warnings(upstream: package_rows.Revision) -> tuple[str, ...]:
    """Warnings for a new revision that descends from this one and so will block its deletion."""
    if lifecycle.parse_stored(upstream.lifecycle) is not states.Lifecycle.DELETION_PROPOSED:
        return ()
    return (f"the deletion of {upstream.name} was proposed",)


def lineage(revision: package_rows.Revision) -> facts.Lineage:
    """The revision as its descendants record it."""
    return facts.Lineage(revision.name, revision.uid, revision.number, revision.content.digest)


def choose_content(origin: Origin, task: facts.Task, content: Content | None) -> Content:
    """The content of a new revision: that of the command, otherwise that of the origin.

    Raises:
        InvalidMember: neither has content, or the task does not allow any other content.
    """
    if (
        isinstance(task, facts.Upgrade)
        and task.strategy in merging.WHOLE
        and content not in (None, origin.content)
    ):
        raise refusals.InvalidMember(
            f"a {task.strategy} upgrade takes the content of its new upstream"
        )
    chosen = origin.content if content is None else content
    if chosen is None:
        raise refusals.InvalidMember("this task needs the files that it results in")
    return chosen


def _demand_published(name: str, rows: Rows) -> package_rows.Revision:
    row = rows[package_rows.revision_key(name)]
    if row is None:
        raise refusals.RevisionNotFound(name)
    assert isinstance(row, package_rows.Revision)
    if lifecycle.parse_stored(row.lifecycle) not in states.PUBLISHED_STATES:
        raise refusals.SourceNotPublished(
            f"{name} is {row.lifecycle}; what a revision is made from must be published",
            revision=name,
            lifecycle=row.lifecycle,
        )
    revision_commands.demand_alive(row)
    return row


def _demand_package(source: package_rows.Revision, package: str) -> None:
    if source.package != package:
        raise refusals.SourceMismatch(
            f"{source.name} belongs to package {source.package}, not to {package}",
            revision=source.name,
            package=package,
        )
