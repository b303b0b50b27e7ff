"""The public surface of the library: the names of ``import tidegate``, and the errors of its
calls.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidegate
from examples.shop import app as shop
from examples.shop.catalog import SyncProduct, sync_product
from tests.contract.world import SCHEMA, ProductAdded, Rebooted, query_of
from tidegate import Log, library
from tidegate.errors import BoundaryMoved, InvalidInput, UnfencedQuery
from tidegate.kernel.model import ALL, Check, CommitKey, Key

PRODUCT = query_of(ProductAdded, tags="product_id:p1")


def test_the_package_lists_the_names_of_the_library() -> None:
    assert tidegate.__all__ is library.__all__
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is getattr(library, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = tidegate.nothing_like_it


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, tidegate; print([n for n in sys.modules if n.startswith('tidegate.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"


def test_a_module_is_imported_without_the_library() -> None:
    code = "import sys; from tidegate import clock; print('tidegate.library' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "False"


def test_runs_slices_with_the_folds_of_their_rows() -> None:
    with Log("memory:", shop.SCHEMA, shop.FOLDS) as log:
        outcome = log.execute(sync_product, SyncProduct("prod-1", True), key="sync-1")
        again = log.execute(sync_product, SyncProduct("prod-1", True), key="sync-1")

    assert outcome.receipt is not None
    assert again.receipt is not None
    assert again.receipt.replayed


def test_follows_a_query_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "FOLLOWED_AT_ONCE", 2)
    with Log("memory:", SCHEMA) as log:
        for _ in range(5):
            log.commit(ProductAdded("p1"))
            log.commit(Rebooted())

        found = [event.position for event in log.follow(PRODUCT)]
        assert found == [1, 3, 5, 7, 9]
        assert list(log.follow(PRODUCT, after=9)) == []
        log.commit(ProductAdded("p1"))
        assert [event.position for event in log.follow(PRODUCT, after=9)] == [11]


def test_every_call_returns_what_it_promises_or_raises() -> None:
    with Log("memory:", SCHEMA) as log:
        stale = log.read(PRODUCT).boundary
        receipt = log.commit(ProductAdded("p1"), on=[stale], once=CommitKey("k", b"d", b"a"))

        assert log.head() == receipt.last
        assert [event.position for event in log.feed(limit=10)] == [receipt.first]
        with pytest.raises(BoundaryMoved) as conflict:
            log.commit(Rebooted(), on=[stale])
        assert conflict.value.clause == PRODUCT.clauses[0]
        assert conflict.value.position == receipt.last
        with pytest.raises(InvalidInput):
            log.commit(Rebooted(), writes=[Check(Key("nothing", "a"), 0)])
        with pytest.raises(UnfencedQuery):
            _ = log.read(ALL).boundary
        again = log.receipt("k")
        assert again is not None
        assert again.first == receipt.first
