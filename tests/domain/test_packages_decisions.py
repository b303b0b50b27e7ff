"""What decisions about packages read and write: transitions, facts, rows, reviews."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, update
from tidegate.domain.content.differences import diff
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages import declarations as packages
from tidegate.domain.packages.approvals import ApproveRevision, approve_revision, propose_revision
from tidegate.domain.packages.deletions import DeleteRevision, delete_revision
from tidegate.domain.packages.facts import (
    FACTS,
    Clone,
    Condition,
    ConditionStatus,
    Edit,
    Metadata,
    RevisionConditionsChanged,
    RevisionContentReplaced,
    RevisionCreated,
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionStarted,
    RevisionMetadataChanged,
    RevisionProposed,
    RevisionPublished,
    Upgrade,
)
from tidegate.domain.packages.lifecycle import EDGES, LifecycleVerb
from tidegate.domain.packages.rows import links_key, package_key, revision_key
from tidegate.domain.packages.slices import create_revision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import SetConditions
from tidegate.kernel import codec
from tidegate.kernel.model import Key
from tidegate.kernel.replay import differences
from tidegate.kernel.tags import tag_fields

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"


# ── transitions, facts, rows ──────────────────────────────────────────────────────────────────────


def test_has_one_table_of_transitions() -> None:
    rows = [(e.old, e.new, e.verb, e.permission, e.needs_reason) for e in EDGES]
    assert rows == [
        (DRAFT, PROPOSED, "propose", "revision.propose", False),
        (PROPOSED, DRAFT, "withdraw", "revision.withdraw", False),
        (PROPOSED, DRAFT, "reject", "revision.reject", True),
        (PROPOSED, PUBLISHED, "approve", "revision.approve", False),
        (PUBLISHED, DELETION_PROPOSED, "propose_deletion", "revision.propose_deletion", False),
        (DELETION_PROPOSED, PUBLISHED, "reject_deletion", "revision.reject_deletion", True),
    ]
    assert len({edge.verb for edge in EDGES}) == len(LifecycleVerb)


@pytest.mark.parametrize(
    ("fact", "members", "tags"),
    [
        pytest.param(
            RevisionCreated,
            "name package uid task upstream content metadata",
            {"revision", "package"},
            id="RevisionCreated: uid, repo, package, workspace, task, upstream?",
        ),
        pytest.param(
            RevisionContentReplaced,
            "name uid before content",
            {"revision"},
            id="ResourcesReplaced: old/new digest, sizes",
        ),
        pytest.param(
            RevisionMetadataChanged,
            "name uid metadata",
            {"revision"},
            id="MetadataChanged / ConditionsChanged: new full maps",
        ),
        pytest.param(
            RevisionConditionsChanged,
            "name uid conditions",
            {"revision"},
            id="MetadataChanged / ConditionsChanged: new full maps",
        ),
        pytest.param(
            RevisionProposed,
            "name uid digest by reason",
            {"revision", "package"},
            id="Proposed / ProposalWithdrawn / ProposalRejected: digest, by",
        ),
        pytest.param(
            RevisionPublished,
            "name uid number digest by",
            {"revision", "package"},
            id="Published: revision, digest, by, at",
        ),
        pytest.param(
            RevisionDeletionProposed,
            "name uid by reason",
            {"revision", "package"},
            id="DeletionProposed / DeletionRejected: by, at, reason",
        ),
        pytest.param(
            RevisionDeletionStarted,
            "name uid by",
            {"revision", "package"},
            id="DeletionStarted: by, at",
        ),
        pytest.param(
            RevisionDeleted,
            "name uid by lifecycle number upstream",
            {"revision", "package"},
            id="Deleted: by, at, last lifecycle, revision",
        ),
    ],
)
def test_each_event_has_the_members_of_the_table(fact: Any, members: str, tags: set[str]) -> None:
    """The time is the commit's; uid and upstream are members, found by rows and not by tags."""
    assert set(members.split()) <= set(fact.__struct_fields__)
    assert {tag.key for tag in tag_fields(fact)} == tags
    assert fact in {item.struct for item in FACTS}


def keys(item: Any, command: Any) -> set[Key]:
    return set(item.rows(command))


def test_reads_exactly_the_rows_that_a_command_depends_on(package_log: PackageLog) -> None:
    repository = Key("repositories", "blueprints")
    base = "blueprints.base.v1"
    clone = creation(package="a/b/web", tasks=(Clone(base),))
    path = "blueprints/a/b/web"
    assert keys(create_revision, clone) == {
        repository,
        revision_key("blueprints.a.b.web.v1"),
        *map(package_key, ("blueprints/a", "blueprints/a/b", path)),
        revision_key(base),
    }
    edit = creation(workspace="v2", tasks=(Upgrade(base, "blueprints.base.v2", NAME),), files=())
    assert keys(create_revision, edit) == {
        repository,
        package_key("blueprints/web"),
        *map(revision_key, ("blueprints.web.v2", base, "blueprints.base.v2", NAME)),
    }
    step: dict[str, Any] = {"name": NAME, "by": AUTHOR, "expected_version": 7}
    assert keys(propose_revision, propose_revision.command(**step)) == {revision_key(NAME)}
    digest = FileManifest(()).digest
    assert keys(approve_revision, ApproveRevision(**step, digest=digest)) == {
        repository,
        revision_key(NAME),
        package_key("blueprints/web"),
    }
    assert keys(delete_revision, DeleteRevision(**step)) == {
        repository,
        revision_key(NAME),
        package_key("blueprints/web"),
        links_key(NAME),
    }
    assert propose_revision.expects is not None
    assert propose_revision.expects(propose_revision.command(**step)) == {revision_key(NAME): 7}


def test_changes_of_neighbours_cause_no_conflict(package_log: PackageLog) -> None:
    name = package_log.published()
    edit = update(package_log, name, labels={"a": "b"})
    package_log.published("v2", task=Edit(name))
    package_log.create(package="mine", task=Clone(name))

    package_log.run(edit)
    assert package_log.revision(name).metadata.labels == {"a": "b"}


# ── reviews ───────────────────────────────────────────────────────────────────────────────────────


def test_binds_an_approval_to_the_reviewed_content(package_log: PackageLog) -> None:
    old, new = FileManifest(files(a="1", b="1")), FileManifest(files(a="2", c="1"))
    assert [(item.path, item.what) for item in diff(old, new)] == [
        ("a", "changed"),
        ("b", "removed"),
        ("c", "added"),
    ]
    name = package_log.create(files=new.files)
    package_log.propose(name)
    approval = ApproveRevision(
        name=name, by=REVIEWER, digest=old.digest, expected_version=package_log.version(name)
    )
    assert answer_of(package_log, approval) == (409, "digest_mismatch")


# ── edges of the rules ────────────────────────────────────────────────────────────────────────────


def test_refuses_transitions_while_a_revision_is_being_deleted(package_log: PackageLog) -> None:
    name = package_log.create(metadata=Metadata(finalizers=("hold",)))
    illegal = update(package_log, name, lifecycle="DeletionProposed")
    assert answer_of(package_log, illegal) == (422, "invalid_transition")
    package_log.delete(name)
    assert package_log.delete(name).receipt is None
    for members in ({"finalizers": ("hold", "more")}, {"lifecycle": "Proposed"}):
        assert answer_of(package_log, update(package_log, name, **members)) == (409, "terminating")
    assert answer_of(package_log, illegal) == (409, "version_conflict")


def test_requires_as_many_other_people_as_the_quorum(package_log: PackageLog) -> None:
    package_log.repository("strict", quorum=2)
    name = package_log.create(repository="strict")
    package_log.propose(name)
    first = package_log.approve(name, by=REVIEWER)
    second = package_log.approve(name, by=OPERATOR)

    assert [type(fact).__name__ for fact in first.facts] == ["RevisionApproved"]
    assert [type(fact).__name__ for fact in second.facts] == [
        "RevisionApproved",
        "RevisionPublished",
    ]


def test_keeps_digests_and_history_of_deleted_revisions_for_ever(package_log: PackageLog) -> None:
    name = package_log.create(files=files(a="1"))
    digest = package_log.revision(name).content.digest
    package_log.delete(name)
    package_log.clock.advance(timedelta(days=10_000))
    package_log.create()

    (tombstone,) = package_log.store.range("revision_tombstones", prefix=f"{name}/", limit=5)
    assert digest.encode() in tombstone.data
    assert package_log.timeline(name)[0].digest == digest


def test_accepts_only_published_revisions_as_a_source(package_log: PackageLog) -> None:
    for state in Lifecycle:
        source = package_log.brought_to(state, f"in-{state.lower()}")
        clone = creation(package=f"of-{state.lower()}", tasks=(Clone(source),))
        if state in (PUBLISHED, DELETION_PROPOSED):
            package_log.run(clone)
        else:
            assert answer_of(package_log, clone) == (422, "source_not_published")


def test_has_one_flat_tenant(package_log: PackageLog) -> None:
    package_log.create()

    assert answer_of(package_log, creation()) == (409, "already_exists")
    assert "tenant" not in {tag.key for item in packages.FACTS for tag in tag_fields(item.struct)}


def test_uses_the_injected_clock_only(package_log: PackageLog) -> None:
    name = package_log.create()
    package_log.clock.advance(timedelta(hours=-2))
    package_log.propose(name)

    created, proposed = package_log.timeline(name)
    assert proposed.at == package_log.clock()
    assert proposed.at < created.at
    assert proposed.position > created.position


def test_anyone_with_permission_may_edit_and_every_editor_is_recorded(
    package_log: PackageLog,
) -> None:
    name = package_log.create(by=AUTHOR)
    package_log.push(name, files(a="1"), by=OPERATOR)

    assert package_log.revision(name).editors == (AUTHOR, OPERATOR)
    assert [step.by for step in package_log.timeline(name)] == [AUTHOR, OPERATOR]


def test_the_same_content_may_be_proposed_again_and_never_expires(
    package_log: PackageLog,
) -> None:
    name = package_log.create(files=files(a="1"))
    package_log.propose(name)
    package_log.reject(name)
    package_log.propose(name)
    package_log.clock.advance(timedelta(days=10_000))
    package_log.approve(name)

    assert package_log.revision(name).number == 1
    assert differences(package_log.store, FOLDS) == []


def test_conditions_of_other_content_become_unknown(package_log: PackageLog) -> None:
    name = package_log.create(files=files(a="1"))
    digest = package_log.revision(name).content.digest
    found = (Condition("tested", ConditionStatus.TRUE),)
    package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    package_log.push(name, files(a="2"))
    assert package_log.revision(name).conditions[0].status is ConditionStatus.UNKNOWN
    package_log.propose(name)
    digest = package_log.revision(name).content.digest
    package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    package_log.approve(name)
    late = SetConditions(
        name=name,
        by="user_ci",
        digest=digest,
        conditions=(Condition("tested", ConditionStatus.FALSE),),
        expected_version=package_log.version(name),
    )
    assert answer_of(package_log, late) == (422, "immutable")
    assert codec.encode(package_log.revision(name))
