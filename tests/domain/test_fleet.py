"""The fleet: how hosts enroll and leave, which channels claim them, and that the log gives the
rows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.domain.gate_inputs import KEY, T0, host
from tests.domain.sample_control import SampleControl
from tidegate.domain.channels import facts as channel_facts
from tidegate.domain.channels.facts import (
    ChannelCreated,
    ChannelEdge,
    ChannelEdited,
    ChannelPolicy,
    EdgeRequires,
)
from tidegate.domain.channels.policy import check_edges
from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.fleet import agent_versions, declarations as fleet, facts as fleet_facts
from tidegate.domain.fleet.claims import check_scope, claims
from tidegate.domain.fleet.folds import CHANNELS_MAX, step_fleet, step_host
from tidegate.domain.fleet.refusals import (
    BudgetNotFound,
    HostGone,
    HostIsEnrolled,
    HostNotFound,
    InvalidLabel,
    InvalidSelector,
    SelectorOverlap,
)
from tidegate.domain.fleet.rows import (
    Budget,
    ChannelScope,
    Fleet,
    Host,
    Liveness,
    budget_key,
    fleet_key,
    host_key,
)
from tidegate.domain.fleet.slices import (
    FACTS_EVERY,
    EnrollHost,
    LabelHost,
    NoteFacts,
    NoteHeard,
    NoteSilence,
    RemoveBudget,
    RetireHost,
    RevokeHost,
    SetBudget,
    decide_silence,
    enroll_host,
    label_host,
    note_facts,
    note_heard,
    note_silence,
    remove_budget,
    retire_host,
    revoke_host,
    set_budget,
)
from tidegate.domain.hosts import facts as host_facts
from tidegate.engines.memory import MemoryStore
from tidegate.errors import IllegalTransition, InvalidInput, LimitExceeded
from tidegate.kernel.folds import Folds
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

OTHER_KEY = "cd" * 32

open_channel = Slice(
    name="open-channel",
    command=ChannelCreated,
    writes=(ChannelCreated,),
    rows=lambda command: (),
    decide=lambda rows, command, now: (command,),
)
SCHEMA = Schema(
    Vocabulary(
        (*channel_facts.FACTS, *fleet.FACTS, *host_facts.FACTS), (*fleet.SLICES, open_channel)
    ),
    fleet.COLLECTIONS,
)
FOLDS = Folds(SCHEMA, fleet.FOLDS)


class FleetLog(SampleControl):
    """A fleet on a store in memory."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(SCHEMA), FOLDS)

    def enroll(self, host_id: str = "web-01", key: str = KEY, **labels: str) -> int:
        command = EnrollHost(host_id=host_id, public_key=key, labels=labels, operator="user_op")
        return len(self.control.execute(enroll_host, command).facts)

    def label(self, host_id: str = "web-01", **labels: str) -> int:
        command = LabelHost(host_id=host_id, labels=labels, operator="user_op")
        return len(self.control.execute(label_host, command).facts)

    def note(self, **facts: str) -> int:
        command = NoteFacts(host_id="web-01", facts=facts)
        return len(self.control.execute(note_facts, command).facts)

    def leave(self, item: Slice, command: Any) -> int:
        said = command(host_id="web-01", operator="user_op", reason="broken")
        return len(self.control.execute(item, said).facts)

    def channel(self, name: str, selector: str, package: str = "web") -> None:
        self.control.execute(open_channel, created(name, selector, package))

    def host(self, host_id: str = "web-01") -> Host:
        found = self.row(host_key(host_id))
        assert isinstance(found, Host)
        return found

    def fleet(self) -> Fleet:
        found = self.row(fleet_key())
        assert isinstance(found, Fleet)
        return found


def created(name: str, selector: str, package: str = "web", **policy: Any) -> ChannelCreated:
    return ChannelCreated(
        channel=name,
        operator="user_op",
        at=T0,
        package=package,
        selector=selector,
        policy=ChannelPolicy(**policy),
    )


@pytest.fixture
def fleet_log() -> FleetLog:
    return FleetLog()


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


def test_stores_the_key_and_labels_of_an_enrolled_host(fleet_log: FleetLog) -> None:
    assert fleet_log.enroll(role="web") == 1

    assert fleet_log.host().labels == {"role": "web"}
    assert fleet_log.host().public_key == KEY
    assert fleet_log.fleet().hosts == 1
    assert differences(fleet_log.store, FOLDS) == []


def test_a_repeated_enrollment_writes_nothing(fleet_log: FleetLog) -> None:
    fleet_log.enroll(role="web")

    assert fleet_log.enroll(role="web") == 0
    assert fleet_log.types() == ["HostEnrolled"]


def test_a_second_key_cannot_take_over_a_host(fleet_log: FleetLog) -> None:
    fleet_log.enroll()

    with pytest.raises(HostIsEnrolled):
        fleet_log.enroll(key=OTHER_KEY)
    assert fleet_log.host().public_key == KEY


def test_a_revoked_host_may_enroll_with_a_new_key_and_keeps_its_labels(fleet_log: FleetLog) -> None:
    fleet_log.enroll(role="web")
    fleet_log.leave(revoke_host, RevokeHost)
    assert fleet_log.host().status == "revoked"

    again = EnrollHost(host_id="web-01", public_key=OTHER_KEY)
    fleet_log.control.execute(enroll_host, again)

    assert (fleet_log.host().status, fleet_log.host().public_key) == ("enrolled", OTHER_KEY)
    assert fleet_log.host().labels == {"role": "web"}
    assert fleet_log.fleet().hosts == 1
    assert differences(fleet_log.store, FOLDS) == []


def test_a_retired_host_cannot_enroll_again(fleet_log: FleetLog) -> None:
    fleet_log.enroll()
    assert fleet_log.leave(retire_host, RetireHost) == 1
    assert fleet_log.leave(retire_host, RetireHost) == 0

    with pytest.raises(HostGone):
        fleet_log.enroll()
    with pytest.raises(HostGone):
        fleet_log.label(role="db")
    with pytest.raises(HostGone):
        fleet_log.leave(revoke_host, RevokeHost)
    assert fleet_log.fleet().hosts == 0
    assert differences(fleet_log.store, FOLDS) == []


def test_replaces_all_labels_at_once_and_only_if_they_differ(fleet_log: FleetLog) -> None:
    fleet_log.enroll(role="web", zone="a")

    assert fleet_log.label(role="db") == 1
    assert fleet_log.label(role="db") == 0
    assert fleet_log.host().labels == {"role": "db"}


@pytest.mark.parametrize(
    ("item", "command"),
    [
        (label_host, LabelHost(host_id="web-09", labels={}, operator="user_op")),
        (revoke_host, RevokeHost(host_id="web-09", operator="user_op", reason="x")),
        (retire_host, RetireHost(host_id="web-09", operator="user_op", reason="x")),
    ],
    ids=lambda value: value.name if isinstance(value, Slice) else "",
)
def test_refuses_verbs_on_an_unknown_host(fleet_log: FleetLog, item: Slice, command: Any) -> None:
    with pytest.raises(HostNotFound):
        fleet_log.control.execute(item, command)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"host_id": "Web 1"}, InvalidLabel),
        ({"public_key": "ab"}, InvalidInput),
        ({"public_key": KEY.upper()}, InvalidInput),
        ({"labels": {"a b": "c"}}, InvalidLabel),
        ({"labels": {"host": "web-02"}}, InvalidLabel),
    ],
)
def test_refuses_a_malformed_enrollment(
    fleet_log: FleetLog, change: dict[str, Any], error: type[Exception]
) -> None:
    said: dict[str, Any] = {"host_id": "web-01", "public_key": KEY} | change

    with pytest.raises(error):
        fleet_log.control.execute(enroll_host, EnrollHost(**said))
    assert fleet_log.types() == []


@pytest.mark.parametrize("said", [("", "why"), ("user_op", ""), ("user_op", "  ")])
def test_requires_an_actor_and_a_reason_to_remove_a_host(
    fleet_log: FleetLog, said: tuple[str, str]
) -> None:
    fleet_log.enroll()
    operator, reason = said

    for item, command in ((revoke_host, RevokeHost), (retire_host, RetireHost)):
        with pytest.raises(InvalidInput):
            fleet_log.control.execute(
                item, command(host_id="web-01", operator=operator, reason=reason)
            )


def test_records_silence_and_its_end_once_each(fleet_log: FleetLog) -> None:
    fleet_log.enroll()
    silence = NoteSilence(host_id="web-01", last_seen_at=T0)
    heard = NoteHeard(host_id="web-01")

    told = [
        len(fleet_log.control.execute(item, command).facts)
        for item, command in (
            (note_heard, heard),
            (note_silence, silence),
            (note_silence, silence),
            (note_heard, heard),
            (note_heard, heard),
        )
    ]

    assert told == [0, 1, 0, 1, 0]
    assert fleet_log.host().silent_since is None
    assert differences(fleet_log.store, FOLDS) == []


def test_does_not_mark_a_host_silent_that_reported_meanwhile() -> None:
    command = NoteSilence(host_id="web-01", last_seen_at=T0)
    later = Liveness(host_id="web-01", last_seen_at=T0 + timedelta(seconds=1))

    assert decide_silence((host("web-01"), later), command, T0) == ()
    assert len(decide_silence((host("web-01"), None), command, T0)) == 1
    assert decide_silence((host("web-01", "retired"), None), command, T0) == ()
    assert decide_silence((None, None), command, T0) == ()


def test_folds_nothing_for_a_host_that_never_enrolled() -> None:
    with pytest.raises(IllegalTransition):
        step_host(None, fleet_facts.HostHeard(host_id="web-01", at=T0), T0)


# ── claims ────────────────────────────────────────────────────────────────────────────────────────


def test_refuses_labels_that_put_a_host_in_two_channels_of_a_package(fleet_log: FleetLog) -> None:
    fleet_log.channel("canary", "canary")
    fleet_log.channel("stable", "role=web")
    fleet_log.channel("other", "role=web", package="db")

    with pytest.raises(SelectorOverlap) as refusal:
        fleet_log.enroll(role="web", canary="yes")
    assert refusal.value.facts["channels"] == ("canary", "stable")
    fleet_log.enroll(role="web")
    with pytest.raises(SelectorOverlap):
        fleet_log.label(role="web", canary="yes")

    assert fleet_log.host().labels == {"role": "web"}
    assert differences(fleet_log.store, FOLDS) == []


def test_decides_again_on_labels_when_a_channel_claims_them_meanwhile(fleet_log: FleetLog) -> None:
    fleet_log.channel("stable", "role=web")
    fleet_log.enroll(role="web")
    rival = fleet_log.rival()
    fleet_log.committer.before.append(
        lambda: rival.execute(open_channel, created("canary", "canary"))
    )

    with pytest.raises(SelectorOverlap):
        fleet_log.label(role="web", canary="yes")
    assert fleet_log.host().labels == {"role": "web"}


def test_names_one_channel_of_each_package_that_claims_a_host() -> None:
    scopes = (
        ChannelScope("a", "web", "role=web"),
        ChannelScope("b", "web", "role=db"),
        ChannelScope("c", "db", "*"),
    )

    assert claims(scopes, "web-01", {"role": "web"}) == ["a", "c"]


def test_a_package_with_and_without_the_default_repository_is_the_same() -> None:
    scopes = [ChannelScope("a", "web", "*"), ChannelScope("b", "other/web", "*")]
    same = ChannelScope("c", "default/web", "*")

    with pytest.raises(SelectorOverlap):
        claims([*scopes, same], "one", {})
    with pytest.raises(SelectorOverlap):
        check_scope(scopes, same, [host("one")])
    assert claims(scopes, "one", {}) == ["a", "b"]


def test_a_channel_may_claim_only_hosts_that_no_sibling_claims() -> None:
    scopes = (ChannelScope("a", "web", "zone=a"), ChannelScope("b", "web", "zone=b"))
    hosts = [host("one", zone="a"), host("two", zone="b"), host("three", zone="c")]

    check_scope(scopes, ChannelScope("b", "web", "zone in (b,c)"), hosts)  # its own claim, edited
    check_scope(scopes, ChannelScope("c", "db", "*"), hosts)
    with pytest.raises(SelectorOverlap) as refusal:
        check_scope(scopes, ChannelScope("c", "web", "zone!=b"), hosts)
    assert refusal.value.facts["channels"] == ("a", "c")
    assert refusal.value.facts["host_id"] == "one"


@pytest.mark.parametrize(("status", "claimed"), [("revoked", True), ("retired", False)])
def test_a_revoked_host_keeps_its_channel(status: str, claimed: bool) -> None:
    scopes = (ChannelScope("a", "web", "*"),)
    rival = ChannelScope("b", "web", "*")

    if claimed:
        with pytest.raises(SelectorOverlap):
            check_scope(scopes, rival, [host("one", status)])
    else:
        check_scope(scopes, rival, [host("one", status)])


def test_steps_the_one_row_of_the_fleet_at_every_change_of_hosts_and_channels(
    fleet_log: FleetLog,
) -> None:
    fleet_log.channel("stable", "role=web")
    fleet_log.enroll(role="web")
    fleet_log.label(role="web", zone="a")
    fleet_log.leave(revoke_host, RevokeHost)
    fleet_log.leave(retire_host, RetireHost)

    assert fleet_log.fleet() == Fleet(
        channels=(ChannelScope("stable", "web", "role=web"),), hosts=0, changes=5
    )


def test_follows_a_channel_whose_claim_was_edited() -> None:
    known = step_fleet(Fleet(), created("b", "zone=b"), T0)
    known = step_fleet(known, created("a", "zone=a", edges=(ChannelEdge("b"),)), T0)
    edited = ChannelEdited(
        channel="b", operator="user_op", at=T0, selector="zone=c", policy=ChannelPolicy()
    )

    known = step_fleet(known, edited, T0)

    assert known.channels == (
        ChannelScope("a", "web", "zone=a", ("b",)),
        ChannelScope("b", "web", "zone=c"),
    )


def test_limits_the_number_of_channels() -> None:
    full = Fleet(tuple(ChannelScope(f"c{n}", "p", "*") for n in range(CHANNELS_MAX)))

    with pytest.raises(LimitExceeded):
        step_fleet(full, created("more", "*"), T0)


def test_refuses_channels_that_wait_for_each_other() -> None:
    scopes = (ChannelScope("a", "p", "*"), ChannelScope("b", "q", "*", ("a",)))

    def idle(channel: str) -> ChannelEdge:
        return ChannelEdge(channel, EdgeRequires.IDLE)

    check_edges(scopes, "c", "p", (ChannelEdge("a"), idle("b")))
    check_edges(scopes, "a", "p", ())
    with pytest.raises(MalformedPolicy, match="a → b → a"):
        check_edges(scopes, "a", "p", (idle("b"),))
    with pytest.raises(MalformedPolicy, match="a waits for x, which does not exist"):
        check_edges(scopes, "a", "p", (ChannelEdge("x"),))


@pytest.mark.req("OP-2", engines=None, reason="a pure function")
def test_refuses_a_success_edge_to_a_channel_of_another_package() -> None:
    scopes = (ChannelScope("db-prod", "db", "*"),)

    check_edges(scopes, "prod", "web", (ChannelEdge("db-prod", EdgeRequires.IDLE),))
    check_edges(scopes, "db-late", "default/db", (ChannelEdge("db-prod"),))
    with pytest.raises(MalformedPolicy) as refused:
        check_edges(scopes, "prod", "web", (ChannelEdge("db-prod"),))
    assert refused.value.detail == (
        "prod carries web, db-prod carries db: an edge between packages can only ask for an order; "
        'write {"channel": "db-prod", "require": "idle"}.'
    )


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────


def bounded(**changes: Any) -> SetBudget:
    said: dict[str, Any] = {"budget_id": "zone-a", "selector": "zone=a", "operator": "user_op"}
    return SetBudget(**said | changes)


def test_sets_changes_and_removes_a_budget_and_a_repeat_writes_nothing(fleet_log: FleetLog) -> None:
    told = [
        len(fleet_log.control.execute(item, command).facts)
        for item, command in (
            (set_budget, bounded(max_in_flight=2)),
            (set_budget, bounded(max_in_flight=2)),
            (set_budget, bounded(max_in_flight=3, max_in_flight_pct=10)),
            (remove_budget, RemoveBudget(budget_id="zone-a", operator="user_op")),
            (remove_budget, RemoveBudget(budget_id="zone-a", operator="user_op")),
            (set_budget, bounded(max_in_flight=2)),
        )
    ]

    assert told == [1, 0, 1, 1, 0, 1]
    assert fleet_log.row(budget_key("zone-a")) == Budget(
        budget_id="zone-a", selector="zone=a", max_in_flight=2
    )
    assert differences(fleet_log.store, FOLDS) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"budget_id": "Zone A"}, InvalidInput),
        ({"selector": "zone="}, InvalidSelector),
        ({"max_in_flight": 0}, InvalidInput),
        ({"max_in_flight_pct": 0}, InvalidInput),
        ({"max_in_flight_pct": 101}, InvalidInput),
        ({"operator": ""}, InvalidInput),
    ],
)
def test_refuses_a_malformed_budget(
    fleet_log: FleetLog, change: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        fleet_log.control.execute(set_budget, bounded(**change))


def test_cannot_remove_a_missing_budget(fleet_log: FleetLog) -> None:
    with pytest.raises(BudgetNotFound):
        fleet_log.control.execute(remove_budget, RemoveBudget(budget_id="x", operator="user_op"))


# ── facts that hosts report about themselves ──────────────────────────────────────────────────────


def test_reported_facts_become_labels_in_addition_to_those_of_operators(
    fleet_log: FleetLog,
) -> None:
    fleet_log.enroll(app="web")

    assert fleet_log.note(arch="aarch64", os="debian") == 1
    assert fleet_log.note(arch="aarch64", os="debian") == 0

    assert fleet_log.host().labels == {
        "app": "web",
        "fact/arch": "aarch64",
        "fact/os": "debian",
    }
    assert differences(fleet_log.store, FOLDS) == []


def test_skips_a_value_that_no_label_can_have(fleet_log: FleetLog) -> None:
    fleet_log.enroll()

    fleet_log.note(arch="a b", os="debian")

    assert fleet_log.host().labels == {"fact/os": "debian"}


def test_operators_cannot_set_or_remove_labels_that_the_host_reports(fleet_log: FleetLog) -> None:
    fleet_log.enroll(app="web")
    fleet_log.note(arch="x86_64")

    for labels in ({"fact/arch": "aarch64"}, {"fact/os": "debian"}):
        with pytest.raises(InvalidLabel, match="comes from the host itself"):
            fleet_log.label(**labels)
    assert fleet_log.label(app="db", **{"fact/arch": "x86_64"}) == 1  # sent back as it was read
    assert fleet_log.host().labels == {"app": "db", "fact/arch": "x86_64"}
    assert fleet_log.label() == 1
    assert fleet_log.host().labels == {"fact/arch": "x86_64"}
    with pytest.raises(InvalidLabel):
        fleet_log.enroll("web-02", OTHER_KEY, **{"fact/arch": "aarch64"})


def test_limits_how_often_a_host_changes_its_own_labels(fleet_log: FleetLog) -> None:
    fleet_log.enroll()
    fleet_log.note(arch="x86_64", os="debian")

    assert fleet_log.note(arch="aarch64", os="debian") == 0
    assert fleet_log.note(os="debian") == 1  # a key that is no longer allowed is removed at once
    fleet_log.clock.advance(FACTS_EVERY)
    assert fleet_log.note(arch="aarch64", os="debian") == 1

    assert fleet_log.host().labels == {"fact/arch": "aarch64", "fact/os": "debian"}


def test_reported_facts_put_no_host_into_two_channels_of_a_package(fleet_log: FleetLog) -> None:
    fleet_log.channel("all", "app=web")
    fleet_log.channel("arm", "fact/arch=aarch64")
    fleet_log.enroll(app="web")

    with pytest.raises(SelectorOverlap):
        fleet_log.note(arch="aarch64")

    assert fleet_log.host().labels == {"app": "web"}


def test_a_host_that_enrolls_again_must_report_its_facts_again(fleet_log: FleetLog) -> None:
    fleet_log.enroll(app="web")
    fleet_log.note(arch="x86_64")
    fleet_log.leave(revoke_host, RevokeHost)

    fleet_log.control.execute(enroll_host, EnrollHost(host_id="web-01", public_key=OTHER_KEY))

    assert fleet_log.host().labels == {"app": "web"}
    assert fleet_log.host().facts_at is None


# ── agents that are too old ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("found", "is_old"),
    [
        *(("0.0.9", True), ("0.1.0", False), ("0.1.1rc1", False), ("1", False), ("10.2", False)),
        *(("", False), ("mine", False), ("v2", False)),  # of another rollout
    ],
)
def test_compares_agent_versions_by_number(
    found: str, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_versions, "AGENT_VERSION_MIN", "0.1.0")

    assert agent_versions.is_too_old(found) is is_old


def test_the_first_few_hosts_with_old_agents_are_named() -> None:
    said = agent_versions.old_agents_text([f"h-{number}" for number in range(7)])

    assert said.startswith("7 hosts run an agent older than ")
    assert said.endswith(": h-0, h-1, h-2, h-3, h-4, …")
