"""packages.md §2.4–§2.5, ruling by ruling: contradictions of the seed, and what is nothing."""

from __future__ import annotations

import pytest

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, Depot, files
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
def depot() -> Depot:
    depot = Depot()
    depot.repository()
    return depot


# ── §2.4 contradictions of the seed ───────────────────────────────────────────────────────────────


def test_settles_how_proposals_come_and_go(depot: Depot) -> None:
    """packages.md §2.4 #1: "refuse, 400"
    packages.md §2.4 #2: "refuse, 422"
    packages.md §2.4 #3: "frozen"
    packages.md §2.4 #4: "one path: metadata event"
    """
    assert answer_of(depot, creation(lifecycle="Proposed"))[0] == 400
    name = depot.create()
    assert answer_of(depot, update(depot, name, lifecycle="Published"))[0] == 422
    depot.propose(name)
    assert answer_of(depot, update(depot, name, files=files(a="2"))) == IMMUTABLE
    outcome = depot.update(name, labels={"a": "b"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]


def test_settles_tasks_deletion_and_metadata(depot: Depot) -> None:
    """packages.md §2.4 #5: "single, immutable": the first is the origin; DESIGN.md §4, 1 lets a
    Draft append to it
    packages.md §2.4 #6: "mandatory two steps"
    packages.md §2.4 #7: "`**` footnote on DeletionProposed's own delete" | "ignore": one step
    packages.md §2.4 #8: "all four fields in every state"
    """
    name = depot.create()
    assert answer_of(depot, update(depot, name, tasks=(Init("other"),)))[0] == 422
    for state in Lifecycle:
        other = depot.brought_to(state, f"in-{state.lower()}")
        references = (OwnerReference("team", "edge"),)
        depot.update(other, labels={"a": "b"}, annotations={"a": "b"}, owner_references=references)
        depot.update(other, finalizers=("hold",))
        depot.update(other, finalizers=())
    published = DeleteRevision(name="blueprints.in-published.in-published", by=OPERATOR)
    assert answer_of(depot, published)[0] == 403
    depot.delete("blueprints.in-deletionproposed.in-deletionproposed")


def test_settles_versions_and_who_published(depot: Depot) -> None:
    """packages.md §2.4 #9: "strictly increasing per object"
    packages.md §2.4 #10: "409"
    packages.md §2.4 #11: "authenticated approver; set once"
    packages.md §2.4 #12: "version first (3.2)"
    packages.md §2.4 #14: "allowed" (Draft→Draft)
    """
    name = depot.create()
    versions = [depot.version(name)]
    stale = update(depot, name, lifecycle="DeletionProposed")
    depot.update(name, labels={"a": "b"})
    versions.append(depot.version(name))
    assert answer_of(depot, stale) == (409, "version_conflict")
    frozen = ReplaceResources(
        name=name, by=AUTHOR, files=files(a="1"), expected_version=versions[0]
    )
    depot.propose(name)
    versions.append(depot.version(name))
    assert answer_of(depot, frozen) == (409, "version_conflict"), "and not 422"
    depot.approve(name, by=REVIEWER)
    versions.append(depot.version(name))
    assert depot.revision(name).published_by == REVIEWER
    assert versions == sorted(set(versions))
    again = depot.create("v2", task=Edit(name))
    assert depot.run(update(depot, again, lifecycle="Draft")).receipt is None


def test_keeps_the_trail_of_what_was_deleted(depot: Depot) -> None:
    """packages.md §2.4 #13: "events survive deletion; tombstone readable"."""
    name = depot.brought_to(DELETION_PROPOSED)
    depot.delete(name, by=REVIEWER)

    assert [step.action for step in depot.timeline(name)] == [
        *("Create", "Propose", "Approve", "Publish", "Propose-delete", "Delete")
    ]
    (tombstone,) = depot.store.range("revision_tombstones", prefix=f"{name}/", limit=10)
    assert b'"deleted_by":"user_reviewer"' in tombstone.data


# ── §2.5 nothing ──────────────────────────────────────────────────────────────────────────────────


def test_reads_absence_as_unchanged_and_emptiness_as_an_error(depot: Depot) -> None:
    """packages.md §2.5 #1: "in a full-object update an empty/omitted lifecycle is 400; in
    verb-style calls the field does not exist; in a patch absence means unchanged".
    """
    name = depot.brought_to(PROPOSED)

    assert answer_of(depot, update(depot, name, lifecycle="")) == UNKNOWN
    depot.update(name, labels={"a": "b"})
    assert depot.revision(name).lifecycle == PROPOSED
    assert "lifecycle" not in ProposeDeletion.__struct_fields__


def test_appends_nothing_where_nothing_differs(depot: Depot) -> None:
    """packages.md §2.5 #2: "same lifecycle and no other difference → success, **no event, same
    resource_version**. Same lifecycle with metadata difference → one MetadataChanged event".
    """
    name = depot.create(files=files(a="1"), metadata=Metadata(labels={"a": "b"}))
    before = depot.version(name)
    same = update(depot, name, lifecycle="Draft", files=files(a="1"), labels={"a": "b"})

    assert depot.run(same).receipt is None
    assert depot.version(name) == before
    outcome = depot.update(name, lifecycle="Draft", labels={"a": "c"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]
