"""Owners of revisions on every engine: who is found by them, and what goes when they are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.contract.address import Address
from tests.domain.package_log import FOLDS, OPERATOR, REVIEWER, SCHEMA, Depot
from tidegate.control.queries.revisions import plan_deletion
from tidegate.control.storage.owner_cleanup import Reaped, clean_up_owner
from tidegate.domain.packages.bulk import DeletePackage
from tidegate.domain.packages.facts import Edit, Metadata, OwnerReference
from tidegate.domain.packages.metadata import OWNERS_MAX
from tidegate.domain.packages.rows import REVISION_OWNERS, RevisionOwner, owner_prefix
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import codec
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store

EDGE, CORE = OwnerReference("variant", "edge"), OwnerReference("acme.example/team", "c/ore")


@pytest.fixture
def depot(address: Address | None) -> Iterator[Depot]:
    store: Store = MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)
    with closing(store):
        depot = Depot(store)
        depot.repository()
        yield depot
        assert differences(store, FOLDS) == []


def owned(depot: Depot, owner: OwnerReference) -> list[str]:
    rows = depot.store.range(REVISION_OWNERS.name, prefix=owner_prefix(owner.key), limit=50)
    found = [codec.decode(record.data, RevisionOwner) for record in rows]
    assert {row.owner for row in found} <= {owner.key}
    return [row.revision for row in found]


def test_finds_by_their_owners_what_names_them_and_nothing_else(depot: Depot) -> None:
    """packages.md §3.6 #1: "`owners[]` = {kind,id}; informational plus a filter"."""
    both = depot.create(metadata=Metadata(owner_references=(EDGE, CORE)))
    one = depot.create(package="one", metadata=Metadata(owner_references=(EDGE,)))
    held = depot.create(
        package="held", metadata=Metadata(finalizers=("hold",), owner_references=(EDGE,))
    )
    nobody = depot.create(package="nobodys")

    assert owned(depot, EDGE) == [held, one, both]
    assert owned(depot, CORE) == [both]

    depot.update(both, owner_references=(CORE,))
    depot.update(nobody, owner_references=(CORE, EDGE))
    depot.update(one, labels={"a": "b"})
    depot.delete(held)
    assert owned(depot, EDGE) == [held, nobody, one], "it waits for its finalizer"
    depot.update(held, finalizers=())
    depot.delete(one)

    assert owned(depot, EDGE) == [nobody]
    assert owned(depot, CORE) == [nobody, both]


def test_tells_owners_apart_whose_keys_read_alike(depot: Depot) -> None:
    """kind a/b with id c reads as kind a with id b/c: one row for both, until both are gone."""
    left, right = OwnerReference("a.b/c", "d"), OwnerReference("a.b", "c/d")
    name = depot.create(metadata=Metadata(owner_references=(left, right)))

    depot.update(name, owner_references=(right,))
    assert owned(depot, left) == [name]
    assert clean_up_owner(depot.control, left, OPERATOR) == Reaped()
    depot.update(name, owner_references=())

    assert owned(depot, left) == []


@pytest.mark.req("LC-5")
def test_takes_as_many_owners_as_are_allowed_and_others_in_their_place(depot: Depot) -> None:
    some, others = (
        tuple(OwnerReference(kind, f"o{n}") for n in range(OWNERS_MAX)) for kind in ("a", "b")
    )
    name = depot.create(metadata=Metadata(owner_references=some))

    depot.update(name, owner_references=others)
    assert [owned(depot, owner) for owner in some] == [[]] * OWNERS_MAX
    assert [owned(depot, owner) for owner in others] == [[name]] * OWNERS_MAX
    depot.delete(name)

    assert depot.store.range(REVISION_OWNERS.name, limit=1) == ()


def test_reaps_drafts_and_proposals_of_an_owner_and_nothing_else(depot: Depot) -> None:
    metadata = Metadata(owner_references=(EDGE,))
    published = depot.published("v1", metadata=metadata)
    draft = depot.create("v2", task=Edit(published), metadata=metadata)
    proposed = depot.create(package="other", metadata=metadata)
    depot.propose(proposed)
    core = depot.create(package="core", metadata=Metadata(owner_references=(CORE,)))

    reaped = clean_up_owner(depot.control, EDGE, OPERATOR)

    assert (sorted(reaped.deleted), reaped.kept) == (sorted((draft, proposed)), ())
    assert depot.find(draft) is depot.find(proposed) is None
    assert depot.find(core) is not None
    assert owned(depot, EDGE) == [published]
    assert clean_up_owner(depot.control, EDGE, OPERATOR) == Reaped()


def test_forgets_the_owners_of_a_package_that_is_deleted_whole(depot: Depot) -> None:
    metadata = Metadata(owner_references=(EDGE, CORE))
    first = depot.published("v1", metadata=metadata)
    depot.published("v2", task=Edit(first), metadata=metadata)
    plan = plan_deletion(depot.store, "blueprints/web")
    for revision in plan:
        depot.propose_deletion(revision.name)

    plan = plan_deletion(depot.store, "blueprints/web")
    depot.run(DeletePackage(package="blueprints/web", by=REVIEWER, revisions=plan))

    assert depot.store.range(REVISION_OWNERS.name, limit=1) == ()
