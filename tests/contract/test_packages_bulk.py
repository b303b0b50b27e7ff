"""A whole package in one command on every engine: deleted by a plan, imported with its numbers."""

from __future__ import annotations

import pytest

from tests.domain.package_log import OPERATOR, REVIEWER, PackageLog, files
from tidegate.control.queries.reads import Reads
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
from tidegate.kernel.model import COST_MAX

WEB = "blueprints/web"


def test_imports_and_deletes_as_many_revisions_as_one_command_may_name(
    package_log: PackageLog,
) -> None:
    """The largest allowed commit fits on every engine."""
    assert IMPORTED_MAX == PLANNED_MAX
    revisions = tuple(
        ImportedRevision(workspace=f"v{n}", uid=f"i{n}", number=n, files=files(a=str(n)))
        for n in range(1, IMPORTED_MAX + 1)
    )
    package_log.run(
        ImportPackage(
            repository="blueprints", package="web", by=OPERATOR, source="git", revisions=revisions
        )
    )
    names = [planned.name for planned in plan_deletion(Reads(package_log.store), WEB)]
    assert [package_log.revision(name).number for name in names] == list(range(1, IMPORTED_MAX + 1))
    for name in names:
        package_log.propose_deletion(name)

    plan = DeletePackage(
        package=WEB, by=REVIEWER, revisions=plan_deletion(Reads(package_log.store), WEB)
    )
    outcome = package_log.run(plan)

    assert len(outcome.facts) == PLANNED_MAX + 1 <= COST_MAX
    assert [package_log.find(name) for name in names] == [None] * PLANNED_MAX
    row = package_log.package(WEB)
    assert (row.live, row.latest, row.last_number) == (0, None, IMPORTED_MAX)


@pytest.mark.req("LC-17")
def test_deletes_all_of_a_package_or_none_of_it(package_log: PackageLog) -> None:
    first = package_log.published("v1")
    second = package_log.published("v2", task=Edit(first))
    clone = package_log.create(package="mine", task=Clone(first))
    for name in (first, second):
        package_log.propose_deletion(name)
    before = len(package_log.log())

    with pytest.raises(PackageNotDeletable) as refusal:
        package_log.run(
            DeletePackage(
                package=WEB, by=REVIEWER, revisions=plan_deletion(Reads(package_log.store), WEB)
            )
        )

    assert refusal.value.facts["count"] == 1
    assert len(package_log.log()) == before
    assert package_log.find(second) is not None
    package_log.delete(clone)
    package_log.run(
        DeletePackage(
            package=WEB, by=REVIEWER, revisions=plan_deletion(Reads(package_log.store), WEB)
        )
    )
    assert package_log.find(first) is package_log.find(second) is None
    tombstones = package_log.store.range("revision_tombstones", limit=10)
    assert len(tombstones) == 3
