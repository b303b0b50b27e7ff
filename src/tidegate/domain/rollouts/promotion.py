"""Promote: pin a channel to a release and open its rollout, in one commit.

    ReleaseRegistered | ReleaseTransitioned      the pin, by accepted evidence
    IntentRequested …                            the effects outside that the channel asks for
    SuccessorOpened(old)                         if the channel has a rollout
    RolloutOpened(new)                           by a plan that was stored as a blob before
    GateOverridden …                             the gates that a person overrides

A rollback is the same, with a release of the channel's ladder and an operator's evidence. A refresh
is the first of these facts alone: the pin stays, its evidence is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct, structs

from tidegate import decoders
from tidegate.domain.access.reasons import REASON_BYTES_MAX
from tidegate.domain.channels import (
    facts as channel_facts,
    ladder,
    refusals as channel_refusals,
    rows as channel_rows,
    slices as channel_slices,
    stops as channel_stops,
)
from tidegate.domain.channels.policy import WAVES_MAX
from tidegate.domain.fleet.rows import fleet_key
from tidegate.domain.hosts import refusals as host_refusals, states as host_states
from tidegate.domain.outbox.facts import IntentRequested
from tidegate.domain.provenance import AUTO_PROMOTE_RULES, BUILT_IN_RULES, Rules
from tidegate.domain.releases import facts as release_facts, from_packages, slices as release_slices
from tidegate.domain.rollouts import (
    facts as rollout_facts,
    names,
    rows as rollout_rows,
    states,
    tallies,
)
from tidegate.domain.windows.sentences import span_text
from tidegate.errors import InvalidInput
from tidegate.kernel import codec, model, slices as kernel_slices

DISPLAY_NAME_BYTES_MAX = 256
START_AHEAD_MAX = timedelta(days=366)
PLAN_DIGEST_BYTES_MAX = 128


class PromoteRelease(Struct, frozen=True, kw_only=True):
    """Pin a channel to a release and roll it out, by a plan that is stored already."""

    channel: str
    release_id: str
    digest: str
    authority: release_slices.Document
    command_id: str
    by: str
    plan_digest: str
    waves: tuple[rollout_facts.OpenedWave, ...]  # of the plan; none: the channel has no hosts
    empty_waves: tuple[str, ...] = ()  # that the plan left out
    expected_version: int | None = None  # of the registry's row; None: the channel's first pin
    supersedes: str | None = None  # the channel's rollout, as the planner saw it
    fleet_version: int = 0  # of the fleet's row, as the planner saw it
    rollback: bool = False  # mark the pinned release as bad
    emergency: bool = False  # of a rollback: override every gate that can be overridden
    ignore_budgets: bool = False  # of an emergency: its plan has none
    lift_quarantine: bool = False  # of the release, on this channel
    channel_version: int | None = None  # of the channel's row that the rollback was chosen from
    refresh: bool = False  # only renew the pin's evidence; no rollout opens
    overrides: tuple[states.OverridableGate, ...] = ()  # gates to override
    start_at: datetime | None = None  # no order before; None: at once
    automatic: states.PolicyAction | None = None  # None: a person promotes
    display_name: str = ""
    reason: str = ""  # for the history only


class PromotionResult(Struct, frozen=True, omit_defaults=True):
    """What a promotion led to. A repeat leads to nothing: the first request had the effect."""

    rollout_id: str | None = None
    superseded_rollout_id: str | None = None
    empty_waves: tuple[str, ...] = ()  # waves without hosts, which the plan omits


decoders.build(PromotionResult)


def rows_of_promotion(command: PromoteRelease) -> tuple[model.Key, ...]:
    """Raises: InvalidInput, LimitExceeded."""
    channel_slices.check_channel(command.channel)
    model.check_text("plan_digest", command.plan_digest, PLAN_DIGEST_BYTES_MAX)
    if command.display_name:
        model.check_text("display_name", command.display_name, DISPLAY_NAME_BYTES_MAX)
    if command.reason:
        model.check_text("reason", command.reason, REASON_BYTES_MAX)
    if (command.overrides or command.emergency) and not command.reason.strip():
        what = "an emergency rollback" if command.emergency else "an override"
        raise InvalidInput(f"{what} needs a reason", field="reason")
    if command.emergency and not command.rollback:
        raise InvalidInput("only a rollback passes every gate at once", field="emergency")
    if len(set(command.overrides)) != len(command.overrides):
        raise InvalidInput("each gate is overridden once", field="overrides")
    if command.start_at is not None and command.refresh:
        raise InvalidInput("a refresh opens no rollout; leave start_at out", field="start_at")
    model.at_most("waves of a plan", len(command.waves), WAVES_MAX)
    if any(wave.hosts < 1 for wave in command.waves):
        raise InvalidInput("a wave of a plan has hosts; empty ones are dropped", field="waves")
    rows = (
        *release_slices.rows_of_pinning(_to_pinning(command)),
        channel_rows.channel_key(command.channel),
        fleet_key(),
        channel_rows.quarantine_key(command.channel, command.digest),
        channel_rows.incarnation_key(command.channel, command.release_id),
        rollout_rows.standing_key(command.channel, command.release_id),
        *(channel_stops.stops_keys(command.channel) if command.emergency else ()),
    )
    if command.supersedes is None:
        return rows
    names.check_rollout_id(command.supersedes)
    return (*rows, rollout_rows.tally_key(command.supersedes))


def _to_pinning(command: PromoteRelease) -> release_slices.Pinning:
    """Build the registry's part of the command.

    The intents follow from the channel's policy, so they are not part of the request that
    identifies a repeat.
    """
    if command.expected_version is None:
        return release_slices.RegisterRelease(
            scope=command.channel,
            release_id=command.release_id,
            digest=command.digest,
            authority=command.authority,
            command_id=command.command_id,
            by=command.by,
        )
    return release_slices.TransitionRelease(
        scope=command.channel,
        release_id=command.release_id,
        digest=command.digest,
        authority=command.authority,
        command_id=command.command_id,
        by=command.by,
        expected_version=command.expected_version,
    )


def decide_promotion(
    rows: tuple[Any, ...], command: PromoteRelease, now: datetime, *, rules: Rules
) -> Sequence[Struct]:
    """Return the facts of a promotion, in their order.

    Raises:
        ChannelNotFound, WrongPackage, ChannelOnHold, ClosureQuarantined, AlreadyPromoted,
            ReleaseNotPinned, NotOnLadder.
        PlanOutdated: plan again. Those of the registry: evidence, version, release.
    """
    pinning = _to_pinning(command)
    if command.automatic is states.PolicyAction.AUTO_PROMOTE:
        rules = AUTO_PROMOTE_RULES
    pinned = _pin(rows[:3], pinning, now, rules)
    if not pinned:
        return ()  # a repeat
    channel, _, quarantined, incarnation, standing, *rest = rows[3:]
    stops, active = (rest[:2], rest[2:]) if command.emergency else ([], rest)
    channel = channel_slices.demand_channel(channel, command.channel)
    if command.refresh:
        _demand_pinned(rows[0], command)
        (change,) = pinned
        return (structs.replace(change, reason=command.reason),)
    check_start(command.start_at, now)
    _demand_free(channel, command, active[0] if active else None)
    if quarantined is not None and not command.lift_quarantine:
        raise refuse_quarantined(command.release_id, quarantined)
    (change,) = pinned
    version = change.version if isinstance(change, release_facts.ReleaseTransitioned) else 0
    opened = _open(channel, command, incarnation, rows[0], now)
    opened = structs.replace(opened, auto_rollback=_may_roll_back(channel, command, standing))
    if command.rollback:
        hastened = _find_hastened(command, active[0] if active else None)
        if hastened is not None:  # the release to leave is the one that the first rollback left
            opened = structs.replace(opened, rollback_of=hastened)
        ladder.demand_rung(channel, opened.rollback_of, command.release_id)
        # The release succeeded here before, so it waits for no edge. A failed host does not roll
        # back: it would return to the release that the operator wants to leave.
        opened = structs.replace(
            opened, edges=(), on_failure=host_states.OnFailure.HALT, emergency=command.emergency
        )
    return (
        structs.replace(change, reason=command.reason),
        *release_slices.intents_of(change, version, channel.policy.operations),
        *(_lift_quarantine(command, now) if quarantined is not None else ()),
        *_supersede(command, opened.rollout_id, now),
        opened,
        *_override(
            command, opened, (*command.overrides, *_list_shut_gates(channel, stops, now)), now
        ),
    )


def _may_roll_back(
    channel: channel_rows.Channel,
    command: PromoteRelease,
    standing: rollout_rows.ReleaseStanding | None,
) -> bool:
    """Whether the worker rolls the channel back if hosts fail: once per release, and never after a
    rollback.
    """
    was_done = standing is not None and standing.auto_rolled_back
    return channel.policy.auto_rollback and not command.rollback and not was_done


def _list_shut_gates(
    channel: channel_rows.Channel, stops: Sequence[channel_stops.ChannelStops | None], now: datetime
) -> Iterator[states.OverridableGate]:
    """Return the gates that stop the channel now and that an emergency overrides."""
    if not stops:
        return
    if channel_stops.freeze_over(stops, now) is not None:
        yield states.OverridableGate.FREEZE
    if channel.held_at is not None:
        yield states.OverridableGate.HOLD


def _lift_quarantine(
    command: PromoteRelease, now: datetime
) -> tuple[channel_facts.QuarantineLifted, ...]:
    lifted = channel_facts.QuarantineLifted(
        channel=command.channel,
        operator=command.by,
        at=now,
        closure_hash=command.digest,
        reason=command.reason,
    )
    return (lifted,)


def _override(
    command: PromoteRelease,
    opened: rollout_facts.RolloutOpened,
    gates: Sequence[states.OverridableGate],
    now: datetime,
) -> tuple[rollout_facts.GateOverridden, ...]:
    """Return the requested overrides. Without hosts there are none: the rollout ends at once."""
    if not any(wave.hosts for wave in opened.waves):
        return ()
    return tuple(
        rollout_facts.GateOverridden(
            rollout_id=opened.rollout_id,
            at=now,
            gate=gate,
            operator=command.by,
            reason=command.reason,
        )
        for gate in gates
    )


def check_start(start_at: datetime | None, now: datetime) -> None:
    """Raises: InvalidInput: a rollout cannot start at this time."""
    if start_at is None:
        return
    if start_at <= now:
        ago = span_text(now - start_at)
        raise InvalidInput(f"start_at is {ago} ago; leave it out to start now.", field="start_at")
    if start_at > now + START_AHEAD_MAX:
        raise InvalidInput(
            f"start_at is {span_text(start_at - now)} ahead; allowed are {START_AHEAD_MAX.days} d.",
            field="start_at",
        )


def _first_order_at(command: PromoteRelease, now: datetime) -> datetime | None:
    """Return when the first wave may start: not before ``start_at``, and after its delay."""
    delay = command.waves[0].delay_seconds if command.waves else 0
    after_delay = now + timedelta(seconds=delay) if delay else None
    return max(filter(None, (command.start_at, after_delay)), default=None)


def _demand_pinned(actual: Any, command: PromoteRelease) -> None:
    """Raises: ReleaseNotPinned."""
    pinned = None if actual is None else actual.pinned_release_id
    if pinned != command.release_id:
        raise channel_refusals.ReleaseNotPinned(command.channel, pinned, command.release_id)


def _pin(
    rows: tuple[Any, ...], pinning: release_slices.Pinning, now: datetime, rules: Rules
) -> tuple[release_facts.ReleaseRegistered | release_facts.ReleaseTransitioned, ...]:
    """Return the change of the pin, or nothing if this command already made it."""
    actual, executed, known = rows
    if isinstance(pinning, release_slices.RegisterRelease):
        facts = release_slices.decide_register((actual, executed, known), pinning, now, rules=rules)
    else:
        facts = release_slices.decide_transition(
            (actual, executed, known), pinning, now, rules=rules
        )
    changes = (release_facts.ReleaseRegistered, release_facts.ReleaseTransitioned)
    return tuple(fact for fact in facts if isinstance(fact, changes))


def demand_package(channel: channel_rows.Channel, release_id: str) -> None:
    """Require that the release belongs to the channel's package, judged by its id alone.

    The answer does not reveal whether another repository has such a release. Raises: WrongPackage.
    """
    if not is_of_package(release_id, channel.package):
        raise channel_refusals.WrongPackage(channel.channel, channel.package, release_id)


def refuse_quarantined(
    release_id: str, found: channel_rows.Quarantined
) -> host_refusals.ClosureQuarantined:
    """Build the refusal of a release that is quarantined on the channel."""
    return host_refusals.ClosureQuarantined(
        f"{release_id} is quarantined on {found.channel}: {found.reason}. "
        f"To lift it: tidegate quarantine lift {found.channel} {release_id} --reason …",
        channel=found.channel,
        closure_hash=found.closure_hash,
        host_id=found.host_id,
    )


def is_of_package(release_id: str, package: str) -> bool:
    """Whether a release with this id belongs to the package."""
    number = release_id.rpartition(".")[2]
    fits = number.isascii() and number.isdigit()
    return fits and from_packages.release_id_of(package, int(number)) == release_id


def _find_hastened(command: PromoteRelease, active: rollout_rows.RolloutTally | None) -> str | None:
    """Return the release that the running rollback leaves, if this emergency speeds that rollback
    up; None: this is another rollback.
    """
    if active is None or not command.emergency:
        return None
    if not tallies.may_hasten(active, ignore_budgets=command.ignore_budgets):
        return None
    return active.rollback_of if active.target_ref == command.release_id else None


def _demand_free(
    channel: channel_rows.Channel, command: PromoteRelease, active: rollout_rows.RolloutTally | None
) -> None:
    """Require that the channel takes this release now and has not changed since the plan."""
    demand_package(channel, command.release_id)
    if channel.held_at is not None and not command.rollback:
        raise channel_refusals.ChannelOnHold(channel.channel, channel.held_by, channel.held_reason)
    if channel.active_rollout_id != command.supersedes:
        raise channel_refusals.PlanOutdated(
            channel.channel, command.supersedes, channel.active_rollout_id
        )
    if active is None or active.target_ref != command.release_id or active.halted_at is not None:
        return
    if _find_hastened(command, active) is not None:
        return
    if active.outcome is None or tallies.is_everywhere(active):  # else hosts may lack it
        raise channel_refusals.AlreadyPromoted(active.rollout_id, active.state)


def _supersede(
    command: PromoteRelease, successor: str, now: datetime
) -> tuple[rollout_facts.SuccessorOpened, ...]:
    if command.supersedes is None:
        return ()
    ended = rollout_facts.SuccessorOpened(
        superseded_rollout_id=command.supersedes, successor_rollout_id=successor, at=now
    )
    return (ended,)


def _open(
    channel: channel_rows.Channel,
    command: PromoteRelease,
    incarnation: channel_rows.Incarnation | None,
    actual: Any,
    now: datetime,
) -> rollout_facts.RolloutOpened:
    count = 1 if incarnation is None else incarnation.count + 1
    policy = channel.policy
    previous = None if actual is None else actual.pinned_release_id
    return rollout_facts.RolloutOpened(
        rollout_id=names.rollout_id(channel.channel, command.release_id, count),
        at=now,
        channel=channel.channel,
        target_ref=command.release_id,
        target_closure=command.digest,
        plan_digest=command.plan_digest,
        waves=command.waves,
        on_failure=policy.on_failure,
        retention_seconds=policy.retention_seconds,
        incarnation=count,
        offline_grace_seconds=policy.offline_grace_seconds,
        edges=policy.edges,
        empty_waves=command.empty_waves,
        previous_ref=previous,
        rollback_of=previous if command.rollback else None,
        start_at=_first_order_at(command, now),
        automatic=command.automatic,
        display_name=command.display_name,
        operator=command.by,
        reason=command.reason,
    )


def _expect_versions(command: PromoteRelease) -> dict[model.Key, model.Position]:
    if command.refresh:
        return {}
    seen = {fleet_key(): command.fleet_version}
    if command.channel_version is not None:
        seen[channel_rows.channel_key(command.channel)] = command.channel_version
    return seen


def _summarize(facts: Sequence[Any]) -> bytes:
    promoted = PromotionResult()
    for fact in facts:
        match fact:
            case rollout_facts.RolloutOpened(rollout_id=opened, empty_waves=empty):
                promoted = structs.replace(promoted, rollout_id=opened, empty_waves=empty)
            case rollout_facts.SuccessorOpened(superseded_rollout_id=ended):
                promoted = structs.replace(promoted, superseded_rollout_id=ended)
    return codec.encode(promoted)


def promotion_slice(rules: Rules) -> kernel_slices.Slice:
    """Build the slice for an installation that accepts more evidence triples."""
    return kernel_slices.Slice(
        name="promote-release",
        command=PromoteRelease,
        writes=(
            release_facts.ReleaseRegistered,
            release_facts.ReleaseTransitioned,
            IntentRequested,
            channel_facts.QuarantineLifted,
            rollout_facts.SuccessorOpened,
            rollout_facts.RolloutOpened,
            rollout_facts.GateOverridden,
        ),
        rows=rows_of_promotion,
        expects=_expect_versions,
        decide=partial(decide_promotion, rules=rules),
        answer=_summarize,
    )


promote_release = promotion_slice(BUILT_IN_RULES)
SLICES = (promote_release,)
