"""Channels: their machine pair by pair, and what operators may ask of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, get_args

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.memory_fleet import CHANNEL, PACKAGE, Voyage
from tests.domain.registry import OfferRelease, digest_of, offer_release, operator
from tidegate.domain.channels.facts import (
    ChannelCreated,
    ChannelEdge,
    ChannelEdited,
    ChannelHeld,
    ChannelPolicy,
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
from tidegate.domain.channels.transitions import TABLE, ChannelEvent
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts.refusals import HostNotInRollout, RolloutUnknown
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.outbox.facts import IntentRequested
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.releases.slices import OPERATIONS_MAX
from tidegate.domain.rollouts.clearance import WAIVED_MAX, ClearRollout, clear_rollout
from tidegate.domain.rollouts.facts import (
    OpenedWave,
    RolloutOpened,
    RolloutTransitioned,
    SuccessorOpened,
)
from tidegate.domain.rollouts.promotion import PromotionResult, promote_release
from tidegate.domain.rollouts.states import Clearance, RolloutState
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
    ChannelHeld(channel=CHANNEL, at=T0, **WHO),
    ChannelUnheld(channel=CHANNEL, at=T0, **WHO),
    opening(FIRST),
    opening(SECOND),
    succeeded(),
    succeeded("web-stable@web.0"),
    *(becomes(state) for state in RolloutState),
    becomes(RolloutState.PRUNED, "web-stable@web.0"),
]


@pytest.mark.req("RO-2", **pure)
@pytest.mark.parametrize(("state", "kind"), list(product(ChannelState, get_args(ChannelEvent))))
def test_accepts_exactly_the_pairs_of_its_table(state: ChannelState, kind: type[Struct]) -> None:
    assert {state_of(channel) for channel in SITUATIONS} == set(ChannelState) == set(TABLE)
    assert {type(event) for event in EVENTS} == set(get_args(ChannelEvent))
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
def test_expects_the_end_of_the_rollout_that_it_has_whatever_its_state(state: RolloutState) -> None:
    """Terminal, Reverted and Failed ones must be superseded too; only what is over need not."""
    channel = after(opening(FIRST), becomes(state))

    if state in (RolloutState.SUPERSEDED, RolloutState.PRUNED):
        assert step(channel, opening(SECOND), T0).active_rollout_id == SECOND
    else:
        with pytest.raises(SupersessionExpected) as refusal:
            step(channel, opening(SECOND), T0)
        assert refusal.value.facts["active_rollout_id"] == FIRST


@pytest.mark.req("RO-5", **pure)
def test_keeps_of_its_newest_rollout_what_edges_look_at_when_it_is_pruned() -> None:
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
def voyage() -> Iterator[Voyage]:
    """Whatever a test does, the log says afterwards what the rows say."""
    sailed = Voyage(operations=("lambda_alias_update",))
    yield sailed
    assert differences(sailed.store, FOLDS) == []


def refused(voyage: Voyage, error: type[TidegateError], item: Slice, command: Struct) -> None:
    before = voyage.head
    with pytest.raises(error):
        voyage.execute(item, command)
    assert voyage.head == before


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
def test_creates_no_channel_that_could_not_work(voyage: Voyage, changes: dict[str, Any]) -> None:
    before = voyage.head
    with pytest.raises(TidegateError) as refusal:
        voyage.execute(create_channel, creation(**changes))
    assert refusal.value.code in ("invalid_input", "invalid_selector", "malformed_policy")
    assert voyage.head == before


def test_creates_a_channel_once_and_edits_it_afterwards(voyage: Voyage) -> None:
    seen = voyage.fleet_version()
    command = creation(fleet_version=seen)
    voyage.execute(create_channel, command)

    seen = voyage.fleet_version()
    assert voyage.execute(create_channel, replace(command, fleet_version=seen)).facts == ()
    refused(voyage, StaleVersion, create_channel, command)
    other = replace(command, selector="*", fleet_version=seen)
    refused(voyage, ChannelExists, create_channel, other)
    waits = ChannelPolicy(edges=(ChannelEdge("web-stable"),))
    edit = EditChannel(
        channel="web-beta", selector="*", policy=waits, operator="user_1", fleet_version=seen
    )
    voyage.execute(edit_channel, edit)
    assert voyage.channel("web-beta").policy.edges == (ChannelEdge("web-stable"),)
    seen = voyage.fleet_version()
    assert voyage.execute(edit_channel, replace(edit, fleet_version=seen)).facts == ()
    nowhere = replace(edit, channel="nowhere", fleet_version=seen)
    refused(voyage, ChannelNotFound, edit_channel, nowhere)


def test_holds_a_channel_until_it_is_let_go(voyage: Voyage) -> None:
    voyage.execute(hold_channel, HoldChannel(channel=CHANNEL, **WHO))
    assert voyage.execute(hold_channel, HoldChannel(channel=CHANNEL, **WHO)).facts == ()
    assert voyage.channel().held_reason == "somebody asked"
    with pytest.raises(ChannelOnHold):
        voyage.promote("web.1", 1)

    voyage.execute(unhold_channel, UnholdChannel(channel=CHANNEL, **WHO))
    assert voyage.execute(unhold_channel, UnholdChannel(channel=CHANNEL, **WHO)).facts == ()
    voyage.promote("web.1", 1)
    refused(voyage, ChannelNotFound, hold_channel, HoldChannel(channel="nowhere", **WHO))
    refused(
        voyage, InvalidInput, hold_channel, HoldChannel(channel=CHANNEL, operator="x", reason=" ")
    )


def test_freezes_channels_and_thaws_them(voyage: Voyage) -> None:
    until = voyage.clock.now + timedelta(days=2)
    command = StartFreeze(freeze_id="weekend", channels=(CHANNEL,), until=until, **WHO)
    voyage.execute(start_freeze, command)

    row = voyage.row(freeze_key("weekend"), Freeze)
    assert (row.channels, row.until, row.reason) == ((CHANNEL,), until, "somebody asked")
    assert voyage.execute(start_freeze, command).facts == ()
    refused(voyage, FreezeExists, start_freeze, replace(command, channels=()))
    for changes, error in (
        ({"freeze_id": "x", "channels": ("nowhere",)}, ChannelNotFound),
        ({"freeze_id": "x", "until": voyage.clock.now}, InvalidInput),
        ({"freeze_id": "X!"}, InvalidInput),
        ({"freeze_id": "x", "channels": (CHANNEL, CHANNEL)}, InvalidInput),
        ({"freeze_id": "x", "reason": ""}, InvalidInput),
        ({"freeze_id": "x", "channels": tuple(f"c{n}" for n in range(101))}, LimitExceeded),
    ):
        refused(voyage, error, start_freeze, replace(command, **changes))
    voyage.execute(end_freeze, EndFreeze(freeze_id="weekend", **WHO))
    assert voyage.store.range(FREEZES.name, limit=1) == ()
    refused(voyage, FreezeNotFound, end_freeze, EndFreeze(freeze_id="weekend", **WHO))


@pytest.mark.req("RO-10", **pure)
def test_lifts_a_quarantine_and_dispatches_again(voyage: Voyage) -> None:
    rollout_id = voyage.promote("web.1", 1)
    voyage.start(rollout_id, "w0-0")
    voyage.fail(rollout_id, "w0-0")
    voyage.revert(rollout_id, "w0-0")
    lift = LiftQuarantine(channel=CHANNEL, closure_hash=digest_of("web.1"), **WHO)
    voyage.execute(lift_quarantine, lift)

    assert voyage.orchard.row(quarantine_key(CHANNEL, digest_of("web.1"))) is None
    refused(voyage, QuarantineNotFound, lift_quarantine, lift)
    assert voyage.promote("web.1", 1) == "web-stable@web.1~2"
    assert len(voyage.events(QuarantineLifted)) == 1


# ── promotion ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-4", "RO-6", **pure)
def test_promotes_in_one_commit_the_end_of_the_old_before_the_new(voyage: Voyage) -> None:
    first = voyage.promote("web.1", 1)
    assert voyage.row(actual_key(CHANNEL), Actual).version == 0
    before, commits = voyage.head, len(voyage.orchard.desk.commits)
    voyage.execute(offer_release, OfferRelease("web.2", digest_of("web.2")))
    outcome = voyage.execute(promote_release, voyage.promotion("web.2", 2))

    assert decode(outcome.answer, PromotionResult) == PromotionResult(SECOND, first)
    assert len(voyage.orchard.desk.commits) == commits + 2  # the offer is one of them
    assert voyage.types_since(before)[1:] == [
        "ReleaseTransitioned",
        "IntentRequested",
        "IntentSuperseded",
        "SuccessorOpened",
        "RolloutTransitioned",
        "RolloutConcluded",
        "RolloutOpened",
    ]
    actual = voyage.row(actual_key(CHANNEL), Actual)
    assert (actual.pinned_release_id, actual.previous_release_id) == ("web.2", "web.1")
    assert [fact.operation for fact in voyage.events(IntentRequested)] == [
        "lambda_alias_update"
    ] * 2
    assert voyage.rollout(SECOND).previous_ref == "web.1"


def test_promotes_with_as_much_owed_as_allowed_within_the_cost_of_a_commit() -> None:
    voyage = Voyage(operations=tuple(f"operation_{n}" for n in range(OPERATIONS_MAX)))
    for release in ("web.1", "web.2", "web.3"):
        voyage.promote(release, 1)

    assert len(voyage.events(IntentRequested)) == 3 * OPERATIONS_MAX
    dearest = max(voyage.store.schema.cost(commit) for commit in voyage.orchard.desk.commits)
    assert dearest < COST_MAX, "and one more for its idempotency key"


def test_repeats_a_promotion_without_doing_it_twice(voyage: Voyage) -> None:
    voyage.execute(offer_release, OfferRelease("web.1", digest_of("web.1")))
    command = voyage.promotion("web.1", 1)
    voyage.execute(promote_release, command)
    before = voyage.head

    again = voyage.execute(promote_release, command)
    planned_anew = voyage.execute(promote_release, replace(command, supersedes=FIRST))
    assert (again.facts, planned_anew.facts, voyage.head) == ((), (), before)
    assert decode(again.answer, PromotionResult) == PromotionResult()


def test_refuses_a_promotion_that_its_channel_or_plan_does_not_allow(voyage: Voyage) -> None:
    first = voyage.promote("web.1", 1)
    for release in ("web.2", "api.2"):
        voyage.execute(offer_release, OfferRelease(release, digest_of(release)))
    good = voyage.promotion("web.2", 1)
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
        refused(voyage, error, promote_release, replace(good, **changes))
    other = voyage.promotion("api.2", 1)
    refused(voyage, WrongPackage, promote_release, other)
    refused(voyage, AlreadyPromoted, promote_release, voyage.promotion("web.1", 1))
    assert voyage.channel().active_rollout_id == first


def test_plans_again_when_another_promotion_was_faster(voyage: Voyage) -> None:
    voyage.promote("web.1", 1)
    for release in ("web.2", "web.3"):
        voyage.execute(offer_release, OfferRelease(release, digest_of(release)))
    slow, fast = voyage.promotion("web.2", 1), voyage.promotion("web.3", 1)
    voyage.orchard.desk.before.append(lambda: voyage.orchard.rival().execute(promote_release, fast))

    with pytest.raises((StaleVersion, PlanOutdated)):
        voyage.execute(promote_release, slow)
    assert voyage.channel().active_rollout_id == "web-stable@web.3"


@pytest.mark.req("RO-9", "RO-22", **pure)
def test_gives_one_release_on_two_channels_two_rollouts(voyage: Voyage) -> None:
    voyage.create("web-canary")
    ids = {voyage.promote("web.1", 1, channel=name) for name in (CHANNEL, "web-canary")}

    assert ids == {"web-stable@web.1", "web-canary@web.1"}


def test_rolls_back_to_the_release_before_as_a_new_rollout(voyage: Voyage) -> None:
    first = voyage.promote("web.1", 1)
    voyage.reach(first, "w0-0")
    bad = voyage.promote("web.2", 1)
    voyage.start(bad, "w0-0")
    voyage.fail(bad, "w0-0")
    voyage.revert(bad, "w0-0")
    actual = voyage.row(actual_key(CHANNEL), Actual)
    assert actual.pinned_release_id == "web.2", "a rollout that was reverted moves no pin"
    assert actual.previous_release_id is not None

    back = voyage.promote(actual.previous_release_id, 1)
    voyage.reach(back, "w0-0")
    assert (back, voyage.state(back)) == ("web-stable@web.1~2", RolloutState.TERMINAL)
    assert voyage.rollout(bad).superseded_by == back


# ── clearance ─────────────────────────────────────────────────────────────────────────────────────


def test_refuses_a_clearance_that_says_too_little_or_names_the_wrong_hosts(voyage: Voyage) -> None:
    rollout_id = voyage.promote("web.1", 2)
    voyage.reach(rollout_id, "w0-1")
    voyage.start(rollout_id, "w0-0")
    good = ClearRollout(rollout_id=rollout_id, mode=Clearance.WAIVE, host_ids=("w0-0",), **WHO)
    refused(voyage, IllegalTransition, clear_rollout, good)
    voyage.fail(rollout_id, "w0-0")
    voyage.revert(rollout_id, "w0-0")

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
        refused(voyage, error, clear_rollout, command)
    voyage.execute(clear_rollout, good)
    refused(voyage, IllegalTransition, clear_rollout, resume)


def test_waives_as_many_hosts_at_once_as_it_says_within_the_cost_of_a_commit() -> None:
    """The runtime checks the cost of each commit; the most that one waiver may name must fit."""
    voyage = Voyage()
    rollout_id = voyage.promote("web.1", 3 * WAIVED_MAX)
    hosts = [f"w0-{n}" for n in range(2 * WAIVED_MAX)]
    voyage.start(rollout_id, *hosts)
    voyage.fail(rollout_id, *hosts)
    voyage.revert(rollout_id, *hosts)
    voyage.clear(rollout_id, Clearance.WAIVE, *hosts[:WAIVED_MAX])
    assert voyage.state(rollout_id) is RolloutState.REVERTED
    assert voyage.tally(rollout_id).halted_at is not None

    voyage.clear(rollout_id, Clearance.WAIVE, *hosts[WAIVED_MAX:])
    assert voyage.state(rollout_id) is RolloutState.ACTIVE
    assert voyage.tally(rollout_id).halted_at is None
    assert differences(voyage.store, FOLDS) == []
