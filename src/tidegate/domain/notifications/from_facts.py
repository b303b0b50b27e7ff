"""Facts become notices: a pure function of a fact and of rows that say more about it.

    RolloutHalted + the rollout's tally + the host's record ──▶ rollout.halted

Never one notice per host: a host's report makes none by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import Struct

from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.hosts.rows import HostRecord, record_key
from tidegate.domain.hosts.states import ProbeStatus
from tidegate.domain.notifications.events import EVENTS
from tidegate.domain.notifications.notices import (
    DETAIL_CHARS_MAX,
    Notice,
    NoticeCause,
    NoticeHosts,
    NoticeWave,
)
from tidegate.domain.outbox.redaction import redact
from tidegate.domain.rollouts.facts import RolloutHalted
from tidegate.domain.rollouts.names import channel_of, ref_of
from tidegate.domain.rollouts.outcomes import counts_of
from tidegate.domain.rollouts.rows import RolloutTally, tally_key
from tidegate.kernel.model import Key, Position

Rows = Mapping[Key, Any]  # decoded; None or missing: there is no such row


class FollowedFact(NamedTuple):
    """A fact as the feed has it."""

    position: Position
    at: datetime
    actor: str
    fact: Struct


# ── what a notice says about a rollout ────────────────────────────────────────────────────────────


def _of_rollout(happened: FollowedFact, rollout_id: str, rows: Rows, event: str) -> dict[str, Any]:
    channel = channel_of(rollout_id)
    found: dict[str, Any] = {
        "event": event,
        "severity": EVENTS[event],
        "at": happened.at,
        "position": happened.position,
        "scopes": (channel_scope(channel),),
        "channel": channel,
        "release": ref_of(rollout_id),
        "rollout_id": rollout_id,
    }
    tally = rows.get(tally_key(rollout_id))
    if isinstance(tally, RolloutTally):
        found |= {
            "digest": tally.target_closure,
            "state": str(tally.state),
            "counts": counts_of(tally),
            "wave": _wave(tally),
        }
    return found


def _wave(tally: RolloutTally) -> NoticeWave | None:
    if not tally.waves:
        return None
    name = tally.waves[tally.current_wave].name
    return NoticeWave(tally.current_wave + 1, name, len(tally.waves))


def _cause(host_id: str, record: object, reason: str) -> NoticeCause:
    if not isinstance(record, HostRecord):
        return NoticeCause(host=host_id, detail=redact(reason)[:DETAIL_CHARS_MAX])
    failing = [
        (name, probe.failure_reason or "")
        for name, probe in sorted(record.probes.items())
        if probe.status is ProbeStatus.FAIL
    ]
    probe, detail = failing[0] if failing else ("", "")
    return NoticeCause(
        host=host_id,
        failure=record.failure or "",
        probe=probe,
        detail=redact(detail)[:DETAIL_CHARS_MAX],
    )


# ── one function per type of fact ─────────────────────────────────────────────────────────────────


def _halted(happened: FollowedFact, fact: RolloutHalted, rows: Rows) -> Notice:
    record = rows.get(record_key(fact.rollout_id, fact.host_id))
    return Notice(
        **_of_rollout(happened, fact.rollout_id, rows, "rollout.halted"),
        hosts=NoticeHosts(1, (fact.host_id,)),
        cause=_cause(fact.host_id, record, fact.reason),
        reason=fact.reason,
    )


def _rows_of_halted(fact: RolloutHalted) -> tuple[Key, ...]:
    return tally_key(fact.rollout_id), record_key(fact.rollout_id, fact.host_id)


class _Rule(NamedTuple):
    """How facts of one type become a notice."""

    notice: Callable[[FollowedFact, Any, Rows], Notice | None]
    rows: Callable[[Any], tuple[Key, ...]] = lambda fact: ()


_RULES: Final[Mapping[type[Struct], _Rule]] = {
    RolloutHalted: _Rule(
        _halted,
        lambda fact: (tally_key(fact.rollout_id), record_key(fact.rollout_id, fact.host_id)),
    ),
}
READS: Final = frozenset(fact_type.__name__ for fact_type in _RULES)  # by the name in the log


def rows_for(fact: Struct) -> tuple[Key, ...]:
    """The rows that a notice about this fact is made with."""
    return _RULES[type(fact)].rows(fact)


def notice_of(happened: FollowedFact, rows: Rows) -> Notice | None:
    """What there is to tell about a fact; None: nothing."""
    return _RULES[type(happened.fact)].notice(happened, happened.fact, rows)
