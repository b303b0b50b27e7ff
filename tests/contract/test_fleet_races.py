"""Concurrency in one rollout, on every engine: reports, dispatchers, promotions, and crashes."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from threading import Barrier, Lock
from types import FrameType
from typing import Any, cast

import pytest

from tests.contract.address import Address
from tests.contract.dynamodb_faults import FaultyTransport, Send, refuse, throttle
from tests.contract.in_process_fleet import OLD, T0, FleetStores, InProcessFleet
from tests.domain.memory_fleet import MemoryFleet
from tests.domain.registry import digest_of
from tests.simulation.mutants import planted
from tidegate.control.fleet.dispatch import Dispatcher
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.gates.inputs import FleetState
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    AgentEvent,
    Converged,
    DispatchAck,
    DispatchReserved,
    HostStateChanged,
    ProbeTopologyDeclared,
)
from tidegate.domain.hosts.states import HostPolicy, HostState
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.domain.rollouts.slices import (
    PauseRollout,
    ResumeRollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import RolloutState
from tidegate.engines.dynamodb import DynamoStore
from tidegate.engines.dynamodb.client import BotoTransport
from tidegate.engines.dynamodb.transport import Action
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import Conflict, TidegateError, Unavailable
from tidegate.kernel.model import NO_META
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store
from tidegate.simulate.control_plane import MemoryBlobs

ROLLOUT = "edge@web.1"
TARGET = digest_of("web.1")
WRITERS = 32  # in two processes
HOSTS = 200
LIFE = 4  # reports from the order to the end
RACERS = 4
SENT_MAX = 2 * HOSTS * LIFE  # transactions for all of them, with every repetition
SENDS_MAX = 5  # of one report


@pytest.fixture
def address(fleet_address: Address | None) -> Address | None:
    return fleet_address


# ── many hosts, one rollout ───────────────────────────────────────────────────────────────────────


def launch(fleet: InProcessFleet, count: int) -> list[str]:
    """Open a rollout with this many hosts, all of them ordered. Nothing soaks."""
    hosts = [f"h{number:03}" for number in range(count)]
    assert MemoryFleet("edge", store=fleet.store).promote("web.1", count, channel="edge") == ROLLOUT
    orders = [
        ReserveDispatch(
            rollout_id=ROLLOUT, host_id=host, target_closure=TARGET, wave=0, policy=HostPolicy()
        )
        for host in hosts
    ]
    pack = [(reserve_dispatch, order, NO_META) for order in orders]
    for future in fleet.control_plane.lanes.record_all(ROLLOUT, pack):
        future.result()
    return hosts


def reports_of_host(host_id: str) -> list[AgentEvent]:
    """Return all reports of a host, in order."""
    named: dict[str, Any] = {"rollout_id": ROLLOUT, "host_id": host_id, "at": T0}
    return [
        DispatchAck(**named, seq=1, target_closure=TARGET, current_closure_at_dispatch=OLD),
        ActivationCompleted(**named, seq=2, observed_current_closure=TARGET),
        ProbeTopologyDeclared(**named, seq=3),
        Converged(**named, seq=4, current_closure=TARGET),
    ]


def send_reports(store: Store, hosts: Sequence[str]) -> list[str]:
    """Send every host's reports, one thread per host, through one server's lanes. Return the
    answers.
    """
    with (
        closing(GroupCommit(store)) as writer,
        closing(Lanes(store, FOLDS, writer.submit, clock=lambda: T0)) as lanes,
    ):

        def send(event: AgentEvent) -> str:
            command = ReportEvent(rollout_id=ROLLOUT, host_id=event.host_id, event=event)
            told = "nothing"
            for _ in range(SENDS_MAX):
                try:
                    lanes.record(ROLLOUT, report_event, command).result()
                except Unavailable as error:  # its agent sends it again
                    told = error.code
                except TidegateError as error:
                    return error.code
                else:
                    return "taken"
            return told

        def say(host_id: str) -> list[str]:
            return [send(event) for event in reports_of_host(host_id)]

        with ThreadPoolExecutor(len(hosts)) as threads:
            return [word for told in threads.map(say, hosts) for word in told]


def send_reports_in_a_process(address: Address, hosts: Sequence[str]) -> list[str]:
    with closing(address.open(SCHEMA)) as store:
        return send_reports(store, hosts)


def check_all_converged(fleet: InProcessFleet, hosts: Sequence[str]) -> None:
    """Check that every report is in the log once, that nothing else is, and that the rollout ended
    once.
    """
    events = fleet.log()
    said = Counter(
        (value.host_id, value.seq)
        for event in events
        if event.kind == "agent_event"
        for value in [cast(Any, SCHEMA.vocabulary.value(event))]
    )
    assert said == Counter({(host, seq): 1 for host in hosts for seq in range(1, LIFE + 1)})
    assert fleet.types().count("RolloutTerminal") == 1
    assert fleet.state(ROLLOUT) is RolloutState.TERMINAL
    assert {host.state for host in fleet.hosts(ROLLOUT)} == {HostState.CONVERGED}
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("RO-11", "RO-3")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.long
def test_records_every_report_of_32_writers_in_two_processes(
    engine: str, fleet_stores: FleetStores, address: Address, processes: ProcessPoolExecutor
) -> None:
    fleet = InProcessFleet(fleet_stores.open())
    hosts = launch(fleet, WRITERS)

    halves = [processes.submit(send_reports_in_a_process, address, hosts[n::2]) for n in range(2)]
    told = [word for half in halves for word in half.result()]

    assert Counter(told) == Counter(taken=WRITERS * LIFE)
    check_all_converged(fleet, hosts)


class ContendedTable(FaultyTransport):
    """A table in contention: one transaction in five meets another one, or is throttled."""

    def __init__(self, inner: BotoTransport, seed: int) -> None:
        super().__init__(inner)
        self.injected: Counter[str] = Counter()
        self.blowing = False
        self._chance = Random(seed)
        self._chance_lock = Lock()

    def transact(self, actions: Sequence[Action], token: str) -> None:
        with self._chance_lock:
            toss = self._chance.random() if self.blowing else 1.0
        if toss < 0.1:
            self.injected["conflict"] += 1
            refuse("TransactionConflict", 0, len(actions))(lambda: None)
        self._through("transact", lambda: self.inner.transact(actions, token))

    def _through(self, call: str, send: Send) -> Any:
        with self._chance_lock:
            toss = self._chance.random() if self.blowing else 1.0
        if toss < 0.1:
            self.injected["throttled"] += 1
            throttle(send)
        self.calls[call] += 1
        return send()


@pytest.mark.req("RO-11", "RO-3")
@pytest.mark.parametrize("engine", ["dynamodb"])
def test_records_every_report_of_200_hosts_through_conflicts_and_throttling(
    engine: str, fleet_stores: FleetStores, address: Address
) -> None:
    fleet = InProcessFleet(fleet_stores.open())
    hosts = launch(fleet, HOSTS)
    table, _, options = address.where.removeprefix("dynamodb://").partition("?")
    endpoint = options.partition("endpoint=")[2]
    squalls = [
        ContendedTable(BotoTransport(table, region="local", endpoint=endpoint), seed)
        for seed in range(RACERS)
    ]
    with ExitStack() as handles:
        stores = [
            handles.enter_context(closing(DynamoStore(table, SCHEMA, transport=squall)))
            for squall in squalls
        ]
        for squall in squalls:
            squall.blowing = True
        with ThreadPoolExecutor(RACERS) as servers:
            parts = servers.map(send_reports, stores, [hosts[n::RACERS] for n in range(RACERS)])
            told = [word for part in parts for word in part]

    assert Counter(told) == Counter(taken=HOSTS * LIFE)
    injected = sum((squall.injected for squall in squalls), Counter[str]())
    assert min(injected["conflict"], injected["throttled"]) > 0
    assert sum(squall.calls["transact"] for squall in squalls) + injected.total() < SENT_MAX
    check_all_converged(fleet, hosts)


# ── several servers ───────────────────────────────────────────────────────────────────────────────


def at_once(*runs: Callable[[], Any]) -> list[Any]:
    """Run all calls, started together, and return their results."""
    start = Barrier(len(runs))

    def run(work: Callable[[], Any]) -> Any:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(runs)) as threads:
        return list(threads.map(run, runs))


class Stalled(FleetReader):
    """The fleet as a dispatcher reads it, with a pause between the read and the orders."""

    def __init__(self, fleet: InProcessFleet, meanwhile: Callable[[], object]) -> None:
        super().__init__(fleet.store, fleet.blobs)
        self._meanwhile = meanwhile

    def state(self, rollout_ids: Iterable[str], now: datetime, *, late: bool = False) -> FleetState:
        seen = super().state(rollout_ids, now, late=late)
        self._meanwhile()
        return seen


def pause(fleet: InProcessFleet, rollout_id: str, *, resume: bool = False) -> None:
    said: dict[str, Any] = {"rollout_id": rollout_id, "operator": "user_1", "reason": "lunch"}
    if resume:
        fleet.execute(resume_rollout, ResumeRollout(**said))
    else:
        fleet.execute(pause_rollout, PauseRollout(**said))


def check_budget(fleet: InProcessFleet, most: int) -> None:
    """Check that at no position of the log more slots were taken than the budget has."""
    taken = 0
    for event in fleet.log():
        match SCHEMA.vocabulary.value(event):
            case DispatchReserved(budgets=budgets):
                taken += len(budgets)
            case HostStateChanged(budgets=budgets):
                taken -= len(budgets)
        assert 0 <= taken <= most, event.position


@pytest.mark.req("RO-12")
def test_never_exceeds_a_budget_with_two_dispatchers_at_once(fleet_stores: FleetStores) -> None:
    """Each dispatcher knew the one of two rollouts that the other did not; then both know both."""
    blobs = MemoryBlobs()
    one, other = (
        InProcessFleet(fleet_stores.open(), blobs),
        InProcessFleet(fleet_stores.open(), blobs),
    )
    for channel in ("edge", "core"):
        one.create(channel)
        one.enroll(*(f"{channel}{number}" for number in range(3)), channel=channel)
    one.bound("*", 2)
    one.offer("web.1")
    edge, core = one.promote("edge", "web.1"), one.promote("core", "web.1")
    pause(one, edge)

    def meanwhile() -> None:
        pause(one, edge, resume=True)
        pause(one, core)
        assert one.dispatch().ordered == 2
        pause(one, core, resume=True)

    control_plane = other.control_plane
    stalled = Dispatcher(
        control_plane.lanes, Stalled(other, meanwhile), control_plane.clock
    ).run_pass()
    assert (stalled.ordered, stalled.lost) == (0, 2)

    for _ in range(6):
        under_way = [host for id in (edge, core) for host in one.hosts(id) if host.busy]
        assert len(under_way) <= 2
        for host in under_way:
            one.control_plane.restart()
            one.reach(host.rollout_id, host.host_id)
        at_once(one.dispatch, other.dispatch, one.dispatch, other.dispatch)
    check_budget(one, 2)
    assert {one.state(edge), one.state(core)} == {RolloutState.TERMINAL}
    assert differences(one.store, FOLDS) == []


@pytest.mark.req("RO-4")
def test_one_of_several_racing_promotions_wins(fleet_stores: FleetStores) -> None:
    blobs = MemoryBlobs()
    squadrons = [
        InProcessFleet(fleet_stores.open(), blobs, f"s{number}") for number in range(RACERS)
    ]
    first = squadrons[0]
    first.create("edge")
    first.enroll("h1", channel="edge")
    releases = [f"web.{number}" for number in range(1, RACERS + 2)]
    first.offer(*releases)
    first.promote("edge", "web.1")
    before = first.types()

    def promote(fleet: InProcessFleet, release_id: str) -> str:
        try:
            return fleet.promote("edge", release_id, expected_version=0)
        except Conflict as error:
            return error.code

    found = at_once(
        *(partial(promote, *pair) for pair in zip(squadrons, releases[1:], strict=True))
    )

    (won,) = [answer for answer in found if "@" in answer]
    assert Counter(found) == Counter({won: 1, "version_conflict": RACERS - 1})
    assert first.types()[len(before) :] == [
        *("ReleaseTransitioned", "SuccessorOpened", "RolloutTransitioned"),
        *("RolloutConcluded", "RolloutOpened"),
    ]
    assert first.channel("edge").active_rollout_id == won
    assert first.rollout(ROLLOUT).superseded_by == won
    assert differences(first.store, FOLDS) == []


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────

DEAD = 7
POINTS_MAX = 400
WAVES = 16
CALLS = {  # calls of our sessions and of our transport: something is sent to the server, or awaited
    "postgres": {"round_trip", "_flush", "_wait"},
    "dynamodb": {"get", "query", "increment", "put_absent", "transact"},
}


class Death:
    """Ends the process right before its nth call of the database, counted from now on."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._is_step(frame, event, arg):
            self._left -= 1
            if self._left == 0:
                os._exit(DEAD)

    @staticmethod
    def _is_step(frame: FrameType, event: str, arg: Any) -> bool:
        if event == "c_call":
            return type(getattr(arg, "__self__", None)).__module__ == "apsw"
        if event != "call":
            return False
        room = Path(frame.f_code.co_filename).parent.name
        return frame.f_code.co_name in CALLS.get(room, ())


class Later(Executor):
    """Runs a function when asked to, in the calling thread."""

    def __init__(self) -> None:
        self._given: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._given.append(partial(fn, *args, **kwargs))
        return Future()

    def run(self) -> None:
        while self._given:
            self._given.pop(0)()


def converge_next(address: Address, nth: int, told: int) -> None:
    """Take the host of the current wave to its last report, and die during it. The process writes
    the host to ``told`` as soon as the report was acknowledged.
    """
    with closing(address.open(SCHEMA)) as store:
        fleet = InProcessFleet(store)
        wave = fleet.tally(ROLLOUT).current_wave
        host_id = f"w{wave}"
        order = ReserveDispatch(
            rollout_id=ROLLOUT,
            host_id=host_id,
            target_closure=TARGET,
            wave=wave,
            policy=HostPolicy(),
        )
        fleet.control_plane.lanes.record(ROLLOUT, reserve_dispatch, order).result()
        *early, last = reports_of_host(host_id)
        fleet.control_plane.report(*early)
        later = Later()
        lanes = Lanes(store, FOLDS, fleet.control_plane.submit, clock=fleet.clock, threads=later)
        report = ReportEvent(rollout_id=ROLLOUT, host_id=host_id, event=last)
        sys.setprofile(Death(nth))
        taken = lanes.record(ROLLOUT, report_event, report)
        taken.add_done_callback(lambda answer: os.write(told, f"{host_id}\n".encode()))
        later.run()
        sys.setprofile(None)
        taken.result()


def die_everywhere(address: Address, bug: str = "") -> tuple[list[int], list[str]]:
    """Run one child per point, each of which dies a little later than the one before; the last one
    lives. Return how each ended, and the hosts whose last report was answered.

    This process opens nothing itself, so its children share nothing but the log.
    """
    codes = []
    with TemporaryFile() as told, planted(bug):
        for nth in range(1, POINTS_MAX):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    converge_next(address, nth, told.fileno())
                    code = 0
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            if codes[-1] != DEAD:
                break
        told.seek(0)
        return codes, told.read().decode().split()


def check_whole_reports(fleet: InProcessFleet, codes: list[int], told: list[str]) -> None:
    """Check that each report is there as a whole or not at all, and that every acknowledged one is
    there. The next child starts with the next host.
    """
    assert max(Counter(told).values(), default=0) <= 1, "answered, and not recorded"
    whole = [
        *("Converged", "HostStateChanged", "RolloutTransitioned", "WaveAdvanced"),
        "RolloutTransitioned",
    ]
    events = fleet.log()
    for number, event in enumerate(events):
        if event.type == "Converged":
            assert [one.type for one in events[number : number + len(whole)]] == whole
    assert codes == [DEAD] * (len(codes) - 1) + [0]
    through = fleet.tally(ROLLOUT).current_wave
    assert 1 <= through < len(codes), "most died before their commit"
    words = Counter(
        (value.host_id, value.seq)
        for event in fleet.log()
        if event.kind == "agent_event"
        for value in [cast(Any, SCHEMA.vocabulary.value(event))]
    )
    assert words == Counter(
        {(f"w{wave}", seq): 1 for wave in range(through) for seq in range(1, LIFE + 1)}
    )
    assert fleet.rollout(ROLLOUT).current_wave == through
    assert differences(fleet.store, FOLDS) == []


def open_in_waves(fleet_stores: FleetStores) -> InProcessFleet:
    fleet = InProcessFleet(fleet_stores.open())
    by_hand = MemoryFleet("edge", store=fleet.store)
    assert by_hand.promote("web.1", *([1] * WAVES), channel="edge") == ROLLOUT
    return fleet


@pytest.mark.req("RO-11")
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "dynamodb"])
@pytest.mark.long
def test_records_all_of_a_report_or_nothing_wherever_its_server_dies(
    engine: str, fleet_stores: FleetStores, address: Address, processes: ProcessPoolExecutor
) -> None:
    fleet = open_in_waves(fleet_stores)

    codes, told = processes.submit(die_everywhere, address).result()

    assert told, "the last one lived and was answered"
    check_whole_reports(fleet, codes, told)


@pytest.mark.parametrize(
    ("bug", "sign"),
    [
        ("acknowledge_before_commit", "answered, and not recorded"),
        ("follow_ups_in_a_second_transaction", "HostStateChanged"),
    ],
)
@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.long
def test_crashes_expose_a_server_that_answers_or_writes_in_two_steps(
    engine: str,
    bug: str,
    sign: str,
    fleet_stores: FleetStores,
    address: Address,
    processes: ProcessPoolExecutor,
) -> None:
    """Proves that the test above can fail: it finds a server with the bug it looks for."""
    fleet = open_in_waves(fleet_stores)

    codes, told = processes.submit(die_everywhere, address, bug).result()

    with pytest.raises(AssertionError, match=sign):
        check_whole_reports(fleet, codes, told)
