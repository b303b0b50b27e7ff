"""The rules of packages that need no engine: paths, sources, four eyes, reasons, forms, costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import Struct

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, SCHEMA, Depot, files
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FILES_MAX, FileManifest
from tidegate.domain.packages import declarations as packages
from tidegate.domain.packages import refusals
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.deletions import (
    DeleteRevision,
    ProposeDeletion,
    RejectDeletion,
    delete_revision,
    rows_of_deletion,
)
from tidegate.domain.packages.facts import (
    FACTS,
    Clone,
    Condition,
    ConditionStatus,
    Edit,
    Init,
    Metadata,
    OwnerReference,
    RevisionDeletionRejected,
    Strategy,
    Upgrade,
)
from tidegate.domain.packages.folds import DEPENDENTS_NAMED_MAX
from tidegate.domain.packages.history import (
    ACTIONS,
    history_of_package,
    history_of_repository,
    timeline,
)
from tidegate.domain.packages.lifecycle import EDGES
from tidegate.domain.packages.metadata import REASON_BYTES_MAX
from tidegate.domain.packages.refusals import (
    AlreadyExists,
    DigestMismatch,
    InvalidMember,
    InvalidName,
    NotProposer,
    OriginFixed,
    PackageExists,
    PathOverlap,
    ProposalProtected,
    ReasonRequired,
    RepositoryNotFound,
    RevisionNotFound,
    SelfApproval,
    SelfDeletion,
    SourceMismatch,
    SourceNotPublished,
    StillReferenced,
    Terminating,
    TooManyTasks,
)
from tidegate.domain.packages.rows import REPOSITORIES, Repository, revision_key
from tidegate.domain.packages.slices import ChangeRepository, CreateRepository, CreateRevision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import EDITORS_MAX, SetConditions, UpdateRevision
from tidegate.errors import LimitExceeded, TidegateError, VersionRequired
from tidegate.kernel import codec
from tidegate.kernel.model import COST_MAX, Key
from tidegate.kernel.replay import differences


@pytest.fixture
def depot() -> Depot:
    depot = Depot()
    depot.repository()
    return depot


def creation(**members: Any) -> CreateRevision:
    defaults: dict[str, Any] = {
        "repository": "blueprints",
        "package": "web",
        "workspace": "v1",
        "uid": "u",
        "by": AUTHOR,
    }
    return CreateRevision(**(defaults | members))


def refused(depot: Depot, error: type[TidegateError], command: Struct) -> TidegateError:
    before = len(depot.log())
    with pytest.raises(error) as refusal:
        depot.run(command)
    assert len(depot.log()) == before
    return refusal.value


# ── repositories ──────────────────────────────────────────────────────────────────────────────────


def test_sets_up_a_repository_once_and_changes_it_at_a_version(depot: Depot) -> None:
    key = Key(REPOSITORIES.name, "prod")
    depot.repository("prod", deployment=True)
    (record,) = depot.store.get(key)
    assert record is not None
    assert depot.get(key, Repository) == Repository("prod", 1, True, True)

    refused(depot, AlreadyExists, CreateRepository(name="prod", by=OPERATOR))
    refused(depot, VersionRequired, ChangeRepository(name="prod", by=OPERATOR, quorum=2))
    refused(depot, RepositoryNotFound, ChangeRepository(name="none", by=OPERATOR))
    seen = record.version
    unchanged = ChangeRepository(name="prod", by=OPERATOR, quorum=1, expected_version=seen)
    assert depot.run(unchanged).receipt is None
    depot.run(
        ChangeRepository(
            name="prod", by=OPERATOR, quorum=2, protect_proposed=False, expected_version=seen
        )
    )

    assert depot.get(key, Repository) == Repository("prod", 2, True, False)
    steps = timeline(SCHEMA.vocabulary, depot.store.read(history_of_repository("prod")).events)
    assert [step.action for step in steps] == ["Create-repository", "Change-repository"]


@pytest.mark.parametrize("quorum", [-1, 17])
def test_refuses_a_quorum_that_nobody_could_meet(depot: Depot, quorum: int) -> None:
    refused(depot, InvalidMember, CreateRepository(name="r", by=OPERATOR, quorum=quorum))


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────


def test_starts_no_package_inside_or_around_another(depot: Depot) -> None:
    depot.create(package="a/b")

    refused(depot, PathOverlap, creation(package="a"))
    refused(depot, PathOverlap, creation(package="a/b/c"))
    refused(depot, PathOverlap, creation(package="a/b/c/d"))
    depot.create(package="a/c")
    depot.create(package="ab")

    depot.delete("blueprints.a.b.v1")
    refused(depot, PathOverlap, creation(package="a"))
    depot.delete("blueprints.a.c.v1")
    depot.create(package="a")
    assert depot.package("blueprints/a").below == 0
    assert differences(depot.store, FOLDS) == []


def test_lets_first_revisions_be_drafted_side_by_side_until_one_is_published(depot: Depot) -> None:
    one, two = depot.create("v1"), depot.create("v2")
    refused(depot, AlreadyExists, creation(workspace="v1"))
    for name in (two, one):
        depot.propose(name)
        depot.approve(name)

    assert (depot.revision(two).number, depot.revision(one).number) == (1, 2)
    refused(depot, PackageExists, creation(workspace="v3"))
    refused(depot, PackageExists, creation(workspace="v3", tasks=(Clone(one),)))


def test_keeps_packages_of_one_last_name_apart(depot: Depot) -> None:
    first = depot.published(package="a/x")
    second = depot.published(package="b/x")

    assert depot.revision(first).number == depot.revision(second).number == 1


def test_needs_a_repository(depot: Depot) -> None:
    refused(depot, RepositoryNotFound, creation(repository="nowhere"))


# ── tasks and sources ─────────────────────────────────────────────────────────────────────────────


def test_takes_one_task_at_creation(depot: Depot) -> None:
    refused(depot, TooManyTasks, creation(tasks=(Init(), Init())))


def test_makes_revisions_only_from_what_is_published_and_fits(depot: Depot) -> None:
    draft = depot.create(package="draft")
    base = depot.published(package="base", files=files(a="1"))
    newer = depot.published("v2", package="base", task=Edit(base), files=files(a="2"))
    local = depot.published(package="local", task=Clone(base), files=files(a="1", mine="1"))
    other = depot.published(package="other")

    refused(depot, SourceNotPublished, creation(tasks=(Clone(draft),)))
    refused(depot, RevisionNotFound, creation(tasks=(Clone("blueprints.none.v1"),)))
    refused(depot, InvalidName, creation(tasks=(Clone("no name"),)))
    refused(depot, PackageExists, creation(package="other", workspace="v2", tasks=(Clone(base),)))
    refused(depot, SourceMismatch, creation(package="base", workspace="v3", tasks=(Edit(other),)))

    def upgrade(old: str, new: str, of: str, **members: Any) -> CreateRevision:
        strategy = members.pop("strategy", Strategy.THREE_WAY)
        task = Upgrade(old, new, of, strategy)
        return creation(package="local", workspace="v2", tasks=(task,), **members)

    refused(depot, SourceMismatch, upgrade(newer, newer, local, files=()))
    refused(depot, SourceMismatch, upgrade(base, other, local, files=()))
    refused(depot, SourceMismatch, upgrade(base, newer, other, files=()))
    refused(depot, SourceNotPublished, upgrade(base, newer, draft, files=()))
    refused(depot, InvalidMember, upgrade(base, newer, local))
    refused(depot, SourceMismatch, upgrade(base, newer, local, strategy=Strategy.FAST_FORWARD))
    forced = Strategy.FORCE_DELETE_REPLACE
    refused(depot, InvalidMember, upgrade(base, newer, local, strategy=forced, files=files(a="3")))
    depot.run(upgrade(base, newer, local, strategy=forced))
    assert depot.revision("blueprints.local.v2").content == depot.revision(newer).content


def test_makes_nothing_from_what_is_being_deleted(depot: Depot) -> None:
    base = depot.published(package="base")
    depot.update(base, finalizers=("hold",))
    depot.propose_deletion(base)
    depot.delete(base)

    refused(depot, Terminating, creation(tasks=(Clone(base),)))
    refused(depot, Terminating, creation(package="base", workspace="v2", tasks=(Edit(base),)))


def test_names_some_blockers_and_counts_all(depot: Depot) -> None:
    base = depot.published(package="base")
    for number in range(DEPENDENTS_NAMED_MAX + 3):
        depot.create(package=f"p{number}", task=Clone(base))
    depot.propose_deletion(base)

    refusal = refused(depot, StillReferenced, DeleteRevision(name=base, by=OPERATOR))

    assert refusal.facts["count"] == DEPENDENTS_NAMED_MAX + 3
    assert len(str(refusal.facts["blockers"]).split(", ")) == DEPENDENTS_NAMED_MAX
    assert "and 3 more" in refusal.detail
    for number in range(DEPENDENTS_NAMED_MAX + 3):
        depot.delete(f"blueprints.p{number}.v1")
    depot.delete(base)
    assert differences(depot.store, FOLDS) == []


# ── review ────────────────────────────────────────────────────────────────────────────────────────


def test_withdrawing_is_for_the_proposer_and_rejecting_needs_a_reason(depot: Depot) -> None:
    name = depot.create()
    depot.propose(name, by=AUTHOR)
    seen: dict[str, Any] = {"name": name, "expected_version": depot.version(name)}

    refused(depot, NotProposer, WithdrawProposal(by=REVIEWER, **seen))
    refused(depot, ReasonRequired, RejectProposal(by=REVIEWER, **seen))
    refused(depot, ReasonRequired, RejectProposal(by=REVIEWER, reason="  ", **seen))
    refused(depot, ReasonRequired, UpdateRevision(by=REVIEWER, lifecycle="Draft", **seen))
    long = "x" * (REASON_BYTES_MAX + 1)
    refused(depot, LimitExceeded, RejectProposal(by=REVIEWER, reason=long, **seen))
    depot.run(UpdateRevision(by=AUTHOR, lifecycle="Draft", **seen))

    assert depot.revision(name).lifecycle == Lifecycle.DRAFT


def test_rejecting_a_deletion_needs_a_reason_ones_own_proposal_too(depot: Depot) -> None:
    name = depot.brought_to(Lifecycle.DELETION_PROPOSED)
    seen = depot.version(name)

    for by in (REVIEWER, OPERATOR):
        command = RejectDeletion(name=name, by=by, expected_version=seen)
        refused(depot, ReasonRequired, command)
        update = UpdateRevision(name=name, by=by, lifecycle="Published", expected_version=seen)
        refused(depot, ReasonRequired, update)
    outcome = depot.act(RejectDeletion, name, OPERATOR, reason="still used")

    assert isinstance(outcome.facts[0], RevisionDeletionRejected)


def test_forgets_approvals_when_the_proposal_ends(depot: Depot) -> None:
    depot.repository("strict", quorum=2)
    name = depot.create(repository="strict")
    depot.propose(name)
    depot.approve(name, by=REVIEWER)
    depot.reject(name, by=OPERATOR)
    depot.propose(name)
    assert depot.revision(name).approvals == ()

    depot.approve(name, by=REVIEWER)
    assert depot.revision(name).lifecycle == Lifecycle.PROPOSED


def test_counts_everybody_who_changed_what_would_be_published(depot: Depot) -> None:
    name = depot.create()
    depot.update(name, by="user_gates", readiness_gates=("tested",))
    depot.push(name, files(a="1"), by="user_files")
    depot.update(name, by="user_labels", labels={"a": "b"})
    digest = depot.revision(name).content.digest
    found = (Condition("tested", ConditionStatus.TRUE),)
    depot.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    depot.propose(name)
    seen = depot.version(name)

    for somebody in (AUTHOR, "user_gates", "user_files"):
        command = ApproveRevision(name=name, by=somebody, digest=digest, expected_version=seen)
        assert refused(depot, SelfApproval, command).code == "self_approval"
    depot.approve(name, by="user_labels")


def test_bounds_the_editors_of_a_revision(depot: Depot) -> None:
    name = depot.create()
    for number in range(EDITORS_MAX - 1):
        depot.push(name, files(a=str(number)), by=f"user_{number}")

    with pytest.raises(LimitExceeded):
        depot.push(name, files(a="x"), by="user_more")
    depot.push(name, files(a="x"), by=AUTHOR)


def test_takes_a_report_only_about_the_content_that_stands(depot: Depot) -> None:
    name = depot.create(files=files(a="1"))
    found = (Condition("tested", ConditionStatus.TRUE),)

    command = SetConditions(
        name=name,
        by="user_ci",
        digest=FileManifest(()).digest,
        conditions=found,
        expected_version=depot.version(name),
    )

    refused(depot, DigestMismatch, command)
    digest = depot.revision(name).content.digest
    depot.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    repeated = depot.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    assert repeated.receipt is None


# ── deletion ──────────────────────────────────────────────────────────────────────────────────────


def test_protects_proposals_and_asks_for_four_eyes_where_things_are_deployed(depot: Depot) -> None:
    depot.repository("prod", deployment=True)
    name = depot.create(repository="prod")
    depot.propose(name)

    refused(depot, ProposalProtected, DeleteRevision(name=name, by=OPERATOR))
    depot.approve(name)
    depot.propose_deletion(name, by=OPERATOR)
    refused(depot, SelfDeletion, DeleteRevision(name=name, by=OPERATOR))
    depot.delete(name, by=REVIEWER)

    assert depot.find(name) is None


def test_takes_links_that_are_gone_for_a_deletion_that_came_between(depot: Depot) -> None:
    """Rows are not all read at one moment; a decision on half a deletion must not go on."""
    name = depot.create()
    command = DeleteRevision(name=name, by=OPERATOR)
    (*rows, _) = (
        codec.decode(record.data, SCHEMA.collection(record.key.collection).model)
        for record in depot.store.get(*rows_of_deletion(command))
        if record is not None
    )

    with pytest.raises(RevisionNotFound):
        delete_revision.decide((*rows, None), command, depot.clock())


def test_lets_one_person_alone_delete_what_they_proposed(depot: Depot) -> None:
    depot.repository("mine", deployment=True, quorum=0)
    name = depot.create(repository="mine")
    depot.propose(name)
    depot.approve(name, by=AUTHOR)
    depot.propose_deletion(name, by=AUTHOR)

    depot.delete(name, by=AUTHOR)

    assert depot.store.get(revision_key(name)) == (None,)


def test_unlinks_a_revision_from_the_middle_of_its_package(depot: Depot) -> None:
    names = [depot.published("v1")]
    names += [depot.published(f"v{number}", task=Edit(names[0])) for number in (2, 3, 4)]
    for name in (names[1], names[2]):
        depot.propose_deletion(name)
        depot.delete(name)

    first, last = depot.links(names[0]), depot.links(names[3])
    assert first is not None
    assert last is not None
    assert first.newer is not None
    assert last.older is not None
    assert (first.newer.name, last.older.name) == (names[3], names[0])
    depot.propose_deletion(names[3])
    depot.delete(names[3])
    latest = depot.package("blueprints/web").latest
    assert latest is not None
    assert latest.name == names[0]
    assert differences(depot.store, FOLDS) == []


# ── forms and costs ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "members",
    [
        {"by": ""},
        {"by": "Ann Smith"},
        {"uid": ""},
        {"uid": "a b"},
        {"package": "../etc"},
        {"files": (File("../x", "0" * 64, 0),)},
        {"metadata": Metadata(labels={"": "x"})},
        {"metadata": Metadata(labels={"a": "not a value"})},
        {"metadata": Metadata(annotations={"a b": "x"})},
        {"metadata": Metadata(finalizers=("a", "a"))},
        {"metadata": Metadata(owner_references=(OwnerReference("kind", ""),))},
        {"readiness_gates": ("a", "a")},
        {"readiness_gates": ("no gate",)},
    ],
)
def test_refuses_what_has_no_form_with_a_clear_error(depot: Depot, members: dict[str, Any]) -> None:
    refusal = refused(depot, TidegateError, creation(**members))

    assert refusal.code == "invalid_argument"


@pytest.mark.parametrize(
    "members",
    [
        {"metadata": Metadata(labels={f"l{number}": "" for number in range(65)})},
        {"metadata": Metadata(annotations={"a": "x" * 70_000})},
        {"metadata": Metadata(finalizers=tuple(f"f{number}" for number in range(33)))},
        {"readiness_gates": tuple(f"g{number}" for number in range(33))},
        {"files": tuple(File(f"f{n}", "0" * 64, 0) for n in range(FILES_MAX + 1))},
    ],
    ids=["labels", "annotations", "finalizers", "gates", "files"],
)
def test_refuses_what_is_too_much(depot: Depot, members: dict[str, Any]) -> None:
    refusal = refused(depot, TidegateError, creation(**members))

    assert refusal.code in ("limit_exceeded", "too_large")


def test_a_command_costs_the_same_however_much_there_is(depot: Depot) -> None:
    """The largest: a clone, sixteen levels deep, with everything that a revision may carry."""
    base = depot.published(package="base", files=files(a="1"))
    deep = "/".join("abcdefghijklmnop")
    commits = []
    submit = depot.control._submit

    def watched(commit: Any) -> Any:
        commits.append(commit)
        return submit(commit)

    depot.control._submit = watched
    depot.published(package=deep, task=Clone(base), files=files(a="2"))

    costs = [SCHEMA.cost(commit) for commit in commits]
    assert max(costs) < COST_MAX / 2
    assert max(costs[1:]) <= 20


def test_knows_a_word_for_every_fact_and_a_fact_for_every_slice() -> None:
    written = {fact for item in packages.SLICES for fact in item.writes}

    assert set(ACTIONS) == {item.struct for item in FACTS} == written


def test_every_refusal_has_a_title_and_a_code() -> None:
    leaves = [
        item
        for item in vars(refusals).values()
        if isinstance(item, type)
        and issubclass(item, TidegateError)
        and item.__module__ == refusals.__name__
    ]

    assert len(leaves) > 25
    for leaf in leaves:
        assert leaf.__doc__
        assert leaf.code not in ("error", "refused", "forbidden", "conflict", "invalid")


def test_permissions_are_named_after_verbs() -> None:
    assert [edge.permission for edge in EDGES] == [
        "revision.propose",
        "revision.withdraw",
        "revision.reject",
        "revision.approve",
        "revision.propose_deletion",
        "revision.reject_deletion",
    ]


def test_lists_a_packages_history_over_its_revisions(depot: Depot) -> None:
    first = depot.published("v1")
    depot.published("v2", task=Edit(first))

    events = depot.store.read(history_of_package("blueprints/web")).events
    steps = timeline(SCHEMA.vocabulary, events)

    assert [step.revision for step in steps if step.action == "Publish"] == [1, 2]
    assert steps[0].action == "Start-package"


def test_a_time_that_steps_back_changes_no_order(depot: Depot) -> None:
    name = depot.create()
    before = depot.version(name)
    depot.clock.advance(timedelta(hours=-1))

    depot.propose(name)

    assert depot.version(name) > before
    steps = depot.timeline(name)
    assert [step.action for step in steps] == ["Create", "Propose"]
    assert steps[1].at < steps[0].at


def test_keeps_its_origin_when_tasks_are_appended(depot: Depot) -> None:
    first = depot.published()
    name = depot.create("v2", task=Edit(first))
    seen: dict[str, Any] = {"name": name, "by": AUTHOR, "expected_version": depot.version(name)}
    two = (Edit(first), Edit(first), Edit(first))

    refused(depot, TooManyTasks, UpdateRevision(tasks=two, **seen))
    refused(depot, OriginFixed, UpdateRevision(tasks=(Edit(first), Init()), **seen))


def test_a_name_that_is_none_is_told_before_anything_is_read(depot: Depot) -> None:
    for command in (ProposeRevision, ProposeDeletion, DeleteRevision, UpdateRevision):
        refused(depot, InvalidName, command(name="a/../b", by=AUTHOR))
    with pytest.raises(InvalidName):
        revision_key("x")
