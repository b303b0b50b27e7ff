"""The life of a package revision: states, numbers, versions, limits, and commands without
effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.domain.package_log import AUTHOR, REVIEWER, SCHEMA, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of, update
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.content.entries import CONTENT_BYTES_MAX, File
from tidegate.domain.content.limits import ContentLimits
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.approvals import propose_revision
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion
from tidegate.domain.packages.facts import Edit, Metadata, RevisionDeletionProposed
from tidegate.domain.packages.rows import REVISIONS, Repository, revision_key
from tidegate.domain.packages.slices import create_revision
from tidegate.domain.packages.states import PUBLISHED_STATES, Lifecycle
from tidegate.kernel.model import COST_MAX, Key

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


# ── a revision ────────────────────────────────────────────────────────────────────────────────────


def test_stores_four_states_and_no_row_for_deleted(package_log: PackageLog) -> None:
    assert [*Lifecycle] == ["Draft", "Proposed", "Published", "DeletionProposed"]
    assert {PUBLISHED, DELETION_PROPOSED} == PUBLISHED_STATES
    name = package_log.brought_to(DELETION_PROPOSED)
    package_log.delete(name)
    assert package_log.store.get(revision_key(name)) == (None,)


def test_changes_content_in_draft_only_and_again_after_a_rejection(package_log: PackageLog) -> None:
    name = package_log.create()
    for state in (PROPOSED, PUBLISHED, DELETION_PROPOSED):
        frozen = package_log.brought_to(state, f"in-{state.lower()}")
        refusal = refusal_of(package_log, package_log.push, frozen, files(a="2"))
        assert status_of(refusal) == 422
    package_log.propose(name)
    package_log.reject(name)
    package_log.push(name, files(a="2"))


def test_numbers_from_one_at_publication_and_never_changes_a_number(
    package_log: PackageLog,
) -> None:
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


def test_keeps_the_publisher_through_a_rejected_deletion(package_log: PackageLog) -> None:
    name = package_log.published()
    before = package_log.revision(name)
    package_log.propose_deletion(name)
    package_log.reject_deletion(name, by=AUTHOR)

    after = package_log.revision(name)
    assert (after.published_by, after.published_at) == (REVIEWER, before.published_at)


def test_uses_the_position_of_the_last_event_as_the_version(package_log: PackageLog) -> None:
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


def test_compares_full_identities(package_log: PackageLog) -> None:
    names = [package_log.published(package=package) for package in ("a/x", "b/x")]
    assert [package_log.revision(name).number for name in names] == [1, 1]

    assert answer_of(package_log, creation(package="a/x")) == (409, "already_exists")
    assert answer_of(package_log, creation(package="a/x", workspace="v2")) == (
        409,
        "package_exists",
    )


def test_a_revision_proposed_for_deletion_may_be_the_latest(package_log: PackageLog) -> None:
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


def test_has_no_placeholder_revision(package_log: PackageLog) -> None:
    name = package_log.published()

    assert [row.key.id for row in package_log.store.range(REVISIONS.name, limit=10)] == [name]
    assert package_log.revision(name).number > 0


UNKNOWN = (400, "lifecycle_invalid_desired")


# ── history ───────────────────────────────────────────────────────────────────────────────────────


def test_keeps_the_trail_of_deleted_revisions(package_log: PackageLog) -> None:
    name = package_log.brought_to(DELETION_PROPOSED)
    package_log.delete(name, by=REVIEWER)

    assert [step.action for step in package_log.timeline(name)] == [
        *("Create", "Propose", "Approve", "Publish", "Propose-delete", "Delete")
    ]
    (tombstone,) = package_log.store.range("revision_tombstones", prefix=f"{name}/", limit=10)
    assert b'"deleted_by":"user_reviewer"' in tombstone.data


# ── changes that change nothing ───────────────────────────────────────────────────────────────────


def test_treats_an_absent_member_as_unchanged_and_an_empty_one_as_an_error(
    package_log: PackageLog,
) -> None:
    name = package_log.brought_to(PROPOSED)

    assert answer_of(package_log, update(package_log, name, lifecycle="")) == UNKNOWN
    package_log.update(name, labels={"a": "b"})
    assert package_log.revision(name).lifecycle == PROPOSED
    assert "lifecycle" not in ProposeDeletion.__struct_fields__


def test_appends_nothing_for_an_update_without_changes(package_log: PackageLog) -> None:
    name = package_log.create(files=files(a="1"), metadata=Metadata(labels={"a": "b"}))
    before = package_log.version(name)
    same = update(package_log, name, lifecycle="Draft", files=files(a="1"), labels={"a": "b"})

    assert package_log.run(same).receipt is None
    assert package_log.version(name) == before
    outcome = package_log.update(name, lifecycle="Draft", labels={"a": "c"})
    assert [type(fact).__name__ for fact in outcome.facts] == ["RevisionMetadataChanged"]


# ── approvals, automation, limits ─────────────────────────────────────────────────────────────────


def test_an_approval_never_cancels_a_deletion(package_log: PackageLog) -> None:
    name = package_log.brought_to(DELETION_PROPOSED)
    refusal = refusal_of(package_log, package_log.approve, name, AUTHOR)

    assert (status_of(refusal), refusal.code) == (422, "invalid_transition")
    assert package_log.revision(name).lifecycle == DELETION_PROPOSED


def test_an_approval_writes_one_fact_and_a_few_small_rows(package_log: PackageLog) -> None:
    many = tuple(File(f"f{number}", "0" * 64, 1_000) for number in range(2_000))
    small, large = package_log.create(package="s"), package_log.create(package="l", files=many)
    commits: list[Any] = []
    submit = package_log.control._submit
    package_log.control._submit = lambda commit: (commits.append(commit), submit(commit))[1]  # type: ignore[func-returns-value]
    for name in (small, large):
        package_log.propose(name)
        package_log.approve(name)

    costs = [SCHEMA.cost(commit) for commit in commits]
    assert costs[:2] == costs[2:], "whatever the content is"
    assert max(costs) <= 20 < COST_MAX
    sizes = [len(event.body) for event in package_log.log() if event.type == "RevisionCreated"]
    assert max(sizes) < 600


def test_deployment_repositories_protect_proposals_by_default(package_log: PackageLog) -> None:
    package_log.repository("prod", deployment=True)
    package_log.repository("open", deployment=True, protect_proposed=False)
    for repository, protected in (("blueprints", False), ("prod", True), ("open", False)):
        row = package_log.get(Key("repositories", repository), Repository)
        assert row is not None
        assert row.protect_proposed is protected
        name = package_log.create(repository=repository)
        package_log.propose(name)
        assert refusal_of(package_log, package_log.approve, name, AUTHOR).code == "self_approval"
        if protected:
            deletion = DeleteRevision(name=name, by=REVIEWER)
            assert answer_of(package_log, deletion) == (403, "proposal_protected")
            package_log.reject(name)
        package_log.delete(name)


def test_proposing_a_deletion_never_deletes(package_log: PackageLog) -> None:
    name = package_log.published()
    for _ in range(3):
        outcome = package_log.propose_deletion(name)
        assert [type(fact) for fact in outcome.facts] == [RevisionDeletionProposed]
        package_log.reject_deletion(name)

    assert package_log.revision(name).lifecycle == PUBLISHED


def test_restores_an_old_revision_as_a_copy(package_log: PackageLog) -> None:
    old = package_log.published("v1", files=files(a="1"))
    package_log.published("v2", task=Edit(old), files=files(a="2"))
    again = package_log.published("v3", task=Edit(old))

    assert package_log.revision(again).content == package_log.revision(old).content
    assert package_log.revision(again).number == 3
    assert package_log.revision(old).number == 1


def test_enforces_readiness_in_the_server(package_log: PackageLog) -> None:
    name = package_log.create(readiness_gates=("tested",))

    for door in (
        update(package_log, name, lifecycle="Proposed"),
        propose_revision.command(name=name, by=AUTHOR, expected_version=package_log.version(name)),
    ):
        assert answer_of(package_log, door) == (422, "not_ready")


def test_limits_automation(package_log: PackageLog) -> None:
    command = creation()
    positions = {
        package_log.control.execute(create_revision, command, key="same").position for _ in range(5)
    }

    assert len(positions) == 1
    assert package_log.package("blueprints/web").live == 1


def test_accepts_up_to_32_mib_in_10_000_files(package_log: PackageLog) -> None:
    limits = ContentLimits()
    assert (limits.revision_bytes_max, limits.revision_files_max) == (32 * 1024 * 1024, 10_000)
    whole = (File("a", "0" * 64, CONTENT_BYTES_MAX),)
    name = package_log.create(files=whole)
    assert package_log.revision(name).content.total_bytes == CONTENT_BYTES_MAX
    assert FileManifest.of({"logo": b"\0\xff\xfe"}).total_bytes == 3
    more = (*whole, File("b", "0" * 64, 1))
    assert answer_of(package_log, creation(workspace="v2", files=more)) == (413, "too_large")


@pytest.mark.parametrize("text", ["x' OR '1'='1", 'x"; DROP TABLE revisions; --', "x%", "x_", "\\"])
def test_never_interprets_a_value_as_part_of_a_query(package_log: PackageLog, text: str) -> None:
    name = package_log.create(metadata=Metadata(annotations={"note": text}))

    assert package_log.revision(name).metadata.annotations == {"note": text}
    assert answer_of(package_log, creation(package=text))[0] == 400
    assert package_log.store.range("revisions", index="by_package", prefix=text, limit=5) == ()
