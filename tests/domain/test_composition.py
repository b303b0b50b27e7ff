"""All modules of the domain together: each declared once, and each small enough to commit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tidegate.domain import composition, epochs
from tidegate.domain.channels import declarations as channels
from tidegate.domain.fleet import declarations as fleet
from tidegate.domain.hosts import declarations as hosts
from tidegate.domain.outbox import declarations as outbox
from tidegate.domain.packages import declarations as packages
from tidegate.domain.publication import declarations as publication
from tidegate.domain.releases import declarations as releases, from_packages
from tidegate.domain.rollouts import declarations as rollouts
from tidegate.errors import InvalidDefinition
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.records.records import RecordRepaired
from tidegate.kernel.store import FOLD_NUMBERS, FoldNumber

MODULES = (packages, releases, outbox, publication, hosts, rollouts, channels, fleet, epochs)


def twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def test_declares_every_fact_slice_and_collection_once() -> None:
    assert twice(item.name for item in composition.FACTS) == []
    assert twice(item.name for item in composition.SLICES) == []
    assert twice(item.command.__name__ for item in composition.SLICES) == []
    assert twice(item.name for item in composition.COLLECTIONS) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_includes_every_declaration_of_every_module(module: Any) -> None:
    for name in ("FACTS", "SLICES", "COLLECTIONS"):
        assert [
            item for item in getattr(module, name) if item not in getattr(composition, name)
        ] == []
    composed = [fold.collection for fold in composition.FOLDS.folds]
    assert [fold for fold in module.FOLDS if fold.collection not in composed] == []
    assert [fold for fold in from_packages.FOLDS if fold.collection not in composed] == []
    assert RecordRepaired.__name__ in composition.SCHEMA.vocabulary.types


def test_writes_every_folded_collection_by_one_fold() -> None:
    folded = {item.name for item in composition.COLLECTIONS if item.writers is Writers.FOLDED}

    assert sorted(fold.collection.name for fold in composition.FOLDS.folds) == sorted(folded)
    assert {item.name for item in composition.COLLECTIONS} - folded == {
        *("leases", "dispatch_queue", "host_liveness"),
        *("enrollment_tokens", "token_replay", "cert_revocations"),
        *("people", "logins", "credentials", "token_secrets", "sessions", "installation_ids"),
        *("subscription_addresses", "notifier_positions"),
    }


def test_only_the_log_is_canonical() -> None:
    """RO-8: "event_log canonical": folded rows can be rebuilt from it."""
    assert not [item.name for item in composition.COLLECTIONS if item.nature is Nature.CANONICAL]


def test_folds_every_fact_of_a_slice_into_some_row() -> None:
    written = {fact.__name__ for item in composition.SLICES for fact in item.writes}

    unread = [name for name in sorted(written) if not composition.FOLDS.of(name)]
    assert not unread, "no fold reads it: add it to the `reads` of a fold in domain/<noun>/folds.py"


def test_shows_every_collection_in_its_table() -> None:
    assert composition.__doc__ is not None
    table = composition.__doc__.split("\n\n")[1].splitlines()[1:]
    shown = [name for line in table for name in re.split(r"[ ,]+", line)[1:]]

    known = sorted(item.name for item in composition.COLLECTIONS)
    assert sorted(shown) == known, "list it in the docstring of domain/composition.py"


def test_accepts_kept_collections_of_higher_layers_and_no_duplicates() -> None:
    more = composition.compose(Collection("notes", FoldNumber))

    assert set(more.schema.collections) - set(composition.SCHEMA.collections) == {"notes"}
    assert FOLD_NUMBERS.name in more.schema.collections
    with pytest.raises(InvalidDefinition, match="leases"):
        composition.compose(Collection("leases", FoldNumber))
