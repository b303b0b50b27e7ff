"""The ladder of a channel: the releases that succeeded on it, and which one a rollback takes.

    rung    a release with a success here; the newest success is first
    left    an operator rolled the channel back from it since that success

A rollback takes the first rung that is not what the channel wants now, was not left, is not
quarantined here and still exists. So two rollbacks in a row go further back, and none returns to a
release that an operator rolled back from. Another release with the same content is skipped as well:
it would change nothing, or bring the bad content back. The first rungs are protected from deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from msgspec import Struct, structs

from tidegate.domain.channels import refusals, rows
from tidegate.domain.releases.facts import RollbackRungsChanged
from tidegate.domain.rollouts import facts, names, states
from tidegate.domain.times import describe_time

RUNGS_MAX = 20  # of one channel; older successes are dropped
PROTECTED_MAX = 3  # rungs kept from deletion: a rollback may skip some of them


class JudgedRung(Struct, frozen=True):
    """A rung, and why a rollback skips it; empty: it does not."""

    rung: rows.Rung
    skipped: str


def add_success(
    ladder: tuple[rows.Rung, ...], fact: facts.RolloutConcluded
) -> tuple[rows.Rung, ...]:
    """Return the ladder after a rollout ended. A success puts its release on top."""
    if fact.outcome is not states.Outcome.SUCCEEDED:
        return ladder
    rung = rows.Rung(
        release_id=fact.target_ref,
        digest=fact.target_closure,
        rollout_id=fact.rollout_id,
        succeeded_at=fact.at,
        hosts=fact.counts.converged,
    )
    others = (item for item in ladder if item.release_id != rung.release_id)
    return (rung, *others)[:RUNGS_MAX]


def mark_left(ladder: tuple[rows.Rung, ...], fact: facts.RolloutOpened) -> tuple[rows.Rung, ...]:
    """Return the ladder after a rollout opened. A rollback marks the release that it leaves."""
    if fact.rollback_of is None:
        return ladder
    return tuple(
        structs.replace(
            rung, left_at=fact.at, left_by=fact.automatic or fact.operator, left_reason=fact.reason
        )
        if rung.release_id == fact.rollback_of
        else rung
        for rung in ladder
    )


def list_protected(channel: rows.Channel | None) -> tuple[str, ...]:
    """List the releases that the channel's next rollbacks would take, quarantined or not."""
    if channel is None:
        return ()
    newest = channel.newest_rollout_id
    wanted = None if newest is None else names.ref_of(newest)
    rungs = (rung for rung in channel.ladder if rung.left_at is None)
    return tuple(rung.release_id for rung in rungs if rung.release_id != wanted)[:PROTECTED_MAX]


def changed_rungs(
    before: rows.Channel | None, after: rows.Channel | None, at: datetime
) -> tuple[RollbackRungsChanged, ...]:
    """Return the facts to record when other releases than before are protected."""
    old, new = list_protected(before), list_protected(after)
    channel = after or before
    if set(old) == set(new) or channel is None:
        return ()
    changed = RollbackRungsChanged(
        channel=channel.channel,
        at=at,
        added=tuple(id for id in new if id not in old),
        removed=tuple(id for id in old if id not in new),
    )
    return (changed,)


def list_late_targets(channel: rows.Channel) -> tuple[rows.Rung | str, ...]:
    """List what late hosts may join, the best first: the rungs that no operator rolled back from.

    If nothing succeeded on the channel yet, it is the newest rollout, once that is completed.
    """
    if channel.ladder:
        return tuple(rung for rung in channel.ladder if find_left(channel, rung) is None)
    newest = channel.newest_rollout_id
    return () if newest is None or newest != channel.terminal_rollout_id else (newest,)


def rung_of(channel: rows.Channel, release_id: str) -> rows.Rung | None:
    return next((rung for rung in channel.ladder if rung.release_id == release_id), None)


def find_left(channel: rows.Channel, rung: rows.Rung) -> rows.Rung | None:
    """Return the rung with this content that an operator rolled back from since this success; None:
    there is none.
    """
    for other in channel.ladder:
        left_at = other.left_at if other.digest == rung.digest else None
        if left_at is not None and left_at >= rung.succeeded_at:
            return other
    return None


def judge_ladder(
    channel: rows.Channel,
    wanted: str | None,
    content: str | None,
    quarantined: Mapping[str, rows.Quarantined],
    pinnable: Collection[str],
    name_of: Callable[[str], str | None] = lambda user_id: user_id,
) -> tuple[JudgedRung, ...]:
    """Judge each rung: why a rollback skips it, or that it does not.

    ``wanted`` is what the channel is pinned to, and ``content`` its digest. ``quarantined`` is by
    digest, and ``pinnable`` are the releases of the ladder that still exist.
    """

    def why(rung: rows.Rung) -> str:
        if rung.release_id == wanted:
            return f"{rung.release_id} is what {channel.channel} wants now"
        if rung.digest == content:
            return f"{rung.release_id} has the same content as {wanted}"
        left = find_left(channel, rung)
        if left is not None:
            by = (name_of(left.left_by) or "a former user") if left.left_by else "an operator"
            same = "" if left is rung else f"{rung.release_id} has the same content: "
            return f"{same}{by} rolled back from {left.release_id} at {describe_time(left.left_at)}"
        found = quarantined.get(rung.digest)
        if found is not None:
            since = describe_time(found.quarantined_at)
            return f"{rung.release_id} is quarantined here since {since}"
        return "" if rung.release_id in pinnable else f"{rung.release_id} was deleted"

    return tuple(JudgedRung(rung, why(rung)) for rung in channel.ladder)


def choose_rung(judged: tuple[JudgedRung, ...]) -> rows.Rung | None:
    """Return the rung that a rollback takes unless a release is named."""
    return next((item.rung for item in judged if not item.skipped), None)


def demand_rung(channel: rows.Channel, wanted: str | None, release_id: str) -> rows.Rung:
    """Return the rung of a named release: any with a success here, except what is wanted now.

    Raises:
        NotOnLadder.
    """
    if release_id == wanted:
        has_stopped = channel.active_rollout_id is None or channel.newest_state in states.CLEARABLE
        raise refusals.NotOnLadder(
            channel.channel,
            release_id,
            f"it is what {channel.channel} wants now",
            is_promotable=has_stopped,
        )
    rung = rung_of(channel, release_id)
    if rung is None:
        full = len(channel.ladder) >= RUNGS_MAX
        why = (
            f"it is not among the last {RUNGS_MAX} releases that succeeded there"
            if full
            else "it never succeeded there"
        )
        raise refusals.NotOnLadder(channel.channel, release_id, why)
    return rung
