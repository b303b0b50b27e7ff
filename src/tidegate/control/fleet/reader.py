"""Read the fleet for the gates: the dispatcher, ``explain`` and the metrics share this reader.

    rollout_tallies, records, failures, quarantine, pin ──▶ Sight ┐
    channels, hosts, orders, budgets, freezes, windows ──────────┴▶ FleetState ──▶ gates

So all of them judge the same rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from tidegate import errors, lru
from tidegate.control.storage.blobs import BlobDamaged, Blobs
from tidegate.domain.channels import facts, ladder, rows as channel_rows
from tidegate.domain.fleet import rows as fleet_rows
from tidegate.domain.gates import dispatch_pass, inputs
from tidegate.domain.hosts import probes, refusals, rows as host_rows, states as host_states
from tidegate.domain.notifications.notices import DETAIL_CHARS_MAX
from tidegate.domain.outbox.redaction import redact
from tidegate.domain.planner import PlanByHost, decode_plan, index_by_host
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states
from tidegate.domain.windows.rows import WINDOWS, Window
from tidegate.kernel import codec
from tidegate.kernel.collections import Collection, entry
from tidegate.kernel.model import Key
from tidegate.kernel.store import Store, row_pages

PAGE = 1_000
CHARTS_MAX = 64  # plans that are cached, by digest
ROLLOUTS_MAX = 10_000  # open at once
CAUSES_MAX = 5  # failed hosts of a rollout that are described
HEARD_MAX = 50  # hosts of a rollout whose last report is read, if they have not taken their order

# Errors of a single rollout. All others concern the store, and so every rollout.
OWN = (
    errors.Invalid,
    errors.TooLarge,
    errors.NotFound,
    errors.Gone,
    errors.Refused,
    errors.Forbidden,
    BlobDamaged,
)

Row = TypeVar("Row", bound=Struct)


def to_gate_fault(rollout_id: str, error: errors.TidegateError) -> inputs.GateFault:
    return inputs.GateFault(rollout_id, error.code, error.detail)


class FleetReader:
    """Reads the rows that gates need."""

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs
        self._charts: lru.LruCache[str, PlanByHost] = lru.LruCache(CHARTS_MAX)

    # ── rows ──

    def row(self, key: Key, model: type[Row]) -> inputs.Versioned[Row] | None:
        (record,) = self._store.get(key)
        return (
            None
            if record is None
            else inputs.Versioned(codec.decode(record.data, model), record.version)
        )

    def many(self, *wanted: tuple[Key, type[Any]]) -> list[inputs.Versioned[Any] | None]:
        """Return rows of several collections, in one read."""
        records = self._store.get(*(key for key, _ in wanted)) if wanted else ()
        return [
            None
            if record is None
            else inputs.Versioned(codec.decode(record.data, model), record.version)
            for record, (_, model) in zip(records, wanted, strict=True)
        ]

    def rows(
        self, collection: Collection, model: type[Row], prefix: str = ""
    ) -> list[inputs.Versioned[Row]]:
        """Return all rows of a collection, or those with an id prefix, decoded as ``model``."""
        found: list[inputs.Versioned[Row]] = []
        for page in row_pages(self._store, collection.name, prefix=prefix):
            values = codec.decode_all([record.data for record in page], model)
            found += map(inputs.Versioned, values, [record.version for record in page])
        return found

    def open_rollouts(self) -> list[rollout_rows.Rollout]:
        """List all open rollouts, by state, then by id."""
        found: list[rollout_rows.Rollout] = []
        after = ""
        while len(found) < ROLLOUTS_MAX:  # the index holds only open ones
            page = self._store.range(
                rollout_rows.ROLLOUTS.name, index="by_in_flight", after=after, limit=PAGE
            )
            found += [codec.decode(record.data, rollout_rows.Rollout) for record in page]
            if len(page) < PAGE:
                break
            after = entry(found[-1].state, found[-1].rollout_id)
        return found

    def tally(self, rollout_id: str) -> inputs.Versioned[rollout_rows.RolloutTally]:
        """Raises: RolloutUnknown."""
        found = self.row(rollout_rows.tally_key(rollout_id), rollout_rows.RolloutTally)
        if found is None:
            raise refusals.RolloutUnknown(rollout_id)
        return found

    def chart(self, plan_digest: str) -> PlanByHost:
        """Return a rollout's frozen plan by host. Raises: BlobMissing, BlobDamaged."""
        known = self._charts.find(plan_digest)
        if known is None:
            known = index_by_host(decode_plan(self._blobs.get(plan_digest)))
            self._charts.keep(plan_digest, known)
        return known

    def hosts(self) -> list[fleet_rows.Host]:
        """Return all hosts of the fleet."""
        return [seen.row for seen in self.rows(fleet_rows.HOSTS, fleet_rows.Host)]

    def budgets(self) -> list[inputs.Versioned[fleet_rows.Budget]]:
        return self.rows(fleet_rows.BUDGETS, fleet_rows.Budget)

    def channels(self) -> list[inputs.Versioned[channel_rows.Channel]]:
        return self.rows(channel_rows.CHANNELS, channel_rows.Channel)

    # ── the fleet ──

    def state(
        self, rollout_ids: Iterable[str], now: datetime, *, late: bool = False
    ) -> inputs.FleetState:
        """Read the state of the fleet for these rollouts. ``late``: include late hosts.

        An error in one rollout's plan or rows is returned in ``faults`` and does not affect the
        others. Raises: Unavailable, Unknown.
        """
        state = self._state(rollout_ids, now, hosts=True)
        return self._with_latecomers(state) if late else state

    def glance(self, rollout_ids: Iterable[str], now: datetime) -> inputs.FleetState:
        """Read only what ``dispatch_pass.survey_shared_gates`` needs: no hosts, orders or budgets.
        So every pass can check the open rollouts of a large fleet.
        """
        return self._state(rollout_ids, now, hosts=False)

    def _state(
        self, rollout_ids: Iterable[str], now: datetime, *, hosts: bool
    ) -> inputs.FleetState:
        faults: dict[str, inputs.GateFault] = {}
        gate_inputs: dict[str, inputs.GateInput] = {}
        for rollout_id in rollout_ids:
            try:
                gate_inputs[rollout_id] = self._gate_input(rollout_id, hosts=hosts)
            except OWN as error:
                faults[rollout_id] = to_gate_fault(rollout_id, error)
        enlisted = self.rows(fleet_rows.HOSTS, inputs.HostPresence) if hosts else []
        orders = self.rows(host_rows.HOST_ORDERS, host_rows.HostOrder) if hosts else []
        budgets = self.budgets() if hosts else []
        return inputs.FleetState(
            at=now,
            rollouts=gate_inputs,
            channels=self._channels(gate_inputs.values()),
            hosts={seen.row.host_id: seen for seen in enlisted},
            orders={seen.row.host_id: seen for seen in orders},
            budgets={seen.row.budget_id: seen for seen in budgets},
            freezes=tuple(self.rows(channel_rows.FREEZES, channel_rows.Freeze)),
            windows=tuple(self.rows(WINDOWS, Window)),
            rebooted=self._rebooted(gate_inputs.values()),
            faults=faults,
        )

    def _rebooted(self, gate_inputs: Iterable[inputs.GateInput]) -> dict[str, inputs.RebootedHost]:
        """Find the Deferred hosts that rebooted into their target, by their heartbeats: they take
        budget slots again. A silent host takes none.
        """
        found: dict[str, inputs.RebootedHost] = {}
        for gate_input in gate_inputs:
            tally = gate_input.tally.row
            for host_id, seen in gate_input.standings.items():
                if seen.row.state is not host_states.HostState.DEFERRED:
                    continue
                live = self.row(fleet_rows.liveness_key(host_id), fleet_rows.Liveness)
                host = self.row(fleet_rows.host_key(host_id), inputs.HostPresence)
                silent = host is None or host.row.silent_since is not None
                if live is None or silent or tally.halted_at is not None:
                    continue
                if live.row.current_closures.get(tally.channel) == tally.target_closure:
                    slots = gate_input.chart.slots_of(host_id)
                    found[host_id] = inputs.RebootedHost(host_id, tally.rollout_id, slots)
        return found

    def _gate_input(self, rollout_id: str, *, hosts: bool) -> inputs.GateInput:
        tally = self.tally(rollout_id)
        row = tally.row
        prefix = host_rows.record_id(rollout_id, "")
        standings = self.rows(host_rows.HOST_RECORDS, inputs.HostStanding, prefix) if hosts else []
        failures = (
            self.rows(host_rows.PROBE_FAILURES, host_rows.ProbeFailure, prefix) if hosts else []
        )
        return inputs.GateInput(
            tally=tally,
            chart=self.chart(row.plan_digest),
            standings={seen.row.host_id: seen for seen in standings},
            failures=tuple(failures),
            quarantined=self.row(
                channel_rows.quarantine_key(row.channel, row.target_closure),
                channel_rows.Quarantined,
            ),
            pin=self.row(actual_key(row.channel), Actual),
            edges={
                edge.channel: self.preceding(
                    edge, row.target_ref, row.target_closure, overrides=hosts
                )
                for edge in row.edges
            },
            latecomers=(),
            blocked_since=self._blocked_since(rollout_id),
            causes=self._causes(row, [seen.row for seen in standings]),
        )

    def _causes(
        self, tally: rollout_rows.RolloutTally, standings: list[inputs.HostStanding]
    ) -> dict[str, str]:
        """Describe how some hosts failed, for notifications; first the one that caused the halt."""
        bad = [
            row.host_id
            for row in standings
            if row.state in (host_states.HostState.FAILED, host_states.HostState.REVERTED)
        ]
        bad.sort(key=lambda host_id: host_id != tally.halted_by)
        keys = [host_rows.record_key(tally.rollout_id, host_id) for host_id in bad[:CAUSES_MAX]]
        found = self.many(*((key, host_rows.HostRecord) for key in keys))
        records = [seen.row for seen in found if seen is not None]
        return {record.host_id: _failure_words(record) for record in records}

    def _blocked_since(self, rollout_id: str) -> dict[str, datetime]:
        found = self.row(rollout_rows.gates_key(rollout_id), rollout_rows.RolloutGates)
        return {} if found is None else {gate.gate: gate.since for gate in found.row.blocked}

    def preceding(
        self, edge: facts.ChannelEdge, release_id: str, digest: str, *, overrides: bool = False
    ) -> inputs.PrecedingChannel:
        """Read what an edge needs for this release. An ``idle`` edge needs only the channel.

        ``overrides``: read also whether the release succeeded there in spite of that channel's own
        edges.
        """
        before = edge.channel
        channel = self.row(channel_rows.channel_key(before), channel_rows.Channel)
        if edge.require is facts.EdgeRequires.IDLE:
            return inputs.PrecedingChannel(channel, None, None, None, "")
        standing = self.row(
            rollout_rows.standing_key(before, release_id), rollout_rows.ReleaseStanding
        )
        quarantined = self.row(
            channel_rows.quarantine_key(before, digest), channel_rows.Quarantined
        )
        tally = None
        failure = ""
        if standing is not None:
            row = standing.row
            if row.rollout_id is not None and row.outcome is None:  # it is open
                tally = self.row(rollout_rows.tally_key(row.rollout_id), rollout_rows.RolloutTally)
        if standing is not None and standing.row.word is not rollout_states.Word.GOOD:
            row = standing.row
            if row.said_in is not None and row.host_id is not None:
                record = self.row(
                    host_rows.record_key(row.said_in, row.host_id), host_rows.HostRecord
                )
                failure = "" if record is None else _failure(record.row)
        overrode = None
        if overrides and standing is not None and standing.row.succeeded_in is not None:
            key = rollout_rows.tally_key(standing.row.succeeded_in)
            success = self.row(key, rollout_rows.RolloutTally)
            overrode = None if success is None else _find_override(success.row)
        return inputs.PrecedingChannel(channel, standing, quarantined, tally, failure, overrode)

    def _channels(
        self, gate_inputs: Iterable[inputs.GateInput]
    ) -> dict[str, inputs.Versioned[channel_rows.Channel]]:
        names = {gate_input.tally.row.channel for gate_input in gate_inputs}
        found = {
            name: self.row(channel_rows.channel_key(name), channel_rows.Channel)
            for name in sorted(names)
        }
        return {name: seen for name, seen in found.items() if seen is not None}

    def _with_latecomers(self, state: inputs.FleetState) -> inputs.FleetState:
        hosts = self.hosts()
        gate_inputs: dict[str, inputs.GateInput] = {}
        faults = dict(state.faults)
        for rollout_id, gate_input in state.rollouts.items():
            try:
                found = replace(gate_input, heard=self._heard(gate_input))
                gate_inputs[rollout_id] = self._with_late(state, found, hosts)
            except OWN as error:
                faults[rollout_id] = to_gate_fault(rollout_id, error)
        return replace(state, rollouts=gate_inputs, faults=faults)

    def _heard(self, gate_input: inputs.GateInput) -> dict[str, datetime]:
        """Read when some hosts that have not taken their order reported last."""
        standings = gate_input.standings.values()
        ids = [seen.row.host_id for seen in standings if dispatch_pass.is_ordered(seen.row)]
        keys = [fleet_rows.liveness_key(host_id) for host_id in ids[:HEARD_MAX]]
        found = self.many(*((key, fleet_rows.Liveness) for key in keys))
        return {seen.row.host_id: seen.row.last_seen_at for seen in found if seen is not None}

    def _with_late(
        self, state: inputs.FleetState, gate_input: inputs.GateInput, hosts: list[fleet_rows.Host]
    ) -> inputs.GateInput:
        row = gate_input.tally.row
        channel = state.channels.get(row.channel)
        planned = None if channel is None else self._planned(channel.row, row.rollout_id)
        if channel is None or planned is None:
            return gate_input
        ours = [host for host in hosts if host.host_id not in planned]
        budgets = [seen.row for seen in state.budgets.values()]
        return replace(
            gate_input, latecomers=dispatch_pass.latecomers(gate_input, channel.row, ours, budgets)
        )

    def late_target(self, channel: channel_rows.Channel) -> str | None:
        """Return the rollout that late hosts of this channel join."""
        for target in ladder.list_late_targets(channel):
            if isinstance(target, str):
                return target
            key = channel_rows.quarantine_key(channel.channel, target.digest)
            if self.row(key, channel_rows.Quarantined) is None:
                return target.rollout_id
        return None

    def _planned(self, channel: channel_rows.Channel, rollout_id: str) -> AbstractSet[str] | None:
        """Return the hosts in the rollout's plan; None: late hosts cannot join now.

        Late hosts join the newest success that is not quarantined. While a newer rollout is active
        they wait for it. If it is halted, hosts that are not in its plan join that success.
        """
        if self.late_target(channel) != rollout_id:
            return None
        active = channel.active_rollout_id
        if active is None or active == rollout_id:
            return frozenset()
        tally = self.tally(active).row
        if tally.halted_at is None and tally.state not in rollout_states.CLEARABLE:
            return None
        return self.chart(tally.plan_digest).waves.keys()


def _find_override(tally: rollout_rows.RolloutTally) -> rollout_rows.GateOverride | None:
    edges = rollout_states.OverridableGate.EDGES
    return next((item for item in tally.overrides if item.gate is edges), None)


def _failure(record: host_rows.HostRecord) -> str:
    """Describe why a host failed: the probe, or the step that timed out."""
    failing = [
        f"probe {name}: {probe.failure_reason or 'fails'}"
        for name, probe in sorted(record.probes.items())
        if probe.failing_since is not None
    ]
    if record.failure == "probes" and failing:
        return ", ".join(failing)
    return record.failure or ""


def _failure_words(record: host_rows.HostRecord) -> str:
    probe, detail = probes.failed_probe(record)
    return probes.failure_text(
        record.failure or "unknown", probe, redact(detail)[:DETAIL_CHARS_MAX]
    )
