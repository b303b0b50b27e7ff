"""Receive agents' reports into the lanes of their rollouts, and heartbeats as coarse liveness.

    report ──▶ checked ──▶ lane of its rollout ──▶ its own answer
    heartbeat ──▶ host_liveness, at most once a minute ──▶ observe_host, note_heard on a change
                                                     └─▶ note_facts where an operator allows them

Nothing waits here: a report's future is resolved when its pack is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from tidegate import decoders, errors
from tidegate.clock import Clock
from tidegate.control.fleet.dispatch import LOST
from tidegate.control.lanes import LaneBusy, Lanes
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.fleet import refusals as fleet_refusals, rows as fleet_rows, slices
from tidegate.domain.fleet.selectors import fact_labels, split_labels
from tidegate.domain.hosts import (
    facts as host_facts,
    orders,
    protocol,
    refusals as host_refusals,
    report_json,
    rows as host_rows,
    states,
)
from tidegate.domain.rollouts import report_slices
from tidegate.domain.rollouts.names import check_rollout_id
from tidegate.kernel import futures, model
from tidegate.kernel.records.records import Records

SEEN_EVERY: Final = timedelta(seconds=60)  # a host's heartbeats are stored at most so often

# If a machine refuses an agent's report, the status is 409, whatever the family of the error
# (docs/agent-protocol.md).
_STATUSES: Final[tuple[tuple[tuple[type[errors.TidegateError], ...], int], ...]] = (
    ((errors.NotFound,), 404),
    ((errors.Gone,), 410),
    ((errors.Invalid, errors.TooLarge), 422),
    ((errors.Forbidden,), 403),
    ((errors.Unavailable, errors.Unknown), 503),
)

Taken = Future[CommandOutcome] | errors.TidegateError


class Report(msgspec.Struct, frozen=True):
    """One report as it was received, and its outcome so far."""

    rollout_id: str
    seq: int
    taken: Taken


class AgentReports:
    """Queues the reports of agents in the lanes of their rollouts."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def take_all(
        self, host_id: str, contents: Sequence[Mapping[str, Any]], meta: model.Meta
    ) -> list[Report]:
        """Queue a host's reports without waiting; those of one rollout stay in order."""
        found: list[Report | report_slices.ReportEvent] = [
            _read(host_id, content) for content in contents
        ]
        by_rollout: dict[str, list[int]] = {}
        for number, item in enumerate(found):
            if isinstance(item, report_slices.ReportEvent):
                by_rollout.setdefault(item.rollout_id, []).append(number)
        for rollout_id, numbers in by_rollout.items():
            events = [
                item for n in numbers if isinstance(item := found[n], report_slices.ReportEvent)
            ]
            queued = self._queue(rollout_id, events, meta)
            for number, event, taken in zip(numbers, events, queued, strict=True):
                found[number] = Report(rollout_id, event.event.seq, taken)
        return [item for item in found if isinstance(item, Report)]

    def take_one(self, host_id: str, body: bytes, meta: model.Meta, when_done: WhenDone) -> bool:
        """Queue the only report of a request, read directly from the bytes of the body.

        ``when_done`` is called in the lane's thread with the outcome. False: the report has an
        unusual form or cannot be queued; ``take_all`` returns the reason.
        """
        event = plain_event(body)
        if event is None or event.host_id != host_id:
            return False
        rollout_id = event.rollout_id
        try:
            report_json.check_event(event)
            check_rollout_id(rollout_id)
            command = report_slices.ReportEvent(rollout_id=rollout_id, host_id=host_id, event=event)
            report = SingleReport(rollout_id, event.seq, when_done)
            self._lanes.record(
                rollout_id, report_slices.report_event, command, meta=meta, future=report
            )
        except errors.TidegateError:
            return False
        return True

    def _queue(
        self, rollout_id: str, events: Sequence[report_slices.ReportEvent], meta: model.Meta
    ) -> Sequence[Taken]:
        try:
            return self._lanes.record_all(
                rollout_id, [(report_slices.report_event, event, meta) for event in events]
            )
        except errors.TidegateError as error:
            return [error] * len(events)


def _read(host_id: str, content: Mapping[str, Any]) -> Report | report_slices.ReportEvent:
    try:
        event = report_json.event_from_json(content)
        check_rollout_id(event.rollout_id)
        if event.host_id != host_id:
            raise host_refusals.WrongHost(host_id, event.host_id)
    except (errors.Invalid, errors.TooLarge, host_refusals.WrongHost) as error:
        rollout_id, seq = content.get("rollout_id"), content.get("seq")
        return Report(
            rollout_id if isinstance(rollout_id, str) else "",
            seq if isinstance(seq, int) else 0,
            error,
        )
    return report_slices.ReportEvent(rollout_id=event.rollout_id, host_id=host_id, event=event)


class SingleReport(futures.LightFuture[CommandOutcome]):
    """A report that calls ``when_done`` when it is resolved."""

    def __init__(self, rollout_id: str, seq: int, when_done: WhenDone) -> None:
        super().__init__()
        self.rollout_id = rollout_id
        self.seq = seq
        self._when_done = when_done

    def resolve(self, answer: CommandOutcome | BaseException) -> None:
        super().resolve(answer)
        self._when_done(self)


WhenDone = Callable[[SingleReport], None]


class _Single(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    report: msgspec.Raw


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_single = decoders.build(_Single)
_kind = decoders.build(_Kind)
_decoders: Final = {name: decoders.build(struct) for name, struct in report_json.KINDS.items()}


def plain_event(body: bytes) -> host_facts.AgentEvent | None:
    """Return the event of a body with a single plain report; None: decode it the general way."""
    try:
        raw = _single.decode(body).report
        decoder = _decoders.get(_kind.decode(raw).kind)
        event: host_facts.AgentEvent | None = None if decoder is None else decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return event


def to_reported(
    report: Report | SingleReport, error: BaseException | None
) -> protocol.ReportResult:
    """Return the result for the agent. Raises: errors that are not Tidegate's."""
    if error is None:
        return protocol.ReportResult(
            rollout_id=report.rollout_id, seq=report.seq, status=200, accepted_through=report.seq
        )
    if not isinstance(error, errors.TidegateError):
        raise error
    state, expected = error.facts.get("state"), error.facts.get("expected")
    return protocol.ReportResult(
        rollout_id=report.rollout_id,
        seq=report.seq,
        status=status_of(error),
        code=error.code,
        detail=error.detail,
        state=state if isinstance(state, str) else None,
        expected=expected if isinstance(expected, int | str) else None,
        accepted_through=expected - 1 if isinstance(expected, int) else None,
        facts=dict(error.facts),
    )


def status_of(error: errors.TidegateError) -> int:
    """Return the HTTP status for a refused report."""
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 409)


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A host's heartbeat: what runs on it."""

    host_id: str
    agent_version: str
    current_closures: dict[str, str]  # channel → what runs
    said_at: int  # Unix time of the request that carried it, under its MAC
    rollouts: tuple[str, ...] = ()  # rollouts whose last report number the agent asks for
    facts: protocol.HostFacts | None = None  # None: as before


class Heartbeats:
    """Turns heartbeats into liveness, and into events for rollouts."""

    def __init__(
        self,
        control: Control,
        lanes: Lanes,
        reads: Reads,
        records: Callable[[model.Meta], Records],
        clock: Clock,
        notify: Callable[[], None],  # called after a commit
        allowed_facts: Sequence[str] = (),  # keys that become labels
    ) -> None:
        self._allowed_facts = allowed_facts
        self._control = control
        self._lanes = lanes
        self._reads = reads
        self._records_of = records
        self._clock = clock
        self._notify = notify

    def take(self, heartbeat: Heartbeat, meta: model.Meta) -> protocol.HeartbeatAnswer:
        """Store that the host is alive, and record what follows from its heartbeat.

        A heartbeat that is older than the newest one is a replay and changes nothing. If an agent's
        clock was set back, its heartbeats count again once it has caught up, which takes at most
        twice the allowed skew.

        Raises:
            Unavailable, Unknown.
        """
        now = self._clock()
        host_id = heartbeat.host_id
        host, liveness, order = self._reads.find_all(
            (fleet_rows.host_key(host_id), fleet_rows.Host),
            (fleet_rows.liveness_key(host_id), fleet_rows.Liveness),
            (host_rows.order_key(host_id), host_rows.HostOrder),
        )
        known = None if liveness is None else liveness.row
        asked = {*heartbeat.rollouts, *(() if order is None else (order.row.rollout_id,))}
        if known is not None and heartbeat.said_at < known.said_at:
            return self._answer(heartbeat, self._records(host_id, sorted(asked)), known, now)
        beat = _to_liveness(heartbeat, known, now)
        if host is not None:
            beat = msgspec.structs.replace(
                beat, facts_refused=self._note_facts(host.row, beat, meta)
            )
        if self._note(beat, known, meta):
            # If a timer recorded the host as silent before this write, that is seen here. A later
            # timer finds the new row. So a heartbeat always wins.
            host = self._reads.find(fleet_rows.host_key(host_id), fleet_rows.Host)
        if host is not None and host.row.silent_since is not None:
            self._control.execute(slices.note_heard, slices.NoteHeard(host_id=host_id), meta=meta)
            self._notify()
        current = self._current_rollouts(_list_closures(heartbeat, known))
        records = self._records(host_id, sorted(asked | set(current)))
        for rollout_id, closure in current.items():
            record = records.get(rollout_id)
            if record is not None and _means_something(record, closure):
                self._observe(record, closure, meta)
        return self._answer(heartbeat, records, beat, now)

    def _answer(
        self,
        heartbeat: Heartbeat,
        records: Mapping[str, host_rows.HostRecord],
        beat: fleet_rows.Liveness,
        now: datetime,
    ) -> protocol.HeartbeatAnswer:
        """Return which reports are known, and which orders were withdrawn."""
        seqs = {rollout_id: record.last_event_seq for rollout_id, record in records.items()}
        known = (records.get(rollout_id) for rollout_id in heartbeat.rollouts)
        back = (row.rollout_id for row in known if row is not None and orders.is_withdrawn(row))
        return protocol.HeartbeatAnswer(now, seqs, tuple(back), facts_missing=beat.facts is None)

    def _note(
        self, beat: fleet_rows.Liveness, known: fleet_rows.Liveness | None, meta: model.Meta
    ) -> bool:
        """Store the heartbeat if the last one is old or something changed; return whether so."""
        if (
            known is not None
            and beat.last_seen_at - known.last_seen_at < SEEN_EVERY
            and msgspec.structs.replace(known, last_seen_at=beat.last_seen_at, said_at=beat.said_at)
            == beat
        ):
            return False
        self._records_of(meta).save(fleet_rows.LIVENESS.name, beat.host_id, beat)
        return True

    def _note_facts(
        self, host: fleet_rows.Host, beat: fleet_rows.Liveness, meta: model.Meta
    ) -> str:
        """Turn the host's allowed facts into labels; return why that was refused, if so."""
        facts = _allowed(beat, self._allowed_facts)
        if fact_labels(facts) == split_labels(host.labels)[1]:
            return ""
        command = slices.NoteFacts(host_id=host.host_id, facts=facts)
        run = lambda: self._control.execute(slices.note_facts, command, meta=meta)  # noqa: E731
        try:
            outcome = self._lanes.run(fleet_rows.FLEET, run)
        except fleet_refusals.SelectorOverlap as overlap:
            return overlap.detail
        except (*LOST, LaneBusy):  # the next heartbeat tries again
            return beat.facts_refused
        if outcome.facts:
            self._notify()
        return ""

    def _current_rollouts(self, closures: Mapping[str, str]) -> dict[str, str]:
        """Return the current rollouts of these channels, each with what runs on the host."""
        names = sorted(closures)
        if not names:
            return {}
        channels = self._reads.find_all(*((channel_key(name), Channel) for name in names))
        found: dict[str, str] = {}
        for name, channel in zip(names, channels, strict=True):
            if channel is None:
                continue
            for rollout_id in (channel.row.terminal_rollout_id, channel.row.active_rollout_id):
                if rollout_id is not None:
                    found[rollout_id] = closures[name]
        return found

    def _records(self, host_id: str, rollout_ids: Iterable[str]) -> dict[str, host_rows.HostRecord]:
        wanted = tuple(rollout_ids)
        if not wanted:
            return {}
        found = self._reads.find_all(
            *((host_rows.record_key(id, host_id), host_rows.HostRecord) for id in wanted)
        )
        return {id: item.row for id, item in zip(wanted, found, strict=True) if item is not None}

    def _observe(self, record: host_rows.HostRecord, closure: str, meta: model.Meta) -> None:
        command = report_slices.ObserveHost(
            rollout_id=record.rollout_id, host_id=record.host_id, current_closure=closure
        )
        future = self._lanes.record(
            record.rollout_id, report_slices.observe_host, command, meta=meta
        )
        try:
            outcome = future.result()
        except LOST:  # the rollout is over, or a report was faster
            return
        if outcome.facts:
            self._notify()


def _to_liveness(
    heartbeat: Heartbeat, known: fleet_rows.Liveness | None, now: datetime
) -> fleet_rows.Liveness:
    """Make the host's new liveness. Facts that the heartbeat omits stay as before."""
    facts, refused = (None, "") if known is None else (known.facts, known.facts_refused)
    return fleet_rows.Liveness(
        host_id=heartbeat.host_id,
        last_seen_at=now,
        said_at=heartbeat.said_at,
        agent_version=heartbeat.agent_version,
        current_closures=heartbeat.current_closures,
        facts=facts if heartbeat.facts is None else heartbeat.facts,
        facts_refused=refused,
    )


def _list_closures(heartbeat: Heartbeat, known: fleet_rows.Liveness | None) -> Mapping[str, str]:
    """Return what runs, by channel; empty: nothing any more, as on a host that was re-imaged."""
    before = {} if known is None else dict.fromkeys(known.current_closures, "")
    return {**before, **heartbeat.current_closures}


def _allowed(beat: fleet_rows.Liveness, keys: Iterable[str]) -> dict[str, str]:
    """Return the host's facts with these keys."""
    machine = beat.facts or protocol.HostFacts()
    found = {**msgspec.structs.asdict(machine), "agent_version": beat.agent_version}
    return {key: found[key] for key in keys if found[key]}


def _means_something(record: host_rows.HostRecord, closure: str) -> bool:
    """Whether ``observe_host`` may record something; it decides again in the lane."""
    if closure == record.target_closure:
        return record.state in report_slices.RECOVERABLE
    return record.state is states.HostState.CONVERGED and record.regressed_at is None
