"""A whole package at once on every engine: deleted by a plan, imported with its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.address import Address
from tests.domain.package_log import FOLDS, OPERATOR, REVIEWER, SCHEMA, Depot, files
from tidegate.control.queries.revisions import plan_deletion
from tidegate.domain.packages.bulk import (
    IMPORTED_MAX,
    PLANNED_MAX,
    DeletePackage,
    ImportedRevision,
    ImportPackage,
)
from tidegate.domain.packages.facts import Clone, Edit
from tidegate.domain.packages.refusals import PackageNotDeletable
from tidegate.engines.memory import MemoryStore
from tidegate.kernel.model import COST_MAX
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store

WEB = "blueprints/web"


@pytest.fixture
def depot(address: Address | None) -> Iterator[Depot]:
    store: Store = MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)
    with closing(store):
        depot = Depot(store)
        depot.repository()
        yield depot
        assert differences(store, FOLDS) == []


def test_imports_and_deletes_as_many_revisions_as_one_command_may_name(depot: Depot) -> None:
    """The commit of the most that is allowed fits on every engine."""
    assert IMPORTED_MAX == PLANNED_MAX
    revisions = tuple(
        ImportedRevision(workspace=f"v{n}", uid=f"i{n}", number=n, files=files(a=str(n)))
        for n in range(1, IMPORTED_MAX + 1)
    )
    depot.run(
        ImportPackage(
            repository="blueprints", package="web", by=OPERATOR, source="git", revisions=revisions
        )
    )
    names = [planned.name for planned in plan_deletion(depot.store, WEB)]
    assert [depot.revision(name).number for name in names] == list(range(1, IMPORTED_MAX + 1))
    for name in names:
        depot.propose_deletion(name)

    plan = DeletePackage(package=WEB, by=REVIEWER, revisions=plan_deletion(depot.store, WEB))
    outcome = depot.run(plan)

    assert len(outcome.facts) == PLANNED_MAX + 1 <= COST_MAX
    assert [depot.find(name) for name in names] == [None] * PLANNED_MAX
    row = depot.package(WEB)
    assert (row.live, row.latest, row.last_number) == (0, None, IMPORTED_MAX)


@pytest.mark.req("LC-17")
def test_deletes_all_of_a_package_or_none_of_it(depot: Depot) -> None:
    first = depot.published("v1")
    second = depot.published("v2", task=Edit(first))
    clone = depot.create(package="mine", task=Clone(first))
    for name in (first, second):
        depot.propose_deletion(name)
    before = len(depot.log())

    with pytest.raises(PackageNotDeletable) as refusal:
        depot.run(
            DeletePackage(package=WEB, by=REVIEWER, revisions=plan_deletion(depot.store, WEB))
        )

    assert refusal.value.facts["count"] == 1
    assert len(depot.log()) == before
    assert depot.find(second) is not None
    depot.delete(clone)
    depot.run(DeletePackage(package=WEB, by=REVIEWER, revisions=plan_deletion(depot.store, WEB)))
    assert depot.find(first) is depot.find(second) is None
    tombstones = depot.store.range("revision_tombstones", limit=10)
    assert len(tombstones) == 3
