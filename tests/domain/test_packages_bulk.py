"""A whole package at once: a plan that deletes it and an import that creates it, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.package_log import (
    AUTHOR,
    FOLDS,
    OPERATOR,
    REVIEWER,
    SCHEMA,
    PackageLog,
    direct,
    files,
)
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import plan_deletion
from tidegate.control.runtime import Control
from tidegate.control.storage.owner_cleanup import Reaped, clean_up_owner
from tidegate.domain import composition
from tidegate.domain.packages.bulk import (
    IMPORTED_MAX,
    PLANNED_MAX,
    DeletePackage,
    ImportedRevision,
    ImportPackage,
    PlannedDeletion,
)
from tidegate.domain.packages.deletions import ProposeDeletion
from tidegate.domain.packages.facts import (
    IMPORT,
    Clone,
    Edit,
    Metadata,
    OwnerReference,
    RevisionCreated,
)
from tidegate.domain.packages.history import history_of_package, timeline
from tidegate.domain.packages.refusals import (
    AlreadyExists,
    DeletionPlanOutdated,
    InvalidMember,
    InvalidName,
    NumberUsed,
    OwnerBusy,
    PackageNotDeletable,
    PackageNotEmpty,
    PathOverlap,
    RepositoryNotFound,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.engines.memory import MemoryStore
from tidegate.errors import LimitExceeded, NotFound, StaleVersion, TidegateError
from tidegate.kernel.model import COST_MAX, Commit
from tidegate.kernel.replay import differences

WEB = "blueprints/web"


def planned(package_log: PackageLog, package: str = WEB, by: str = OPERATOR) -> DeletePackage:
    return DeletePackage(
        package=package, by=by, revisions=plan_deletion(Reads(package_log.store), package)
    )


def imported(*numbers: int, **members: Any) -> ImportPackage:
    revisions = tuple(
        ImportedRevision(
            workspace=f"v{number}", uid=f"i{number}", number=number, files=files(a=str(number))
        )
        for number in numbers
    )
    said: dict[str, Any] = {
        "repository": "blueprints",
        "package": "web",
        "by": OPERATOR,
        "source": "git tags of web",
        "revisions": revisions,
    }
    return ImportPackage(**(said | members))


def refused(package_log: PackageLog, error: type[TidegateError], command: Any) -> TidegateError:
    before = len(package_log.log())
    with pytest.raises(error) as refusal:
        package_log.run(command)
    assert len(package_log.log()) == before
    return refusal.value


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────


def test_deletes_a_package_with_all_its_revisions_in_one_commit(package_log: PackageLog) -> None:
    first = package_log.published("v1")
    names = [first, *(package_log.published(f"v{n}", task=Edit(first)) for n in (2, 3))]
    for name in names:
        package_log.propose_deletion(name)
    names.append(package_log.create("v4", task=Edit(first)))
    before = len(package_log.log())

    outcome = package_log.run(planned(package_log))

    assert outcome.receipt is not None
    assert [type(fact).__name__ for fact in outcome.facts] == [
        *["RevisionDeleted"] * 4,
        "PackageEmptied",
    ]
    assert len(package_log.log()) == before + 5
    assert [package_log.find(name) for name in names] == [None] * 4
    package = package_log.package(WEB)
    assert (package.live, package.latest, package.last_number) == (0, None, 3)
    assert differences(package_log.store, FOLDS) == []
    fresh = package_log.published("v1")
    assert package_log.revision(fresh).number == 4, "its numbers stay used"


def test_deletes_nothing_of_a_package_and_reports_every_reason(package_log: PackageLog) -> None:
    first = package_log.published("v1")
    second = package_log.published("v2", task=Edit(first))
    held = package_log.create("v3", task=Edit(first))
    package_log.update(held, finalizers=("backup",))
    clone = package_log.create(package="other", task=Clone(second))
    package_log.propose_deletion(second)

    refusal = refused(package_log, PackageNotDeletable, planned(package_log))

    blockers = refusal.facts["blockers"]
    assert isinstance(blockers, tuple)
    assert len(blockers) == refusal.facts["count"] == 3
    assert f"{first} is Published; propose its deletion first" in blockers
    assert f"{second} cannot be deleted: {clone} descend from it" in blockers
    assert f"{held} waits for backup" in blockers


def test_requires_a_second_person_for_each_revision_of_a_plan(package_log: PackageLog) -> None:
    package_log.repository("prod", deployment=True)
    name = package_log.published(repository="prod")
    package_log.act(ProposeDeletion, name, OPERATOR)
    proposed = package_log.create("v2", repository="prod", task=Edit(name))
    package_log.propose(proposed)

    refusal = refused(package_log, PackageNotDeletable, planned(package_log, "prod/web"))

    assert refusal.facts["count"] == 2
    package_log.reject(proposed)
    package_log.run(planned(package_log, "prod/web", by=REVIEWER))


def test_deletes_only_the_revisions_that_the_plan_was_based_on(package_log: PackageLog) -> None:
    name = package_log.create()
    plan = planned(package_log)
    package_log.update(name, labels={"a": "b"})
    refused(package_log, StaleVersion, plan)

    plan = planned(package_log)
    package_log.create("v2")
    refusal = refused(package_log, DeletionPlanOutdated, plan)
    assert (refusal.facts["planned"], refusal.facts["found"]) == (1, 2)

    plan = planned(package_log)
    package_log.delete(name)
    refused(package_log, DeletionPlanOutdated, plan)


def test_refuses_a_malformed_plan(package_log: PackageLog) -> None:
    name = package_log.create()
    seen = PlannedDeletion(name, package_log.version(name))
    many = tuple(PlannedDeletion(f"blueprints.web.w{n}", 1) for n in range(PLANNED_MAX + 1))

    def plan(*revisions: PlannedDeletion, package: str = WEB) -> DeletePackage:
        return DeletePackage(package=package, by=OPERATOR, revisions=revisions)

    refused(package_log, InvalidMember, plan())
    refused(package_log, InvalidMember, plan(seen, seen))
    refused(package_log, InvalidMember, plan(seen, package="blueprints/other"))
    refused(package_log, InvalidName, plan(PlannedDeletion("none", 1)))
    refused(package_log, LimitExceeded, plan(*many))
    refused(
        package_log, NotFound, plan(PlannedDeletion("nowhere.web.v1", 1), package="nowhere/web")
    )
    with pytest.raises(NotFound):
        plan_deletion(Reads(package_log.store), "blueprints/none")
    for number in range(PLANNED_MAX):
        package_log.create(f"w{number}")
    with pytest.raises(LimitExceeded):
        plan_deletion(Reads(package_log.store), WEB)


# ── importing ─────────────────────────────────────────────────────────────────────────────────────


def test_imports_published_revisions_with_their_numbers(package_log: PackageLog) -> None:
    outcome = package_log.run(imported(2, 5, 9))

    assert outcome.receipt is not None
    for number in (2, 5, 9):
        revision = package_log.revision(f"blueprints.web.v{number}")
        assert (revision.number, revision.lifecycle) == (number, Lifecycle.PUBLISHED)
        assert (revision.created_by, revision.published_by) == (IMPORT, IMPORT)
    package = package_log.package(WEB)
    assert package.latest is not None
    assert (package.latest.number, package.last_number) == (9, 9)
    events = package_log.store.read(history_of_package(WEB)).events
    steps = timeline(SCHEMA.vocabulary, events)
    assert [(step.action, step.by) for step in steps][:2] == [
        ("Start-package", IMPORT),
        ("Import", OPERATOR),
    ]
    assert {step.by for step in steps[2:]} == {IMPORT}
    assert differences(package_log.store, FOLDS) == []
    edit = package_log.published("next", task=Edit("blueprints.web.v9"))
    assert package_log.revision(edit).number == 10


def test_imports_only_into_a_package_without_revisions_of_its_own(
    package_log: PackageLog,
) -> None:
    package_log.run(imported(1, 2))
    package_log.run(imported(3))  # an import may continue
    assert package_log.package(WEB).imported
    package_log.create("mine", task=Edit("blueprints.web.v3"))

    refused(package_log, PackageNotEmpty, imported(4))
    package_log.create(package="draft")
    refused(package_log, PackageNotEmpty, imported(1, package="draft"))
    assert differences(package_log.store, FOLDS) == []


def test_an_import_uses_no_number_twice(package_log: PackageLog) -> None:
    name = package_log.published()
    package_log.propose_deletion(name)
    package_log.delete(name)

    refusal = refused(package_log, NumberUsed, imported(1, 2))
    assert refusal.facts["last_number"] == 1
    package_log.run(imported(2))


def test_refuses_a_malformed_import(package_log: PackageLog) -> None:
    refused(package_log, RepositoryNotFound, imported(1, repository="nowhere"))
    refused(package_log, InvalidMember, imported())
    refused(package_log, InvalidMember, imported(2, 1))
    refused(package_log, InvalidMember, imported(0, 1))
    refused(package_log, InvalidMember, imported(2, 2))
    refused(package_log, TidegateError, imported(1, source=""))
    refused(package_log, LimitExceeded, imported(*range(1, IMPORTED_MAX + 2)))
    package_log.create(package="a/b")
    refused(package_log, PathOverlap, imported(1, package="a"))
    package_log.run(imported(1))
    again, later = (
        ImportedRevision(workspace="v1", uid="x", number=number, files=()) for number in (2, 3)
    )
    refused(package_log, AlreadyExists, imported(revisions=(again,)))
    refused(package_log, InvalidMember, imported(revisions=(again, later)))


@pytest.mark.parametrize("package", ["web", "/".join("abcdefghijklmnop")])
def test_the_largest_command_fits_into_one_commit_of_the_whole_system(package: str) -> None:
    """The largest command: the maximum of revisions, the deepest path, and a release of each."""
    package_log = PackageLog(MemoryStore(composition.SCHEMA))
    commits: list[Commit] = []
    submit = direct(package_log.store)

    def watched(commit: Commit) -> Any:
        commits.append(commit)
        return submit(commit)

    package_log.control = Control(
        package_log.store, composition.FOLDS, watched, clock=package_log.clock
    )
    package_log.repository()
    package_log.run(imported(*range(1, IMPORTED_MAX + 1), package=package))
    whole = f"blueprints/{package}"
    for revision in plan_deletion(Reads(package_log.store), whole):
        package_log.propose_deletion(revision.name)
    package_log.run(planned(package_log, whole))

    assert max(map(composition.SCHEMA.cost, commits)) < COST_MAX
    assert package_log.package(whole).live == 0
    assert differences(package_log.store, composition.FOLDS) == []


# ── owners ────────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_may_have_one_open_revision_per_package(package_log: PackageLog) -> None:
    metadata = Metadata(owner_references=(OwnerReference("variant", "edge"),))
    first = package_log.create("v1", metadata=metadata)

    with pytest.raises(OwnerBusy) as refusal:
        package_log.create("v2", metadata=metadata)
    assert refusal.value.facts == {"owner": "variant/edge", "revision": first}
    package_log.create("v2", package="other", metadata=metadata)
    another = Metadata(owner_references=(OwnerReference("variant", "core"),))
    package_log.create("v3", metadata=another)

    package_log.propose(first)
    with pytest.raises(OwnerBusy):
        package_log.create("v4", metadata=metadata)
    package_log.approve(first)
    second = package_log.create("v4", task=Edit(first), metadata=metadata)
    package_log.delete(second)
    package_log.create("v5", task=Edit(first), metadata=metadata)
    assert differences(package_log.store, FOLDS) == []


def test_deletes_open_revisions_of_a_deleted_owner(package_log: PackageLog) -> None:
    gone = OwnerReference("variant", "edge")
    package_log.repository("prod", deployment=True)
    owned = Metadata(owner_references=(gone, OwnerReference("team", "core")))
    names = {
        state: package_log.brought_to(state, f"in-{state.lower()}", metadata=owned)
        for state in Lifecycle
    }
    others = package_log.create(
        package="other", metadata=Metadata(owner_references=owned.owner_references[1:])
    )
    protected = package_log.create(repository="prod", metadata=owned)
    package_log.propose(protected)

    reaped = clean_up_owner(package_log.control, gone, OPERATOR)

    assert reaped.deleted == (names[Lifecycle.DRAFT], names[Lifecycle.PROPOSED])
    assert reaped.kept == (protected,)
    assert reaped.position == package_log.log()[-1].position
    assert {name for name in (*names.values(), others, protected) if package_log.find(name)} == {
        names[Lifecycle.PUBLISHED],
        names[Lifecycle.DELETION_PROPOSED],
        others,
        protected,
    }
    last = package_log.log()[-1]
    assert (last.meta.actor, last.meta.on_behalf_of) == ("reaper", OPERATOR)
    assert clean_up_owner(package_log.control, gone, OPERATOR) == Reaped((), (protected,))


def test_warns_of_revisions_that_descend_from_those_to_be_deleted(package_log: PackageLog) -> None:
    base = package_log.published(package="base")
    package_log.propose_deletion(base)

    clone = package_log.create(package="mine", task=Clone(base), by=AUTHOR)
    edit = package_log.create("v2", package="base", task=Edit(base))

    (created,) = (step for step in package_log.timeline(clone) if step.action == "Create")
    assert created.warnings == (f"the deletion of {base} was proposed",)
    assert package_log.timeline(edit)[0].warnings == ()
    assert RevisionCreated.__struct_defaults__[-1] == ()
