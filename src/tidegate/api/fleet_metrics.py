"""Prometheus metrics of rollouts, hosts, gates and approvals.

All values come from rows, so every server of an installation reports the same ones: rules take the
maximum over instances. Labels are channels, states, gates and kinds. No label holds a rollout, a
host, a release or a person, because their number grows without bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.fleet_picture import FleetPicture, FleetPictures
from tidegate.control.queries.reads import Reads
from tidegate.domain.channels.rows import QUARANTINE
from tidegate.domain.hosts.states import HostState
from tidegate.domain.packages import rows as package_rows, states as package_states
from tidegate.domain.requests import rows as request_rows, states as request_states
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states

CHANNELS_MAX: Final = 400
OTHER: Final = "(other)"  # all channels after the first ones
APPROVALS_MAX: Final = 1_000  # more are not counted
ROWS_MAX: Final = 50  # read at once


class FleetMetrics(Collector):
    """Gauges of the fleet, read from rows on every scrape."""

    def __init__(
        self, reads: Reads, fleet: FleetReader, pictures: FleetPictures, clock: Clock
    ) -> None:
        self._reads = reads
        self._fleet = fleet
        self._pictures = pictures
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        picture = self._pictures.look()
        named = frozenset(sorted(item.channel for item in picture.channels)[:CHANNELS_MAX])
        yield from _host_gauges(picture, named)
        yield _ended_rollouts(picture, named)
        yield from self._rollout_gauges(named)
        yield self._degraded(picture, named)
        yield self._quarantined(named)
        yield from self._approvals()

    def _rollout_gauges(self, named: frozenset[str]) -> Iterator[GaugeMetricFamily]:
        now = self._clock()
        gauges = RolloutGauges(named)
        under_way = self._fleet.open_rollouts()
        for start in range(0, len(under_way), ROWS_MAX):
            some = under_way[start : start + ROWS_MAX]
            tallies = self._reads.find_all(
                *(
                    (rollout_rows.tally_key(item.rollout_id), rollout_rows.RolloutTally)
                    for item in some
                )
            )
            gates = self._reads.find_all(
                *(
                    (rollout_rows.gates_key(item.rollout_id), rollout_rows.RolloutGates)
                    for item in some
                )
            )
            for rollout, tally, gates_row in zip(some, tallies, gates, strict=True):
                if tally is not None:
                    gauges.add(
                        rollout, tally.row, None if gates_row is None else gates_row.row, now
                    )
        return gauges.families()

    def _degraded(self, picture: FleetPicture, named: frozenset[str]) -> GaugeMetricFamily:
        newest = [item for item in picture.channels if item.newest_rollout_id is not None]
        found: dict[tuple[str], float] = {}
        for start in range(0, len(newest), ROWS_MAX):
            some = newest[start : start + ROWS_MAX]
            keys = (rollout_rows.tally_key(item.newest_rollout_id or "") for item in some)
            tallies = self._reads.find_all(*((key, rollout_rows.RolloutTally) for key in keys))
            for item, tally in zip(some, tallies, strict=True):
                key = (_label(named, item.channel),)
                is_degraded = tally is not None and tally.row.degraded
                found[key] = max(float(is_degraded), found.get(key, 0.0))
        return _gauge(
            "tidegate_rollout_degraded",
            "1 while hosts of the newest rollout failed or drifted after it ended, by channel",
            ("channel",),
            found,
        )

    def _quarantined(self, named: frozenset[str]) -> GaugeMetricFamily:
        counted = Counter(
            _label(named, item.row.channel) for item in self._reads.iterate(QUARANTINE)
        )
        return _gauge(
            "tidegate_quarantined",
            "Artifacts that are quarantined, by channel",
            ("channel",),
            {(channel,): number for channel, number in counted.items()},
        )

    def _approvals(self) -> Iterator[GaugeMetricFamily]:
        proposed = self._reads.range(
            package_rows.REVISIONS,
            index="by_lifecycle",
            of=(str(package_states.Lifecycle.PROPOSED),),
            limit=APPROVALS_MAX,
        )
        now = self._clock()
        since = {
            "revision": [item.row.proposed_at for item in proposed if item.row.proposed_at],
            "request": self._since(request_states.RequestState.WAITING, now),
            "review": self._since(request_states.RequestState.TO_REVIEW, now),
        }
        yield _gauge(
            "tidegate_approvals_waiting",
            "What waits for an approval or a review, by kind: revision, request, review",
            ("kind",),
            {(kind,): len(times) for kind, times in since.items()},
        )
        yield _gauge(
            "tidegate_approvals_oldest_seconds",
            "For how long the oldest has waited for an approval or a review, by kind",
            ("kind",),
            {
                (kind,): max(0.0, (now - min(times, default=now)).total_seconds())
                for kind, times in since.items()
            },
        )

    def _since(self, state: request_states.RequestState, now: datetime) -> list[datetime]:
        """Return since when the requests of a state wait."""
        found = self._reads.newest(
            request_rows.REQUESTS, "by_state", of=(str(state),), limit=APPROVALS_MAX
        )
        rows: list[request_rows.ChannelRequest] = [item.row for item in found]
        return [row.made_at for row in rows if row.expires_at is None or now < row.expires_at]


class RolloutGauges:
    """Gauges of the open rollouts. If a channel has several, the newest one counts."""

    def __init__(self, named: frozenset[str]) -> None:
        self._named = named
        self._states: Counter[tuple[str, str]] = Counter()
        self._newest: dict[
            str, tuple[rollout_rows.Rollout, rollout_rows.RolloutTally, datetime]
        ] = {}
        self._shut: dict[tuple[str, str], float] = {}

    def add(
        self,
        rollout: rollout_rows.Rollout,
        tally: rollout_rows.RolloutTally,
        gates: rollout_rows.RolloutGates | None,
        now: datetime,
    ) -> None:
        channel = _label(self._named, rollout.channel)
        self._states[channel, rollout.state.value] += 1
        known = self._newest.get(channel)
        if known is None or known[0].opened_at < rollout.opened_at:
            self._newest[channel] = (rollout, tally, now)
        for gate in () if gates is None else gates.blocked:
            seconds = max(0.0, (now - gate.since).total_seconds())
            self._shut[channel, gate.gate] = max(seconds, self._shut.get((channel, gate.gate), 0))

    def families(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge(
            "tidegate_rollouts",
            "Open rollouts, by channel and state",
            ("channel", "state"),
            self._states,
        )
        meanings = {
            "tidegate_rollout_halted": "1 while a failed host stops the newest open rollout",
            "tidegate_rollout_paused": "1 while the newest open rollout is paused",
            "tidegate_rollout_wave": "The wave that the newest open rollout is in, counted from 1",
            "tidegate_rollout_waves": "How many waves the newest open rollout has",
            "tidegate_rollout_age_seconds": "For how long the newest open rollout has been open",
        }
        found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in meanings}
        hosts: dict[tuple[str, ...], float] = {}
        for channel, (rollout, tally, now) in self._newest.items():
            values: dict[str, float] = {
                "tidegate_rollout_halted": tally.halted_at is not None,
                "tidegate_rollout_paused": tally.paused_at is not None,
                "tidegate_rollout_wave": tally.current_wave + 1,
                "tidegate_rollout_waves": len(tally.waves),
                "tidegate_rollout_age_seconds": max(0.0, (now - rollout.opened_at).total_seconds()),
            }
            for name, value in values.items():
                found[name][channel,] = float(value)
            hosts |= {(channel, name): number for name, number in _hosts_of(tally).items()}
        for name, meaning in meanings.items():
            yield _gauge(name, f"{meaning}, by channel", ("channel",), found[name])
        yield _gauge(
            "tidegate_rollout_hosts",
            "Hosts of the newest open rollout, by channel and state",
            ("channel", "state"),
            hosts,
        )
        yield _gauge(
            "tidegate_gate_shut_seconds",
            "For how long a gate has held an open rollout back, by channel and gate",
            ("channel", "gate"),
            self._shut,
        )


def _hosts_of(tally: rollout_rows.RolloutTally) -> dict[str, int]:
    """Hosts by state; ``unordered`` have no order yet, ``left`` were skipped or waived."""
    found = {state.value: sum(wave.count(state) for wave in tally.waves) for state in HostState}
    left = sum(wave.left for wave in tally.waves)
    planned = sum(wave.hosts for wave in tally.waves)
    found["unordered"] = max(0, planned - sum(found.values()) - left)
    return found | {"left": left, "late": sum(tally.late.values())}


def _host_gauges(picture: FleetPicture, named: frozenset[str]) -> Iterator[GaugeMetricFamily]:
    status: Counter[tuple[str, str]] = Counter()
    wanted: Counter[tuple[str]] = Counter()
    other: Counter[tuple[str]] = Counter()
    for item in picture.channels:
        channel = _label(named, item.channel)
        status[channel, "enrolled"] += item.enrolled
        status[channel, "silent"] += item.silent
        status[channel, "revoked"] += item.revoked
        if item.digest is not None:
            wanted[channel,] += item.on_wanted
            other[channel,] += item.running.total() - item.on_wanted
    yield _gauge(
        "tidegate_hosts",
        "Hosts of a channel, by status: enrolled, silent, revoked",
        ("channel", "status"),
        status,
    )
    yield _gauge(
        "tidegate_hosts_on_wanted",
        "Hosts that run what their channel wants, by channel",
        ("channel",),
        wanted,
    )
    yield _gauge(
        "tidegate_hosts_drifted",
        "Hosts that run something else than their channel wants, by channel",
        ("channel",),
        other,
    )


def _ended_rollouts(picture: FleetPicture, named: frozenset[str]) -> CounterMetricFamily:
    ended: Counter[tuple[str, str]] = Counter()
    for item in picture.channels:
        for outcome in rollout_states.Outcome:
            ended[_label(named, item.channel), outcome.value] += item.outcomes.get(outcome, 0)
    family = CounterMetricFamily(
        "tidegate_rollouts_concluded",
        "Rollouts that ended, by channel and outcome",
        labels=("channel", "outcome"),
    )
    for key, number in sorted(ended.items()):
        family.add_metric(key, number)
    return family


def _label(named: frozenset[str], channel: str) -> str:
    return channel if channel in named else OTHER


def _gauge(
    name: str, meaning: str, labels: tuple[str, ...], values: Mapping[Any, float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
