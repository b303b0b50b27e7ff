"""Whether one channel edge lets a release through, why, and until when.

    succeeded   the last verdict on the release there is good, it is not quarantined there, and it
                stayed that channel's newest success for ``soak_seconds``
    idle        the newest rollout there is over, whatever its release

An edge is shut if its channel does not exist, or the release was never rolled out there.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels import facts, rows as channel_rows
from tidegate.domain.gates import inputs
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import names, rows as rollout_rows, states, tallies
from tidegate.domain.times import describe_time
from tidegate.domain.windows.sentences import span_text

RELEASING: Final = frozenset(
    {*states.ORDERED, states.RolloutState.PRUNED}
)  # states that open an ``idle`` edge


class EdgeVerdict(NamedTuple):
    """Whether an edge is open, and why."""

    passed: bool
    reason: str
    evidence: inputs.GateEvidence | None = None
    until: datetime | None = None  # when it opens by itself
    remedy: inputs.Remedy | None = None  # what opens it; None: it opens by itself
    concern: str = ""  # what is known against the release there; empty: nothing


class WaitingRelease(Struct, frozen=True):
    """A release that should reach the hosts of a channel."""

    channel: str
    release_id: str


def judge_edge(
    edge: facts.ChannelEdge, waits: WaitingRelease, seen: inputs.PrecedingChannel, now: datetime
) -> EdgeVerdict:
    """Whether this edge lets the release through."""
    if seen.channel is None:
        return EdgeVerdict(
            False,
            f"{waits.channel} waits for {edge.channel}, which does not exist",
            remedy=inputs.make_remedy(
                steps.EDIT_CHANNEL,
                waits.channel,
                f"tidegate channel edit {waits.channel} --policy FILE",
            ),
        )
    if edge.require is facts.EdgeRequires.IDLE:
        return _check_idle(waits, seen.channel)
    shut = _check_success(edge, waits, seen) or _check_quarantine(edge, waits, seen)
    return shut or _check_soak(edge, waits, seen, now)


def _check_idle(
    waits: WaitingRelease, found: inputs.Versioned[channel_rows.Channel]
) -> EdgeVerdict:
    row = found.row
    evidence = inputs.GateEvidence(channel_rows.CHANNELS.name, row.channel, found.version)
    if row.newest_rollout_id is None:
        return EdgeVerdict(True, f"nothing was rolled out on {row.channel} yet", evidence)
    if row.newest_state in RELEASING:
        return EdgeVerdict(True, f"{row.channel} is idle", evidence)
    state = states.describe_rollout_state(row.newest_state or states.RolloutState.OPENING)
    newest = f"{row.newest_rollout_id} {state}"
    return EdgeVerdict(
        False,
        f"{waits.channel} waits until {row.channel} is idle: {newest}",
        evidence,
        remedy=_suggest_look(row.channel),
        concern=f"what failed on {row.channel}" if _has_stopped(waits.release_id, row) else "",
    )


def _has_stopped(release_id: str, before: channel_rows.Channel) -> bool:
    """Whether the channel's newest rollout is one of this release, and a failure stopped it."""
    newest = before.newest_rollout_id
    is_same = newest is not None and names.ref_of(newest) == release_id
    return is_same and before.newest_state in states.CLEARABLE


# ── edges that require success ────────────────────────────────────────────────────────────────────


def _check_success(
    edge: facts.ChannelEdge, waits: WaitingRelease, seen: inputs.PrecedingChannel
) -> EdgeVerdict | None:
    """Return the verdict if the release did not succeed last; None: it did."""
    release, there = waits.release_id, edge.channel
    standing = None if seen.standing is None else seen.standing.row
    if standing is None or standing.rollout_id is None:
        return EdgeVerdict(
            False,
            f"{release} was never rolled out on {there}. "
            f"Promote it there first: tidegate channel promote {there} {release}",
            _cite_channel(seen),
            remedy=_suggest_promotion(there, release),
        )
    if standing.word is states.Word.GOOD:
        return None
    return EdgeVerdict(
        False,
        _describe_standing(standing, waits, seen),
        _cite_standing(seen),
        remedy=_find_remedy(standing, seen),
        concern=_find_concern(standing, seen),
    )


def _suggest_promotion(channel: str, release: str, when: str = "") -> inputs.Remedy:
    command = f"tidegate channel promote {channel} {release}"
    return inputs.make_remedy(steps.PROMOTE, channel, command, when)


def _suggest_look(channel: str) -> inputs.Remedy:
    """Return the command that says what the rollout there waits for."""
    command = f"tidegate rollout explain {channel}"
    return inputs.Remedy(command, needs=(roles.Verb.READ,), scopes=(scopes.channel_scope(channel),))


def _find_remedy(
    standing: rollout_rows.ReleaseStanding, seen: inputs.PrecedingChannel
) -> inputs.Remedy | None:
    """Return what makes the release succeed there; None: it is still rolling out."""
    release, there = standing.release_id, standing.channel
    tally = None if seen.tally is None else seen.tally.row
    if tally is not None and tally.halted_at is None and tally.paused_at is None:
        return None
    if tally is not None or (standing.word is states.Word.BAD and standing.operator is None):
        return _suggest_look(there)
    return _suggest_promotion(
        there, release, "if it is good after all" if standing.operator else ""
    )


def _find_concern(standing: rollout_rows.ReleaseStanding, seen: inputs.PrecedingChannel) -> str:
    """Name what is known against the release there; empty: nothing.

    A verdict lasts until the release succeeds there, also while it is tried again.
    """
    if seen.tally is not None and seen.tally.row.halted_at is not None:
        return f"what failed on {standing.channel}"
    if standing.word is not states.Word.BAD:
        return ""
    if standing.operator is not None:
        return f"the reason why {standing.channel} was rolled back"
    return f"what failed on {standing.channel}"


def _describe_standing(
    standing: rollout_rows.ReleaseStanding, waits: WaitingRelease, seen: inputs.PrecedingChannel
) -> str:
    release, there = standing.release_id, standing.channel
    tally = None if seen.tally is None else seen.tally.row
    if tally is not None and tally.halted_at is None:
        hosts = sum(wave.hosts for wave in tally.waves)
        done = tallies.total(tally, HostState.CONVERGED)
        return (
            f"{release} is still rolling out on {there} ({done:,} of {hosts:,} hosts); "
            f"{waits.channel} waits for its success"
        )
    if tally is not None:
        return (
            f"{release} stopped on {there}: {_describe_failure(standing, seen)}. "
            f"It must succeed there before {waits.channel} gets it"
        )
    if standing.operator is not None:
        why = f": {standing.reason}" if standing.reason else ""
        return (
            f"{standing.operator} rolled {there} back from {release} at "
            f"{describe_time(standing.said_at)}{why}. Promote it there again to clear this"
        )
    if standing.word is states.Word.BAD:
        return (
            f"{release} failed on {there} at {describe_time(standing.said_at)} "
            f"({_describe_failure(standing, seen)}). Retry it there, or publish a fix"
        )
    match standing.outcome:
        case states.Outcome.REPLACED:
            by = standing.followed_by or "another release"
            return f"{release} was replaced by {by} on {there} before it succeeded"
        case states.Outcome.EMPTY:
            return f"No host ran {release} on {there}, so it has not succeeded there"
        case states.Outcome.ABORTED:
            return f"{release} was aborted on {there} before it succeeded"
        case _:
            return f"{release} has not succeeded on {there}"


def _describe_failure(standing: rollout_rows.ReleaseStanding, seen: inputs.PrecedingChannel) -> str:
    if standing.host_id is None:
        return "its hosts failed"
    return f"{standing.host_id} failed{f', {seen.failure}' if seen.failure else ''}"


def _check_quarantine(
    edge: facts.ChannelEdge, waits: WaitingRelease, seen: inputs.PrecedingChannel
) -> EdgeVerdict | None:
    if seen.quarantined is None:
        return None
    row = seen.quarantined.row
    key = channel_rows.quarantine_key(row.channel, row.closure_hash)
    return EdgeVerdict(
        False,
        f"{waits.release_id} is quarantined on {edge.channel} since "
        f"{describe_time(row.quarantined_at)} ({row.host_id}: {row.reason})",
        inputs.GateEvidence(channel_rows.QUARANTINE.name, key.id, seen.quarantined.version),
        remedy=inputs.make_remedy(
            steps.LIFT_QUARANTINE,
            edge.channel,
            f"tidegate quarantine lift {edge.channel} {waits.release_id} --reason …",
            "only if the host was at fault and the release is good",
        ),
        concern=f"what failed on {edge.channel}",
    )


def _check_soak(
    edge: facts.ChannelEdge, waits: WaitingRelease, seen: inputs.PrecedingChannel, now: datetime
) -> EdgeVerdict:
    assert seen.standing is not None
    standing = seen.standing.row
    release, there = waits.release_id, edge.channel
    since = standing.running_since
    ran = timedelta(0) if since is None else max(now - since, timedelta(0))
    asked = timedelta(seconds=edge.soak_seconds)
    if max(ran, timedelta(seconds=standing.soaked_seconds)) >= asked:
        sentence = f"{release} succeeded on {there} at {describe_time(standing.said_at)}"
        if (by := seen.overrode) is not None:
            sentence += f" ({by.operator} overrode the edges of {there}: {by.reason})"
        return EdgeVerdict(True, sentence, _cite_standing(seen))
    if since is not None:
        until = since + asked
        return EdgeVerdict(
            False,
            f"{release} has run on {there} for {span_text(ran)} of {span_text(asked)}; "
            f"the edge opens at {describe_time(until)}",
            _cite_standing(seen),
            until,
        )
    ended = timedelta(seconds=standing.soaked_seconds)
    if seen.tally is not None:
        return EdgeVerdict(
            False,
            f"{release} is rolling out on {there} again; before, it ran there for "
            f"{span_text(ended)} of the {span_text(asked)} asked for",
            _cite_standing(seen),
            remedy=_find_remedy(standing, seen),
        )
    return EdgeVerdict(
        False,
        f"{release} ran on {there} for {span_text(ended)} of the {span_text(asked)} asked for, "
        f"then {there} moved on to {standing.followed_by or 'another release'}. "
        "Promote it there again",
        _cite_standing(seen),
        remedy=_suggest_promotion(there, release),
    )


# ── descriptions ──────────────────────────────────────────────────────────────────────────────────


def _cite_channel(seen: inputs.PrecedingChannel) -> inputs.GateEvidence | None:
    found = seen.channel
    return (
        None
        if found is None
        else inputs.GateEvidence(channel_rows.CHANNELS.name, found.row.channel, found.version)
    )


def _cite_standing(seen: inputs.PrecedingChannel) -> inputs.GateEvidence | None:
    found = seen.standing
    if found is None:
        return None
    id = rollout_rows.standing_key(found.row.channel, found.row.release_id).id
    return inputs.GateEvidence(rollout_rows.STANDINGS.name, id, found.version)
