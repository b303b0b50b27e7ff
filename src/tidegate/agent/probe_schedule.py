"""When each probe of a soak is due.

The probe file is read when probes are declared, and after a restart. A probe runs once at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate.agent import errors, probes
from tidegate.domain.hosts import rows, states

LoadProbes = Callable[[str], tuple[probes.Probe, ...]]  # of a channel; raises InvalidProbes

log = logging.getLogger("tidegate.agent")


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """Run a probe for one activation."""

    rollout_id: str
    since: datetime
    probe: probes.Probe


class ProbeSchedule:
    """The probes of the order that soaks, and when each is due."""

    def __init__(self, load_probes: LoadProbes) -> None:
        self._load = load_probes
        self._rollout_id = ""
        self._probes: Mapping[str, probes.Probe] = {}
        self._due: dict[str, datetime] = {}
        self._asked: set[str] = set()

    def begin(self, twin: rows.HostRecord) -> Sequence[probes.Probe]:
        """Read the probes to declare, and forget earlier runs. Raises: InvalidProbes."""
        self._watch(twin.rollout_id, ())
        found = self._load(twin.channel)
        self._watch(twin.rollout_id, found)
        return found

    def due(self, twin: rows.HostRecord, now: datetime) -> Iterator[ProbeJob]:
        """Start the declared probes whose interval has passed, also if the clock was set back."""
        self._resume(twin)
        since = twin.activation_completed_at
        assert since is not None, "what soaks was activated"
        for name, known in twin.probes.items():
            probe = self._probes.get(name)
            if probe is None or known.mode is states.ProbeMode.DISABLED or name in self._asked:
                continue
            interval = timedelta(seconds=probe.interval_seconds)
            due = self._due.get(name, now)
            if due <= now or due - now > interval:
                self._due[name] = now + interval
                self._asked.add(name)
                yield ProbeJob(twin.rollout_id, since, probe)

    def list_missing(self, twin: rows.HostRecord) -> Sequence[str]:
        """Declared probes that are no longer in the probe file."""
        self._resume(twin)
        return [
            name
            for name, known in twin.probes.items()
            if name not in self._probes and known.mode is not states.ProbeMode.DISABLED
        ]

    def end_run(self, check: ProbeJob) -> None:
        """The probe ended and may run again."""
        if check.rollout_id == self._rollout_id:
            self._asked.discard(check.probe.name)

    def _resume(self, twin: rows.HostRecord) -> None:
        if self._rollout_id == twin.rollout_id:
            return
        found: Sequence[probes.Probe] = ()
        try:
            found = self._load(twin.channel)
        except errors.InvalidProbes as error:
            log.error("%s", error.detail)
        self._watch(twin.rollout_id, found)

    def _watch(self, rollout_id: str, found: Sequence[probes.Probe]) -> None:
        self._rollout_id = rollout_id
        self._probes = {probe.name: probe for probe in found}
        self._due = {}
        self._asked = set()
