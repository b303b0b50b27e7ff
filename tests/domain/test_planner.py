"""The plan: shares and counts, what is dropped and left out, which policies cannot be carried out,
and that neither time nor order of arrival affects it.
"""

from __future__ import annotations

from dataclasses import replace as altered
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.gate_inputs import (
    ROLLOUT,
    channel,
    fleet,
    fleet_state,
    host,
    standing,
    with_rollout,
)
from tidegate.domain.channels.facts import (
    ChannelEdge,
    ChannelPolicy,
    EdgeRequires,
    HostEdge,
    WaveSpec,
)
from tidegate.domain.channels.policy import HOST_EDGES_MAX, WAVES_MAX, cycle
from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.fleet.budgets import slots
from tidegate.domain.fleet.rows import Budget, Host
from tidegate.domain.gates.dispatch_pass import survey
from tidegate.domain.gates.explain import explain
from tidegate.domain.hosts.facts import BudgetSlot
from tidegate.domain.hosts.states import HostState, OnFailure
from tidegate.domain.planner import (
    BUDGETS_OF_HOST_MAX,
    HOSTS_MAX,
    IdleEdge,
    MalformedPlan,
    PlannedBudget,
    PlannedWave,
    decode_plan,
    encode_plan,
    failures_max,
    index_by_host,
    opened_waves,
    plan,
    wave_size,
)
from tidegate.domain.rollouts.facts import OpenedWave
from tidegate.errors import InvalidInput, LimitExceeded


def sizes(*waves: WaveSpec, hosts: int = 10) -> list[int]:
    return [len(wave.hosts) for wave in plan(channel(*waves), fleet(hosts), ()).waves]


# ── waves ─────────────────────────────────────────────────────────────────────────────────────────


def test_plans_all_hosts_at_once_if_the_policy_names_no_wave() -> None:
    made = plan(channel(), fleet(3), ())

    assert made.waves == (PlannedWave(name="rest", hosts=("web-00", "web-01", "web-02")),)
    assert made.unstaged == ()


def test_puts_a_host_into_the_first_wave_that_names_it() -> None:
    hosts = [host("a", ring="0"), host("b", ring="1"), host("c"), host("d", ring="0")]

    made = plan(
        channel(WaveSpec(selector="ring=0"), WaveSpec(selector="ring"), WaveSpec(name="all")),
        hosts,
        (),
    )

    assert [(wave.name, wave.hosts) for wave in made.waves] == [
        ("wave-1", ("a", "d")),
        ("wave-2", ("b",)),
        ("all", ("c",)),
    ]


@pytest.mark.parametrize(
    ("percent", "total", "size"),
    [(1, 1, 1), (5, 10, 1), (10, 10, 1), (19, 10, 1), (20, 10, 2), (50, 3, 1), (100, 7, 7)],
)
def test_rounds_a_share_down_but_to_at_least_one_host(percent: int, total: int, size: int) -> None:
    assert wave_size(WaveSpec(percent=percent), total) == size


def test_takes_shares_of_the_whole_channel_not_of_the_remaining_hosts() -> None:
    ten, half, all_ = (WaveSpec(percent=percent) for percent in (10, 50, 100))

    assert sizes(ten, half, all_) == [1, 5, 4]


def test_takes_counts_until_no_host_is_left() -> None:
    assert sizes(WaveSpec(count=4), WaveSpec(count=4), WaveSpec(count=4), WaveSpec()) == [4, 4, 2]


def test_takes_a_share_of_the_channel_from_the_hosts_of_a_selector() -> None:
    hosts = [*fleet(8), host("eu-1", zone="eu"), host("eu-2", zone="eu")]

    made = plan(channel(WaveSpec(selector="zone=eu", percent=10), WaveSpec()), hosts, ())

    assert made.waves[0].hosts == ("eu-1",)


def test_drops_waves_without_hosts_and_numbers_the_rest_densely() -> None:
    made = plan(
        channel(
            WaveSpec(name="none", selector="zone=x"),
            WaveSpec(name="first", count=1, soak_seconds=60),
            WaveSpec(name="none either", selector="zone=y"),
            WaveSpec(name="second"),
        ),
        fleet(3),
        (),
    )

    assert [wave.name for wave in made.waves] == ["first", "second"]
    assert index_by_host(made).waves == {"web-00": 0, "web-01": 1, "web-02": 1}
    assert made.host_policy(0).soak_seconds == 60
    assert opened_waves(made) == (
        OpenedWave(name="first", hosts=1, soak_seconds=60),
        OpenedWave(name="second", hosts=2),
    )


def test_plans_nothing_for_a_channel_without_hosts() -> None:
    made = plan(channel(WaveSpec(percent=10), selector="zone=x"), fleet(3), ())

    assert (made.waves, made.unstaged, made.hosts) == ((), (), 0)


def test_lists_the_hosts_in_no_wave() -> None:
    made = plan(channel(WaveSpec(count=1)), fleet(3), ())

    assert made.unstaged == ("web-01", "web-02")
    assert made.hosts == 1


@pytest.mark.parametrize("status", ["revoked", "retired"])
def test_plans_for_enrolled_hosts_only(status: str) -> None:
    made = plan(channel(), [host("here"), host("gone", status)], ())

    assert made.waves[0].hosts == ("here",)


@pytest.mark.parametrize(
    ("count", "percent", "allowed"),
    [(None, None, 0), (2, None, 2), (None, 10, 1), (None, 9, 0), (3, 10, 1), (1, 50, 1)],
)
def test_tolerates_failures_by_count_or_share_whichever_is_smaller(
    count: int | None, percent: int | None, allowed: int
) -> None:
    assert failures_max(WaveSpec(failures_max=count, failures_max_percent=percent), 10) == allowed


def test_freezes_the_policy_of_hosts() -> None:
    made = plan(
        channel(WaveSpec(soak_seconds=5), on_failure=OnFailure.HALT, ack_seconds=7), fleet(1), ()
    )

    policy = made.host_policy(0)
    assert (policy.soak_seconds, policy.on_failure, policy.ack_seconds) == (5, OnFailure.HALT, 7)
    assert made.host_policy(9).soak_seconds == 0


# ── what cannot be carried out ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"waves": (WaveSpec(percent=0),)}, r"waves\[0\].percent is 0; allowed is 1 to 100"),
        ({"waves": (WaveSpec(percent=101),)}, "is 101"),
        ({"waves": (WaveSpec(count=0),)}, r"waves\[0\].count is 0; allowed is 1 or more"),
        ({"waves": (WaveSpec(percent=5, count=5),)}, "has percent and count; use one"),
        ({"waves": (WaveSpec(failures_max=-1),)}, r"waves\[0\].failures_max is -1"),
        ({"waves": (WaveSpec(failures_max_percent=101),)}, "failures_max_percent"),
        ({"waves": (WaveSpec(soak_seconds=-1),)}, "soak_seconds"),
        ({"waves": (WaveSpec(name="a"), WaveSpec(name="a"))}, "are both called a"),
        ({"waves": (WaveSpec(), WaveSpec(name="wave-1"))}, "are both called wave-1"),
        ({"waves": (WaveSpec(name="a" * 64),)}, "allowed are at most 63 printable"),
        ({"ack_seconds": -1}, "ack_seconds is -1"),
        ({"offline_grace_seconds": -1}, "offline_grace_seconds"),
        ({"edges": (ChannelEdge("stable"),)}, "can't wait for itself"),
        ({"edges": (ChannelEdge("dev"), ChannelEdge("dev"))}, "names dev a second time"),
        ({"edges": (ChannelEdge("dev", soak_seconds=-1),)}, "soak_seconds is -1; allowed is 0"),
        (
            {"edges": (ChannelEdge("dev", EdgeRequires.IDLE, soak_seconds=60),)},
            "leave soak_seconds out",
        ),
        ({"host_edges": (HostEdge("web-00", "web-00"),)}, "wait for each other: web-00 → web-00"),
        (
            {"host_edges": (HostEdge("web-00", "web-01"), HostEdge("web-01", "web-00"))},
            "wait for each other",
        ),
        ({"host_edges": (HostEdge("web-00", "web-99"),)}, "web-99 was never a host"),
        ({"host_edges": (HostEdge("web-99", "web-00"),)}, "web-99 was never a host"),
        (
            {
                "waves": (WaveSpec(count=1), WaveSpec()),
                "host_edges": (HostEdge("web-02", "web-00"),),
            },
            "web-00, in wave 1, waits for web-02, in wave 2",
        ),
        (
            {"waves": (WaveSpec(count=1),), "host_edges": (HostEdge("web-02", "web-00"),)},
            "waits for web-02, in no wave",
        ),
    ],
)
def test_refuses_a_policy_that_cannot_be_carried_out(policy: dict[str, Any], said: str) -> None:
    made = replace(channel(), policy=ChannelPolicy(**policy))

    with pytest.raises(MalformedPolicy, match=said):
        plan(made, fleet(3), ())


def test_refuses_a_wave_with_an_empty_selector() -> None:
    with pytest.raises(MalformedPolicy, match=r"waves\[0\].selector: "):
        plan(channel(WaveSpec(selector="zone in")), fleet(1), ())


def test_refuses_an_edge_to_what_cannot_be_a_host() -> None:
    with pytest.raises(MalformedPolicy, match=r"host_edges\[0\].before: "):
        plan(channel(host_edges=(HostEdge("A B", "web-00"),)), fleet(1), ())


def test_a_host_in_no_wave_may_wait_for_any_host() -> None:
    made = plan(
        channel(WaveSpec(count=1), host_edges=(HostEdge("web-00", "web-02"),)), fleet(3), ()
    )

    assert index_by_host(made).before == {}


@pytest.mark.parametrize("named", [("web-02", "web-01"), ("web-01", "web-02")])
@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        (host("web-02", "retired"), "web-02 is retired"),
        (host("web-02", "revoked"), "web-02 is revoked"),
        (host("web-02", app="db"), "web-02 is no host of the channel any more"),
    ],
)
def test_ignores_an_edge_with_a_removed_host(
    gone: Host, reason: str, named: tuple[str, str]
) -> None:
    edges = (HostEdge("web-00", "web-01"), HostEdge(*named))
    where = channel(selector="!app", host_edges=edges)

    made = plan(where, [*fleet(2), gone], ())

    assert made.idle_edges == (IdleEdge(*named, reason),)
    assert index_by_host(made).before == {"web-01": ("web-00",)}
    assert decode_plan(encode_plan(made)[0]) == made


def test_explain_names_edges_without_effect() -> None:
    edges = (HostEdge("web-02", "web-01"), HostEdge("web-03", "web-01"))
    gone = [host("web-02", "retired"), host("web-03", "retired")]
    state = fleet_state(channel(host_edges=edges), [*fleet(2), *gone])

    asked = {name: explain(state, ROLLOUT, name) for name in ("web-00", "web-01", None)}

    said = {
        name: next(verdict for verdict in found.verdicts if verdict.gate == "host-edge")
        for name, found in asked.items()
    }
    idle = "the edge web-02 → web-01 has no effect, web-02 is retired; so have 1 more"
    assert {verdict.passed for verdict in said.values()} == {True}
    assert said["web-00"].reason == "no host before it is under way"
    assert said["web-01"].reason == f"no host before it is under way; {idle}"
    assert said[None].reason == f"holds no host; {idle}"
    assert asked["web-01"].answer.startswith("nothing holds the host back")


@pytest.mark.parametrize(
    "policy",
    [
        {"waves": tuple(WaveSpec() for _ in range(WAVES_MAX + 1))},
        {"host_edges": (HostEdge("web-00", "web-01"),) * (HOST_EDGES_MAX + 1)},
        {"edges": tuple(ChannelEdge(f"c{number}") for number in range(17))},
    ],
    ids=["waves", "host edges", "channel edges"],
)
def test_limits_the_size_of_a_policy(policy: dict[str, Any]) -> None:
    with pytest.raises(MalformedPolicy, match="entries; allowed are"):
        plan(replace(channel(), policy=ChannelPolicy(**policy)), fleet(2), ())


def test_limits_the_hosts_of_a_plan() -> None:
    hosts = [host("one")] * (HOSTS_MAX + 1)

    with pytest.raises(LimitExceeded, match="hosts of a plan"):
        plan(channel(), hosts, ())


@pytest.mark.parametrize(
    ("edges", "ring"),
    [
        ({}, False),
        ({"a": ["b"], "b": ["c"], "a2": ["c"]}, False),
        ({"a": ["a"]}, True),
        ({"a": ["b"], "b": ["c"], "c": ["a"], "x": ["a"], "c2": ["x"]}, True),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, True),
    ],
)
def test_finds_a_cycle_and_names_it(edges: dict[str, list[str]], ring: bool) -> None:
    found = cycle(edges)

    assert bool(found) is ring
    assert found[:1] == found[-1:]
    assert all(end in edges[start] for start, end in pairwise(found))


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("number", "share", "members", "allowed"),
    [
        (None, None, 10, None),
        (3, None, 10, 3),
        (None, 25, 10, 2),
        (None, 5, 10, 1),
        (None, 100, 10, 10),
        (None, 50, 0, 1),
        (3, 50, 10, 3),
        (3, 20, 10, 2),
    ],
)
def test_counts_slots_by_number_or_share_whichever_is_smaller(
    number: int | None, share: int | None, members: int, allowed: int | None
) -> None:
    budget = Budget(budget_id="b", max_in_flight=number, max_in_flight_pct=share)

    assert slots(budget, members) == allowed


def test_freezes_the_budgets_that_limit_some_host_of_the_plan() -> None:
    hosts = [host("a", zone="1"), host("b", zone="2"), host("db", zone="1", role="db")]
    budgets = [
        Budget(budget_id="zone", selector="zone=1", max_in_flight_pct=50),
        Budget(budget_id="all", selector="*", max_in_flight=2),
        Budget(budget_id="boundless", selector="*"),
        Budget(budget_id="elsewhere", selector="zone=9", max_in_flight=1),
        Budget(budget_id="gone", selector="*", max_in_flight=1, removed=True),
    ]

    made = plan(channel(selector="role!=db"), hosts, budgets)

    assert made.budgets == (
        PlannedBudget(budget_id="all", slots=2, members=3),
        PlannedBudget(budget_id="zone", slots=1, members=2, hosts=("a",)),
    )
    assert index_by_host(made).slots_of("a") == (BudgetSlot("all", 2), BudgetSlot("zone", 1))
    assert index_by_host(made).slots_of("b") == (BudgetSlot("all", 2),)


def test_limits_the_budgets_of_one_host() -> None:
    budgets = [
        Budget(budget_id=f"b{number}", selector="*", max_in_flight=1)
        for number in range(BUDGETS_OF_HOST_MAX + 1)
    ]

    assert len(plan(channel(), fleet(1), budgets[1:]).budgets) == BUDGETS_OF_HOST_MAX
    with pytest.raises(LimitExceeded, match="budgets of one host"):
        plan(channel(), fleet(1), budgets)


# ── the blob ──────────────────────────────────────────────────────────────────────────────────────


def test_is_named_by_its_content_and_can_be_read_back() -> None:
    made = plan(channel(WaveSpec(count=1), WaveSpec()), fleet(3), ())

    body, digest = encode_plan(made)

    assert decode_plan(body) == made
    assert encode_plan(decode_plan(body)) == (body, digest)
    assert digest.startswith("sha256:")
    assert encode_plan(plan(channel(WaveSpec(count=2), WaveSpec()), fleet(3), ()))[1] != digest
    with pytest.raises(InvalidInput):
        decode_plan(b"{}")


def test_refuses_a_plan_that_has_a_host_in_two_waves() -> None:
    made = plan(channel(WaveSpec(count=1), WaveSpec()), fleet(2), ())
    twice = replace(made, waves=(made.waves[0], replace(made.waves[1], hosts=("web-00", "web-01"))))

    with pytest.raises(MalformedPlan, match="web-00"):
        index_by_host(twice)


# ── defects of an older system, which must not come back ──────────────────────────────────────────


def test_d20_follows_the_frozen_plan_whatever_is_edited_meanwhile() -> None:
    """D20: policy and waves read from the live spec, not from the frozen plan."""
    opened = fleet_state(channel(WaveSpec(count=1, soak_seconds=60), WaveSpec()), fleet(3))

    edited = altered(
        opened,
        channels={
            "stable": replace(
                opened.channels["stable"],
                row=channel(selector="zone=nowhere", on_failure=OnFailure.HALT),
            )
        },
    )

    (order,) = survey(edited, ROLLOUT).orders
    assert survey(opened, ROLLOUT).orders == (order,)
    assert (order.host_id, order.policy.soak_seconds) == ("web-00", 60)
    assert order.policy.on_failure is OnFailure.ROLLBACK


@pytest.mark.parametrize("backwards", [False, True])
def test_d21_decides_by_wave_and_name_whatever_order_the_rows_come_in(backwards: bool) -> None:
    """D21: hash-map iteration order decides who is dispatched."""
    hosts = fleet(9)
    budgets = [Budget(budget_id=name, selector="*", max_in_flight=4) for name in ("b", "a")]
    if backwards:
        hosts.reverse()
        budgets.reverse()

    through = [standing(name, HostState.CONVERGED) for name in ("web-00", "web-01")]
    state = fleet_state(
        channel(WaveSpec(count=2), WaveSpec()), hosts, budgets, through, {"current_wave": 1}
    )

    names = [order.host_id for order in survey(state, ROLLOUT).orders]
    assert names == ["web-02", "web-03", "web-04", "web-05"]


def test_d24_plans_only_hosts_of_the_channel_so_every_wave_can_complete() -> None:
    """D24: wave lists are not filtered by channel, so a wave can never settle."""
    hosts = [host("ours", app="web", ring="0"), host("theirs", app="db", ring="0")]

    made = plan(channel(WaveSpec(selector="ring=0"), WaveSpec(), selector="app=web"), hosts, ())

    assert [wave.hosts for wave in made.waves] == [("ours",)]
    assert made.unstaged == ()


def test_has_no_order_for_a_host_outside_of_the_plan() -> None:
    state = fleet_state(channel(WaveSpec(count=1)), fleet(2))

    found = survey(with_rollout(state), ROLLOUT)

    assert [order.host_id for order in found.orders] == ["web-00"]
    assert found.waiting == 1


def test_names_the_waves_without_hosts() -> None:
    waves = (WaveSpec(name="canary", selector="tier=none"), WaveSpec(name="rest"))
    made = plan(channel(*waves), fleet(2), ())

    assert made.empty_waves == ("canary",)
    assert [wave.name for wave in made.waves] == ["rest"]
    assert plan(channel(*waves), [], ()).empty_waves == ("canary", "rest")
