"""The operator of a simulated fleet: sets it up, promotes, and meddles."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from tidegate.control.operations.promotion import NothingBefore, Promote, RollBackChannel
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.channels.slices import (
    CreateChannel,
    EndFreeze,
    HoldChannel,
    LiftQuarantine,
    StartFreeze,
    UnholdChannel,
    create_channel,
    end_freeze,
    hold_channel,
    lift_quarantine,
    start_freeze,
    unhold_channel,
)
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.fleet.slices import (
    EnrollHost,
    RetireHost,
    SetBudget,
    enroll_host,
    retire_host,
    set_budget,
)
from tidegate.domain.hosts.states import HostState
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.rows import Rollout
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import CLEARABLE, Clearance
from tidegate.errors import Conflict, Gone, NotFound, Refused
from tidegate.kernel.commit_builder import CommitBuilder
from tidegate.kernel.model import Commit
from tidegate.kernel.slices import Slice
from tidegate.simulate.scenario import ScenarioChannel

if TYPE_CHECKING:
    from tidegate.simulate.world import World

NAME = "user_operator"
PACKAGE = "web"
MEDDLES = 0.15  # how often a look leads to a deed that nobody needed
STOPS = 0.1  # how often orders that go out are followed by a freeze or a hold
STOPS_WITHIN_SECONDS = 2.0  # while some of them are on their way
LUNCH_SECONDS = 120.0
WAIVED_MAX = 10


class SimulatedOperator:
    """Looks at the fleet now and then, and does something."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._stopping = Random(f"stops {world.scenario.seed}")
        self.releases = 0
        self.deeds = 0

    # ── the beginning ──

    def set_up(self) -> None:
        """Hosts, budgets, channels, and the first release."""
        for host_id, labels in self._world.scenario.fleet.items():
            self._enroll(host_id, labels, len(self._world.agents))
        if not self._world.scenario.fleet:
            for number in range(self._world.scenario.hosts):
                self.enroll(number)
        for number, (selector, most) in enumerate(self._world.scenario.budgets.items()):
            budget = SetBudget(
                budget_id=f"b{number}", selector=selector, operator=NAME, max_in_flight=most
            )
            self._tell(set_budget, budget)
        for lane in self._world.scenario.channels:
            self._create(lane)

    def enroll(self, number: int) -> None:
        """One more host, by the number that it has in the fleet."""
        self._enroll(f"web-{number:03}", {"zone": "ab"[number % 2]}, number)

    def _enroll(self, host_id: str, labels: dict[str, str], number: int) -> None:
        key = f"{number:064x}"
        self._tell(
            enroll_host,
            EnrollHost(host_id=host_id, public_key=key, labels=labels, operator=NAME),
        )
        self._world.join(host_id)

    def _create(self, lane: ScenarioChannel) -> None:
        fleet = self._world.control_plane.fleet_reader.row(fleet_key(), Fleet)
        command = CreateChannel(
            channel=lane.channel,
            package=PACKAGE,
            selector=lane.selector,
            operator=NAME,
            policy=lane.policy,
            fleet_version=0 if fleet is None else fleet.version,
        )
        self._tell(create_channel, command)

    # ── releases ──

    @property
    def wanted(self) -> str:
        """The closure of the newest release."""
        return f"sha256:{self.releases:064x}"

    def promote(self) -> None:
        """Publish another release and pin every channel to it."""
        self.releases += 1
        world = self._world
        offered = ReleaseOffered(
            f"{PACKAGE}.{self.releases}", self.wanted, "Published", f"web/v{self.releases}"
        )
        builder = CommitBuilder(world.folds, world.store.get)
        builder.add((offered,), world.now())
        world.control_plane.commit(builder.commit(Commit(world.now()))).result()
        for lane in world.scenario.channels:
            asked = Promote(
                channel=lane.channel,
                release_id=f"{PACKAGE}.{self.releases}",
                command_id=f"c{self.releases}",
                by=NAME,
            )
            with suppress(Refused):  # it is held
                world.insist(partial(self._promote, asked))
        if self.releases < world.scenario.releases:
            world.after(self._random.uniform(300.0, 1_500.0), self.promote)

    def _promote(self, asked: Promote) -> None:
        key = f"{asked.command_id} {asked.channel}"
        self._world.control_plane.promotions.promote(asked, key=key)

    def tidy_up(self) -> None:
        """Undo every hold and freeze, so that a last release can go everywhere."""
        for lane in self._world.scenario.channels:
            self._unhold(lane.channel)

    # ── looks ──

    def look(self, *, restless: bool) -> None:
        """See to what is halted; restless: find something else to do as well."""
        for row in self._world.control_plane.fleet_reader.open_rollouts():
            if row.state in CLEARABLE:
                self._clear(row)
            elif restless and self._random.random() < MEDDLES:
                self._pause(row.rollout_id)
        if restless and self._random.random() < MEDDLES:
            self._random.choice(
                [
                    self._freeze,
                    self._hold,
                    self._roll_back,
                    self._lift,
                    self._grow,
                    self._shrink,
                    self._abort,
                ]
            )()

    def _pause(self, rollout_id: str) -> None:
        pause = PauseRollout(rollout_id=rollout_id, operator=NAME, reason="lunch")
        resume = ResumeRollout(rollout_id=rollout_id, operator=NAME, reason="back")
        self._tell(pause_rollout, pause)
        self._world.after(LUNCH_SECONDS, partial(self._tell, resume_rollout, resume))

    def _abort(self) -> None:
        for row in self._world.control_plane.fleet_reader.open_rollouts()[:1]:
            command = AbortRollout(rollout_id=row.rollout_id, operator=NAME, reason="enough")
            self._tell(abort_rollout, command)

    def _clear(self, row: Rollout) -> None:
        mode = self._random.choice(list(Clearance))
        command = ClearRollout(
            rollout_id=row.rollout_id,
            operator=NAME,
            reason="it was the weather",
            mode=mode,
            closure_hash=row.target_closure,
            host_ids=self._failed(row.rollout_id) if mode is Clearance.WAIVE else (),
        )
        self._tell(clear_rollout, command)

    def _failed(self, rollout_id: str) -> tuple[str, ...]:
        state = self._world.control_plane.fleet_reader.state([rollout_id], self._world.now())
        standings = sorted(state.sight(rollout_id).standings.items())
        ended = (HostState.FAILED, HostState.REVERTED)
        found = [id for id, seen in standings if seen.row.state in ended and not seen.row.left]
        return tuple(found[:WAIVED_MAX])

    def _freeze(self) -> None:
        self.deeds += 1
        freeze_id = f"f{self.deeds}"
        own = self._stopping.random() < 0.5
        channels = (self._stopping.choice(self._world.scenario.channels).channel,) if own else ()
        start = StartFreeze(
            freeze_id=freeze_id, operator=NAME, reason="a holiday", channels=channels
        )
        self._tell(start_freeze, start)
        end = EndFreeze(freeze_id=freeze_id, operator=NAME, reason="over")
        self._world.after(LUNCH_SECONDS, partial(self._tell, end_freeze, end))

    def interrupt(self) -> None:
        """Orders go out: now and then, stop what they are for before all hosts have taken them.

        Only in every other world: what takes long to come about needs some that nobody stops.
        """
        if self._world.scenario.seed % 2 and self._stopping.random() < STOPS:
            stop = self._stopping.choice((self._freeze, self._hold))
            self._world.after(self._stopping.uniform(0.0, STOPS_WITHIN_SECONDS), stop)

    def _hold(self) -> None:
        channel = self._stopping.choice(self._world.scenario.channels).channel
        hold = HoldChannel(channel=channel, operator=NAME, reason="a look")
        self._tell(hold_channel, hold)
        self._world.after(LUNCH_SECONDS, partial(self._unhold, channel))

    def _unhold(self, channel: str) -> None:
        self._tell(unhold_channel, UnholdChannel(channel=channel, operator=NAME, reason="fine"))

    def _roll_back(self) -> None:
        channel = self._random.choice(self._world.scenario.channels).channel
        self.deeds += 1
        command_id = f"r{self.deeds}"
        with suppress(NothingBefore, Refused, Conflict):
            self._world.control_plane.promotions.rollback(
                RollBackChannel(channel=channel, command_id=command_id, by=NAME)
            )

    def _lift(self) -> None:
        for seen in self._world.control_plane.fleet_reader.rows(QUARANTINE, Quarantined):
            command = LiftQuarantine(
                channel=seen.row.channel,
                closure_hash=seen.row.closure_hash,
                operator=NAME,
                reason="looked at",
            )
            self._tell(lift_quarantine, command)

    def _grow(self) -> None:
        self.enroll(len(self._world.agents))

    def _shrink(self) -> None:
        host_id = self._random.choice(sorted(self._world.agents))
        self._tell(retire_host, RetireHost(host_id=host_id, operator=NAME, reason="sold"))
        self._world.leave(host_id)

    def _tell(self, item: Slice, command: Struct) -> None:
        # Who comes too late is refused, like any operator.
        with suppress(Refused, Conflict, NotFound, Gone):
            self._world.insist(lambda: self._world.control_plane.control.execute(item, command))
