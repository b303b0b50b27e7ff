"""The life of a package revision: its states, numbers, versions and names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of, update
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.packages.approvals import ApproveRevision
from tidegate.domain.packages.deletions import DeleteRevision
from tidegate.domain.packages.facts import (
    Clone,
    Edit,
)
from tidegate.domain.packages.names import identity, parse
from tidegate.domain.packages.rows import REVISIONS, revision_key
from tidegate.domain.packages.states import PUBLISHED_STATES, Lifecycle

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


@pytest.fixture
def package_log() -> PackageLog:
    package_log = PackageLog()
    package_log.repository()
    return package_log


# ── a revision ────────────────────────────────────────────────────────────────────────────────────


def test_stores_four_states_and_deleted_is_absence(package_log: PackageLog) -> None:
    assert [*Lifecycle] == ["Draft", "Proposed", "Published", "DeletionProposed"]
    assert {PUBLISHED, DELETION_PROPOSED} == PUBLISHED_STATES
    name = package_log.brought_to(DELETION_PROPOSED)
    package_log.delete(name)
    assert package_log.store.get(revision_key(name)) == (None,)


def test_has_two_doors_of_which_one_approves(package_log: PackageLog) -> None:
    name = package_log.brought_to(PROPOSED)

    assert answer_of(package_log, update(package_log, name, lifecycle="Published")) == (
        422,
        "invalid_transition",
    )
    package_log.approve(name)
    assert package_log.revision(name).lifecycle == PUBLISHED


def test_publishes_no_draft_and_creates_no_proposal(package_log: PackageLog) -> None:
    name = package_log.create()
    digest = package_log.revision(name).content.digest
    approval = ApproveRevision(
        name=name, by=REVIEWER, digest=digest, expected_version=package_log.version(name)
    )

    assert answer_of(package_log, update(package_log, name, lifecycle="Published"))[0] == 422
    assert answer_of(package_log, approval) == (422, "invalid_transition")
    assert answer_of(package_log, creation(workspace="v2", lifecycle="Proposed"))[0] == 400


def test_changes_content_in_draft_only_and_again_after_a_rejection(package_log: PackageLog) -> None:
    name = package_log.create()
    for state in (PROPOSED, PUBLISHED, DELETION_PROPOSED):
        frozen = package_log.brought_to(state, f"in-{state.lower()}")
        refusal = refusal_of(package_log, package_log.push, frozen, files(a="2"))
        assert status_of(refusal) == 422
    package_log.propose(name)
    package_log.reject(name)
    package_log.push(name, files(a="2"))


def test_deletes_in_every_state_but_published_unless_something_descends(
    package_log: PackageLog,
) -> None:
    for state in (DRAFT, PROPOSED, DELETION_PROPOSED):
        package_log.delete(package_log.brought_to(state, f"in-{state.lower()}"))
    base = package_log.published(package="base")
    assert answer_of(package_log, DeleteRevision(name=base, by=OPERATOR))[0] == 403
    package_log.create(package="clone", task=Clone(base))
    package_log.propose_deletion(base)
    assert answer_of(package_log, DeleteRevision(name=base, by=OPERATOR)) == (
        403,
        "still_referenced",
    )


def test_numbers_from_one_at_publish_and_never_again(package_log: PackageLog) -> None:
    first = package_log.create("v1")
    assert package_log.revision(first).number == 0
    package_log.propose(first)
    assert package_log.revision(first).number == 0
    package_log.approve(first)
    second = package_log.published("v2", task=Edit(first))
    assert (package_log.revision(first).number, package_log.revision(second).number) == (1, 2)
    package_log.propose_deletion(second)
    package_log.delete(second)
    third = package_log.published("v3", task=Edit(first))
    assert package_log.revision(third).number == 3


def test_answers_a_stale_version_with_409_and_the_text(package_log: PackageLog) -> None:
    name = package_log.create()
    stale = update(package_log, name, labels={"a": "b"})
    package_log.update(name, labels={"c": "d"})

    refusal = refusal_of(package_log, package_log.run, stale)

    assert status_of(refusal) == 409
    assert refusal.detail == (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    assert refusal.facts["current"] == package_log.version(name)


def test_keeps_who_published_through_a_rejected_deletion(package_log: PackageLog) -> None:
    name = package_log.published()
    before = package_log.revision(name)
    package_log.propose_deletion(name)
    package_log.reject_deletion(name, by=AUTHOR)

    after = package_log.revision(name)
    assert (after.published_by, after.published_at) == (REVIEWER, before.published_at)


def test_takes_the_position_of_the_last_event_as_the_version(package_log: PackageLog) -> None:
    name = package_log.create()
    acts: tuple[Callable[[str], CommandOutcome], ...] = (
        lambda name: package_log.update(name, labels={"a": "b"}),
        package_log.propose,
        package_log.approve,
        package_log.propose_deletion,
        package_log.reject_deletion,
    )
    for act in acts:
        outcome = act(name)
        last = max(
            event.position for event in package_log.log() if f"revision:{name}" in event.tags
        )
        assert package_log.version(name) == last == outcome.position


# ── names, numbers, latest ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("repository", "path", "workspace", "name"),
    [
        ("blueprints", "web", "ws1", "blueprints.web.ws1"),
        ("blueprints", "networking/vpc", "v1", "blueprints.networking.vpc.v1"),
    ],
)
def test_names_with_dots(repository: str, path: str, workspace: str, name: str) -> None:
    assert identity(repository, path, workspace).name == name
    assert parse(name) == (repository, path, workspace)


def test_compares_full_identities(package_log: PackageLog) -> None:
    package_log.published(package="a/x")
    package_log.published(package="b/x")

    assert answer_of(package_log, creation(package="a/x")) == (409, "already_exists")
    assert answer_of(package_log, creation(package="a/x", workspace="v2")) == (
        409,
        "package_exists",
    )


def test_counts_what_is_proposed_for_deletion_as_latest(package_log: PackageLog) -> None:
    def latest() -> str | None:
        found = package_log.package("blueprints/web").latest
        return None if found is None else found.name

    first = package_log.published("v1")
    second = package_log.published("v2", task=Edit(first))
    package_log.propose_deletion(second)
    assert latest() == second
    package_log.delete(second)
    assert latest() == first
    package_log.propose_deletion(first)
    package_log.delete(first)
    assert latest() is None


def test_has_no_placeholder(package_log: PackageLog) -> None:
    name = package_log.published()

    assert [row.key.id for row in package_log.store.range(REVISIONS.name, limit=10)] == [name]
    assert package_log.revision(name).number > 0
