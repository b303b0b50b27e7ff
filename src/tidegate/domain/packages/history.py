"""What the log tells about a revision or a package, in order: who did what, when, and why.

For display alone: no decision reads it. It outlives deletions, because facts do.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.packages.facts import (
    FACTS,
    PackageEmptied,
    PackageImported,
    PackageStarted,
    ProposalRejected,
    ProposalWithdrawn,
    RepositoryChanged,
    RepositoryCreated,
    RepositoryDeleted,
    RevisionApproved,
    RevisionConditionsChanged,
    RevisionContentReplaced,
    RevisionCreated,
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionDeletionStarted,
    RevisionGatesChanged,
    RevisionMetadataChanged,
    RevisionProposed,
    RevisionPublished,
    RevisionTaskAdded,
    Task,
)
from tidegate.domain.packages.rows import (
    revision_key,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel.model import Clause, Event, Position, Query
from tidegate.kernel.tags import tag_fields
from tidegate.kernel.vocabulary import Vocabulary

# The words of the audit feed.
ACTIONS: dict[type[Struct], str] = {
    RepositoryCreated: "Create-repository",
    RepositoryChanged: "Change-repository",
    RepositoryDeleted: "Delete-repository",
    PackageStarted: "Start-package",
    PackageImported: "Import",
    PackageEmptied: "Empty-package",
    RevisionCreated: "Create",
    RevisionContentReplaced: "Update",
    RevisionTaskAdded: "Add-task",
    RevisionGatesChanged: "Change-gates",
    RevisionConditionsChanged: "Report-conditions",
    RevisionMetadataChanged: "Update-metadata",
    RevisionProposed: "Propose",
    ProposalWithdrawn: "Withdraw",
    ProposalRejected: "Reject",
    RevisionApproved: "Approve",
    RevisionPublished: "Publish",
    RevisionDeletionProposed: "Propose-delete",
    RevisionDeletionRejected: "Reject-deletion",
    RevisionDeletionStarted: "Start-delete",
    RevisionDeleted: "Delete",
}

# The state after a fact that does not tell it itself.
_LIFECYCLES: dict[type[Struct], Lifecycle] = {
    RevisionCreated: Lifecycle.DRAFT,
    RevisionContentReplaced: Lifecycle.DRAFT,
    RevisionTaskAdded: Lifecycle.DRAFT,
    RevisionGatesChanged: Lifecycle.DRAFT,
    RevisionProposed: Lifecycle.PROPOSED,
    ProposalWithdrawn: Lifecycle.DRAFT,
    ProposalRejected: Lifecycle.DRAFT,
    RevisionApproved: Lifecycle.PROPOSED,
    RevisionPublished: Lifecycle.PUBLISHED,
    RevisionDeletionProposed: Lifecycle.DELETION_PROPOSED,
    RevisionDeletionRejected: Lifecycle.PUBLISHED,
}


class TimelineStep(Struct, frozen=True, rename="camel"):
    """One line of a timeline."""

    position: Position
    at: datetime
    by: str
    action: str
    name: str
    uid: str
    lifecycle: str | None  # after it; none for a package
    task: Task | None = None
    revision: int | None = None
    digest: str | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()


def history_of(name: str) -> Query:
    """All that happened to a revision of this name, in all its incarnations."""
    return _about("revision", revision_key(name).id)


def history_of_package(package: str) -> Query:
    """The steps of the lifecycles of all revisions of a package."""
    return _about("package", package)


def history_of_repository(name: str) -> Query:
    """How a repository was set up and changed."""
    return _about("repository", name)


def timeline(
    vocabulary: Vocabulary, events: Iterable[Event], uid: str | None = None
) -> tuple[TimelineStep, ...]:
    """The events as steps, in order; those of one incarnation if its uid is given.

    Each step stands for itself, so a long history may be read page by page.
    """
    steps = (_step(event, vocabulary.value(event)) for event in events)
    return tuple(step for step in steps if uid is None or step.uid == uid)


def approvers(steps: Iterable[TimelineStep]) -> tuple[str, ...]:
    """Who approved what was published: the approvals behind the last proposal."""
    found: list[str] = []
    for step in steps:
        if step.action == ACTIONS[RevisionProposed]:
            found = []
        elif step.action == ACTIONS[RevisionApproved]:
            found.append(step.by)
    return tuple(found)


def _about(key: str, value: str) -> Query:
    types = (item for item in FACTS if key in {tag.key for tag in tag_fields(item.struct)})
    return Query((Clause(frozenset(item.name for item in types), frozenset((f"{key}:{value}",))),))


def _step(event: Event, fact: Any) -> TimelineStep:
    subjects = (getattr(fact, member, None) for member in ("name", "package", "repository"))
    content = getattr(fact, "content", None)
    return TimelineStep(
        position=event.position,
        at=event.at,
        by=fact.by,
        action=ACTIONS[type(fact)],
        name=next(subject for subject in subjects if subject is not None),
        uid=getattr(fact, "uid", ""),
        lifecycle=getattr(fact, "lifecycle", None) or _LIFECYCLES.get(type(fact)),
        task=getattr(fact, "task", None),
        revision=getattr(fact, "number", None),
        digest=getattr(fact, "digest", None) if content is None else content.digest,
        reason=getattr(fact, "reason", None) or None,
        warnings=getattr(fact, "warnings", ()),
    )
