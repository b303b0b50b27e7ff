"""Concurrent verbs on one package wait for each other, and none of them is refused for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.approvals_at_once import APPROVALS, approve_at_once, opened_installation
from tests.contract.in_process_fleet import FleetStores
from tidegate.domain.composition import FOLDS
from tidegate.kernel.replay import differences


@pytest.mark.req("LC-8")
def test_eight_revisions_of_a_package_approved_at_once_are_all_published(
    fleet_stores: FleetStores, tmp_path: Path, rounds: int
) -> None:
    store = fleet_stores.open()
    with opened_installation(store, tmp_path) as installation:
        for turn in range(rounds):
            found = approve_at_once(installation, f"p{turn}")

            assert found.answers == ["done"] * APPROVALS
            assert sorted(found.numbers) == list(range(1, APPROVALS + 1))
    assert differences(store, FOLDS) == []
