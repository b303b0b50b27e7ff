"""Explain is complete: it names everything that waits, in every state of rollout and host, at every
gate.

Each wait has a host or a cause, a start, its end if it ends by itself, and the verb that ends it
now.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace as altered
from datetime import timedelta
from functools import cache
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cli.all_commands import COMMANDS
from tests.domain.gate_inputs import ROLLOUT, T0, channel, standing, with_rollout, with_tally
from tests.domain.test_gates import NAMES, SHUT, WHO, open_to, with_host
from tidegate.domain.channels.facts import ChannelEdge, ChannelProtection, EdgeRequires
from tidegate.domain.gates.explain import explain
from tidegate.domain.gates.inputs import (
    Explanation,
    FleetState,
    HostStanding,
    PrecedingChannel,
    RebootedHost,
    Versioned,
    Wait,
    WaitEnds,
)
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.rows import ReleaseStanding
from tidegate.domain.rollouts.states import DISPATCHABLE, Outcome, RolloutState, Word

SOON = T0 + timedelta(minutes=5)
BEFORE = T0 - timedelta(minutes=5)

# A host in every state, and what may differ about it there.
HOSTS: dict[str, dict[str, Any]] = {
    "pending": {"state": HostState.PENDING, "busy": True, "due_at": SOON},
    "pending, silent": {"state": HostState.PENDING, "busy": True, "due_at": SOON},
    "cancelled": {"state": HostState.PENDING, "cancelled_at": BEFORE},
    "activating": {"state": HostState.ACTIVATING, "busy": True, "due_at": SOON},
    "activating, silent": {"state": HostState.ACTIVATING, "busy": True, "due_at": SOON},
    "undeclared": {"state": HostState.SOAKING, "busy": True, "due_at": SOON, "soak_due_at": SOON},
    "soaking": {
        "state": HostState.SOAKING,
        "busy": True,
        "due_at": SOON,
        "soak_due_at": SOON,
        "topology_declared_at": BEFORE,
    },
    "soaked": {
        "state": HostState.SOAKING,
        "busy": True,
        "due_at": SOON,
        "soak_due_at": BEFORE,
        "topology_declared_at": BEFORE,
    },
    "deferred": {"state": HostState.DEFERRED, "due_at": SOON},
    "rebooted": {"state": HostState.DEFERRED, "due_at": SOON},
    "rolling back": {"state": HostState.FAILED, "busy": True, "due_at": SOON, "failure": "probes"},
    "failed": {"state": HostState.FAILED, "failure": "activation"},
    "lost": {"state": HostState.FAILED, "failure": "activation", "rollback_failed": True},
    "reverted": {"state": HostState.REVERTED, "failure": "probes"},
    "revoked": {},
    "no order": {},
}
TALLIES: dict[str, dict[str, Any]] = {
    "active": {},
    "converging": {"state": RolloutState.CONVERGING},
    "opening": {"state": RolloutState.OPENING},
    "halted": {"halted_at": BEFORE, "halted_by": "web-00"},
    "paused": {"paused_at": BEFORE, "paused_by": "user_op"},
    "reverted": {"state": RolloutState.REVERTED, "halted_at": BEFORE, "halted_by": "web-00"},
    "failed": {"state": RolloutState.FAILED, "halted_at": BEFORE, "halted_by": "web-00"},
    "retrying": {"retried": ("web-02",), "attempt": 2},
}
CODES_OF_PEOPLE = {"halted", "stopped", "paused", "hold", "quarantine", "minimum", "freshness"}


def build(host: str, tally: str, gate: str | None = None) -> FleetState:
    """Build a state with WHO in this state, in a rollout in that state, with this gate closed."""
    members = {"dispatched_at": BEFORE, **HOSTS[host]}
    known = [standing("web-00", HostState.CONVERGED)]
    if "state" in members:
        known.append(HostStanding(host_id=WHO, wave=1, **members))
    state = with_tally(open_to(*known), **TALLIES[tally])
    if "silent" in host:
        state = with_host(state, silent_since=BEFORE)
    if host == "revoked":
        state = with_host(state, status="revoked")
    if host == "rebooted":
        state = altered(state, rebooted={WHO: RebootedHost(WHO, ROLLOUT)})
    return state if gate is None else SHUT[gate][0](state)


def check(found: Explanation, what: str) -> None:
    assert found.waits, f"{what}: {found.answer}"
    assert "no host waits" not in found.answer, what
    for wait in found.waits:
        check_wait(wait, what)


def check_wait(wait: Wait, what: str) -> None:
    told = f"{what}: {wait}"
    assert wait.sentence, told
    assert wait.code, told
    assert wait.ends in ("by_itself", "when", "never"), told
    if wait.code != "ready":
        assert wait.since is not None, told
        assert wait.until is not None or wait.ends != "by_itself", told
    if wait.ends == "never" and wait.code != "concluded":
        assert wait.remedies, told
    for remedy in wait.remedies:
        check_command(remedy.command)
    if wait.hosts and wait.code not in CODES_OF_PEOPLE:
        assert wait.some, told


@cache
def check_command(line: str) -> None:
    """Check that it is a valid command of ours; the reader fills in `…` and N.

    Raises:

        click.UsageError: an argument is missing or unknown.
    """
    program, noun, verb, *rest = shlex.split(line.replace(" N", " 1"))
    assert program == "tidegate", line
    COMMANDS[f"{noun} {verb}"].make_context(line, rest)


def cases() -> Iterator[tuple[str, str, str | None]]:
    for host, tally in product(HOSTS, TALLIES):
        yield host, tally, None
        for gate in NAMES:
            if gate != "dispatchable":  # finished: another test covers it
                yield host, tally, gate


@pytest.mark.req("OP-10", engines=None, reason="a pure function")
@pytest.mark.parametrize("tally", TALLIES)
def test_names_everything_that_waits_in_every_state_at_every_gate(tally: str) -> None:
    for host, where, gate in cases():
        if where != tally:
            continue
        what = f"{host}, {tally}, {gate}"
        state = build(host, where, gate)
        found = explain(state, ROLLOUT)
        check(found, what)
        if WHO in state.sight(ROLLOUT).chart.waves and host != "no order":
            named = {name for wait in found.waits for name in wait.some}
            assert WHO in named, f"{what}: {found.waits}"
        of_host = explain(state, ROLLOUT, WHO)
        assert of_host.answer, what
        check(of_host, f"{what}, host")


@pytest.mark.req("OP-10", engines=None, reason="a pure function")
@pytest.mark.parametrize("state", sorted(set(RolloutState) - DISPATCHABLE))
def test_reports_how_a_rollout_ended_or_what_stopped_it(state: RolloutState) -> None:
    over = state in (RolloutState.TERMINAL, RolloutState.SUPERSEDED, RolloutState.PRUNED)
    outcome = Outcome.SUCCEEDED if over else None
    halted = {} if over else {"halted_at": BEFORE, "halted_by": "web-00"}
    seen = with_tally(open_to(), state=state, outcome=outcome, outcome_at=T0, **halted)
    first = explain(seen, ROLLOUT).waits[0]
    assert first.code == ("concluded" if over else "stopped")
    check_wait(first, state)


def test_shows_gates_after_the_first_shut_one_as_they_are() -> None:
    state = open_to()
    for gate in ("paused", "quarantine", "disruption-budget", "host-silent"):
        state = SHUT[gate][0](state)
    shut = [item.gate for item in explain(state, ROLLOUT).verdicts if not item.passed]
    assert shut == ["paused", "quarantine", "disruption-budget", "host-silent"]


def test_names_the_hosts_that_hold_the_slots_of_a_budget() -> None:
    holder = replace(
        standing("web-00", HostState.SOAKING), busy=True, soak_due_at=SOON, due_at=SOON, wave=0
    )
    state = SHUT["disruption-budget"][0](open_to(holder))
    found = [item for item in explain(state, ROLLOUT).waits if item.code == "disruption-budget"]
    assert "web-00" in found[0].sentence
    assert "1 more in other rollouts" in found[0].sentence


def test_names_the_hosts_that_a_wave_waits_for() -> None:
    known = standing("web-00", HostState.SOAKING, busy=True, due_at=SOON, soak_due_at=SOON)
    state = with_tally(open_to(known), current_wave=0)
    (found,) = [item for item in explain(state, ROLLOUT).waits if item.code == "wave-promotion"]
    assert "web-00" in found.sentence
    assert found.until == SOON
    assert found.hosts == 2


def test_reports_that_a_wave_needs_a_host_that_converges() -> None:
    skipped = standing("web-00", HostState.PENDING, left="skipped", cancelled_at=BEFORE)
    state = with_tally(open_to(skipped), current_wave=0)
    wave = state.sight(ROLLOUT).tally.row.waves[0]
    waves = (replace(wave, states={}, left=1), *state.sight(ROLLOUT).tally.row.waves[1:])
    (found,) = [
        item
        for item in explain(with_tally(state, waves=waves), ROLLOUT).waits
        if item.code == "minimum"
    ]
    assert found.ends == "never"
    assert found.sentence == "Wave 1 has no converged host left to wait for; it needs 1"
    assert commands(found) == [
        f"rollout skip-wave {ROLLOUT} wave-1",
        f"rollout abort {ROLLOUT}",
    ]


def held(**members: Any) -> Wait:
    """Return what a rollout waits for whose wave 0 is done, before a wave of this kind."""
    state = with_tally(open_to(), current_wave=0, done_at=BEFORE)
    first, second, *rest = state.sight(ROLLOUT).tally.row.waves
    done = replace(first, states={HostState.CONVERGED: first.hosts})
    waves = (done, replace(second, **members), *rest)
    found = explain(with_tally(state, waves=waves), ROLLOUT)
    check(found, str(members))
    assert "no host waits" not in found.answer
    return found.waits[0]


@pytest.mark.req("OP-9", engines=None, reason="a pure function")
def test_reports_that_a_wave_waits_for_a_person_or_for_its_time() -> None:
    by_hand, by_time = held(manual=True), held(delay_seconds=1_800)

    assert (by_hand.code, by_hand.ends, by_hand.since) == ("manual", "never", BEFORE)
    assert by_hand.sentence == "Wave 2 waits for an operator to continue it"
    assert commands(by_hand) == [f"rollout continue {ROLLOUT}"]
    assert (by_time.code, by_time.ends) == ("delay", "by_itself")
    assert by_time.until == BEFORE + timedelta(minutes=30)
    at = f"{by_time.until:%Y-%m-%d %H:%M} UTC"
    assert by_time.sentence == f"Wave 2 starts at {at}, 30 min after wave 1 was done"
    assert commands(by_time) == [f"rollout promote-all {ROLLOUT}"]
    assert by_time.remedies[0].when == "in an emergency"
    assert held(manual=True, continued=True, delay_seconds=1_800).code == "delay"


@pytest.mark.req("OP-10", engines=None, reason="a pure function")
@pytest.mark.parametrize(
    ("members", "command"),
    [
        ({"manual": True}, f"rollout continue {ROLLOUT}"),
        ({"delay_seconds": 1_800}, f"rollout promote-all {ROLLOUT}"),
    ],
)
def test_a_host_of_a_wave_that_is_held_names_the_command_that_starts_it(
    members: dict[str, Any], command: str
) -> None:
    state = with_tally(open_to(), current_wave=0, done_at=BEFORE)
    first, second, *rest = state.sight(ROLLOUT).tally.row.waves
    done = replace(first, states={HostState.CONVERGED: first.hosts})
    waves = (done, replace(second, **members), *rest)

    found = explain(with_tally(state, waves=waves), ROLLOUT, WHO)

    assert command in [line for wait in found.waits for line in commands(wait)]


def test_reports_that_the_first_wave_waits_for_a_person() -> None:
    state = with_tally(open_to(), current_wave=0, state=RolloutState.OPENING)
    first, *rest = state.sight(ROLLOUT).tally.row.waves
    waves = (replace(first, manual=True, states={}), *rest)

    found = explain(with_tally(state, waves=waves), ROLLOUT)

    assert found.waits[0].code == "manual"
    assert "wave 1 waits for an operator to continue it" in found.answer
    assert found.ready == 0


# ── which commands, and in which order ────────────────────────────────────────────────────────────


def commands(wait: Wait) -> list[str]:
    """Return the commands without their common first word, and with placeholders for the reader."""
    return [
        remedy.command.removeprefix("tidegate ").removesuffix(" --reason …")
        for remedy in wait.remedies
    ]


def wait_at(state: FleetState, code: str) -> Wait:
    return next(item for item in explain(state, ROLLOUT).waits if item.code == code)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_ended_rollout_waits_for_nothing(outcome: Outcome) -> None:
    over = RolloutState.TERMINAL if outcome is Outcome.SUCCEEDED else RolloutState.SUPERSEDED
    failed = standing("web-00", HostState.REVERTED, failure="probes")
    state = with_tally(open_to(failed), state=over, outcome=outcome, outcome_at=T0)

    found = explain(state, ROLLOUT)

    assert [wait.code for wait in found.waits] == ["concluded"]
    assert (found.waiting, found.ready) == (0, 0)
    assert found.answer == found.waits[0].sentence
    of_host = explain(state, ROLLOUT, "web-00")
    assert [remedy for wait in of_host.waits for remedy in wait.remedies] == []


@pytest.mark.parametrize(
    ("outcome", "on_it", "expected"),
    [
        (
            Outcome.FAILED,
            0,
            ["channel rollback stable --dry-run", "channel promote stable RELEASE"],
        ),
        (
            Outcome.ROLLED_BACK,
            0,
            ["channel rollback stable --dry-run", "channel promote stable RELEASE"],
        ),
        (
            Outcome.ABORTED,
            1,
            ["channel rollback stable --dry-run", "channel promote stable RELEASE"],
        ),
        (Outcome.ABORTED, 0, ["channel promote stable RELEASE"]),
        (Outcome.EMPTY, 0, ["channel promote stable web.2"]),
        (Outcome.SUCCEEDED, 1, []),
    ],
)
def test_after_an_end_a_rollback_comes_first_where_hosts_run_the_release(
    outcome: Outcome, on_it: int, expected: list[str]
) -> None:
    state = with_tally(
        open_to(), state=RolloutState.SUPERSEDED, outcome=outcome, outcome_at=T0, current_wave=0
    )
    first, *rest = state.sight(ROLLOUT).tally.row.waves
    counts = {HostState.CONVERGED: on_it} if on_it else {}
    state = with_tally(state, waves=(replace(first, states=counts), *rest))
    seen = state.channels["stable"]
    newest = altered_channel(state, newest_rollout_id=ROLLOUT)
    assert commands(explain(newest, ROLLOUT).waits[0]) == expected
    replaced = altered_channel(state, newest_rollout_id="stable@web.3")
    assert commands(explain(replaced, ROLLOUT).waits[0]) == [], seen


def altered_channel(state: FleetState, **members: Any) -> FleetState:
    seen = state.channels["stable"]
    row = replace(seen.row, **members)
    return altered(state, channels={**state.channels, "stable": replace(seen, row=row)})


def test_a_stopped_rollout_names_the_rollback_first_and_a_condition_for_each_command() -> None:
    stopped = {"state": RolloutState.REVERTED, "halted_at": BEFORE, "halted_by": "web-00"}
    failed = standing("web-00", HostState.REVERTED, failure="probes")
    found = wait_at(with_tally(open_to(failed), **stopped), "stopped")

    assert commands(found) == [
        "channel rollback stable",
        f"rollout retry {ROLLOUT}",
        f"rollout clear {ROLLOUT} --mode waive --host web-00",
        f"rollout abort {ROLLOUT}",
    ]
    assert [remedy.when for remedy in found.remedies] == [
        "if the release is bad",
        "if the hosts were at fault and are repaired",
        "if the host does not matter now",
        "if you want to leave the hosts as they are",
    ]


@pytest.mark.parametrize(
    ("converged", "sentence"),
    [
        (0, "no host converged on web.2"),
        (1, "1 host runs web.2 until you roll back"),
        (2, "2 hosts run web.2 until you roll back"),
    ],
)
def test_a_stopped_rollout_says_how_many_hosts_keep_its_release(
    converged: int, sentence: str
) -> None:
    state = open_to(standing("web-00", HostState.REVERTED, failure="probes"))
    first, *others = state.rollouts[ROLLOUT].tally.row.waves
    counted = replace(first, states={HostState.REVERTED: 1, HostState.CONVERGED: converged})
    waves = (replace(counted, hosts=3), *others)
    stopped = {"state": RolloutState.REVERTED, "halted_at": BEFORE, "halted_by": "web-00"}

    found = wait_at(with_tally(state, waves=waves, **stopped), "stopped")

    assert found.sentence.endswith(f"; {sentence}")


def test_while_one_host_is_retried_the_others_are_not() -> None:
    failed = replace(standing(WHO, HostState.REVERTED, failure="probes"), attempt=1)
    state = with_tally(open_to(failed), attempt=2, retried=("web-00",))

    found = wait_at(state, "reverted")

    assert found.sentence.endswith("rolled back; only web-00 may be tried again now")
    assert commands(found) == []


def test_the_wait_for_a_silent_host_that_is_not_skipped_has_no_end() -> None:
    pending = HostStanding(host_id=WHO, **HOSTS["pending"])

    found = wait_at(with_host(open_to(pending), silent_since=BEFORE), "pending")

    assert found.sentence.endswith("the policy waits for silent hosts")
    assert (found.until, found.ends) == (None, WaitEnds.WHEN)


def test_a_quarantine_is_lifted_only_if_the_host_was_at_fault() -> None:
    found = wait_at(SHUT["quarantine"][0](open_to()), "quarantine")

    (lift,) = found.remedies
    assert lift.when == "only if the host was at fault and the release is good"


def test_progress_that_ends_by_itself_suggests_no_command() -> None:
    soaking = replace(
        standing("web-00", HostState.SOAKING), busy=True, soak_due_at=SOON, due_at=SOON
    )
    state = with_tally(open_to(soaking), current_wave=0)

    found = explain(state, ROLLOUT).waits

    assert {wait.code for wait in found} >= {"undeclared", "wave-promotion"}
    assert [remedy for wait in found for remedy in wait.remedies] == []


def test_a_host_that_does_not_take_its_order_may_be_switched_off() -> None:
    """The silent one is named first, because the command names that host."""
    quiet: dict[str, Any] = {
        "state": HostState.PENDING,
        "busy": True,
        "due_at": SOON,
        "dispatched_at": BEFORE,
    }
    state = open_to(*(HostStanding(host_id=name, **quiet) for name in ("web-00", WHO)))
    state = with_rollout(state, heard={"web-00": BEFORE})

    found = wait_at(with_host(state, silent_since=BEFORE), "pending")
    heard = wait_at(state, "pending")

    assert commands(found) == [f"rollout skip {ROLLOUT} {WHO}"]
    assert commands(heard) == [f"rollout skip {ROLLOUT} web-00"]
    assert found.remedies[0].when == heard.remedies[0].when == "if the host is switched off"
    for wait in (found, heard):
        assert "it last reported at 2026-05-04 07:55 UTC" in wait.sentence


@pytest.mark.parametrize("doing", ["pending", "deferred"])
def test_no_late_host_is_skipped_before_it_fails(doing: str) -> None:
    """No wave waits for it, so the skip would be refused."""
    late = HostStanding(host_id="new", late=True, **HOSTS[doing])

    assert commands(wait_at(open_to(late), doing)) == []


def test_a_closed_edge_names_the_promotion_there_first_and_the_override_last() -> None:
    base = Versioned(replace(channel(name="base"), created_at=T0), 21)
    missing = PrecedingChannel(base, None, None, None, "")
    edge = ChannelEdge(channel="base")
    state = with_tally(with_rollout(open_to(), edges={"base": missing}), edges=(edge,))

    found = wait_at(state, "channel-edges")

    assert commands(found) == [
        "channel promote base web.2",
        f"rollout override {ROLLOUT} --gate edges",
    ]
    assert [remedy.when for remedy in found.remedies] == ["", "in an emergency"]


def shut_edge(**members: Any) -> PrecedingChannel:
    """Return a channel that comes first, and where the release did not succeed last."""
    found = ReleaseStanding(channel="base", release_id="web.2", rollout_id="base@web.2", **members)
    row = Versioned(replace(channel(name="base"), created_at=T0), 21)
    return PrecedingChannel(row, Versioned(found, 22), None, None, "")


def halted_there() -> PrecedingChannel:
    seen = open_to().sight(ROLLOUT).tally
    stopped = replace(seen.row, halted_at=BEFORE, state=RolloutState.REVERTED)
    return altered(shut_edge(), tally=Versioned(stopped, 23))


def quarantined_there() -> PrecedingChannel:
    row = SHUT["quarantine"][0](open_to()).sight(ROLLOUT).quarantined
    return altered(shut_edge(word=Word.GOOD, said_at=BEFORE), quarantined=row)


BAD_BEFORE: dict[str, tuple[PrecedingChannel, str, str]] = {
    "stopped": (halted_there(), "rollout explain base", "what failed on base"),
    "failed": (
        shut_edge(word=Word.BAD, said_at=BEFORE, host_id="dev-1"),
        "rollout explain base",
        "what failed on base",
    ),
    "rolled back from": (
        shut_edge(word=Word.BAD, said_at=BEFORE, operator="user_op"),
        "channel promote base web.2",
        "the reason why base was rolled back",
    ),
    "quarantined": (quarantined_there(), "quarantine lift base web.2", "what failed on base"),
}


@pytest.mark.parametrize("there", BAD_BEFORE)
@pytest.mark.parametrize("runs_it", [False, True])
def test_a_release_that_is_bad_on_the_channel_before_is_not_passed_on_lightly(
    there: str, runs_it: bool
) -> None:
    seen, opens, concern = BAD_BEFORE[there]
    soaking = altered(shut_edge(), standing=None)  # an edge before it, where nothing is known
    edges = (ChannelEdge(channel="alpha"), ChannelEdge(channel="base"))
    state = with_rollout(open_to(), edges={"alpha": soaking, "base": seen})
    state = with_tally(state, edges=edges, current_wave=0)
    first, *rest = state.sight(ROLLOUT).tally.row.waves
    counts = {HostState.CONVERGED: 1} if runs_it else {}
    state = with_tally(state, waves=(replace(first, states=counts), *rest))

    found = wait_at(state, "channel-edges")

    assert commands(found) == [
        "channel rollback stable" if runs_it else f"rollout abort {ROLLOUT}",
        opens,
        f"rollout override {ROLLOUT} --gate edges",
    ]
    assert found.remedies[0].when == "if the release is bad"
    assert found.remedies[-1].when == f"only if you know that {concern} does not concern stable"


def test_an_idle_edge_says_so_if_the_same_release_stopped_there() -> None:
    edge = ChannelEdge("base", EdgeRequires.IDLE)
    for newest, expected in (("base@web.2~2", True), ("base@web.3", False)):
        row = replace(
            channel(name="base"),
            newest_rollout_id=newest,
            newest_state=RolloutState.REVERTED,
        )
        seen = PrecedingChannel(Versioned(row, 21), None, None, None, "")
        state = with_tally(with_rollout(open_to(), edges={"base": seen}), edges=(edge,))
        first = commands(wait_at(state, "channel-edges"))[0]
        assert (first == "channel rollback stable") is expected, newest


@pytest.mark.req("OP-10", engines=None, reason="a pure function")
def test_names_every_stop_at_once_with_the_command_that_ends_it() -> None:
    state = open_to()
    for gate in ("freeze", "hold", "window"):
        state = SHUT[gate][0](state)
    (xmas,) = state.freezes
    audit = replace(xmas, row=replace(xmas.row, freeze_id="f2", until=SOON))
    state = altered(state, freezes=(xmas, audit))

    found = explain(state, ROLLOUT).waits

    stops = [wait for wait in found if wait.code in ("freeze", "hold", "window")]
    ends = sorted(line for wait in stops for line in commands(wait))
    assert ends == [
        "channel release stable",
        "freeze delete f1",
        "freeze delete f2",
        f"rollout override {ROLLOUT} --gate freeze",
        f"rollout override {ROLLOUT} --gate freeze",
        f"rollout override {ROLLOUT} --gate hold",
        f"rollout override {ROLLOUT} --gate window",
    ]
    window = wait_at(state, "window")
    assert (window.hosts, window.some) == (1, (WHO,))
    assert "Window nightly never opens again" in window.sentence
    for wait in found:
        check_wait(wait, "all at once")


def test_reports_that_a_protected_channel_needs_a_second_person() -> None:
    frozen = SHUT["freeze"][0](open_to())
    alone = explain(frozen, ROLLOUT)
    guarded = altered_channel(frozen, protection=ChannelProtection())
    strict = altered_channel(frozen, protection=ChannelProtection(break_glass=False))

    assert alone.protection == ""
    assert explain(guarded, ROLLOUT).protection == (
        "stable is protected: a command that moves it forward, loosens it or bypasses something "
        "needs a second person, or --break-glass"
    )
    assert explain(strict, ROLLOUT).protection.endswith(" needs a second person")


def test_puts_the_reason_of_a_failure_in_brackets_before_the_rollback() -> None:
    failed = standing("web-00", HostState.REVERTED, failure="probes")
    state = with_tally(
        with_rollout(open_to(failed), causes={"web-00": "failed its probe http: exit code 3"}),
        state=RolloutState.REVERTED,
        halted_at=BEFORE,
        halted_by="web-00",
    )

    found = wait_at(state, "reverted")

    assert found.sentence == "web-00 failed its probe http (exit code 3), and rolled back"
