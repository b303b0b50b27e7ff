"""Properties of every plan, over generated fleets and policies."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from tests.domain.gate_inputs import channel, host
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.channels.rows import Channel
from tidegate.domain.fleet.rows import Budget, Host
from tidegate.domain.fleet.selectors import parse
from tidegate.domain.planner import decode_plan, encode_plan, index_by_host, opened_waves, plan

ZONES = ("a", "b", "c")
SELECTORS = st.sampled_from(("*", "zone=a", "zone!=a", "zone in (a,b)", "zone", "!zone", "zone=x"))


@st.composite
def fleets(draw: st.DrawFn) -> list[Host]:
    names = draw(st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,4}", fullmatch=True), unique=True))
    hosts = []
    for name in names:
        zone = draw(st.sampled_from((None, *ZONES)))
        status = draw(st.sampled_from(("enrolled", "enrolled", "revoked", "retired")))
        hosts.append(host(name, status, **({} if zone is None else {"zone": zone})))
    return hosts


@st.composite
def waves(draw: st.DrawFn) -> WaveSpec:
    percent = draw(st.none() | st.integers(1, 100))
    return WaveSpec(
        selector=draw(SELECTORS),
        percent=percent,
        count=None if percent is not None else draw(st.none() | st.integers(1, 5)),
        failures_max=draw(st.none() | st.integers(0, 5)),
        failures_max_percent=draw(st.none() | st.integers(0, 100)),
    )


CHANNELS = st.builds(
    lambda specs, selector: channel(*specs, selector=selector),
    st.lists(waves(), max_size=5),
    SELECTORS,
)
BUDGETS = st.lists(
    st.builds(
        lambda name, selector, number, share: Budget(
            budget_id=name, selector=selector, max_in_flight=number, max_in_flight_pct=share
        ),
        st.sampled_from(("one", "two", "three", "four")),
        SELECTORS,
        st.none() | st.integers(1, 5),
        st.none() | st.integers(1, 100),
    ),
    unique_by=lambda budget: budget.budget_id,
)


def ours(where: Channel, hosts: list[Host]) -> list[str]:
    selector = parse(where.selector)
    return sorted(
        item.host_id
        for item in hosts
        if item.status == "enrolled" and selector.matches(item.labels, item.host_id)
    )


@given(CHANNELS, fleets())
def test_puts_each_host_of_the_channel_in_one_wave_or_in_none(
    where: Channel, hosts: list[Host]
) -> None:
    made = plan(where, hosts, ())

    placed = [name for wave in made.waves for name in wave.hosts]
    assert sorted((*placed, *made.unstaged)) == ours(where, hosts)
    assert where.policy.waves or not made.unstaged


@given(CHANNELS, fleets())
def test_fills_each_wave_according_to_its_share_or_count(where: Channel, hosts: list[Host]) -> None:
    """Compared with an obvious implementation: assign the names in order, one wave after the
    other.
    """
    made = plan(where, hosts, ())
    labels = {item.host_id: item.labels for item in hosts}
    left = ours(where, hosts)
    total = len(left)
    expected = []
    for spec in where.policy.waves or (WaveSpec(),):
        match = [name for name in left if parse(spec.selector).matches(labels[name], name)]
        if spec.percent is not None:
            match = match[: max(1, int(total * spec.percent / 100 + 1e-9))]
        if spec.count is not None:
            match = match[: spec.count]
        left = [name for name in left if name not in match]
        if match:
            expected.append(tuple(match))

    assert [wave.hosts for wave in made.waves] == expected
    assert made.unstaged == tuple(left)


@given(CHANNELS, fleets())
def test_has_no_empty_wave_and_dense_numbers(where: Channel, hosts: list[Host]) -> None:
    made = plan(where, hosts, ())

    assert all(wave.hosts for wave in made.waves)
    assert sorted(set(index_by_host(made).waves.values())) == list(range(len(made.waves)))
    assert [wave.hosts for wave in opened_waves(made)] == [len(w.hosts) for w in made.waves]


@given(CHANNELS, fleets(), BUDGETS, st.randoms(use_true_random=False))
def test_is_independent_of_the_order_of_hosts_and_budgets(
    where: Channel, hosts: list[Host], budgets: list[Budget], random: Random
) -> None:
    first = encode_plan(plan(where, hosts, budgets))
    random.shuffle(hosts)
    random.shuffle(budgets)

    assert encode_plan(plan(where, hosts, budgets)) == first
    assert encode_plan(decode_plan(first[0])) == first


@given(CHANNELS, fleets(), BUDGETS)
def test_a_budget_limits_exactly_the_planned_hosts_that_it_matches(
    where: Channel, hosts: list[Host], budgets: list[Budget]
) -> None:
    made = plan(where, hosts, budgets)
    charted = index_by_host(made)
    labels = {item.host_id: item.labels for item in hosts}

    for name in charted.waves:
        meant = {
            budget.budget_id
            for budget in budgets
            if (budget.max_in_flight or budget.max_in_flight_pct)
            and parse(budget.selector).matches(labels[name], name)
        }
        assert {slot.budget_id for slot in charted.slots_of(name)} == meant
    for planned in made.budgets:
        assert planned.slots >= 1
