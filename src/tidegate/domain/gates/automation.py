"""What a channel does automatically: promote a release that succeeded before it, and roll back.

    auto_promote    the highest release above the pinned one that every edge lets through, while
                    the channel's newest rollout ended well and nothing else holds the channel
    auto_rollback   what a plain rollback would take, when a rollout stopped because hosts failed

The worker acts on these decisions, and ``channel show`` displays them. Both are pure: the rows come
from ``control.queries.automation``. The worker's commits check that it is the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.channels import facts, rows as channel_rows
from tidegate.domain.gates.edges import EdgeVerdict
from tidegate.domain.rollouts import rows as rollout_rows, states
from tidegate.errors import LeaseLost
from tidegate.kernel import leases, slices

LEADER: Final = "automation"  # the job whose leader acts for channels
GOOD: Final = frozenset({states.Outcome.SUCCEEDED, states.Outcome.EMPTY, states.Outcome.REPLACED})
_ENDED: Final = {
    states.Outcome.FAILED: "failed",
    states.Outcome.ROLLED_BACK: "was rolled back",
    states.Outcome.ABORTED: "was aborted",
}


class Promotable(Struct, frozen=True):
    """A release that a channel promotes automatically."""

    release_id: str
    digest: str
    proved_by: str  # the rollout in which it succeeded on the first edge's channel
    reason: str


class Automation(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a channel does automatically now, or why it does nothing."""

    action: states.PolicyAction
    sentence: str
    switched_on_by: str  # a user's id
    release_id: str | None = None  # the release of the next promotion or rollback
    until: datetime | None = None  # when this changes by time alone


class Candidate(Struct, frozen=True, kw_only=True):
    """A release above the pinned one, with what the channel and those before it know of it."""

    release_id: str
    digest: str
    proved_by: str
    refusal: str  # why this channel refuses it, edges aside; empty: it does not
    edges: tuple[tuple[facts.ChannelEdge, EdgeVerdict], ...]


class AutoPromotion(Struct, frozen=True):
    """The release to promote, and the text to show."""

    shown: Automation
    promotable: Promotable | None = None


# ── promote ───────────────────────────────────────────────────────────────────────────────────────


def number_of(release_id: str | None) -> int:
    """Return the number of a release within its package; 0: none, or not a package's release."""
    number = "" if release_id is None else release_id.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def judge_promotion(
    channel: channel_rows.Channel,
    pinned: str | None,
    newest: rollout_rows.RolloutTally | None,
    request_id: str | None,
    candidates: Sequence[Candidate],
) -> AutoPromotion:
    """Decide which release the channel promotes now.

    ``newest`` is its newest rollout, ``request_id`` an open request; ``candidates`` are the
    releases above the pinned one.
    """
    held = describe_held(channel, newest, request_id)
    if held:
        return _wait(channel, held)
    ordered = sorted(candidates, key=lambda item: number_of(item.release_id), reverse=True)
    for item in ordered:
        if not item.refusal and all(verdict.passed for _, verdict in item.edges):
            return _choose(channel, item)
    if not ordered:
        above = "" if pinned is None else f" above {pinned}"
        return _wait(
            channel,
            f"Auto-promotion on {channel.channel} waits: no release{above} succeeded before it",
        )
    first = ordered[0]
    shut = next((verdict for _, verdict in first.edges if not verdict.passed), None)
    why = first.refusal or (shut.reason if shut is not None else "")
    until = None if first.refusal or shut is None else shut.until
    return _wait(channel, f"Auto-promotion on {channel.channel} waits: {why}", until)


def describe_held(
    channel: channel_rows.Channel, newest: rollout_rows.RolloutTally | None, request_id: str | None
) -> str:
    """Say why the channel promotes nothing automatically now; empty: it may."""
    name = channel.channel
    off = "" if newest is None else describe_off(channel, newest)
    if off:
        return off
    if newest is not None and newest.outcome is None:
        return f"Auto-promotion on {name} waits until {newest.rollout_id} ends"
    if channel.held_at is not None:
        held = f"{name} is held by {channel.held_by}: {channel.held_reason}"
        return f"Auto-promotion on {name} waits: {held}"
    if request_id is not None:
        return f"Auto-promotion on {name} waits for request {request_id}"
    return ""


def describe_off(channel: channel_rows.Channel, newest: rollout_rows.RolloutTally) -> str:
    """Say what turned automatic promotion off until a person promotes; empty: nothing did."""
    if not channel.policy.auto_promote or newest.rollout_id != channel.newest_rollout_id:
        return ""
    if newest.rollback_of is not None:
        why = f"{channel.channel} was rolled back from {newest.rollback_of}"
    elif newest.state in states.CLEARABLE:
        why = f"{newest.rollout_id} stopped"
    elif newest.outcome is not None and newest.outcome not in GOOD:
        why = f"{newest.rollout_id} {_ENDED[newest.outcome]}"
    else:
        return ""
    return (
        f"Auto-promotion on {channel.channel} is off since {why}; "
        "it starts again with the next promotion by a person"
    )


def _wait(
    channel: channel_rows.Channel, sentence: str, until: datetime | None = None
) -> AutoPromotion:
    shown = Automation(
        action=states.PolicyAction.AUTO_PROMOTE,
        sentence=sentence,
        switched_on_by=channel.auto_promote_by or "",
        until=until,
    )
    return AutoPromotion(shown)


def _choose(channel: channel_rows.Channel, item: Candidate) -> AutoPromotion:
    required = [edge for edge, _ in item.edges if edge.require is facts.EdgeRequires.SUCCEEDED]
    where = " and ".join(edge.channel for edge in required)
    shown = Automation(
        action=states.PolicyAction.AUTO_PROMOTE,
        sentence=f"Auto-promotion on {channel.channel} takes {item.release_id} now",
        switched_on_by=channel.auto_promote_by or "",
        release_id=item.release_id,
    )
    reason = f"auto_promote: {item.release_id} succeeded on {where}"
    return AutoPromotion(shown, Promotable(item.release_id, item.digest, item.proved_by, reason))


# ── roll back ─────────────────────────────────────────────────────────────────────────────────────


def may_roll_back(channel: channel_rows.Channel, newest: rollout_rows.RolloutTally | None) -> bool:
    """Whether the channel's newest rollout stopped and was opened with automatic rollback."""
    return (
        newest is not None
        and newest.rollout_id == channel.newest_rollout_id
        and newest.state in states.CLEARABLE
        and newest.auto_rollback
        and channel.policy.auto_rollback
    )


def judge_rollback(
    channel: channel_rows.Channel,
    newest: rollout_rows.RolloutTally | None,
    rung: channel_rows.Rung | None,
    skipped: Sequence[str],
) -> Automation:
    """Decide what the channel does automatically about its newest rollout.

    ``rung`` is the release that a rollback takes, and ``skipped`` says why there is none.
    """
    name = channel.channel
    release_id = None
    if may_roll_back(channel, newest) and rung is not None:
        sentence = f"Auto-rollback on {name} goes back to {rung.release_id} now"
        release_id = rung.release_id
    elif may_roll_back(channel, newest):
        why = f": {'; '.join(skipped)}" if skipped else ""
        sentence = f"Auto-rollback on {name} finds nothing to go back to{why}"
    elif newest is not None and newest.state in states.OPEN:
        sentence = describe_rollback(channel, newest)
    else:
        sentence = f"Auto-rollback on {name} is on: it acts when hosts of the next rollout fail"
    return Automation(
        action=states.PolicyAction.AUTO_ROLLBACK,
        sentence=sentence,
        switched_on_by=channel.auto_rollback_by or "",
        release_id=release_id,
    )


def describe_rollback(channel: channel_rows.Channel, newest: rollout_rows.RolloutTally) -> str:
    """Say what the channel would do automatically about this rollout, or why it does nothing;
    empty: its policy does not ask for it.
    """
    name = channel.channel
    if not channel.policy.auto_rollback or newest.rollout_id != channel.newest_rollout_id:
        return ""
    if newest.rollback_of is not None:
        return f"Auto-rollback on {name} does not act on a rollback"
    if newest.auto_rollback:
        return f"Auto-rollback on {name} goes back by itself once the failed hosts are done"
    return (
        f"Auto-rollback on {name} does not act on {newest.rollout_id}: {newest.target_ref} was "
        "rolled back by itself before, or the policy was switched on later"
    )


# ── the leader's commits ──────────────────────────────────────────────────────────────────────────


class LeadAutomation(Struct, frozen=True):
    """Part of every command that the worker runs for a channel: it must still be the leader."""

    term: str  # the token of the leader


def _demand_term(rows: tuple[object], command: LeadAutomation, now: datetime) -> tuple[()]:
    """Raises: LeaseLost."""
    lease = rows[0]
    if not isinstance(lease, leases.Lease) or lease.lease_token != command.term:
        raise LeaseLost("another process acts for channels now", id=LEADER)
    return ()


lead_automation = slices.Slice(
    name="lead-automation",
    command=LeadAutomation,
    writes=(),
    rows=lambda command: (leases.leader_key(LEADER),),
    decide=_demand_term,
)
SLICES = (lead_automation,)
