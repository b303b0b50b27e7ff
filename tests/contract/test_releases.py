"""The release registry on every engine: one commit per change, and nothing of a refused one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from os import _exit
from typing import Any, cast

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.child_processes import CHILDREN
from tests.contract.address import Address
from tests.domain.documents import authorises, generated
from tests.domain.registry import (
    ACCEPTED,
    FOLDS,
    SCHEMA,
    SCOPE,
    T0,
    OfferRelease,
    digest_of,
    manifest,
    offer_release,
    operator,
    register,
    retire,
    transition,
)
from tests.domain.spoilt_documents import REJECTIONS, Spoil, spoilt
from tidegate.clock import ManualClock
from tidegate.control.queries import history
from tidegate.control.runtime import Control
from tidegate.domain.outbox.rows import OUTBOX
from tidegate.domain.packages.refusals import DigestMismatch
from tidegate.domain.provenance import RejectedEvidence
from tidegate.domain.releases.evidence import KeepEvidence
from tidegate.domain.releases.facts import PinStatus
from tidegate.domain.releases.refusals import DuplicateEvent, ReleaseNotPinnable
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.rows import (
    ACTUAL,
    COMMANDS,
    EVENTS,
    EVIDENCE,
    Actual,
    ExecutedCommand,
    KeptEvidence,
    ReleaseEvent,
    actual_key,
)
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.errors import (
    ConditionFailed,
    IllegalTransition,
    ImmutableRecord,
    InvalidInput,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    StaleVersion,
    TidegateError,
    VersionRequired,
)
from tidegate.kernel import codec
from tidegate.kernel.model import ALL, Commit, Receipt
from tidegate.kernel.records.actions import CreateRow, DeleteRow, PutRow, UpdateRow
from tidegate.kernel.records.records import RawRecords, Records
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

pytestmark = pytest.mark.in_turn

RACERS = 8
GENERATED = 1_000
ROWS_MAX = 500


@pytest.fixture
def open_store(address: Address | None) -> Iterator[Callable[[], Store]]:
    """Open handles on this test's log. Memory has one."""
    memory = MemoryStore(SCHEMA)
    with ExitStack() as handles:

        def opened() -> Store:
            if address is None:
                return memory
            return handles.enter_context(closing(address.open(SCHEMA)))

        yield opened


@pytest.fixture
def control(open_store: Callable[[], Store]) -> Iterator[Control]:
    """A registry with two released packages."""
    store = open_store()
    with closing(GroupCommit(store)) as writer:
        control = Control(store, FOLDS, writer.submit, clock=ManualClock(T0))
        for release_id in ("rel_001", "rel_002"):
            control.execute(offer_release, OfferRelease(release_id, digest_of(release_id)))
        yield control
        assert differences(store, FOLDS) == []


def execute_all(control: Control, *commands: Struct) -> None:
    for command in commands:
        control.execute(VERBS[type(command)], command)


VERBS: dict[type, Slice] = {item.command: item for item in BUILT_IN.slices}


def rows(store: Store, *names: str) -> dict[str, bytes]:
    """Return every row of the registry, or of some of its collections, as stored."""
    wanted = names or tuple(fold.collection.name for fold in FOLDS.folds)
    return {
        str(record.key): record.data
        for name in wanted
        for record in store.range(name, limit=ROWS_MAX)
    }


def event_types(control: Control) -> list[str]:
    return [event.type for event in control.store.read(ALL).events]


def current(control: Control, scope: str = SCOPE) -> Actual:
    return cast(Actual, history.find_actual(control.store, scope).value)


def refused(control: Control, command: Struct, error: type[TidegateError]) -> TidegateError:
    """Run a command, and check that its refusal changes nothing."""
    before = rows(control.store), event_types(control)

    with pytest.raises(error) as refusal:
        control.execute(VERBS[type(command)], command)

    assert type(refusal.value) is error
    assert (rows(control.store), event_types(control)) == before
    return refusal.value


# ── shape ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-4")
def test_keeps_one_actual_row_and_write_once_history_rows(control: Control) -> None:
    """ "PK = RELEASE#service-a, SK = ACTUAL", EVENT#…, EVIDENCE#…, OUTBOX#…"""
    execute_all(
        control,
        register(),
        transition("rel_002", 0, "c1", operations=("lambda-alias",)),
        manifest("sha256:none"),
    )

    found = rows(control.store, ACTUAL.name, EVENTS.name, EVIDENCE.name, OUTBOX.name)
    assert sorted(key.partition("/")[2] for key in found) == [
        "RELEASE#service-a/ACTUAL",
        "RELEASE#service-a/EVENT#2026-04-24T19:00:02.000000Z#rel_001#c0",
        "RELEASE#service-a/EVENT#2026-04-24T19:00:02.000000Z#rel_002#c1",
        "RELEASE#service-a/EVIDENCE#factory#batch-2026-04-24",
        "RELEASE#service-a/OUTBOX#lambda-alias#rel_002#c1",
    ]
    assert msgspec.json.decode(found[str(actual_key(SCOPE))]) == {
        "scope": "service-a",
        "status": "active",
        "pinnedReleaseId": "rel_002",
        "previousReleaseId": "rel_001",
        "digest": digest_of("rel_002"),
        "version": 1,
        "updatedAt": "2026-04-24T19:00:02.000000Z",
        **ACCEPTED,
    }


@pytest.mark.req("RS-4", "RS-14")
@pytest.mark.parametrize("collection", [item.name for item in (ACTUAL, EVENTS, EVIDENCE, COMMANDS)])
def test_no_generic_or_raw_call_may_change_its_rows(control: Control, collection: str) -> None:
    execute_all(control, register(), manifest("sha256:none"))
    records = Records(control.store, lambda: T0)
    (record, *_) = control.store.range(collection, limit=1)
    id, model = record.key.id, SCHEMA.collection(collection).model
    value = codec.decode(record.data, model)
    before = rows(control.store)

    for act in (
        lambda: records.create(collection, "x", value),
        lambda: records.put(collection, id, value),
        lambda: records.save(collection, id, value),
        lambda: records.update(collection, id, {"notes": "probably manifest A"}),
        lambda: records.update(collection, id, {"pinnedReleaseId": "rel_002"}),
        lambda: records.delete(collection, id),
        lambda: records.batch(PutRow(collection, id, value)),
        lambda: records.batch(DeleteRow(collection, id)),
        lambda: records.transaction(CreateRow(collection, "x", value)),
        lambda: records.transaction(UpdateRow(collection, id, {"status": "warming"})),
        lambda: RawRecords(control.store, lambda: T0).put(
            collection, id, value, reason="because", actor="user_1"
        ),
        lambda: RawRecords(control.store, lambda: T0).delete(
            collection, id, reason="because", actor="user_1"
        ),
    ):
        with pytest.raises(ImmutableRecord):
            act()

    assert rows(control.store) == before


@pytest.mark.req("RS-14")
def test_no_verb_accepts_free_text_on_actual(control: Control) -> None:
    """ "Free-form notes are not deploy authority." """
    refused(control, register(authority={**operator("rel_001"), "notes": "x"}), InvalidInput)
    execute_all(control, register())
    noted = {**ACCEPTED, "notes": "operator thought this probably came from manifest A"}

    refused(control, transition("rel_002", 0, "c1", authority=noted), InvalidInput)
    for part in ("provenance", "confidence"):
        document = {**ACCEPTED, part: {**ACCEPTED[part], "notes": "x"}}
        refused(control, transition("rel_002", 0, "c1", authority=document), InvalidInput)
    (record,) = control.store.get(actual_key(SCOPE))
    assert record is not None
    with pytest.raises(InvalidInput):
        codec.decode(record.data[:-1] + b',"notes":"x"}', Actual)


# ── transitions ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-5")
def test_changes_state_event_and_outbox_in_one_commit(control: Control) -> None:
    """ "both internal rows commit, or neither commits" """
    execute_all(control, register())

    command = transition("rel_002", 0, "c1", operations=("dns", "lambda-alias"))
    outcome = control.execute(BUILT_IN.transition, command)

    assert outcome.receipt is not None
    written = range(outcome.receipt.first, outcome.receipt.last + 1)
    (changed,) = control.store.get(actual_key(SCOPE))
    assert changed is not None
    assert changed.version in written
    (event,) = [
        row for row in history.list_events(control.store, SCOPE, limit=9) if row.born in written
    ]
    assert event.value == ReleaseEvent(
        scope=SCOPE,
        event_type="promoted",  # type: ignore[arg-type]
        release_id="rel_002",
        previous_release_id="rel_001",
        status=PinStatus.ACTIVE,
        registry_version=1,
        recorded_at=T0,
        command_id="c1",
        by="user_1",
        digest=digest_of("rel_002"),
        provenance=current(control).provenance,
        confidence=current(control).confidence,
    )
    owed = history.list_intents(control.store, SCOPE, limit=9)
    assert [row.born in written for row in owed] == [True, True]
    assert [row.value.idempotency_key for row in owed] == [
        "service-a:rel_002:dns:1",
        "service-a:rel_002:lambda-alias:1",
    ]


@pytest.mark.req("RS-5")
def test_counts_versions_from_0_and_requires_the_current_one(control: Control) -> None:
    execute_all(control, register())
    assert current(control).version == 0

    refused(control, transition("rel_002", None, "c1"), VersionRequired)
    stale = refused(control, transition("rel_002", 1, "c1"), StaleVersion)
    assert (stale.code, stale.facts) == ("version_conflict", {"expected": 1, "current": 0})
    refused(control, transition("rel_002", 0, "c1", scope="service-b"), NotFound)
    refused(control, register(command_id="c9"), ConditionFailed)
    execute_all(control, transition("rel_002", 0, "c1"), transition("rel_001", 1, "c2"))

    assert current(control).version == 2
    refused(control, transition("rel_002", 1, "c3"), StaleVersion)


@pytest.mark.req("RS-5")
def test_distinguishes_a_used_command_id_from_a_stale_version(control: Control) -> None:
    execute_all(control, register(), transition("rel_002", 0, "c1"))

    used = refused(control, transition("rel_001", 1, "c1"), DuplicateEvent)

    assert used.code == "duplicate_event"
    assert used.facts["row"] == "RELEASE#service-a/EVENT#2026-04-24T19:00:02.000000Z#rel_002#c1"


@pytest.mark.req("RS-5")
def test_answers_a_repeat_with_the_result_of_the_first_call(control: Control) -> None:
    command = transition("rel_002", 0, "c1", operations=("dns",))
    execute_all(control, register(), command, transition("rel_001", 1, "c2"))
    before = rows(control.store), event_types(control)
    cast(ManualClock, control.clock).advance(timedelta(days=60))

    again = control.execute(BUILT_IN.transition, command)

    assert again.receipt is None
    assert (rows(control.store), event_types(control)) == before
    done = cast(ExecutedCommand, history.find_outcome(control.store, SCOPE, "c1").value)
    assert done.registry_version == 1
    assert done.row.endswith("#rel_002#c1")
    with pytest.raises(NotFound):
        history.find_outcome(control.store, SCOPE, "c7")


@pytest.mark.req("RS-5")
def test_pins_only_a_published_release_by_its_digest(control: Control) -> None:
    execute_all(control, register())
    refused(control, transition("rel_404", 0, "c1"), NotFound)
    refused(control, transition("rel_002", 0, "c1", digest="sha256:00"), DigestMismatch)

    ending = OfferRelease("rel_002", digest_of("rel_002"), "Terminating")
    control.execute(offer_release, ending)

    refused(control, transition("rel_002", 0, "c1"), ReleaseNotPinnable)
    assert current(control).pinned_release_id == "rel_001"


@pytest.mark.req("RS-5")
def test_retires_a_scope_and_deletes_nothing(control: Control) -> None:
    execute_all(control, register(), transition("rel_002", 0, "c1"))
    refused(control, retire(None, "c2"), VersionRequired)
    refused(control, retire(0, "c2"), StaleVersion)

    execute_all(control, retire(1, "c2"))

    row = current(control)
    assert (row.status, row.version, row.pinned_release_id) == (PinStatus.RETIRED, 2, "rel_002")
    assert len(history.list_events(control.store, SCOPE, limit=9)) == 3
    refused(control, transition("rel_001", 2, "c3"), IllegalTransition)
    refused(control, retire(2, "c4"), IllegalTransition)


# ── authority ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-6", "RS-15")
def test_reads_accepted_documents_back_unchanged(control: Control) -> None:
    execute_all(control, register(), transition("rel_002", 0, "c1", authority=ACCEPTED))

    (record,) = control.store.get(actual_key(SCOPE))
    assert record is not None
    row = msgspec.json.decode(record.data)
    assert {name: row[name] for name in ("provenance", "confidence")} == ACCEPTED


@pytest.mark.req("RS-6", "RS-15")
def test_refuses_documents_with_any_one_rule_broken(control: Control) -> None:
    """Every rejection, on register and on transition; nothing is written."""
    execute_all(control, register())
    before = rows(control.store), event_types(control)

    def judged(spoil: Spoil, expected: type[TidegateError]) -> None:
        document = spoilt(spoil)
        for command in (
            transition("rel_002", 0, "c1", authority=document),
            register("rel_002", scope="service-z", authority=document),
        ):
            with pytest.raises(expected):
                control.execute(VERBS[type(command)], command)

    for _, _, spoil, error in REJECTIONS:
        judged(spoil, error)
    assert (rows(control.store), event_types(control)) == before


@pytest.mark.req("RS-6", "RS-15")
def test_no_generated_document_that_breaks_a_rule_reaches_an_actual_row(
    control: Control,
) -> None:
    digest = digest_of("rel_002")

    def subject(number: int) -> tuple[str, str, str]:
        return f"scope-{number}", "rel_002", digest

    accepted = set()
    for number, document in enumerate(generated(GENERATED, subject)):
        command = register("rel_002", scope=f"scope-{number}", authority=document)
        try:
            control.execute(BUILT_IN.register, command)
        except (InvalidInput, LimitExceeded, RejectedEvidence):
            assert not authorises(document, *subject(number), T0), document
        else:
            assert authorises(document, *subject(number), T0), document
            accepted.add(f"RELEASE#scope-{number}/ACTUAL")
            (row,) = control.store.get(actual_key(f"scope-{number}"))
            assert row is not None
            assert {**msgspec.json.decode(row.data), **document} == msgspec.json.decode(row.data)

    found = {key.partition("/")[2] for key in rows(control.store, ACTUAL.name)}
    assert found == accepted
    assert 100 < len(accepted) < 700


# ── evidence ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-7")
def test_refuses_ambiguous_evidence_on_the_row_and_keeps_it_as_evidence(control: Control) -> None:
    """ "If import evidence is ambiguous, preserve it as immutable evidence/event rows." """
    execute_all(control, register())
    entry = ACCEPTED["provenance"]["evidence"][0]
    conflicting = [entry, {**entry, "ref": "operator://deploy/service-a/rel_001"}]
    ambiguous = {**ACCEPTED, "provenance": {**ACCEPTED["provenance"], "evidence": conflicting}}
    before = rows(control.store, ACTUAL.name)

    refused(control, transition("rel_002", 0, "c1", authority=ambiguous), RejectedEvidence)
    keep = KeepEvidence(
        scope=SCOPE,
        source="console",
        batch="b1",
        document=ambiguous,
        command_id="k1",
        by="user_1",
    )
    execute_all(control, keep, keep, replace(keep, command_id="k2"))

    (kept,) = history.list_evidence(control.store, SCOPE, limit=9)
    assert kept.value == KeptEvidence(
        scope=SCOPE,
        source="console",
        batch="b1",
        authority=False,
        document=ambiguous,
        reason=kept.value.reason,
        recorded_at=T0,
        command_id="k1",
        by="user_1",
    )
    assert "conflicts" in kept.value.reason
    assert rows(control.store, ACTUAL.name) == before
    other = replace(keep, command_id="k3", document={"another": "thing"})
    refused(control, other, DuplicateEvent)


@pytest.mark.req("RS-17")
def test_a_manifest_becomes_authoritative_only_if_it_matches_one_release(control: Control) -> None:
    execute_all(control, register())
    twin = OfferRelease("rel_009", digest_of("rel_001"))
    control.execute(offer_release, twin)
    before = rows(control.store, ACTUAL.name, EVENTS.name)

    none = manifest("sha256:none", batch="b-none", command_id="m1", expected_version=0)
    several = manifest(digest_of("rel_001"), batch="b-two", command_id="m2", expected_version=0)
    execute_all(control, none, several)

    assert rows(control.store, ACTUAL.name, EVENTS.name) == before
    kept = history.list_evidence(control.store, SCOPE, limit=9)
    assert [(row.key.id, row.value.matches, row.value.authority) for row in kept] == [
        ("RELEASE#service-a/EVIDENCE#factory#b-none", (), False),
        ("RELEASE#service-a/EVIDENCE#factory#b-two", ("rel_001", "rel_009"), False),
    ]

    one = manifest(digest_of("rel_002"), "sha256:none", batch="b-one", command_id="m3")
    refused(control, one, VersionRequired)
    one = replace(one, expected_version=0)
    execute_all(control, one, one)

    row = current(control)
    assert (row.pinned_release_id, row.version) == ("rel_002", 1)
    assert row.confidence.reasons == ("unique_factory_manifest_match",)
    assert row.provenance.digest == row.digest == digest_of("rel_002")
    assert len(history.list_evidence(control.store, SCOPE, limit=9)) == 2


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-16")
def test_returns_the_current_state_and_the_history_in_order(control: Control) -> None:
    execute_all(
        control,
        register(),
        register("rel_002", scope="service-b"),
        transition("rel_002", 0, "c1", operations=("dns",)),
        manifest("sha256:none"),
        transition("rel_001", 1, "c2", operations=("dns",)),
        retire(2, "c3"),
    )

    row = current(control)
    assert (row.version, row.pinned_release_id, row.provenance.kind, row.confidence.level) == (
        3,
        "rel_001",
        "operator_command",
        "high",
    )
    seen = history.list_scope_events(control.store, SCOPE, limit=100)
    assert [(item.type, item.row.split("/")[1].split("#")[0]) for item in seen] == [
        ("ReleaseRegistered", "EVENT"),
        ("ReleaseTransitioned", "EVENT"),
        ("IntentRequested", "OUTBOX"),
        ("EvidenceKept", "EVIDENCE"),
        ("ReleaseTransitioned", "EVENT"),
        ("IntentRequested", "OUTBOX"),
        ("IntentSuperseded", "OUTBOX"),
        ("ReleaseRetired", "EVENT"),
    ]
    assert [item.position for item in seen] == sorted(item.position for item in seen)
    first = history.list_scope_events(control.store, SCOPE, limit=3)
    rest = history.list_scope_events(control.store, SCOPE, after=first[-1].position, limit=100)
    assert (*first, *rest) == seen
    assert history.list_scope_events(control.store, SCOPE, after=seen[-1].position, limit=3) == ()

    (one,) = history.list_events(control.store, SCOPE, limit=1)
    others = history.list_events(control.store, SCOPE, after=one.key.id, limit=9)
    assert Counter(item.value.event_type for item in (one, *others)) == Counter(
        registered=1, promoted=2, retired=1
    )
    with pytest.raises(NotFound):
        history.find_actual(control.store, "service-x")
    with pytest.raises(LimitExceeded):
        history.list_events(control.store, SCOPE, limit=501)


# ── races and crashes ─────────────────────────────────────────────────────────────────────────────


def answers(store: Store, commands: Sequence[Struct]) -> list[str]:
    """Return the outcome of each command: "done", or the code of its error."""
    with closing(GroupCommit(store)) as writer:
        control = Control(store, FOLDS, writer.submit, clock=lambda: T0)
        found = []
        for command in commands:
            try:
                outcome = control.execute(VERBS[type(command)], command)
                found.append("done" if outcome.receipt else "repeated")
            except TidegateError as error:
                found.append(error.code)
        return found


def answers_of_a_process(address: Address, commands: Sequence[Struct]) -> list[str]:
    with closing(address.open(SCHEMA)) as store:
        return answers(store, commands)


def raced(
    control: Control,
    address: Address | None,
    processes: Callable[[], ProcessPoolExecutor],
    commands: Sequence[Struct],
) -> list[str]:
    """Run all commands at once, from processes that share nothing but the log; threads for
    memory.
    """
    if address is None:
        with ThreadPoolExecutor(len(commands)) as threads:
            found = threads.map(lambda command: answers(control.store, [command]), commands)
            return [answer for part in found for answer in part]
    pool = processes()
    waiting = [pool.submit(answers_of_a_process, address, commands[n::3]) for n in range(3)]
    return [answer for future in waiting for answer in future.result()]


@pytest.mark.req("RS-5")
def test_one_of_several_racing_transitions_wins(
    control: Control, address: Address | None, request: pytest.FixtureRequest
) -> None:
    execute_all(control, register())
    commands = [transition("rel_002", 0, f"race-{n}", operations=("dns",)) for n in range(RACERS)]

    found = raced(control, address, lambda: request.getfixturevalue("processes"), commands)

    assert Counter(found) == Counter(done=1, version_conflict=RACERS - 1)
    assert current(control).version == 1
    assert len(history.list_events(control.store, SCOPE, limit=99)) == 2
    assert len(history.list_intents(control.store, SCOPE, limit=99)) == 1


@pytest.mark.req("RS-5")
def test_executes_a_command_once_when_many_send_it(
    control: Control, address: Address | None, request: pytest.FixtureRequest
) -> None:
    execute_all(control, register())
    commands = [transition("rel_002", 0, "c1", operations=("dns",))] * RACERS

    found = raced(control, address, lambda: request.getfixturevalue("processes"), commands)

    assert Counter(found) == Counter(done=1, repeated=RACERS - 1)
    assert event_types(control).count("ReleaseTransitioned") == 1


class Dying:
    """A store whose process dies right before or right after a commit.

    Memory would die with it, so there the answer is lost instead.
    """

    def __init__(self, store: Store, when: str) -> None:
        self._store = store
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, *commits: Commit) -> tuple[Receipt | TidegateError, ...]:
        if self._when == "after":
            self._store.commit(*commits)
        if not isinstance(self._store, MemoryStore):
            _exit(7)
        return (OutcomeUnknown("the answer was lost"),) * len(commits)


def die_in_a_transition(address: Address, when: str) -> None:
    answers(cast(Store, Dying(address.open(SCHEMA), when)), [CRASHING])


CRASHING = transition("rel_002", 0, "c1", operations=("dns",))


@pytest.mark.req("RS-5")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.long
def test_writes_all_or_nothing_when_a_process_dies_in_a_transition(
    control: Control, address: Address | None, when: str
) -> None:
    execute_all(control, register())
    if address is None:
        lost = answers(cast(Store, Dying(control.store, when)), [CRASHING])
        assert lost == ["outcome_unknown"]
    else:
        child = CHILDREN.Process(target=die_in_a_transition, args=(address, when))
        child.start()
        child.join(300)
        assert child.exitcode == 7

    landed = (current(control).version, len(history.list_intents(control.store, SCOPE, limit=9)))
    events = len(history.list_events(control.store, SCOPE, limit=9))
    assert (*landed, events) == ((0, 0, 1) if when == "before" else (1, 1, 2))
    assert answers(control.store, [CRASHING]) == ["done" if when == "before" else "repeated"]
    assert current(control).version == 1
