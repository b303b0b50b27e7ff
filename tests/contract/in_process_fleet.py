"""A small fleet on any engine: the real control parts, hosts that report, and a journey.

``InProcessFleet`` is one server over one store: promotion, dispatcher, order queue, lanes and
timers, in one thread and on a clock that moves only when a test moves it. ``play_journey`` takes it
through everything that rollouts do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import apsw
import psycopg
from msgspec import Struct

from tests.contract.address import Address
from tests.domain.registry import OfferRelease, digest_of, offer_release
from tidegate.clock import ManualClock
from tidegate.control.fleet.dispatch import DispatchResult
from tidegate.control.operations.promotion_planning import Promote
from tidegate.control.runtime import CommandOutcome
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, EdgeRequires, WaveSpec
from tidegate.domain.channels.rows import Channel, Quarantined, channel_key, quarantine_key
from tidegate.domain.channels.slices import (
    CreateChannel,
    LiftQuarantine,
    create_channel,
    lift_quarantine,
)
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.fleet.rows import fleet_key
from tidegate.domain.fleet.slices import EnrollHost, SetBudget, enroll_host, set_budget
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationFailed,
    Converged,
    DispatchAck,
    ProbeDeclared,
    ProbeResult,
    ProbeTopologyDeclared,
    RollbackComplete,
)
from tidegate.domain.hosts.machine import expected_seq
from tidegate.domain.hosts.rows import HOST_RECORDS, HostRecord, record_key
from tidegate.domain.hosts.states import HostState, OnFailure, ProbeMode, ProbeStatus
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.promotion import PromotionResult
from tidegate.domain.rollouts.rows import ROLLOUTS, Rollout, RolloutTally, rollout_key, tally_key
from tidegate.domain.rollouts.states import Clearance, RolloutState
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.model import ALL, Commit, Event, Key, Record
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.simulate.control_plane import CommitFate, MemoryBlobs, SimulatedControlPlane

T0 = datetime(2026, 5, 1, 6, tzinfo=UTC)
PACKAGE = "default/web"
OLD = "sha256:old"  # what every host ran before
SOAK = 60
RETENTION = 3_600
ROWS_MAX = 1_000
HTTP = ProbeDeclared("http", "http", ProbeMode.ENFORCE)

Row = TypeVar("Row")


class InProcessFleet:
    """One server, its clock, its operators and its agents."""

    def __init__(self, store: Store, blobs: MemoryBlobs | None = None, name: str = "s0") -> None:
        self.store = store
        self.name = name
        self.clock = ManualClock(T0)
        self.commits: list[Commit] = []
        self.blobs = cast(Blobs, blobs or MemoryBlobs())
        self.fate = CommitFate.LIVES  # whether the server dies before or after its next commits
        self.control_plane = SimulatedControlPlane(
            store,
            FOLDS,
            self.clock,
            self.blobs,
            self.commits.append,
            lambda hosts: None,
            lambda: self.fate,
        )
        self.asked = 0

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    # ── rows and log ──

    def record_of(self, key: Key) -> Record:
        (record,) = self.store.get(key)
        assert record is not None, key
        return record

    def row(self, key: Key, kind: type[Row]) -> Row:
        return codec.decode(self.record_of(key).data, kind)

    def rollout(self, rollout_id: str) -> Rollout:
        return self.row(rollout_key(rollout_id), Rollout)

    def state(self, rollout_id: str) -> RolloutState:
        return self.rollout(rollout_id).state

    def tally(self, rollout_id: str) -> RolloutTally:
        return self.row(tally_key(rollout_id), RolloutTally)

    def channel(self, channel: str) -> Channel:
        return self.row(channel_key(channel), Channel)

    def host(self, rollout_id: str, host_id: str) -> HostRecord:
        return self.row(record_key(rollout_id, host_id), HostRecord)

    def hosts(self, rollout_id: str) -> Iterator[HostRecord]:
        prefix = f"{rollout_id}/"
        for record in self.store.range(HOST_RECORDS.name, prefix=prefix, limit=ROWS_MAX):
            yield codec.decode(record.data, HostRecord)

    def quarantine(self, rollout_id: str) -> Quarantined | None:
        tally = self.tally(rollout_id)
        (found,) = self.store.get(quarantine_key(tally.channel, tally.target_closure))
        return None if found is None else codec.decode(found.data, Quarantined)

    def log(self, after: int = 0) -> tuple[Event, ...]:
        return self.store.read(ALL, after=after).events

    def types(self, after: int = 0) -> list[str]:
        return [event.type for event in self.log(after)]

    @property
    def head(self) -> int:
        return self.log()[-1].position

    def check_invariants(self) -> None:
        """Check RO-3 for every rollout: what the states Terminal and Reverted imply."""
        for record in self.store.range(ROLLOUTS.name, limit=ROWS_MAX):
            rollout = codec.decode(record.data, Rollout)
            counted = [host for host in self.hosts(rollout.rollout_id) if host.left is None]
            states = [host.state for host in counted if not host.late]
            if rollout.state is RolloutState.TERMINAL:
                assert {*states} <= {HostState.CONVERGED}, rollout
                assert len(states) == sum(
                    wave.hosts - wave.left for wave in self.tally(rollout.rollout_id).waves
                )
            if rollout.state is RolloutState.REVERTED:
                assert HostState.REVERTED in states
                assert not {*states} & {HostState.ACTIVATING, HostState.SOAKING}

    # ── operators ──

    def execute(self, item: Slice, command: Struct) -> CommandOutcome:
        return self.control_plane.control.execute(item, command)

    def enroll(self, *host_ids: str, **labels: str) -> None:
        for host_id in host_ids:
            command = EnrollHost(
                host_id=host_id, public_key="ab" * 32, labels=labels, operator="user_1"
            )
            self.execute(enroll_host, command)

    def create(
        self,
        channel: str,
        *waves: WaveSpec,
        package: str = PACKAGE,
        selector: str = "",
        **policy: Any,
    ) -> None:
        (fleet_row,) = self.store.get(fleet_key())
        command = CreateChannel(
            channel=channel,
            package=package,
            selector=selector or f"channel={channel}",
            operator="user_1",
            policy=ChannelPolicy(waves=waves, **policy),
            fleet_version=0 if fleet_row is None else fleet_row.version,
        )
        self.execute(create_channel, command)

    def bound(self, selector: str, most: int) -> None:
        command = SetBudget(
            budget_id="few", selector=selector, operator="user_1", max_in_flight=most
        )
        self.execute(set_budget, command)

    def offer(self, *release_ids: str) -> None:
        for release_id in release_ids:
            self.execute(offer_release, OfferRelease(release_id, digest_of(release_id)))

    def promote(self, channel: str, release_id: str, **said: Any) -> str:
        self.asked += 1
        asked = Promote(
            channel=channel,
            release_id=release_id,
            command_id=f"{channel}-{self.name}-{self.asked}",
            by="user_1",
            **said,
        )
        promoted = codec.decode(
            self.control_plane.promotions.promote(asked).answer, PromotionResult
        )
        assert promoted.rollout_id is not None
        return promoted.rollout_id

    def clearance(self, rollout_id: str, mode: Clearance, *hosts: str, **said: Any) -> ClearRollout:
        members: dict[str, Any] = {
            "operator": "user_1",
            "reason": "looked at it",
            "closure_hash": self.tally(rollout_id).target_closure,
        }
        return ClearRollout(rollout_id=rollout_id, mode=mode, host_ids=hosts, **(members | said))

    def clear(self, rollout_id: str, mode: Clearance, *hosts: str) -> None:
        self.execute(clear_rollout, self.clearance(rollout_id, mode, *hosts))

    def lift(self, rollout_id: str) -> None:
        """Allow the artifact on its channel again."""
        found = self.rollout(rollout_id)
        command = LiftQuarantine(
            channel=found.channel,
            closure_hash=found.target_closure,
            operator="user_1",
            reason="looked at it",
        )
        self.execute(lift_quarantine, command)

    def dispatch(self, *, thorough: bool = False) -> DispatchResult:
        return self.control_plane.dispatcher.run_pass(thorough=thorough)

    # ── agents ──

    def event(self, kind: type[Struct], rollout_id: str, host_id: str, **said: Any) -> Any:
        """Build the next report of a host."""
        members: dict[str, Any] = {"at": self.clock()}
        if "seq" not in said:
            members["seq"] = expected_seq(self.host(rollout_id, host_id))
        return kind(rollout_id=rollout_id, host_id=host_id, **(members | said))

    def say(self, kind: type[Struct], rollout_id: str, host_id: str, **said: Any) -> CommandOutcome:
        (answer,) = self.control_plane.report(self.event(kind, rollout_id, host_id, **said))
        if isinstance(answer, TidegateError):
            raise answer
        assert isinstance(answer, CommandOutcome)
        return answer

    def ack(self, *host_ids: str) -> None:
        """Let each host poll and acknowledge the order that it receives."""
        for host_id in host_ids:
            order = self.control_plane.deliveries.poll(host_id)
            assert order is not None, host_id
            self.say(
                DispatchAck,
                order.rollout_id,
                host_id,
                target_closure=order.target_closure,
                current_closure_at_dispatch=OLD,
            )
            self.control_plane.deliveries.clear(host_id, order.rollout_id, order.attempt)

    def activate(self, rollout_id: str, *host_ids: str) -> None:
        """Report that the host activated its target and passed its one probe."""
        for host_id in host_ids:
            target = self.host(rollout_id, host_id).target_closure
            self.say(ActivationCompleted, rollout_id, host_id, observed_current_closure=target)
            self.say(ProbeTopologyDeclared, rollout_id, host_id, probes=(HTTP,))

    def probe(self, rollout_id: str, host_id: str, status: ProbeStatus) -> CommandOutcome:
        said = {"probe_name": "http", "mode": ProbeMode.ENFORCE, "status": status}
        return self.say(ProbeResult, rollout_id, host_id, **said)

    def converge(self, rollout_id: str, *host_ids: str) -> None:
        for host_id in host_ids:
            target = self.host(rollout_id, host_id).target_closure
            self.say(Converged, rollout_id, host_id, current_closure=target)

    def reach(self, rollout_id: str, *host_ids: str) -> None:
        """Take the hosts from the order to Converged."""
        self.ack(*host_ids)
        self.activate(rollout_id, *host_ids)
        for host_id in host_ids:
            self.probe(rollout_id, host_id, ProbeStatus.PASS)
        self.wait(SOAK)
        self.converge(rollout_id, *host_ids)

    def fail(self, rollout_id: str, host_id: str) -> None:
        self.ack(host_id)
        self.say(ActivationFailed, rollout_id, host_id, exit_code=1)

    def revert(self, rollout_id: str, host_id: str) -> None:
        self.say(RollbackComplete, rollout_id, host_id, reverted_to_closure=OLD)


# ── a journey ─────────────────────────────────────────────────────────────────────────────────────

FIRST, SECOND, AGAIN = "edge@web.1", "edge@web.2", "edge@web.1~2"
CORE, CORE_NEXT, LONE = "core@web.1", "core@web.2", "lone@web.1"
CANARY = WaveSpec(name="canary", count=1, soak_seconds=SOAK)
REST = WaveSpec(name="rest", soak_seconds=SOAK)


def enroll_fleet(fleet: InProcessFleet) -> None:
    """Create the channels of one package: one with waves and rollback, one that halts and waits for
    the first, and one without hosts.
    """
    fleet.create("edge", CANARY, REST, retention_seconds=RETENTION)
    idle = (ChannelEdge("edge", EdgeRequires.IDLE),)
    fleet.create("core", on_failure=OnFailure.HALT, retention_seconds=RETENTION, edges=idle)
    fleet.create("lone", retention_seconds=RETENTION)
    fleet.enroll("e1", "e2", "e3", channel="edge")
    fleet.enroll("c1", channel="core")
    fleet.offer("web.1", "web.2", "web.3")


def play_journey(fleet: InProcessFleet) -> InProcessFleet:
    """Do everything that rollouts do, once. At the end some rollouts are finished and some are
    running.
    """
    enroll_fleet(fleet)
    _succeed_in_waves(fleet)
    _halt(fleet)
    _fail_twice(fleet)
    _prune(fleet)
    _leave_under_way(fleet)
    fleet.check_invariants()
    return fleet


def _succeed_in_waves(fleet: InProcessFleet) -> None:
    """Bring a release to every host of a channel, wave by wave, while the next channel waits."""
    assert fleet.promote("edge", "web.1") == FIRST
    assert fleet.promote("core", "web.1", display_name="spring") == CORE
    assert fleet.dispatch().ordered == 1
    fleet.ack("e1")
    fleet.activate(FIRST, "e1")
    fleet.probe(FIRST, "e1", ProbeStatus.FAIL)
    fleet.probe(FIRST, "e1", ProbeStatus.PASS)
    fleet.wait(SOAK)
    assert fleet.dispatch().ordered == 0
    fleet.converge(FIRST, "e1")
    fleet.check_invariants()
    assert fleet.dispatch().ordered == 2
    fleet.reach(FIRST, "e2", "e3")
    fleet.check_invariants()


def _halt(fleet: InProcessFleet) -> None:
    """Fail where the policy is to halt. The rollout ends, and the host is waived."""
    assert fleet.dispatch().ordered == 1, "Terminal releases the channel that waits for it"
    fleet.fail(CORE, "c1")
    assert fleet.state(CORE) is RolloutState.FAILED
    fleet.clear(CORE, Clearance.WAIVE, "c1")
    assert fleet.promote("lone", "web.1") == LONE
    fleet.wait(1)


def _fail_twice(fleet: InProcessFleet) -> None:
    """Fail the next release on its canary twice, then abort it."""
    assert fleet.promote("edge", "web.2") == SECOND
    for mode in (Clearance.RESUME, Clearance.ABANDON):
        assert fleet.dispatch().ordered == 1
        fleet.fail(SECOND, "e1")
        fleet.check_invariants()
        fleet.revert(SECOND, "e1")
        fleet.check_invariants()
        assert fleet.dispatch(thorough=True).ordered == 0
        fleet.wait(1)
        fleet.clear(SECOND, mode)
        if mode is Clearance.RESUME:
            assert fleet.promote("core", "web.2") == CORE_NEXT
    assert fleet.dispatch().ordered == 1, "and so does Superseded"


def _prune(fleet: InProcessFleet) -> None:
    """Delete each rollout once its retention time is over."""
    due = fleet.tally(LONE).due_at
    assert due is not None
    fleet.clock.now = due
    assert fleet.control_plane.due.tick().retentions == 1
    fleet.check_invariants()
    fleet.wait(RETENTION)
    assert fleet.control_plane.due.tick().retentions == 3


def _leave_under_way(fleet: InProcessFleet) -> None:
    """Roll the channel back to its first release; a probe fails there, and an order waits
    elsewhere.
    """
    assert fleet.promote("edge", "web.1") == AGAIN
    assert fleet.dispatch().ordered == 1
    fleet.ack("e1")
    fleet.activate(AGAIN, "e1")
    fleet.probe(AGAIN, "e1", ProbeStatus.FAIL)


def rows(store: Store, *names: str) -> dict[Key, Record]:
    """Return every row, or the rows of some collections, as stored."""
    return {
        record.key: record
        for name in names or tuple(SCHEMA.collections)
        for record in store.range(name, limit=ROWS_MAX)
    }


# ── stores ────────────────────────────────────────────────────────────────────────────────────────


class FleetStores:
    """A fresh place for a fleet's log, handles on it, and direct access to its database."""

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self._memory = MemoryStore(SCHEMA) if address is None else None
        self._handles = ExitStack()

    def open(self, schema: Schema = SCHEMA) -> Store:
        """Open another handle. For memory, return the one object."""
        if self.address is None:
            assert self._memory is not None
            return self._memory
        return self._handles.enter_context(closing(self.address.open(schema)))

    def sql(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Run SQL in the database itself, without our engine. SQL engines only."""
        assert self.address is not None
        if self.address.engine == "sqlite":
            with closing(apsw.Connection(self.address.where)) as raw:
                return list(raw.execute(statement, bindings))
        with psycopg.connect(self.address.where, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {self.address.namespace}".encode())
            cursor = connection.execute(statement.replace("?", "%s").encode(), bindings)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._handles.close()
