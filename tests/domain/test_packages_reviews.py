"""Package revisions and people: versions, finalizers, owners, permissions, reviews."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, SLICE_OF, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of
from tidegate.domain.access.steps import STEPS
from tidegate.domain.packages import declarations as packages
from tidegate.domain.packages.approvals import RejectProposal
from tidegate.domain.packages.deletions import DeleteRevision, RejectDeletion
from tidegate.domain.packages.facts import Clone, Metadata, OwnerReference
from tidegate.domain.packages.history import ACTIONS
from tidegate.domain.packages.lifecycle import EDGES
from tidegate.domain.packages.metadata import REASON_BYTES_MAX
from tidegate.domain.packages.permissions import STEP_OF
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import UpdateRevision
from tidegate.kernel.replay import differences

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"


LONG = "x" * (REASON_BYTES_MAX + 1)
Act = Callable[[PackageLog], Any]


def on(command: type[Any], name: str = NAME, by: str = AUTHOR, **members: Any) -> Act:
    """Build the command with the revision's current version."""
    return lambda package_log: package_log.run(
        command(name=name, by=by, expected_version=package_log.version(name), **members)
    )


# ── versions, finalizers ──────────────────────────────────────────────────────────────────────────


def test_every_event_advances_the_one_version_of_metadata_and_content(
    package_log: PackageLog,
) -> None:
    name = package_log.create()
    pending = UpdateRevision(
        name=name, by=AUTHOR, labels={"a": "b"}, expected_version=package_log.version(name)
    )
    package_log.push(name, files(a="1"))
    assert answer_of(package_log, pending) == (409, "version_conflict")
    stale = DeleteRevision(name=name, by=AUTHOR, expected_version=pending.expected_version)
    assert answer_of(package_log, stale) == (409, "version_conflict")
    optional = {
        command
        for command in SLICE_OF
        if "expected_version" in command.__struct_fields__ and issubclass(command, DeleteRevision)
    }
    assert optional == {DeleteRevision}
    package_log.run(DeleteRevision(name=name, by=AUTHOR))


def test_sets_the_deletion_timestamp_once_and_never_removes_it(package_log: PackageLog) -> None:
    name = package_log.published()
    package_log.update(name, finalizers=("a", "b"))
    package_log.propose_deletion(name)
    package_log.delete(name)
    at = package_log.revision(name).deletion_timestamp
    assert package_log.delete(name).receipt is None
    assert package_log.revision(name).deletion_timestamp == at

    package_log.update(name, labels={"a": "b"}, annotations={"c": "d"})
    package_log.update(name, finalizers=("b",))
    for refused in (
        on(UpdateRevision, finalizers=("b", "c")),
        on(UpdateRevision, finalizers=("a", "b")),
        on(RejectDeletion, reason="keep it"),
        on(UpdateRevision, lifecycle="Published", reason="keep it"),
        on(UpdateRevision, owner_references=(OwnerReference("team", "edge"),)),
        on(UpdateRevision, files=files(a="1")),
    ):
        refusal = refusal_of(package_log, refused, package_log)
        assert (status_of(refusal), refusal.code) == (409, "terminating")


def test_deletes_with_the_last_finalizer_if_nothing_descends_from_it(
    package_log: PackageLog,
) -> None:
    name = package_log.published()
    package_log.update(name, finalizers=("hold",))
    package_log.propose_deletion(name)
    package_log.delete(name)
    links = package_log.links(name)
    assert links is not None

    outcome = package_log.update(name, finalizers=())

    assert [type(fact).__name__ for fact in outcome.facts][:2] == [
        "RevisionMetadataChanged",
        "RevisionDeleted",
    ]
    assert package_log.find(name) is None
    clone = creation(package="mine", tasks=(Clone(name),))
    assert answer_of(package_log, clone)[0] == 404
    assert differences(package_log.store, FOLDS) == []


def test_rechecks_references_with_the_last_finalizer(package_log: PackageLog) -> None:
    name = package_log.published()
    package_log.update(name, finalizers=("hold",))
    package_log.propose_deletion(name)
    package_log.create(package="mine", task=Clone(name))

    assert refusal_of(package_log, package_log.delete, name).code == "still_referenced"
    assert package_log.revision(name).deletion_timestamp is None


# ── owners, rights, who published ─────────────────────────────────────────────────────────────────


def test_deletes_nothing_on_behalf_of_an_owner(package_log: PackageLog) -> None:
    owner = OwnerReference("variant", "edge")
    names = [
        package_log.brought_to(
            state, f"in-{state.lower()}", metadata=Metadata(owner_references=(owner,))
        )
        for state in Lifecycle
    ]
    for name in names:
        package_log.update(name, owner_references=())

    assert all(package_log.find(name) is not None for name in names)
    assert OwnerReference.__struct_fields__ == ("kind", "id")


def test_names_a_permission_for_every_command(package_log: PackageLog) -> None:
    assert set(STEP_OF) == {item.command for item in packages.SLICES}
    words = "create edit set_condition propose withdraw approve reject propose_deletion"
    wanted = {f"revision.{word}" for word in f"{words} reject_deletion delete read".split()}
    assert wanted < STEPS.keys()
    assert {edge.permission for edge in EDGES} < wanted
    assert {step.name for step in STEP_OF.values()} < STEPS.keys()


def test_requires_a_second_person(package_log: PackageLog) -> None:
    package_log.repository("prod", deployment=True)
    for repository in ("blueprints", "prod"):
        name = package_log.create(repository=repository)
        package_log.propose(name, by=OPERATOR)
        for own in (OPERATOR, AUTHOR):
            assert refusal_of(package_log, package_log.approve, name, own).code == "self_approval"
        package_log.approve(name, by=REVIEWER)
        package_log.propose_deletion(name, by=OPERATOR)
    assert (
        refusal_of(package_log, package_log.delete, "prod.web.v1", OPERATOR).code == "self_deletion"
    )
    package_log.delete("prod.web.v1", REVIEWER)
    package_log.delete(NAME, OPERATOR)


def test_requires_a_reason_for_a_rejection(package_log: PackageLog) -> None:
    name = package_log.create()
    package_log.propose(name)
    for reason, status in (("", 400), (" \n", 400), (LONG, 413)):
        command = RejectProposal(
            name=name, by=REVIEWER, reason=reason, expected_version=package_log.version(name)
        )
        assert answer_of(package_log, command)[0] == status
    package_log.reject(name, reason="x" * REASON_BYTES_MAX)
    package_log.propose(name)
    package_log.approve(name, reason="looks good")
    package_log.propose_deletion(name)
    command_ = RejectDeletion(name=name, by=OPERATOR, expected_version=package_log.version(name))
    assert answer_of(package_log, command_) == (400, "reason_required")
    package_log.reject_deletion(name, reason="needed")
    reasons = {step.action: step.reason for step in package_log.timeline(name)}
    assert reasons["Approve"] == "looks good"
    assert reasons["Reject-deletion"] == "needed"
    assert reasons["Reject"] == "x" * REASON_BYTES_MAX


def test_takes_the_publisher_from_the_approver_and_the_time_from_the_injected_clock(
    package_log: PackageLog,
) -> None:
    name = package_log.create()
    package_log.propose(name)
    package_log.clock.advance(timedelta(hours=1))
    package_log.approve(name, by=REVIEWER)
    at = package_log.clock()
    package_log.clock.advance(timedelta(hours=1))
    package_log.propose_deletion(name)
    package_log.reject_deletion(name, by=AUTHOR)

    revision = package_log.revision(name)
    assert (revision.published_by, revision.published_at) == (REVIEWER, at)
    (rejected,) = (step for step in package_log.timeline(name) if step.action == "Reject-deletion")
    assert (rejected.by, rejected.at) == (AUTHOR, package_log.clock())


# ── flows ─────────────────────────────────────────────────────────────────────────────────────────


def test_appends_once_or_not_at_all(package_log: PackageLog) -> None:
    name = package_log.create()
    update = UpdateRevision(
        name=name,
        by=AUTHOR,
        files=files(a="2"),
        labels={"a": "b"},
        lifecycle="Published",
        expected_version=package_log.version(name),
    )
    before = package_log.revision(name)

    assert answer_of(package_log, update)[0] == 422
    assert package_log.revision(name) == before
    package_log.run(replace(update, lifecycle="Proposed"))
    positions = [event.at for event in package_log.log()[-3:]]
    assert len(set(positions)) == 1, "content, metadata and lifecycle in one commit"


def test_uses_the_words_of_the_audit_feed() -> None:
    words = {"Propose", "Reject", "Approve", "Propose-delete", "Reject-deletion", "Update"}
    assert words | {"Delete"} <= set(ACTIONS.values())


def test_names_revisions_of_automation_deterministically(package_log: PackageLog) -> None:
    command = creation(workspace="packagevariant-2")
    package_log.run(command)

    assert answer_of(package_log, replace(command, uid="another")) == (409, "already_exists")
