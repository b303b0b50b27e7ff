"""A policy as JSON: all faults at once with their paths, defaults written out, and what would
change.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.domain.gate_inputs import channel, fleet
from tidegate.cli.channel_policy import EXAMPLE
from tidegate.domain.channels.default_policy import DEFAULT_POLICY, example
from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, WaveSpec
from tidegate.domain.channels.policy_document import PolicyChange, changes, read_policy, write_out
from tidegate.domain.policy_check import PolicyCheck, PolicySite, check
from tidegate.domain.windows.facts import WindowKind, WindowSpec

PURE = {"engines": None, "reason": "a pure function"}


def sentences(found: PolicyCheck) -> list[str]:
    return [fault.sentence for fault in found.faults]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"waves": [{}, {"percent": 120}]}, "waves[1].percent is 120; allowed is 1 to 100."),
        ({"waves": [{"percent": 1, "count": 1}]}, "waves[0] has percent and count; use one."),
        (
            {"waves": [{"soak_second": 1}]},
            "There is no member soak_second in waves[0]; did you mean soak_seconds?",
        ),
        (
            {"edges": [{"channel": "dev", "zzz": 1}]},
            "There is no member zzz in edges[0]; its members are channel, require, soak_seconds.",
        ),
        ({"wavs": []}, "There is no member wavs in the policy; did you mean waves?"),
        (
            {"on_failure": "rollback"},
            "on_failure is rollback; allowed are halt, rollback-and-halt.",
        ),
        ({"waves": {}}, "waves is an object; allowed is a list."),
        ({"waves": [7]}, "waves[0] is 7; allowed is an object."),
        ({"waves": [{"count": True}]}, "waves[0].count is true; allowed is an integer or null."),
        ({"ack_seconds": "9"}, 'ack_seconds is "9"; allowed is an integer.'),
        ({"ack_seconds": None}, "ack_seconds is null; allowed is an integer."),
        ({"ack_seconds": -1}, "ack_seconds is -1; allowed is 0 to 316224000."),
        ({"edges": [{"require": "idle"}]}, "edges[0].channel is missing."),
        ({"operations": [1]}, "operations[0] is 1; allowed is a text."),
        ([], "The policy is a list; allowed is an object."),
    ],
)
def test_names_what_is_wrong_and_what_is_allowed(document: Any, said: str) -> None:
    assert sentences(check(read_policy(document), None)) == [said]


def test_names_every_fault_of_a_policy_at_once() -> None:
    document = {
        "waves": [{"percent": 0, "nam": "a"}, {"soak_seconds": -1, "selector": "a=="}],
        "on_failure": "no",
        "offline_grace_seconds": -1,
    }

    paths = [fault.path for fault in check(read_policy(document), None).faults]

    assert sorted(paths) == [
        "offline_grace_seconds",
        "on_failure",
        "waves[0].nam",
        "waves[0].percent",
        "waves[1].selector",
        "waves[1].soak_seconds",
    ]


@pytest.mark.req("OP-8", **PURE)
def test_the_example_is_the_default_policy_and_has_no_fault() -> None:
    read = read_policy(example())

    assert read.policy == DEFAULT_POLICY
    assert read.completed == ()
    assert check(read, None).faults == ()
    assert json.loads(EXAMPLE) == example(), "the command line's copy"


def test_completes_omitted_members_and_keeps_the_others() -> None:
    assert read_policy({}).policy == DEFAULT_POLICY
    assert read_policy({"waves": [], "offline_grace_seconds": None}).policy == ChannelPolicy()
    assert read_policy({"edges": ["dev"]}).policy.edges == (ChannelEdge("dev"),)
    assert [note.sentence for note in check(read_policy({}), None).notes] == [
        "waves is left out: one host, then 10 %, then the rest.",
        "offline_grace_seconds is left out: a silent host is skipped after 15 min.",
    ]


def test_a_policy_that_is_written_out_reads_as_itself() -> None:
    for policy in (DEFAULT_POLICY, ChannelPolicy(), ChannelPolicy(edges=(ChannelEdge("dev"),))):
        assert read_policy(write_out(policy)).policy == policy


def test_warns_of_members_that_work_differently_than_they_read() -> None:
    document = {
        "waves": [
            {"name": "canary", "count": 2, "converged_min": 5},
            {"name": "early", "selector": "zone=none"},
            {"name": "more", "count": 1},
        ]
    }
    site = PolicySite(channel(), (), tuple(fleet(4)), ())

    found = check(read_policy(document), site)

    assert found.faults == ()
    assert [warning.sentence for warning in found.warnings] == [
        "waves[0].converged_min is 5; the wave takes 2 hosts now: it will ask for all 2.",
        "Wave early takes no host now.",
        "1 host gets no order, because no wave takes them: web-03.",
    ]


def test_warns_of_a_wave_that_fits_into_no_window() -> None:
    document = {
        "must_fit": True,
        "activation_seconds": 600,
        "waves": [
            {"name": "canary", "count": 1, "soak_seconds": 10_800},
            {"name": "rest", "soak_seconds": 60},
        ],
    }
    nightly = WindowSpec(
        window_id="nightly",
        kind=WindowKind.ALLOW,
        zone="UTC",
        start="2026-11-17T02:00",
        rule="FREQ=DAILY",
        duration_seconds=7_200,
    )
    now = datetime(2026, 11, 19, tzinfo=UTC)
    site = PolicySite(channel(), (), tuple(fleet(4)), (), (nightly,), now)

    def warnings(site: PolicySite, **members: Any) -> list[str]:
        return [item.sentence for item in check(read_policy(document | members), site).warnings]

    (said,) = warnings(site)
    assert said == (
        "must_fit: wave canary needs 3 h 10 min, window nightly is open for 2 h: no order would "
        "ever go out."
    )
    assert warnings(site, must_fit=False) == []
    wider = structs.replace(nightly, duration_seconds=11_400)
    assert warnings(structs.replace(site, windows=(wider,))) == []
    elsewhere = structs.replace(nightly, channels=("other",))
    assert warnings(structs.replace(site, windows=(elsewhere,))) == []


def test_lists_what_would_change() -> None:
    after = read_policy({"waves": [{"name": "canary", "count": 2}], "on_failure": "halt"}).policy
    rest = {"name": "rest", "soak_seconds": 60}

    found = changes(DEFAULT_POLICY, after)

    assert found[:2] == (
        PolicyChange("waves[0].count", 1, 2),
        PolicyChange("waves[0].soak_seconds", 300, 0),
    )
    assert [change.path for change in found[2:]] == ["waves[1]", "waves[2]", "on_failure"]
    assert found[3].before.items() >= rest.items()
    assert found[3].after is None
    assert changes(after, after) == ()


def test_members_that_a_stored_policy_omits_keep_their_meaning() -> None:
    """Facts, rows and plans omit what equals the default, so a default never changes. The caller
    that creates a channel writes out a safer one.
    """
    assert msgspec.to_builtins(ChannelPolicy()) == {}
    policy = msgspec.json.decode(b"{}", type=ChannelPolicy)
    wave = msgspec.json.decode(b"{}", type=WaveSpec)
    assert msgspec.structs.asdict(policy) == {
        "waves": (),
        "on_failure": "rollback-and-halt",
        "sustained_failure_seconds": 120,
        "ack_seconds": 900,
        "activation_seconds": 600,
        "topology_seconds": 300,
        "convergence_seconds": 900,
        "rollback_seconds": 600,
        "deferral_seconds": 604_800,
        "must_fit": False,
        "offline_grace_seconds": None,
        "retention_seconds": 7_776_000,
        "freshness_seconds": None,
        "edges": (),
        "host_edges": (),
        "auto_promote": False,
        "auto_rollback": False,
        "operations": (),
    }
    assert msgspec.structs.asdict(wave) == {
        "name": "",
        "selector": "*",
        "percent": None,
        "count": None,
        "soak_seconds": 0,
        "failures_max": None,
        "failures_max_percent": None,
        "converged_min": 1,
        "success_percent": 100,
        "delay_seconds": 0,
        "manual": False,
    }
