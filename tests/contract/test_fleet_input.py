"""Input that a fleet refuses, on every engine: a typed refusal with the state, and no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.address import address_of
from tests.contract.in_process_fleet import (
    OLD,
    SOAK,
    FleetStores,
    InProcessFleet,
    enroll_fleet,
    rows,
)
from tests.domain.registry import digest_of
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, HostEdge, WaveSpec
from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.channels.slices import EditChannel, edit_channel
from tidegate.domain.fleet.rows import fleet_key
from tidegate.domain.hosts.facts import (
    ActivationFailed,
    Converged,
    DispatchAck,
    Failed,
    ProbeResult,
    RollbackComplete,
)
from tidegate.domain.hosts.refusals import (
    ClockSkew,
    EarlyConvergence,
    HostNotInRollout,
    RolloutUnknown,
    SequenceGap,
    UndeclaredProbe,
    UnsustainedFailure,
    WaveNotReached,
    WrongClosure,
    WrongHost,
)
from tidegate.domain.hosts.states import HostPolicy, OnFailure, ProbeMode, ProbeStatus
from tidegate.domain.planner import MalformedPlan, encode_plan
from tidegate.domain.rollouts.facts import RolloutTerminal
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.errors import IllegalTransition, InvalidInput, LimitExceeded, TidegateError
from tidegate.kernel.slices import Slice

ROLLOUT = "edge@web.1"
TARGET = digest_of("web.1")

Case = tuple[str, type[TidegateError], dict[str, Any], Callable[[], Any]]


def edge_after(channel: str) -> tuple[ChannelEdge, ...]:
    return (ChannelEdge(channel),)


@pytest.fixture(scope="module")
def fleet(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InProcessFleet]:
    """A fleet in which the first wave's host soaks. Its probe is declared, and has not reported."""
    with closing(
        FleetStores(address_of(request, engine, tmp_path_factory.mktemp("input")))
    ) as fleet_stores:
        fleet = InProcessFleet(fleet_stores.open())
        enroll_fleet(fleet)
        fleet.promote("edge", "web.1")
        fleet.dispatch()
        fleet.ack("e1")
        fleet.activate(ROLLOUT, "e1")
        fleet.wait(SOAK)
        yield fleet


def reports(fleet: InProcessFleet) -> list[Case]:
    """Each case: what it is, how it is refused, what the refusal contains, what is sent."""
    say = partial(partial, fleet.say)
    at = fleet.clock()
    state = {"state": "Soaking"}
    converged: dict[str, Any] = {"current_closure": TARGET}
    result: dict[str, Any] = {"probe_name": "http", "mode": ProbeMode.ENFORCE}
    status = {"status": ProbeStatus.PASS}
    failing = {"failing_probes": ("http",), "policy_applied": OnFailure.ROLLBACK}
    return [
        (
            "an unknown rollout",
            RolloutUnknown,
            {"rollout_id": "edge@web.9"},
            say(Converged, "edge@web.9", "e1", seq=1, **converged),
        ),
        (
            "an unknown host",
            HostNotInRollout,
            {"host_id": "e9"},
            say(Converged, ROLLOUT, "e9", seq=1, **converged),
        ),
        (
            "a host that has no order yet",
            HostNotInRollout,
            {"host_id": "e2"},
            say(Converged, ROLLOUT, "e2", seq=1, **converged),
        ),
        (
            "a wrong digest",
            WrongClosure,
            {**state, "found": "sha256:other", "expected": TARGET},
            say(Converged, ROLLOUT, "e1", current_closure="sha256:other"),
        ),
        (
            "convergence without a pass of its probe",
            EarlyConvergence,
            {**state, "missing": ("no pass of probe http",)},
            say(Converged, ROLLOUT, "e1", **converged),
        ),
        (
            "convergence before the soak is over",
            EarlyConvergence,
            state,
            say(Converged, ROLLOUT, "e1", at=at - timedelta(seconds=1), **converged),
        ),
        (
            "a number too far",
            SequenceGap,
            {**state, "found": 9, "expected": 4},
            say(Converged, ROLLOUT, "e1", seq=9, **converged),
        ),
        (
            "a number below 1",
            InvalidInput,
            {"field": "seq"},
            say(Converged, ROLLOUT, "e1", seq=0, **converged),
        ),
        (
            "a time from the future",
            ClockSkew,
            state,
            say(Converged, ROLLOUT, "e1", at=at + timedelta(seconds=61), **converged),
        ),
        (
            "an acknowledgement after the switch",
            IllegalTransition,
            {**state, "event": "DispatchAck"},
            say(DispatchAck, ROLLOUT, "e1", target_closure=TARGET, current_closure_at_dispatch=OLD),
        ),
        (
            "a rollback of what did not fail",
            IllegalTransition,
            {**state, "event": "RollbackComplete"},
            say(RollbackComplete, ROLLOUT, "e1", reverted_to_closure=OLD),
        ),
        (
            "an undeclared probe",
            UndeclaredProbe,
            {**state, "probe_name": "tcp"},
            say(ProbeResult, ROLLOUT, "e1", **(result | status | {"probe_name": "tcp"})),
        ),
        (
            "a failure that did not last",
            UnsustainedFailure,
            state,
            say(Failed, ROLLOUT, "e1", sustained_duration_secs=0, **failing),
        ),
        (
            "more words than a record holds",
            LimitExceeded,
            {},
            say(ProbeResult, ROLLOUT, "e1", failure_reason="x" * 513, **(result | status)),
        ),
        (
            "a report about another host",
            WrongHost,
            {"host_id": "e2", "found": "e1"},
            partial(_in_the_name_of, fleet, "e2"),
        ),
        (
            "an order before its wave",
            WaveNotReached,
            {"state": "Active"},
            partial(_order, fleet, "e2", target_closure=TARGET, wave=1),
        ),
        (
            "an order for another closure",
            WrongClosure,
            {"expected": TARGET},
            partial(_order, fleet, "e2", target_closure="sha256:other", wave=0),
        ),
    ]


def _in_the_name_of(fleet: InProcessFleet, host_id: str) -> None:
    event = fleet.event(Converged, ROLLOUT, "e1", current_closure=TARGET)
    command = ReportEvent(rollout_id=ROLLOUT, host_id=host_id, event=event)
    fleet.control_plane.lanes.record(ROLLOUT, report_event, command).result()


def _order(fleet: InProcessFleet, host_id: str, **said: Any) -> None:
    command = ReserveDispatch(rollout_id=ROLLOUT, host_id=host_id, policy=HostPolicy(), **said)
    fleet.control_plane.lanes.record(ROLLOUT, reserve_dispatch, command).result()


def _end_early(fleet: InProcessFleet) -> None:
    """Forge the end of the rollout: the reducer itself refuses it."""
    forged = Slice(
        name="forge-terminal",
        command=RolloutTerminal,
        writes=(RolloutTerminal,),
        rows=lambda command: (),
        decide=lambda rows, command, now: (command,),
    )
    fleet.execute(forged, RolloutTerminal(rollout_id=ROLLOUT, at=fleet.clock()))


def _edit(fleet: InProcessFleet, **policy: Any) -> None:
    (fleet_row,) = fleet.store.get(fleet_key())
    assert fleet_row is not None
    command = EditChannel(
        channel="edge",
        selector="channel=edge",
        policy=ChannelPolicy(**policy),
        operator="user_1",
        fleet_version=fleet_row.version,
    )
    fleet.execute(edit_channel, command)


def plans(fleet: InProcessFleet) -> list[Case]:
    edit = partial(partial, _edit, fleet)
    wave = WaveSpec
    return [
        (
            "percent over 100",
            MalformedPolicy,
            {"faults": ("waves[0].percent is 101; allowed is 1 to 100.",)},
            edit(waves=(wave(name="half", percent=101),)),
        ),
        (
            "percent of 0",
            MalformedPolicy,
            {"faults": ("waves[0].percent is 0; allowed is 1 to 100.",)},
            edit(waves=(wave(percent=0),)),
        ),
        (
            "percent and count",
            MalformedPolicy,
            {"faults": ("waves[0] has percent and count; use one.",)},
            edit(waves=(wave(name="both", percent=1, count=1),)),
        ),
        (
            "two waves of one name",
            MalformedPolicy,
            {"faults": ("waves[0] and waves[1] are both called a.",)},
            edit(waves=(wave(name="a"), wave(name="a"))),
        ),
        ("a selector of no sense", MalformedPolicy, {}, edit(waves=(wave(selector="a=="),))),
        (
            "an edge to nowhere",
            MalformedPolicy,
            {"faults": ("edge waits for none, which does not exist.",)},
            edit(edges=edge_after("none")),
        ),
        (
            "an edge to itself",
            MalformedPolicy,
            {"faults": ("Channel edge can't wait for itself.",)},
            edit(edges=edge_after("edge")),
        ),
        ("a ring of channels", MalformedPolicy, {}, edit(edges=edge_after("core"))),
        (
            "a ring of hosts",
            MalformedPolicy,
            {},
            edit(host_edges=(HostEdge("e1", "e2"), HostEdge("e2", "e1"))),
        ),
        (
            "an end that is none",
            IllegalTransition,
            {"state": "Active", "event": "RolloutTerminal"},
            partial(_end_early, fleet),
        ),
    ]


@pytest.mark.req("RO-3", "RO-12", "RO-11")
def test_refuses_bad_input_with_the_state_and_leaves_no_trace(fleet: InProcessFleet) -> None:
    before = rows(fleet.store), fleet.types()

    for what, error, facts, send in (*reports(fleet), *plans(fleet)):
        with pytest.raises(error) as refusal:
            send()
        assert type(refusal.value) is error, what
        assert facts.items() <= refusal.value.facts.items(), (what, refusal.value.facts)

    # A known number is not refused: the agent only missed the answer.
    known = fleet.event(ActivationFailed, ROLLOUT, "e1", exit_code=1, seq=2)
    (answer,) = fleet.control_plane.report(known)
    assert isinstance(answer, CommandOutcome)
    assert (answer.facts, answer.receipt) == ((), None)
    assert (rows(fleet.store), fleet.types()) == before

    # Refused reports took no number and affect no other report: the host resumes where it was.
    good = fleet.event(
        ProbeResult,
        ROLLOUT,
        "e1",
        probe_name="http",
        mode=ProbeMode.ENFORCE,
        status=ProbeStatus.PASS,
    )
    bad = fleet.event(Converged, ROLLOUT, "e1", current_closure="sha256:other", seq=good.seq + 1)
    last = fleet.event(Converged, ROLLOUT, "e1", current_closure=TARGET, seq=good.seq + 1)
    answers = fleet.control_plane.report(good, bad, last)
    assert [type(answer).__name__ for answer in answers] == [
        "CommandOutcome",
        "WrongClosure",
        "CommandOutcome",
    ]
    assert fleet.host(ROLLOUT, "e1").state == "Converged"


@pytest.mark.req("RO-12")
def test_refuses_to_open_a_plan_with_a_duplicate_host(fleet: InProcessFleet) -> None:
    plan = fleet.control_plane.promotions.plan("edge").plan
    twice = replace(plan.waves[1], hosts=("e1", *plan.waves[1].hosts))
    body, digest = encode_plan(replace(plan, waves=(plan.waves[0], twice)))
    assert fleet.blobs.put(body) == digest

    with pytest.raises(MalformedPlan, match="e1"):
        fleet.control_plane.fleet_reader.chart(digest)
