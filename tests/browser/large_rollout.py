"""A rollout of as many hosts as one may have: the plan is real, the orders use the lane."""

from __future__ import annotations

from tests.browser.dashboard_fleet import PEOPLE, DashboardFleet
from tidegate.control.lanes import PACK_MAX
from tidegate.control.operations.promotion_evidence import operator_authority
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.planner import Plan, PlannedWave, encode_plan, opened_waves
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.rollouts.order_slices import ReserveDispatch, reserve_dispatch
from tidegate.domain.rollouts.promotion import PromoteRelease, PromotionResult, promote_release
from tidegate.kernel import codec
from tidegate.kernel.model import Meta

SHARES = (0.01, 0.09, 0.3, 0.6)  # of the hosts, per wave


def open_large_rollout(fleet: DashboardFleet, hosts: int, *, ordered: int) -> str:
    """Open a rollout of this many hosts, some of which have their order; return its id.

    The hosts themselves are not enrolled, because a rollout only reads its plan.
    """
    fleet.publish("v1", {"run": "exec web\n"})
    fleet.channel("sea")
    waves, start = [], 0
    for number, share in enumerate(SHARES):
        names = tuple(f"ship-{n:06}" for n in range(start, start + int(hosts * share)))
        waves.append(PlannedWave(name=f"wave-{number}", hosts=names, soak_seconds=600))
        start += len(names)
    plan = Plan(
        channel="sea",
        package="default/web",
        selector="channel=sea",
        policy=ChannelPolicy(),
        waves=tuple(waves),
    )
    rollout_id = _promoted(fleet, plan)
    _order(fleet, rollout_id, plan, ordered)
    return rollout_id


def _promoted(fleet: DashboardFleet, plan: Plan) -> str:
    installation = fleet.installation
    body, digest = encode_plan(plan)
    installation.blobs.put(body)
    known = installation.reads.find(known_key("web.1"), KnownRelease)
    fleet_row = installation.reads.find(fleet_key(), Fleet)
    channel = installation.reads.find(channel_key("sea"), Channel)
    assert known is not None
    assert fleet_row is not None
    assert channel is not None
    grace = PEOPLE["approver"][0]
    command = PromoteRelease(
        channel="sea",
        release_id="web.1",
        digest=known.row.digest,
        authority=operator_authority("sea", "web.1", installation.clock()),
        command_id="a-large-promotion",
        by=grace,
        plan_digest=digest,
        waves=opened_waves(plan),
        fleet_version=fleet_row.version,
    )
    outcome = installation.execute.run(promote_release, command, meta=Meta(actor=grace))
    rollout_id = codec.decode(outcome.answer, PromotionResult).rollout_id
    assert rollout_id is not None
    return rollout_id


def _order(fleet: DashboardFleet, rollout_id: str, plan: Plan, ordered: int) -> None:
    """Order the first hosts of the plan that are in its first wave."""
    installation = fleet.installation
    target = installation.fleet_reader.tally(rollout_id).row.target_closure
    names = [(0, name) for name in plan.waves[0].hosts][:ordered]
    for start in range(0, len(names), PACK_MAX):
        reports = [
            (
                reserve_dispatch,
                ReserveDispatch(
                    rollout_id=rollout_id,
                    host_id=name,
                    target_closure=target,
                    wave=wave,
                    policy=plan.host_policy(wave),
                ),
                Meta(actor="dispatcher"),
            )
            for wave, name in names[start : start + PACK_MAX]
        ]
        for future in installation.lanes.record_all(rollout_id, reports):
            future.result(60)
    installation.nudge()
