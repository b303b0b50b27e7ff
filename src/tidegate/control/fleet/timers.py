"""Timers: record as an event that something did not happen in time.

    host_rollout_records by due_at ──▶ expire_deadline      a host that missed its deadline
                              ───────▶ cancel_dispatch      a reboot into a replaced release
    rollout_tallies by due_at ───────▶ start_due_wave       a wave whose delay has passed
                              ───────▶ expire_retention     a rollout past its time
    freezes by until ────────────────▶ end_freeze
    host_liveness by last_seen_at ───▶ note_silence, and note_heard when it returns

Timers are rows, so they survive a restart. Each expiry is decided again on the current rows, so a
timer that loses the race against its agent changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from datetime import datetime, timedelta

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.control.fleet.dispatch import LOST
from tidegate.control.lanes import PACK_MAX, Lanes
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.channels import rows as channel_rows, slices as channel_slices
from tidegate.domain.fleet import rows as fleet_rows, slices as fleet_slices
from tidegate.domain.hosts import rows as host_rows, slices as host_slices, states as host_states
from tidegate.domain.rollouts import (
    rows as rollout_rows,
    slices as rollout_slices,
    states as rollout_states,
    wave_slices,
)
from tidegate.kernel import codec, model, slices as kernel_slices
from tidegate.kernel.collections import Collection, entry
from tidegate.kernel.store import Store, values

ACTOR = model.Meta(actor="timer")
PAGE = 500
EXPIRED_MAX = 10_000  # per tick; the rest follows in the next one
SILENCE_SECONDS = 180  # three heartbeats


Expiry = tuple[kernel_slices.Slice, Struct]  # what a missed deadline leads to


class TimersResult(Struct, frozen=True):
    """What one tick did."""

    deadlines: int = 0
    waves: int = 0
    retentions: int = 0
    freezes: int = 0
    silences: int = 0


class Timers:
    """Records the timers that are due."""

    def __init__(
        self,
        store: Store,
        control: Control,
        lanes: Lanes,
        clock: Clock,
        *,
        silence_seconds: int = SILENCE_SECONDS,
    ) -> None:
        self._store = store
        self._control = control
        self._lanes = lanes
        self._clock = clock
        self._silence = timedelta(seconds=silence_seconds)

    def tick(self) -> TimersResult:
        """Record everything that is due.

        Raises:
            Unavailable, Unknown: the store failed; the rest is still due at the next tick.
        """
        now = self._clock()
        deadlines = self._deadlines(now)
        waves, retentions = self._rollouts(now)
        return TimersResult(
            deadlines=deadlines,
            waves=waves,
            retentions=retentions,
            freezes=self._freezes(now),
            silences=self._silences(now),
        )

    # ── rollouts and their hosts ──

    def _deadlines(self, now: datetime) -> int:
        due: dict[str, list[Expiry]] = {}
        for record in self._until(host_rows.HOST_RECORDS, "by_due", now):
            row = codec.decode(record.data, host_rows.HostRecord)
            assert row.due_at is not None, "the index holds what has a time"
            if row.state is host_states.HostState.PENDING:
                self._note_unheard(row.host_id)
            due.setdefault(row.rollout_id, []).append(self._expiry(row, row.due_at))
        return sum(self._expire(rollout_id, items) for rollout_id, items in due.items())

    def _expiry(self, row: host_rows.HostRecord, due_at: datetime) -> Expiry:
        """Return what a missed deadline leads to.

        A host that waits for a reboot into a replaced release does not fail: its order is
        cancelled, and its agent removes what is staged.
        """
        if row.state is host_states.HostState.DEFERRED and row.left is None:
            (tally,) = self._store.get(rollout_rows.tally_key(row.rollout_id))
            known = None if tally is None else codec.decode(tally.data, rollout_rows.RolloutTally)
            if known is not None and known.state is rollout_states.RolloutState.SUPERSEDED:
                cancel = host_slices.CancelDispatch(
                    rollout_id=row.rollout_id,
                    host_id=row.host_id,
                    reason="the rollout was replaced",
                )
                return host_slices.cancel_dispatch, cancel
        expire = host_slices.ExpireDeadline(
            rollout_id=row.rollout_id, host_id=row.host_id, due_at=due_at
        )
        return host_slices.expire_deadline, expire

    def _expire(self, rollout_id: str, items: list[Expiry]) -> int:
        futures: list[Future[CommandOutcome]] = []
        for start in range(0, len(items), PACK_MAX):
            pack = [(*item, ACTOR) for item in items[start : start + PACK_MAX]]
            futures += self._lanes.record_all(rollout_id, pack)
        return sum(map(_count_recorded, futures))

    def _rollouts(self, now: datetime) -> tuple[int, int]:
        """Start due waves, and expire ended rollouts; return how many of each."""
        waves = retentions = 0
        for record in self._until(rollout_rows.TALLIES, "by_due", now):
            row = codec.decode(record.data, rollout_rows.RolloutTally)
            assert row.due_at is not None, "the index holds what has a time"
            if row.state in rollout_states.OPEN:
                due = wave_slices.StartDueWave(rollout_id=row.rollout_id, due_at=row.due_at)
                waves += self._record(row.rollout_id, wave_slices.start_due_wave, due)
            else:
                over = rollout_slices.ExpireRetention(rollout_id=row.rollout_id, due_at=row.due_at)
                retentions += self._record(row.rollout_id, rollout_slices.expire_retention, over)
        return waves, retentions

    def _record(self, rollout_id: str, item: kernel_slices.Slice, command: Struct) -> int:
        return sum(
            map(_count_recorded, self._lanes.record_all(rollout_id, [(item, command, ACTOR)]))
        )

    # ── freezes ──

    def _freezes(self, now: datetime) -> int:
        found = values(self._store, channel_rows.FREEZES.name, channel_rows.Freeze)
        over = [row.freeze_id for row in found if row.until is not None and row.until <= now]
        return sum(
            self._execute(
                channel_slices.end_freeze,
                channel_slices.EndFreeze(freeze_id=id, operator="timer", reason="it is over"),
            )
            for id in over
        )

    # ── silence ──

    def _silences(self, now: datetime) -> int:
        """Record each host that became silent, once; return how many."""
        silent = list(self._until(fleet_rows.LIVENESS, "by_last_seen", now - self._silence))
        count = 0
        for record in silent:
            seen = codec.decode(record.data, fleet_rows.Liveness)
            (host,) = self._store.get(fleet_rows.host_key(seen.host_id))
            known = None if host is None else codec.decode(host.data, fleet_rows.Host)
            if known is not None and known.silent_since is None:
                command = fleet_slices.NoteSilence(
                    host_id=seen.host_id, last_seen_at=seen.last_seen_at
                )
                count += self._execute(fleet_slices.note_silence, command)
        return count

    def _note_unheard(self, host_id: str) -> None:
        """Record that a host with an unanswered order is silent if it never sent a heartbeat: it
        has no liveness row that would become due.
        """
        host, liveness = self._store.get(
            fleet_rows.host_key(host_id), fleet_rows.liveness_key(host_id)
        )
        if host is None or liveness is not None:
            return
        known = codec.decode(host.data, fleet_rows.Host)
        if known.silent_since is None:
            command = fleet_slices.NoteSilence(host_id=host_id, last_seen_at=known.enrolled_at)
            self._execute(fleet_slices.note_silence, command)

    def heard(self, host_id: str) -> bool:
        """Record that a silent host is back; return whether it was silent."""
        return bool(self._execute(fleet_slices.note_heard, fleet_slices.NoteHeard(host_id=host_id)))

    def _execute(self, item: kernel_slices.Slice, command: Struct) -> int:
        try:
            return int(self._control.execute(item, command, meta=ACTOR).receipt is not None)
        except LOST:
            return 0

    # ── rows by time ──

    def _until(self, collection: Collection, index: str, now: datetime) -> Iterator[model.Record]:
        """Yield the rows that are due, the longest overdue first."""
        text = codec.time_text(now)
        after = ""
        for _ in range(EXPIRED_MAX // PAGE):
            page = self._store.range(collection.name, index=index, after=after, limit=PAGE)
            for record in page:
                time = collection.entries(record.data)[index]
                if time > text:
                    return
                after = entry(time, record.key.id)
                yield record
            if len(page) < PAGE:
                return


def _count_recorded(future: Future[CommandOutcome]) -> int:
    try:
        return int(bool(future.result().facts))
    except LOST:
        return 0
