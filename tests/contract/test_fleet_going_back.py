"""Rollbacks on every engine: a rollback takes the newest success that was not rolled back from.

Each case is a history of one channel with one host: what was promoted and how it ended, then what a
rollback takes. Promotion, dispatcher, queue and lanes work together.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tests.contract.in_process_fleet import OLD, InProcessFleet
from tests.domain.registry import OfferRelease, digest_of, offer_release
from tidegate.control.operations.promotion_planning import RollBackChannel
from tidegate.control.queries.ladder import read_ladder
from tidegate.control.runtime import Control
from tidegate.domain.channels.facts import ChannelEdge
from tidegate.domain.channels.refusals import NothingToGoBackTo, NotOnLadder
from tidegate.domain.channels.rows import Quarantined
from tidegate.domain.channels.slices import (
    HoldChannel,
    StartFreeze,
    UnholdChannel,
    hold_channel,
    start_freeze,
    unhold_channel,
)
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.facts import DispatchAck
from tidegate.domain.hosts.refusals import RolloutIsSuperseded, RolloutNotDispatchable
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.releases.refusals import StillPinned, StillRollbackTarget
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.releases.slices import RetireRelease
from tidegate.domain.rollouts.names import ref_of
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.promotion import PromotionResult
from tidegate.domain.rollouts.rows import ReleaseStanding, standing_key
from tidegate.domain.rollouts.states import RolloutState, Word
from tidegate.kernel import codec
from tidegate.kernel.model import Commit, Receipt
from tidegate.kernel.replay import differences

pytestmark = pytest.mark.in_turn

PROD, HOST = "prod", "p1"


def begin(fleet: InProcessFleet, **policy: Any) -> None:
    fleet.create(PROD, **policy)
    fleet.enroll(HOST, channel=PROD)
    fleet.offer(*(f"web.{number}" for number in range(1, 7)))


def good(fleet: InProcessFleet, release: str) -> str:
    """Promote the release, and let it succeed."""
    return finish(fleet, fleet.promote(PROD, release))


def finish(fleet: InProcessFleet, rollout_id: str) -> str:
    fleet.dispatch()
    fleet.reach(rollout_id, HOST)
    assert fleet.state(rollout_id) is RolloutState.TERMINAL
    return rollout_id


def bad(fleet: InProcessFleet, release: str) -> str:
    """Promote the release, and let its host fail and roll back."""
    rollout_id = fleet.promote(PROD, release)
    fleet.dispatch()
    fleet.fail(rollout_id, HOST)
    fleet.revert(rollout_id, HOST)
    assert fleet.state(rollout_id) is RolloutState.REVERTED
    return rollout_id


def roll_back(fleet: InProcessFleet, to: str | None = None, reason: str = "it leaks") -> str:
    """Roll the channel back, and return the rollout."""
    fleet.asked += 1
    asked = RollBackChannel(
        channel=PROD, command_id=f"back-{fleet.asked}", by="user_1", to=to, reason=reason
    )
    done = fleet.control_plane.promotions.rollback(asked)
    rollout_id = codec.decode(done.answer, PromotionResult).rollout_id
    assert rollout_id is not None
    return rollout_id


def acknowledge(fleet: InProcessFleet, rollout_id: str, host_id: str) -> None:
    target = fleet.host(rollout_id, host_id).target_closure
    said = {"target_closure": target, "current_closure_at_dispatch": OLD}
    fleet.say(DispatchAck, rollout_id, host_id, **said)


def skipped(fleet: InProcessFleet) -> dict[str, str]:
    """Return why a rollback skips each earlier release."""
    ladder = read_ladder(fleet.control_plane.fleet_reader, PROD)
    return {item.rung.release_id: item.skipped for item in ladder.rungs}


def check_replay(fleet: InProcessFleet) -> None:
    assert differences(fleet.store, FOLDS) == []


# ── the histories ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("OP-4")
def test_rolls_back_from_a_release_that_is_still_rolling_out(fleet: InProcessFleet) -> None:
    begin(fleet)
    good(fleet, "web.2")
    good(fleet, "web.3")
    fleet.promote(PROD, "web.4")

    assert ref_of(roll_back(fleet)) == "web.3"
    check_replay(fleet)


@pytest.mark.req("OP-4")
def test_skips_two_bad_releases(fleet: InProcessFleet) -> None:
    """The release pinned before is bad as well, so the newest success is older."""
    begin(fleet)
    good(fleet, "web.2")
    bad(fleet, "web.3")
    bad(fleet, "web.4")

    assert ref_of(roll_back(fleet)) == "web.2"


@pytest.mark.req("OP-4", "OP-7")
def test_a_late_host_no_longer_takes_the_release_that_the_channel_leaves(
    fleet: InProcessFleet,
) -> None:
    begin(fleet)
    good(fleet, "web.1")
    left = good(fleet, "web.2")
    fleet.enroll("p2", channel=PROD)
    assert fleet.dispatch(thorough=True).ordered == 1
    order = fleet.control_plane.deliveries.poll("p2")
    assert order is not None
    fleet.wait(60)

    back = roll_back(fleet)

    with pytest.raises(RolloutIsSuperseded):
        acknowledge(fleet, left, "p2")
    assert fleet.control_plane.deliveries.poll("p2") is None
    assert fleet.dispatch(thorough=True).cancelled == 1
    fleet.dispatch()
    fleet.reach(back, HOST, "p2")
    assert fleet.state(back) is RolloutState.TERMINAL
    check_replay(fleet)


@pytest.mark.req("OP-4", "OP-7")
def test_orders_no_late_host_from_rows_that_are_older_than_a_rollback(
    fleet: InProcessFleet,
) -> None:
    begin(fleet)
    good(fleet, "web.1")
    left = good(fleet, "web.2")
    known = fleet.host(left, HOST)
    fleet.enroll("p2", channel=PROD)
    roll_back(fleet)
    command = ReserveDispatch(
        rollout_id=left,
        host_id="p2",
        target_closure=known.target_closure,
        wave=0,
        policy=known.policy,
        late=True,
    )

    answer = fleet.control_plane.record(left, reserve_dispatch, command)

    assert isinstance(answer, RolloutNotDispatchable)
    assert str(answer) == "late hosts of prod do not join prod@web.2"


@pytest.mark.req("OP-4")
def test_two_rollbacks_in_a_row_reach_an_older_release(fleet: InProcessFleet) -> None:
    """web.4 succeeded and was found bad later: no rollback returns to it."""
    begin(fleet)
    for release in ("web.2", "web.3", "web.4"):
        good(fleet, release)

    first = finish(fleet, roll_back(fleet))
    assert ref_of(first) == "web.3"
    assert "user_1 rolled back from web.4 at" in skipped(fleet)["web.4"]
    assert ref_of(roll_back(fleet)) == "web.2"
    check_replay(fleet)


@pytest.mark.req("OP-4")
def test_does_not_go_back_to_the_content_that_it_leaves(fleet: InProcessFleet) -> None:
    """web.8 was built again from the sources of web.7, so both have the same bytes."""
    begin(fleet, on_failure=OnFailure.HALT)
    for release in ("web.7", "web.8"):
        fleet.execute(offer_release, OfferRelease(release, digest_of("web.7")))
    for release in ("web.1", "web.2", "web.7", "web.8"):
        fleet.wait(60)
        good(fleet, release)

    assert skipped(fleet)["web.7"] == "web.7 has the same content as web.8"
    assert ref_of(finish(fleet, roll_back(fleet))) == "web.2"
    assert skipped(fleet)["web.7"].startswith(
        "web.7 has the same content: user_1 rolled back from web.8 at "
    )
    fleet.wait(60)
    assert ref_of(roll_back(fleet)) == "web.1"
    assert ref_of(roll_back(fleet, to="web.7")) == "web.7", "a person may still choose it"


@pytest.mark.req("OP-4")
def test_does_not_wait_for_the_first_rollback_to_end(fleet: InProcessFleet) -> None:
    begin(fleet)
    for release in ("web.2", "web.3", "web.4"):
        good(fleet, release)

    assert [ref_of(roll_back(fleet)) for _ in range(2)] == ["web.3", "web.2"]
    with pytest.raises(NothingToGoBackTo) as refused:
        roll_back(fleet)
    assert "web.2 is what prod wants now" in refused.value.detail
    assert "user_1 rolled back from web.3 at" in refused.value.detail


@pytest.mark.req("OP-4")
def test_rolls_back_to_the_target_of_an_earlier_rollback(fleet: InProcessFleet) -> None:
    begin(fleet)
    for release in ("web.2", "web.3", "web.4"):
        good(fleet, release)
    finish(fleet, roll_back(fleet))
    good(fleet, "web.5")

    assert ref_of(roll_back(fleet)) == "web.3"


@pytest.mark.req("OP-4")
def test_rolls_back_to_a_release_whose_deletion_is_proposed(fleet: InProcessFleet) -> None:
    begin(fleet)
    fleet.execute(offer_release, ending("web.2", "DeletionProposed"))
    good(fleet, "web.2")
    bad(fleet, "web.3")

    assert ref_of(roll_back(fleet)) == "web.2"


@pytest.mark.req("OP-4")
def test_a_later_success_makes_a_rolled_back_release_available_again(fleet: InProcessFleet) -> None:
    begin(fleet)
    good(fleet, "web.2")
    good(fleet, "web.3")
    finish(fleet, roll_back(fleet))
    good(fleet, "web.3")
    good(fleet, "web.4")

    assert skipped(fleet) == {"web.4": "web.4 is what prod wants now", "web.3": "", "web.2": ""}


# ── what it skips, and what it refuses ────────────────────────────────────────────────────────────


@pytest.mark.req("OP-4")
def test_explains_why_there_is_nothing_to_roll_back_to(fleet: InProcessFleet) -> None:
    begin(fleet)
    with pytest.raises(NothingToGoBackTo, match="no release has succeeded there"):
        roll_back(fleet)
    good(fleet, "web.2")
    bad(fleet, "web.3")
    quarantine(fleet, "web.2")

    with pytest.raises(NothingToGoBackTo) as refused:
        roll_back(fleet)

    assert refused.value.detail.startswith(
        "Nothing to go back to on prod: web.2 is quarantined here since 2026-05-01"
    )
    assert refused.value.detail.endswith(
        "To choose anyway: tidegate channel rollback prod --to web.2 --lift-quarantine --reason …"
    )


def quarantine(fleet: InProcessFleet, release: str) -> None:
    """Fail the release on the channel, after it had succeeded there."""
    rollout_id = bad(fleet, release)
    assert isinstance(fleet.quarantine(rollout_id), Quarantined)
    fleet.offer("web.6")
    bad(fleet, "web.6")


@pytest.mark.req("OP-4")
def test_skips_quarantined_and_deleted_releases(fleet: InProcessFleet) -> None:
    begin(fleet)
    for release in ("web.1", "web.2", "web.3", "web.4", "web.5"):
        good(fleet, release)
    fleet.execute(offer_release, ending("web.1", "Deleted"))
    quarantine(fleet, "web.4")

    found = skipped(fleet)

    assert found["web.1"] == "web.1 was deleted"
    assert "web.4 is quarantined here since" in found["web.4"]
    assert ref_of(roll_back(fleet)) == "web.5"
    assert ref_of(roll_back(fleet)) == "web.3"


def ending(release: str, lifecycle: str) -> OfferRelease:
    return OfferRelease(release, digest_of(release), lifecycle)


@pytest.mark.req("OP-5")
@pytest.mark.parametrize("lifecycle", ["DeletionProposed", "Deleted"])
def test_protects_the_releases_that_it_could_roll_back_to(
    fleet: InProcessFleet, lifecycle: str
) -> None:
    begin(fleet)
    for release in ("web.1", "web.2", "web.3", "web.4", "web.5"):
        good(fleet, release)

    with pytest.raises(StillPinned, match=r"it is what prod wants"):
        fleet.execute(offer_release, ending("web.5", lifecycle))
    for release in ("web.4", "web.3", "web.2"):
        with pytest.raises(StillRollbackTarget, match=r"prod would roll back to it") as refused:
            fleet.execute(offer_release, ending(release, lifecycle))
        assert refused.value.facts["channels"] == (PROD,)
    fleet.execute(offer_release, ending("web.1", lifecycle))
    check_replay(fleet)


def control_that_waits(fleet: InProcessFleet, meanwhile: Callable[[], object]) -> Control:
    """A second server that runs ``meanwhile`` between its first decision and the commit."""
    once = [meanwhile]

    def submit(commit: Commit) -> Future[Receipt]:
        if once:
            once.pop()()
        return fleet.control_plane.submit(commit)

    return Control(fleet.store, FOLDS, submit, clock=fleet.clock, sleep=lambda seconds: None)


@pytest.mark.req("OP-5")
@pytest.mark.parametrize("lifecycle", ["DeletionProposed", "Deleted"])
def test_a_promotion_that_commits_before_the_end_of_its_release_wins(
    fleet: InProcessFleet, lifecycle: str
) -> None:
    """The first decision to end the release found that no channel wanted it; the commit checks
    again.
    """
    begin(fleet)
    good(fleet, "web.1")
    control = control_that_waits(fleet, lambda: good(fleet, "web.2"))

    with pytest.raises(StillPinned, match=r"it is what prod wants"):
        control.execute(offer_release, ending("web.2", lifecycle))

    control = control_that_waits(fleet, lambda: good(fleet, "web.3"))
    with pytest.raises(StillRollbackTarget, match=r"prod would roll back to it"):
        control.execute(offer_release, ending("web.2", lifecycle))
    check_replay(fleet)


@pytest.mark.req("OP-5")
def test_does_not_protect_a_release_that_was_rolled_back(fleet: InProcessFleet) -> None:
    begin(fleet)
    good(fleet, "web.1")
    good(fleet, "web.2")
    roll_back(fleet)

    fleet.execute(offer_release, ending("web.2", "DeletionProposed"))
    check_replay(fleet)


@pytest.mark.req("OP-5")
def test_a_retired_channel_protects_no_release(fleet: InProcessFleet) -> None:
    begin(fleet)
    good(fleet, "web.1")
    good(fleet, "web.2")
    version = fleet.row(actual_key(PROD), Actual).version
    command = RetireRelease(
        scope=PROD, reason="gone", command_id="retire", by="user_1", expected_version=version
    )
    fleet.execute(BUILT_IN.retire, command)

    for release in ("web.1", "web.2"):
        fleet.execute(offer_release, ending(release, "DeletionProposed"))
    check_replay(fleet)


@pytest.mark.req("OP-4")
def test_rolls_back_to_any_named_success(fleet: InProcessFleet) -> None:
    begin(fleet)
    for release in ("web.1", "web.2", "web.3"):
        good(fleet, release)

    with pytest.raises(NotOnLadder, match=r"web\.5: it never succeeded there"):
        roll_back(fleet, to="web.5")
    with pytest.raises(NotOnLadder, match=r"web\.3: it is what prod wants now$"):
        roll_back(fleet, to="web.3")
    assert ref_of(roll_back(fleet, to="web.1")) == "web.1"


# ── how a rollback runs ───────────────────────────────────────────────────────────────────────────


@pytest.mark.req("OP-4")
def test_a_host_that_fails_during_a_rollback_stays_and_quarantines_nothing(
    fleet: InProcessFleet,
) -> None:
    """Otherwise it would return to the release that the operator rolls back from."""
    begin(fleet, on_failure=OnFailure.ROLLBACK)
    good(fleet, "web.2")
    good(fleet, "web.3")
    back = roll_back(fleet)
    fleet.dispatch()

    assert fleet.host(back, HOST).policy.on_failure is OnFailure.HALT
    fleet.fail(back, HOST)

    assert fleet.tally(back).on_failure is OnFailure.HALT
    assert fleet.state(back) is RolloutState.FAILED
    assert fleet.host(back, HOST).state is HostState.FAILED
    assert fleet.quarantine(back) is None
    check_replay(fleet)


@pytest.mark.req("OP-4", "OP-2")
def test_waits_for_no_edge_and_marks_the_old_release_bad(fleet: InProcessFleet) -> None:
    fleet.create("dev")
    begin(fleet)
    good(fleet, "web.2")
    good(fleet, "web.3")
    back = roll_back(fleet)

    standing = fleet.row(standing_key(PROD, "web.3"), ReleaseStanding)
    assert (standing.word, standing.operator) == (Word.BAD, "user_1")
    assert fleet.tally(back).edges == ()
    assert fleet.tally(back).rollback_of == "web.3"


@pytest.mark.req("OP-4")
def test_opens_on_a_held_channel_and_waits(fleet: InProcessFleet) -> None:
    begin(fleet)
    good(fleet, "web.2")
    good(fleet, "web.3")
    fleet.execute(hold_channel, HoldChannel(channel=PROD, operator="ann", reason="audit"))

    back = roll_back(fleet)

    assert fleet.control_plane.promotions.waits(PROD) == ("prod is held by ann: audit",)
    assert fleet.dispatch().ordered == 0
    fleet.execute(unhold_channel, UnholdChannel(channel=PROD, operator="ann", reason="done"))
    finish(fleet, back)


@pytest.mark.req("OP-4")
def test_waits_for_the_end_of_a_freeze(fleet: InProcessFleet) -> None:
    begin(fleet)
    good(fleet, "web.2")
    good(fleet, "web.3")
    frozen = StartFreeze(freeze_id="xmas", operator="ann", reason="holidays", channels=(PROD,))
    fleet.execute(start_freeze, frozen)

    roll_back(fleet)

    assert fleet.control_plane.promotions.waits(PROD) == ("Freeze xmas holds it",)
    assert fleet.dispatch().ordered == 0


def test_keeps_twenty_earlier_releases(fleet: InProcessFleet) -> None:
    begin(fleet)
    releases = [f"web.{number}" for number in range(1, 23)]
    fleet.offer(*releases)
    for release in releases:
        good(fleet, release)

    assert len(fleet.channel(PROD).ladder) == 20
    with pytest.raises(NotOnLadder, match=r"web\.1: it is not among the last 20 releases"):
        roll_back(fleet, to="web.1")
    assert ref_of(roll_back(fleet)) == "web.21"


def test_a_rollback_with_edges_needs_no_success_elsewhere(fleet: InProcessFleet) -> None:
    fleet.create("dev")
    fleet.enroll("d1", channel="dev")
    begin(fleet, edges=(ChannelEdge("dev"),))
    for release in ("web.1", "web.2"):
        there = fleet.promote("dev", release)
        fleet.dispatch()
        fleet.reach(there, "d1")
        good(fleet, release)

    finish(fleet, roll_back(fleet))
