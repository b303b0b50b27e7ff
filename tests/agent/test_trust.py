"""The real agent against a server that lies: what the signed manifest does not name never runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agent.berth import CHANNEL, NEW, OLD, closure_of, order
from tests.agent.harbour import until
from tests.agent.hostile import Hostile, agent, hostile, manifest, release
from tidegate.clock import system_clock
from tidegate.domain.hosts.protocol import Order

EVIL = {"app.txt": b"evil"}
WANTED = release("web.2", closure_of(NEW))
OLDER = release("web.1", closure_of(OLD))
RELEASES = {"new": NEW, "old": OLD, "evil": EVIL}
HOUR = timedelta(hours=1)


def ordered(release_id: str, content: str, digest: str, **changes: Any) -> Order:
    """An order that is older than the manifests of these tests, so that they must name it."""
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


def answered(server: Hostile) -> None:
    """The agent has rejected the order, or it has installed it."""
    until(lambda: {"DispatchReject", "ActivationCompleted"} & set(server.kinds()), "it decides")


def asked_again(server: Hostile, link: Path) -> None:
    """The agent asked for the manifest several times and polled on, or it has installed it."""
    asked, polls = len(server.manifests_asked), server.polls
    until(
        lambda: (
            (len(server.manifests_asked) >= asked + 3 and server.polls >= polls + 2)
            or "ActivationCompleted" in server.kinds()
        ),
        "it asks again",
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
    with hostile(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED)
        server.orders.append(given())

        answered(server)

        assert server.kinds() == ["DispatchReject"]
        assert CHANNEL in server.reason()
        assert runs(link) == ""


def test_waits_under_a_manifest_of_2020(tmp_path: Path) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    with hostile(**RELEASES) as server, agent(server, tmp_path) as link:
        old = manifest(WANTED, generated_at=then, expires_at=then + HOUR)
        server.manifest = 200, old
        server.orders.append(new_order())

        asked_again(server, link)

        assert server.kinds() == []
        assert runs(link) == ""


def test_waits_under_an_older_manifest_that_is_sent_again(tmp_path: Path) -> None:
    """The replayed manifest is signed and has not expired, and it names the old release."""
    replayed = manifest(OLDER, 1)
    with hostile(**RELEASES) as server, agent(server, tmp_path) as link:
        server.manifest = 200, manifest(WANTED, 2)
        server.orders.append(new_order())
        until(lambda: runs(link) == "two", "the wanted release runs")
        until(lambda: "Converged" in server.kinds(), "it converges")

        server.reports.clear()
        server.manifest = 200, replayed
        server.orders.append(old_order())
        asked_again(server, link)

        assert server.kinds() == []
        assert runs(link) == "two"
