"""The rules of the outbox: names, secrets, back-off, the transitions of an intent, observations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.outbox import redaction
from tidegate.domain.outbox.declarations import FOLDS
from tidegate.domain.outbox.facts import (
    FACTS,
    AttemptFailed,
    AttemptSucceeded,
    DriftDetected,
    DriftRepaired,
    IntentCancelled,
    IntentDied,
    IntentRedriven,
    IntentRequested,
    IntentSuperseded,
    Progress,
    ReconciliationRefused,
    request_intent,
)
from tidegate.domain.outbox.folds import (
    OPERATIONS_MAX,
    step_delivery,
    step_drift,
    step_intent,
    step_queue,
)
from tidegate.domain.outbox.names import IdempotencyKey, parse_key
from tidegate.domain.outbox.reconciliation import (
    Observation,
    ReconcileActual,
    ReconcileEffect,
    decide_actual,
    decide_effect,
    judge,
)
from tidegate.domain.outbox.redaction import ERROR_CHARS_MAX, check_requested_state, redact
from tidegate.domain.outbox.refusals import IntentExists, SecretRefused
from tidegate.domain.outbox.rows import Delivery, Drift, Intent, Queue
from tidegate.domain.outbox.slices import (
    ATTEMPTS_MAX,
    BACK_OFF_SECONDS_MAX,
    JITTER_MAX,
    CancelIntent,
    RecordAttempt,
    RedriveIntent,
    RequestEffect,
    back_off,
    decide_cancel,
    decide_record,
    decide_redrive,
    decide_request,
)
from tidegate.domain.outbox.states import IntentState, ReconciliationFinding, RequestedState
from tidegate.errors import IllegalTransition, Invalid, InvalidInput, LimitExceeded, NotFound

T0 = datetime(2026, 4, 24, 19, 0, tzinfo=UTC)
PURE: dict[str, Any] = {"engines": None, "reason": "a pure function"}
OLD = "RELEASE#web/OUTBOX#alias#web.1#c1"
NEW = "RELEASE#web/OUTBOX#alias#web.2#c2"


def asked(release_id: str = "web.1", command_id: str = "c1", **other: Any) -> IntentRequested:
    said: dict[str, Any] = {
        "scope": "web",
        "operation": "alias",
        "release_id": release_id,
        "version": 1,
        "command_id": command_id,
        "state": {"releaseId": release_id},
        "now": T0,
    }
    return request_intent(**(said | other))


# ── names and keys ────────────────────────────────────────────────────────────────────────────────


def test_derives_key_and_id_from_the_decision() -> None:
    fact = asked()

    assert fact.idempotency_key == "web:web.1:alias:1"
    assert fact.intent_id == OLD
    assert parse_key(fact.idempotency_key) == IdempotencyKey("web", "web.1", "alias", 1)
    assert asked(version=2).idempotency_key != fact.idempotency_key


@pytest.mark.parametrize(
    "text", ["", "web", "web:web.1:alias", "web:web.1:alias:-1", "web:web.1:alias:01", "a:b:c:d:1"]
)
def test_refuses_any_other_text_as_a_key(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scope", "Web"),
        ("scope", "a:b"),
        ("scope", ""),
        ("scope", "x" * 129),
        ("operation", "rm -rf"),
        ("operation", "../x"),
        ("release_id", "a#b"),
        ("release_id", "a:b"),
        ("command_id", "a/b"),
        ("version", -1),
        ("version", 2**53),
        ("now", datetime(2026, 4, 24)),  # noqa: DTZ001
    ],
)
def test_refuses_names_that_would_break_a_key(name: str, text: Any) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        asked(**{name: text})


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────

SECRETS = (
    *("AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "ghp_0123456789abcdefghijABCDEFGHIJ"),
    *("xoxb-1234567890-abc", "sk_live_abcdefghijklmnop", "glpat-abcdefghijklmnopqrst"),
    *("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x", "-----BEGIN RSA PRIVATE KEY-----"),
    *("AIzaSyA1234567890abcdefghijklmno", "tg_0123456789abcdef0123456789", "password=hunter2"),
    *("Bearer abc", "postgres://user:pass@db/x", "AQICAHhExampleKmsCiphertextBlob"),
    *("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",),
)


@pytest.mark.req("RS-9", **PURE)
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("member", ["releaseId", "status", "digest", "channel"])
def test_refuses_credentials_in_a_requested_state(member: str, secret: str) -> None:
    """RS-9: "Credentials, key material and decrypted values are refused at write"."""
    with pytest.raises(SecretRefused) as refusal:
        check_requested_state({"releaseId": "web.1", member: secret})

    assert secret not in str(refusal.value)
    assert secret not in repr(refusal.value.facts)


@pytest.mark.req("RS-9", **PURE)
@pytest.mark.parametrize(
    "member",
    ["password", "dbPassword", "apiKey", "api_key", "token", "secretArn", "privateKey", "kmsKey"],
)
def test_refuses_members_that_announce_a_secret(member: str) -> None:
    with pytest.raises(SecretRefused):
        check_requested_state({"releaseId": "web.1", member: "x"})


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"releaseId": ""},
        {"releaseId": 7},
        {"releaseId": "web.1", "notes": "probably fine"},
        {"releaseId": "web.1", "digest": "md5:123"},
        {"releaseId": "web.1", "status": "two words"},
        {"releaseId": "web.1", "channel": {"nested": "x"}},
        {"releaseId": "x" * 257},
    ],
)
def test_accepts_only_declared_members_of_their_form(state: dict[str, Any]) -> None:
    with pytest.raises((InvalidInput, LimitExceeded)):
        check_requested_state(state)


def test_takes_a_snapshot_of_a_release() -> None:
    digest = "sha256:" + "0f" * 32
    wanted = RequestedState(
        release_id="web.1", status="active", digest=digest, channel="web-stable"
    )

    assert check_requested_state(wanted) is wanted
    sent = {"releaseId": "web.1", "status": "active", "digest": digest, "channel": "web-stable"}
    assert check_requested_state(sent) == wanted
    with pytest.raises(SecretRefused):
        check_requested_state(replace(wanted, status="AKIAIOSFODNN7EXAMPLE"))


@pytest.mark.req("RS-9", **PURE)
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("connection refused", "connection refused"),
        ("status 503", "status 503"),
        ("exit status 1: no luck", "exit status 1: no luck"),
        ("password=hunter2", "[redacted]"),
        ("the password is hunter", "the password is [redacted]"),
        ("token: abc", "token: [redacted]"),
        ("Authorization: Bearer abc", "Authorization: [redacted]"),
        ("password= hunter was wrong", "[redacted] was wrong"),
        ("AKIAIOSFODNN7EXAMPLE denied", "[redacted] denied"),
        ("cannot reach db.internal:5432 now", "cannot reach [redacted] now"),
        ("no file /etc/shadow here", "no file [redacted] here"),
        ("a1 b2 c3 failed", "[redacted] failed"),
        ("4111111111111111 declined", "[redacted] declined"),
        ("", ""),
    ],
)
def test_keeps_plain_words_and_small_numbers_of_an_error(said: str, kept: str) -> None:
    """RS-9: "lastError (redacted)"."""
    assert redact(said) == kept


@pytest.mark.req("RS-9", **PURE)
@given(st.text(max_size=200), st.sampled_from(SECRETS), st.text(max_size=2_000))
def test_redacts_a_secret_in_any_surrounding_text(before: str, secret: str, after: str) -> None:
    shown = redact(f"{before} {secret} {after}")

    assert secret not in shown
    assert len(shown) <= ERROR_CHARS_MAX
    assert all(char.isascii() or char == "…" for char in shown)


# ── back-off ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RS-10", **PURE)
def test_doubles_the_wait_up_to_five_minutes() -> None:
    waits = [back_off(attempt, JITTER_MAX).total_seconds() for attempt in range(1, 13)]

    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert back_off(10**6, JITTER_MAX).total_seconds() == BACK_OFF_SECONDS_MAX


@given(st.integers(1, 100), st.integers(0, JITTER_MAX))
def test_spreads_waits_over_their_whole_length(attempt: int, jitter: int) -> None:
    wait = back_off(attempt, jitter)

    assert timedelta() <= wait <= back_off(attempt, JITTER_MAX)
    for wrong in (-1, JITTER_MAX + 1):
        with pytest.raises(InvalidInput):
            back_off(attempt, wrong)


class Counted:
    """A pattern that counts the characters that it examines."""

    def __init__(self, pattern: re.Pattern[str], work: list[int]) -> None:
        self._pattern = pattern
        self._work = work

    def search(self, text: str) -> re.Match[str] | None:
        self._work.append(len(text))
        return self._pattern.search(text)

    def finditer(self, text: str, *span: int) -> Iterator[re.Match[str]]:
        self._work.append(span[1] - span[0] if span else len(text))
        return self._pattern.finditer(text, *span)


@pytest.mark.req("RS-9", **PURE)
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "aB",
        "a1",
        "a/",
        "B1/",
        "-eyJabcdefgh",
        "a.",
        "eyJabcdefgh.",
        "abcdefghijklmnopqrstuv1/",
    ],
)
@pytest.mark.long
def test_examines_each_character_of_a_long_text_a_fixed_number_of_times(
    monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    """Each pattern is one class of characters, so its work is proportional to the text."""
    work: list[int] = []
    for name in ("_RUN", "_SEGMENT", "_DIGIT", "_CAPITAL", "_PART", "_JSON_OBJECT"):
        monkeypatch.setattr(redaction, name, Counted(getattr(redaction, name), work))
    text = piece * (1024 * 1024 // len(piece))

    redaction.is_secret(text)

    assert sum(work) <= 6 * len(text)


@given(st.text("aB1+/ .-_eyJ", max_size=80))
def test_finds_key_material_and_signed_tokens_by_their_definitions(text: str) -> None:
    """The same rules, written with a lookahead at every character."""
    material = re.compile(r"(?=[A-Za-z]*[0-9])(?=[A-Za-z0-9]*[A-Z])[A-Za-z0-9+/]{24,}")
    token = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.")

    assert redaction.is_secret(text) is bool(material.search(text) or token.search(text))


# ── the edges of an intent ────────────────────────────────────────────────────────────────────────

about: dict[str, Any] = {"scope": "web", "intent_id": OLD}
SAMPLE: dict[type[Struct], Struct] = {
    IntentSuperseded: IntentSuperseded(**about, by_intent_id=NEW),
    AttemptSucceeded: AttemptSucceeded(**about, attempt=3),
    AttemptFailed: AttemptFailed(**about, attempt=3, error="x", next_attempt_at=T0),
    IntentDied: IntentDied(**about, attempts=3, reason="x"),
    IntentRedriven: IntentRedriven(**about, by="user_1", reason="x", next_attempt_at=T0),
    IntentCancelled: IntentCancelled(**about, by="user_1", reason="x"),
}
EDGES: dict[tuple[IntentState, type[Struct]], IntentState] = {
    (IntentState.PENDING, AttemptSucceeded): IntentState.DONE,
    (IntentState.PENDING, AttemptFailed): IntentState.PENDING,
    (IntentState.PENDING, IntentDied): IntentState.DEAD,
    (IntentState.PENDING, IntentSuperseded): IntentState.SUPERSEDED,
    (IntentState.DEAD, AttemptSucceeded): IntentState.DONE,
    (IntentState.DEAD, IntentRedriven): IntentState.PENDING,
    (IntentState.DONE, IntentRedriven): IntentState.PENDING,
    (IntentState.SUPERSEDED, AttemptSucceeded): IntentState.SUPERSEDED,
    (IntentState.SUPERSEDED, AttemptFailed): IntentState.SUPERSEDED,
    (IntentState.PENDING, IntentCancelled): IntentState.CANCELLED,
    (IntentState.DEAD, IntentCancelled): IntentState.CANCELLED,
    (IntentState.CANCELLED, AttemptSucceeded): IntentState.CANCELLED,
    (IntentState.CANCELLED, AttemptFailed): IntentState.CANCELLED,
}


def delivery(state: IntentState = IntentState.PENDING, attempts: int = 0, **other: Any) -> Delivery:
    return Delivery("web", "alias", state, T0, attempts, **other)


@pytest.mark.parametrize(("state", "fact"), list(product(IntentState, get_args(Progress))))
def test_accepts_exactly_the_transitions_of_the_diagram(
    state: IntentState, fact: type[Struct]
) -> None:
    try:
        after = step_delivery(delivery(state, 2), SAMPLE[fact], T0)  # type: ignore[arg-type]
    except IllegalTransition:
        assert (state, fact) not in EDGES
    else:
        assert after.state is EDGES[state, fact]
        assert (after.next_attempt_at is not None) is (after.state is IntentState.PENDING)


def test_starts_an_intent_as_requested_and_only_once() -> None:
    assert step_delivery(None, asked(), T0) == delivery(next_attempt_at=T0)
    with pytest.raises(IllegalTransition):
        step_delivery(None, AttemptSucceeded(**about, attempt=1), T0)
    with pytest.raises(IllegalTransition):
        step_delivery(delivery(), asked(), T0)
    with pytest.raises(IntentExists):
        step_intent(step_intent(None, asked(), T0), asked(), T0)


def test_queues_in_order_and_replaces_a_waiting_intent_of_the_same_operation() -> None:
    queue, none = step_queue(Queue("web"), asked(), T0)
    queue, _ = step_queue(queue, asked(operation="dns", now=T0 + timedelta(1)), T0)
    queue, superseded = step_queue(queue, asked("web.2", "c2"), T0)
    assert none == ()
    assert superseded == (SAMPLE[IntentSuperseded],)

    queue, _ = step_queue(queue, superseded[0], T0)

    assert [item.operation for item in queue.waiting] == ["dns", "alias"]
    assert queue.next_attempt_at == T0 + timedelta(1)
    assert queue.newest["alias"] == NEW
    with pytest.raises(IllegalTransition):
        step_queue(queue, SAMPLE[IntentRedriven], T0)  # type: ignore[arg-type]
    for number in range(OPERATIONS_MAX - 2):
        queue, _ = step_queue(queue, asked(operation=f"op-{number}"), T0)
    with pytest.raises(LimitExceeded):
        step_queue(queue, asked(operation="one-more"), T0)


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────


def record(attempt: int, succeeded: bool = False, **other: Any) -> RecordAttempt:
    return RecordAttempt(**about, attempt=attempt, succeeded=succeeded, jitter=JITTER_MAX, **other)


def names(facts: Any) -> list[str]:
    return [type(fact).__name__ for fact in facts]


@pytest.mark.req("RS-10", **PURE)
def test_gives_up_at_the_limit_counted_from_the_last_redrive() -> None:
    last = delivery(attempts=ATTEMPTS_MAX - 1)
    forgiven = replace(last, forgiven=1)

    assert names(decide_record((last,), record(ATTEMPTS_MAX), T0)) == [
        "AttemptFailed",
        "IntentDied",
    ]
    assert names(decide_record((forgiven,), record(ATTEMPTS_MAX), T0)) == ["AttemptFailed"]
    hopeless = record(1, retryable=False)
    assert names(decide_record((delivery(),), hopeless, T0)) == ["AttemptFailed", "IntentDied"]


@pytest.mark.parametrize(
    ("state", "attempts", "succeeded", "facts"),
    [
        (IntentState.PENDING, 0, True, ["AttemptSucceeded"]),
        (IntentState.PENDING, 0, False, ["AttemptFailed"]),
        (IntentState.PENDING, 1, False, []),
        (IntentState.PENDING, 1, True, ["AttemptSucceeded"]),
        (IntentState.DONE, 0, False, []),
        (IntentState.DONE, 0, True, []),
        (IntentState.DEAD, 0, False, []),
        (IntentState.DEAD, 1, True, ["AttemptSucceeded"]),
        (IntentState.SUPERSEDED, 0, True, ["AttemptSucceeded"]),
        (IntentState.SUPERSEDED, 0, False, ["AttemptFailed"]),
        (IntentState.SUPERSEDED, 1, True, []),
        (IntentState.CANCELLED, 0, True, ["AttemptSucceeded"]),
        (IntentState.CANCELLED, 0, False, ["AttemptFailed"]),
        (IntentState.CANCELLED, 1, False, []),
    ],
)
def test_records_each_attempt_once(
    state: IntentState, attempts: int, succeeded: bool, facts: list[str]
) -> None:
    decided = decide_record((delivery(state, attempts),), record(1, succeeded), T0)

    assert names(decided) == facts
    row = delivery(state, attempts)
    for fact in decided:
        row = step_delivery(row, fact, T0)  # type: ignore[arg-type]


def test_knows_only_intents_of_the_scope() -> None:
    for row in (None, replace(delivery(), scope="api")):
        with pytest.raises(NotFound):
            decide_record((row,), record(1), T0)


def test_requests_an_effect_once_per_command() -> None:
    command = RequestEffect(
        scope="web",
        operation="alias",
        release_id="web.1",
        version=1,
        command_id="c1",
        requested_state={"releaseId": "web.1"},
        by="user_1",
    )
    (fact,) = decide_request((None,), command, T0)
    assert isinstance(fact, IntentRequested)
    intent = step_intent(None, fact, T0)

    assert decide_request((intent,), command, T0 + timedelta(1)) == ()
    with pytest.raises(IntentExists):
        decide_request((replace(intent, idempotency_key="web:web.1:alias:2"),), command, T0)
    with pytest.raises(Invalid):
        decide_request((None,), replace(command, by=""), T0)


def test_a_redrive_records_who_and_why() -> None:
    queue = Queue("web", newest={"alias": OLD})
    for wrong in ({"by": ""}, {"reason": " "}, {"reason": "x" * 2_000}):
        said = {**about, "by": "user_1", "reason": "mended"} | wrong
        with pytest.raises((InvalidInput, LimitExceeded)):
            decide_redrive((delivery(IntentState.DEAD), queue), RedriveIntent(**said), T0)


@pytest.mark.parametrize("state", list(IntentState))
def test_cancels_pending_or_dead_intents_and_records_who_and_why(state: IntentState) -> None:
    command = CancelIntent(**about, by="user_1", reason="the channel is gone")
    if state in (IntentState.PENDING, IntentState.DEAD):
        (fact,) = decide_cancel((delivery(state, 2),), command, T0)
        assert fact == IntentCancelled(**about, by="user_1", reason="the channel is gone")
    elif state is IntentState.CANCELLED:
        assert decide_cancel((delivery(state),), command, T0) == ()
    else:
        with pytest.raises(IllegalTransition):
            decide_cancel((delivery(state),), command, T0)
    for wrong in ({"by": ""}, {"reason": " "}, {"reason": "x" * 2_000}):
        with pytest.raises((InvalidInput, LimitExceeded)):
            decide_cancel((delivery(),), replace(command, **wrong), T0)


# ── observations ──────────────────────────────────────────────────────────────────────────────────

INTENT = Intent(
    "web", "alias", "web.2", "web:web.2:alias:2", RequestedState(release_id="web.2"), 2, T0
)


@pytest.mark.req("RS-11", **PURE)
@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        (Observation(), ReconciliationFinding.MISSING),
        (Observation(INTENT.idempotency_key), ReconciliationFinding.CONFIRMED),
        (
            Observation(INTENT.idempotency_key, {"releaseId": "web.2"}),
            ReconciliationFinding.CONFIRMED,
        ),
        (
            Observation(INTENT.idempotency_key, {"releaseId": "web.3"}),
            ReconciliationFinding.CONFLICTING,
        ),
        (Observation("", {"releaseId": "web.2"}), ReconciliationFinding.CONFIRMED),
        (Observation("", {"releaseId": "web.1"}), ReconciliationFinding.CONFLICTING),
        (Observation("web:web.1:alias:1", {"releaseId": "web.1"}), ReconciliationFinding.BEHIND),
        (Observation("web:web.1:alias:2"), ReconciliationFinding.CONFLICTING),
        (Observation("web:web.3:alias:3"), ReconciliationFinding.CONFLICTING),
        (Observation("web:web.1:dns:1"), ReconciliationFinding.CONFLICTING),
        (Observation("api:web.1:alias:1"), ReconciliationFinding.CONFLICTING),
        (Observation("by hand"), ReconciliationFinding.CONFLICTING),
    ],
)
def test_judges_an_observation_by_key_then_by_state(
    seen: Observation, finding: ReconciliationFinding
) -> None:
    assert judge(INTENT, seen) is finding


def look(finding: ReconciliationFinding, repairable: bool = True) -> ReconcileEffect:
    return ReconcileEffect(
        scope="web",
        operation="alias",
        intent_id=OLD,
        finding=finding,
        signature="s1",
        repairable=repairable,
    )


QUEUE = Queue("web", newest={"alias": OLD})
WANTED = [state for state in IntentState if state is not IntentState.CANCELLED]
LOOKS: dict[tuple[ReconciliationFinding, IntentState], list[str]] = {
    (ReconciliationFinding.CONFIRMED, IntentState.PENDING): ["AttemptSucceeded"],
    (ReconciliationFinding.CONFIRMED, IntentState.DEAD): ["AttemptSucceeded"],
    (ReconciliationFinding.MISSING, IntentState.DONE): ["DriftDetected", "IntentRedriven"],
    (ReconciliationFinding.BEHIND, IntentState.DONE): ["DriftDetected", "IntentRedriven"],
    **{(ReconciliationFinding.CONFLICTING, state): ["ReconciliationRefused"] for state in WANTED},
    **{(ReconciliationFinding.ROW_DIFFERS, state): ["ReconciliationRefused"] for state in WANTED},
}


@pytest.mark.req("RS-11", **PURE)
@pytest.mark.parametrize(("finding", "state"), list(product(ReconciliationFinding, IntentState)))
def test_records_the_result_of_each_observation_once(
    finding: ReconciliationFinding, state: IntentState
) -> None:
    decided = decide_effect((None, QUEUE, delivery(state)), look(finding), T0)

    assert names(decided) == LOOKS.get((finding, state), [])
    said = [f for f in decided if isinstance(f, DriftDetected | ReconciliationRefused)]
    if said:
        drift = step_drift(None, said[0], T0)
        assert decide_effect((drift, QUEUE, delivery(state)), look(finding), T0) == ()


def test_repeats_nothing_if_the_registry_disagrees_or_a_newer_intent_exists() -> None:
    done = delivery(IntentState.DONE)
    decided = decide_effect(
        (None, QUEUE, done), look(ReconciliationFinding.MISSING, repairable=False), T0
    )
    assert names(decided) == ["DriftDetected"]
    newer = Queue("web", newest={"alias": NEW})
    assert decide_effect((None, newer, done), look(ReconciliationFinding.MISSING), T0) == ()


def test_closes_only_drift_that_it_opened() -> None:
    detected = DriftDetected(
        scope="web", subject="alias", finding=ReconciliationFinding.BEHIND, signature="s0"
    )
    drift: Drift = step_drift(None, detected, T0)
    done = delivery(IntentState.DONE)

    (repaired,) = decide_effect((drift, QUEUE, done), look(ReconciliationFinding.CONFIRMED), T0)
    assert isinstance(repaired, DriftRepaired)
    closed = step_drift(drift, repaired, T0)
    assert decide_effect((closed, QUEUE, done), look(ReconciliationFinding.CONFIRMED), T0) == ()
    assert names(decide_effect((closed, QUEUE, done), look(ReconciliationFinding.BEHIND), T0)) == [
        "DriftDetected",
        "IntentRedriven",
    ]


def test_reports_once_that_a_row_contradicts_its_history() -> None:
    command = ReconcileActual(scope="web", differs=True, signature="s1")
    (refused,) = decide_actual((None,), command, T0)
    assert isinstance(refused, ReconciliationRefused)
    drift = step_drift(None, refused, T0)

    assert decide_actual((drift,), command, T0) == ()
    assert names(decide_actual((drift,), replace(command, signature="s2"), T0)) == [
        "ReconciliationRefused"
    ]
    assert names(decide_actual((drift,), replace(command, differs=False), T0)) == ["DriftRepaired"]
    assert decide_actual((None,), replace(command, differs=False), T0) == ()


def test_files_outcomes_as_effects_and_the_rest_under_outbox() -> None:
    kinds = {fact.name: fact.kind for fact in FACTS}

    effects = {name for name, kind in kinds.items() if kind == "effect"}
    assert effects == {"AttemptSucceeded", "AttemptFailed", "IntentDied"}
    assert set(kinds.values()) == {"effect", "outbox"}
    read = {struct.__name__ for fold in FOLDS for struct in fold.reads}
    assert read == set(kinds)
