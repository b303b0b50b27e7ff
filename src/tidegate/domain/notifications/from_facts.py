"""Make notices from facts: a pure function of a fact and of rows with more details.

    RolloutHalted + the rollout's tally + the host's record ──▶ rollout.halted

There is never one notice per host: the report of a host alone makes none. Notices that need several
facts or a delay are in ``bursts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import Struct, structs

from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.channels import facts as channels, rows as channel_rows
from tidegate.domain.hosts import facts, probes, rows as host_rows
from tidegate.domain.notifications import events, facts as notification_facts, notices
from tidegate.domain.outbox.redaction import redact
from tidegate.domain.packages import facts as packages
from tidegate.domain.requests import facts as requests, rows as request_rows, words
from tidegate.domain.rollouts import (
    facts as rollouts,
    names,
    outcomes,
    rows as rollout_rows,
    states,
)
from tidegate.kernel.model import Key, Position

Rows = Mapping[Key, Any]  # decoded; a missing key: there is no such row


class FollowedFact(NamedTuple):
    """A fact from the log, with its position and time."""

    position: Position
    at: datetime
    actor: str
    fact: Struct


Followed = FollowedFact


# ── the rollout in a notice ───────────────────────────────────────────────────────────────────────


def describe_event(followed: Followed, event: str, *scopes: str, **more: Any) -> dict[str, Any]:
    """The fields that every notice about a fact has."""
    return {
        "event": event,
        "severity": events.severity_of(event),
        "at": followed.at,
        "position": followed.position,
        "scopes": scopes,
        **more,
    }


def describe_rollout(rollout_id: str, rows: Rows) -> dict[str, Any]:
    """The fields about a rollout, as far as its rows are known."""
    channel = names.channel_of(rollout_id)
    found: dict[str, Any] = {
        "channel": channel,
        "release": names.ref_of(rollout_id),
        "rollout_id": rollout_id,
    }
    tally = rows.get(rollout_rows.tally_key(rollout_id))
    if isinstance(tally, rollout_rows.RolloutTally):
        found |= {
            "digest": tally.target_closure,
            "state": str(tally.state),
            "counts": outcomes.counts_of(tally),
            "wave": _wave(tally),
            "opened_at": tally.opened_at,
        }
    return found


def _rollout(
    followed: Followed, event: str, rollout_id: str, rows: Rows, **more: Any
) -> notices.Notice:
    scope = channel_scope(names.channel_of(rollout_id))
    about = describe_rollout(rollout_id, rows)
    return notices.Notice(**describe_event(followed, event, scope), **(about | more))


def _wave(tally: rollout_rows.RolloutTally) -> notices.NoticeWave | None:
    if not tally.waves:
        return None
    name = tally.waves[tally.current_wave].name
    return notices.NoticeWave(tally.current_wave + 1, name, len(tally.waves))


def _cause(host_id: str, record: object, reason: str = "") -> notices.NoticeCause:
    if not isinstance(record, host_rows.HostRecord):
        return notices.NoticeCause(host=host_id, detail=redact(reason)[: notices.DETAIL_CHARS_MAX])
    probe, detail = probes.failed_probe(record)
    return notices.NoticeCause(
        host=host_id,
        failure=record.failure or "",
        probe=probe,
        detail=redact(detail)[: notices.DETAIL_CHARS_MAX],
    )


# ── rollouts ──────────────────────────────────────────────────────────────────────────────────────


def _opened(followed: Followed, fact: rollouts.RolloutOpened, rows: Rows) -> notices.Notice:
    return _rollout(
        followed,
        "rollout.opened",
        fact.rollout_id,
        rows,
        automatic=fact.automatic or "",
        subject=fact.rollback_of or "",
        actor=fact.operator,
        reason=fact.reason,
        opened_at=fact.at,
    )


def _halted(followed: Followed, fact: rollouts.RolloutHalted, rows: Rows) -> notices.Notice:
    record = rows.get(host_rows.record_key(fact.rollout_id, fact.host_id))
    return _rollout(
        followed,
        "rollout.halted",
        fact.rollout_id,
        rows,
        hosts=notices.NoticeHosts(1, (fact.host_id,)),
        cause=_cause(fact.host_id, record, fact.reason),
        reason=fact.reason,
    )


def _stopped(
    followed: Followed, fact: rollouts.RolloutTransitioned, rows: Rows
) -> notices.Notice | None:
    if fact.to not in states.CLEARABLE:
        return None
    tally = rows.get(rollout_rows.tally_key(fact.rollout_id))
    if not isinstance(tally, rollout_rows.RolloutTally):
        return _rollout(followed, "rollout.stopped", fact.rollout_id, rows, state=str(fact.to))
    host = tally.halted_by or ""
    record = rows.get(host_rows.record_key(fact.rollout_id, host))
    return _rollout(
        followed,
        "rollout.stopped",
        fact.rollout_id,
        rows,
        state=str(fact.to),
        cause=_cause(host, record) if host else None,
        quarantined=channel_rows.quarantine_key(tally.channel, tally.target_closure) in rows,
    )


def _more_of_stopped(fact: rollouts.RolloutTransitioned, rows: Rows) -> tuple[Key, ...]:
    tally = rows.get(rollout_rows.tally_key(fact.rollout_id))
    if not isinstance(tally, rollout_rows.RolloutTally):
        return ()
    quarantine = channel_rows.quarantine_key(tally.channel, tally.target_closure)
    if tally.halted_by is None:
        return (quarantine,)
    return quarantine, host_rows.record_key(fact.rollout_id, tally.halted_by)


def _concluded(followed: Followed, fact: rollouts.RolloutConcluded, rows: Rows) -> notices.Notice:
    is_host, is_operator = fact.cause is states.Cause.HOST, fact.cause is states.Cause.OPERATOR
    return _rollout(
        followed,
        f"rollout.{fact.outcome}",
        fact.rollout_id,
        rows,
        outcome=fact.outcome,
        counts=fact.counts,
        digest=fact.target_closure,
        opened_at=fact.opened_at,
        cause=notices.NoticeCause(host=fact.cause_id) if is_host else None,
        actor=fact.cause_id if is_operator else "",
        subject=fact.cause_id if fact.cause is states.Cause.SUCCESSOR else "",
    )


def _cleared(
    followed: Followed, fact: rollouts.OperatorClearance, rows: Rows
) -> notices.Notice | None:
    if fact.mode is states.Clearance.ABANDON:
        return None  # there is already a notice about its end
    return _resumed(followed, fact, rows)


def _resumed(
    followed: Followed,
    fact: rollouts.OperatorClearance
    | rollouts.RolloutResumed
    | rollouts.WaveContinued
    | rollouts.GateOverridden,
    rows: Rows,
) -> notices.Notice:
    return _rollout(
        followed,
        "rollout.resumed",
        fact.rollout_id,
        rows,
        actor=fact.operator,
        reason=fact.reason,
    )


# ── emergencies: a second notice about the same fact ──────────────────────────────────────────────


def _opened_now(
    followed: Followed, fact: rollouts.RolloutOpened, rows: Rows
) -> notices.Notice | None:
    if not fact.emergency:
        return None
    return _rollout(
        followed,
        "emergency.used",
        fact.rollout_id,
        rows,
        actor=fact.operator,
        reason=fact.reason,
    )


def _overridden(followed: Followed, fact: rollouts.GateOverridden, rows: Rows) -> notices.Notice:
    return _rollout(
        followed,
        "emergency.used",
        fact.rollout_id,
        rows,
        gate=str(fact.gate),
        actor=fact.operator,
        reason=fact.reason,
    )


def _no_notice(followed: Followed, fact: Struct, rows: Rows) -> None:
    """The rule for a fact that makes no notice, or only a second one."""


def _passed_wave(
    followed: Followed, fact: rollouts.WaveSkipped | rollouts.WaveAdvanced, rows: Rows
) -> notices.Notice | None:
    if isinstance(fact, rollouts.WaveAdvanced) and not fact.forced:
        return None
    return _rollout(
        followed,
        "emergency.used",
        fact.rollout_id,
        rows,
        gate="wave-promotion",
        actor=fact.operator,
        reason=fact.reason,
    )


# ── releases ──────────────────────────────────────────────────────────────────────────────────────

Shown = facts.RollbackComplete | facts.RollbackFailed | facts.DeadlineExpired


def _quarantine_notice(followed: Followed, fact: Shown, rows: Rows) -> notices.Notice | None:
    """A notice only if this fact created the row and no halt of the rollout reports it."""
    row = rows.get(channel_rows.quarantine_key(fact.channel, fact.target_closure))
    if not isinstance(row, channel_rows.Quarantined):
        return None
    made = (row.rollout_id, row.host_id, row.quarantined_at)
    if made != (fact.rollout_id, fact.host_id, fact.at):
        return None
    tally = rows.get(rollout_rows.tally_key(fact.rollout_id))
    if isinstance(tally, rollout_rows.RolloutTally) and tally.halted_at is not None:
        return None
    return _rollout(
        followed,
        "release.quarantined",
        fact.rollout_id,
        rows,
        digest=fact.target_closure,
        cause=notices.NoticeCause(
            host=fact.host_id, detail=redact(row.reason)[: notices.DETAIL_CHARS_MAX]
        ),
    )


def _rows_of_shown(fact: Shown) -> tuple[Key, ...]:
    if not (fact.channel and fact.target_closure):
        return ()
    return channel_rows.quarantine_key(fact.channel, fact.target_closure), rollout_rows.tally_key(
        fact.rollout_id
    )


def _lifted(followed: Followed, fact: channels.QuarantineLifted, rows: Rows) -> notices.Notice:
    return _of_channel(followed, "release.quarantine_lifted", fact, digest=fact.closure_hash)


def _of_revision(event: str) -> Callable[[Followed, Any, Rows], notices.Notice]:
    def notice(followed: Followed, fact: Any, rows: Rows) -> notices.Notice:
        repository = fact.package.partition("/")[0]
        return notices.Notice(
            **describe_event(followed, event, repository_scope(repository)),
            revision=fact.name,
            subject=fact.package,
            digest=fact.digest,
            actor=fact.by,
            reason=getattr(fact, "reason", ""),
        )

    return notice


# ── channels ──────────────────────────────────────────────────────────────────────────────────────


def _of_channel(followed: Followed, event: str, fact: Any, **more: Any) -> notices.Notice:
    return notices.Notice(
        **describe_event(followed, event, channel_scope(fact.channel)),
        channel=fact.channel,
        actor=fact.operator,
        reason=getattr(fact, "reason", ""),
        **more,
    )


def _channel_rule(event: str) -> Callable[[Followed, Any, Rows], notices.Notice]:
    return lambda followed, fact, rows: _of_channel(followed, event, fact)


# ── requests on protected channels ────────────────────────────────────────────────────────────────


def _went_past(followed: Followed, fact: requests.EmergencyUsed, rows: Rows) -> notices.Notice:
    scopes = map(channel_scope, (fact.channel, *fact.also))
    return notices.Notice(
        **describe_event(followed, "emergency.used", *scopes),
        channel=fact.channel,
        subject=fact.request_id,
        asks=words.describe_request(fact.kind, fact.channel, fact.command),
        gate="approval",
        actor=fact.by,
        reason=fact.reason,
    )


def _describe_verdict(fact: requests.RequestReviewed) -> str:
    return "accepted" if fact.accepted else "disputed"


def _request_rule(
    event: str, *, is_by_person: bool = True, state: Callable[[Any], str] = lambda fact: ""
) -> _Rule:
    """The rule for a fact about a request. The request's row says what it is for."""

    def notice(followed: Followed, fact: Any, rows: Rows) -> notices.Notice:
        row = rows.get(request_rows.request_key(fact.request_id))
        asks = ""
        also: tuple[str, ...] = ()
        if isinstance(row, request_rows.ChannelRequest):
            asks, also = words.describe_request(row.kind, row.channel, row.command), row.also
        return notices.Notice(
            **describe_event(followed, event, *map(channel_scope, (fact.channel, *also))),
            channel=fact.channel,
            subject=fact.request_id,
            asks=asks,
            state=state(fact),
            actor=fact.by if is_by_person else "",
            reason=getattr(fact, "reason", ""),
        )

    return _Rule(notice, lambda fact: (request_rows.request_key(fact.request_id),))


def _freeze_rule(event: str) -> Callable[[Followed, Any, Rows], notices.Notice]:
    def notice(followed: Followed, fact: Any, rows: Rows) -> notices.Notice:
        scopes = tuple(map(channel_scope, fact.channels)) or (notices.ALL_CHANNELS,)
        return notices.Notice(
            **describe_event(followed, event, *scopes),
            subject=fact.freeze_id,
            channel=fact.channels[0] if len(fact.channels) == 1 else "",
            actor=fact.operator,
            reason=fact.reason,
        )

    return notice


def _changed(
    followed: Followed,
    fact: notification_facts.SubscriptionEdited | notification_facts.SubscriptionDeleted,
    rows: Rows,
) -> notices.Notice:
    """Its scopes are not those of the notice: an edit may have left them."""
    is_deleted = isinstance(fact, notification_facts.SubscriptionDeleted)
    return notices.Notice(
        **describe_event(followed, "notify.changed"),
        subject=fact.subscription,
        state="deleted" if is_deleted else "edited",
        actor=fact.operator,
    )


class _Rule(NamedTuple):
    """How facts of one type become a notice."""

    notice: Callable[[Followed, Any, Rows], notices.Notice | None]
    rows: Callable[[Any], tuple[Key, ...]] = lambda fact: ()
    more: Callable[[Any, Rows], tuple[Key, ...]] = lambda fact, rows: ()  # named by the first rows


def _tally(fact: Any) -> tuple[Key, ...]:
    return (rollout_rows.tally_key(fact.rollout_id),)


def _tally_and_record(fact: Any) -> tuple[Key, ...]:
    return rollout_rows.tally_key(fact.rollout_id), host_rows.record_key(
        fact.rollout_id, fact.host_id
    )


_RULES: Final[Mapping[type[Struct], _Rule]] = {
    rollouts.RolloutOpened: _Rule(_opened, _tally),
    rollouts.RolloutHalted: _Rule(_halted, _tally_and_record),
    rollouts.RolloutTransitioned: _Rule(_stopped, _tally, _more_of_stopped),
    rollouts.RolloutConcluded: _Rule(_concluded, _tally),
    rollouts.OperatorClearance: _Rule(_cleared, _tally),
    rollouts.RolloutResumed: _Rule(_resumed, _tally),
    rollouts.WaveContinued: _Rule(_resumed, _tally),
    rollouts.GateOverridden: _Rule(_resumed, _tally),
    rollouts.SuccessorOpened: _Rule(_no_notice),
    rollouts.WaveSkipped: _Rule(_no_notice, _tally),
    rollouts.WaveAdvanced: _Rule(_no_notice, _tally),
    facts.RollbackComplete: _Rule(_quarantine_notice, _rows_of_shown),
    facts.RollbackFailed: _Rule(_quarantine_notice, _rows_of_shown),
    facts.DeadlineExpired: _Rule(_quarantine_notice, _rows_of_shown),
    channels.QuarantineLifted: _Rule(_lifted),
    channels.ChannelHeld: _Rule(_channel_rule("channel.held")),
    channels.ChannelUnheld: _Rule(_channel_rule("channel.released")),
    channels.ChannelEdited: _Rule(_channel_rule("channel.edited")),
    requests.EmergencyUsed: _Rule(_went_past),
    requests.EmergencyUnreviewed: _request_rule("emergency.unreviewed", is_by_person=False),
    requests.RequestReviewed: _request_rule("emergency.reviewed", state=_describe_verdict),
    requests.RequestMade: _request_rule("request.made"),
    requests.RequestApproved: _request_rule("request.approved"),
    requests.RequestRejected: _request_rule("request.rejected"),
    requests.RequestWithdrawn: _request_rule("request.withdrawn"),
    requests.RequestExpired: _request_rule("request.expired", is_by_person=False),
    requests.RequestVoided: _request_rule("request.voided", is_by_person=False),
    requests.RequestExecuted: _request_rule("request.executed"),
    notification_facts.SubscriptionEdited: _Rule(_changed),
    notification_facts.SubscriptionDeleted: _Rule(_changed),
    channels.FreezeStarted: _Rule(_freeze_rule("freeze.started")),
    channels.FreezeEnded: _Rule(_freeze_rule("freeze.ended")),
    packages.RevisionProposed: _Rule(_of_revision("revision.proposed")),
    packages.RevisionApproved: _Rule(_of_revision("revision.approved")),
    packages.ProposalRejected: _Rule(_of_revision("revision.rejected")),
    packages.RevisionPublished: _Rule(_of_revision("revision.published")),
}
_ALSO: Final[Mapping[type[Struct], Callable[[Followed, Any, Rows], notices.Notice | None]]] = {
    rollouts.RolloutOpened: _opened_now,
    rollouts.GateOverridden: _overridden,
    rollouts.WaveSkipped: _passed_wave,
    rollouts.WaveAdvanced: _passed_wave,
}
READS: Final = frozenset(fact_type.__name__ for fact_type in _RULES)  # by the name in the log


def rows_for(fact: Struct) -> tuple[Key, ...]:
    """The rows that a notice about this fact needs."""
    rule = _RULES.get(type(fact))
    return () if rule is None else rule.rows(fact)


def more_rows_for(fact: Struct, rows: Rows) -> tuple[Key, ...]:
    """Further rows, which the first ones name."""
    rule = _RULES.get(type(fact))
    return () if rule is None else rule.more(fact, rows)


def notice_of(followed: Followed, rows: Rows) -> notices.Notice | None:
    """The notice about a fact by itself, if there is one."""
    rule = _RULES.get(type(followed.fact))
    return None if rule is None else rule.notice(followed, followed.fact, rows)


def notices_of(page: Sequence[Followed], rows: Rows) -> list[notices.Notice]:
    """The notices about a page of facts in the order of the log. A page contains whole commits.

    One cause makes one notice. If one commit both stops and halts a rollout, only the halt is
    reported: it comes after the transition there, while a halt of an earlier commit comes before
    it. A promotion that overrides a gate opens a rollout, and resumes none. A commit that starts
    several waves is one emergency. If a commit bypasses an approval, the notice about that says
    what was done, so there is no second emergency notice about the rollback or the override itself.
    """
    halts = {
        (item.fact.rollout_id, item.fact.at): item.position
        for item in page
        if isinstance(item.fact, rollouts.RolloutHalted)
    }
    replaced = {
        item.fact.successor_rollout_id: item.fact.superseded_rollout_id
        for item in page
        if isinstance(item.fact, rollouts.SuccessorOpened)
    }
    opened = {
        (item.fact.rollout_id, item.at)
        for item in page
        if isinstance(item.fact, rollouts.RolloutOpened)
    }
    bypassed = {
        (channel, item.at)  # facts of one commit have the same time
        for item in page
        if isinstance(item.fact, requests.EmergencyUsed)
        for channel in (item.fact.channel, *item.fact.also)
    }
    found: list[notices.Notice] = []
    seconds: set[tuple[str, str, datetime]] = set()
    for item in page:
        fact = item.fact
        if isinstance(fact, rollouts.RolloutTransitioned):
            halted = halts.get((fact.rollout_id, fact.at))
            if halted is not None and halted > item.position:
                continue
        is_new = isinstance(fact, rollouts.GateOverridden) and (fact.rollout_id, item.at) in opened
        notice = None if is_new else notice_of(item, rows)
        if isinstance(fact, rollouts.RolloutOpened) and notice is not None:
            notice = structs.replace(notice, replaces=replaced.get(fact.rollout_id, ""))
        if notice is not None:
            found.append(notice)
        also = _ALSO.get(type(fact))
        second = None if also is None else also(item, fact, rows)
        if second is None or (second.channel, item.at) in bypassed:
            continue
        cause = (second.rollout_id, second.gate, item.at)
        if cause not in seconds:
            seconds.add(cause)
            found.append(structs.replace(second, ordinal=1))
    return found
