"""One damaged rollout among healthy ones, on every engine; and hosts that were retired."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.contract.in_process_fleet import FleetStores, InProcessFleet
from tidegate.domain.channels.facts import HostEdge
from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.composition import FOLDS
from tidegate.domain.fleet.slices import RetireHost, retire_host
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import GateFault
from tidegate.domain.hosts.states import HostState
from tidegate.domain.planner import IdleEdge, encode_plan
from tidegate.domain.rollouts.states import RolloutState
from tidegate.kernel.replay import differences
from tidegate.simulate.control_plane import MemoryBlobs


class Swapped(MemoryBlobs):
    """Blobs, some of which do not return what was put."""

    def __init__(self) -> None:
        super().__init__()
        self.instead: dict[str, bytes] = {}

    def get(self, digest: str) -> bytes:
        return self.instead.get(digest) or super().get(digest)


def two_channels(fleet: InProcessFleet) -> tuple[str, str]:
    for channel in ("core", "edge"):
        fleet.create(channel)
        fleet.enroll(f"{channel}1", f"{channel}2", channel=channel)
    fleet.offer("web.1", "web.2")
    return fleet.promote("core", "web.1"), fleet.promote("edge", "web.1")


@pytest.mark.req("RO-12")
@pytest.mark.parametrize("thorough", [False, True])
def test_skips_a_rollout_whose_plan_is_malformed_and_orders_the_others(
    fleet_stores: FleetStores, thorough: bool
) -> None:
    blobs = Swapped()
    fleet = InProcessFleet(fleet_stores.open(), blobs)
    core, edge = two_channels(fleet)
    planned = fleet.control_plane.promotions.plan("core").plan
    (wave,) = planned.waves
    bad, _ = encode_plan(replace(planned, waves=(wave, replace(wave, name="again"))))
    blobs.instead[fleet.tally(core).plan_digest] = bad
    fleet.control_plane.restart()

    done = fleet.dispatch(thorough=thorough)

    detail = "core1 is 2 times in the plan, allowed is once"
    assert (done.rollouts, done.ordered) == (2, 2)
    assert done.faults == (GateFault(core, "malformed_plan", detail),)
    assert [host.host_id for host in fleet.hosts(edge)] == ["edge1", "edge2"]
    assert list(fleet.hosts(core)) == []
    said = explain(fleet.control_plane.fleet_reader.state([core], fleet.clock()), core, "core1")
    assert said.answer == f"the dispatcher leaves the rollout out, malformed_plan: {detail}"
    assert [(item.gate, item.passed) for item in said.verdicts] == [("plan-and-rows", False)]

    # Its plan is back, or a new one was made: it resumes by itself.
    blobs.instead.clear()
    fleet.control_plane.restart()
    assert fleet.dispatch(thorough=thorough).faults == ()
    assert [host.host_id for host in fleet.hosts(core)] == ["core1", "core2"]
    assert differences(fleet.store, FOLDS) == []


def retire(fleet: InProcessFleet, host_id: str) -> None:
    fleet.execute(retire_host, RetireHost(host_id=host_id, operator="user_1", reason="sold"))


@pytest.mark.req("RO-12")
def test_promotes_after_a_host_named_by_an_edge_was_retired(fleet_stores: FleetStores) -> None:
    fleet = InProcessFleet(fleet_stores.open())
    fleet.enroll("e1", "e2", "e3", channel="edge")
    edges = (HostEdge("e1", "e2"), HostEdge("e2", "e3"))
    fleet.create("edge", host_edges=edges)
    fleet.offer("web.1", "web.2")
    first = fleet.promote("edge", "web.1")
    assert fleet.dispatch(thorough=True).ordered == 1

    # In the middle of a rollout: the host leaves by an event, and nothing waits for it.
    retire(fleet, "e2")
    fleet.reach(first, "e1")
    assert fleet.dispatch(thorough=True).skipped == 1
    assert fleet.dispatch(thorough=True).ordered == 1
    fleet.reach(first, "e3")
    assert fleet.state(first) is RolloutState.TERMINAL

    # And afterwards: the edges remain in the policy and hold no host.
    second = fleet.promote("edge", "web.2")
    assert fleet.dispatch(thorough=True).ordered == 2
    assert {host.host_id: host.state for host in fleet.hosts(second)} == {
        "e1": HostState.PENDING,
        "e3": HostState.PENDING,
    }
    plan = fleet.control_plane.fleet_reader.chart(fleet.tally(second).plan_digest).plan
    assert plan.policy.host_edges == edges
    assert plan.idle_edges == tuple(
        IdleEdge(edge.before, edge.after, "e2 is retired") for edge in edges
    )
    said = explain(fleet.control_plane.fleet_reader.state([second], fleet.clock()), second, "e3")
    (verdict,) = (item for item in said.verdicts if item.gate == "host-edge")
    assert verdict.passed
    assert verdict.reason.endswith("the edge e2 → e3 has no effect, e2 is retired")
    fleet.reach(second, "e1", "e3")
    assert fleet.state(second) is RolloutState.TERMINAL
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("RO-12")
def test_ignores_an_edge_to_a_host_that_never_existed(fleet_stores: FleetStores) -> None:
    fleet = InProcessFleet(fleet_stores.open())
    fleet.enroll("e1", channel="edge")
    fleet.create("edge", host_edges=(HostEdge("e1", "e9"),))

    with pytest.raises(MalformedPolicy, match="e9 was never a host"):
        fleet.control_plane.promotions.plan("edge")


@pytest.mark.req("RO-12")
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_damaged_record_of_a_retired_late_host_stops_no_other_rollout(
    fleet_stores: FleetStores,
) -> None:
    fleet = InProcessFleet(fleet_stores.open())
    core, edge = two_channels(fleet)
    fleet.dispatch()
    fleet.reach(edge, "edge1", "edge2")
    fleet.enroll("edge3", channel="edge")
    assert fleet.dispatch(thorough=True).ordered == 1
    retire(fleet, "edge3")
    fleet_stores.sql(
        "UPDATE host_rollout_records SET data = json_set(data, '$.attempt', 'lost')"
        " WHERE id LIKE '%edge3'"
    )

    done = fleet.dispatch(thorough=True)

    assert {fault.rollout_id for fault in done.faults} == {edge}
    fleet.reach(core, "core1", "core2")
    assert fleet.state(core) is RolloutState.TERMINAL
