"""Package revisions on every engine: the rules of docs/design/packages.md, one by one.

Every test ends with a replay of the log, which must give exactly the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from msgspec import Struct, json
from msgspec.structs import replace

from tests.domain.package_log import (
    AUTHOR,
    OPERATOR,
    REVIEWER,
    T0,
    PackageLog,
    approvers,
    files,
)
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import find_latest, list_dependents, list_lineage
from tidegate.domain.content.differences import diff
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.documents import to_document
from tidegate.domain.packages.facts import (
    Clone,
    Condition,
    ConditionStatus,
    Edit,
    Init,
    OwnerReference,
    RevisionContentReplaced,
    RevisionMetadataChanged,
    RevisionProposed,
    Strategy,
    Task,
    Upgrade,
)
from tidegate.domain.packages.lifecycle import (
    EDGES,
    MUTABILITY,
    LifecycleVerb,
    Operation,
    next_states,
)
from tidegate.domain.packages.refusals import (
    AlreadyExists,
    DeletionNotProposed,
    DigestMismatch,
    Immutable,
    LifecycleInvalidCreate,
    LifecycleInvalidDesired,
    LifecycleInvalidOriginal,
    LifecycleUnsupported,
    NotDraft,
    NotReady,
    OriginFixed,
    RevisionNotFound,
    SelfApproval,
    SourceNotPublished,
    StillReferenced,
    Terminating,
    TransitionRefused,
)
from tidegate.domain.packages.rows import (
    REVISION_TOMBSTONES,
    REVISIONS,
    Tombstone,
    revision_key,
    tombstone_id,
)
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.states import PUBLISHED_STATES, Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, SetConditions, UpdateRevision
from tidegate.errors import StaleVersion, TidegateError, VersionRequired
from tidegate.kernel import codec
from tidegate.kernel.collections import entry
from tidegate.kernel.model import Key, Record

pytestmark = pytest.mark.in_turn

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


def refused(package_log: PackageLog, error: type[TidegateError], command: Struct) -> TidegateError:
    """Run the command, and check that it is refused in this way and that nothing is written."""
    before = len(package_log.log())

    with pytest.raises(error) as refusal:
        package_log.run(command)

    assert type(refusal.value) is error
    assert len(package_log.log()) == before
    return refusal.value


def on(
    package_log: PackageLog, command: type[Any], name: str, by: str = AUTHOR, **members: Any
) -> Any:
    """Build the command with the revision's current version."""
    return command(name=name, by=by, expected_version=package_log.version(name), **members)


# ── states and transitions ────────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-1")
def test_has_four_states_of_which_two_count_as_published(package_log: PackageLog) -> None:
    """“A package revision is considered published if its lifecycle is either Published or
    DeletionProposed.”
    """
    assert [str(state) for state in Lifecycle] == [
        "Draft",
        "Proposed",
        "Published",
        "DeletionProposed",
    ]
    for number, state in enumerate(Lifecycle):
        name = package_log.brought_to(state, f"v{number}", package=f"p{number}")
        copy = CreateRevision(
            repository="blueprints",
            package=f"p{number}",
            workspace="copy",
            uid="copy",
            by=AUTHOR,
            tasks=(Edit(name),),
        )

        assert package_log.revision(name).lifecycle == state
        if state in PUBLISHED_STATES:
            package_log.run(copy)
        else:
            refused(package_log, SourceNotPublished, copy)


DRAWN = {
    (DRAFT, PROPOSED),
    (PROPOSED, DRAFT),
    (PROPOSED, PUBLISHED),
    (PUBLISHED, DELETION_PROPOSED),
    (DELETION_PROPOSED, PUBLISHED),
}


@pytest.mark.req("LC-2", "LC-13")
def test_an_update_follows_the_transitions_of_the_diagram_and_no_others(
    package_log: PackageLog,
) -> None:
    """“Published → Draft (cannot unpublish)”; only approval leads from Proposed to Published."""
    for number, (old, new) in enumerate(product(Lifecycle, Lifecycle)):
        name = package_log.brought_to(old, f"w{number}")
        command = on(package_log, UpdateRevision, name, lifecycle=new, reason="so")
        version = package_log.version(name)

        if old is new:
            assert package_log.run(command).receipt is None
            assert package_log.version(name) == version
        elif (old, new) in DRAWN and (old, new) != (PROPOSED, PUBLISHED):
            package_log.run(command)
            assert package_log.revision(name).lifecycle == new
        else:
            refusal = refused(package_log, TransitionRefused, command)
            assert refusal.code == "invalid_transition"
            assert (refusal.facts["from"], refusal.facts["to"]) == (old, new)
            listed = str(refusal.facts["allowed"]).split(", ")
            assert set(listed) == {to for frm, to in DRAWN if frm is old} - {new}


VERBS: dict[LifecycleVerb, type[Any]] = {
    LifecycleVerb.PROPOSE: ProposeRevision,
    LifecycleVerb.WITHDRAW: WithdrawProposal,
    LifecycleVerb.REJECT: RejectProposal,
    LifecycleVerb.APPROVE: ApproveRevision,
    LifecycleVerb.PROPOSE_DELETION: ProposeDeletion,
    LifecycleVerb.REJECT_DELETION: RejectDeletion,
}


@pytest.mark.req("LC-2")
def test_accepts_each_verb_in_its_own_state_only(package_log: PackageLog) -> None:
    """Anything else is 422 with from, to and allowed."""
    assert set(VERBS) == set(LifecycleVerb)
    assert {(edge.old, edge.new) for edge in EDGES} == DRAWN
    for number, (state, edge) in enumerate(product(Lifecycle, EDGES)):
        name = package_log.brought_to(state, f"w{number}")
        members: dict[str, Any] = {"reason": "because"}
        if edge.verb is LifecycleVerb.APPROVE:
            members["digest"] = package_log.revision(name).content.digest
        by = REVIEWER if edge.verb is LifecycleVerb.APPROVE else AUTHOR
        command = on(package_log, VERBS[edge.verb], name, by, **members)

        if state is edge.old:
            package_log.run(command)
            assert package_log.revision(name).lifecycle == edge.new
        else:
            refusal = refused(package_log, TransitionRefused, command)
            assert refusal.facts == {
                "from": state,
                "to": edge.new,
                "allowed": ", ".join(next_states(state)),
            }


@pytest.mark.req("LC-3")
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("Published", LifecycleInvalidCreate, "with lifecycle value 'Final'"),
        ("DeletionProposed", LifecycleInvalidCreate, "with lifecycle value 'Final'"),
        ("Proposed", LifecycleInvalidCreate, "with lifecycle value 'Proposed'"),
        ("published", LifecycleUnsupported, "unsupported lifecycle value: published"),
        ("Final", LifecycleUnsupported, "unsupported lifecycle value: Final"),
    ],
)
def test_creates_drafts_only(
    package_log: PackageLog, value: str, error: type[TidegateError], text: str
) -> None:
    """“cannot create a package revision with lifecycle value 'Final'”"""
    command = CreateRevision(
        repository="blueprints", package="web", workspace="v1", uid="u", by=AUTHOR, lifecycle=value
    )

    refusal = refused(package_log, error, command)

    if error is LifecycleInvalidCreate:
        text = f"cannot create a package revision {text}"
    assert refusal.detail == text


@pytest.mark.req("LC-3")
def test_creates_a_draft_if_the_lifecycle_is_empty_or_draft(package_log: PackageLog) -> None:
    """“Empty lifecycle: Defaults to Draft”"""
    for number, value in enumerate(("", "Draft")):
        name = package_log.create("v1", f"p{number}", lifecycle=value)
        assert package_log.revision(name).lifecycle == DRAFT


@pytest.mark.req("LC-11")
@pytest.mark.parametrize("value", ["", "draft", "Deleted"])
def test_names_a_desired_lifecycle_that_does_not_exist(package_log: PackageLog, value: str) -> None:
    """“invalid desired lifecycle value: {value}”"""
    name = package_log.create()

    refusal = refused(
        package_log, LifecycleInvalidDesired, on(package_log, UpdateRevision, name, lifecycle=value)
    )

    assert refusal.detail == f"invalid desired lifecycle value: {value}"


@pytest.mark.req("LC-11")
def test_reports_a_damaged_lifecycle_and_decides_nothing_on_it(package_log: PackageLog) -> None:
    """“invalid original lifecycle value: {value}”"""
    name = package_log.create()
    (sound,) = package_log.store.get(revision_key(name))
    assert sound is not None
    damaged = codec.encode(replace(package_log.revision(name), lifecycle="Lost"))
    package_log.store.restore(
        REVISIONS.name, [Record(sound.key, sound.version, sound.born, damaged)]
    )

    for command in (UpdateRevision, ProposeRevision, DeleteRevision):
        refusal = refused(package_log, LifecycleInvalidOriginal, on(package_log, command, name))
        assert refusal.detail == "invalid original lifecycle value: Lost"

    package_log.store.restore(REVISIONS.name, [sound])


# ── what may change when ──────────────────────────────────────────────────────────────────────────


def attempt(package_log: PackageLog, operation: Operation, name: str, state: Lifecycle) -> Struct:
    """Return a command that changes something of this kind."""
    row = package_log.revision(name)
    match operation:
        case Operation.RESOURCES:
            return on(package_log, ReplaceResources, name, files=files(new="1"))
        case Operation.TASKS:
            tasks: tuple[Task, ...] = (*row.tasks, Edit(f"blueprints.{SHELF}.v1"))
            return on(package_log, UpdateRevision, name, tasks=tasks, files=())
        case Operation.GATES:
            return on(package_log, UpdateRevision, name, readiness_gates=("tested",))
        case Operation.CONDITIONS:
            found = (Condition("tested", ConditionStatus.TRUE),)
            return on(package_log, SetConditions, name, digest=row.content.digest, conditions=found)
        case Operation.METADATA:
            return on(package_log, UpdateRevision, name, labels={"team": "a"})
        case Operation.LIFECYCLE:
            by_update = [edge for edge in EDGES if edge.old is state and edge.by_update]
            return on(package_log, UpdateRevision, name, lifecycle=by_update[0].new, reason="so")
        case Operation.DELETE:
            return on(package_log, DeleteRevision, name)


SHELF = "web"
REFUSALS: dict[Operation, type[TidegateError]] = {
    Operation.RESOURCES: NotDraft,
    Operation.TASKS: Immutable,
    Operation.GATES: Immutable,
    Operation.CONDITIONS: Immutable,
    Operation.DELETE: DeletionNotProposed,
}


@pytest.mark.req("LC-12", "LC-4", "LC-5")
def test_allows_exactly_the_changes_of_the_matrix(package_log: PackageLog) -> None:
    """“Published: Immutable content - no task or resource modifications allowed”"""
    expected = {
        Operation.TASKS: "Draft",
        Operation.RESOURCES: "Draft",
        Operation.GATES: "Draft",
        Operation.CONDITIONS: "Draft Proposed",
        Operation.METADATA: "Draft Proposed Published DeletionProposed",
        Operation.LIFECYCLE: "Draft Proposed Published DeletionProposed",
        Operation.DELETE: "Draft Proposed DeletionProposed",
    }
    package_log.published("v1", SHELF)
    for number, (operation, state) in enumerate(product(Operation, Lifecycle)):
        name = package_log.brought_to(state, f"w{number}", task=Edit(f"blueprints.{SHELF}.v1"))
        command = attempt(package_log, operation, name, state)

        assert MUTABILITY[operation, state] == (state in expected[operation].split())
        if MUTABILITY[operation, state]:
            assert package_log.run(command).facts
        else:
            refusal = refused(package_log, REFUSALS[operation], command)
            if operation is not Operation.DELETE:
                assert refusal.detail == (
                    f"cannot update a package revision with lifecycle value {state}; "
                    "package must be Draft"
                )


@pytest.mark.req("LC-4")
def test_never_changes_the_first_task_and_adds_others_in_draft(package_log: PackageLog) -> None:
    """The first task is the origin and never changes."""
    first = package_log.published(files=files(a="1"))
    name = package_log.create("v2", task=Edit(first))
    origin = package_log.revision(name).tasks

    for tasks in ((), (Init("another"),), (Init("another"), *origin), (*origin, Clone(first))):
        refused(package_log, OriginFixed, on(package_log, UpdateRevision, name, tasks=tasks))
    package_log.update(name, tasks=(*origin, Edit(first)), files=files(a="2"))

    assert package_log.revision(name).tasks == (*origin, Edit(first))
    assert package_log.update(name, tasks=(*origin, Edit(first))).receipt is None


@pytest.mark.req("LC-5")
def test_changes_metadata_in_every_state_without_touching_anything_else(
    package_log: PackageLog,
) -> None:
    """“Only metadata and lifecycle can be updated”"""
    for number, state in enumerate(Lifecycle):
        name = package_log.brought_to(state, f"w{number}")
        before = package_log.revision(name)

        package_log.update(
            name,
            labels={"team": "payments", "example.org/tier": "1"},
            annotations={"note": "any text at all: ü"},
            finalizers=("example.org/hold",),
            owner_references=(OwnerReference("variant", "var-1"),),
        )

        after = package_log.revision(name)
        assert after.metadata.labels == {"team": "payments", "example.org/tier": "1"}
        assert after.metadata.annotations == {"note": "any text at all: ü"}
        assert after.metadata.finalizers == ("example.org/hold",)
        assert after.metadata.owner_references == (OwnerReference("variant", "var-1"),)
        assert replace(after, metadata=before.metadata) == before


@pytest.mark.req("LC-13")
def test_changes_content_metadata_and_lifecycle_of_a_draft_in_one_commit(
    package_log: PackageLog,
) -> None:
    """One update of a Draft may change content, metadata and lifecycle together."""
    name = package_log.create()

    outcome = package_log.update(
        name, files=files(a="1"), labels={"team": "a"}, lifecycle="Proposed"
    )

    assert [type(fact) for fact in outcome.facts] == [
        RevisionContentReplaced,
        RevisionMetadataChanged,
        RevisionProposed,
    ]
    row = package_log.revision(name)
    assert row.content.digest == FileManifest(files(a="1")).digest
    assert (row.lifecycle, row.metadata.labels) == (PROPOSED, {"team": "a"})
    assert package_log.version(name) == outcome.position


@pytest.mark.req("LC-14")
def test_refuses_the_whole_of_an_update_beyond_metadata_unless_it_is_a_draft(
    package_log: PackageLog,
) -> None:
    """Its metadata part is not applied either."""
    for number, state in enumerate(Lifecycle):
        name = package_log.brought_to(state, f"w{number}", files=files(a="1"))
        if state is DRAFT:
            continue
        for change in ({"files": files(a="2")}, {"readiness_gates": ("x",)}, {"tasks": ()}):
            command = on(package_log, UpdateRevision, name, labels={"team": "a"}, **change)
            refusal = refused(package_log, Immutable, command)
            assert refusal.code == "immutable"
            assert package_log.revision(name).metadata.labels == {}
        # an update that only repeats the content changes nothing
        package_log.update(name, labels={"team": "a"}, files=files(a="1"), tasks=(Init(),))
        assert package_log.revision(name).metadata.labels == {"team": "a"}


# ── optimistic locking ────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-6")
def test_requires_the_version_that_the_client_read(package_log: PackageLog) -> None:
    """“the object has been modified; please apply your changes to the latest version and try
    again”
    """
    name = package_log.create()
    first = package_log.version(name)
    for command in (
        UpdateRevision(name=name, by=AUTHOR, labels={"a": "b"}),
        ReplaceResources(name=name, by=AUTHOR, files=()),
        ProposeRevision(name=name, by=AUTHOR),
        ApproveRevision(name=name, by=REVIEWER, digest=package_log.revision(name).content.digest),
    ):
        refused(package_log, VersionRequired, command)

    changes: tuple[Callable[[], object], ...] = (
        lambda: package_log.push(name, files(a="1")),
        lambda: package_log.update(name, labels={"a": "b"}),
        lambda: package_log.propose(name),
        lambda: package_log.approve(name),
        lambda: package_log.propose_deletion(name),
        lambda: package_log.reject_deletion(name),
        lambda: package_log.update(name, finalizers=("hold",)),
    )
    versions = [first]
    for change in changes:
        change()
        versions.append(package_log.version(name))

    assert versions == sorted(set(versions))
    for stale in versions[:-1]:
        command = UpdateRevision(name=name, by=AUTHOR, labels={}, expected_version=stale)
        refusal = refused(package_log, StaleVersion, command)
        assert refusal.code == "version_conflict"
        assert refusal.facts["current"] == versions[-1]
        assert refusal.detail == (
            "the object has been modified; please apply your changes to the latest version "
            "and try again"
        )
    package_log.update(name, labels={})


@pytest.mark.req("LC-6")
def test_names_the_stale_version_before_the_illegal_transition(package_log: PackageLog) -> None:
    """stale version + illegal transition → 409"""
    name = package_log.create()
    seen = package_log.version(name)
    package_log.update(name, labels={"a": "b"})

    command = ProposeDeletion(name=name, by=AUTHOR, expected_version=seen)

    refused(package_log, StaleVersion, command)


@pytest.mark.req("LC-6")
def test_changes_of_other_revisions_do_not_make_a_version_stale(package_log: PackageLog) -> None:
    """A clone of a revision, or its package's next publication, does not change the revision."""
    name = package_log.published()
    seen = package_log.version(name)

    package_log.create("v1", "shop", task=Clone(name))
    package_log.published("v2", task=Edit(name))

    assert package_log.version(name) == seen


# ── finalizers and deletion ───────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-7")
def test_deletes_with_the_last_finalizer(package_log: PackageLog) -> None:
    """“Last finalizer removed: Triggers actual deletion”"""
    name = package_log.create()
    package_log.update(name, finalizers=("one", "two"))

    package_log.delete(name)
    stamped = package_log.revision(name).deletion_timestamp
    assert stamped is not None
    assert package_log.delete(name).receipt is None
    assert package_log.revision(name).deletion_timestamp == stamped
    package_log.update(name, finalizers=("two",))
    assert package_log.revision(name).deletion_timestamp == stamped
    outcome = package_log.update(name, finalizers=())

    assert package_log.find(name) is None
    assert [type(fact).__name__ for fact in outcome.facts] == [
        "RevisionMetadataChanged",
        "RevisionDeleted",
        "PackageEmptied",
    ]


@pytest.mark.req("LC-7")
def test_deletes_nothing_when_the_last_finalizer_goes_without_a_timestamp(
    package_log: PackageLog,
) -> None:
    """“Deletion timestamp … Set? ──No──> Normal Update”"""
    name = package_log.create()
    package_log.update(name, finalizers=("one",))

    package_log.update(name, finalizers=())

    assert package_log.revision(name).deletion_timestamp is None


@pytest.mark.req("LC-7")
def test_changes_only_labels_and_finalizers_while_it_is_being_deleted(
    package_log: PackageLog,
) -> None:
    name = package_log.create(files=files(a="1"))
    package_log.update(name, finalizers=("one", "two"))
    package_log.delete(name)

    for change in (
        {"finalizers": ("one", "two", "three")},
        {"owner_references": (OwnerReference("variant", "v"),)},
        {"files": ()},
        {"lifecycle": "Proposed"},
        {"finalizers": ("one",), "lifecycle": "Proposed"},
    ):
        refused(package_log, Terminating, on(package_log, UpdateRevision, name, **change))
    refused(package_log, Terminating, on(package_log, ProposeRevision, name))
    refused(package_log, Terminating, on(package_log, ReplaceResources, name, files=()))

    package_log.update(name, labels={"why": "old"}, annotations={"a": "b"})
    assert package_log.revision(name).metadata.labels == {"why": "old"}


@pytest.mark.req("LC-12", "LC-17")
def test_deletes_a_published_revision_only_after_deletion_was_proposed(
    package_log: PackageLog,
) -> None:
    """“Delete (typically after transitioning to DeletionProposed)”: here always."""
    name = package_log.published()

    refusal = refused(package_log, DeletionNotProposed, on(package_log, DeleteRevision, name))
    package_log.propose_deletion(name)
    package_log.delete(name, by=REVIEWER)

    assert refusal.code == "deletion_not_proposed"
    assert package_log.find(name) is None
    refused(package_log, RevisionNotFound, DeleteRevision(name=name, by=AUTHOR))


# ── publication ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-8")
def test_sets_published_by_and_published_at_once(package_log: PackageLog) -> None:
    """“PublishedBy: Records user who published the package revision”"""
    name = package_log.create()
    package_log.propose(name)
    assert package_log.revision(name).published_by == ""
    package_log.approve(name)
    first = package_log.revision(name)

    package_log.propose_deletion(name)
    package_log.reject_deletion(name, by="user_other")

    after = package_log.revision(name)
    assert (after.published_by, after.published_at) == (REVIEWER, first.published_at)
    assert first.published_at is not None
    assert first.published_at > T0


@pytest.mark.req("LC-8", "LC-10")
def test_publishes_with_the_approval_that_completes_the_quorum(package_log: PackageLog) -> None:
    package_log.repository("strict", quorum=2)
    name = package_log.create(repository="strict", files=files(a="1"))
    package_log.update(name, by="user_editor", files=files(a="2"))
    package_log.propose(name)

    for somebody in (AUTHOR, "user_editor"):
        digest = package_log.revision(name).content.digest
        refused(
            package_log,
            SelfApproval,
            on(package_log, ApproveRevision, name, somebody, digest=digest),
        )
    refused(
        package_log,
        DigestMismatch,
        on(package_log, ApproveRevision, name, REVIEWER, digest=FileManifest(()).digest),
    )
    package_log.approve(name, by=REVIEWER)
    assert package_log.revision(name).lifecycle == PROPOSED
    assert package_log.approve(name, by=REVIEWER).receipt is None
    package_log.approve(name, by=OPERATOR)

    row = package_log.revision(name)
    assert (row.lifecycle, row.number, row.published_by) == (PUBLISHED, 1, OPERATOR)
    assert not row.self_approved
    assert approvers(package_log.timeline(name)) == (REVIEWER, OPERATOR)


def test_records_that_one_person_published_alone(package_log: PackageLog) -> None:
    package_log.repository("mine", quorum=0)
    name = package_log.create(repository="mine")
    package_log.propose(name)

    package_log.approve(name, by=AUTHOR)

    assert package_log.revision(name).self_approved


def test_checks_the_readiness_gates_at_proposal_and_at_approval(package_log: PackageLog) -> None:
    name = package_log.create(files=files(a="1"), readiness_gates=("tested",))

    def report(status: ConditionStatus) -> None:
        digest = package_log.revision(name).content.digest
        found = (Condition("tested", status),)
        package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)

    refusal = refused(package_log, NotReady, on(package_log, ProposeRevision, name))
    assert refusal.facts["gates"] == "tested"
    report(ConditionStatus.TRUE)
    # Conditions that were set for other content do not hold for this content.
    refused(
        package_log,
        NotReady,
        on(package_log, UpdateRevision, name, files=files(a="2"), lifecycle="Proposed"),
    )
    package_log.propose(name)
    report(ConditionStatus.FALSE)
    digest = package_log.revision(name).content.digest
    refused(package_log, NotReady, on(package_log, ApproveRevision, name, REVIEWER, digest=digest))
    report(ConditionStatus.TRUE)
    package_log.approve(name)


def test_numbers_publications_and_never_uses_a_number_again(package_log: PackageLog) -> None:
    first = package_log.published("v1")
    second = package_log.published("v2", task=Edit(first))
    third = package_log.published("v3", task=Edit(first))
    numbers = [package_log.revision(name).number for name in (first, second, third)]
    assert numbers == [1, 2, 3]

    def latest() -> int:
        row = package_log.package("blueprints/web").latest
        return 0 if row is None else row.number

    package_log.propose_deletion(second)
    package_log.propose_deletion(third)
    assert latest() == 3
    package_log.delete(second)
    assert latest() == 3
    package_log.delete(third)
    assert latest() == 1
    package_log.propose_deletion(first)
    package_log.delete(first)
    assert latest() == 0

    again = package_log.published("v1")
    assert package_log.revision(again).number == 4
    assert (
        package_log.revision(again).uid
        != package_log.store.range(REVISION_TOMBSTONES.name, prefix=f"{first}/", limit=1)[
            0
        ].key.id.partition("/")[2]
    )


# ── origin, lineage, dependents ───────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-9", "LC-18")
def test_records_how_each_revision_came_to_be_and_what_it_descends_from(
    package_log: PackageLog,
) -> None:
    """“Tasks: Typically contains a single task indicating creation method (init, clone, edit,
    upgrade)”
    """
    one = package_log.published("v1", files=files(a="1"))
    two = package_log.published("v2", task=Edit(one), files=files(a="2"))
    local = package_log.published("v1", "shop", task=Clone(one))
    edited = package_log.create("v2", "shop", task=Edit(local))
    task = Upgrade(one, two, local, Strategy.FAST_FORWARD)
    upgraded = package_log.published("v3", "shop", task=task)

    assert package_log.revision(one).tasks == (Init(),)
    assert package_log.revision(two).tasks == (Edit(one),)
    assert package_log.revision(local).tasks == (Clone(one),)
    assert package_log.revision(upgraded).tasks == (task,)
    for name, upstream in ((local, one), (edited, one), (upgraded, two)):
        (found,) = list_lineage(Reads(package_log.store), name)
        source = package_log.revision(upstream)
        assert (found.name, found.uid) == (upstream, source.uid)
        assert (found.revision, found.digest) == (source.number, source.content.digest)
        assert package_log.revision(name).content == source.content
    assert list_lineage(Reads(package_log.store), two) == ()
    assert list_dependents(Reads(package_log.store), one) == (local, edited)
    assert list_dependents(Reads(package_log.store), two) == (upgraded,)


@pytest.mark.req("LC-18")
def test_copies_an_earlier_revision_into_a_draft_without_changing_it(
    package_log: PackageLog,
) -> None:
    """“Rollback: Revert to known-good states”"""
    first = package_log.published("v1", files=files(a="1"))
    package_log.published("v2", task=Edit(first), files=files(a="2"))
    before, version = package_log.revision(first), package_log.version(first)

    back = package_log.published("v3", task=Edit(first))

    assert (package_log.revision(first), package_log.version(first)) == (before, version)
    assert package_log.revision(back).content == before.content
    assert package_log.revision(back).number == 3


@pytest.mark.req("LC-17")
def test_protects_a_revision_that_others_descend_from(package_log: PackageLog) -> None:
    """“Ensures consistency in dependency checks”"""
    base = package_log.published("v1")
    package_log.propose_deletion(base)
    clone = package_log.create(
        "v1", "shop", task=Clone(base)
    )  # DeletionProposed is still published
    assert package_log.package("blueprints/web").latest is not None
    package_log.propose(clone)
    package_log.approve(clone)
    copy = package_log.create("v2", "shop", task=Edit(clone))

    refusal = refused(package_log, StillReferenced, DeleteRevision(name=base, by=OPERATOR))
    assert refusal.facts == {"revision": base, "count": 2, "blockers": f"{clone}, {copy}"}
    refused(package_log, NotDraft, on(package_log, ReplaceResources, base, files=files(a="2")))
    package_log.propose_deletion(clone)
    package_log.delete(clone)
    # The copy inherited its descent, so the protection remains.
    refused(package_log, StillReferenced, DeleteRevision(name=base, by=OPERATOR))
    package_log.delete(copy)
    package_log.delete(base)

    assert package_log.find(base) is None


def test_moves_the_protection_when_a_draft_is_upgraded(package_log: PackageLog) -> None:
    one = package_log.published("v1", files=files(a="1"))
    two = package_log.published("v2", task=Edit(one), files=files(a="2"))
    draft = package_log.create("v1", "shop", task=Clone(one))
    task = Upgrade(one, two, draft)

    package_log.update(draft, tasks=(Clone(one), task), files=files(a="2"))

    assert list_dependents(Reads(package_log.store), one) == ()
    assert list_dependents(Reads(package_log.store), two) == (draft,)
    assert package_log.revision(draft).upstream is not None
    package_log.propose_deletion(one)
    package_log.delete(one)
    package_log.propose_deletion(two)
    refused(package_log, StillReferenced, DeleteRevision(name=two, by=OPERATOR))


# ── the trail ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("LC-15")
def test_shows_a_revision_as_metadata_spec_and_status(package_log: PackageLog) -> None:
    name = package_log.published("v1", "networking/vpc")
    package_log.update(name, finalizers=("hold",))
    package_log.propose_deletion(name)
    package_log.delete(name)

    row, version = package_log.revision(name), package_log.version(name)
    shown = json.decode(json.encode(to_document(row, version, package_log.package(row.package))))

    assert set(shown) == {"metadata", "spec", "status"}
    metadata, spec, status = shown["metadata"], shown["spec"], shown["status"]
    assert metadata["name"] == "blueprints.networking.vpc.v1"
    assert metadata["resourceVersion"] == str(version)
    assert metadata["labels"] == metadata["annotations"] == {}
    assert metadata["finalizers"] == ["hold"]
    assert metadata["ownerReferences"] == []
    assert metadata["deletionTimestamp"] is not None
    assert spec["packageName"] == "networking/vpc"
    assert (spec["workspaceName"], spec["revision"]) == ("v1", 1)
    assert (spec["lifecycle"], spec["tasks"]) == ("DeletionProposed", [{"type": "init"}])
    assert status["publishedBy"] == REVIEWER
    assert status["publishedAt"].startswith("2026-01-27T10:00:")
    assert status["latest"] is True


@pytest.mark.req("LC-10", "LC-16")
def test_reads_the_audit_walk_back_after_the_revision_is_gone(
    package_log: PackageLog,
) -> None:
    """“Package Revision Creation … Approval … Deletion Request … Actual Deletion”"""
    upstream = package_log.published("v1", "base", files=files(a="0"))
    name = package_log.create("v1", "web", task=Clone(upstream), by="user_ann")
    package_log.push(name, files(a="1"), by="user_ben")
    package_log.propose(name, by="user_ann")
    package_log.reject(name, by="user_cleo", reason="typo in a")
    package_log.push(name, files(a="2"), by="user_ben")
    package_log.propose(name, by="user_ben")
    package_log.approve(name, by="user_cleo")
    good = find_latest(Reads(package_log.store), "blueprints/web")
    package_log.propose_deletion(name, by="user_dora")
    package_log.delete(name, by="user_cleo")

    assert package_log.find(name) is None
    steps = package_log.timeline(name)
    assert [(step.action, step.lifecycle, step.by) for step in steps] == [
        ("Create", "Draft", "user_ann"),
        ("Update", "Draft", "user_ben"),
        ("Propose", "Proposed", "user_ann"),
        ("Reject", "Draft", "user_cleo"),
        ("Update", "Draft", "user_ben"),
        ("Propose", "Proposed", "user_ben"),
        ("Approve", "Proposed", "user_cleo"),
        ("Publish", "Published", "user_cleo"),
        ("Propose-delete", "DeletionProposed", "user_dora"),
        ("Delete", "DeletionProposed", "user_cleo"),
    ]
    assert steps[0].task == Clone(upstream)
    assert steps[3].reason == "typo in a"
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert steps[2].at < steps[7].at
    assert approvers(steps) == ("user_cleo",)
    assert good == name
    assert find_latest(Reads(package_log.store), "blueprints/web") is None
    assert [
        change.path for change in diff(FileManifest(files(a="1")), FileManifest(files(a="2")))
    ] == ["a"]
    tombstone = package_log.get(
        Key(REVISION_TOMBSTONES.name, tombstone_id(name, steps[0].uid)), Tombstone
    )
    assert tombstone is not None
    assert (tombstone.number, tombstone.deleted_by) == (1, "user_cleo")
    assert tombstone.upstream is not None


def test_distinguishes_the_incarnations_of_a_name(package_log: PackageLog) -> None:
    name = package_log.create()
    first = package_log.revision(name).uid
    refused(
        package_log,
        AlreadyExists,
        CreateRevision(
            repository="blueprints",
            package="web",
            workspace="v1",
            uid="u",
            by=AUTHOR,
            tasks=(Edit(name),),
        ),
    )
    package_log.delete(name)
    package_log.create()

    assert [step.action for step in package_log.timeline(name, first)] == ["Create", "Delete"]
    assert [step.action for step in package_log.timeline(name)] == ["Create", "Delete", "Create"]


def test_lists_revisions_by_repository_package_lifecycle_and_author(
    package_log: PackageLog,
) -> None:
    package_log.repository("other")
    names = {state: package_log.brought_to(state, f"w{n}") for n, state in enumerate(Lifecycle)}
    beside = package_log.create("w9", "w0", repository="other")
    later = package_log.create("v2", "w2", task=Edit(names[PUBLISHED]))
    theirs = package_log.create("v1", "theirs", by=REVIEWER)
    package_log.delete(package_log.create("v2", "gone", by=REVIEWER))
    package_log.update(theirs, labels={"a": "b"})

    def listed(*, index: str | None = None, prefix: str) -> list[str]:
        found = package_log.store.range(REVISIONS.name, index=index, prefix=prefix, limit=10)
        return [record.key.id for record in found]

    assert listed(prefix="other.") == [beside]
    assert listed(index="by_package", prefix=entry("blueprints/w2", "")) == [
        later,
        names[PUBLISHED],
    ]
    assert listed(index="by_lifecycle", prefix=entry("Draft", "")) == [
        theirs,
        names[DRAFT],
        later,
        beside,
    ]
    assert listed(index="by_lifecycle", prefix=entry("Published", "")) == [names[PUBLISHED]]
    assert listed(index="by_author", prefix=entry(REVIEWER, "")) == [theirs]
