"""Leaders on every engine: one at a time, and an old leader commits nothing after the next took
over.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.rows.registry import T0
from tidegate.clock import ManualClock
from tidegate.control.leaders import Leader
from tidegate.errors import LeaseLost, VersionConflict
from tidegate.kernel.leases import Leases, leader_key
from tidegate.kernel.model import Commit, Receipt
from tidegate.kernel.store import Store

SECONDS = 10.0


class Process:
    """One candidate, with a wall clock and a monotonic clock of its own."""

    def __init__(self, store: Store, job: str) -> None:
        self.store = store
        self.clock = ManualClock(T0)
        self.seconds = 0.0
        self.leader = Leader(
            Leases(store), job, self.clock, seconds=SECONDS, monotonic=lambda: self.seconds
        )

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.advance(timedelta(seconds=seconds))

    def commit(self) -> object:
        (outcome,) = self.store.commit(Commit(T0, writes=(self.leader.fence,)))
        return outcome


@pytest.fixture
def first(store: Store, id: str) -> Process:
    return Process(store, id)


@pytest.fixture
def second(store: Store, id: str) -> Process:
    return Process(store, id)


def test_one_of_two_candidates_leads_until_its_term_ends(first: Process, second: Process) -> None:
    assert first.leader.lead()
    assert not second.leader.lead()
    second.wait(SECONDS)

    assert second.leader.lead()
    assert isinstance(second.commit(), Receipt)


def test_a_leader_that_was_paused_commits_nothing_after_the_next_one_took_over(
    first: Process, second: Process
) -> None:
    first.leader.lead()
    second.wait(SECONDS)
    second.leader.lead()

    assert isinstance(first.commit(), VersionConflict)  # its own clocks did not advance


def test_a_term_ends_by_the_monotonic_clock_and_not_by_the_wall_clock(first: Process) -> None:
    first.leader.lead()
    first.clock.advance(timedelta(hours=-1))
    first.seconds += SECONDS

    assert first.leader.seconds_left == 0
    with pytest.raises(LeaseLost):
        _ = first.leader.fence
    with pytest.raises(LeaseLost):
        _ = first.leader.token


def test_renews_before_half_of_its_term_is_over_and_keeps_its_token(
    first: Process, second: Process
) -> None:
    first.leader.lead()
    token = first.leader.token
    for _ in range(5):
        first.wait(SECONDS * 0.6)
        second.wait(SECONDS * 0.6)
        assert first.leader.lead()
        assert not second.leader.lead()

    assert first.leader.token == token
    assert isinstance(first.commit(), Receipt)


def test_a_second_term_has_another_token(first: Process, second: Process) -> None:
    first.leader.lead()
    token = first.leader.token
    for process in (first, second):
        process.wait(SECONDS)
    second.leader.lead()
    assert not first.leader.lead()
    for process in (first, second):
        process.wait(SECONDS)

    assert first.leader.lead()
    assert first.leader.token != token


def test_another_candidate_can_lead_as_soon_as_the_leader_resigns(
    first: Process, second: Process, id: str
) -> None:
    first.leader.lead()
    first.leader.resign()

    assert second.leader.lead()
    assert first.store.get(leader_key(id)) != (None,)
    with pytest.raises(LeaseLost):
        _ = first.leader.token
