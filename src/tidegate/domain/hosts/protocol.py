"""The protocol between agent and server: what is signed, what is MACed, and the messages.

    enroll    one-time token + public key + signature    ──▶ the host is known by this key
    session   signature over host and time               ──▶ a MAC key for a quarter of an hour
    anything  MAC over method, path, query, body, time   ──▶ orders out, reports in

Both sides build these bytes with the same code, so they cannot differ.
"""

from __future__ import annotations

import hmac
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Final

from msgspec import Meta, Struct

from tidegate.domain.content.entries import File
from tidegate.domain.hosts.states import HostPolicy

PROTOCOL: Final = 2
PROTOCOL_HEADER: Final = "Tidegate-Protocol"
SCHEME: Final = "Tidegate"  # in the header: Authorization: Tidegate <session> <time> <mac>
SKEW_SECONDS_MAX = 60
SESSION_SECONDS = 900
WAIT_SECONDS_MAX = 60
REPORTS_MAX = 100  # in one request
ADDRESSES_MAX = 16  # of a host

_NO_BODY: Final = sha256(b"").hexdigest().encode()


# ── signatures and MACs ───────────────────────────────────────────────────────────────────────────


def enrollment_message(token: str, public_key: str) -> bytes:
    """Build the message that the new key signs, to prove that its owner has the private key."""
    return f"tidegate.enroll.v1\n{token}\n{public_key}".encode()


def join_message(token: str, host_id: str, public_key: str) -> bytes:
    """Build the message that the new key signs for a join token. It includes the host's name."""
    return f"tidegate.join.v1\n{token}\n{host_id}\n{public_key}".encode()


def session_message(host_id: str, time: int, nonce: str) -> bytes:
    """Build the message that the host's key signs for a session; ``time`` in seconds since 1970."""
    return f"tidegate.session.v2\n{host_id}\n{time}\n{nonce}".encode()


def request_mac(
    key: bytes, method: str, path: bytes, query: bytes, body: bytes, time: bytes
) -> bytes:
    """Compute the MAC of a request, in hexadecimal digits."""
    message = request_message(method, path, query, body, time)
    return hmac.digest(key, message, "sha256").hex().encode()


def request_message(method: str, path: bytes, query: bytes, body: bytes, time: bytes) -> bytes:
    """Build the message that the MAC covers: the request's parts as they are sent."""
    digest = sha256(body).hexdigest().encode() if body else _NO_BODY
    return b"\n".join((method.encode(), path, query, digest, time))


def authorization(
    session: str, key: bytes, method: str, path: bytes, query: bytes, body: bytes, time: int
) -> str:
    """Build the Authorization header of a request."""
    mac = request_mac(key, method, path, query, body, str(time).encode())
    return f"{SCHEME} {session} {time} {mac.decode()}"


# ── facts that a host reports ─────────────────────────────────────────────────────────────────────


class HostFacts(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a host reports about its machine: details for people, and claims that are not
    trusted.
    """

    os: Annotated[str, Meta(max_length=64)] = ""  # as /etc/os-release names it: debian
    os_version: Annotated[str, Meta(max_length=64)] = ""  # 12
    kernel: Annotated[str, Meta(max_length=128)] = ""  # 6.1.0-18-amd64
    arch: Annotated[str, Meta(max_length=32)] = ""  # x86_64, aarch64
    addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=ADDRESSES_MAX)
    ] = ()  # of its interfaces, without loopback


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


class EnrollmentAnswer(Struct, frozen=True, omit_defaults=True):
    """The host is known by its key. ``manifest_keys``: the keys that it should trust."""

    host_id: str
    log_id: str
    manifest_keys: dict[str, str]  # key id → Ed25519 public key, hex


class SessionAnswer(Struct, frozen=True):
    """A session: its id, and the key of its MACs."""

    session: str
    mac_key: str  # hex
    expires_at: datetime
    server_time: datetime


class Order(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the host should run, and under which policy."""

    rollout_id: str
    host_id: str
    attempt: int
    channel: str
    wave: int
    target_closure: str
    policy: HostPolicy
    release_id: str
    content: str  # the path of the list of the release's files
    enqueued_at: datetime
    last_event_seq: int = 0  # the host's next report has the number after it


class ReportResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of one report. 200: it is durable, now or from an earlier request."""

    rollout_id: str
    seq: int
    status: int
    code: str | None = None
    detail: str | None = None
    state: str | None = None  # the state that refused it
    expected: int | str | None = None  # the next report number, or the expected value
    accepted_through: int | None = None  # every report up to this one is durable
    facts: dict[str, str | int | tuple[str, ...] | None] = {}


class ReportsAnswer(Struct, frozen=True):
    """One result per report, in the same order."""

    answers: tuple[ReportResult, ...]


class HeartbeatAnswer(Struct, frozen=True, omit_defaults=True):
    """What the server knows of the host: its last report in each rollout."""

    received_at: datetime
    last_accepted_seq: dict[str, int]
    taken_back: tuple[str, ...] = ()  # rollouts that it asked about, whose order was withdrawn
    facts_missing: bool = False  # the server has no facts of the host: it should send them again


class ReleaseContent(Struct, frozen=True):
    """All files of a release. ``digest`` is their content digest (``tidegate.domain.content``).

    A file is fetched by its hash, or from its ``uri`` if it has one. Either way it is verified
    against the hash.
    """

    release_id: str
    digest: str
    files: tuple[File, ...]
