"""Combine many facts, or a fact and a delay, into one notice.

    advance(state, facts)  ──▶ state              waiting rollouts, silent hosts, counted events
    tell(state, now)       ──▶ state, notices     the notices that are due

    event             first sent after   again
    rollout.waiting   60 s or 30 min     never for the same gate of the rollout, or the same wave
    rollout.degraded  60 s               never for the same rollout
    hosts.silent      60 s               after 15 min, if 10 % or 10 hosts more are silent
    hosts.heard       at once            when none of the channel is silent any more
    hosts.lost        24 h               daily
    outbox.dead, notify.dead, target.disabled: at once; after 5 min, the number of further ones

Both functions are pure. The notifier stores the state together with its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, structs

from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels import facts as channel_facts
from tidegate.domain.fleet import facts as fleet_facts, rows as fleet_rows, selectors
from tidegate.domain.hosts import facts as host_facts, states
from tidegate.domain.notifications import (
    events,
    facts as notification_facts,
    from_facts,
    notices as notification_notices,
)
from tidegate.domain.outbox.facts import IntentDied
from tidegate.domain.rollouts import facts as rollout_facts, names
from tidegate.kernel.model import Key, Position

SOON: Final = timedelta(seconds=60)
LONG: Final = timedelta(minutes=30)
SILENT_AGAIN: Final = timedelta(minutes=15)
SILENT_GROWTH_PERCENT: Final = 10
SILENT_GROWTH_HOSTS: Final = 10
LOST: Final = timedelta(hours=24)
PILE: Final = timedelta(minutes=5)
NAMED_MAX: Final = 1_000  # silent hosts of a channel that are stored by name; more are counted
ORDINAL_MIN: Final = 10  # lower ones are for notices of a single fact
KEPT_MAX: Final = 2_000  # waits, rollouts, piles; the oldest are dropped
NEEDS_PERSON: Final = frozenset({"freshness", "quarantine"})
# Other messages report these gates, or they open by themselves as the rollout proceeds.
UNREPORTED_GATES: Final = frozenset({"halted", "dispatchable", "host-busy"})
WAVES: Final = "wave-promotion"  # reported only while it needs a person


class WaitingGate(Struct, frozen=True, omit_defaults=True):
    """A gate that holds a rollout back."""

    since: datetime
    reason: str
    is_reported: bool = False
    is_open: bool = False  # it opened; remembered, so that it is reported once
    stuck: str = ""  # why it needs a person, if it did when it was looked at last
    stuck_since: datetime | None = None
    reported: tuple[str, ...] = ()  # the waves that needed a person, as they were reported


class Degradation(Struct, frozen=True, omit_defaults=True):
    """Hosts that failed or drifted after their rollout ended."""

    since: datetime
    count: int = 0
    some: tuple[str, ...] = ()
    is_reported: bool = False


class SilentHosts(Struct, frozen=True, omit_defaults=True):
    """The silent hosts of a channel."""

    since: datetime
    named: dict[str, datetime] = {}  # with the time of the last heartbeat of each
    others: int = 0
    reported: int = 0  # how many the last notice reported, or fewer if some reported again
    reported_at: datetime | None = None
    lost_at: datetime | None = None  # when the last notice about lost hosts was made

    @property
    def count(self) -> int:
        return len(self.named) + self.others


class Pile(Struct, frozen=True, omit_defaults=True):
    """Events of one kind and subject since a notice about the first of them."""

    since: datetime
    scopes: tuple[str, ...]
    reason: str
    count: int = 0  # those without a notice
    is_reported: bool = False


class BurstState(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The notifier's state between facts. The two parts of a key are separated by a space."""

    gates: dict[str, WaitingGate] = {}  # rollout, gate
    degraded: dict[str, Degradation] = {}  # rollout
    silent: dict[str, SilentHosts] = {}  # channel
    piles: dict[str, Pile] = {}  # event, subject
    position: int = 0  # of the last notice that was due to time
    ordinal: int = 0


class _Draft:
    """A mutable copy of the state for a page of facts, so that it is not copied per fact."""

    def __init__(self, state: BurstState) -> None:
        self.gates = dict(state.gates)
        self.degraded = dict(state.degraded)
        self.silent = {
            name: structs.replace(found, named=dict(found.named))
            for name, found in state.silent.items()
        }
        self.piles = dict(state.piles)

    def state(self, before: BurstState) -> BurstState:
        return BurstState(
            gates=_newest(self.gates),
            degraded=_newest(self.degraded),
            silent=self.silent,
            piles=_newest(self.piles),
            position=before.position,
            ordinal=before.ordinal,
        )


def _newest(found: dict[str, Any]) -> dict[str, Any]:
    return dict(list(found.items())[-KEPT_MAX:])


def advance(
    state: BurstState, facts: Iterable[from_facts.FollowedFact], rows: from_facts.Rows
) -> BurstState:
    """The state after these facts."""
    draft = _Draft(state)
    for followed in facts:
        add = _ADDS.get(type(followed.fact))
        if add is not None:
            add(draft, followed, followed.fact, rows)
    return draft.state(state)


# ── facts in ──────────────────────────────────────────────────────────────────────────────────────


def _add_gate(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: rollout_facts.GateChanged,
    rows: from_facts.Rows,
) -> None:
    if fact.gate in UNREPORTED_GATES:
        return
    key = f"{fact.rollout_id} {fact.gate}"
    known = draft.gates.get(key)
    if fact.blocked:
        reason = "" if fact.gate == WAVES else fact.reason
        draft.gates[key] = WaitingGate(
            followed.at,
            reason,
            is_reported=known is not None and known.is_reported,
            reported=() if known is None else known.reported,
        )
    elif known is not None and (known.is_reported or known.reported):
        draft.gates[key] = structs.replace(known, is_open=True)
    else:
        draft.gates.pop(key, None)


def _end_gates(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: rollout_facts.RolloutConcluded,
    rows: from_facts.Rows,
) -> None:
    prefix = f"{fact.rollout_id} "
    for key in [key for key in draft.gates if key.startswith(prefix)]:
        del draft.gates[key]


def _add_late(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: host_facts.HostStateChanged,
    rows: from_facts.Rows,
) -> None:
    if fact.late and fact.to in (states.HostState.FAILED, states.HostState.REVERTED):
        _add_degraded(draft, followed, fact, rows)


def _add_degraded(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: host_facts.HostStateChanged | host_facts.HostRegressed,
    rows: from_facts.Rows,
) -> None:
    found = draft.degraded.get(fact.rollout_id) or Degradation(followed.at)
    if fact.host_id not in found.some:
        some = (*found.some, fact.host_id)[: notification_notices.HOSTS_NAMED_MAX]
        found = structs.replace(found, count=found.count + 1, some=some)
    draft.degraded[fact.rollout_id] = found


def _forget(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: rollout_facts.RetentionExpired,
    rows: from_facts.Rows,
) -> None:
    draft.degraded.pop(fact.rollout_id, None)


def _add_silent(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: fleet_facts.HostSilent,
    rows: from_facts.Rows,
) -> None:
    for channel in _channels_of(fact.host_id, rows):
        found = draft.silent.get(channel) or SilentHosts(followed.at)
        if fact.host_id in found.named:
            continue
        if len(found.named) < NAMED_MAX:
            found.named[fact.host_id] = fact.last_seen_at
        else:
            found = structs.replace(found, others=found.others + 1)
        draft.silent[channel] = found


def _remove_silent(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: fleet_facts.HostHeard,
    rows: from_facts.Rows,
) -> None:
    for channel, found in draft.silent.items():
        if fact.host_id in found.named:
            del found.named[fact.host_id]
        elif found.others and channel in _channels_of(fact.host_id, rows):
            draft.silent[channel] = structs.replace(found, others=found.others - 1)


def _forget_channel(
    draft: _Draft,
    followed: from_facts.FollowedFact,
    fact: channel_facts.ChannelDeleted,
    rows: from_facts.Rows,
) -> None:
    draft.silent.pop(fact.channel, None)


def _channels_of(host_id: str, rows: from_facts.Rows) -> list[str]:
    host, fleet = rows.get(fleet_rows.host_key(host_id)), rows.get(fleet_rows.fleet_key())
    if not isinstance(host, fleet_rows.Host) or not isinstance(fleet, fleet_rows.Fleet):
        return []
    return [
        scope.channel
        for scope in fleet.channels
        if selectors.parse(scope.selector).matches(host.labels, host_id)
    ]


def _pile(
    event: str, subject: Callable[[Any], str], scopes: Callable[[Any], tuple[str, ...]]
) -> Callable[[_Draft, from_facts.FollowedFact, Any, from_facts.Rows], None]:
    def add(
        draft: _Draft, followed: from_facts.FollowedFact, fact: Any, rows: from_facts.Rows
    ) -> None:
        key = f"{event} {subject(fact)}"
        found = draft.piles.get(key) or Pile(followed.at, scopes(fact), fact.reason)
        draft.piles[key] = structs.replace(found, count=found.count + 1, reason=fact.reason)

    return add


_ADDS: Final[
    Mapping[type[Struct], Callable[[_Draft, from_facts.FollowedFact, Any, from_facts.Rows], None]]
] = {
    rollout_facts.GateChanged: _add_gate,
    rollout_facts.RolloutConcluded: _end_gates,
    rollout_facts.RetentionExpired: _forget,
    host_facts.HostStateChanged: _add_late,
    host_facts.HostRegressed: _add_degraded,
    fleet_facts.HostSilent: _add_silent,
    fleet_facts.HostHeard: _remove_silent,
    fleet_facts.HostRetired: _remove_silent,
    fleet_facts.HostRevoked: _remove_silent,
    channel_facts.ChannelDeleted: _forget_channel,
    IntentDied: _pile(
        "outbox.dead", lambda fact: fact.scope, lambda fact: (channel_scope(fact.scope),)
    ),
    notification_facts.NoticeDied: _pile(
        "notify.dead", lambda fact: fact.subscription, lambda fact: ()
    ),
    notification_facts.SubscriptionDisabled: _pile(
        "target.disabled", lambda fact: fact.subscription, lambda fact: ()
    ),
}
READS: Final = frozenset(fact_type.__name__ for fact_type in _ADDS)
# Most of these facts are about normal progress, so only bodies with this text are decoded.
MARKS: Final = {"HostStateChanged": b'"late":true'}


def rows_for(fact: Struct) -> tuple[Key, ...]:
    """The rows that list the channels of a host."""
    if isinstance(
        fact,
        fleet_facts.HostSilent
        | fleet_facts.HostHeard
        | fleet_facts.HostRetired
        | fleet_facts.HostRevoked,
    ):
        return fleet_rows.host_key(fact.host_id), fleet_rows.fleet_key()
    return ()


# ── notices out ───────────────────────────────────────────────────────────────────────────────────


def tell(
    state: BurstState,
    now: datetime,
    position: Position,
    stuck: Mapping[str, str] | None = None,
) -> tuple[BurstState, tuple[notification_notices.Notice, ...]]:
    """The notices that are due, and the state afterwards. ``position``: of the newest fact.
    ``stuck``: why gates need a person now, by key; None: that was not looked at.
    """
    draft = _Draft(state)
    found: list[dict[str, Any]] = []
    if stuck is not None:
        _note_stuck(draft, now, stuck)
    _report_gates(draft, now, found)
    _report_degraded(draft, now, found)
    _report_silent(draft, now, found)
    _report_piles(draft, now, found)
    ordinal = state.ordinal if position == state.position else ORDINAL_MIN
    notices = tuple(
        notification_notices.Notice(
            **item,
            severity=events.severity_of(item["event"]),
            at=now,
            position=position,
            ordinal=ordinal + number,
        )
        for number, item in enumerate(found, 1)
    )
    if not notices:
        return draft.state(state), ()
    ordinal += len(notices)
    return structs.replace(draft.state(state), position=position, ordinal=ordinal), notices


def _about(event: str, rollout_id: str, **more: Any) -> dict[str, Any]:
    channel = names.channel_of(rollout_id)
    return {
        "event": event,
        "scopes": (channel_scope(channel),),
        "channel": channel,
        "release": names.ref_of(rollout_id),
        "rollout_id": rollout_id,
        **more,
    }


def _note_stuck(draft: _Draft, now: datetime, stuck: Mapping[str, str]) -> None:
    for key, gate in draft.gates.items():
        reason = "" if gate.is_open else stuck.get(key, "")
        if reason != gate.stuck:
            since = now if reason else None
            draft.gates[key] = structs.replace(gate, stuck=reason, stuck_since=since)


def _report_gates(draft: _Draft, now: datetime, found: list[dict[str, Any]]) -> None:
    for key, gate in draft.gates.items():
        rollout_id, _, name = key.partition(" ")
        if name == WAVES and gate.stuck in ("", *gate.reported):
            continue
        due = gate.since + (SOON if name in NEEDS_PERSON else LONG)
        if gate.stuck_since is not None:
            due = min(due, gate.stuck_since + SOON) if name != WAVES else gate.stuck_since + SOON
        if gate.is_reported or now < due:
            continue
        if name == WAVES:
            draft.gates[key] = structs.replace(gate, reported=(*gate.reported, gate.stuck))
        else:
            draft.gates[key] = structs.replace(gate, is_reported=True)
        reason = gate.stuck or gate.reason
        found.append(_about("rollout.waiting", rollout_id, gate=name, reason=reason))


def _report_degraded(draft: _Draft, now: datetime, found: list[dict[str, Any]]) -> None:
    for rollout_id, item in draft.degraded.items():
        if item.is_reported or now < item.since + SOON:
            continue
        draft.degraded[rollout_id] = structs.replace(item, is_reported=True)
        hosts = notification_notices.NoticeHosts(item.count, item.some)
        found.append(_about("rollout.degraded", rollout_id, hosts=hosts))


def _report_silent(draft: _Draft, now: datetime, found: list[dict[str, Any]]) -> None:
    for channel, item in list(draft.silent.items()):
        about = {"scopes": (channel_scope(channel),), "channel": channel}
        if item.count == 0:
            del draft.silent[channel]
            if item.reported_at is not None:
                found.append({"event": "hosts.heard", **about})
            continue
        # Growth counts from the fewest since the last notice.
        item = structs.replace(item, reported=min(item.reported, item.count))
        if _is_silence_due(item, now):
            item = structs.replace(item, reported=item.count, reported_at=now)
            hosts = notification_notices.NoticeHosts(
                item.count, tuple(item.named)[: notification_notices.HOSTS_NAMED_MAX]
            )
            found.append({"event": "hosts.silent", "hosts": hosts, **about})
        lost = [host for host, since in item.named.items() if now - since >= LOST]
        if lost and (item.lost_at is None or now - item.lost_at >= LOST):
            item = structs.replace(item, lost_at=now)
            hosts = notification_notices.NoticeHosts(
                len(lost), tuple(lost[: notification_notices.HOSTS_NAMED_MAX])
            )
            found.append({"event": "hosts.lost", "hosts": hosts, **about})
        draft.silent[channel] = item


def _is_silence_due(item: SilentHosts, now: datetime) -> bool:
    if item.reported_at is None:
        return now >= item.since + SOON
    grown = item.count - item.reported
    enough = grown >= SILENT_GROWTH_HOSTS or grown * 100 >= item.reported * SILENT_GROWTH_PERCENT
    return grown > 0 and enough and now >= item.reported_at + SILENT_AGAIN


def _report_piles(draft: _Draft, now: datetime, found: list[dict[str, Any]]) -> None:
    for key, item in list(draft.piles.items()):
        if item.is_reported and now < item.since + PILE:
            continue
        if not item.count:
            del draft.piles[key]
            continue
        event, _, subject = key.partition(" ")
        draft.piles[key] = structs.replace(item, since=now, count=0, is_reported=True)
        found.append(
            {
                "event": event,
                "scopes": item.scopes,
                "subject": subject,
                "reason": item.reason,
                "count": item.count,
            }
        )
