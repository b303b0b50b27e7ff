"""The page of the agent protocol: its worked example is right, and it names every member."""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, get_args

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import NODEFAULT, Struct, structs

from tests.api.served_fleet import serve_fleet
from tests.docs.blocks import ROOT, blocks_of
from tidegate.agent import manifest
from tidegate.api.agents.routes import Enroll, OpenSession, Pulse
from tidegate.control.fleet.agent_sessions import AgentSession
from tidegate.control.fleet.request_macs import RequestMacs
from tidegate.control.publication.manifests import ChannelManifest, SignedManifest
from tidegate.domain.content.entries import File
from tidegate.domain.hosts import protocol
from tidegate.domain.hosts.facts import AgentEvent, AgentFact
from tidegate.domain.hosts.report_json import KINDS, event_from_json
from tidegate.domain.hosts.states import HostPolicy

PAGE: Final = ROOT / "docs" / "agent-protocol.md"
TEXT: Final = PAGE.read_text()
BLOCKS: Final = tuple(blocks_of(PAGE))
EXAMPLE: Final[dict[str, Any]] = json.loads(
    next(block.text for block in BLOCKS if '"enroll_proof"' in block.text)
)
# The server replaces these members, whatever an agent sends.
ADDED: Final = {
    "ProbeResult": {"wave"},
    "RollbackComplete": {"channel", "target_closure"},
    "RollbackFailed": {"channel", "target_closure"},
}


def program() -> dict[str, Any]:
    """The functions that the page shows."""
    (block,) = (block for block in BLOCKS if block.language == "python")
    names: dict[str, Any] = {}
    exec(block.text, names)
    return names


def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(EXAMPLE["private_key"]))


def reports() -> dict[str, set[tuple[str, bool]]]:
    """The members of each report as the page lists them, and whether they are optional."""
    table = TEXT.partition("| kind | member | |\n")[2].partition("\n\n")[0]
    found: dict[str, set[tuple[str, bool]]] = {}
    kind = ""
    for row in table.splitlines()[1:]:
        _, first, members, _ = row.split("|", 3)
        kind = first.strip(" `") or kind
        found.setdefault(kind, set()).update(
            (name, is_optional == "*") for is_optional, name in re.findall(r"(\*?)`(\w+)`", members)
        )
    return found


# ── the worked example ────────────────────────────────────────────────────────────────────────────


def test_proves_the_key_as_the_server_checks_it() -> None:
    token, host_id, time = EXAMPLE["token"], EXAMPLE["host_id"], EXAMPLE["time"]
    public = key().public_key().public_bytes_raw().hex()
    enroll = key().sign(protocol.enrollment_message(token, public)).hex()
    nonce = EXAMPLE["nonce"]
    session = key().sign(protocol.session_message(host_id, time, nonce)).hex()
    shown = program()["session_proof"](key(), host_id, time, nonce)

    assert EXAMPLE["public_key"] == public
    assert EXAMPLE["enroll_proof"] == enroll == program()["enroll_proof"](key(), token)
    assert EXAMPLE["session_proof"] == session == shown


def test_names_the_session_as_the_server_does() -> None:
    expires = EXAMPLE["time"] + protocol.SESSION_SECONDS

    named = AgentSession(EXAMPLE["host_id"], expires, EXAMPLE["public_key"])

    assert EXAMPLE["session"] == str(named)


@pytest.mark.parametrize("request_", EXAMPLE["requests"], ids=lambda item: item["method"])
def test_computes_the_mac_of_a_request_as_the_server_checks_it(request_: dict[str, str]) -> None:
    session, time = EXAMPLE["session"], EXAMPLE["time"]
    mac_key = bytes.fromhex(EXAMPLE["mac_key"])
    method, path, query = request_["method"], request_["path"], request_["query"]
    body = request_["body"].encode()
    message = protocol.request_message(
        method, path.encode(), query.encode(), body, str(time).encode()
    )
    shown = program()["authorization"](session, EXAMPLE["mac_key"], method, path, query, body, time)

    assert request_["mac"] == RequestMacs(mac_key).mac(message).hex()
    assert request_["mac"] == hmac.digest(mac_key, message, "sha256").hex()
    assert shown == f"Tidegate {session} {time} {request_['mac']}"
    assert shown == protocol.authorization(
        session, mac_key, method, path.encode(), query.encode(), body, time
    )


def test_shows_the_message_of_a_mac() -> None:
    request_ = EXAMPLE["requests"][1]
    (block,) = (block for block in BLOCKS if block.language == "text")

    message = protocol.request_message(
        request_["method"],
        request_["path"].encode(),
        request_["query"].encode(),
        request_["body"].encode(),
        str(EXAMPLE["time"]).encode(),
    )

    assert block.text == message.decode() + "\n"


def test_shows_a_report_that_the_server_can_decode() -> None:
    (block,) = (block for block in BLOCKS if '"DispatchAck"' in block.text)

    event = event_from_json(json.loads(block.text)["report"])

    assert (type(event).__name__, event.seq) == ("DispatchAck", 1)


# ── complete ──────────────────────────────────────────────────────────────────────────────────────


def test_lists_every_report_with_its_members() -> None:
    common = {field.name for field in structs.fields(AgentFact)}
    expected = {
        event.__name__: {
            (field.name, field.default is not NODEFAULT)
            for field in structs.fields(event)
            if field.name not in common | ADDED.get(event.__name__, set())
        }
        for event in get_args(AgentEvent)
    }

    assert reports() == expected
    assert reports().keys() == KINDS.keys()


@pytest.mark.parametrize(
    "shape",
    [
        Enroll,
        OpenSession,
        Pulse,
        File,
        ChannelManifest,
        SignedManifest,
        protocol.EnrollmentAnswer,
        protocol.SessionAnswer,
        protocol.Order,
        protocol.ReportResult,
        protocol.HeartbeatAnswer,
        protocol.ReleaseContent,
        HostPolicy,
        AgentFact,
    ],
)
def test_names_every_member_of_every_message(shape: type[Struct]) -> None:
    missing = [
        field.encode_name
        for field in structs.fields(shape)
        if f"`{field.encode_name}`" not in TEXT and f'"{field.encode_name}"' not in TEXT
    ]

    assert missing == []


def test_names_the_defaults_of_the_policy() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w-]+)`? \| ", TEXT, re.MULTILINE))

    found = {name: rows.get(name) for name in HostPolicy.__struct_fields__}

    assert found == {field.name: str(field.default).lower() for field in structs.fields(HostPolicy)}


# ── what the page says works ──────────────────────────────────────────────────────────────────────


def test_signs_a_manifest_as_the_agent_verifies_it(tmp_path: Path) -> None:
    payload = json.dumps(
        {
            "channel": "web-stable",
            "version": 2**22 + 1,
            "generated_at": "2026-04-24T20:00:00Z",
            "expires_at": "2026-04-25T20:00:00Z",
            "wanted": {"release_id": "web.3", "digest": "sha256:" + 64 * "0"},
        }
    )
    public = key().public_key().public_bytes_raw()
    key_id = sha256(public).hexdigest()[:16]
    signature = b64encode(key().sign(b"tidegate.manifest.v2\n" + payload.encode())).decode()
    body = {"payload": payload, "key_id": key_id, "signature": signature}

    read = manifest.verify(
        json.dumps(body).encode(),
        "web-stable",
        {key_id: public.hex()},
        manifest.ManifestVersions(tmp_path, "log_1"),
        datetime(2026, 4, 25, 19, 59, tzinfo=UTC),
    )

    assert read.wanted.release_id == "web.3"


def test_enrolls_with_the_program_of_the_page(tmp_path: Path) -> None:
    shown = program()
    with serve_fleet(tmp_path / "data") as fleet, httpx2.Client(base_url=fleet.served.url) as http:
        http.headers["Tidegate-Protocol"] = "2"
        time = int(fleet.clock().timestamp())
        token = fleet.token("db-01")

        enrolled = http.post(
            "/v1/agent/enroll",
            json={
                "token": token,
                "public_key": EXAMPLE["public_key"],
                "proof": shown["enroll_proof"](key(), token),
            },
        )
        opened = http.post(
            "/v1/agent/session",
            json={
                "host_id": "db-01",
                "time": time,
                "nonce": EXAMPLE["nonce"],
                "proof": shown["session_proof"](key(), "db-01", time, EXAMPLE["nonce"]),
            },
        )
        answers = []
        for request_ in EXAMPLE["requests"]:
            method, path, query = request_["method"], request_["path"], request_["query"]
            query = query.replace("wait=30", "wait=0")
            body = request_["body"].encode()
            session, mac_key = opened.json()["session"], opened.json()["mac_key"]
            proof = shown["authorization"](session, mac_key, method, path, query, body, time)
            answers.append(
                http.request(
                    method,
                    f"{path}?{query}" if query else path,
                    content=body,
                    headers={"Authorization": proof, "Content-Type": "application/json"},
                ).status_code
            )

    assert (enrolled.status_code, enrolled.json()["host_id"]) == (200, "db-01")
    assert opened.status_code == 200, opened.text
    assert answers == [204, 200]
