"""A whole package at once: a plan that deletes it, an import that brings it, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, SCHEMA, Depot, direct, files
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


@pytest.fixture
def depot() -> Depot:
    depot = Depot()
    depot.repository()
    return depot


def planned(depot: Depot, package: str = WEB, by: str = OPERATOR) -> DeletePackage:
    return DeletePackage(package=package, by=by, revisions=plan_deletion(depot.store, package))


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


def refused(depot: Depot, error: type[TidegateError], command: Any) -> TidegateError:
    before = len(depot.log())
    with pytest.raises(error) as refusal:
        depot.run(command)
    assert len(depot.log()) == before
    return refusal.value


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────


def test_deletes_a_package_with_all_its_revisions_in_one_commit(depot: Depot) -> None:
    """packages.md §6 #11: "`delete-package` = all-or-nothing plan"."""
    first = depot.published("v1")
    names = [first, *(depot.published(f"v{n}", task=Edit(first)) for n in (2, 3))]
    for name in names:
        depot.propose_deletion(name)
    names.append(depot.create("v4", task=Edit(first)))
    before = len(depot.log())

    outcome = depot.run(planned(depot))

    assert outcome.receipt is not None
    assert [type(fact).__name__ for fact in outcome.facts] == [
        *["RevisionDeleted"] * 4,
        "PackageEmptied",
    ]
    assert len(depot.log()) == before + 5
    assert [depot.find(name) for name in names] == [None] * 4
    package = depot.package(WEB)
    assert (package.live, package.latest, package.last_number) == (0, None, 3)
    assert differences(depot.store, FOLDS) == []
    fresh = depot.published("v1")
    assert depot.revision(fresh).number == 4, "its numbers stay used"


def test_deletes_nothing_of_a_package_and_tells_every_reason(depot: Depot) -> None:
    first = depot.published("v1")
    second = depot.published("v2", task=Edit(first))
    held = depot.create("v3", task=Edit(first))
    depot.update(held, finalizers=("backup",))
    clone = depot.create(package="other", task=Clone(second))
    depot.propose_deletion(second)

    refusal = refused(depot, PackageNotDeletable, planned(depot))

    blockers = refusal.facts["blockers"]
    assert isinstance(blockers, tuple)
    assert len(blockers) == refusal.facts["count"] == 3
    assert f"{first} is Published; propose its deletion first" in blockers
    assert f"{second} cannot be deleted: {clone} descend from it" in blockers
    assert f"{held} waits for backup" in blockers


def test_asks_for_four_eyes_over_each_revision_of_a_plan(depot: Depot) -> None:
    depot.repository("prod", deployment=True)
    name = depot.published(repository="prod")
    depot.act(ProposeDeletion, name, OPERATOR)
    proposed = depot.create("v2", repository="prod", task=Edit(name))
    depot.propose(proposed)

    refusal = refused(depot, PackageNotDeletable, planned(depot, "prod/web"))

    assert refusal.facts["count"] == 2
    depot.reject(proposed)
    depot.run(planned(depot, "prod/web", by=REVIEWER))


def test_deletes_only_what_the_plan_was_made_from(depot: Depot) -> None:
    name = depot.create()
    plan = planned(depot)
    depot.update(name, labels={"a": "b"})
    refused(depot, StaleVersion, plan)

    plan = planned(depot)
    depot.create("v2")
    refusal = refused(depot, DeletionPlanOutdated, plan)
    assert (refusal.facts["planned"], refusal.facts["found"]) == (1, 2)

    plan = planned(depot)
    depot.delete(name)
    refused(depot, DeletionPlanOutdated, plan)


def test_refuses_a_plan_that_is_none(depot: Depot) -> None:
    name = depot.create()
    seen = PlannedDeletion(name, depot.version(name))
    many = tuple(PlannedDeletion(f"blueprints.web.w{n}", 1) for n in range(PLANNED_MAX + 1))

    def plan(*revisions: PlannedDeletion, package: str = WEB) -> DeletePackage:
        return DeletePackage(package=package, by=OPERATOR, revisions=revisions)

    refused(depot, InvalidMember, plan())
    refused(depot, InvalidMember, plan(seen, seen))
    refused(depot, InvalidMember, plan(seen, package="blueprints/other"))
    refused(depot, InvalidName, plan(PlannedDeletion("none", 1)))
    refused(depot, LimitExceeded, plan(*many))
    refused(depot, NotFound, plan(PlannedDeletion("nowhere.web.v1", 1), package="nowhere/web"))
    with pytest.raises(NotFound):
        plan_deletion(depot.store, "blueprints/none")
    for number in range(PLANNED_MAX):
        depot.create(f"w{number}")
    with pytest.raises(LimitExceeded):
        plan_deletion(depot.store, WEB)


# ── importing ─────────────────────────────────────────────────────────────────────────────────────


def test_imports_published_revisions_with_their_numbers(depot: Depot) -> None:
    """packages.md §8.5 #6: "Import path (bootstrapping from Git tags) appends events with actor
    `import` and explicit numbers; allowed only on an empty package".
    """
    outcome = depot.run(imported(2, 5, 9))

    assert outcome.receipt is not None
    for number in (2, 5, 9):
        revision = depot.revision(f"blueprints.web.v{number}")
        assert (revision.number, revision.lifecycle) == (number, Lifecycle.PUBLISHED)
        assert (revision.created_by, revision.published_by) == (IMPORT, IMPORT)
    package = depot.package(WEB)
    assert package.latest is not None
    assert (package.latest.number, package.last_number) == (9, 9)
    events = depot.store.read(history_of_package(WEB)).events
    steps = timeline(SCHEMA.vocabulary, events)
    assert [(step.action, step.by) for step in steps][:2] == [
        ("Start-package", IMPORT),
        ("Import", OPERATOR),
    ]
    assert {step.by for step in steps[2:]} == {IMPORT}
    assert differences(depot.store, FOLDS) == []
    edit = depot.published("next", task=Edit("blueprints.web.v9"))
    assert depot.revision(edit).number == 10


def test_imports_only_into_a_package_of_which_nothing_was_made_here(depot: Depot) -> None:
    depot.run(imported(1, 2))
    depot.run(imported(3))  # an import may go on
    assert depot.package(WEB).imported
    depot.create("mine", task=Edit("blueprints.web.v3"))

    refused(depot, PackageNotEmpty, imported(4))
    depot.create(package="draft")
    refused(depot, PackageNotEmpty, imported(1, package="draft"))
    assert differences(depot.store, FOLDS) == []


def test_uses_no_number_a_second_time_by_an_import(depot: Depot) -> None:
    """packages.md §9 #7: "number re-use | never"."""
    name = depot.published()
    depot.propose_deletion(name)
    depot.delete(name)

    refusal = refused(depot, NumberUsed, imported(1, 2))
    assert refusal.facts["last_number"] == 1
    depot.run(imported(2))


def test_refuses_an_import_that_is_none(depot: Depot) -> None:
    refused(depot, RepositoryNotFound, imported(1, repository="nowhere"))
    refused(depot, InvalidMember, imported())
    refused(depot, InvalidMember, imported(2, 1))
    refused(depot, InvalidMember, imported(0, 1))
    refused(depot, InvalidMember, imported(2, 2))
    refused(depot, TidegateError, imported(1, source=""))
    refused(depot, LimitExceeded, imported(*range(1, IMPORTED_MAX + 2)))
    depot.create(package="a/b")
    refused(depot, PathOverlap, imported(1, package="a"))
    depot.run(imported(1))
    again, later = (
        ImportedRevision(workspace="v1", uid="x", number=number, files=()) for number in (2, 3)
    )
    refused(depot, AlreadyExists, imported(revisions=(again,)))
    refused(depot, InvalidMember, imported(revisions=(again, later)))


@pytest.mark.parametrize("package", ["web", "/".join("abcdefghijklmnop")])
def test_takes_no_more_than_fits_into_one_commit_of_the_whole_system(package: str) -> None:
    """The most that a command may name, as deep as a path may be, with the releases of it all."""
    depot = Depot(MemoryStore(composition.SCHEMA))
    commits: list[Commit] = []
    submit = direct(depot.store)

    def watched(commit: Commit) -> Any:
        commits.append(commit)
        return submit(commit)

    depot.control = Control(depot.store, composition.FOLDS, watched, clock=depot.clock)
    depot.repository()
    depot.run(imported(*range(1, IMPORTED_MAX + 1), package=package))
    whole = f"blueprints/{package}"
    for revision in plan_deletion(depot.store, whole):
        depot.propose_deletion(revision.name)
    depot.run(planned(depot, whole))

    assert max(map(composition.SCHEMA.cost, commits)) < COST_MAX
    assert depot.package(whole).live == 0
    assert differences(depot.store, composition.FOLDS) == []


# ── owners ────────────────────────────────────────────────────────────────────────────────────────


def test_lets_an_owner_have_one_open_revision_per_package(depot: Depot) -> None:
    """packages.md §4.5 #3: "at most one open automated draft per package and owner"."""
    metadata = Metadata(owner_references=(OwnerReference("variant", "edge"),))
    first = depot.create("v1", metadata=metadata)

    with pytest.raises(OwnerBusy) as refusal:
        depot.create("v2", metadata=metadata)
    assert refusal.value.facts == {"owner": "variant/edge", "revision": first}
    depot.create("v2", package="other", metadata=metadata)
    another = Metadata(owner_references=(OwnerReference("variant", "core"),))
    depot.create("v3", metadata=another)

    depot.propose(first)
    with pytest.raises(OwnerBusy):
        depot.create("v4", metadata=metadata)
    depot.approve(first)
    second = depot.create("v4", task=Edit(first), metadata=metadata)
    depot.delete(second)
    depot.create("v5", task=Edit(first), metadata=metadata)
    assert differences(depot.store, FOLDS) == []


def test_reaps_what_is_open_in_the_name_of_an_owner_that_is_gone(depot: Depot) -> None:
    """packages.md §3.6 #2: "automatic deletion only for Draft/Proposed, by an explicit reaper
    process, never for published ones".
    """
    gone = OwnerReference("variant", "edge")
    depot.repository("prod", deployment=True)
    owned = Metadata(owner_references=(gone, OwnerReference("team", "core")))
    names = {
        state: depot.brought_to(state, f"in-{state.lower()}", metadata=owned) for state in Lifecycle
    }
    others = depot.create(
        package="other", metadata=Metadata(owner_references=owned.owner_references[1:])
    )
    protected = depot.create(repository="prod", metadata=owned)
    depot.propose(protected)

    reaped = clean_up_owner(depot.control, gone, OPERATOR)

    assert reaped.deleted == (names[Lifecycle.DRAFT], names[Lifecycle.PROPOSED])
    assert reaped.kept == (protected,)
    assert reaped.position == depot.log()[-1].position
    assert {name for name in (*names.values(), others, protected) if depot.find(name)} == {
        names[Lifecycle.PUBLISHED],
        names[Lifecycle.DELETION_PROPOSED],
        others,
        protected,
    }
    last = depot.log()[-1]
    assert (last.meta.actor, last.meta.on_behalf_of) == ("reaper", OPERATOR)
    assert clean_up_owner(depot.control, gone, OPERATOR) == Reaped((), (protected,))


def test_warns_who_descends_from_what_is_about_to_go(depot: Depot) -> None:
    """packages.md §9 #8: "source: edit yes (parity), clone/upgrade yes with warning"."""
    base = depot.published(package="base")
    depot.propose_deletion(base)

    clone = depot.create(package="mine", task=Clone(base), by=AUTHOR)
    edit = depot.create("v2", package="base", task=Edit(base))

    (created,) = (step for step in depot.timeline(clone) if step.action == "Create")
    assert created.warnings == (f"the deletion of {base} was proposed",)
    assert depot.timeline(edit)[0].warnings == ()
    assert RevisionCreated.__struct_defaults__[-1] == ()
