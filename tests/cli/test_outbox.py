"""The registry and the outbox with the command line, on a real server with two releases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.registry_people import SCOPE, T0, RegistryPeople
from tests.api.serving import ADMIN, serving
from tests.cli.shell import Shell
from tidegate.clock import ManualClock
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.outbox.slices import RecordAttempt, record_attempt
from tidegate.kernel.model import Meta


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryPeople]:
    with serving(tmp_path / "data", clock=ManualClock(T0)) as served:
        yield RegistryPeople(served)


def test_redrives_a_dead_letter(registry: RegistryPeople, tmp_path: Path) -> None:
    served = registry.served
    token = served.token(served.user(Grant(Role.FLEET_OPERATOR)))
    operator = Shell(tmp_path / "home", served.url, token)
    registry.register(operations=["announce"])
    (intent,) = operator.run("outbox", "list", "-o", "jsonl").lines()
    attempt = RecordAttempt(
        scope=SCOPE,
        intent_id=intent["id"],
        attempt=1,
        succeeded=False,
        detail="gone",
        retryable=False,
    )
    served.installation.execute.run(record_attempt, attempt, meta=Meta(actor=ADMIN))

    dead = operator.run("outbox", "list", "--state", "dead")
    again = operator.run("outbox", "redrive", intent["id"], "--reason", "it is back")
    unknown = operator.run("outbox", "redrive", f"{intent['id']}x", "--reason", "it is back")
    after = operator.run("outbox", "list", "--channel", SCOPE, "-o", "json").json()

    assert "✘ dead" in dead.out
    assert "gone" in dead.out
    assert again.code == 0, again.err
    assert (unknown.code, "try: tidegate outbox list" in unknown.err) == (4, True)
    assert [item["state"] for item in after] == ["pending"]


def test_cancels_an_intent(registry: RegistryPeople, tmp_path: Path) -> None:
    served = registry.served
    token = served.token(served.user(Grant(Role.FLEET_OPERATOR)))
    operator = Shell(tmp_path / "home", served.url, token)
    registry.register(operations=["announce"])
    (intent,) = operator.run("outbox", "list", "-o", "jsonl").lines()

    silent = operator.run("outbox", "cancel", intent["id"])
    given_up = operator.run("outbox", "cancel", intent["id"], "--reason", "nobody listens")
    after = operator.run("outbox", "list", "--state", "cancelled", "-o", "json").json()

    assert silent.code == 2
    assert (given_up.code, "is given up" in given_up.out) == (0, True)
    assert [item["id"] for item in after] == [intent["id"]]


def test_rolls_publications_back(registry: RegistryPeople, tmp_path: Path) -> None:
    served = registry.served
    roles = (Grant(Role.FLEET_OPERATOR), Grant(Role.RELEASE_MANAGER))
    shell = Shell(tmp_path / "home", served.url, served.token(served.user(*roles)))
    publisher, clock = served.installation.publisher, served.installation.clock
    assert isinstance(clock, ManualClock)
    policy = PublicationPolicy(versioned=True, retention=timedelta(hours=2))
    publisher.serve("docs/index", lambda: b"one", policy)
    clock.advance(timedelta(hours=1))
    publisher.serve("docs/index", lambda: b"two", policy)

    made = shell.run("publication", "list", "docs/index", "-o", "json").json()
    old = next(item["version_id"] for item in made if not item["current"])
    back = shell.run("publication", "rollback", "docs/index", old)
    unknown = shell.run("publication", "list", "nothing")
    clock.advance(timedelta(hours=5))
    collected = shell.run("publication", "collect")
    again = shell.run("publication", "collect", "-o", "json").json()

    assert len(made) == 2
    assert back.code == 0, back.err
    assert (unknown.code, "try: tidegate channel list" in unknown.err) == (4, True)
    assert "1 publications, 2 generations, 0 requests are gone" in collected.out
    assert again["publications"] == 0
    assert publisher.read("docs/index") is None


def test_shows_which_release_was_current_and_who_decided_it(
    registry: RegistryPeople, tmp_path: Path
) -> None:
    served = registry.served
    shell = Shell(tmp_path / "home", served.url, served.token(served.user(Grant(Role.VIEWER))))
    registered = registry.register()
    url = f"/v1/releases/{SCOPE}/transition"
    etag = {"if-match": registered.headers["etag"]}
    assert registry.manager.post(url, json=registry.pin("web.2"), headers=etag).status_code == 200

    history = shell.run("channel", "history", SCOPE)

    second, first = history.out.splitlines()[1:]  # the newest is first
    assert "promoted" in first
    assert [word for word in second.split() if word.startswith("web.")] == ["web.2", "web.1"]
    assert "operator_command" in second
