"""Owners of revisions on every engine: finding revisions by owner, and deleting them after the
owner.
"""

from __future__ import annotations

import pytest

from tests.domain.package_log import OPERATOR, REVIEWER, PackageLog
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import plan_deletion
from tidegate.control.storage.owner_cleanup import Reaped, clean_up_owner
from tidegate.domain.packages.bulk import DeletePackage
from tidegate.domain.packages.facts import Edit, Metadata, OwnerReference
from tidegate.domain.packages.metadata import OWNERS_MAX
from tidegate.domain.packages.rows import REVISION_OWNERS, RevisionOwner, owner_prefix
from tidegate.kernel import codec

pytestmark = pytest.mark.in_turn

EDGE, CORE = OwnerReference("variant", "edge"), OwnerReference("acme.example/team", "c/ore")


def owned(package_log: PackageLog, owner: OwnerReference) -> list[str]:
    rows = package_log.store.range(REVISION_OWNERS.name, prefix=owner_prefix(owner.key), limit=50)
    found = [codec.decode(record.data, RevisionOwner) for record in rows]
    assert {row.owner for row in found} <= {owner.key}
    return [row.revision for row in found]


def test_finds_exactly_the_revisions_that_name_an_owner(package_log: PackageLog) -> None:
    both = package_log.create(metadata=Metadata(owner_references=(EDGE, CORE)))
    one = package_log.create(package="one", metadata=Metadata(owner_references=(EDGE,)))
    held = package_log.create(
        package="held", metadata=Metadata(finalizers=("hold",), owner_references=(EDGE,))
    )
    nobody = package_log.create(package="nobodys")

    assert owned(package_log, EDGE) == [held, one, both]
    assert owned(package_log, CORE) == [both]

    package_log.update(both, owner_references=(CORE,))
    package_log.update(nobody, owner_references=(CORE, EDGE))
    package_log.update(one, labels={"a": "b"})
    package_log.delete(held)
    assert owned(package_log, EDGE) == [held, nobody, one], "it waits for its finalizer"
    package_log.update(held, finalizers=())
    package_log.delete(one)

    assert owned(package_log, EDGE) == [nobody]
    assert owned(package_log, CORE) == [nobody, both]


def test_distinguishes_owners_whose_keys_look_alike(package_log: PackageLog) -> None:
    """Kind a/b with id c reads as kind a with id b/c: one row for both, until both are deleted."""
    left, right = OwnerReference("a.b/c", "d"), OwnerReference("a.b", "c/d")
    name = package_log.create(metadata=Metadata(owner_references=(left, right)))

    package_log.update(name, owner_references=(right,))
    assert owned(package_log, left) == [name]
    assert clean_up_owner(package_log.control, left, OPERATOR) == Reaped()
    package_log.update(name, owner_references=())

    assert owned(package_log, left) == []


@pytest.mark.req("LC-5")
def test_accepts_the_maximum_of_owners_and_replaces_them(
    package_log: PackageLog,
) -> None:
    some, others = (
        tuple(OwnerReference(kind, f"o{n}") for n in range(OWNERS_MAX)) for kind in ("a", "b")
    )
    name = package_log.create(metadata=Metadata(owner_references=some))

    package_log.update(name, owner_references=others)
    assert [owned(package_log, owner) for owner in some] == [[]] * OWNERS_MAX
    assert [owned(package_log, owner) for owner in others] == [[name]] * OWNERS_MAX
    package_log.delete(name)

    assert package_log.store.range(REVISION_OWNERS.name, limit=1) == ()


def test_deletes_drafts_and_proposals_of_an_owner_and_nothing_else(package_log: PackageLog) -> None:
    metadata = Metadata(owner_references=(EDGE,))
    published = package_log.published("v1", metadata=metadata)
    draft = package_log.create("v2", task=Edit(published), metadata=metadata)
    proposed = package_log.create(package="other", metadata=metadata)
    package_log.propose(proposed)
    core = package_log.create(package="core", metadata=Metadata(owner_references=(CORE,)))

    reaped = clean_up_owner(package_log.control, EDGE, OPERATOR)

    assert (sorted(reaped.deleted), reaped.kept) == (sorted((draft, proposed)), ())
    assert package_log.find(draft) is package_log.find(proposed) is None
    assert package_log.find(core) is not None
    assert owned(package_log, EDGE) == [published]
    assert clean_up_owner(package_log.control, EDGE, OPERATOR) == Reaped()


def test_forgets_the_owners_of_a_package_that_is_deleted_whole(package_log: PackageLog) -> None:
    metadata = Metadata(owner_references=(EDGE, CORE))
    first = package_log.published("v1", metadata=metadata)
    package_log.published("v2", task=Edit(first), metadata=metadata)
    plan = plan_deletion(Reads(package_log.store), "blueprints/web")
    for revision in plan:
        package_log.propose_deletion(revision.name)

    plan = plan_deletion(Reads(package_log.store), "blueprints/web")
    package_log.run(DeletePackage(package="blueprints/web", by=REVIEWER, revisions=plan))

    assert package_log.store.range(REVISION_OWNERS.name, limit=1) == ()
