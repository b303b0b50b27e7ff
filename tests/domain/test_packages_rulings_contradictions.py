"""packages.md §2.4–§2.5, ruling by ruling: contradictions of the seed, and what is nothing."""

from __future__ import annotations

import pytest

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, update
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion
from tidegate.domain.packages.facts import (
    Edit,
    Init,
    Metadata,
    OwnerReference,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


IMMUTABLE = (422, "immutable")
UNKNOWN = (400, "lifecycle_invalid_desired")


@pytest.fixture
def package_log() -> PackageLog:
    package_log = PackageLog()
    package_log.repository()
    return package_log


# ── §2.4 contradictions of the seed ───────────────────────────────────────────────────────────────


def test_settles_how_proposals_come_and_go(package_log: PackageLog) -> None:
    """packages.md §2.4 #1: "refuse, 400"
    packages.md §2.4 #2: "refuse, 422"
    packages.md §2.4 #3: "frozen"
    packages.md §2.4 #4: "one path: metadata event"
    """
    assert answer_of(package_log, creation(lifecycle="Proposed"))[0] == 400
    name = package_log.create()
    assert answer_of(package_log, update(package_log, name, lifecycle="Published"))[0] == 422
    package_log.propose(name)
    assert answer_of(package_log, update(package_log, name, files=files(a="2"))) == IMMUTABLE
    outcome = package_log.update(name, labels={"a": "b"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]


def test_settles_tasks_deletion_and_metadata(package_log: PackageLog) -> None:
    """packages.md §2.4 #5: "single, immutable": the first is the origin; DESIGN.md §4, 1 lets a
    Draft append to it
    packages.md §2.4 #6: "mandatory two steps"
    packages.md §2.4 #7: "`**` footnote on DeletionProposed's own delete" | "ignore": one step
    packages.md §2.4 #8: "all four fields in every state"
    """
    name = package_log.create()
    assert answer_of(package_log, update(package_log, name, tasks=(Init("other"),)))[0] == 422
    for state in Lifecycle:
        other = package_log.brought_to(state, f"in-{state.lower()}")
        references = (OwnerReference("team", "edge"),)
        package_log.update(
            other, labels={"a": "b"}, annotations={"a": "b"}, owner_references=references
        )
        package_log.update(other, finalizers=("hold",))
        package_log.update(other, finalizers=())
    published = DeleteRevision(name="blueprints.in-published.in-published", by=OPERATOR)
    assert answer_of(package_log, published)[0] == 403
    package_log.delete("blueprints.in-deletionproposed.in-deletionproposed")


def test_settles_versions_and_who_published(package_log: PackageLog) -> None:
    """packages.md §2.4 #9: "strictly increasing per object"
    packages.md §2.4 #10: "409"
    packages.md §2.4 #11: "authenticated approver; set once"
    packages.md §2.4 #12: "version first (3.2)"
    packages.md §2.4 #14: "allowed" (Draft→Draft)
    """
    name = package_log.create()
    versions = [package_log.version(name)]
    stale = update(package_log, name, lifecycle="DeletionProposed")
    package_log.update(name, labels={"a": "b"})
    versions.append(package_log.version(name))
    assert answer_of(package_log, stale) == (409, "version_conflict")
    frozen = ReplaceResources(
        name=name, by=AUTHOR, files=files(a="1"), expected_version=versions[0]
    )
    package_log.propose(name)
    versions.append(package_log.version(name))
    assert answer_of(package_log, frozen) == (409, "version_conflict"), "and not 422"
    package_log.approve(name, by=REVIEWER)
    versions.append(package_log.version(name))
    assert package_log.revision(name).published_by == REVIEWER
    assert versions == sorted(set(versions))
    again = package_log.create("v2", task=Edit(name))
    assert package_log.run(update(package_log, again, lifecycle="Draft")).receipt is None


def test_keeps_the_trail_of_what_was_deleted(package_log: PackageLog) -> None:
    """packages.md §2.4 #13: "events survive deletion; tombstone readable"."""
    name = package_log.brought_to(DELETION_PROPOSED)
    package_log.delete(name, by=REVIEWER)

    assert [step.action for step in package_log.timeline(name)] == [
        *("Create", "Propose", "Approve", "Publish", "Propose-delete", "Delete")
    ]
    (tombstone,) = package_log.store.range("revision_tombstones", prefix=f"{name}/", limit=10)
    assert b'"deleted_by":"user_reviewer"' in tombstone.data


# ── §2.5 nothing ──────────────────────────────────────────────────────────────────────────────────


def test_reads_absence_as_unchanged_and_emptiness_as_an_error(package_log: PackageLog) -> None:
    """packages.md §2.5 #1: "in a full-object update an empty/omitted lifecycle is 400; in
    verb-style calls the field does not exist; in a patch absence means unchanged".
    """
    name = package_log.brought_to(PROPOSED)

    assert answer_of(package_log, update(package_log, name, lifecycle="")) == UNKNOWN
    package_log.update(name, labels={"a": "b"})
    assert package_log.revision(name).lifecycle == PROPOSED
    assert "lifecycle" not in ProposeDeletion.__struct_fields__


def test_appends_nothing_where_nothing_differs(package_log: PackageLog) -> None:
    """packages.md §2.5 #2: "same lifecycle and no other difference → success, **no event, same
    resource_version**. Same lifecycle with metadata difference → one MetadataChanged event".
    """
    name = package_log.create(files=files(a="1"), metadata=Metadata(labels={"a": "b"}))
    before = package_log.version(name)
    same = update(package_log, name, lifecycle="Draft", files=files(a="1"), labels={"a": "b"})

    assert package_log.run(same).receipt is None
    assert package_log.version(name) == before
    outcome = package_log.update(name, lifecycle="Draft", labels={"a": "c"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]
