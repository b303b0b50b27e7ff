"""Packages under load and automation: updates, approvals, numbers, limits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.package_log import AUTHOR, REVIEWER, SCHEMA, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of, update
from tidegate.domain.content.entries import CONTENT_BYTES_MAX, File
from tidegate.domain.content.manifests import FILES_MAX, FileManifest
from tidegate.domain.packages.approvals import propose_revision
from tidegate.domain.packages.deletions import DeleteRevision
from tidegate.domain.packages.facts import (
    Edit,
    Metadata,
    RevisionDeletionProposed,
    RevisionPublished,
)
from tidegate.domain.packages.rows import Repository
from tidegate.domain.packages.slices import create_revision
from tidegate.domain.packages.states import Lifecycle
from tidegate.kernel.model import COST_MAX, Key

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


@pytest.fixture
def package_log() -> PackageLog:
    package_log = PackageLog()
    package_log.repository()
    return package_log


# ── what we do better ─────────────────────────────────────────────────────────────────────────────


def test_never_cancels_a_deletion_by_an_approval(package_log: PackageLog) -> None:
    name = package_log.brought_to(DELETION_PROPOSED)
    refusal = refusal_of(package_log, package_log.approve, name, AUTHOR)

    assert (status_of(refusal), refusal.code) == (422, "invalid_transition")
    assert package_log.revision(name).lifecycle == DELETION_PROPOSED


def test_loses_no_update(package_log: PackageLog) -> None:
    name = package_log.create()
    one, two = (update(package_log, name, labels={label: "1"}) for label in ("a", "b"))
    package_log.run(one)

    assert answer_of(package_log, two) == (409, "version_conflict")
    assert package_log.revision(name).metadata.labels == {"a": "1"}


def test_approves_by_an_append_and_a_few_small_rows(package_log: PackageLog) -> None:
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


def test_protects_proposals_by_default_where_things_are_deployed(package_log: PackageLog) -> None:
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


def test_restores_an_old_revision_by_a_copy(package_log: PackageLog) -> None:
    old = package_log.published("v1", files=files(a="1"))
    package_log.published("v2", task=Edit(old), files=files(a="2"))
    again = package_log.published("v3", task=Edit(old))

    assert package_log.revision(again).content == package_log.revision(old).content
    assert package_log.revision(again).number == 3
    assert package_log.revision(old).number == 1


def test_numbers_by_one_decision(package_log: PackageLog) -> None:
    first = package_log.published("v1")
    names = [first, *(package_log.published(f"v{n}", task=Edit(first)) for n in range(2, 5))]
    for name in names[1:]:
        package_log.propose_deletion(name)
        package_log.delete(name)
    last = package_log.published("v9", task=Edit(first))

    facts = [SCHEMA.vocabulary.value(event) for event in package_log.log()]
    published = [fact for fact in facts if isinstance(fact, RevisionPublished)]
    assert [fact.number for fact in published] == [1, 2, 3, 4, 5]
    assert package_log.revision(last).number == 5


def test_enforces_readiness_in_the_server(package_log: PackageLog) -> None:
    name = package_log.create(readiness_gates=("tested",))

    for door in (
        update(package_log, name, lifecycle="Proposed"),
        propose_revision.command(name=name, by=AUTHOR, expected_version=package_log.version(name)),
    ):
        assert answer_of(package_log, door) == (422, "not_ready")


def test_holds_automation_back(package_log: PackageLog) -> None:
    command = creation()
    positions = {
        package_log.control.execute(create_revision, command, key="same").position for _ in range(5)
    }

    assert len(positions) == 1
    assert package_log.package("blueprints/web").live == 1


def test_takes_bytes_up_to_32_mib_in_10_000_files(package_log: PackageLog) -> None:
    assert (CONTENT_BYTES_MAX, FILES_MAX) == (32 * 1024 * 1024, 10_000)
    whole = (File("a", "0" * 64, CONTENT_BYTES_MAX),)
    name = package_log.create(files=whole)
    assert package_log.revision(name).content.total_bytes == CONTENT_BYTES_MAX
    assert FileManifest.of({"logo": b"\0\xff\xfe"}).total_bytes == 3
    more = (*whole, File("b", "0" * 64, 1))
    assert answer_of(package_log, creation(workspace="v2", files=more)) == (413, "too_large")


@pytest.mark.parametrize("text", ["x' OR '1'='1", 'x"; DROP TABLE revisions; --', "x%", "x_", "\\"])
def test_takes_no_text_for_a_part_of_a_query(package_log: PackageLog, text: str) -> None:
    name = package_log.create(metadata=Metadata(annotations={"note": text}))

    assert package_log.revision(name).metadata.annotations == {"note": text}
    assert answer_of(package_log, creation(package=text))[0] == 400
    assert package_log.store.range("revisions", index="by_package", prefix=text, limit=5) == ()
