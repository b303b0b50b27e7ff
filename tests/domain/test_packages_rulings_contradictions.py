"""Cases of a revision in which two rules meet, and changes that change nothing."""

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


# ── contradictions of the seed ────────────────────────────────────────────────────────────────────


def test_settles_how_proposals_come_and_go(package_log: PackageLog) -> None:
    assert answer_of(package_log, creation(lifecycle="Proposed"))[0] == 400
    name = package_log.create()
    assert answer_of(package_log, update(package_log, name, lifecycle="Published"))[0] == 422
    package_log.propose(name)
    assert answer_of(package_log, update(package_log, name, files=files(a="2"))) == IMMUTABLE
    outcome = package_log.update(name, labels={"a": "b"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]


def test_settles_tasks_deletion_and_metadata(package_log: PackageLog) -> None:
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
    name = package_log.brought_to(DELETION_PROPOSED)
    package_log.delete(name, by=REVIEWER)

    assert [step.action for step in package_log.timeline(name)] == [
        *("Create", "Propose", "Approve", "Publish", "Propose-delete", "Delete")
    ]
    (tombstone,) = package_log.store.range("revision_tombstones", prefix=f"{name}/", limit=10)
    assert b'"deleted_by":"user_reviewer"' in tombstone.data


# ── nothing ───────────────────────────────────────────────────────────────────────────────────────


def test_reads_absence_as_unchanged_and_emptiness_as_an_error(package_log: PackageLog) -> None:
    name = package_log.brought_to(PROPOSED)

    assert answer_of(package_log, update(package_log, name, lifecycle="")) == UNKNOWN
    package_log.update(name, labels={"a": "b"})
    assert package_log.revision(name).lifecycle == PROPOSED
    assert "lifecycle" not in ProposeDeletion.__struct_fields__


def test_appends_nothing_where_nothing_differs(package_log: PackageLog) -> None:
    name = package_log.create(files=files(a="1"), metadata=Metadata(labels={"a": "b"}))
    before = package_log.version(name)
    same = update(package_log, name, lifecycle="Draft", files=files(a="1"), labels={"a": "b"})

    assert package_log.run(same).receipt is None
    assert package_log.version(name) == before
    outcome = package_log.update(name, lifecycle="Draft", labels={"a": "c"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]
