"""The rules of packages that need no engine: paths, sources, review by others, reasons, forms,
costs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import Struct

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, SCHEMA, PackageLog, files
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FILES_MAX, FileManifest
from tidegate.domain.packages import declarations as packages, refusals
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


def creation(**members: Any) -> CreateRevision:
    defaults: dict[str, Any] = {
        "repository": "blueprints",
        "package": "web",
        "workspace": "v1",
        "uid": "u",
        "by": AUTHOR,
    }
    return CreateRevision(**(defaults | members))


def refused(package_log: PackageLog, error: type[TidegateError], command: Struct) -> TidegateError:
    before = len(package_log.log())
    with pytest.raises(error) as refusal:
        package_log.run(command)
    assert len(package_log.log()) == before
    return refusal.value


# ── repositories ──────────────────────────────────────────────────────────────────────────────────


def test_sets_up_a_repository_once_and_changes_it_at_a_version(package_log: PackageLog) -> None:
    key = Key(REPOSITORIES.name, "prod")
    package_log.repository("prod", deployment=True)
    (record,) = package_log.store.get(key)
    assert record is not None
    assert package_log.get(key, Repository) == Repository("prod", 1, True, True)

    refused(package_log, AlreadyExists, CreateRepository(name="prod", by=OPERATOR))
    refused(package_log, VersionRequired, ChangeRepository(name="prod", by=OPERATOR, quorum=2))
    refused(package_log, RepositoryNotFound, ChangeRepository(name="none", by=OPERATOR))
    seen = record.version
    unchanged = ChangeRepository(name="prod", by=OPERATOR, quorum=1, expected_version=seen)
    assert package_log.run(unchanged).receipt is None
    package_log.run(
        ChangeRepository(
            name="prod", by=OPERATOR, quorum=2, protect_proposed=False, expected_version=seen
        )
    )

    assert package_log.get(key, Repository) == Repository("prod", 2, True, False)
    steps = timeline(
        SCHEMA.vocabulary, package_log.store.read(history_of_repository("prod")).events
    )
    assert [step.action for step in steps] == ["Create-repository", "Change-repository"]


@pytest.mark.parametrize("quorum", [-1, 17])
def test_refuses_an_impossible_quorum(package_log: PackageLog, quorum: int) -> None:
    refused(package_log, InvalidMember, CreateRepository(name="r", by=OPERATOR, quorum=quorum))


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────


def test_refuses_a_package_inside_or_around_another(package_log: PackageLog) -> None:
    package_log.create(package="a/b")

    refused(package_log, PathOverlap, creation(package="a"))
    refused(package_log, PathOverlap, creation(package="a/b/c"))
    refused(package_log, PathOverlap, creation(package="a/b/c/d"))
    package_log.create(package="a/c")
    package_log.create(package="ab")

    package_log.delete("blueprints.a.b.v1")
    refused(package_log, PathOverlap, creation(package="a"))
    package_log.delete("blueprints.a.c.v1")
    package_log.create(package="a")
    assert package_log.package("blueprints/a").below == 0
    assert differences(package_log.store, FOLDS) == []


def test_allows_several_first_drafts_until_one_is_published(
    package_log: PackageLog,
) -> None:
    one, two = package_log.create("v1"), package_log.create("v2")
    refused(package_log, AlreadyExists, creation(workspace="v1"))
    for name in (two, one):
        package_log.propose(name)
        package_log.approve(name)

    assert (package_log.revision(two).number, package_log.revision(one).number) == (1, 2)
    refused(package_log, PackageExists, creation(workspace="v3"))
    refused(package_log, PackageExists, creation(workspace="v3", tasks=(Clone(one),)))


def test_requires_a_repository(package_log: PackageLog) -> None:
    refused(package_log, RepositoryNotFound, creation(repository="nowhere"))


# ── tasks and sources ─────────────────────────────────────────────────────────────────────────────


def test_accepts_one_task_at_creation(package_log: PackageLog) -> None:
    refused(package_log, TooManyTasks, creation(tasks=(Init(), Init())))


def test_creates_revisions_only_from_published_and_matching_sources(
    package_log: PackageLog,
) -> None:
    draft = package_log.create(package="draft")
    base = package_log.published(package="base", files=files(a="1"))
    newer = package_log.published("v2", package="base", task=Edit(base), files=files(a="2"))
    local = package_log.published(package="local", task=Clone(base), files=files(a="1", mine="1"))
    other = package_log.published(package="other")

    refused(package_log, SourceNotPublished, creation(tasks=(Clone(draft),)))
    refused(package_log, RevisionNotFound, creation(tasks=(Clone("blueprints.none.v1"),)))
    refused(package_log, InvalidName, creation(tasks=(Clone("no name"),)))
    refused(
        package_log, PackageExists, creation(package="other", workspace="v2", tasks=(Clone(base),))
    )
    refused(
        package_log, SourceMismatch, creation(package="base", workspace="v3", tasks=(Edit(other),))
    )

    def upgrade(old: str, new: str, of: str, **members: Any) -> CreateRevision:
        strategy = members.pop("strategy", Strategy.THREE_WAY)
        task = Upgrade(old, new, of, strategy)
        return creation(package="local", workspace="v2", tasks=(task,), **members)

    refused(package_log, SourceMismatch, upgrade(newer, newer, local, files=()))
    refused(package_log, SourceMismatch, upgrade(base, other, local, files=()))
    refused(package_log, SourceMismatch, upgrade(base, newer, other, files=()))
    refused(package_log, SourceNotPublished, upgrade(base, newer, draft, files=()))
    refused(package_log, InvalidMember, upgrade(base, newer, local))
    refused(
        package_log, SourceMismatch, upgrade(base, newer, local, strategy=Strategy.FAST_FORWARD)
    )
    forced = Strategy.FORCE_DELETE_REPLACE
    refused(
        package_log, InvalidMember, upgrade(base, newer, local, strategy=forced, files=files(a="3"))
    )
    package_log.run(upgrade(base, newer, local, strategy=forced))
    assert (
        package_log.revision("blueprints.local.v2").content == package_log.revision(newer).content
    )


def test_creates_nothing_from_a_revision_that_is_being_deleted(package_log: PackageLog) -> None:
    base = package_log.published(package="base")
    package_log.update(base, finalizers=("hold",))
    package_log.propose_deletion(base)
    package_log.delete(base)

    refused(package_log, Terminating, creation(tasks=(Clone(base),)))
    refused(package_log, Terminating, creation(package="base", workspace="v2", tasks=(Edit(base),)))


def test_names_some_dependents_and_counts_all(package_log: PackageLog) -> None:
    base = package_log.published(package="base")
    for number in range(DEPENDENTS_NAMED_MAX + 3):
        package_log.create(package=f"p{number}", task=Clone(base))
    package_log.propose_deletion(base)

    refusal = refused(package_log, StillReferenced, DeleteRevision(name=base, by=OPERATOR))

    assert refusal.facts["count"] == DEPENDENTS_NAMED_MAX + 3
    assert len(str(refusal.facts["blockers"]).split(", ")) == DEPENDENTS_NAMED_MAX
    assert "and 3 more" in refusal.detail
    for number in range(DEPENDENTS_NAMED_MAX + 3):
        package_log.delete(f"blueprints.p{number}.v1")
    package_log.delete(base)
    assert differences(package_log.store, FOLDS) == []


# ── review ────────────────────────────────────────────────────────────────────────────────────────


def test_the_proposer_may_withdraw_and_a_rejection_needs_a_reason(
    package_log: PackageLog,
) -> None:
    name = package_log.create()
    package_log.propose(name, by=AUTHOR)
    seen: dict[str, Any] = {"name": name, "expected_version": package_log.version(name)}

    refused(package_log, NotProposer, WithdrawProposal(by=REVIEWER, **seen))
    refused(package_log, ReasonRequired, RejectProposal(by=REVIEWER, **seen))
    refused(package_log, ReasonRequired, RejectProposal(by=REVIEWER, reason="  ", **seen))
    refused(package_log, ReasonRequired, UpdateRevision(by=REVIEWER, lifecycle="Draft", **seen))
    long = "x" * (REASON_BYTES_MAX + 1)
    refused(package_log, LimitExceeded, RejectProposal(by=REVIEWER, reason=long, **seen))
    package_log.run(UpdateRevision(by=AUTHOR, lifecycle="Draft", **seen))

    assert package_log.revision(name).lifecycle == Lifecycle.DRAFT


def test_rejecting_a_deletion_needs_a_reason_even_for_the_proposer(package_log: PackageLog) -> None:
    name = package_log.brought_to(Lifecycle.DELETION_PROPOSED)
    seen = package_log.version(name)

    for by in (REVIEWER, OPERATOR):
        command = RejectDeletion(name=name, by=by, expected_version=seen)
        refused(package_log, ReasonRequired, command)
        update = UpdateRevision(name=name, by=by, lifecycle="Published", expected_version=seen)
        refused(package_log, ReasonRequired, update)
    outcome = package_log.act(RejectDeletion, name, OPERATOR, reason="still used")

    assert isinstance(outcome.facts[0], RevisionDeletionRejected)


def test_discards_approvals_when_the_proposal_ends(package_log: PackageLog) -> None:
    package_log.repository("strict", quorum=2)
    name = package_log.create(repository="strict")
    package_log.propose(name)
    package_log.approve(name, by=REVIEWER)
    package_log.reject(name, by=OPERATOR)
    package_log.propose(name)
    assert package_log.revision(name).approvals == ()

    package_log.approve(name, by=REVIEWER)
    assert package_log.revision(name).lifecycle == Lifecycle.PROPOSED


def test_counts_every_editor_of_the_proposed_content(package_log: PackageLog) -> None:
    name = package_log.create()
    package_log.update(name, by="user_gates", readiness_gates=("tested",))
    package_log.push(name, files(a="1"), by="user_files")
    package_log.update(name, by="user_labels", labels={"a": "b"})
    digest = package_log.revision(name).content.digest
    found = (Condition("tested", ConditionStatus.TRUE),)
    package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    package_log.propose(name)
    seen = package_log.version(name)

    for somebody in (AUTHOR, "user_gates", "user_files"):
        command = ApproveRevision(name=name, by=somebody, digest=digest, expected_version=seen)
        assert refused(package_log, SelfApproval, command).code == "self_approval"
    package_log.approve(name, by="user_labels")


def test_limits_the_editors_of_a_revision(package_log: PackageLog) -> None:
    name = package_log.create()
    for number in range(EDITORS_MAX - 1):
        package_log.push(name, files(a=str(number)), by=f"user_{number}")

    with pytest.raises(LimitExceeded):
        package_log.push(name, files(a="x"), by="user_more")
    package_log.push(name, files(a="x"), by=AUTHOR)


def test_accepts_a_report_only_about_the_current_content(package_log: PackageLog) -> None:
    name = package_log.create(files=files(a="1"))
    found = (Condition("tested", ConditionStatus.TRUE),)

    command = SetConditions(
        name=name,
        by="user_ci",
        digest=FileManifest(()).digest,
        conditions=found,
        expected_version=package_log.version(name),
    )

    refused(package_log, DigestMismatch, command)
    digest = package_log.revision(name).content.digest
    package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    repeated = package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)
    assert repeated.receipt is None


# ── deletion ──────────────────────────────────────────────────────────────────────────────────────


def test_deployment_repositories_protect_proposals_and_require_a_second_person(
    package_log: PackageLog,
) -> None:
    package_log.repository("prod", deployment=True)
    name = package_log.create(repository="prod")
    package_log.propose(name)

    refused(package_log, ProposalProtected, DeleteRevision(name=name, by=OPERATOR))
    package_log.approve(name)
    package_log.propose_deletion(name, by=OPERATOR)
    refused(package_log, SelfDeletion, DeleteRevision(name=name, by=OPERATOR))
    package_log.delete(name, by=REVIEWER)

    assert package_log.find(name) is None


def test_treats_missing_links_as_a_deletion_that_happened_meanwhile(
    package_log: PackageLog,
) -> None:
    """Rows are not all read at one moment; a decision on a half-read deletion must not proceed."""
    name = package_log.create()
    command = DeleteRevision(name=name, by=OPERATOR)
    (*rows, _) = (
        codec.decode(record.data, SCHEMA.collection(record.key.collection).model)
        for record in package_log.store.get(*rows_of_deletion(command))
        if record is not None
    )

    with pytest.raises(RevisionNotFound):
        delete_revision.decide((*rows, None), command, package_log.clock())


def test_one_person_may_delete_what_they_proposed_if_the_quorum_is_one(
    package_log: PackageLog,
) -> None:
    package_log.repository("mine", deployment=True, quorum=0)
    name = package_log.create(repository="mine")
    package_log.propose(name)
    package_log.approve(name, by=AUTHOR)
    package_log.propose_deletion(name, by=AUTHOR)

    package_log.delete(name, by=AUTHOR)

    assert package_log.store.get(revision_key(name)) == (None,)


def test_unlinks_a_revision_from_the_middle_of_its_package(package_log: PackageLog) -> None:
    names = [package_log.published("v1")]
    names += [package_log.published(f"v{number}", task=Edit(names[0])) for number in (2, 3, 4)]
    for name in (names[1], names[2]):
        package_log.propose_deletion(name)
        package_log.delete(name)

    first, last = package_log.links(names[0]), package_log.links(names[3])
    assert first is not None
    assert last is not None
    assert first.newer is not None
    assert last.older is not None
    assert (first.newer.name, last.older.name) == (names[3], names[0])
    package_log.propose_deletion(names[3])
    package_log.delete(names[3])
    latest = package_log.package("blueprints/web").latest
    assert latest is not None
    assert latest.name == names[0]
    assert differences(package_log.store, FOLDS) == []


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
def test_refuses_malformed_commands_with_a_clear_error(
    package_log: PackageLog, members: dict[str, Any]
) -> None:
    refusal = refused(package_log, TidegateError, creation(**members))

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
def test_refuses_commands_beyond_the_limits(
    package_log: PackageLog, members: dict[str, Any]
) -> None:
    refusal = refused(package_log, TidegateError, creation(**members))

    assert refusal.code in ("limit_exceeded", "too_large")


def test_the_cost_of_a_command_does_not_depend_on_the_amount_of_data(
    package_log: PackageLog,
) -> None:
    """The largest: a clone, sixteen levels deep, with everything that a revision may carry."""
    base = package_log.published(package="base", files=files(a="1"))
    deep = "/".join("abcdefghijklmnop")
    commits = []
    submit = package_log.control._submit

    def watched(commit: Any) -> Any:
        commits.append(commit)
        return submit(commit)

    package_log.control._submit = watched
    package_log.published(package=deep, task=Clone(base), files=files(a="2"))

    costs = [SCHEMA.cost(commit) for commit in commits]
    assert max(costs) < COST_MAX / 2
    assert max(costs[1:]) <= 20


def test_every_fact_has_an_audit_word_and_every_slice_a_fact() -> None:
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


def test_lists_a_packages_history_over_its_revisions(package_log: PackageLog) -> None:
    first = package_log.published("v1")
    package_log.published("v2", task=Edit(first))

    events = package_log.store.read(history_of_package("blueprints/web")).events
    steps = timeline(SCHEMA.vocabulary, events)

    assert [step.revision for step in steps if step.action == "Publish"] == [1, 2]
    assert steps[0].action == "Start-package"


def test_a_time_that_steps_back_changes_no_order(package_log: PackageLog) -> None:
    name = package_log.create()
    before = package_log.version(name)
    package_log.clock.advance(timedelta(hours=-1))

    package_log.propose(name)

    assert package_log.version(name) > before
    steps = package_log.timeline(name)
    assert [step.action for step in steps] == ["Create", "Propose"]
    assert steps[1].at < steps[0].at


def test_keeps_its_origin_when_tasks_are_appended(package_log: PackageLog) -> None:
    first = package_log.published()
    name = package_log.create("v2", task=Edit(first))
    seen: dict[str, Any] = {
        "name": name,
        "by": AUTHOR,
        "expected_version": package_log.version(name),
    }
    two = (Edit(first), Edit(first), Edit(first))

    refused(package_log, TooManyTasks, UpdateRevision(tasks=two, **seen))
    refused(package_log, OriginFixed, UpdateRevision(tasks=(Edit(first), Init()), **seen))


def test_refuses_a_malformed_name_before_anything_is_read(package_log: PackageLog) -> None:
    for command in (ProposeRevision, ProposeDeletion, DeleteRevision, UpdateRevision):
        refused(package_log, InvalidName, command(name="a/../b", by=AUTHOR))
    with pytest.raises(InvalidName):
        revision_key("x")
