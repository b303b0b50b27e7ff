"""Channels, rollouts and hosts on the memory engine: all real slices and folds, no fed events.

A ``MemoryFleet`` promotes releases, acts as the dispatcher and the agents one event at a time, and
reads rows and log. Hosts are named by their wave: ``w0-0``, ``w0-1``, ``w1-0`` …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec import Struct

from tests.domain.registry import OfferRelease, digest_of, offer_release, operator
from tests.domain.sample_control import SampleControl
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.channels.slices import CreateChannel, create_channel
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.fleet.rows import fleet_key
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationDeferred,
    ActivationFailed,
    Converged,
    DispatchAck,
    DispatchReject,
    ProbeTopologyDeclared,
    RollbackComplete,
    RollbackFailed,
)
from tidegate.domain.hosts.machine import expected_seq
from tidegate.domain.hosts.rows import HOST_RECORDS, HostRecord, record_key
from tidegate.domain.hosts.slices import (
    CancelDispatch,
    ExpireDeadline,
    cancel_dispatch,
    expire_deadline,
)
from tidegate.domain.hosts.states import HostPolicy, HostState, OnFailure
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.facts import OpenedWave
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.promotion import PromoteRelease, PromotionResult, promote_release
from tidegate.domain.rollouts.report_slices import (
    ObserveHost,
    ReportEvent,
    observe_host,
    report_event,
)
from tidegate.domain.rollouts.rows import Rollout, RolloutTally, rollout_key, tally_key
from tidegate.domain.rollouts.skip_slices import (
    SkipHost,
    SkipHostByHand,
    skip_host,
    skip_host_by_hand,
)
from tidegate.domain.rollouts.states import Clearance, RolloutState
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import codec
from tidegate.kernel.model import Event, Key
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

CHANNEL = "web-stable"
PACKAGE = "default/web"
OLD = "sha256:old"  # what every host ran before
SOAK = 60

Row = TypeVar("Row")


class MemoryFleet:
    """One installation, its clock, its operators and its agents."""

    def __init__(self, *channels: str, store: Store | None = None, **policy: Any) -> None:
        self.sample = SampleControl(MemoryStore(SCHEMA) if store is None else store, FOLDS)
        self.store = self.sample.store
        self.clock = self.sample.clock
        self.policy = ChannelPolicy(**policy)
        self.commands = 0
        for channel in channels or (CHANNEL,):
            self.create(channel)

    # ── rows and log ──

    def row(self, key: Key, kind: type[Row]) -> Row:
        row = self.sample.row(key)
        assert isinstance(row, kind), key
        return row

    def tally(self, rollout_id: str) -> RolloutTally:
        return self.row(tally_key(rollout_id), RolloutTally)

    def rollout(self, rollout_id: str) -> Rollout:
        return self.row(rollout_key(rollout_id), Rollout)

    def channel(self, channel: str = CHANNEL) -> Channel:
        return self.row(channel_key(channel), Channel)

    def record(self, rollout_id: str, host_id: str) -> HostRecord | None:
        row = self.sample.row(record_key(rollout_id, host_id))
        assert row is None or isinstance(row, HostRecord)
        return row

    def records(self, rollout_id: str) -> Iterator[HostRecord]:
        for found in self.store.range(HOST_RECORDS.name, prefix=f"{rollout_id}/", limit=1_000):
            yield codec.decode(found.data, HostRecord)

    def events(self, *kinds: type[Struct]) -> list[Any]:
        """Return the facts of these types in log order, or all facts if no type is named."""
        names = {kind.__name__ for kind in kinds}
        return [
            SCHEMA.vocabulary.value(event)
            for event in self.sample.events()
            if not names or event.type in names
        ]

    def log(self) -> tuple[Event, ...]:
        return self.sample.events()

    def types_since(self, position: int) -> list[str]:
        return [event.type for event in self.log() if event.position > position]

    @property
    def head(self) -> int:
        return self.log()[-1].position

    def state(self, rollout_id: str) -> RolloutState:
        return self.rollout(rollout_id).state

    def counts(self, rollout_id: str) -> Counter[HostState]:
        return Counter(record.state for record in self.records(rollout_id))

    # ── operators ──

    def execute(self, item: Slice, command: Struct) -> CommandOutcome:
        return self.sample.control.execute(item, command)

    def fleet_version(self) -> int:
        (found,) = self.store.get(fleet_key())
        return 0 if found is None else found.version

    def create(self, channel: str) -> None:
        command = CreateChannel(
            channel=channel,
            package=PACKAGE,
            selector=f"channel={channel}",
            operator="user_1",
            policy=self.policy,
            fleet_version=self.fleet_version(),
        )
        self.execute(create_channel, command)

    def promotion(
        self, release_id: str, *hosts: int, channel: str = CHANNEL, **changes: Any
    ) -> PromoteRelease:
        """Build the command that a correct planner would send now: waves of this many hosts."""
        self.commands += 1
        actual = self.sample.row(actual_key(channel))
        row = self.sample.row(channel_key(channel))
        failures = changes.pop("failures_max", 0)
        least = changes.pop("converged_min", 1)
        members = changes.pop("members", {})  # of every wave
        said = {
            "channel": channel,
            "release_id": release_id,
            "digest": digest_of(release_id),
            "authority": operator(release_id, channel),
            "command_id": f"c{self.commands}",
            "by": "user_1",
            "plan_digest": f"sha256:plan-{self.commands}",
            "waves": tuple(
                OpenedWave(
                    name=f"w{n}",
                    hosts=count,
                    soak_seconds=SOAK,
                    failures_max=failures,
                    converged_min=least,
                    **members,
                )
                for n, count in enumerate(hosts)
            ),
            "expected_version": actual.version if isinstance(actual, Actual) else None,
            "supersedes": row.active_rollout_id if isinstance(row, Channel) else None,
            "fleet_version": self.fleet_version(),
        }
        return PromoteRelease(**(said | changes))

    def promote(self, release_id: str, *hosts: int, **changes: Any) -> str:
        self.execute(offer_release, OfferRelease(release_id, digest_of(release_id)))
        outcome = self.execute(promote_release, self.promotion(release_id, *hosts, **changes))
        promoted = codec.decode(outcome.answer, PromotionResult)
        assert promoted.rollout_id is not None
        return promoted.rollout_id

    def clearance(
        self, rollout_id: str, mode: Clearance, *host_ids: str
    ) -> tuple[Slice, ClearRollout]:
        command = ClearRollout(
            rollout_id=rollout_id,
            operator="user_1",
            reason="looked at it",
            mode=mode,
            closure_hash=self.tally(rollout_id).target_closure,
            host_ids=host_ids,
        )
        return clear_rollout, command

    def clear(self, rollout_id: str, mode: Clearance, *host_ids: str) -> None:
        self.execute(*self.clearance(rollout_id, mode, *host_ids))

    # ── the dispatcher ──

    def order(self, rollout_id: str, *host_ids: str, late: bool = False) -> None:
        tally = self.tally(rollout_id)
        for host_id in host_ids:
            record = self.record(rollout_id, host_id)
            attempt = tally.attempt if record is None else max(tally.attempt, record.attempt + 1)
            command = ReserveDispatch(
                rollout_id=rollout_id,
                host_id=host_id,
                target_closure=tally.target_closure,
                wave=int(host_id[1 : host_id.index("-")]),
                policy=HostPolicy(soak_seconds=SOAK, on_failure=tally.on_failure),
                attempt=attempt,
                late=late,
            )
            self.execute(reserve_dispatch, command)

    def cancel(self, rollout_id: str, host_id: str) -> None:
        command = CancelDispatch(rollout_id=rollout_id, host_id=host_id, reason="halted")
        self.execute(cancel_dispatch, command)

    def skip(self, rollout_id: str, host_id: str) -> None:
        wave = int(host_id[1 : host_id.index("-")])
        command = SkipHost(rollout_id=rollout_id, host_id=host_id, wave=wave, reason="offline")
        self.execute(skip_host, command)

    def skip_by_hand(self, rollout_id: str, host_id: str) -> None:
        command = SkipHostByHand(
            rollout_id=rollout_id,
            host_id=host_id,
            wave=int(host_id[1 : host_id.index("-")]),
            operator="user_1",
            reason="it is switched off",
        )
        self.execute(skip_host_by_hand, command)

    def expire(self, rollout_id: str, host_id: str) -> None:
        """Wait until the host's deadline passes, and report it."""
        record = self.record(rollout_id, host_id)
        assert record is not None
        assert record.due_at is not None
        self.clock.now = max(self.clock.now, record.due_at)
        command = ExpireDeadline(rollout_id=rollout_id, host_id=host_id, due_at=record.due_at)
        self.execute(expire_deadline, command)

    # ── agents ──

    def report(
        self,
        kind: type[Struct],
        rollout_id: str,
        host_id: str,
        at: datetime | None = None,
        **said: Any,
    ) -> None:
        record = self.record(rollout_id, host_id)
        seq = 1 if record is None else expected_seq(record)
        event: Any = kind(
            rollout_id=rollout_id, host_id=host_id, at=at or self.clock.now, seq=seq, **said
        )
        command = ReportEvent(rollout_id=rollout_id, host_id=host_id, event=event)
        self.execute(report_event, command)

    def ack(self, rollout_id: str, *host_ids: str) -> None:
        target = self.tally(rollout_id).target_closure
        for host_id in host_ids:
            self.report(
                DispatchAck,
                rollout_id,
                host_id,
                current_closure_at_dispatch=OLD,
                target_closure=target,
            )

    def activate(self, rollout_id: str, *host_ids: str) -> None:
        target = self.tally(rollout_id).target_closure
        for host_id in host_ids:
            self.report(ActivationCompleted, rollout_id, host_id, observed_current_closure=target)

    def observe(self, rollout_id: str, *host_ids: str) -> None:
        """Report by a heartbeat that the target runs."""
        target = self.tally(rollout_id).target_closure
        for host_id in host_ids:
            command = ObserveHost(rollout_id=rollout_id, host_id=host_id, current_closure=target)
            self.execute(observe_host, command)

    def declare(self, rollout_id: str, *host_ids: str) -> None:
        for host_id in host_ids:
            self.report(ProbeTopologyDeclared, rollout_id, host_id)

    def converge(self, rollout_id: str, *host_ids: str) -> None:
        """Let the soak pass, and report that the hosts converged."""
        self.clock.advance(timedelta(seconds=SOAK))
        for host_id in host_ids:
            record = self.record(rollout_id, host_id)
            assert record is not None
            self.report(Converged, rollout_id, host_id, current_closure=record.target_closure)

    def settle(self, rollout_id: str, host_id: str) -> None:
        """Report the next successful event of a soaking host."""
        record = self.record(rollout_id, host_id)
        assert record is not None
        declared = record.topology_declared_at is not None
        (self.converge if declared else self.declare)(rollout_id, host_id)

    def reach(self, rollout_id: str, *host_ids: str) -> None:
        """Take the hosts from no order to Converged."""
        self.order(rollout_id, *host_ids)
        self.ack(rollout_id, *host_ids)
        self.activate(rollout_id, *host_ids)
        self.declare(rollout_id, *host_ids)
        self.converge(rollout_id, *host_ids)

    def start(self, rollout_id: str, *host_ids: str) -> None:
        """Take the hosts from no order to Activating."""
        self.order(rollout_id, *host_ids)
        self.ack(rollout_id, *host_ids)

    def fail(self, rollout_id: str, *host_ids: str) -> None:
        for host_id in host_ids:
            self.report(ActivationFailed, rollout_id, host_id, exit_code=1)

    def reject(self, rollout_id: str, host_id: str) -> None:
        self.report(DispatchReject, rollout_id, host_id, reason="not verified")

    def defer(self, rollout_id: str, host_id: str) -> None:
        self.report(ActivationDeferred, rollout_id, host_id, component="kernel")

    def revert(self, rollout_id: str, *host_ids: str) -> None:
        for host_id in host_ids:
            self.report(RollbackComplete, rollout_id, host_id, reverted_to_closure=OLD)

    def lose(self, rollout_id: str, host_id: str) -> None:
        """Report that the host cannot roll back."""
        self.report(RollbackFailed, rollout_id, host_id, phase="switch", exit_code=1)


HALT: dict[str, Any] = {"on_failure": OnFailure.HALT}
