"""Channels: every pair of state and event of their machine, and the commands of operators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.memory_fleet import CHANNEL, PACKAGE, MemoryFleet
from tests.domain.registry import OfferRelease, digest_of, offer_release, operator
from tidegate.domain.channels.facts import (
    ChannelCreated,
    ChannelDeleted,
    ChannelEdge,
    ChannelEdited,
    ChannelHeld,
    ChannelPolicy,
    ChannelProtection,
    ChannelProtectionSet,
    ChannelUnheld,
    QuarantineLifted,
    WaveSpec,
)
from tidegate.domain.channels.machine import state_of, step
from tidegate.domain.channels.refusals import (
    AlreadyPromoted,
    ChannelExists,
    ChannelNotFound,
    ChannelOnHold,
    FreezeExists,
    FreezeNotFound,
    PlanOutdated,
    QuarantineNotFound,
    SupersessionExpected,
    WrongPackage,
)
from tidegate.domain.channels.rows import FREEZES, Channel, Freeze, freeze_key, quarantine_key
from tidegate.domain.channels.slices import (
    CreateChannel,
    EditChannel,
    EndFreeze,
    HoldChannel,
    LiftQuarantine,
    StartFreeze,
    UnholdChannel,
    create_channel,
    edit_channel,
    end_freeze,
    hold_channel,
    lift_quarantine,
    start_freeze,
    unhold_channel,
)
from tidegate.domain.channels.states import ChannelState
from tidegate.domain.channels.stops import own_stops_key
from tidegate.domain.channels.transitions import TABLE, ChannelEvent
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.refusals import HostNotInRollout, RolloutUnknown
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.outbox.facts import IntentRequested
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.releases.slices import OPERATIONS_MAX
from tidegate.domain.rollouts.channel_deletion import DeleteChannel, delete_channel
from tidegate.domain.rollouts.clearance import WAIVED_MAX, ClearRollout, clear_rollout
from tidegate.domain.rollouts.facts import (
    HostCounts,
    OpenedWave,
    RolloutConcluded,
    RolloutOpened,
    RolloutTransitioned,
    SuccessorOpened,
)
from tidegate.domain.rollouts.promotion import PromotionResult, promote_release
from tidegate.domain.rollouts.states import Cause, Clearance, Outcome, RolloutState
from tidegate.errors import (
    ConditionFailed,
    IllegalTransition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StaleVersion,
    TidegateError,
)
from tidegate.kernel.codec import decode
from tidegate.kernel.model import COST_MAX
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice

pure = {"engines": None, "reason": "pure steps on the oracle; engines have their own suite"}

T0 = datetime(2026, 5, 1, 6, tzinfo=UTC)
FIRST, SECOND = "web-stable@web.1", "web-stable@web.2"
WHO: dict[str, Any] = {"operator": "user_1", "reason": "somebody asked"}

# ── the machine ───────────────────────────────────────────────────────────────────────────────────

CREATED = ChannelCreated(
    channel=CHANNEL,
    operator="user_1",
    at=T0,
    package=PACKAGE,
    selector="*",
    policy=ChannelPolicy(),
)


def opening(rollout_id: str) -> RolloutOpened:
    return RolloutOpened(
        rollout_id=rollout_id,
        at=T0,
        channel=CHANNEL,
        target_ref="web.1",
        target_closure="sha256:1",
        plan_digest="sha256:plan",
        waves=(OpenedWave(name="all", hosts=1),),
        on_failure=OnFailure.HALT,
        retention_seconds=1,
    )


def becomes(to: RolloutState, rollout_id: str = FIRST) -> RolloutTransitioned:
    return RolloutTransitioned(
        rollout_id=rollout_id, at=T0, from_=RolloutState.OPENING, to=to, current_wave=0
    )


def succeeded(rollout_id: str = FIRST) -> SuccessorOpened:
    return SuccessorOpened(
        superseded_rollout_id=rollout_id, successor_rollout_id="web-stable@web.9", at=T0
    )


def concluded(outcome: Outcome = Outcome.SUCCEEDED) -> RolloutConcluded:
    return RolloutConcluded(
        rollout_id=FIRST,
        at=T0,
        channel=CHANNEL,
        outcome=outcome,
        target_ref="web.1",
        target_closure="sha256:1",
        cause=Cause.PLAN,
        cause_id="sha256:plan",
        counts=HostCounts(hosts=1, converged=1),
        opened_at=T0,
    )


def after(*events: ChannelEvent) -> Channel:
    channel: Channel | None = None
    for event in (CREATED, *events):
        channel = step(channel, event, T0)
    assert channel is not None
    return channel


SITUATIONS: list[Channel | None] = [
    None,
    after(),
    after(opening(FIRST), succeeded()),
    after(opening(FIRST)),
    after(opening(FIRST), becomes(RolloutState.TERMINAL)),
]
EVENTS: list[ChannelEvent] = [
    CREATED,
    ChannelEdited(
        channel=CHANNEL, operator="user_1", at=T0, selector="a=b", policy=ChannelPolicy()
    ),
    ChannelDeleted(channel=CHANNEL, at=T0, **WHO),
    ChannelHeld(channel=CHANNEL, at=T0, **WHO),
    ChannelUnheld(channel=CHANNEL, at=T0, **WHO),
    ChannelProtectionSet(channel=CHANNEL, at=T0, protection=ChannelProtection(), **WHO),
    opening(FIRST),
    opening(SECOND),
    succeeded(),
    succeeded("web-stable@web.0"),
    *(becomes(state) for state in RolloutState),
    becomes(RolloutState.PRUNED, "web-stable@web.0"),
    *map(concluded, Outcome),
]


def test_has_an_example_of_every_state_and_every_event() -> None:
    assert {state_of(channel) for channel in SITUATIONS} == set(ChannelState) == set(TABLE)
    missing = set(get_args(ChannelEvent)) - {type(event) for event in EVENTS}
    assert not missing, "add an example of each to EVENTS"


@pytest.mark.req("RO-2", **pure)
@pytest.mark.parametrize(("state", "kind"), list(product(ChannelState, get_args(ChannelEvent))))
def test_accepts_exactly_the_pairs_of_its_table(state: ChannelState, kind: type[Struct]) -> None:
    reached, refused = set(), set()
    for channel, event in product(SITUATIONS, EVENTS):
        if state_of(channel) is state and type(event) is kind:
            try:
                reached.add(state_of(step(channel, event, T0)))
            except TidegateError as error:
                refused.add(type(error))

    if kind in TABLE[state]:
        assert reached == TABLE[state][kind]
        assert refused <= {SupersessionExpected}
    else:
        assert (reached, refused) == (set(), {IllegalTransition})


@pytest.mark.req("RO-4", **pure)
@pytest.mark.parametrize("state", list(RolloutState))
def test_requires_the_end_of_its_rollout_in_every_state(state: RolloutState) -> None:
    """Terminal, Reverted and Failed ones must be superseded too; only finished ones need not."""
    channel = after(opening(FIRST), becomes(state))

    if state in (RolloutState.SUPERSEDED, RolloutState.PRUNED):
        moved = step(channel, opening(SECOND), T0)
        assert moved is not None
        assert moved.active_rollout_id == SECOND
    else:
        with pytest.raises(SupersessionExpected) as refusal:
            step(channel, opening(SECOND), T0)
        assert refusal.value.facts["active_rollout_id"] == FIRST


@pytest.mark.req("RO-5", **pure)
def test_keeps_what_edges_read_of_its_newest_rollout_when_that_is_pruned() -> None:
    channel = after(opening(FIRST), becomes(RolloutState.TERMINAL), becomes(RolloutState.PRUNED))

    assert (channel.newest_rollout_id, channel.newest_state) == (FIRST, RolloutState.TERMINAL)
    assert (channel.active_rollout_id, channel.terminal_ref) == (None, "web.1")
    older = after(opening(FIRST), succeeded(), opening(SECOND), becomes(RolloutState.SUPERSEDED))
    assert (older.newest_state, older.active_rollout_id) == (RolloutState.OPENING, SECOND)


def test_opens_nothing_while_it_is_held() -> None:
    with pytest.raises(ChannelOnHold):
        step(after(ChannelHeld(channel=CHANNEL, at=T0, **WHO)), opening(FIRST), T0)


# ── operators ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fleet() -> Iterator[MemoryFleet]:
    """A fleet whose log, at the end of the test, must give exactly its rows."""
    sailed = MemoryFleet(operations=("lambda_alias_update",))
    yield sailed
    assert differences(sailed.store, FOLDS) == []


def refused(fleet: MemoryFleet, error: type[TidegateError], item: Slice, command: Struct) -> None:
    before = fleet.head
    with pytest.raises(error):
        fleet.execute(item, command)
    assert fleet.head == before


def creation(**changes: Any) -> CreateChannel:
    said: dict[str, Any] = {"channel": "web-beta", "package": PACKAGE, "selector": "ring=beta"}
    return CreateChannel(**(said | {"operator": "user_1", "fleet_version": 1} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"channel": "Web"},
        {"channel": ""},
        {"channel": "-a"},
        {"channel": "a" * 64},
        {"package": ""},
        {"selector": "ring=="},
        {"operator": " "},
        {"policy": ChannelPolicy(waves=(WaveSpec(percent=101),))},
        {"policy": ChannelPolicy(edges=(ChannelEdge("web-beta"),))},
        {"policy": ChannelPolicy(operations=("a", "a"))},
    ],
)
def test_refuses_a_channel_that_could_not_work(fleet: MemoryFleet, changes: dict[str, Any]) -> None:
    before = fleet.head
    with pytest.raises(TidegateError) as refusal:
        fleet.execute(create_channel, creation(**changes))
    assert refusal.value.code in ("invalid_input", "invalid_selector", "malformed_policy")
    assert fleet.head == before


def test_creates_a_channel_once_and_edits_it_afterwards(fleet: MemoryFleet) -> None:
    seen = fleet.fleet_version()
    command = creation(fleet_version=seen)
    fleet.execute(create_channel, command)

    seen = fleet.fleet_version()
    assert fleet.execute(create_channel, replace(command, fleet_version=seen)).facts == ()
    refused(fleet, StaleVersion, create_channel, command)
    other = replace(command, selector="*", fleet_version=seen)
    refused(fleet, ChannelExists, create_channel, other)
    waits = ChannelPolicy(edges=(ChannelEdge("web-stable"),))
    edit = EditChannel(
        channel="web-beta", selector="*", policy=waits, operator="user_1", fleet_version=seen
    )
    fleet.execute(edit_channel, edit)
    assert fleet.channel("web-beta").policy.edges == (ChannelEdge("web-stable"),)
    seen = fleet.fleet_version()
    assert fleet.execute(edit_channel, replace(edit, fleet_version=seen)).facts == ()
    nowhere = replace(edit, channel="nowhere", fleet_version=seen)
    refused(fleet, ChannelNotFound, edit_channel, nowhere)


def test_holds_a_channel_until_the_hold_is_released(fleet: MemoryFleet) -> None:
    fleet.execute(hold_channel, HoldChannel(channel=CHANNEL, **WHO))
    assert fleet.execute(hold_channel, HoldChannel(channel=CHANNEL, **WHO)).facts == ()
    assert fleet.channel().held_reason == "somebody asked"
    with pytest.raises(ChannelOnHold):
        fleet.promote("web.1", 1)

    fleet.execute(unhold_channel, UnholdChannel(channel=CHANNEL, **WHO))
    assert fleet.execute(unhold_channel, UnholdChannel(channel=CHANNEL, **WHO)).facts == ()
    fleet.promote("web.1", 1)
    refused(fleet, ChannelNotFound, hold_channel, HoldChannel(channel="nowhere", **WHO))
    refused(
        fleet, InvalidInput, hold_channel, HoldChannel(channel=CHANNEL, operator="x", reason=" ")
    )


def test_freezes_channels_and_ends_the_freeze(fleet: MemoryFleet) -> None:
    until = fleet.clock.now + timedelta(days=2)
    command = StartFreeze(freeze_id="weekend", channels=(CHANNEL,), until=until, **WHO)
    fleet.execute(start_freeze, command)

    row = fleet.row(freeze_key("weekend"), Freeze)
    assert (row.channels, row.until, row.reason) == ((CHANNEL,), until, "somebody asked")
    assert fleet.execute(start_freeze, command).facts == ()
    refused(fleet, FreezeExists, start_freeze, replace(command, channels=()))
    for changes, error in (
        ({"freeze_id": "x", "channels": ("nowhere",)}, ChannelNotFound),
        ({"freeze_id": "x", "until": fleet.clock.now}, InvalidInput),
        ({"freeze_id": "X!"}, InvalidInput),
        ({"freeze_id": "x", "channels": (CHANNEL, CHANNEL)}, InvalidInput),
        ({"freeze_id": "x", "reason": ""}, InvalidInput),
        ({"freeze_id": "x", "channels": tuple(f"c{n}" for n in range(101))}, LimitExceeded),
    ):
        refused(fleet, error, start_freeze, replace(command, **changes))
    fleet.execute(end_freeze, EndFreeze(freeze_id="weekend", **WHO))
    assert fleet.store.range(FREEZES.name, limit=1) == ()
    refused(fleet, FreezeNotFound, end_freeze, EndFreeze(freeze_id="weekend", **WHO))


def test_the_end_of_a_freeze_does_not_restore_a_deleted_channel(fleet: MemoryFleet) -> None:
    """Only an expired freeze allows its channel to be deleted; someone ends the freeze later."""
    fleet.create("web-beta")
    until = fleet.clock.now + timedelta(days=2)
    named = (CHANNEL, "web-beta")
    fleet.execute(
        start_freeze, StartFreeze(freeze_id="weekend", channels=named, until=until, **WHO)
    )
    fleet.clock.advance(timedelta(days=3))
    fleet.execute(delete_channel, DeleteChannel(channel="web-beta", command_id="gone", **WHO))

    fleet.execute(end_freeze, EndFreeze(freeze_id="weekend", **WHO))

    kept, gone = (fleet.sample.row(own_stops_key(name)) for name in named)
    assert (kept is None, gone) == (False, None)
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("RO-10", **pure)
def test_lifts_a_quarantine_and_dispatches_again(fleet: MemoryFleet) -> None:
    rollout_id = fleet.promote("web.1", 1)
    fleet.start(rollout_id, "w0-0")
    fleet.fail(rollout_id, "w0-0")
    fleet.revert(rollout_id, "w0-0")
    lift = LiftQuarantine(channel=CHANNEL, closure_hash=digest_of("web.1"), **WHO)
    fleet.execute(lift_quarantine, lift)

    assert fleet.sample.row(quarantine_key(CHANNEL, digest_of("web.1"))) is None
    refused(fleet, QuarantineNotFound, lift_quarantine, lift)
    assert fleet.promote("web.1", 1) == "web-stable@web.1~2"
    assert len(fleet.events(QuarantineLifted)) == 1


# ── promotion ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-4", "RO-6", **pure)
def test_promotes_in_one_commit_the_end_of_the_old_before_the_new(fleet: MemoryFleet) -> None:
    first = fleet.promote("web.1", 1)
    assert fleet.row(actual_key(CHANNEL), Actual).version == 0
    before, commits = fleet.head, len(fleet.sample.committer.commits)
    fleet.execute(offer_release, OfferRelease("web.2", digest_of("web.2")))
    outcome = fleet.execute(promote_release, fleet.promotion("web.2", 2))

    assert decode(outcome.answer, PromotionResult) == PromotionResult(SECOND, first)
    assert len(fleet.sample.committer.commits) == commits + 2  # the offer is one of them
    assert fleet.types_since(before)[1:] == [
        "ReleaseTransitioned",
        "IntentRequested",
        "IntentSuperseded",
        "SuccessorOpened",
        "RolloutTransitioned",
        "RolloutConcluded",
        "RolloutOpened",
    ]
    actual = fleet.row(actual_key(CHANNEL), Actual)
    assert (actual.pinned_release_id, actual.previous_release_id) == ("web.2", "web.1")
    assert [fact.operation for fact in fleet.events(IntentRequested)] == ["lambda_alias_update"] * 2
    assert fleet.rollout(SECOND).previous_ref == "web.1"


def test_the_largest_promotion_fits_into_a_commit() -> None:
    fleet = MemoryFleet(operations=tuple(f"operation_{n}" for n in range(OPERATIONS_MAX)))
    for release in ("web.1", "web.2", "web.3"):
        fleet.promote(release, 1)

    assert len(fleet.events(IntentRequested)) == 3 * OPERATIONS_MAX
    dearest = max(fleet.store.schema.cost(commit) for commit in fleet.sample.committer.commits)
    assert dearest < COST_MAX, "and one more for its idempotency key"


def test_a_repeated_promotion_happens_once(fleet: MemoryFleet) -> None:
    fleet.execute(offer_release, OfferRelease("web.1", digest_of("web.1")))
    command = fleet.promotion("web.1", 1)
    fleet.execute(promote_release, command)
    before = fleet.head

    again = fleet.execute(promote_release, command)
    planned_anew = fleet.execute(promote_release, replace(command, supersedes=FIRST))
    assert (again.facts, planned_anew.facts, fleet.head) == ((), (), before)
    assert decode(again.answer, PromotionResult) == PromotionResult()


def test_refuses_a_promotion_that_its_channel_or_plan_does_not_allow(fleet: MemoryFleet) -> None:
    first = fleet.promote("web.1", 1)
    for release in ("web.2", "api.2"):
        fleet.execute(offer_release, OfferRelease(release, digest_of(release)))
    good = fleet.promotion("web.2", 1)
    for changes, error in (
        ({"channel": "nowhere", "authority": operator("web.2", "nowhere")}, NotFound),
        ({"supersedes": None}, PlanOutdated),
        ({"supersedes": "web-stable@web.0"}, PlanOutdated),
        ({"fleet_version": good.fleet_version + 1}, StaleVersion),
        ({"expected_version": 7}, StaleVersion),
        ({"expected_version": None}, ConditionFailed),
        ({"release_id": "web.9", "authority": operator("web.9", CHANNEL)}, NotFound),
        ({"waves": (OpenedWave(name="none", hosts=0),)}, InvalidInput),
        ({"waves": tuple(OpenedWave(name=f"w{n}", hosts=1) for n in range(33))}, LimitExceeded),
        ({"plan_digest": ""}, InvalidInput),
        ({"supersedes": "Nonsense"}, InvalidInput),
    ):
        refused(fleet, error, promote_release, replace(good, **changes))
    other = fleet.promotion("api.2", 1)
    refused(fleet, WrongPackage, promote_release, other)
    refused(fleet, AlreadyPromoted, promote_release, fleet.promotion("web.1", 1))
    assert fleet.channel().active_rollout_id == first


def test_requires_a_new_plan_when_another_promotion_was_faster(fleet: MemoryFleet) -> None:
    fleet.promote("web.1", 1)
    for release in ("web.2", "web.3"):
        fleet.execute(offer_release, OfferRelease(release, digest_of(release)))
    slow, fast = fleet.promotion("web.2", 1), fleet.promotion("web.3", 1)
    fleet.sample.committer.before.append(
        lambda: fleet.sample.rival().execute(promote_release, fast)
    )

    with pytest.raises((StaleVersion, PlanOutdated)):
        fleet.execute(promote_release, slow)
    assert fleet.channel().active_rollout_id == "web-stable@web.3"


@pytest.mark.req("RO-9", "RO-22", **pure)
def test_gives_one_release_on_two_channels_two_rollouts(fleet: MemoryFleet) -> None:
    fleet.create("web-canary")
    ids = {fleet.promote("web.1", 1, channel=name) for name in (CHANNEL, "web-canary")}

    assert ids == {"web-stable@web.1", "web-canary@web.1"}


def test_rolls_back_to_the_release_before_as_a_new_rollout(fleet: MemoryFleet) -> None:
    first = fleet.promote("web.1", 1)
    fleet.reach(first, "w0-0")
    bad = fleet.promote("web.2", 1)
    fleet.start(bad, "w0-0")
    fleet.fail(bad, "w0-0")
    fleet.revert(bad, "w0-0")
    actual = fleet.row(actual_key(CHANNEL), Actual)
    assert actual.pinned_release_id == "web.2", "a rollout that was reverted moves no pin"
    assert actual.previous_release_id is not None

    back = fleet.promote(actual.previous_release_id, 1)
    fleet.reach(back, "w0-0")
    assert (back, fleet.state(back)) == ("web-stable@web.1~2", RolloutState.TERMINAL)
    assert fleet.rollout(bad).superseded_by == back


# ── clearance ─────────────────────────────────────────────────────────────────────────────────────


def test_refuses_an_incomplete_clearance_or_one_that_names_the_wrong_hosts(
    fleet: MemoryFleet,
) -> None:
    rollout_id = fleet.promote("web.1", 2)
    fleet.reach(rollout_id, "w0-1")
    fleet.start(rollout_id, "w0-0")
    good = ClearRollout(rollout_id=rollout_id, mode=Clearance.WAIVE, host_ids=("w0-0",), **WHO)
    refused(fleet, IllegalTransition, clear_rollout, good)
    fleet.fail(rollout_id, "w0-0")
    fleet.revert(rollout_id, "w0-0")

    resume = replace(good, mode=Clearance.RESUME, host_ids=(), closure_hash=digest_of("web.1"))
    for command, error in (
        (replace(good, reason=" "), InvalidInput),
        (replace(good, operator=""), InvalidInput),
        (replace(good, host_ids=()), InvalidInput),
        (replace(good, host_ids=("w0-0", "w0-0")), InvalidInput),
        (replace(good, host_ids=("w0-1",)), InvalidInput),
        (replace(good, host_ids=("w0-7",)), HostNotInRollout),
        (replace(good, host_ids=tuple(f"h{n}" for n in range(WAIVED_MAX + 1))), LimitExceeded),
        (replace(good, rollout_id="web-stable@web.7"), RolloutUnknown),
        (replace(good, expected_version=1), StaleVersion),
        (replace(resume, closure_hash="sha256:another"), InvalidInput),
        (replace(resume, closure_hash=""), InvalidInput),
    ):
        refused(fleet, error, clear_rollout, command)
    fleet.execute(clear_rollout, good)
    refused(fleet, IllegalTransition, clear_rollout, resume)


def test_the_largest_waiver_fits_into_a_commit() -> None:
    """The runtime checks the cost of each commit, so the largest possible waiver must fit."""
    fleet = MemoryFleet()
    rollout_id = fleet.promote("web.1", 3 * WAIVED_MAX)
    hosts = [f"w0-{n}" for n in range(2 * WAIVED_MAX)]
    fleet.start(rollout_id, *hosts)
    fleet.fail(rollout_id, *hosts)
    fleet.revert(rollout_id, *hosts)
    fleet.clear(rollout_id, Clearance.WAIVE, *hosts[:WAIVED_MAX])
    assert fleet.state(rollout_id) is RolloutState.REVERTED
    assert fleet.tally(rollout_id).halted_at is not None

    fleet.clear(rollout_id, Clearance.WAIVE, *hosts[WAIVED_MAX:])
    assert fleet.state(rollout_id) is RolloutState.ACTIVE
    assert fleet.tally(rollout_id).halted_at is None
    assert differences(fleet.store, FOLDS) == []
