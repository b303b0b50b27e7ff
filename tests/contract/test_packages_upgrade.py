"""A log from before revisions were found by owner and author, opened by today's program.

That program had no ``revision_owners``, kept no author in an index, and its facts did not say whose
a revision had been: what came to an owner stands in the log, what was taken from one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec import Struct, structs

from tests.contract.address import Address
from tests.domain.depot import FOLDS, OPERATOR, SCHEMA, SLICE_OF, T0, Depot, direct
from tidegate.control.reaper import Reaped, reap
from tidegate.control.runtime import Control, Outcome
from tidegate.domain import packages
from tidegate.domain.packages.facts import (
    Metadata,
    OwnerReference,
    RevisionDeleted,
    RevisionMetadataChanged,
)
from tidegate.domain.packages.links import REVISION_OWNERS, RevisionOwner, owner_prefix
from tidegate.domain.packages.links import revision_owners as owners_fold
from tidegate.domain.packages.rows import REVISIONS, Revision
from tidegate.domain.packages.rows import revisions as revisions_fold
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.policy import entry
from tidegate.kernel.replay import differences, rebuild_changed
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

EDGE, CORE = OwnerReference("variant", "edge"), OwnerReference("variant", "core")


# ── the program of then ───────────────────────────────────────────────────────────────────────────


def _as_then(fact: Struct) -> Struct:
    match fact:
        case RevisionMetadataChanged():
            return structs.replace(fact, former_owners=())
        case RevisionDeleted():
            return structs.replace(fact, owners=())
    return fact


def _deciding(item: Slice) -> Slice:
    def decide(state: Any, command: Any, now: datetime) -> Sequence[Struct]:
        return tuple(_as_then(fact) for fact in item.decide(state, command, now))

    return replace(item, decide=decide)


OLD_SLICES = {command: _deciding(item) for command, item in SLICE_OF.items()}
OLD_REVISIONS = replace(
    REVISIONS,
    columns=tuple(name for name in REVISIONS.columns if name != "created_by"),
    indexes=tuple(index for index in REVISIONS.indexes if index.name != "by_author"),
)
OLD_SCHEMA = Schema(
    Vocabulary(packages.FACTS, tuple(OLD_SLICES.values())),
    tuple(
        OLD_REVISIONS if collection is REVISIONS else collection
        for collection in packages.COLLECTIONS
        if collection is not REVISION_OWNERS
    ),
)
OLD_FOLDS = Folds(
    OLD_SCHEMA,
    tuple(
        replace(fold, collection=OLD_REVISIONS, number=1) if fold is revisions_fold else fold
        for fold in packages.FOLDS
        if fold is not owners_fold
    ),
)


class OldDepot(Depot):
    """As that program wrote."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        rebuild_changed(store, OLD_FOLDS, T0)
        self.control = Control(store, OLD_FOLDS, direct(store), clock=self.clock)

    def run(self, command: Struct) -> Outcome:
        self.clock.advance(timedelta(seconds=1))
        return self.control.execute(OLD_SLICES[type(command)], command)


Open = Callable[[Schema], Store]


@pytest.fixture
def reopen(address: Address | None) -> Iterator[Open]:
    """Opens this test's log as one program after another does."""
    memory = MemoryStore(OLD_SCHEMA)
    with ExitStack() as last:

        def opened(schema: Schema) -> Store:
            last.close()
            if address is not None:
                return last.enter_context(closing(address.open(schema)))
            memory.schema = schema
            return memory

        yield opened


@pytest.fixture
def old(reopen: Open) -> OldDepot:
    depot = OldDepot(reopen(OLD_SCHEMA))
    depot.repository()
    return depot


def upgraded(reopen: Open, old: OldDepot) -> Depot:
    """Today's program on that log, as it starts."""
    store = reopen(SCHEMA)
    assert set(rebuild_changed(store, FOLDS, old.clock())) == {"revision_owners", "revisions"}
    depot = Depot(store, uids="new")
    depot.clock = depot.control.clock = old.clock
    return depot


def rows_of(depot: Depot, owner: OwnerReference) -> list[str]:
    rows = depot.store.range(REVISION_OWNERS.name, prefix=owner_prefix(owner.key), limit=50)
    return [codec.decode(record.data, RevisionOwner).revision for record in rows]


def shown(depot: Depot, owner: OwnerReference) -> list[str]:
    """The owner's, as readers find them: by these rows, then by what the revision itself says."""
    found = ((name, depot.find(name)) for name in rows_of(depot, owner))
    return [name for name, row in found if row and owner in row.metadata.owner_references]


# ── then and now ──────────────────────────────────────────────────────────────────────────────────


def test_an_old_log_gets_its_owners_when_it_is_opened(reopen: Open, old: OldDepot) -> None:
    both = old.create(metadata=Metadata(owner_references=(EDGE, CORE)))
    late = old.create(package="late")
    old.update(late, owner_references=(EDGE,))
    nobodys = old.create(package="nobodys", metadata=Metadata(labels={"a": "b"}))
    before = [codec.leaf(event) for event in old.log()]

    depot = upgraded(reopen, old)

    assert rows_of(depot, EDGE) == [late, both]
    assert rows_of(depot, CORE) == [both]
    assert rebuild_changed(depot.store, FOLDS, T0) == (), "once"
    assert differences(depot.store, FOLDS) == []
    assert [codec.leaf(event) for event in depot.log()] == before

    depot.update(both, owner_references=(CORE,))
    depot.update(nobodys, owner_references=(EDGE,))
    depot.delete(late)

    assert (rows_of(depot, EDGE), rows_of(depot, CORE)) == ([nobodys], [both])
    assert differences(depot.store, FOLDS) == []


def test_an_old_log_gets_its_authors_when_it_is_opened(reopen: Open, old: OldDepot) -> None:
    mine, other = old.create(by="user_me"), old.create(package="other", by="user_you")

    depot = upgraded(reopen, old)

    for author, name in (("user_me", mine), ("user_you", other)):
        rows = depot.store.range(REVISIONS.name, index="by_author", prefix=entry(author), limit=9)
        assert [codec.decode(record.data, Revision).name for record in rows] == [name]
    assert differences(depot.store, FOLDS) == []


def test_what_an_old_program_took_from_an_owner_is_not_shown_as_its_own(
    reopen: Open, old: OldDepot
) -> None:
    """Its facts do not say from whom: the rows stay, and nobody believes them."""
    moved = old.create(metadata=Metadata(owner_references=(EDGE,)))
    old.update(moved, owner_references=(CORE,))
    gone = old.create(package="gone", metadata=Metadata(owner_references=(EDGE,)))
    old.delete(gone)
    kept = old.create(package="kept", metadata=Metadata(owner_references=(EDGE,)))

    depot = upgraded(reopen, old)

    assert (shown(depot, EDGE), shown(depot, CORE)) == ([kept], [moved])
    assert differences(depot.store, FOLDS) == []

    again = depot.create(package="gone", metadata=Metadata(owner_references=(EDGE,)))
    assert shown(depot, EDGE) == [again, kept]
    assert reap(depot.control, EDGE, OPERATOR).deleted == (again, kept)
    assert depot.find(moved) is not None
    assert reap(depot.control, EDGE, OPERATOR) == Reaped()
    assert shown(depot, CORE) == [moved]
    assert differences(depot.store, FOLDS) == []
