"""What agents say: reports go to the lane of their rollout, heartbeats become coarse liveness.

    report ──▶ checked ──▶ lane of its rollout ──▶ its own answer
    heartbeat ──▶ host_liveness, at most once a minute ──▶ observe_host, note_heard if it means that
                                                     └─▶ note_facts where an operator allows them

Nothing waits in here: a report's future is resolved when its pack is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from tidegate import decoders
from tidegate.clock import Clock
from tidegate.control.fleet.dispatch import LOST
from tidegate.control.lanes import LaneBusy, Lanes
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.fleet.refusals import SelectorOverlap
from tidegate.domain.fleet.rows import FLEET, LIVENESS, Host, Liveness, host_key, liveness_key
from tidegate.domain.fleet.selectors import fact_labels, split_labels
from tidegate.domain.fleet.slices import NoteFacts, NoteHeard, note_facts, note_heard
from tidegate.domain.hosts.facts import AgentEvent
from tidegate.domain.hosts.protocol import HeartbeatAnswer, HostFacts, ReportResult
from tidegate.domain.hosts.refusals import WrongHost
from tidegate.domain.hosts.report_json import KINDS, check_event, event_from_json
from tidegate.domain.hosts.rows import HostOrder, HostRecord, order_key, record_key
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.names import check_rollout_id
from tidegate.domain.rollouts.report_slices import (
    RECOVERABLE,
    ObserveHost,
    ReportEvent,
    observe_host,
    report_event,
)
from tidegate.errors import (
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TidegateError,
    TooLarge,
    Unavailable,
    Unknown,
)
from tidegate.kernel.futures import LightFuture
from tidegate.kernel.model import Meta
from tidegate.kernel.records.records import Records

SEEN_EVERY: Final = timedelta(seconds=60)  # how often a heartbeat is written down

# What a machine refuses an agent is 409, whatever its family is elsewhere
# (docs/agent-protocol.md).
_STATUSES: Final[tuple[tuple[tuple[type[TidegateError], ...], int], ...]] = (
    ((NotFound,), 404),
    ((Gone,), 410),
    ((Invalid, TooLarge), 422),
    ((Forbidden,), 403),
    ((Unavailable, Unknown), 503),
)

Taken = Future[CommandOutcome] | TidegateError


class Report(Struct, frozen=True):
    """One report as it came, and what became of it so far."""

    rollout_id: str
    seq: int
    taken: Taken


class AgentReports:
    """Takes the reports of agents into the lanes of their rollouts."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def take_all(
        self, host_id: str, contents: Sequence[Mapping[str, Any]], meta: Meta
    ) -> list[Report]:
        """Queue a host's reports, those of one rollout in order, and wait for none of them."""
        found: list[Report | ReportEvent] = [_read(host_id, content) for content in contents]
        by_rollout: dict[str, list[int]] = {}
        for number, item in enumerate(found):
            if isinstance(item, ReportEvent):
                by_rollout.setdefault(item.rollout_id, []).append(number)
        for rollout_id, numbers in by_rollout.items():
            events = [item for n in numbers if isinstance(item := found[n], ReportEvent)]
            queued = self._queue(rollout_id, events, meta)
            for number, event, taken in zip(numbers, events, queued, strict=True):
                found[number] = Report(rollout_id, event.event.seq, taken)
        return [item for item in found if isinstance(item, Report)]

    def take_one(self, host_id: str, body: bytes, meta: Meta, told: Told) -> bool:
        """Queue the one report of a whole request's body, read straight from its bytes.

        ``told`` is called in the lane's thread. False: it is not as agents send it, or not for its
        lane; ``take_all`` says why.
        """
        event = plain_event(body)
        if event is None or event.host_id != host_id:
            return False
        rollout_id = event.rollout_id
        try:
            check_event(event)
            check_rollout_id(rollout_id)
            command = ReportEvent(rollout_id=rollout_id, host_id=host_id, event=event)
            report = SingleReport(rollout_id, event.seq, told)
            self._lanes.record(rollout_id, report_event, command, meta=meta, future=report)
        except TidegateError:
            return False
        return True

    def _queue(self, rollout_id: str, events: Sequence[ReportEvent], meta: Meta) -> Sequence[Taken]:
        try:
            return self._lanes.record_all(
                rollout_id, [(report_event, event, meta) for event in events]
            )
        except TidegateError as error:
            return [error] * len(events)


def _read(host_id: str, content: Mapping[str, Any]) -> Report | ReportEvent:
    try:
        event = event_from_json(content)
        check_rollout_id(event.rollout_id)
        if event.host_id != host_id:
            raise WrongHost(host_id, event.host_id)
    except (Invalid, TooLarge, WrongHost) as error:
        rollout_id, seq = content.get("rollout_id"), content.get("seq")
        return Report(
            rollout_id if isinstance(rollout_id, str) else "",
            seq if isinstance(seq, int) else 0,
            error,
        )
    return ReportEvent(rollout_id=event.rollout_id, host_id=host_id, event=event)


class SingleReport(LightFuture[CommandOutcome]):
    """A report that calls ``told`` when it is resolved."""

    def __init__(self, rollout_id: str, seq: int, told: Told) -> None:
        super().__init__()
        self.rollout_id = rollout_id
        self.seq = seq
        self._told = told

    def resolve(self, answer: CommandOutcome | BaseException) -> None:
        super().resolve(answer)
        self._told(self)


Told = Callable[[SingleReport], None]


class _Single(Struct, frozen=True, forbid_unknown_fields=True):
    report: msgspec.Raw


class _Kind(Struct, frozen=True):
    kind: str


_single = decoders.build(_Single)
_kind = decoders.build(_Kind)
_decoders: Final = {name: decoders.build(struct) for name, struct in KINDS.items()}


def plain_event(body: bytes) -> AgentEvent | None:
    """The event of a body that holds one report and nothing else; None: it must be looked into."""
    try:
        raw = _single.decode(body).report
        decoder = _decoders.get(_kind.decode(raw).kind)
        event: AgentEvent | None = None if decoder is None else decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return event


def to_reported(report: Report | SingleReport, error: BaseException | None) -> ReportResult:
    """What its agent is told. Raises: whatever is none of our errors."""
    if error is None:
        return ReportResult(
            rollout_id=report.rollout_id, seq=report.seq, status=200, accepted_through=report.seq
        )
    if not isinstance(error, TidegateError):
        raise error
    state, expected = error.facts.get("state"), error.facts.get("expected")
    return ReportResult(
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


def status_of(error: TidegateError) -> int:
    """The status of a refused report."""
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 409)


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


class Heartbeat(Struct, frozen=True, kw_only=True):
    """That a host lives, and what runs on it."""

    host_id: str
    agent_version: str
    current_closures: dict[str, str]  # channel → what runs
    said_at: int  # Unix time of the request that carried it, under its MAC
    rollouts: tuple[str, ...] = ()  # whose numbers the agent asks for
    facts: HostFacts | None = None  # None: as it said before


class Heartbeats:
    """Takes heartbeats: what they say becomes liveness, and news for rollouts."""

    def __init__(
        self,
        control: Control,
        lanes: Lanes,
        reads: Reads,
        records: Callable[[Meta], Records],
        clock: Clock,
        notify: Callable[[], None],  # something was committed
        allowed_facts: Sequence[str] = (),  # keys that become labels
    ) -> None:
        self._allowed_facts = allowed_facts
        self._control = control
        self._lanes = lanes
        self._reads = reads
        self._records_of = records
        self._clock = clock
        self._notify = notify

    def take(self, heartbeat: Heartbeat, meta: Meta) -> HeartbeatAnswer:
        """Note that the host was heard, and what follows from it.

        A heartbeat that is older than the newest one was recorded and sent again: it changes
        nothing. An agent whose clock was set back is heard again once it has caught up, which
        takes at most twice the skew that its requests may have.

        Raises:
            Unavailable, Unknown.
        """
        now = self._clock()
        host_id = heartbeat.host_id
        host, liveness, order = self._reads.find_all(
            (host_key(host_id), Host),
            (liveness_key(host_id), Liveness),
            (order_key(host_id), HostOrder),
        )
        known = None if liveness is None else liveness.row
        asked = {*heartbeat.rollouts, *(() if order is None else (order.row.rollout_id,))}
        if known is not None and heartbeat.said_at < known.said_at:
            return self._answer(heartbeat, self._records(host_id, sorted(asked)), known, now)
        said = _to_liveness(heartbeat, known, now)
        if host is not None:
            said = replace(said, facts_refused=self._note_facts(host.row, said, meta))
        if self._note(said, known, meta):
            # A timer that found the host silent before this was written is seen here; one that
            # looks from now on finds the new row. So a heartbeat always wins.
            host = self._reads.find(host_key(host_id), Host)
        if host is not None and host.row.silent_since is not None:
            self._control.execute(note_heard, NoteHeard(host_id=host_id), meta=meta)
            self._notify()
        current = self._current_rollouts(heartbeat.current_closures)
        records = self._records(host_id, sorted(asked | set(current)))
        for rollout_id, closure in current.items():
            record = records.get(rollout_id)
            if record is not None and _means_something(record, closure):
                self._observe(record, closure, meta)
        return self._answer(heartbeat, records, said, now)

    def _answer(
        self,
        heartbeat: Heartbeat,
        records: Mapping[str, HostRecord],
        said: Liveness,
        now: datetime,
    ) -> HeartbeatAnswer:
        """Which reports are known, and which orders were taken back."""
        seqs = {rollout_id: record.last_event_seq for rollout_id, record in records.items()}
        known = (records.get(rollout_id) for rollout_id in heartbeat.rollouts)
        back = (row.rollout_id for row in known if row is not None and row.cancelled_at is not None)
        return HeartbeatAnswer(now, seqs, tuple(back), facts_missing=said.facts is None)

    def _note(self, said: Liveness, known: Liveness | None, meta: Meta) -> bool:
        """Write it down if the last time was long ago, or something else runs now; whether so."""
        if (
            known is not None
            and said.last_seen_at - known.last_seen_at < SEEN_EVERY
            and replace(known, last_seen_at=said.last_seen_at, said_at=said.said_at) == said
        ):
            return False
        self._records_of(meta).save(LIVENESS.name, said.host_id, said)
        return True

    def _note_facts(self, host: Host, said: Liveness, meta: Meta) -> str:
        """Let selectors see what an operator allows of the host's facts; why that is refused."""
        facts = _allowed(said, self._allowed_facts)
        if fact_labels(facts) == split_labels(host.labels)[1]:
            return ""
        command = NoteFacts(host_id=host.host_id, facts=facts)
        run = lambda: self._control.execute(note_facts, command, meta=meta)  # noqa: E731
        try:
            outcome = self._lanes.run(FLEET, run)
        except SelectorOverlap as overlap:
            return overlap.detail
        except (*LOST, LaneBusy):  # the next heartbeat tries again
            return said.facts_refused
        if outcome.facts:
            self._notify()
        return ""

    def _current_rollouts(self, closures: Mapping[str, str]) -> dict[str, str]:
        """The rollouts that these channels follow now, each with what runs here of its channel."""
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

    def _records(self, host_id: str, rollout_ids: Iterable[str]) -> dict[str, HostRecord]:
        wanted = tuple(rollout_ids)
        if not wanted:
            return {}
        found = self._reads.find_all(*((record_key(id, host_id), HostRecord) for id in wanted))
        return {id: item.row for id, item in zip(wanted, found, strict=True) if item is not None}

    def _observe(self, record: HostRecord, closure: str, meta: Meta) -> None:
        command = ObserveHost(
            rollout_id=record.rollout_id, host_id=record.host_id, current_closure=closure
        )
        future = self._lanes.record(record.rollout_id, observe_host, command, meta=meta)
        try:
            outcome = future.result()
        except LOST:  # the rollout is over, or its agent was faster
            return
        if outcome.facts:
            self._notify()


def _to_liveness(heartbeat: Heartbeat, known: Liveness | None, now: datetime) -> Liveness:
    """What is known of the host from now on. Facts that it does not repeat are as before."""
    facts, refused = (None, "") if known is None else (known.facts, known.facts_refused)
    return Liveness(
        host_id=heartbeat.host_id,
        last_seen_at=now,
        said_at=heartbeat.said_at,
        agent_version=heartbeat.agent_version,
        current_closures=heartbeat.current_closures,
        facts=facts if heartbeat.facts is None else heartbeat.facts,
        facts_refused=refused,
    )


def _allowed(said: Liveness, keys: Iterable[str]) -> dict[str, str]:
    """What the host says of itself under these keys."""
    machine = said.facts or HostFacts()
    found = {**asdict(machine), "agent_version": said.agent_version}
    return {key: found[key] for key in keys if found[key]}


def _means_something(record: HostRecord, closure: str) -> bool:
    """Whether ``observe_host`` may have something to say; it decides again, in the lane."""
    if closure == record.target_closure:
        return record.state in RECOVERABLE
    return record.state is HostState.CONVERGED and record.regressed_at is None
