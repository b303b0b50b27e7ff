"""The timeline of a revision or a package from the log: who did what, when and why.

It is for display only; no decision reads it. It remains after deletions, because facts do.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from tidegate.domain.packages import facts, rows, states
from tidegate.kernel import model, tags
from tidegate.kernel.vocabulary import Vocabulary

# The actions as the audit log shows them.
ACTIONS: dict[type[Struct], str] = {
    facts.RepositoryCreated: "Create-repository",
    facts.RepositoryChanged: "Change-repository",
    facts.RepositoryDeleted: "Delete-repository",
    facts.PackageStarted: "Start-package",
    facts.PackageImported: "Import",
    facts.PackageEmptied: "Empty-package",
    facts.RevisionCreated: "Create",
    facts.RevisionContentReplaced: "Update",
    facts.RevisionTaskAdded: "Add-task",
    facts.RevisionGatesChanged: "Change-gates",
    facts.RevisionConditionsChanged: "Report-conditions",
    facts.RevisionMetadataChanged: "Update-metadata",
    facts.RevisionProposed: "Propose",
    facts.ProposalWithdrawn: "Withdraw",
    facts.ProposalRejected: "Reject",
    facts.RevisionApproved: "Approve",
    facts.RevisionPublished: "Publish",
    facts.RevisionDeletionProposed: "Propose-delete",
    facts.RevisionDeletionRejected: "Reject-deletion",
    facts.RevisionDeletionStarted: "Start-delete",
    facts.RevisionDeleted: "Delete",
}

# The state after a fact that does not carry it itself.
_LIFECYCLES: dict[type[Struct], states.Lifecycle] = {
    facts.RevisionCreated: states.Lifecycle.DRAFT,
    facts.RevisionContentReplaced: states.Lifecycle.DRAFT,
    facts.RevisionTaskAdded: states.Lifecycle.DRAFT,
    facts.RevisionGatesChanged: states.Lifecycle.DRAFT,
    facts.RevisionProposed: states.Lifecycle.PROPOSED,
    facts.ProposalWithdrawn: states.Lifecycle.DRAFT,
    facts.ProposalRejected: states.Lifecycle.DRAFT,
    facts.RevisionApproved: states.Lifecycle.PROPOSED,
    facts.RevisionPublished: states.Lifecycle.PUBLISHED,
    facts.RevisionDeletionProposed: states.Lifecycle.DELETION_PROPOSED,
    facts.RevisionDeletionRejected: states.Lifecycle.PUBLISHED,
}


class TimelineStep(Struct, frozen=True, rename="camel"):
    """One line of a timeline."""

    position: model.Position
    at: datetime
    by: str
    action: str
    name: str
    uid: str
    lifecycle: str | None  # after this step; None for a package
    task: facts.Task | None = None
    revision: int | None = None
    digest: str | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()


def history_of(name: str) -> model.Query:
    """The query for all events about revisions with this name, deleted ones included."""
    return _about("revision", rows.revision_key(name).id)


def history_of_package(package: str) -> model.Query:
    """The query for the lifecycle steps of all revisions of a package."""
    return _about("package", package)


def history_of_repository(name: str) -> model.Query:
    """The query for all events about a repository."""
    return _about("repository", name)


def timeline(
    vocabulary: Vocabulary, events: Iterable[model.Event], uid: str | None = None
) -> tuple[TimelineStep, ...]:
    """The events as steps, in order; with a ``uid`` only those of that revision.

    Each step is independent of the others, so a long history can be read page by page.
    """
    steps = (_step(event, vocabulary.value(event)) for event in events)
    return tuple(step for step in steps if uid is None or step.uid == uid)


def _about(key: str, value: str) -> model.Query:
    types = (
        item for item in facts.FACTS if key in {tag.key for tag in tags.tag_fields(item.struct)}
    )
    return model.Query(
        (model.Clause(frozenset(item.name for item in types), frozenset((f"{key}:{value}",))),)
    )


def _step(event: model.Event, fact: Any) -> TimelineStep:
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
