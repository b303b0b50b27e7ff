"""Plays a transcript: runs each input line on a fleet in memory, and writes what changed.

    # A comment, kept as it is.
    ack e1
    ----
    DispatchAck e1
    HostStateChanged e1 Pending → Activating

A line is a verb and its arguments; `VERBS` lists them. It applies to the rollout that was promoted
last, on the channel `edge`. After `----` come the facts that were appended, a quarantine row that
was added or removed, or the refusal. The fleet has real slices, folds, dispatcher, order queue,
lanes and timers. Its clock does not move until `wait`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from tests.contract.in_process_fleet import OLD, SOAK, InProcessFleet
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.channels.slices import (
    EndFreeze,
    HoldChannel,
    StartFreeze,
    UnholdChannel,
    end_freeze,
    hold_channel,
    start_freeze,
    unhold_channel,
)
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.facts import (
    ActivationDeferred,
    ActivationFailed,
    DispatchAck,
    Failed,
    RollbackFailed,
)
from tidegate.domain.hosts.refusals import RolloutIsPaused
from tidegate.domain.hosts.rows import QueuedDispatch
from tidegate.domain.hosts.states import OnFailure, ProbeStatus
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import Clearance
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.model import Event
from tidegate.kernel.replay import differences

MARK = "----"
DIGEST = re.compile(r"(?<=sha256:[0-9a-f]{8})[0-9a-f]{56}")
CHANNEL = "edge"
WHO: dict[str, Any] = {"operator": "user_1", "reason": "because"}
# The members of a fact that a line shows, in this order.
SHOWN = ("channel", "release_id", "target_ref", "gate", "status", "outcome", "successor_rollout_id")


class TranscriptPlayer:
    """One fleet, and the verbs of a transcript."""

    def __init__(self) -> None:
        self.fleet = InProcessFleet(MemoryStore(SCHEMA))
        self.rollout_id = ""
        self._orders: dict[str, QueuedDispatch] = {}
        self._quarantined: frozenset[tuple[str, str]] = frozenset()
        self._said: list[str] = []

    def play(self, line: str) -> list[str]:
        """Run an input line, and return what changed."""
        verb, *words = line.split()
        after = self.fleet.log()[-1].position if self.fleet.log() else 0
        self._said = []
        try:
            VERBS[verb](self, *words)
        except TidegateError as refusal:
            self._said.append(f"refused, {refusal.code}: {DIGEST.sub('…', refusal.detail)}")
            if verb == "ack" and not isinstance(refusal, RolloutIsPaused):
                self._orders.pop(words[0], None)  # the agent drops it and polls again
        facts = [format_fact(event) for event in self.fleet.log(after)]
        return [*facts, *self._quarantines(), *self._said] or ["nothing"]

    def finish(self) -> None:
        """Check what must hold of every fleet at the end of any transcript."""
        self.fleet.check_invariants()
        assert differences(self.fleet.store, FOLDS) == []

    def _quarantines(self) -> Iterator[str]:
        rows = self.fleet.store.range(QUARANTINE.name, limit=100)
        found = frozenset(
            (row.channel, row.closure_hash)
            for row in (codec.decode(record.data, Quarantined) for record in rows)
        )
        yield from (f"quarantined on {channel}" for channel, _ in sorted(found - self._quarantined))
        yield from (f"free again on {channel}" for channel, _ in sorted(self._quarantined - found))
        self._quarantined = found

    # ── set-up ──

    def channel(self, *words: str) -> None:
        """Create a channel: `channel canary:1 rest` in waves; `halt` instead of
        rollback-and-halt.
        """
        waves = [word for word in words if word != "halt"]
        specs = (
            WaveSpec(name=name, count=int(count) if count else None, soak_seconds=SOAK)
            for name, _, count in (wave.partition(":") for wave in waves)
        )
        on_failure = OnFailure.HALT if "halt" in words else OnFailure.ROLLBACK
        self.fleet.create(CHANNEL, *specs, on_failure=on_failure)

    def hosts(self, *host_ids: str) -> None:
        self.fleet.enroll(*host_ids, channel=CHANNEL)

    # ── operators ──

    def promote(self, release_id: str) -> None:
        self.fleet.offer(release_id)
        self.rollout_id = self.fleet.promote(CHANNEL, release_id)

    def pause(self) -> None:
        self.fleet.execute(pause_rollout, PauseRollout(rollout_id=self.rollout_id, **WHO))

    def resume(self) -> None:
        self.fleet.execute(resume_rollout, ResumeRollout(rollout_id=self.rollout_id, **WHO))

    def abort(self) -> None:
        self.fleet.execute(abort_rollout, AbortRollout(rollout_id=self.rollout_id, **WHO))

    def clear(self, mode: str, *host_ids: str) -> None:
        self.fleet.clear(self.rollout_id, Clearance(mode), *host_ids)

    def freeze(self) -> None:
        command = StartFreeze(freeze_id="sale", channels=(CHANNEL,), **WHO)
        self.fleet.execute(start_freeze, command)

    def unfreeze(self) -> None:
        self.fleet.execute(end_freeze, EndFreeze(freeze_id="sale", **WHO))

    def hold(self) -> None:
        self.fleet.execute(hold_channel, HoldChannel(channel=CHANNEL, **WHO))

    def unhold(self) -> None:
        self.fleet.execute(unhold_channel, UnholdChannel(channel=CHANNEL, **WHO))

    def lift(self) -> None:
        self.fleet.lift(self.rollout_id)

    def explain(self, host_id: str) -> None:
        state = self.fleet.control_plane.fleet_reader.state([self.rollout_id], self.fleet.clock())
        self._said.append(explain(state, self.rollout_id, host_id).answer)

    def status(self) -> None:
        tally = self.fleet.tally(self.rollout_id)
        marks = [tally.outcome, "halted" if tally.halted_at else None]
        marks += ["paused" if tally.paused_at else None, "degraded" if tally.degraded else None]
        self._said.append(", ".join([tally.state, *(mark for mark in marks if mark)]))

    # ── time ──

    def wait(self, seconds: str) -> None:
        self.fleet.clock.advance(timedelta(seconds=int(seconds)))

    def dispatch(self) -> None:
        self.fleet.dispatch(thorough=True)

    def tick(self) -> None:
        self.fleet.control_plane.due.tick()

    # ── agents ──

    def poll(self, host_id: str) -> None:
        """Hand the host its order, without an acknowledgement."""
        order = self.fleet.control_plane.deliveries.poll(host_id)
        if order is not None:
            self._orders[host_id] = order
        self._said.append("no order" if order is None else f"order {order.rollout_id}")

    def ack(self, *host_ids: str) -> None:
        """Acknowledge the order that the host received, or poll for it first."""
        for host_id in host_ids:
            deliveries = self.fleet.control_plane.deliveries
            order = self._orders.get(host_id) or deliveries.poll(host_id)
            if order is None:
                self._said.append(f"no order for {host_id}")
                continue
            self.fleet.say(
                DispatchAck,
                order.rollout_id,
                host_id,
                target_closure=order.target_closure,
                current_closure_at_dispatch=OLD,
            )
            deliveries.clear(host_id, order.rollout_id, order.attempt)
            self._orders.pop(host_id, None)

    def activate(self, *host_ids: str) -> None:
        self.fleet.activate(self.rollout_id, *host_ids)

    def probe(self, host_id: str, status: str) -> None:
        self.fleet.probe(self.rollout_id, host_id, ProbeStatus(status))

    def converge(self, *host_ids: str) -> None:
        self.fleet.converge(self.rollout_id, *host_ids)

    def reach(self, *host_ids: str) -> None:
        """Take the host from the order to Converged, including the soak."""
        self.ack(*host_ids)
        self.activate(*host_ids)
        for host_id in host_ids:
            self.probe(host_id, "pass")
        self.wait(str(SOAK))
        self.converge(*host_ids)

    def defer(self, host_id: str) -> None:
        self.fleet.say(ActivationDeferred, self.rollout_id, host_id, component="kernel")

    def fail(self, host_id: str) -> None:
        self.fleet.say(ActivationFailed, self.rollout_id, host_id, exit_code=1)

    def sicken(self, host_id: str) -> None:
        """Fail the host, because its probe has failed for too long."""
        self.fleet.say(
            Failed,
            self.rollout_id,
            host_id,
            sustained_duration_secs=120,
            failing_probes=("http",),
            policy_applied=OnFailure.ROLLBACK,
        )

    def revert(self, host_id: str) -> None:
        self.fleet.revert(self.rollout_id, host_id)

    def stick(self, host_id: str) -> None:
        """Report that the host cannot roll back."""
        self.fleet.say(RollbackFailed, self.rollout_id, host_id, phase="switch", exit_code=1)


P = TranscriptPlayer
VERBS: dict[str, Callable[..., None]] = {
    verb.__name__: verb
    for verb in (
        *(P.channel, P.hosts),
        *(P.promote, P.pause, P.resume, P.abort, P.clear, P.freeze, P.unfreeze, P.hold, P.unhold),
        *(P.lift, P.explain, P.status, P.wait, P.dispatch, P.tick),
        *(P.poll, P.ack, P.activate, P.probe, P.converge, P.reach, P.defer),
        *(P.fail, P.sicken, P.revert, P.stick),
    )
}


def format_fact(event: Event) -> str:
    """Format a fact as one line: its type, its host, and what changed."""
    said: dict[str, Any] = msgspec.to_builtins(SCHEMA.vocabulary.value(event))
    words = [event.type]
    words += [said["host_id"]] if "host_id" in said else [said[it] for it in SHOWN if it in said]
    match event.type:
        case "GateChanged":
            words.append(f"blocks {said['reason']}" if said["blocked"] else "opens")
        case "HostStateChanged" | "RolloutTransitioned" if said["from"] != said["to"]:
            words.append(f"{said['from']} → {said['to']}")
        case "WaveAdvanced":
            words.append(f"{said['from_wave']} → {said['to_wave']}")
        case "ProbeResult":
            words += [said["probe_name"], said["status"]]
        case "OperatorClearance":
            words.append(said["mode"])
    return " ".join([*words, *(["(late)"] if said.get("late") else [])])


def replay(text: str) -> str:
    """Return the transcript with the results of its input lines now."""
    player = TranscriptPlayer()
    lines: list[str] = []
    is_input = True
    for line in text.splitlines():
        if not line.strip():
            is_input = True
        elif not is_input:
            continue
        elif line.startswith("#"):
            lines += [*([""] if lines and not lines[-1].startswith("#") else []), line]
        elif line == MARK:
            is_input = False
        else:
            lines += [*([""] if lines else []), line, MARK, *player.play(line)]
    player.finish()
    return "\n".join(lines) + "\n"
