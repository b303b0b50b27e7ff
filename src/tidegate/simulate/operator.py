"""The operator of a simulated fleet: sets it up, promotes, and interferes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from tidegate.control.operations.promotion_planning import Promote, RollBackChannel
from tidegate.domain.access import callers, principals, roles
from tidegate.domain.channels.rows import QUARANTINE, Quarantined
from tidegate.domain.fleet.slices import EnrollHost, RetireHost, enroll_host, retire_host
from tidegate.domain.hosts.states import HostState
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.domain.rollouts import rows as rollout_rows, states
from tidegate.domain.windows import facts, rows as window_rows
from tidegate.errors import Conflict, Gone, NotFound, Refused
from tidegate.kernel import commit_builder, model, slices
from tidegate.simulate.scenario import ScenarioChannel

if TYPE_CHECKING:
    from tidegate.simulate.control_plane import SimulatedControlPlane
    from tidegate.simulate.world import World

NAME = "user_operator"
OPERATOR = callers.Caller(
    principal=principals.Principal(
        NAME, "session", (roles.Grant(roles.Role.ON_CALL), roles.Grant(roles.Role.RELEASE_MANAGER))
    )
)
PACKAGE = "web"
MEDDLES = 0.15  # share of looks with an unneeded command
CONTINUES = 0.5  # share of looks that continue a manual wave
PASSES = 0.03  # share of looks that skip a wave or promote all
STARTS_LATER = 0.2  # of promotions
STARTS_AFTER_SECONDS = 150
OVERRIDES = 0.03  # share of looks that override a gate
BY_HAND = 0.4  # of promotions on a channel with auto_promote
AT_ONCE = 0.5  # of rollbacks with --now
RETURNS = 0.02  # share of looks with an unneeded rollback
WINDOWS_SET = 0.03  # share of looks that create a maintenance window
WINDOW_SECONDS = 600
WINDOW_KEPT_SECONDS = 900.0
STOPS = 0.1  # share of dispatches followed by a freeze or a hold
STOPS_WITHIN_SECONDS = 2.0  # while some orders are in flight
LUNCH_SECONDS = 120.0
WAIVED_MAX = 10


class SimulatedOperator:
    """Looks at the fleet now and then, and gives commands."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._stopping = Random(f"stops {world.scenario.seed}")
        self._waving = Random(f"waves {world.scenario.seed}")
        self._overriding = Random(f"overrides {world.scenario.seed}")
        self._automatic = Random(f"by itself {world.scenario.seed}")
        self._windowing = Random(f"windows {world.scenario.seed}")
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
            budget_id = f"b{number}"
            self._do(partial(self._limit, budget_id, selector, most))
        for lane in self._world.scenario.channels:
            self._create(lane)
        self._set_up_stops()

    def _set_up_stops(self) -> None:
        scenario = self._world.scenario
        for window in scenario.windows:
            self._do(partial(self._create_window, window))
        if scenario.frozen_until is not None:
            self._do(
                lambda: self._plane.freezes.start(
                    OPERATOR, "a freeze", until=scenario.frozen_until, freeze_id="frozen"
                )
            )

    def _create_window(self, window: facts.WindowSpec) -> None:
        self._plane.windows.create(OPERATOR, window, "maintenance")

    def enroll(self, number: int) -> None:
        """Enroll the host of this number."""
        self._enroll(f"web-{number:03}", {"zone": "ab"[number % 2]}, number)

    def _enroll(self, host_id: str, labels: dict[str, str], number: int) -> None:
        key = f"{number:064x}"
        self._tell(
            enroll_host, EnrollHost(host_id=host_id, public_key=key, labels=labels, operator=NAME)
        )
        self._world.join(host_id)

    def _limit(self, budget_id: str, selector: str, most: int) -> None:
        self._plane.budgets.set(OPERATOR, budget_id, selector, max_in_flight=most)

    def _create(self, lane: ScenarioChannel) -> None:
        self._do(
            lambda: self._plane.channels.create(
                OPERATOR, lane.channel, package=PACKAGE, selector=lane.selector, policy=lane.policy
            )
        )

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
        builder = commit_builder.CommitBuilder(world.folds, world.store.get)
        builder.add((offered,), world.now())
        world.control_plane.commit(builder.commit(model.Commit(world.now()))).result()
        is_last = self.releases > world.scenario.releases
        for lane in world.scenario.channels:
            if lane.policy.auto_promote and not is_last and self._automatic.random() >= BY_HAND:
                continue
            asked = Promote(
                channel=lane.channel,
                release_id=f"{PACKAGE}.{self.releases}",
                command_id=f"c{self.releases}",
                by=NAME,
                start_at=self._start_at(),
            )
            with suppress(Refused):  # it is held
                world.insist(partial(self._promote, asked))
        if self.releases < world.scenario.releases:
            world.after(world.scenario.between.draw(self._random), self.promote)

    def _start_at(self) -> datetime | None:
        """Sometimes delay a rollout, while faults happen."""
        if not self._world.scenario.restless or self._waving.random() >= STARTS_LATER:
            return None
        return self._world.now() + timedelta(seconds=STARTS_AFTER_SECONDS)

    def _promote(self, asked: Promote) -> None:
        key = f"{asked.command_id} {asked.channel}"
        self._plane.promotions.promote(asked, key=key)

    def tidy_up(self) -> None:
        """Release holds and delete windows, so that the last release can reach all hosts."""
        for lane in self._world.scenario.channels:
            self._unhold(lane.channel)
        for seen in self._plane.fleet_reader.rows(window_rows.WINDOWS, window_rows.Window):
            self._delete_window(seen.row.window_id)

    # ── looks ──

    def look(self, *, restless: bool) -> None:
        """Clear halted rollouts; if restless, also interfere."""
        for row in self._plane.fleet_reader.open_rollouts():
            if row.state in states.CLEARABLE:
                self._clear(row)
                continue
            if not restless or self._waving.random() < CONTINUES:
                self._continue(row.rollout_id)
            if restless and self._waving.random() < PASSES:
                self._pass_waves(row)
            if restless and self._overriding.random() < OVERRIDES:
                self._override(row.rollout_id)
            if restless and self._random.random() < MEDDLES:
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
        if restless and self._windowing.random() < WINDOWS_SET:
            self._set_window()
        if restless and self._automatic.random() < RETURNS:
            self._roll_back()

    def _continue(self, rollout_id: str) -> None:
        self._do(lambda: self._plane.rollouts.continue_wave(OPERATOR, rollout_id))

    def _pass_waves(self, row: rollout_rows.Rollout) -> None:
        rollouts, id = self._plane.rollouts, row.rollout_id
        if self._waving.random() < 0.5:
            self._do(lambda: rollouts.promote_all(OPERATOR, id, "a hurry"))
        else:
            wave = str(row.current_wave + 1 + self._waving.randrange(2))
            self._do(lambda: rollouts.skip_wave(OPERATOR, id, wave, "no use"))

    def _override(self, rollout_id: str) -> None:
        gate = self._overriding.choice(
            (
                states.OverridableGate.FREEZE,
                states.OverridableGate.HOLD,
                states.OverridableGate.WINDOW,
            )
        )
        self._do(lambda: self._plane.rollouts.override(OPERATOR, rollout_id, gate, "a fire"))

    def _pause(self, rollout_id: str) -> None:
        self._do(lambda: self._plane.rollouts.pause(OPERATOR, rollout_id, "lunch"))
        resume = lambda: self._plane.rollouts.resume(OPERATOR, rollout_id, "back")  # noqa: E731
        self._world.after(LUNCH_SECONDS, partial(self._do, resume))

    def _abort(self) -> None:
        for row in self._plane.fleet_reader.open_rollouts()[:1]:
            self._do(partial(self._give_up, row.rollout_id))

    def _give_up(self, rollout_id: str) -> None:
        self._plane.rollouts.abort(OPERATOR, rollout_id, "enough")

    def _clear(self, row: rollout_rows.Rollout) -> None:
        mode = self._random.choice(list(states.Clearance))
        failed = self._failed(row.rollout_id) if mode is states.Clearance.WAIVE else ()
        self._do(
            lambda: self._plane.rollouts.clear(
                OPERATOR, row.rollout_id, mode, "it was the weather", failed
            )
        )

    def _failed(self, rollout_id: str) -> tuple[str, ...]:
        state = self._plane.fleet_reader.state([rollout_id], self._world.now())
        standings = sorted(state.sight(rollout_id).standings.items())
        ended = (HostState.FAILED, HostState.REVERTED)
        found = [id for id, seen in standings if seen.row.state in ended and not seen.row.left]
        return tuple(found[:WAIVED_MAX])

    def _freeze(self) -> None:
        self.deeds += 1
        freeze_id = f"f{self.deeds}"
        own = self._stopping.random() < 0.5
        channels = (self._stopping.choice(self._world.scenario.channels).channel,) if own else ()
        self._do(
            lambda: self._plane.freezes.start(
                OPERATOR, "a holiday", channels=channels, freeze_id=freeze_id
            )
        )
        end = lambda: self._plane.freezes.end(OPERATOR, freeze_id, "over")  # noqa: E731
        self._world.after(LUNCH_SECONDS, partial(self._do, end))

    def interrupt(self) -> None:
        """Sometimes freeze or hold a channel while its orders are in flight.

        Only for odd seeds: some situations take long to arise, and need a world without stops.
        """
        if self._world.scenario.seed % 2 and self._stopping.random() < STOPS:
            stop = self._stopping.choice((self._freeze, self._hold))
            self._world.after(self._stopping.uniform(0.0, STOPS_WITHIN_SECONDS), stop)

    def _hold(self) -> None:
        channel = self._stopping.choice(self._world.scenario.channels).channel
        self._do(lambda: self._plane.channels.hold(OPERATOR, channel, "a look"))
        self._world.after(LUNCH_SECONDS, partial(self._unhold, channel))

    def _unhold(self, channel: str) -> None:
        self._do(lambda: self._plane.channels.unhold(OPERATOR, channel, "fine"))

    def _roll_back(self) -> None:
        channel = self._random.choice(self._world.scenario.channels).channel
        self.deeds += 1
        command_id = f"r{self.deeds}"
        now = self._automatic.random() < AT_ONCE
        asked = RollBackChannel(
            channel=channel, command_id=command_id, by=NAME, now=now, reason="a fire" if now else ""
        )
        with suppress(Refused, Conflict):
            self._plane.promotions.rollback(asked)

    def _set_window(self) -> None:
        """Create a window that denies orders now, or allows them only from soon on."""
        self.deeds += 1
        deny = self._windowing.random() < 0.5
        own = self._windowing.random() < 0.5
        lane = self._windowing.choice(self._world.scenario.channels)
        start = self._world.now() + timedelta(seconds=0 if deny else WINDOW_SECONDS / 2)
        window = facts.WindowSpec(
            window_id=f"w{self.deeds}",
            kind=facts.WindowKind.DENY if deny else facts.WindowKind.ALLOW,
            channels=(lane.channel,) if own else (),
            start=f"{start:%Y-%m-%dT%H:%M}",
            duration_seconds=WINDOW_SECONDS,
        )
        self._do(partial(self._create_window, window))
        self._world.after(WINDOW_KEPT_SECONDS, partial(self._delete_window, window.window_id))

    def _delete_window(self, window_id: str) -> None:
        self._do(lambda: self._plane.windows.delete(OPERATOR, window_id, "over"))

    def _lift(self) -> None:
        for seen in self._plane.fleet_reader.rows(QUARANTINE, Quarantined):
            self._do(partial(self._lift_one, seen.row.channel, seen.row.closure_hash))

    def _lift_one(self, channel: str, closure_hash: str) -> None:
        self._plane.quarantine.lift(OPERATOR, channel, closure_hash, "looked at")

    def _grow(self) -> None:
        self.enroll(len(self._world.agents))

    def _shrink(self) -> None:
        host_id = self._random.choice(sorted(self._world.agents))
        self._tell(retire_host, RetireHost(host_id=host_id, operator=NAME, reason="sold"))
        self._world.leave(host_id)

    def _tell(self, item: slices.Slice, command: Struct) -> None:
        self._do(lambda: self._plane.execute(item, command, OPERATOR))

    def _do(self, deed: Callable[[], object]) -> None:
        # A command may come too late and be refused, as in production.
        with suppress(Refused, Conflict, NotFound, Gone):
            self._world.insist(deed)

    @property
    def _plane(self) -> SimulatedControlPlane:
        return self._world.control_plane
