"""The fleet on every engine: one journey through the real control parts, and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tests.contract.address import address_of
from tests.contract.in_process_fleet import (
    AGAIN,
    CORE,
    CORE_NEXT,
    FIRST,
    LONE,
    RETENTION,
    SECOND,
    SOAK,
    T0,
    FleetStores,
    InProcessFleet,
    play_journey,
    rows,
)
from tests.domain.registry import digest_of
from tidegate.control.fleet.reader import FleetReader
from tidegate.domain.channels.refusals import SupersessionExpected
from tidegate.domain.channels.rows import CHANNELS, QUARANTINE, quarantine_key
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.hosts.facts import ActivationFailed, HostJoined, HostStateChanged
from tidegate.domain.hosts.refusals import ClosureQuarantined, RolloutIsPruned, RolloutUnknown
from tidegate.domain.hosts.report_json import event_from_json
from tidegate.domain.hosts.rows import HOST_RECORDS, PROBE_FAILURES
from tidegate.domain.rollouts.clearance import clear_rollout
from tidegate.domain.rollouts.effects import (
    InsertQuarantineFromRollout,
    RecordRolloutTransition,
    RolloutEffect,
    SchedulePruning,
    UpdateCurrentWave,
    apply_effects,
)
from tidegate.domain.rollouts.facts import (
    OperatorClearance,
    RetentionExpired,
    RolloutOpened,
    RolloutTerminal,
    RolloutTransitioned,
    SuccessorOpened,
    WaveAdvanced,
)
from tidegate.domain.rollouts.machine import step
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.domain.rollouts.rows import (
    ROLLOUTS,
    TALLIES,
    Rollout,
    RolloutTally,
    rollout_key,
    tally_key,
)
from tidegate.domain.rollouts.states import Clearance
from tidegate.domain.rollouts.transitions import RolloutEvent
from tidegate.engines.memory import MemoryStore
from tidegate.errors import IllegalTransition, InvalidInput, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.model import Commit, Put
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice

EVENTS: dict[type[Struct], set[str]] = {  # the seed's eight, and its members
    RolloutOpened: {"rollout_id", "channel", "target_ref", "at"},
    HostJoined: {"rollout_id", "host_id", "wave", "at"},
    HostStateChanged: {"rollout_id", "host_id", "from", "to", "at"},
    WaveAdvanced: {"rollout_id", "from_wave", "to_wave", "at"},
    RolloutTerminal: {"rollout_id", "at"},
    SuccessorOpened: {"superseded_rollout_id", "successor_rollout_id", "at"},
    RetentionExpired: {"rollout_id", "at"},
    OperatorClearance: {"rollout_id", "operator", "reason", "at"},
}


@pytest.fixture(scope="module")
def fleet_stores(
    request: pytest.FixtureRequest, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FleetStores]:
    with closing(
        FleetStores(address_of(request, engine, tmp_path_factory.mktemp("fleet")))
    ) as fleet_stores:
        yield fleet_stores


@pytest.fixture(scope="module")
def journey(fleet_stores: FleetStores) -> InProcessFleet:
    """A fleet after its journey. Tests that use it only read, or are refused."""
    return play_journey(InProcessFleet(fleet_stores.open()))


def values(fleet: InProcessFleet, *kinds: type[Struct]) -> list[Any]:
    names = {kind.__name__ for kind in kinds}
    vocabulary = SCHEMA.vocabulary
    return [vocabulary.value(event) for event in fleet.log() if event.type in names]


@contextmanager
def untouched(fleet: InProcessFleet) -> Iterator[None]:
    """Check that the test leaves no trace: no fact, and no row of any collection."""
    before = rows(fleet.store), fleet.types()
    yield
    assert (rows(fleet.store), fleet.types()) == before


def refused(error: type[TidegateError], run: Callable[..., Any], *args: Any) -> TidegateError:
    with pytest.raises(error) as refusal:
        run(*args)
    return refusal.value


# ── what happened ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-6")
def test_produces_every_event_of_the_seed_with_its_members(journey: InProcessFleet) -> None:
    for kind, members in EVENTS.items():
        found = [event for event in journey.log() if event.type == kind.__name__]
        assert found, kind
        for event in found:
            assert event.kind == "rollout_event"
            assert members <= set(msgspec.json.decode(event.body))


@pytest.mark.req("RO-6", "RO-7", "RO-15")
def test_writes_the_rows_of_an_effect_in_the_commit_of_its_event(
    journey: InProcessFleet,
) -> None:
    """The log is replayed, event by event, to see which effects each one had."""
    tallies: dict[str, RolloutTally | None] = {}
    seen: set[type] = set()
    positions = iter(journey.log())

    for commit in journey.commits:
        for fact in commit.facts:
            event = next(positions)
            assert (event.type, event.body) == (fact.type, fact.body)
            value = SCHEMA.vocabulary.value(event)
            if not isinstance(value, RolloutEvent):
                continue
            rollout_id = getattr(value, "rollout_id", None) or value.superseded_rollout_id  # type: ignore[union-attr]
            stepped, effects = step(tallies.get(rollout_id), value, event.at)
            tallies[rollout_id], _ = apply_effects(stepped, effects, value, event.at)
            for effect in effects:
                if isinstance(effect, RolloutEffect):
                    seen.add(type(effect))
                    _check_row(commit, effect)

    assert seen == {
        RecordRolloutTransition,
        UpdateCurrentWave,
        InsertQuarantineFromRollout,
        SchedulePruning,
    }


def _check_row(commit: Commit, effect: RolloutEffect) -> None:
    puts = {write.key: write for write in commit.writes if isinstance(write, Put)}
    match effect:
        case RecordRolloutTransition(rollout_id=rollout_id, to=to):
            entered = [
                value.to
                for fact in commit.facts
                if fact.type == RolloutTransitioned.__name__
                and (value := codec.decode(fact.body, RolloutTransitioned)).rollout_id == rollout_id
            ]
            assert to in entered
            assert codec.decode(puts[rollout_key(rollout_id)].data, Rollout).state is entered[-1]
        case UpdateCurrentWave(rollout_id, wave):
            row = codec.decode(puts[rollout_key(rollout_id)].data, Rollout)
            assert row.current_wave == wave
        case InsertQuarantineFromRollout(channel, closure_hash):
            put = puts[quarantine_key(channel, closure_hash)]
            assert put.fact is not None
            assert commit.facts[put.fact].type == "RollbackComplete"
        case SchedulePruning(rollout_id, delay):
            tally = codec.decode(puts[tally_key(rollout_id)].data, RolloutTally)
            assert tally.due_at == commit.at + delay


@pytest.mark.req("RO-12", "RO-3")
def test_proceeds_wave_by_wave_and_ends_when_the_last_host_is_done(journey: InProcessFleet) -> None:
    states = {
        id: [row.to.value for row in values(journey, RolloutTransitioned) if row.rollout_id == id]
        for id in (FIRST, SECOND, CORE, LONE)
    }

    assert states == {
        FIRST: ["Active", "Converging", "Active", "Converging", "Terminal", "Superseded", "Pruned"],
        SECOND: ["Active", "Reverted", "Active", "Reverted", "Superseded", "Pruned"],
        CORE: ["Active", "Failed", "Converging", "Terminal", "Superseded", "Pruned"],
        LONE: ["Terminal", "Pruned"],
    }
    story: list[tuple[str, Any]] = [
        (event.type, SCHEMA.vocabulary.value(event))
        for event in journey.log()
        if f"rollout_id:{FIRST}" in event.tags
    ]
    advanced = next(n for n, (name, _) in enumerate(story) if name == "WaveAdvanced")
    reserved = [(n, value) for n, (name, value) in enumerate(story) if name == "DispatchReserved"]
    assert [(value.host_id, n > advanced) for n, value in reserved] == [
        ("e1", False),
        ("e2", True),
        ("e3", True),
    ]
    completed = {v.host_id: v.at for n, v in story if n == "ActivationCompleted"}
    passed = {v.host_id: v for n, v in story if n == "ProbeResult" and v.status == "pass"}
    for name, value in story:
        if name == "Converged":
            assert value.at - completed[value.host_id] >= timedelta(seconds=SOAK)
            assert value.host_id in passed
    assert [name for name, _ in story].count("RolloutTerminal") == 1
    for expired in values(journey, RetentionExpired):
        over = journey.rollout(expired.rollout_id)
        kept_from = max(at for at in (over.terminal_at, over.superseded_at) if at is not None)
        assert expired.at - kept_from >= timedelta(seconds=RETENTION)


@pytest.mark.req("RO-4")
def test_supersedes_before_opening_and_refuses_to_open_on_a_busy_channel(
    journey: InProcessFleet,
) -> None:
    commits = [[fact.type for fact in commit.facts] for commit in journey.commits]
    opened = [types for types in commits if "SuccessorOpened" in types]
    expected = ["ReleaseTransitioned", "SuccessorOpened", "RolloutTransitioned", "RolloutOpened"]
    assert [types[:4] for types in opened] == 2 * [expected]
    assert {word for types in opened for word in types[4:]} <= {"RollbackRungsChanged"}

    def open_beside() -> None:
        (first,) = [row for row in values(journey, RolloutOpened) if row.rollout_id == AGAIN]
        fact = msgspec.structs.replace(first, rollout_id="edge@web.9", target_ref="web.9")
        alone = Slice(
            name="open-alone",
            command=RolloutOpened,
            writes=(RolloutOpened,),
            rows=lambda command: (),
            decide=lambda rows, command, now: (command,),
        )
        journey.execute(alone, fact)

    with untouched(journey):
        refusal = refused(SupersessionExpected, open_beside)
    assert refusal.facts["active_rollout_id"] == AGAIN


@pytest.mark.req("RO-5", "RO-12")
def test_prunes_finished_rollouts_and_keeps_their_rows_readable(journey: InProcessFleet) -> None:
    """The journey itself requires that edges release on Terminal and on Superseded."""
    assert {
        id: journey.state(id).value for id in (FIRST, SECOND, CORE, LONE, AGAIN, CORE_NEXT)
    } == {
        **dict.fromkeys((FIRST, SECOND, CORE, LONE), "Pruned"),
        **dict.fromkeys((AGAIN, CORE_NEXT), "Active"),
    }
    row = journey.rollout(FIRST)
    assert row.terminal_at is not None
    assert row.superseded_at is not None
    assert (row.superseded_by, row.in_flight) == (SECOND, None)
    assert row.pruned_at == T0 + timedelta(seconds=2 * SOAK + 2 * RETENTION)

    with untouched(journey):
        refused(RolloutIsPruned, partial(journey.say, ActivationFailed, FIRST, "e1", exit_code=1))
        for mode in Clearance:
            hosts = ("e1",) if mode is Clearance.WAIVE else ()
            command = journey.clearance(SECOND, mode, *hosts)
            refused(RolloutIsPruned, journey.execute, clear_rollout, command)


@pytest.mark.req("RO-9", "RO-22")
def test_derives_the_same_rollout_id_on_every_machine(
    journey: InProcessFleet,
) -> None:
    found = {
        row.rollout_id: (row.channel, row.target_ref)
        for record in journey.store.range(ROLLOUTS.name, limit=99)
        for row in [codec.decode(record.data, Rollout)]
    }
    assert found == {
        FIRST: ("edge", "web.1"),
        AGAIN: ("edge", "web.1"),
        SECOND: ("edge", "web.2"),
        CORE: ("core", "web.1"),
        CORE_NEXT: ("core", "web.2"),
        LONE: ("lone", "web.1"),
    }
    for event in journey.log():
        tagged = [tag for tag in event.tags if tag.startswith("rollout_id:")]
        said = msgspec.json.decode(event.body)
        named = said.get("rollout_id") or said.get("superseded_rollout_id")
        assert tagged == ([f"rollout_id:{named}"] if named else [])

    assert journey.rollout(CORE).display_name == "spring"
    assert journey.store.get(rollout_key("spring")) == (None,)
    with pytest.raises(RolloutUnknown):
        FleetReader(journey.store, journey.blobs).tally("spring")

    elsewhere = play_journey(InProcessFleet(MemoryStore(SCHEMA)))
    assert [(e.type, e.tags, e.body) for e in elsewhere.log()] == [
        (e.type, e.tags, e.body) for e in journey.log()
    ]


@pytest.mark.req("RO-10", "RO-16")
def test_quarantines_once_per_channel_and_artifact_since_the_last_lift(
    journey: InProcessFleet,
) -> None:
    rolled_back = [e.position for e in journey.log() if e.type == "RollbackComplete"]
    (lifted,) = [e.position for e in journey.log() if e.type == "QuarantineLifted"]
    assert rolled_back[0] < lifted < rolled_back[1]

    (record,) = journey.store.range(QUARANTINE.name, limit=9)
    assert record.key == quarantine_key("edge", digest_of("web.2"))
    shown = {name: getattr(record, stamp) for name, stamp in QUARANTINE.stamps.items()}
    assert shown == {"triggering_event_log_seq": rolled_back[1]}
    assert journey.store.range(QUARANTINE.name, index="by_channel", prefix="edge", limit=9) == (
        record,
    )

    with untouched(journey):
        refusal = refused(ClosureQuarantined, journey.promote, "edge", "web.2")
    assert (refusal.facts["channel"], refusal.facts["host_id"]) == ("edge", "e1")
    assert journey.rollout(CORE_NEXT).target_closure == digest_of("web.2"), (
        "it applies to edge alone"
    )


# ── one report, one commit ────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-11")
def test_writes_report_probe_failure_and_record_then_state_change_and_rollout(
    journey: InProcessFleet,
) -> None:
    def written(*types: str) -> dict[str, str]:
        """Return, per collection, the fact that its row comes from, in the first commit of these
        facts.
        """
        commit = next(c for c in journey.commits if tuple(fact.type for fact in c.facts) == types)
        return {
            write.key.collection: commit.facts[write.fact].type
            for write in commit.writes
            if isinstance(write, Put) and write.fact is not None
        }

    assert written("ProbeResult") == {
        PROBE_FAILURES.name: "ProbeResult",
        HOST_RECORDS.name: "ProbeResult",
    }
    moved = written("RollbackComplete", "HostStateChanged", "RolloutTransitioned")
    assert moved == {
        HOST_RECORDS.name: "RollbackComplete",
        QUARANTINE.name: "RollbackComplete",
        TALLIES.name: "HostStateChanged",
        ROLLOUTS.name: "RolloutTransitioned",
        CHANNELS.name: "RolloutTransitioned",
    }
    kinds = {event.type: event.kind for event in journey.log()}
    assert (kinds["Converged"], kinds["HostStateChanged"]) == ("agent_event", "rollout_event")
    for one, next_one in pairwise(journey.log()):
        if next_one.type == "HostStateChanged":
            assert one.kind in ("agent_event", "plan_action")
            assert next_one.position == one.position + 1
    assert differences(journey.store, FOLDS) == []


# ── permissions ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RO-18")
def test_clears_only_failures_and_only_with_a_name_and_a_reason(journey: InProcessFleet) -> None:
    said = values(journey, OperatorClearance)
    assert [(one.rollout_id, one.mode.value, one.operator, one.reason) for one in said] == [
        (CORE, "waive", "user_1", "looked at it"),
        (SECOND, "resume", "user_1", "looked at it"),
        (SECOND, "abandon", "user_1", "looked at it"),
    ]
    with untouched(journey):
        for mode in Clearance:
            hosts = ("e1",) if mode is Clearance.WAIVE else ()
            command = journey.clearance(AGAIN, mode, *hosts)
            refusal = refused(IllegalTransition, journey.execute, clear_rollout, command)
            assert refusal.facts["state"] == "Active"
            for empty in ({"operator": ""}, {"reason": ""}, {"reason": "  "}):
                command = journey.clearance(AGAIN, mode, *hosts, **empty)
                refused(InvalidInput, journey.execute, clear_rollout, command)


@pytest.mark.req("RO-19")
def test_refuses_rollout_events_from_an_agent(journey: InProcessFleet) -> None:
    with untouched(journey):
        for kind in EVENTS:
            event = values(journey, kind)[0]
            content = {"kind": kind.__name__, **codec.decode(codec.encode(event), dict)}
            refused(InvalidInput, event_from_json, content)
            command = ReportEvent(rollout_id=AGAIN, host_id="e1", event=event)
            refused(
                InvalidInput,
                journey.control_plane.lanes.record(AGAIN, report_event, command).result,
            )
