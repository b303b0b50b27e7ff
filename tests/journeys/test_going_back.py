"""Rollbacks as people do them: at a shell, against a real server, with the agent as a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.fleet_server import CHANNEL, FleetServer, until
from tests.cli.shell import Ran, Shell
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.rows import RolloutTally, tally_key
from tidegate.domain.rollouts.states import Outcome

HOST = "web-1"
WHY = ("--reason", "checkout is down")


class Story:
    """One host, its agent, and two people: a release manager and an on-call engineer."""

    def __init__(self, tmp: Path, stack: ExitStack, *texts: str, **policy: Any) -> None:
        self.server = FleetServer(tmp, *texts, **policy)
        stack.callback(self.server.close)
        self.agent = AgentProcess(self.server, HOST)
        stack.callback(self.agent.end)
        self.agent.start()
        self.manager = self._person(tmp / "manager", Role.RELEASE_MANAGER, Role.FLEET_OPERATOR)
        self.on_call = self._person(tmp / "on-call", Role.ON_CALL)

    def _person(self, home: Path, *roles: Role) -> Shell:
        served = self.server.served
        return Shell(home, served.url, served.token(served.user(*map(Grant, roles))))

    def succeed(self, release_id: str) -> None:
        rollout_id = self.server.promote(release_id)
        self.server.reaches(rollout_id, HOST, HostState.CONVERGED)

    def fail(self, release_id: str) -> None:
        """Fail the probe, so that the host rolls back by itself."""
        rollout_id = self.server.promote(release_id)
        self.server.reaches(rollout_id, HOST, HostState.REVERTED)

    def soak_for_an_hour(self) -> None:
        """Edit the channel so that releases soak for an hour."""
        url = f"/v1/channels/{CHANNEL}"
        seen = self.server.manager.get(url)
        body = {"policy": {"waves": [{"name": "all", "soak_seconds": 3_600}], "on_failure": "halt"}}
        edited = self.server.manager.patch(
            url, json=body, headers={"if-match": seen.headers["etag"]}
        )
        assert edited.status_code == 200, edited.text

    def rollback(self, person: Shell, *words: str) -> Ran:
        return person.run("channel", "rollback", CHANNEL, *words)

    def runs(self, text: str) -> None:
        until(lambda: self.agent.text == text, f"the host runs {text}", lambda: self.agent.log)

    def outcome(self, rollout_id: str) -> Outcome | None:
        found = self.server.installation.reads.find(tally_key(rollout_id), RolloutTally)
        return None if found is None else found.row.outcome


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Callable[..., Story]]:
    with ExitStack() as stack:
        yield lambda *texts, **policy: Story(tmp_path, stack, *texts, **policy)


def test_rolls_back_twice_after_two_bad_releases_in_a_row(tell: Callable[..., Story]) -> None:
    story = tell("good one", "good two", "broken three", "broken four")
    story.succeed("web.1")
    story.succeed("web.2")
    story.fail("web.3")
    story.fail("web.4")

    shown = story.rollback(story.manager, "--dry-run")
    first = story.rollback(story.manager, *WHY, "--wait", "--timeout", "80")

    assert shown.code == 0, shown.err
    assert "would go to web.2" in shown.err
    assert first.code == 0, first.err
    assert story.outcome(f"{CHANNEL}@web.2~2") is Outcome.SUCCEEDED
    story.runs("good two")

    second = story.rollback(story.manager, *WHY, "--wait", "--timeout", "80")

    assert second.code == 0, second.err
    story.runs("good one")
    nothing = story.rollback(story.manager, *WHY)
    assert nothing.code == 1
    assert "web.1 is what web-stable wants now" in nothing.err
    assert "rolled back from web.2 at" in nothing.err
    assert story.server.installation.health.differences() == []


def test_a_rollback_during_a_freeze_waits_unless_it_is_now(tell: Callable[..., Story]) -> None:
    """web.2 soaks for an hour when it is found to be bad. The agent polls while it soaks."""
    story = tell("good one", "good two")
    story.succeed("web.1")
    story.soak_for_an_hour()
    bad = story.server.promote("web.2")
    story.server.reaches(bad, HOST, HostState.SOAKING)
    frozen = story.manager.run("freeze", "create", "--channel", CHANNEL, "--reason", "holidays")
    assert frozen.code == 0, frozen.err

    plain = story.rollback(story.manager, *WHY)

    assert plain.code == 0, plain.err
    assert "holds it" in plain.err
    assert f"tidegate channel rollback {CHANNEL} --to web.1 --now --reason" in plain.err
    refused = story.rollback(story.manager, "--now", *WHY)
    assert (refused.code, "This needs the role on-call" in refused.err) == (5, True), refused.err
    assert story.agent.text == "good two"

    now = story.rollback(story.on_call, "--now", *WHY, "--wait", "--timeout", "80")

    assert now.code == 0, now.err
    story.runs("good one")
    assert story.outcome(f"{CHANNEL}@web.1~3") is Outcome.SUCCEEDED
    record = story.server.record(bad, HOST)
    assert record is not None
    assert (record.state, record.left) == (HostState.SOAKING, "skipped")
    events = story.on_call.run("rollout", "events", f"{CHANNEL}@web.1~3", "-o", "jsonl").lines()
    assert "tidegate.GateOverridden" in {item["type"] for item in events}
    assert story.server.installation.health.differences() == []
