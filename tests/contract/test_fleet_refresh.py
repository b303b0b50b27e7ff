"""A promotion whose evidence is too old is confirmed with new evidence, and its rollout resumes."""

from __future__ import annotations

import pytest

from tests.contract.in_process_fleet import CANARY, REST, InProcessFleet
from tidegate.control.operations.promotion_planning import Promote
from tidegate.domain.channels.refusals import AlreadyPromoted, ReleaseNotPinned
from tidegate.domain.composition import FOLDS
from tidegate.domain.gates.explain import explain
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.kernel.replay import differences


def refresh(fleet: InProcessFleet, release_id: str, command_id: str = "again") -> None:
    asked = Promote(
        channel="edge", release_id=release_id, command_id=command_id, by="user_1", refresh=True
    )
    fleet.control_plane.promotions.promote(asked)


@pytest.mark.req("RO-12")
def test_new_evidence_for_the_same_release_resumes_its_rollout(fleet: InProcessFleet) -> None:
    fleet.create("edge", CANARY, REST, freshness_seconds=3_600)
    fleet.enroll("e1", "e2", channel="edge")
    fleet.offer("web.1", "web.2")
    rollout_id = fleet.promote("edge", "web.1")
    fleet.dispatch()
    fleet.reach(rollout_id, "e1")
    fleet.wait(3_601)
    assert fleet.dispatch().ordered == 0
    state = fleet.control_plane.fleet_reader.state([rollout_id], fleet.clock())
    assert "tidegate channel promote edge web.1 --refresh" in explain(state, rollout_id).answer
    with pytest.raises(AlreadyPromoted):
        fleet.promote("edge", "web.1")
    before = fleet.row(actual_key("edge"), Actual)
    at = fleet.head

    refresh(fleet, "web.1")

    assert fleet.types(at) == ["ReleaseTransitioned"]
    after = fleet.row(actual_key("edge"), Actual)
    assert (after.pinned_release_id, after.previous_release_id) == ("web.1", None)
    assert after.version == before.version + 1
    assert fleet.dispatch().ordered == 1
    fleet.reach(rollout_id, "e2")
    assert differences(fleet.store, FOLDS) == []


@pytest.mark.req("RO-12")
def test_confirms_only_the_release_that_the_channel_is_pinned_to(fleet: InProcessFleet) -> None:
    fleet.create("edge", freshness_seconds=3_600)
    fleet.offer("web.1", "web.2")
    with pytest.raises(ReleaseNotPinned):
        refresh(fleet, "web.1")
    fleet.promote("edge", "web.1")
    with pytest.raises(ReleaseNotPinned, match=r"edge is pinned to web\.1"):
        refresh(fleet, "web.2")
