"""What a channel does by itself, on every engine: it promotes what succeeded on the channel before
it, and rolls back when hosts fail. Each rule that holds it back has a test.

Promotion, dispatcher, queue and lanes work together; ``act`` does the worker's part.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.in_process_fleet import CANARY, REST, SOAK, InProcessFleet
from tests.domain.registry import OfferRelease, digest_of, offer_release
from tidegate.control.operations.promotion_planning import RollBackChannel
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.channels.facts import (
    ChannelEdge,
    ChannelPolicy,
    ChannelProtection,
    EdgeRequires,
    HostEdge,
    WaveSpec,
)
from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.channels.slices import (
    EditChannel,
    HoldChannel,
    ProtectChannel,
    StartFreeze,
    UnholdChannel,
    edit_channel,
    hold_channel,
    protect_channel,
    start_freeze,
    unhold_channel,
)
from tidegate.domain.fleet.rows import fleet_key
from tidegate.domain.fleet.slices import LabelHost, SetBudget, label_host, set_budget
from tidegate.domain.gates.automation import LEADER, Automation, LeadAutomation, lead_automation
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.planner import BUDGETS_OF_HOST_MAX
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.requests.rows import REQUESTS, ChannelRequest, request_key
from tidegate.domain.requests.slices import RejectRequest, reject_request
from tidegate.domain.requests.states import RequestState
from tidegate.domain.rollouts.slices import AbortRollout, abort_rollout
from tidegate.domain.rollouts.states import Clearance, Outcome, PolicyAction, RolloutState
from tidegate.errors import LeaseLost
from tidegate.kernel import codec
from tidegate.kernel.leases import Leases, leader_key
from tidegate.kernel.model import Event
from tidegate.kernel.slices import Alongside

pytestmark = pytest.mark.in_turn

DEV, PROD = "dev", "prod"
HOSTS = {DEV: "d1", PROD: "p1"}
AFTER_DEV = (ChannelEdge(DEV),)
WORD = "the next promotion by a person"


def pipeline(fleet: InProcessFleet, *edges: ChannelEdge, **policy: Any) -> None:
    """dev, then prod, which promotes by itself what succeeded on dev. Each has one host."""
    fleet.create(DEV)
    fleet.create(PROD, edges=edges or AFTER_DEV, auto_promote=True, **policy)
    for channel, host_id in HOSTS.items():
        fleet.enroll(host_id, channel=channel)
    fleet.offer(*(f"web.{number}" for number in range(1, 6)))


def finish(fleet: InProcessFleet, rollout_id: str) -> str:
    fleet.dispatch()
    fleet.reach(rollout_id, HOSTS[fleet.rollout(rollout_id).channel])
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED
    return rollout_id


def good(fleet: InProcessFleet, channel: str, release: str) -> str:
    return finish(fleet, fleet.promote(channel, release))


def break_hosts(fleet: InProcessFleet, rollout_id: str) -> str:
    """Let a host fail and roll back."""
    host_id = HOSTS[fleet.rollout(rollout_id).channel]
    fleet.dispatch()
    fleet.fail(rollout_id, host_id)
    if fleet.tally(rollout_id).on_failure is OnFailure.ROLLBACK:
        fleet.revert(rollout_id, host_id)
    return rollout_id


def roll_back(fleet: InProcessFleet, channel: str) -> None:
    fleet.asked += 1
    asked = RollBackChannel(
        channel=channel, command_id=f"back-{fleet.asked}", by="user_1", reason="it leaks"
    )
    fleet.control_plane.promotions.rollback(asked)


def act(fleet: InProcessFleet) -> list[str]:
    return fleet.control_plane.act()


def automation_of(
    fleet: InProcessFleet, channel: str = PROD, action: str = "auto_promote"
) -> Automation:
    found = fleet.control_plane.automation.show(fleet.channel(channel))
    (automation,) = (item for item in found if item.action == action)
    return automation


def edit(fleet: InProcessFleet, channel: str, by: str = "user_1", **policy: Any) -> None:
    found = fleet.channel(channel)
    members = {name: getattr(found.policy, name) for name in found.policy.__struct_fields__}
    command = EditChannel(
        channel=channel,
        selector=found.selector,
        policy=ChannelPolicy(**(members | policy)),
        operator=by,
        fleet_version=fleet.record_of(fleet_key()).version,
    )
    fleet.execute(edit_channel, command)


def newest(fleet: InProcessFleet, kind: str) -> Event:
    return [event for event in fleet.log() if event.type == kind][-1]


# ── automatic promotion ───────────────────────────────────────────────────────────────────────────


def test_promotes_a_release_that_succeeded_before_and_names_the_rule(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    opened = fleet.promote(DEV, "web.1")
    before = act(fleet)
    finish(fleet, opened)

    assert automation_of(fleet).release_id == "web.1"
    assert (before, act(fleet), act(fleet)) == ([], ["prod@web.1"], [])

    rollout = fleet.rollout("prod@web.1")
    assert (rollout.automatic, rollout.opened_by) == (PolicyAction.AUTO_PROMOTE, "user_1")
    assert rollout.opened_reason == "auto_promote: web.1 succeeded on dev"
    assert newest(fleet, "RolloutOpened").meta.actor == "worker"
    pin = fleet.row(actual_key(PROD), Actual)
    assert pin.provenance.kind == "channel_success"
    assert pin.provenance.ref == "rollout://dev@web.1"
    assert pin.provenance.evidence[0].digest == digest_of("web.1")
    assert pin.confidence.reasons == ("succeeded_on_required_channels",)
    finish(fleet, "prod@web.1")


def test_promotes_the_highest_of_several_and_nothing_below_the_pin(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    for release in ("web.1", "web.3", "web.2"):
        good(fleet, DEV, release)

    assert act(fleet) == ["prod@web.3"]
    finish(fleet, "prod@web.3")
    assert act(fleet) == []
    assert automation_of(fleet).sentence == (
        "Auto-promotion on prod waits: no release above web.3 succeeded before it"
    )


def test_every_edge_must_be_open(fleet: InProcessFleet) -> None:
    fleet.create("qa", selector="channel=qa")
    fleet.enroll("q1", channel="qa")
    pipeline(fleet, ChannelEdge(DEV), ChannelEdge("qa"))
    good(fleet, DEV, "web.1")
    assert act(fleet) == []
    assert "web.1 was never rolled out on qa" in automation_of(fleet).sentence

    opened = fleet.promote("qa", "web.1")
    fleet.dispatch()
    fleet.reach(opened, "q1")

    assert act(fleet) == ["prod@web.1"]
    assert fleet.rollout("prod@web.1").opened_reason.endswith("succeeded on dev and qa")


def test_waits_for_the_soak_of_the_edge_and_promotes_a_release_that_soaked_before(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet, ChannelEdge(DEV, soak_seconds=600))
    good(fleet, DEV, "web.1")
    assert act(fleet) == []
    until = automation_of(fleet).until
    assert until is not None
    assert until > fleet.clock()
    fleet.wait(600)
    good(fleet, DEV, "web.2")

    assert act(fleet) == ["prod@web.1"], "web.2 has not soaked"
    finish(fleet, "prod@web.1")
    fleet.wait(600)
    assert act(fleet) == ["prod@web.2"]


def test_never_supersedes_an_open_rollout(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    act(fleet)
    good(fleet, DEV, "web.2")

    assert act(fleet) == []
    assert automation_of(fleet).sentence == "Auto-promotion on prod waits until prod@web.1 ends"
    finish(fleet, "prod@web.1")
    assert act(fleet) == ["prod@web.2"]


def _failed(fleet: InProcessFleet) -> str:
    fleet.clear(break_hosts(fleet, "prod@web.1"), Clearance.ABANDON)
    return "prod@web.1 was rolled back"


def _stopped(fleet: InProcessFleet) -> str:
    break_hosts(fleet, "prod@web.1")
    return "prod@web.1 stopped"


def _aborted(fleet: InProcessFleet) -> str:
    command = AbortRollout(rollout_id="prod@web.1", operator="user_1", reason="enough")
    fleet.execute(abort_rollout, command)
    return "prod@web.1 was aborted"


@pytest.mark.parametrize(
    "ended", [_failed, _stopped, _aborted], ids=["failed", "stopped", "aborted"]
)
def test_stays_off_after_a_failed_rollout_until_a_person_promotes(
    fleet: InProcessFleet, ended: Any
) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    act(fleet)
    why = ended(fleet)
    good(fleet, DEV, "web.2")

    assert act(fleet) == []
    sentence = f"Auto-promotion on prod is off since {why}; it starts again with {WORD}"
    assert automation_of(fleet).sentence == sentence
    state = fleet.control_plane.fleet_reader.state(["prod@web.1"], fleet.clock())
    waits = {wait.code: wait for wait in explain(state, "prod@web.1").waits}
    assert waits["auto-promote"].sentence == sentence
    assert waits["auto-promote"].remedies

    good(fleet, PROD, "web.2")
    good(fleet, DEV, "web.3")
    assert act(fleet) == ["prod@web.3"]


def _relabel(fleet: InProcessFleet, host_id: str, **labels: str) -> None:
    fleet.execute(label_host, LabelHost(host_id=host_id, labels=labels, operator="user_1"))


def test_waits_while_host_edges_contradict_the_waves_and_reports_why(fleet: InProcessFleet) -> None:
    """A person moved the first host into a later wave. The channel waits; other channels are not
    affected.
    """
    early = WaveSpec(name="early", selector="tier=early", soak_seconds=SOAK)
    pipeline(fleet)
    _relabel(fleet, "p1", channel=PROD, tier="early")
    fleet.enroll("p2", channel=PROD, tier="early")
    edit(fleet, PROD, waves=(early, REST), host_edges=(HostEdge("p1", "p2"),))
    _relabel(fleet, "p1", channel=PROD)
    good(fleet, DEV, "web.1")

    assert act(fleet) == []
    assert automation_of(fleet).release_id is None
    assert automation_of(fleet).sentence.startswith("Auto-promotion on prod waits: ")
    assert "p2, in wave 1, waits for p1, in wave 2" in automation_of(fleet).sentence

    _relabel(fleet, "p1", channel=PROD, tier="early")
    assert act(fleet) == ["prod@web.1"]


def test_waits_while_a_host_has_too_many_budgets_and_reports_why(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    for number in range(BUDGETS_OF_HOST_MAX + 1):
        fleet.execute(
            set_budget,
            SetBudget(
                budget_id=f"b{number}",
                selector="channel=prod",
                operator="user_1",
                max_in_flight=1,
            ),
        )
    good(fleet, DEV, "web.1")

    assert act(fleet) == []
    assert "budgets of one host" in automation_of(fleet).sentence


def test_stays_off_after_a_rollback_even_a_successful_one(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    for release in ("web.1", "web.2"):
        good(fleet, DEV, release)
        finish(fleet, act(fleet)[0])
    roll_back(fleet, PROD)
    finish(fleet, "prod@web.1~2")
    good(fleet, DEV, "web.3")

    assert act(fleet) == []
    assert "is off since prod was rolled back from web.2" in automation_of(fleet).sentence


def test_never_promotes_a_release_that_the_channel_rolled_back_or_quarantined(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    finish(fleet, act(fleet)[0])
    good(fleet, DEV, "web.3")
    broken = break_hosts(fleet, act(fleet)[0])
    fleet.clear(broken, Clearance.ABANDON)
    edit(fleet, PROD, edges=(ChannelEdge(DEV, EdgeRequires.IDLE),), auto_promote=False)
    good(fleet, PROD, "web.2")
    edit(fleet, PROD, edges=AFTER_DEV, auto_promote=True)

    assert act(fleet) == []
    assert (
        automation_of(fleet).sentence
        == "Auto-promotion on prod waits: web.3 is quarantined on prod"
    )
    fleet.lift(broken)
    assert act(fleet) == []
    assert "web.3 failed on prod before" in automation_of(fleet).sentence


def test_never_promotes_a_withdrawn_release(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    for number in (5, 1, 2, 3, 4):  # the newest successful releases there cannot be withdrawn
        good(fleet, DEV, f"web.{number}")
    fleet.execute(offer_release, OfferRelease("web.5", digest_of("web.5"), "Terminating"))

    assert act(fleet) == ["prod@web.4"]
    finish(fleet, "prod@web.4")
    assert automation_of(fleet).sentence == "Auto-promotion on prod waits: web.5 was withdrawn"


def test_a_hold_stops_promotion_and_a_freeze_stops_only_orders(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    fleet.execute(hold_channel, HoldChannel(channel=PROD, operator="user_1", reason="audit"))
    assert act(fleet) == []
    assert automation_of(fleet).sentence.endswith("prod is held by user_1: audit")
    fleet.execute(unhold_channel, UnholdChannel(channel=PROD, operator="user_1", reason="done"))
    fleet.execute(start_freeze, StartFreeze(freeze_id="xmas", operator="user_1", reason="snow"))

    assert act(fleet) == ["prod@web.1"]
    assert fleet.dispatch().ordered == 0


def test_a_protected_channel_gets_a_request_instead_and_only_one(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    protection = ChannelProtection()
    fleet.execute(
        protect_channel,
        ProtectChannel(channel=PROD, operator="user_1", reason="prod", protection=protection),
    )
    good(fleet, DEV, "web.1")

    assert (act(fleet), act(fleet)) == ([], [])
    (made,) = fleet.store.range(REQUESTS.name, limit=10)
    request = codec.decode(made.data, ChannelRequest)
    assert (request.kind, request.by, request.state) == (
        *("channel.promote", "user_1", RequestState.WAITING),
    )
    assert request.command["release_id"] == "web.1"
    assert (
        automation_of(fleet).sentence
        == f"Auto-promotion on prod waits for request {request.request_id}"
    )

    fleet.execute(
        reject_request,
        RejectRequest(request_id=request.request_id, channel=PROD, by="user_2", reason="not today"),
    )
    assert act(fleet) == []
    assert len(fleet.store.range(REQUESTS.name, limit=10)) == 1, "it does not ask again"
    assert f"request {request.request_id} for web.1 is rejected" in automation_of(fleet).sentence
    assert fleet.row(request_key(request.request_id), ChannelRequest).ended_by == "user_2"


def test_acts_only_while_the_person_who_turned_it_on_has_permission(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    may = Principal("user_1", "policy", (Grant(Role.RELEASE_MANAGER),))
    fleet.control_plane.automation._principals = lambda id: Principal(id, "policy", ())

    assert act(fleet) == []
    assert "who switched it on may not do this any more" in automation_of(fleet).sentence
    fleet.control_plane.automation._principals = lambda id: may
    assert act(fleet) == ["prod@web.1"]


def test_remembers_who_turned_it_on_until_it_is_turned_off(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    edit(fleet, PROD, by="user_2", ack_seconds=100)
    assert fleet.channel(PROD).auto_promote_by == "user_1"
    edit(fleet, PROD, by="user_2", auto_promote=False)
    assert fleet.channel(PROD).auto_promote_by is None
    edit(fleet, PROD, by="user_2", auto_promote=True)
    assert fleet.channel(PROD).auto_promote_by == "user_2"


def test_requires_an_edge_that_requires_success(fleet: InProcessFleet) -> None:
    fleet.create(DEV)
    for edges in ((), (ChannelEdge(DEV, EdgeRequires.IDLE),)):
        with pytest.raises(MalformedPolicy, match="auto_promote needs an edge that asks for"):
            fleet.create(PROD, edges=edges, auto_promote=True)


def test_does_nothing_if_the_channel_changed_between_the_read_and_the_commit(
    fleet: InProcessFleet,
) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    (seen,) = (
        item for item in fleet.control_plane.fleet_reader.channels() if item.row.channel == PROD
    )
    edit(fleet, PROD, auto_promote=False)

    assert fleet.control_plane.automation.act(seen) is None
    assert fleet.channel(PROD).newest_rollout_id is None


def test_a_worker_that_no_longer_leads_promotes_nothing(fleet: InProcessFleet) -> None:
    pipeline(fleet)
    good(fleet, DEV, "web.1")
    (seen,) = (
        item for item in fleet.control_plane.fleet_reader.channels() if item.row.channel == PROD
    )
    leases, id = Leases(fleet.store), leader_key(LEADER).id
    leases.acquire(id, "the other", now=fleet.clock(), seconds=30)

    with pytest.raises(LeaseLost):
        fleet.control_plane.automation.act(seen, Alongside(lead_automation, LeadAutomation("we")))
    assert fleet.channel(PROD).newest_rollout_id is None
    fleet.wait(31)
    leases.acquire(id, "we", now=fleet.clock(), seconds=30)
    lead = Alongside(lead_automation, LeadAutomation("we"))
    assert fleet.control_plane.automation.act(seen, lead) == "prod@web.1"


# ── automatic rollback ────────────────────────────────────────────────────────────────────────────


def returning(fleet: InProcessFleet, **policy: Any) -> None:
    """One channel that rolls back by itself, with a release that succeeded."""
    fleet.create(PROD, CANARY, REST, **({"auto_rollback": True} | policy))
    fleet.enroll("p1", "p2", "p3", channel=PROD)
    fleet.offer(*(f"web.{number}" for number in range(1, 6)))
    succeed(fleet, fleet.promote(PROD, "web.1"))


def succeed(fleet: InProcessFleet, rollout_id: str) -> None:
    for hosts in (("p1",), ("p2", "p3")):
        fleet.dispatch()
        fleet.reach(rollout_id, *hosts)
    assert fleet.tally(rollout_id).outcome is Outcome.SUCCEEDED


def test_rolls_back_all_hosts_in_one_wave_when_a_rollout_stops(
    fleet: InProcessFleet,
) -> None:
    returning(fleet)
    opened = fleet.promote(PROD, "web.2")
    fleet.dispatch()
    fleet.fail(opened, "p1")
    assert act(fleet) == [], "it is not Reverted yet: its host is still rolling back"
    state = fleet.control_plane.fleet_reader.state([opened], fleet.clock())
    assert "Auto-rollback on prod goes back by itself" in explain(state, opened).waits[0].sentence
    fleet.revert(opened, "p1")

    assert automation_of(fleet, action="auto_rollback").release_id == "web.1"
    assert (act(fleet), act(fleet)) == (["prod@web.1~2"], [])
    tally, rollout = fleet.tally("prod@web.1~2"), fleet.rollout("prod@web.1~2")
    assert (rollout.automatic, rollout.opened_by) == (PolicyAction.AUTO_ROLLBACK, "user_1")
    assert rollout.opened_reason == "auto_rollback: p1 failed in prod@web.2"
    assert (tally.rollback_of, tally.on_failure) == ("web.2", OnFailure.HALT)
    assert [(wave.name, wave.hosts, wave.soak_seconds) for wave in tally.waves] == [
        ("rest", 3, SOAK)
    ]
    assert not tally.auto_rollback
    assert fleet.tally(opened).outcome is Outcome.ROLLED_BACK
    assert newest(fleet, "RolloutOpened").meta.actor == "worker"
    (left,) = (rung for rung in fleet.channel(PROD).ladder if rung.release_id == "web.1")
    assert left.left_at is None
    assert fleet.dispatch().ordered == 3


def test_rolls_back_from_failed_as_well(fleet: InProcessFleet) -> None:
    returning(fleet, on_failure=OnFailure.HALT)
    opened = fleet.promote(PROD, "web.2")
    fleet.dispatch()
    fleet.fail(opened, "p1")
    assert fleet.state(opened) is RolloutState.FAILED

    assert act(fleet) == ["prod@web.1~2"]


def stop(fleet: InProcessFleet, rollout_id: str, host_id: str = "p1") -> None:
    fleet.dispatch()
    fleet.fail(rollout_id, host_id)
    if fleet.tally(rollout_id).on_failure is OnFailure.ROLLBACK:
        fleet.revert(rollout_id, host_id)


def test_never_rolls_back_a_rollback(fleet: InProcessFleet) -> None:
    returning(fleet)
    succeed(fleet, fleet.promote(PROD, "web.2"))
    stop(fleet, fleet.promote(PROD, "web.3"))
    assert act(fleet) == ["prod@web.2~2"]
    stop(fleet, "prod@web.2~2")

    assert act(fleet) == []
    assert automation_of(fleet, action="auto_rollback").sentence == (
        "Auto-rollback on prod does not act on a rollback"
    )


def test_rolls_back_once_per_release(fleet: InProcessFleet) -> None:
    returning(fleet)
    first = fleet.promote(PROD, "web.2")
    stop(fleet, first)
    act(fleet)
    fleet.dispatch()
    fleet.reach("prod@web.1~2", "p1", "p2", "p3")
    fleet.lift(first)
    again = fleet.promote(PROD, "web.2")
    stop(fleet, again)

    assert act(fleet) == []
    assert "web.2 was rolled back by itself before" in (
        automation_of(fleet, action="auto_rollback").sentence
    )
    fleet.clear(again, Clearance.ABANDON)
    stop(fleet, fleet.promote(PROD, "web.3"))
    assert act(fleet) == ["prod@web.1~3"], "another release is rolled back by itself"


def test_turning_it_on_affects_later_rollouts_and_turning_it_off_takes_effect_at_once(
    fleet: InProcessFleet,
) -> None:
    returning(fleet, auto_rollback=False)
    early = fleet.promote(PROD, "web.2")
    edit(fleet, PROD, auto_rollback=True)
    stop(fleet, early)
    assert act(fleet) == []

    fleet.clear(early, Clearance.ABANDON)
    late = fleet.promote(PROD, "web.3")
    edit(fleet, PROD, auto_rollback=False)
    stop(fleet, late)
    assert act(fleet) == []
    edit(fleet, PROD, auto_rollback=True)
    assert act(fleet) == ["prod@web.1~2"]


def test_skips_quarantined_releases_and_reports_if_none_remains(fleet: InProcessFleet) -> None:
    fleet.create(PROD, auto_rollback=True)
    fleet.enroll("p1", channel=PROD)
    fleet.offer("web.1", "web.2")
    opened = fleet.promote(PROD, "web.1")
    stop(fleet, opened)

    assert act(fleet) == []
    assert automation_of(fleet, action="auto_rollback").sentence == (
        "Auto-rollback on prod finds nothing to go back to"
    )


def test_a_freeze_holds_its_orders(fleet: InProcessFleet) -> None:
    returning(fleet)
    stop(fleet, fleet.promote(PROD, "web.2"))
    fleet.execute(start_freeze, StartFreeze(freeze_id="xmas", operator="user_1", reason="snow"))

    assert act(fleet) == ["prod@web.1~2"]
    assert fleet.dispatch().ordered == 0
    assert fleet.tally("prod@web.1~2").overrides == ()


def test_does_not_roll_back_what_a_person_handled_meanwhile(fleet: InProcessFleet) -> None:
    returning(fleet)
    opened = fleet.promote(PROD, "web.2")
    stop(fleet, opened)
    (seen,) = fleet.control_plane.fleet_reader.channels()
    fleet.clear(opened, Clearance.RESUME)

    assert fleet.control_plane.automation.act(seen) is None
    assert fleet.channel(PROD).newest_rollout_id == opened


def test_an_edge_reports_that_the_previous_channel_rolled_back_by_itself(
    fleet: InProcessFleet,
) -> None:
    returning(fleet)
    fleet.create("next", edges=(ChannelEdge(PROD),))
    fleet.enroll("n1", channel="next")
    stop(fleet, fleet.promote(PROD, "web.2"))
    act(fleet)
    waiting = fleet.promote("next", "web.2")

    state = fleet.control_plane.fleet_reader.state([waiting], fleet.clock())
    assert "auto_rollback rolled prod back from web.2" in explain(state, waiting).answer
