"""packages.md §3.4–§4, ruling by ruling: versions, finalizers, owners, rights, flows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, SLICE_OF, Depot, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages import declarations as packages
from tidegate.domain.packages.approvals import (
    RejectProposal,
)
from tidegate.domain.packages.deletions import DeleteRevision, RejectDeletion
from tidegate.domain.packages.facts import (
    Clone,
    Metadata,
    OwnerReference,
)
from tidegate.domain.packages.history import ACTIONS
from tidegate.domain.packages.lifecycle import EDGES
from tidegate.domain.packages.metadata import REASON_BYTES_MAX
from tidegate.domain.packages.permissions import CARRY_OUT_DELETION, PERMISSIONS, READ, RIGHTS
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import UpdateRevision
from tidegate.kernel.replay import differences

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"
DIGEST = FileManifest(()).digest


@pytest.fixture
def depot() -> Depot:
    depot = Depot()
    depot.repository()
    return depot


LONG = "x" * (REASON_BYTES_MAX + 1)
Act = Callable[[Depot], Any]


def on(command: type[Any], name: str = NAME, by: str = AUTHOR, **members: Any) -> Act:
    """The command at the version where the revision stands."""
    return lambda depot: depot.run(
        command(name=name, by=by, expected_version=depot.version(name), **members)
    )


# ── §3.4, §3.5 versions, finalizers ───────────────────────────────────────────────────────────────


def test_changes_the_one_version_of_metadata_and_content_with_every_event(depot: Depot) -> None:
    """packages.md §3.4 #1: "every event changes the version"
    packages.md §3.4 #2: "`expected_version` optional on delete, mandatory elsewhere"
    packages.md §3.4 #3: "PackageRevision and its resources share **one** version (as in Porch), so
    a content push invalidates a pending metadata edit".
    """
    name = depot.create()
    pending = UpdateRevision(
        name=name, by=AUTHOR, labels={"a": "b"}, expected_version=depot.version(name)
    )
    depot.push(name, files(a="1"))
    assert answer_of(depot, pending) == (409, "version_conflict")
    stale = DeleteRevision(name=name, by=AUTHOR, expected_version=pending.expected_version)
    assert answer_of(depot, stale) == (409, "version_conflict")
    optional = {
        command
        for command in SLICE_OF
        if "expected_version" in command.__struct_fields__ and issubclass(command, DeleteRevision)
    }
    assert optional == {DeleteRevision}
    depot.run(DeleteRevision(name=name, by=AUTHOR))


def test_sets_the_deletion_timestamp_once_and_never_takes_it_back(depot: Depot) -> None:
    """packages.md §3.5 #1: "`DeletionStarted` event sets deletion_timestamp once (second delete =
    no-op success, timestamp unchanged)"
    packages.md §3.5 #2: "While terminating only *removing* finalizers, editing labels/annotations,
    and reading are allowed; new finalizers 409 `terminating`; lifecycle verbs 409"
    packages.md §3.5 #3: "There is no un-delete: to keep a revision, reject the deletion *before*
    delete".
    """
    name = depot.published()
    depot.update(name, finalizers=("a", "b"))
    depot.propose_deletion(name)
    depot.delete(name)
    at = depot.revision(name).deletion_timestamp
    assert depot.delete(name).receipt is None
    assert depot.revision(name).deletion_timestamp == at

    depot.update(name, labels={"a": "b"}, annotations={"c": "d"})
    depot.update(name, finalizers=("b",))
    for refused in (
        on(UpdateRevision, finalizers=("b", "c")),
        on(UpdateRevision, finalizers=("a", "b")),
        on(RejectDeletion, reason="keep it"),
        on(UpdateRevision, lifecycle="Published", reason="keep it"),
        on(UpdateRevision, owner_references=(OwnerReference("team", "edge"),)),
        on(UpdateRevision, files=files(a="1")),
    ):
        refusal = refusal_of(depot, refused, depot)
        assert (status_of(refusal), refusal.code) == (409, "terminating")


def test_deletes_with_the_last_finalizer_if_nothing_descends_from_it(depot: Depot) -> None:
    """packages.md §3.5 #4: "Removing the last finalizer appends MetadataChanged+Deleted in one
    transaction, re-checking references in the same decision".
    """
    name = depot.published()
    depot.update(name, finalizers=("hold",))
    depot.propose_deletion(name)
    depot.delete(name)
    links = depot.links(name)
    assert links is not None

    outcome = depot.update(name, finalizers=())

    assert [type(fact).__name__ for fact in outcome.facts][:2] == [
        "RevisionMetadataChanged",
        "RevisionDeleted",
    ]
    assert depot.find(name) is None
    clone = creation(package="mine", tasks=(Clone(name),))
    assert answer_of(depot, clone)[0] == 404
    assert differences(depot.store, FOLDS) == []


def test_rechecks_references_with_the_last_finalizer(depot: Depot) -> None:
    """packages.md §3.5 #4, the other half: what descends from it keeps it, also at the end."""
    name = depot.published()
    depot.update(name, finalizers=("hold",))
    depot.propose_deletion(name)
    depot.create(package="mine", task=Clone(name))

    assert refusal_of(depot, depot.delete, name).code == "still_referenced"
    assert depot.revision(name).deletion_timestamp is None


# ── §3.6, §3.7, §3.8 owners, rights, who published ────────────────────────────────────────────────


def test_deletes_nothing_on_behalf_of_an_owner(depot: Depot) -> None:
    """packages.md §3.6 #1: "`owners[]` = {kind,id}; informational plus a filter"
    packages.md §3.6 #2: "automatic deletion only for Draft/Proposed, by an explicit reaper
    process, never for published ones": nothing goes by itself.
    """
    owner = OwnerReference("variant", "edge")
    names = [
        depot.brought_to(state, f"in-{state.lower()}", metadata=Metadata(owner_references=(owner,)))
        for state in Lifecycle
    ]
    for name in names:
        depot.update(name, owner_references=())

    assert all(depot.find(name) is not None for name in names)
    assert OwnerReference.__struct_fields__ == ("kind", "id")


def test_names_a_permission_for_every_command(depot: Depot) -> None:
    """packages.md §3.7 #1: "`revision.create, .edit, .set_condition, .propose, .withdraw,
    .approve, .reject, .propose_deletion, .reject_deletion, .delete, .read`".
    """
    assert set(PERMISSIONS) == {item.command for item in packages.SLICES}
    words = "create edit set_condition propose withdraw approve reject propose_deletion"
    wanted = {f"revision.{word}" for word in f"{words} reject_deletion delete read".split()}
    assert {*PERMISSIONS.values(), READ} - {"repository.administer"} == wanted
    assert {edge.permission for edge in EDGES} < wanted
    assert set(RIGHTS) == {*PERMISSIONS.values(), READ, CARRY_OUT_DELETION}


def test_wants_four_eyes(depot: Depot) -> None:
    """packages.md §3.7 #2: "default policy forbids approver == last proposer"
    packages.md §3.7 #3: "and deleter == deletion proposer for repositories marked `deployment`".
    """
    depot.repository("prod", deployment=True)
    for repository in ("blueprints", "prod"):
        name = depot.create(repository=repository)
        depot.propose(name, by=OPERATOR)
        for own in (OPERATOR, AUTHOR):
            assert refusal_of(depot, depot.approve, name, own).code == "self_approval"
        depot.approve(name, by=REVIEWER)
        depot.propose_deletion(name, by=OPERATOR)
    assert refusal_of(depot, depot.delete, "prod.web.v1", OPERATOR).code == "self_deletion"
    depot.delete("prod.web.v1", REVIEWER)
    depot.delete(NAME, OPERATOR)


def test_demands_reasons_where_something_is_turned_down(depot: Depot) -> None:
    """packages.md §3.7 #4: "reject and reject-deletion take a mandatory reason ≤ 1 KiB; approve
    takes an optional one"; packages.md §6 #19: "no reason on rejection, no history after delete" |
    "reasons, tombstones"; packages.md §9 #5: "mandatory, stored".
    """
    name = depot.create()
    depot.propose(name)
    for reason, status in (("", 400), (" \n", 400), (LONG, 413)):
        command = RejectProposal(
            name=name, by=REVIEWER, reason=reason, expected_version=depot.version(name)
        )
        assert answer_of(depot, command)[0] == status
    depot.reject(name, reason="x" * REASON_BYTES_MAX)
    depot.propose(name)
    depot.approve(name, reason="looks good")
    depot.propose_deletion(name)
    command_ = RejectDeletion(name=name, by=OPERATOR, expected_version=depot.version(name))
    assert answer_of(depot, command_) == (400, "reason_required")
    depot.reject_deletion(name, reason="needed")
    reasons = {step.action: step.reason for step in depot.timeline(name)}
    assert reasons["Approve"] == "looks good"
    assert reasons["Reject-deletion"] == "needed"
    assert reasons["Reject"] == "x" * REASON_BYTES_MAX


def test_takes_who_published_from_the_approver_and_the_injected_clock(depot: Depot) -> None:
    """packages.md §3.8 #1: "taken from the authenticated principal and the injected clock in the
    `Published` event; immutable; a later deletion rejection has its own fields".
    """
    name = depot.create()
    depot.propose(name)
    depot.clock.advance(timedelta(hours=1))
    depot.approve(name, by=REVIEWER)
    at = depot.clock()
    depot.clock.advance(timedelta(hours=1))
    depot.propose_deletion(name)
    depot.reject_deletion(name, by=AUTHOR)

    revision = depot.revision(name)
    assert (revision.published_by, revision.published_at) == (REVIEWER, at)
    (rejected,) = (step for step in depot.timeline(name) if step.action == "Reject-deletion")
    assert (rejected.by, rejected.at) == (AUTHOR, depot.clock())


# ── §4 flows ──────────────────────────────────────────────────────────────────────────────────────


def test_appends_once_or_not_at_all(depot: Depot) -> None:
    """packages.md §4.1 #1: "Write blobs first (content addressed, invisible), then one conditional
    append. Failure before the append = nothing happened".
    """
    name = depot.create()
    update = UpdateRevision(
        name=name,
        by=AUTHOR,
        files=files(a="2"),
        labels={"a": "b"},
        lifecycle="Published",
        expected_version=depot.version(name),
    )
    before = depot.revision(name)

    assert answer_of(depot, update)[0] == 422
    assert depot.revision(name) == before
    depot.run(replace(update, lifecycle="Proposed"))
    positions = [event.at for event in depot.log()[-3:]]
    assert len(set(positions)) == 1, "content, metadata and lifecycle in one commit"


def test_uses_the_words_of_the_audit_feed() -> None:
    """packages.md §4.3 #3: "action name (`Propose, Reject, Approve, Propose-delete,
    Reject-deletion, Update, Delete` – Porch logs the same words)"; packages.md §8.5 #3: "Keep the
    action words Propose, Reject, Approve, Propose-delete, Reject-deletion in the audit feed".
    """
    words = {"Propose", "Reject", "Approve", "Propose-delete", "Reject-deletion", "Update"}
    assert words | {"Delete"} <= set(ACTIONS.values())


def test_names_what_automation_makes_deterministically(depot: Depot) -> None:
    """packages.md §4.5 #2: "deterministic names for automation": the name follows from repository,
    package and workspace, so that a second try meets the first.
    """
    command = creation(workspace="packagevariant-2")
    depot.run(command)

    assert answer_of(depot, replace(command, uid="another")) == (409, "already_exists")


def test_lets_no_package_lie_inside_another(depot: Depot) -> None:
    """packages.md §4.6 #1: "out of scope; keep the overlap rule"."""
    depot.create(package="a/b")
    for package in ("a", "a/b/c"):
        assert answer_of(depot, creation(package=package)) == (409, "path_overlap")
