"""One simulated world: a clock, hosts, the network to the control plane, and an operator.

heap of (time, action) ──▶ the clock jumps there ──▶ the action runs ──▶ adds more actions
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from random import Random

from tidegate import clock, errors
from tidegate.control.fleet.timers import TimersResult
from tidegate.domain.composition import FOLDS
from tidegate.domain.hosts import agent_side, refusals, states
from tidegate.domain.rollouts.report_slices import RECOVERABLE
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import folds as kernel_folds, replay
from tidegate.kernel.model import Commit
from tidegate.kernel.store import Store
from tidegate.simulate import (
    agents,
    control_plane,
    explanations,
    invariants,
    operator as simulate_operator,
    rates,
    second_dispatcher,
)
from tidegate.simulate.scenario import Scenario, SimulationResult

THOROUGH_EVERY = 3  # passes
OPERATE_EVERY = 10  # passes
SETTLE_HOURS = 12
STEPS_MAX = 200_000
BASE = f"sha256:{'f' * 64}"
HEARTBEATS = 0.2  # share of polls that report what runs; during a switch all do
BATCH_MAX = 10  # reports of one message
DEEDS_MAX = 20  # attempts of one action if the server dies each time


class World:
    """A simulation. ``run`` it once, or ``play`` it until a condition holds.

    ``watching`` checks the invariants at every commit and takes half as long again.
    """

    def __init__(
        self,
        scenario: Scenario,
        store: Store | None = None,
        folds: kernel_folds.Folds = FOLDS,
        *,
        watching: bool = True,
        silence_seconds: int = control_plane.SILENCE_SECONDS,
        operator: Callable[
            [World], simulate_operator.SimulatedOperator
        ] = simulate_operator.SimulatedOperator,
    ) -> None:
        self.scenario = scenario
        self.rates = scenario.rates
        self.random = Random(scenario.seed)
        self.clock = clock.ManualClock(scenario.starts_at)
        self.store = store or MemoryStore(folds.schema)
        self.folds = folds
        self.watch = invariants.InvariantChecker(self.store, folds)
        self._watching = watching
        self._explanations = explanations.ExplanationChecker()
        self.commits = 0
        self._due = (scenario.starts_at, 0)  # time and number of the next pass
        self.control_plane = control_plane.SimulatedControlPlane(
            self.store,
            folds,
            self.clock,
            control_plane.MemoryBlobs(),
            self._observe,
            self._wake,
            self._fate,
            silence_seconds,
        )
        self._second_dispatcher = second_dispatcher.SecondDispatcher(
            self.control_plane, scenario.seed, self._wake
        )
        self._heap: list[tuple[datetime, int, Callable[[], None]]] = []
        self._count = 0
        self._passes = 0
        self._settled = False
        self._faults = False  # off until everything is set up
        self.agents: dict[str, agents.SimulatedAgent] = {}
        self.gone: set[str] = set()
        self.operator = operator(self)

    # ── time ──

    def now(self) -> datetime:
        return self.clock()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        when = self.now() + timedelta(microseconds=int(seconds * 1e6))
        heapq.heappush(self._heap, (when, self._count, action))

    def run(self) -> SimulationResult:
        """Run with faults, then without, until the fleet has converged.

        Raises:
            InvariantViolation. AssertionError: the fleet does not converge.
        """
        self._set_up()
        self._until(self.scenario.starts_at + timedelta(hours=self.scenario.hours))
        self._heal()
        self._until(self.now() + timedelta(hours=SETTLE_HOURS), lambda: self._settled)
        self._settle()
        found = replay.differences(self.store, self.folds)
        assert found == [], found[:3]
        return self._result()

    def play(self, over: Callable[[], bool]) -> None:
        """Run with faults until ``over`` returns true or the scenario's hours have passed."""
        self._set_up()
        self._until(self.scenario.starts_at + timedelta(hours=self.scenario.hours), over)

    def _until(self, end: datetime, done: Callable[[], bool] = lambda: False) -> None:
        for _ in range(STEPS_MAX):
            if not self._heap or self._heap[0][0] > end:
                break
            if done():
                return
            when, _, action = heapq.heappop(self._heap)
            self.clock.now = max(when, self.now())
            try:
                action()
            except control_plane.SimulatedCrash:
                self._restart()
        else:
            raise AssertionError(f"seed {self.scenario.seed}: more than {STEPS_MAX} steps")
        self.clock.now = max(end, self.now())

    # ── the beginning ──

    def _set_up(self) -> None:
        self.operator.set_up()
        self._faults = True
        self.after(1.0, self.operator.promote)
        self._pass_in(self.scenario.pass_seconds)

    def join(self, host_id: str) -> None:
        """Add a host with an agent."""
        agent = agents.SimulatedAgent(host_id, self.rates, self.random, self)
        agent.base = "" if self.random.random() < self.rates.bare else BASE
        agent.doomed = host_id in self.scenario.doomed
        agent.online = self.random.random() >= self.rates.off
        self.agents[host_id] = agent
        self.after(self.random.uniform(0.0, 30.0), partial(self._poll, agent))

    def leave(self, host_id: str) -> None:
        """Remove a host for good."""
        self.gone.add(host_id)
        self.agents[host_id].dead = True

    # ── the control plane ──

    def _observe(self, commit: Commit) -> None:
        self.commits += 1
        if self._watching:
            self.watch.check(commit)
        soon = timedelta(seconds=self.scenario.pass_seconds)
        if commit.facts and self._due[0] - self.now() > soon:
            self._pass_in(self.scenario.pass_seconds)  # something changed: make a pass soon

    def _pass_in(self, seconds: float) -> None:
        self._due = (self.now() + timedelta(seconds=seconds), self._due[1] + 1)
        self.after(seconds, partial(self._pass, self._due[1]))

    def _pass(self, number: int) -> None:
        if number != self._due[1]:
            return  # an earlier pass replaced this one
        self._passes += 1
        if self._faulty(self.rates.server_crashes):
            self._restart()
        idle = False
        try:
            idle = self._work()
        except control_plane.SimulatedCrash:
            self._restart()
        if self._passes % OPERATE_EVERY == 0 and self.scenario.attended:
            self.after(0.0, self._look)
        self._settled = not (self._faults or self._unsettled())
        self._pass_in(self.scenario.idle_seconds if idle else self.scenario.pass_seconds)

    def _look(self) -> None:
        self.operator.look(restless=self._faults and self.scenario.restless)

    def _work(self) -> bool:
        """Run timers, automation and dispatch; return whether there was nothing to do."""
        tick = self.control_plane.due.tick()
        if self._watching and self._faults:
            self._second_dispatcher.try_order()
        opened = self.control_plane.act()
        thorough = self._passes % THOROUGH_EVERY == 0
        done = self.control_plane.dispatcher.run_pass(thorough=thorough)
        if self._watching and thorough:
            self._explanations.look(self.control_plane.fleet_reader, self.now())
        moved = done.ordered or done.skipped or done.cancelled or opened
        return tick == TimersResult() and not moved

    def _fate(self) -> control_plane.CommitFate:
        if not self._faulty(self.rates.torn):
            return control_plane.CommitFate.LIVES
        return self.random.choice(
            (control_plane.CommitFate.DIES_BEFORE, control_plane.CommitFate.DIES_AFTER)
        )

    def _restart(self) -> None:
        """Restart the server; repeat if it dies again."""
        self.control_plane.restart()
        self.insist(lambda: self.control_plane.deliveries.refill())

    def insist(self, deed: Callable[[], object]) -> None:
        """Run an action; if the server dies meanwhile, run it again."""
        for _ in range(DEEDS_MAX):
            try:
                deed()
            except control_plane.SimulatedCrash:
                self.control_plane.restart()
            else:
                return
        raise AssertionError(f"the server died {DEEDS_MAX} times over one deed")

    # ── the network ──

    def _wake(self, hosts: Sequence[str]) -> None:
        """Wake the hosts that wait in a long poll."""
        for host_id in hosts:
            agent = self.agents[host_id]
            self.after(self.random.uniform(0.1, 2.0), partial(self._ask, agent))
        if hosts and self._faults and self.scenario.restless:
            self.operator.interrupt()

    def _poll(self, agent: agents.SimulatedAgent) -> None:
        """Poll regularly: often while reports are pending, rarely otherwise."""
        if agent.dead:
            return
        span = self.rates.poll if agent.journal else self.rates.idle
        self.after(span.draw(self.random), partial(self._poll, agent))
        if agent.online and self._faulty(self.rates.offline):
            agent.online = False
            self.after(self.rates.absence.draw(self.random), partial(self._reconnect, agent))
        if self._faulty(self.rates.agent_crashes):
            agent.crash()
        self._ask(agent)

    def _ask(self, agent: agents.SimulatedAgent) -> None:
        if agent.dead or not agent.online:
            return
        self.control_plane.note_poll(agent.host_id)
        self._heartbeat(agent)
        if agent.busy:
            self.flush(agent)
            return
        order = self.control_plane.deliveries.poll(agent.host_id)
        if order is not None and not self._faulty(self.rates.lost):
            agent.take(order)

    def _reconnect(self, agent: agents.SimulatedAgent) -> None:
        agent.online = True
        self._ask(agent)

    def _heartbeat(self, agent: agents.SimulatedAgent) -> None:
        for rollout_id, twin in list(agent.twins.items()):
            waits = twin.state is states.HostState.DEFERRED and not agent.journal
            if waits and self.control_plane.is_withdrawn(rollout_id, agent.host_id):
                agent.withdraw(rollout_id)
                continue
            running = agent.running.get(twin.channel)
            share = 1.0 if twin.state in RECOVERABLE else HEARTBEATS
            if running and not agent.journal and self.random.random() < share:
                self.control_plane.observe(rollout_id, agent.host_id, running)

    def flush(self, agent: agents.SimulatedAgent) -> None:
        """Send the reports of the journal, oldest first, until one fails."""
        while agent.journal and agent.online and not agent.dead:
            if self._faulty(self.rates.lost):
                return
            batch = self._batch(agent)
            if self._faulty(self.rates.reordered):
                self.random.shuffle(batch)
            answers = self._report(batch)
            if self._faulty(self.rates.duplicated):
                self.watch.check_repeats(answers, self._report(batch))
            if self._faulty(self.rates.unanswered):
                return
            if not all(map(self._handle_answer, [agent] * len(batch), batch, answers)):
                return

    def _report(self, batch: Sequence[agents.JournalEntry]) -> list[object]:
        events = [entry.event for entry in batch]
        answers = self.control_plane.report(*events)
        if self.control_plane.crashed:
            self._restart()
        if self._watching:
            self.watch.check_answers(events, answers)
        return list(answers)

    def _batch(self, agent: agents.SimulatedAgent) -> list[agents.JournalEntry]:
        rollout_id = agent.journal[0].event.rollout_id
        batch: list[agents.JournalEntry] = []
        for entry in agent.journal:
            if entry.event.rollout_id != rollout_id or len(batch) == BATCH_MAX:
                break
            batch.append(entry)
        return batch

    def _handle_answer(
        self, agent: agents.SimulatedAgent, entry: agents.JournalEntry, answer: object
    ) -> bool:
        """Handle the result of a report; return whether the next one may be handled."""
        if answer is None:
            return False
        if not isinstance(answer, errors.TidegateError):
            if entry in agent.journal:
                agent.journal.remove(entry)
                agent.confirm(entry)
            return True
        if isinstance(answer, refusals.SequenceGap) or agent_side.waits(entry.event, answer.code):
            return False  # an earlier report is missing: send again
        if entry in agent.journal:
            agent.drop_refused(entry, answer)
        return False

    def _faulty(self, rate: float) -> bool:
        return self._faults and self.random.random() < rate

    # ── the end ──

    def _heal(self) -> None:
        """End all faults, bring every host back, and promote one more release."""
        self._faults = False
        for host_id, agent in self.agents.items():
            if host_id in self.gone:
                continue
            agent.recover(rates.CALM)
            self._poll(agent)
        self.after(simulate_operator.LUNCH_SECONDS, self.operator.tidy_up)
        self.after(2 * simulate_operator.LUNCH_SECONDS, self.operator.promote)

    def _unsettled(self) -> list[str]:
        """The channels and hosts that do not run the last release."""
        wanted = f"{simulate_operator.PACKAGE}.{self.operator.releases}"
        if self.operator.releases < self.scenario.releases + 1:
            return ["the last release is not out yet"]
        found = []
        for seen in self.control_plane.fleet_reader.channels():
            row = seen.row
            if row.newest_state != "Terminal" or row.terminal_ref != wanted:
                found.append(f"{row.newest_rollout_id} is {row.newest_state}")
        for host_id, agent in self.agents.items():
            if host_id not in self.gone and self.operator.wanted not in agent.running.values():
                found.append(f"{host_id} runs {agent.running}")
        return found

    def _settle(self) -> None:
        found = self._unsettled()
        assert not found, f"seed {self.scenario.seed}: {found[:5]}"

    def _result(self) -> SimulationResult:
        trace = sha256()
        after = 0
        while page := self.store.feed(after=after, limit=1_000).events:
            for event in page:
                trace.update(f"{event.at} {event.type} ".encode() + event.body)
            after = page[-1].position
        return SimulationResult(
            seed=self.scenario.seed,
            events=self.watch.model.events,
            host_events=self.watch.model.host_events,
            states={id: model.state.value for id, model in self.watch.model.rollouts.items()},
            trace=trace.hexdigest(),
            seconds=(self.now() - self.scenario.starts_at).total_seconds(),
            types=frozenset(self.watch.model.types),
            entered=frozenset(self.watch.model.entered),
        )
