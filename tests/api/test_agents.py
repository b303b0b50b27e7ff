"""Agents over HTTP: enrollment, authentication, orders, reports, content."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests.api.people import NAME
from tests.api.served_fleet import CHANNEL, PROTOCOL_HEADERS, ROLLOUT, ServedFleet, WireAgent
from tests.api.serving import SECONDS_MAX, secret_of
from tests.servers.process import until
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.control.fleet.agent_reports import Heartbeat
from tidegate.control.publication.manifests import verify_manifest
from tidegate.domain.fleet.credentials import CERT_REVOCATIONS, ENROLLMENT_TOKENS, TOKEN_REPLAY
from tidegate.domain.fleet.rows import LIVENESS
from tidegate.domain.hosts.protocol import SESSION_SECONDS
from tidegate.domain.rollouts.rows import RolloutTally, tally_key
from tidegate.kernel.model import Meta

HTTP = {"engines": None, "reason": "what HTTP shows does not depend on the engine"}


# ── enrollment ────────────────────────────────────────────────────────────────────────────────────


def test_a_token_registers_a_key_once(fleet: ServedFleet) -> None:
    made = fleet.operator.post("/v1/hosts/enroll", json={"host_id": "db-01", "labels": {"a": "b"}})
    assert made.status_code == 201, made.text
    agent = WireAgent(fleet.served, "db-01", fleet.clock)

    enrolled = agent.enroll(made.json()["token"])
    again = agent.enroll(made.json()["token"])
    thief = WireAgent(fleet.served, "db-01", fleet.clock).enroll(made.json()["token"])

    assert enrolled.status_code == 200, enrolled.text
    assert enrolled.json()["host_id"] == "db-01"
    host = fleet.viewer.get("/v1/hosts/db-01").json()
    assert (host["public_key"], host["labels"]) == (agent.public_key, {"a": "b"})
    for replayed in (again, thief):
        assert (replayed.status_code, replayed.json()["code"]) == (409, "token_replayed")
    assert agent.open().status_code == 200
    (used,) = [
        item
        for item in fleet.installation.reads.range(TOKEN_REPLAY, limit=10)
        if item.row.host_id == "db-01"
    ]
    events = fleet.viewer.get("/v1/events", params={"type": "HostEnrolled"}).json()["items"]
    assert used.version == events[-1]["position"], "one commit"
    assert fleet.installation.health.differences() == []


def test_a_repeated_enrollment_request_gets_the_same_token(fleet: ServedFleet) -> None:
    headers = {"idempotency-key": "one"}
    body = {"host_id": "db-01"}

    first = fleet.operator.post("/v1/hosts/enroll", json=body, headers=headers)
    again = fleet.operator.post("/v1/hosts/enroll", json=body, headers=headers)
    other = fleet.operator.post("/v1/hosts/enroll", json={"host_id": "x"}, headers=headers)

    assert first.json() == again.json()
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    stored = fleet.installation.reads.range(ENROLLMENT_TOKENS, limit=10)
    assert secret_of(first.json()["token"]) not in str(stored), "no secret is stored"


def test_refuses_invalid_tokens_and_proofs(fleet: ServedFleet) -> None:
    token = fleet.token("db-01")
    agent = WireAgent(fleet.served, "db-01", fleet.clock)
    body = {"token": token, "public_key": agent.public_key}

    unknown = agent.enroll(token[:-4] + "0000")
    elsewhere = agent.client.post(
        "/v1/agent/enroll", json={**body, "proof": Ed25519PrivateKey.generate().sign(b"x").hex()}
    )
    malformed = agent.client.post("/v1/agent/enroll", json={**body, "proof": "zz"})
    fleet.clock.advance(timedelta(hours=25))
    late = agent.enroll(token)

    assert (unknown.status_code, unknown.json()["code"]) == (403, "token_refused")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (403, "bad_proof")
    assert (malformed.status_code, malformed.json()["code"]) == (400, "invalid_request")
    assert (late.status_code, late.json()["code"]) == (403, "token_refused")
    assert fleet.viewer.get("/v1/hosts/db-01").status_code == 404


def test_refuses_a_second_key_while_the_first_one_is_valid(fleet: ServedFleet) -> None:
    intruder = WireAgent(fleet.served, "web-01", fleet.clock)

    answer = intruder.enroll(fleet.token("web-01"))

    assert (answer.status_code, answer.json()["code"]) == (409, "host_enrolled")
    assert fleet.agents["web-01"].poll().status_code == 204


def test_locks_a_revoked_host_out_until_it_has_another_key(
    fleet: ServedFleet,
) -> None:
    agent = fleet.agents["web-01"]
    assert agent.poll().status_code == 204

    revoked = fleet.operator.post("/v1/hosts/web-01/revoke", json={"reason": "stolen"})
    after = agent.poll()
    session = agent.open()
    same_key = agent.enroll(fleet.token("web-01"))
    new = fleet.enroll("web-01")

    assert (revoked.status_code, revoked.json()["status"]) == (200, "revoked")
    assert (after.status_code, after.json()["code"]) == (401, "key_refused")
    assert (session.status_code, session.json()["code"]) == (403, "key_revoked")
    assert (same_key.status_code, same_key.json()["code"]) == (403, "key_revoked")
    assert new.poll().status_code == 204
    assert agent.poll().json()["code"] == "key_refused", "the old session stays invalid"
    assert len(fleet.installation.reads.range(CERT_REVOCATIONS, limit=10)) == 1


def test_removes_credentials_that_have_expired(fleet: ServedFleet) -> None:
    fleet.operator.post("/v1/hosts/web-01/revoke", json={"reason": "stolen"})
    enrollment = fleet.installation.enrollment

    early = enrollment.prune()
    fleet.clock.advance(timedelta(days=40))

    assert early == 0
    assert enrollment.prune() == 5
    for collection in (ENROLLMENT_TOKENS, TOKEN_REPLAY, CERT_REVOCATIONS):
        assert fleet.installation.reads.range(collection, limit=10) == []


# ── each request ──────────────────────────────────────────────────────────────────────────────────


def test_refuses_a_request_with_any_change(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    build = agent.client.build_request
    codes = []
    for method, path, sent in (
        ("GET", "/v1/agent/dispatch?wait=1", "/v1/agent/dispatch?wait=2"),
        ("GET", "/v1/agent/dispatch", "/v1/agent/manifest/web-stable"),
        ("POST", "/v1/agent/heartbeat", "/v1/agent/events"),
    ):
        body: dict[str, str] | None = {} if method == "POST" else None
        proof = agent.authorization(build(method, path, json=body))
        request = build(method, sent, json=body, headers={"authorization": proof})
        codes.append(agent.client.send(request).json()["code"])
    proof = agent.authorization(build("POST", "/v1/agent/heartbeat", json={}))
    changed = build(
        "POST",
        "/v1/agent/heartbeat",
        json={"agent_version": "x"},
        headers={"authorization": proof},
    )
    codes.append(agent.client.send(changed).json()["code"])

    assert codes == ["bad_mac"] * 4


def test_refuses_a_session_of_another_host_or_another_end(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    mine = agent.session
    host, end, key = mine.split(":")

    codes = []
    for session in (f"web-02:{end}:{key}", f"{host}:{int(end) + 9}:{key}", "nonsense", "a:b:c"):
        agent.session = session
        codes.append(agent.poll().json()["code"])

    assert codes == ["bad_mac", "bad_mac", "unauthenticated", "unauthenticated"]


def test_requires_its_own_form_of_authorization(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]

    for value in ("", "Bearer x", "Tidegate a b c", "Tidegate a 1", "ÿ"):
        answer = agent.client.get(
            "/v1/agent/dispatch", headers={b"authorization": value.encode("latin-1")}
        )
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), value
    person = fleet.operator.get("/v1/agent/dispatch", headers=PROTOCOL_HEADERS)
    assert person.status_code == 401


@pytest.mark.parametrize("skew", [-61, 61, 100_000])
def test_refuses_a_clock_that_is_wrong(fleet: ServedFleet, skew: int) -> None:
    agent = fleet.agents["web-01"]

    request = agent.send("GET", "/v1/agent/dispatch", skew=skew)
    session = agent.open(skew=skew)

    assert (request.status_code, request.json()["code"]) == (401, "time_refused")
    assert (session.status_code, session.json()["code"]) == (403, "agent_clock_skew")
    assert session.json()["server_time"].startswith("2026-04-24T20:00:00")


def test_accepts_a_clock_that_is_nearly_right(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]

    assert agent.open(skew=59).status_code == 200
    assert agent.send("GET", "/v1/agent/dispatch", skew=-59).status_code == 204


def test_ends_a_session_after_a_quarter_of_an_hour(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    fleet.clock.advance(timedelta(seconds=SESSION_SECONDS - 1))
    assert agent.poll().status_code == 204

    fleet.clock.advance(timedelta(seconds=2))
    over = agent.poll()

    assert (over.status_code, over.json()["code"]) == (401, "session_expired")
    agent.open()
    assert agent.poll().status_code == 204


@pytest.mark.parametrize(
    ("said", "status"), [("2", 204), ("1", 426), ("3", 426), ("", 400), ("one", 400), ("-1", 400)]
)
def test_serves_its_protocol_version_only(fleet: ServedFleet, said: str, status: int) -> None:
    agent = fleet.agents["web-01"]
    agent.client.headers["tidegate-protocol"] = said

    answer = agent.poll()

    assert answer.status_code == status
    if status == 426:
        assert answer.headers["upgrade"] == "tidegate/2"
        assert agent.open().status_code == 426


def test_refuses_a_proof_by_another_key(fleet: ServedFleet) -> None:
    agent = fleet.agents["web-01"]
    agent.key = Ed25519PrivateKey.generate()

    answer = agent.open()

    assert (answer.status_code, answer.json()["code"]) == (403, "bad_proof")


# ── orders ────────────────────────────────────────────────────────────────────────────────────────


def test_sends_an_order_once_until_its_lease_ends(fleet: ServedFleet) -> None:
    fleet.sail()
    canary, rest = fleet.agents["web-01"], fleet.agents["web-02"]

    order = canary.order()

    assert order is not None
    release = fleet.viewer.get("/v1/releases/web.1").json()
    assert order["rollout_id"] == ROLLOUT
    assert (order["attempt"], order["wave"], order["channel"]) == (1, 0, CHANNEL)
    assert order["target_closure"] == release["digest"]
    assert order["policy"]["soak_seconds"] == 30
    assert (order["release_id"], order["content"]) == ("web.1", "/v1/agent/releases/web.1")
    assert rest.order() is None, "its wave has not started"
    assert canary.order() is None, "it was sent"
    fleet.wait(31)
    assert canary.order() == order, "no acknowledgement came: it is sent again"


def test_an_order_wakes_the_waiting_poll_of_its_host(fleet: ServedFleet) -> None:
    fleet.create()
    with ThreadPoolExecutor(2) as threads:
        canary = threads.submit(fleet.agents["web-01"].poll, 60)
        rest = threads.submit(fleet.agents["web-02"].poll, 1)
        wakes = fleet.served.application.parts[OrderWaiters]
        assert until(lambda: "web-01" in wakes._waiting, seconds_max=SECONDS_MAX)
        assert not canary.done()
        fleet.promote()
        fleet.dispatch()

        assert canary.result().json()["rollout_id"] == ROLLOUT
        assert rest.result().status_code == 204


def test_writes_nothing_for_a_poll_that_finds_nothing(fleet: ServedFleet) -> None:
    fleet.create()
    before = fleet.installation.log.head()
    rows = fleet.installation.store.range("installation_ids", limit=1)

    for _ in range(3):
        assert fleet.agents["web-01"].poll().status_code == 204

    assert fleet.installation.log.head() == before
    assert fleet.installation.store.range("installation_ids", limit=1) == rows


@pytest.mark.parametrize("wait", ["-1", "61", "x", "1&wait=2"])
def test_refuses_too_long_a_wait(fleet: ServedFleet, wait: str) -> None:
    answer = fleet.agents["web-01"].send("GET", f"/v1/agent/dispatch?wait={wait}")

    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "query.wait")


# ── reports ───────────────────────────────────────────────────────────────────────────────────────


def test_takes_a_host_from_its_order_to_convergence(fleet: ServedFleet) -> None:
    fleet.sail()

    fleet.converge("web-01")
    fleet.dispatch()
    fleet.converge("web-02")

    assert fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}").json()["state"] == "Terminal"
    assert fleet.installation.health.differences() == []


def test_answers_a_repeat_as_accepted_and_a_gap_with_the_expected_number(
    fleet: ServedFleet,
) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    agent.acknowledge(order)
    position = fleet.installation.log.head()

    repeat = agent.send(
        "POST",
        "/v1/agent/events",
        json={
            "report": agent.report(
                "DispatchAck",
                1,
                target_closure=order["target_closure"],
                current_closure_at_dispatch="sha256:old",
            )
        },
    )
    gap = agent.send(
        "POST", "/v1/agent/events", json={"report": agent.report("ActivationStarted", 5)}
    )

    assert repeat.status_code == 200
    assert repeat.json()["answers"] == [
        {"rollout_id": ROLLOUT, "seq": 1, "status": 200, "accepted_through": 1}
    ]
    assert gap.status_code == 409
    assert gap.headers["content-type"] == "application/problem+json"
    told = {name: gap.json()[name] for name in ("code", "state", "expected", "accepted_through")}
    assert told == {
        "code": "sequence_gap",
        "state": "Activating",
        "expected": 2,
        "accepted_through": 1,
    }
    assert fleet.installation.log.head() == position, "a refused report is never in the log"


def test_answers_each_report_of_a_batch_separately(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    acknowledged = agent.report(
        "DispatchAck",
        1,
        target_closure=order["target_closure"],
        current_closure_at_dispatch="",
    )
    batch = [
        acknowledged,
        agent.report("ActivationStarted", 2),
        agent.report("Converged", 3, current_closure=order["target_closure"]),
        agent.report("ActivationStarted", 1, rollout_id="web-stable@web.9"),
        agent.report("Nonsense", 1),
        agent.report("ActivationCompleted", 3, observed_current_closure=order["target_closure"]),
    ]

    answer = agent.send("POST", "/v1/agent/events", json={"reports": batch})

    assert answer.status_code == 200, answer.text
    told = [(item["status"], item.get("code")) for item in answer.json()["answers"]]
    assert told == [
        (200, None),
        (200, None),
        (409, "invalid_transition"),
        (404, "rollout_unknown"),
        (422, "invalid_input"),
        (200, None),
    ]
    assert answer.json()["answers"][2]["state"] == "Activating"


@pytest.mark.req("RO-19", **HTTP)
@pytest.mark.parametrize(
    "kind", ["RolloutTerminal", "WaveAdvanced", "HostStateChanged", "OperatorClearance", "", 7]
)
def test_refuses_events_of_the_rollout_from_an_agent(fleet: ServedFleet, kind: object) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    before = fleet.installation.reads.find(tally_key(ROLLOUT), RolloutTally)
    position = fleet.installation.log.head()
    report = {**agent.report("x", 1), "kind": kind, "from_wave": 0, "to_wave": 1}

    answer = agent.send("POST", "/v1/agent/events", json={"report": report})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert "DispatchAck" in answer.json()["detail"], "it names what is allowed"
    assert fleet.installation.reads.find(tally_key(ROLLOUT), RolloutTally) == before
    assert fleet.installation.log.head() == position


def test_refuses_malformed_reports(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    good = agent.report("ActivationStarted", 1)
    statuses = {}
    for name, report in {
        "another host": {**good, "host_id": "web-02"},
        "no number": {**good, "seq": "one"},
        "number 0": {**good, "seq": 0},
        "no time": {**good, "at": "yesterday"},
        "no rollout": {**good, "rollout_id": "Nothing like it"},
        "unknown rollout": {**good, "rollout_id": "web-stable@web.77"},
        "future": {**good, "kind": "DispatchReject", "reason": "x", "at": "2036-01-01T00:00:00Z"},
    }.items():
        answer = agent.send("POST", "/v1/agent/events", json={"report": report})
        statuses[name] = (answer.status_code, answer.json()["code"])

    assert statuses == {
        "another host": (403, "wrong_host"),
        "no number": (422, "invalid_input"),
        "number 0": (422, "invalid_input"),
        "no time": (422, "invalid_input"),
        "no rollout": (422, "invalid_input"),
        "unknown rollout": (404, "rollout_unknown"),
        "future": (409, "clock_skew"),
    }


@pytest.mark.parametrize(
    "body",
    [{}, {"report": {}, "reports": []}, {"reports": [{}] * 101}, {"report": 1}, {"other": 1}, []],
)
def test_refuses_bodies_without_reports(fleet: ServedFleet, body: object) -> None:
    answer = fleet.agents["web-01"].send("POST", "/v1/agent/events", json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_answers_gone_to_a_report_of_a_superseded_rollout(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    assert fleet.promote("web.2").status_code == 200

    answer = agent.acknowledge(order)

    assert (answer.status_code, answer.json()["code"]) == (410, "rollout_superseded")


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────


def test_records_heartbeats_coarsely_and_returns_the_last_numbers(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    agent.acknowledge(order)

    first = agent.beat(**{CHANNEL: "sha256:old"})
    (written,) = fleet.installation.reads.range(LIVENESS, limit=10)
    fleet.clock.advance(timedelta(seconds=30))
    again = agent.beat(**{CHANNEL: "sha256:old"})
    (kept,) = fleet.installation.reads.range(LIVENESS, limit=10)
    fleet.clock.advance(timedelta(seconds=31))
    agent.beat(**{CHANNEL: "sha256:old"})
    (renewed,) = fleet.installation.reads.range(LIVENESS, limit=10)

    assert first.json()["last_accepted_seq"] == {ROLLOUT: 1}
    assert again.json()["received_at"] > first.json()["received_at"]
    assert kept == written
    assert renewed.row.last_seen_at == fleet.clock()
    host = fleet.viewer.get("/v1/hosts/web-01").json()
    assert host["current_closures"] == {CHANNEL: "sha256:old"}
    assert host["order"] == ROLLOUT


def test_a_heartbeat_that_races_the_silence_timer_wins(fleet: ServedFleet) -> None:
    """The timer marks the host silent after the heartbeat read its row and before it wrote it."""
    fleet.agents["web-01"].beat()
    fleet.wait(200)
    times = 0

    def clock() -> datetime:
        nonlocal times
        times += 1
        if times == 2:  # first call: it arrived; second call: it is written
            assert fleet.tick().silences == 1
        return fleet.clock()

    racing = replace(fleet.installation, clock=clock)
    said_at = int(fleet.clock().timestamp())
    said = Heartbeat(host_id="web-01", agent_version="1", current_closures={}, said_at=said_at)
    racing.heartbeats.take(said, Meta(actor="host_web-01"))

    assert times >= 2
    assert "silent_since" not in fleet.viewer.get("/v1/hosts/web-01").json()


def test_a_heartbeat_that_is_sent_again_after_a_newer_one_changes_nothing(
    fleet: ServedFleet,
) -> None:
    """If it were recorded, the host would seem to have gone back to its old release."""
    fleet.sail()
    agent = fleet.agents["web-01"]
    old = agent.client.build_request(
        "POST", "/v1/agent/heartbeat", json={"current_closures": {CHANNEL: "sha256:old"}}
    )
    old.headers["authorization"] = agent.authorization(old)
    assert agent.client.send(old).status_code == 200
    fleet.converge("web-01")
    agent.beat(**{CHANNEL: agent.current["target_closure"]})
    before = fleet.viewer.get("/v1/hosts/web-01").json()
    head = fleet.installation.log.head()

    again = agent.client.send(old)

    assert again.status_code == 200, again.text
    assert "received_at" in again.json(), "it gets the usual response"
    assert fleet.viewer.get("/v1/hosts/web-01").json() == before
    assert fleet.installation.log.head() == head, "no row was written and no fact"
    agent.beat(**{CHANNEL: "sha256:old"})
    assert fleet.viewer.get("/v1/hosts/web-01").json()["current_closures"][CHANNEL] == "sha256:old"


def test_records_when_a_host_goes_silent_and_when_it_is_back(fleet: ServedFleet) -> None:
    fleet.agents["web-01"].beat()
    fleet.wait(200)
    fleet.tick()
    silent = fleet.viewer.get("/v1/hosts/web-01").json()

    fleet.agents["web-01"].beat()
    back = fleet.viewer.get("/v1/hosts/web-01").json()

    assert silent["silent_since"] == "2026-04-24T20:00:00Z"
    assert "silent_since" not in back


def test_assumes_an_activation_that_a_heartbeat_shows(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    agent.acknowledge(order)

    agent.beat(**{CHANNEL: order["target_closure"]})

    hosts = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}/hosts").json()["items"]
    assert (hosts[0]["state"], hosts[0]["activation_assumed"]) == ("Soaking", True)


def test_notices_a_converged_host_that_runs_something_else(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.converge("web-01")

    fleet.agents["web-01"].beat(**{CHANNEL: "sha256:other"})

    shown = fleet.viewer.get(f"/v1/rollouts/{ROLLOUT}").json()
    assert shown["degraded"] is True


# ── content ───────────────────────────────────────────────────────────────────────────────────────


def test_serves_a_host_the_files_of_its_release_by_hash(fleet: ServedFleet) -> None:
    fleet.create()
    agent = fleet.agents["web-01"]

    content = agent.send("GET", "/v1/agent/releases/web.2").json()
    form = b"tidegate.content.v2\n"
    for file in content["files"]:
        path = f"/v1/agent/releases/web.2/blobs/{file['sha256']}"
        data = agent.send("GET", path).content
        assert (sha256(data).hexdigest(), len(data)) == (file["sha256"], file["bytes"])
        named = file["path"].encode()
        form += b"f" + len(named).to_bytes(8, "big") + named
        form += (32).to_bytes(8, "big") + sha256(data).digest()

    assert content["files"] != []
    assert content["digest"] == f"sha256:{sha256(form).hexdigest()}"
    assert agent.send("GET", "/v1/agent/releases/web.9").status_code == 404
    missing = agent.send("GET", f"/v1/agent/releases/web.2/blobs/{'0' * 64}")
    assert (missing.status_code, missing.json()["code"]) == (404, "blob_missing")


def test_serves_no_draft_that_took_the_name_of_a_deleted_release(fleet: ServedFleet) -> None:
    fleet.create()
    assert fleet.step(fleet.author, "propose-delete").status_code == 200
    assert fleet.approver.delete(f"/v1/revisions/{NAME}").status_code == 204
    fleet.draft(tasks=[{"type": "edit", "source": "default.web.v2"}])

    answer = fleet.agents["web-01"].send("GET", "/v1/agent/releases/web.1")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_hides_channels_that_a_host_is_not_in(fleet: ServedFleet) -> None:
    fleet.sail()
    stranger = fleet.enroll("db-01", app="db")

    assert stranger.send("GET", "/v1/agent/releases/web.2").status_code == 404
    assert stranger.send("GET", f"/v1/agent/manifest/{CHANNEL}").status_code == 404


def test_serves_a_manifest_that_its_key_signed_and_304_while_it_is_the_same(
    fleet: ServedFleet,
) -> None:
    fleet.create()
    agent = fleet.agents["web-01"]
    path = f"/v1/agent/manifest/{CHANNEL}"
    none = agent.send("GET", path)
    fleet.promote()
    told = WireAgent(fleet.served, "db-01", fleet.clock).enroll(fleet.token("db-01")).json()

    first = agent.send("GET", path)
    same = agent.send("GET", path, headers={"if-none-match": first.headers["etag"]})
    head = fleet.installation.log.head()
    agent.send("GET", path)
    assert fleet.installation.log.head() == head, "an unchanged manifest is not written again"
    fleet.clock.advance(timedelta(seconds=1))
    fleet.promote("web.2")
    moved = agent.send("GET", path, headers={"if-none-match": first.headers["etag"]})

    assert none.status_code == 404
    trusted = {
        name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        for name, key in told["manifest_keys"].items()
    }
    assert verify_manifest(first.content, trusted).wanted.release_id == "web.1"
    assert (same.status_code, same.content) == (304, b"")
    assert verify_manifest(moved.content, trusted).wanted.release_id == "web.2"


SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "01" + "00" * 30 + "80",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "ff",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]


@pytest.mark.parametrize("public_key", SMALL_ORDER)
def test_enrolls_no_key_of_small_order(fleet: ServedFleet, public_key: str) -> None:
    """Under such a key one signature fits many messages, so anyone could act as the host."""
    agent = WireAgent(fleet.served, "db-01", fleet.clock)
    proof = "01" + "00" * 31 + "00" * 32  # R is the neutral point, S is 0
    body = {"token": fleet.token("db-01"), "public_key": public_key, "proof": proof}

    answer = agent.client.post("/v1/agent/enroll", json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert answer.json()["field"] == "public_key"
    assert fleet.viewer.get("/v1/hosts/db-01").status_code == 404


def test_a_session_request_does_not_reveal_which_hosts_exist(fleet: ServedFleet) -> None:
    proof = Ed25519PrivateKey.generate().sign(b"x").hex()
    time = int(fleet.clock().timestamp())
    client = fleet.agents["web-01"].client

    answers = [
        client.post(
            "/v1/agent/session",
            json={"host_id": host_id, "time": time, "nonce": "ab" * 16, "proof": proof},
        ).json()
        for host_id in ("web-01", "nothing-99")
    ]

    assert [(item["status"], item["code"]) for item in answers] == [(403, "bad_proof")] * 2
    assert answers[0]["detail"] == answers[1]["detail"]
