"""The real agent against a lying server: it runs only what the signed manifest names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.agent.fleet_server import until
from tests.agent.lying_server import (
    KEYS,
    LOG_ID,
    LyingServer,
    agent,
    manifest,
    release,
    serve_lies,
    signed,
)
from tests.agent.single_host import CHANNEL, NEW, OLD, closure_of, order
from tidegate.agent.errors import ManifestMemoryDamaged
from tidegate.agent.manifest import ManifestVersions, UntrustedManifest, judge, verify
from tidegate.clock import system_clock
from tidegate.domain.hosts.protocol import Order

EVIL = {"app.txt": b"evil"}
WANTED = release("web.2", closure_of(NEW))
OLDER = release("web.1", closure_of(OLD))
RELEASES = {"new": NEW, "old": OLD, "evil": EVIL}
HOUR = timedelta(hours=1)


def ordered(release_id: str, content: str, digest: str, **changes: Any) -> Order:
    """Make an order older than these tests' manifests, so that they must name it."""
    members: dict[str, Any] = {
        "release_id": release_id,
        "content": f"/v1/agent/releases/{content}",
        "enqueued_at": system_clock() - HOUR,
        "policy": {"soak_seconds": 1},
    }
    return order(digest, f"{CHANNEL}@{release_id}", **members | changes)


def new_order(**changes: Any) -> Order:
    return ordered("web.2", "new", closure_of(NEW), **changes)


def old_order(**changes: Any) -> Order:
    return ordered("web.1", "old", closure_of(OLD), **changes)


def evil_order(**changes: Any) -> Order:
    return ordered("web.9", "evil", closure_of(EVIL), **changes)


def runs(link: Path) -> str:
    try:
        return (link / "app.txt").read_text()
    except FileNotFoundError:
        return ""


def answered(server: LyingServer) -> None:
    """Wait until the agent has rejected the order or installed the content."""
    until(lambda: {"DispatchReject", "ActivationCompleted"} & set(server.kinds()), "it decides")


def asked_again(server: LyingServer) -> None:
    """Wait until the agent has fetched the manifest again and polled, or installed the content."""
    asked, polls = len(server.manifests_asked), server.polls
    until(
        lambda: (
            (len(server.manifests_asked) >= asked + 2 and server.polls > polls)
            or "ActivationCompleted" in server.kinds()
        ),
        "it fetches the manifest again",
        lambda: (len(server.manifests_asked), server.polls, server.kinds()),
    )


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(old_order, id="an older release that the manifest does not name"),
        pytest.param(evil_order, id="a release that was never approved"),
        pytest.param(
            lambda: ordered("web.2", "evil", closure_of(EVIL)), id="the wanted name, other content"
        ),
    ],
)
def test_rejects_an_order_that_the_manifest_does_not_name(tmp_path: Path, given: Any) -> None:
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED)
        server.orders.append(given())

        answered(server)

        assert server.kinds() == ["DispatchReject"]
        assert CHANNEL in server.reason()
        assert runs(link) == ""


def test_waits_with_a_manifest_of_2020(tmp_path: Path) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        old = manifest(WANTED, generated_at=then, expires_at=then + HOUR)
        server.manifest = 200, old
        server.orders.append(new_order())

        asked_again(server)

        assert server.kinds() == []
        assert runs(link) == ""


def test_waits_with_an_older_manifest_that_is_replayed(tmp_path: Path) -> None:
    """The replayed manifest is signed, has not expired, and names the old release."""
    replayed = manifest(OLDER, 1)
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED, 2)
        server.orders.append(new_order())
        until(lambda: runs(link) == "two", "the wanted release runs")
        until(lambda: "Converged" in server.kinds(), "it converges")

        server.reports.clear()
        server.manifest = 200, replayed
        server.orders.append(old_order())
        asked_again(server)

        assert server.kinds() == []
        assert runs(link) == "two"


# ── what a manifest allows ──


@pytest.mark.parametrize("role", ["rolling", "last_good", "previous"])
def test_takes_an_order_for_another_release_that_the_manifest_names(
    tmp_path: Path, role: str
) -> None:
    """Late hosts get the last good release, and a rollback goes to the previous one."""
    named: dict[str, Any] = {role: OLDER}
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED, **named)
        server.orders.append(old_order())

        until(lambda: "Converged" in server.kinds(), "it converges", server.kinds)

        assert runs(link) == "one"


def test_rejects_other_content_under_the_name_of_the_previous_release(tmp_path: Path) -> None:
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED, previous=OLDER)
        server.orders.append(ordered("web.1", "evil", closure_of(EVIL)))

        answered(server)

        assert server.kinds() == ["DispatchReject"]
        assert runs(link) == ""


# ── what makes the agent wait ──

NO_MANIFEST = 404, {"code": "not_found", "detail": "no manifest", "status": 404}
HELD = 409, {"code": "lease_held", "detail": "held", "status": 409}


def unwanted() -> list[Any]:
    then = system_clock() - 2 * HOUR
    return [
        pytest.param(NO_MANIFEST, id="there is none"),
        pytest.param(HELD, id="the server is busy with it"),
        pytest.param((200, b"\xff"), id="no manifest at all"),
        pytest.param((200, manifest(WANTED).replace(b"web.2", b"web.9")), id="changed"),
        pytest.param((200, signed(b"{}", Ed25519PrivateKey.generate())), id="another key's"),
        pytest.param((200, manifest(WANTED, channel="db")), id="another channel's"),
        pytest.param((200, manifest(WANTED, expires_at=then)), id="expired"),
        pytest.param((200, manifest(WANTED, 0, expires_at="never")), id="without an end"),
        pytest.param((200, manifest(OLDER, generated_at=then)), id="older than the order"),
    ]


@pytest.mark.parametrize("given", unwanted())
def test_waits_for_a_manifest_and_keeps_the_order_meanwhile(tmp_path: Path, given: Any) -> None:
    """The server sends the order once, so the agent must not drop it."""
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = given
        server.orders.append(new_order())
        asked_again(server)
        assert server.kinds() == []

        server.manifest = 200, manifest(WANTED, 9)
        until(lambda: "Converged" in server.kinds(), "it converges", server.kinds)

        assert runs(link) == "two"


def test_takes_a_newer_order_while_another_one_waits(tmp_path: Path) -> None:
    with serve_lies(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED)
        server.orders.append(evil_order(enqueued_at=system_clock()))
        asked_again(server)

        server.orders.append(new_order())
        until(lambda: "Converged" in server.kinds(), "it converges", server.kinds)

        assert runs(link) == "two"
        assert {report["rollout_id"] for report in server.reports} == {f"{CHANNEL}@web.2"}


# ── what the agent remembers ──


def test_remembers_the_newest_manifest_across_a_restart(tmp_path: Path) -> None:
    with serve_lies(**RELEASES) as server:
        with agent(server, tmp_path) as link:
            server.manifest = 200, manifest(WANTED, 5)
            server.orders.append(evil_order())
            answered(server)
        assert ManifestVersions(tmp_path / "state", LOG_ID).highest(CHANNEL) == 5, (
            "before it was decided"
        )

        with agent(server, tmp_path) as link:
            server.manifest = 200, manifest(OLDER, 4)
            server.orders.append(old_order())
            asked_again(server)

        assert {report["rollout_id"] for report in server.reports} == {f"{CHANNEL}@web.9"}
        assert runs(link) == ""


def test_remembers_nothing_of_another_installation(tmp_path: Path) -> None:
    memory = ManifestVersions(tmp_path, "one log")
    memory.remember(CHANNEL, 5)
    memory.remember(CHANNEL, 3)

    assert ManifestVersions(tmp_path, "one log").highest(CHANNEL) == 5
    assert ManifestVersions(tmp_path, "another log").highest(CHANNEL) == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"format":2,"log_id":"log","versions":{}}', "has format 2, this agent reads 1"),
        (b'{"format":1', "cannot be read"),
        (b'{"versions":{"web-stable":3}}', "cannot be read"),
    ],
)
def test_refuses_remembered_versions_of_another_format(
    tmp_path: Path, content: bytes, told: str
) -> None:
    (tmp_path / "manifests.json").write_bytes(content)

    with pytest.raises(ManifestMemoryDamaged, match=told) as refused:
        ManifestVersions(tmp_path, LOG_ID)
    assert "remove it" in refused.value.detail


def test_without_an_order_time_rejects_only_other_content(tmp_path: Path) -> None:
    """A time without a zone cannot be compared: the order waits, and the agent does not crash."""
    memory = ManifestVersions(tmp_path, LOG_ID)
    found = verify(manifest(WANTED), CHANNEL, KEYS, memory, system_clock())
    naive = datetime(2020, 1, 1)  # noqa: DTZ001

    with pytest.raises(UntrustedManifest):
        judge(old_order(enqueued_at=naive), found)
    assert judge(ordered("web.2", "evil", "sha256:x", enqueued_at=naive), found) is not None
