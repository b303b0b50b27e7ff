"""From dev to prod with real processes: prod's canary never gets a release that is bad on dev.

A server, a worker and an agent on each host are processes. People work at their shells. Each way in
which a release may not have succeeded on dev is tested in turn, on one pair of channels; rollbacks
and the protected channel have one host of their own. At the end the log is checked: it has orders
only for releases that had succeeded on dev, and for the one that a person overrode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.api.people import People
from tests.cli.shell import Ran
from tests.journeys.process_fleet import (
    PASSWORD,
    AgentHost,
    Person,
    ServerProcess,
    Transcript,
    WorkerProcess,
    store_url,
    until,
)

TEXTS: Final = (
    *("good 1", "bad 2", "good 3", "good 4", "good 5", "good 6", "good 7", "good 8", "bad 9"),
)
WAIT: Final = ("--wait", "--timeout", "80")
WHY: Final = ("--reason", "INC-7")
ONE_WAVE: Final = {
    "waves": [{"name": "all", "soak_seconds": 1}],
    "sustained_failure_seconds": 1,
}
TWO_WAVES: Final = {
    "waves": [{"name": "canary", "count": 1}, {"name": "rest", "manual": True}],
    "sustained_failure_seconds": 1,
    "edges": ["dev"],
}
PROD: Final = ("prod-1", "prod-2")
PEOPLE: Final = {
    "author": ("author",),
    "ann": ("release-manager", "fleet-operator", "auditor"),
    "bob": ("approver",),
    "olga": ("on-call", "release-manager"),
}


class Writers(People):
    """An author and an approver, at the API of a server that is a process."""

    def __init__(self, author: httpx2.Client, approver: httpx2.Client) -> None:
        self.author, self.approver, self.viewer = author, approver, author


class Pipeline:
    """A server, its worker, the people, and three channels of one package: dev, prod and qa."""

    def __init__(self, tmp: Path, store: str, stack: ExitStack) -> None:
        self.tmp = tmp
        self._stack = stack
        self.server = ServerProcess(tmp, store, "--worker", "false")
        stack.callback(self.server.end)
        self.server.start()
        self.hosts: dict[str, AgentHost] = {}
        said = Transcript(tmp)
        admin, *others = (Person(tmp, name, self.server.url, said) for name in ("admin", *PEOPLE))
        self._people = {person.name: person for person in others}
        self._set_up(admin)
        worker = WorkerProcess(tmp, self.server)
        stack.callback(worker.end)
        self.http = stack.enter_context(self._people["ann"].client())
        self._publish()
        for channel, policy in (("dev", ONE_WAVE), ("prod", TWO_WAVES), ("qa", ONE_WAVE)):
            body = {"channel": channel, "package": "default/web", "selector": f"env={channel}"}
            self.post("/v1/channels", {**body, "policy": policy})
        for host_id in ("dev-1", *PROD, "qa-1"):
            self.join(host_id)
        self.join("dev-2", accepts="good [^5]")
        until(lambda: len(self._heard()) == len(self.hosts), "a sign of life of every host")

    def _set_up(self, admin: Person) -> None:
        code = (self.server.data / "setup-code").read_text().strip()
        herself = ("--login", "admin", "--name", "Admin", "--password-stdin", "--team")
        admin.does("setup", "--code", code, *herself, stdin=PASSWORD)
        admin.sign_in()
        self.http = self._stack.enter_context(admin.client())
        for name, roles in PEOPLE.items():
            named = {"login": name, "name": name.title(), "password": PASSWORD.strip()}
            self.post("/v1/users", {**named, "roles": [{"role": role} for role in roles]})
            self._people[name].sign_in()

    def _publish(self) -> None:
        clients = (self._stack.enter_context(self._people[name].client()) for name in PEOPLE)
        author, _, approver, _ = clients
        writers, before = Writers(author, approver), ""
        for number, text in enumerate(TEXTS, 1):
            name = f"default.web.v{number}"
            tasks = {"tasks": [{"type": "edit", "source": before}]} if before else {}
            writers.draft(f"v{number}", **tasks)
            writers.push(name, app_txt=text)
            writers.publish(name)
            before = name

    def join(self, host_id: str, *, accepts: str = "good") -> None:
        """Enroll a host in the channel that its name begins with."""
        channel = host_id.partition("-")[0]
        body = {"host_id": host_id, "labels": {"env": channel}}
        token = self.post("/v1/hosts/enroll", body)["token"]
        host = AgentHost(self.tmp, host_id, self.server.url, token, channel=channel)
        host.accept(accepts)
        self._stack.callback(host.kill)
        self.hosts[host_id] = host
        host.start()

    def _heard(self) -> list[str]:
        items = self.get("/v1/hosts?limit=100")["items"]
        return [item["host_id"] for item in items if item.get("last_seen_at")]

    # ── what people do ────────────────────────────────────────────────────────────────────────────

    def run(self, who: str, *words: str, code: int = 0) -> Ran:
        return self._people[who].does(*words, code=code)

    def promote(self, channel: str, release: str, *words: str, code: int = 0) -> str:
        """Promote a release, and return the rollout."""
        self.run("ann", "channel", "promote", channel, release, *words, code=code)
        return f"{channel}@{release}"

    def abort(self, rollout_id: str) -> None:
        self.run("ann", "rollout", "abort", rollout_id, *WHY)

    def freeze(self, channel: str) -> str:
        """Freeze a channel, and return the freeze."""
        words = ("freeze", "create", "--channel", channel, *WHY, "-o", "json")
        freeze_id: str = self.run("ann", *words).json()["freeze_id"]
        return freeze_id

    def held(self, rollout_id: str, *parts: str) -> None:
        """Wait until explain reports this about a closed edge."""

        def sentence() -> str:
            gates = self.get(f"/v1/rollouts/{rollout_id}/explain")["verdicts"]
            (edge,) = (gate for gate in gates if gate["gate"] == "channel-edges")
            return "" if edge["passed"] else str(edge["reason"])

        until(lambda: all(part in sentence() for part in parts), f"{parts} of {rollout_id}")

    def deliver_to_prod(self, release: str) -> str:
        """Promote it on prod, and continue after the canary."""
        rollout_id = self.promote("prod", release)
        self.reaches(rollout_id, "prod-1", "Converged")
        self.run("ann", "rollout", "continue", rollout_id)
        self.succeeds(rollout_id)
        return rollout_id

    # ── state ─────────────────────────────────────────────────────────────────────────────────────

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def outcome(self, rollout_id: str) -> str | None:
        found: str | None = self.get(f"/v1/rollouts/{rollout_id}").get("outcome")
        return found

    def succeeds(self, rollout_id: str) -> None:
        until(lambda: self.outcome(rollout_id) == "succeeded", f"the success of {rollout_id}")

    def states(self, rollout_id: str) -> dict[str, str]:
        items = self.get(f"/v1/rollouts/{rollout_id}/hosts?limit=100")["items"]
        return {item["host_id"]: item["state"] for item in items}

    def reaches(self, rollout_id: str, host_id: str, state: str) -> None:
        until(
            lambda: self.states(rollout_id).get(host_id) == state,
            f"{state} of {host_id} in {rollout_id}",
        )

    def requests(self, state: str) -> list[str]:
        items = self.get(f"/v1/requests?state={state}")["items"]
        return [item["request_id"] for item in items]

    def runs(self, host_id: str, text: str) -> None:
        until(lambda: self.hosts[host_id].text == text, f"{text} on {host_id}")

    def export(self, *types: str) -> list[dict[str, Any]]:
        path = self.tmp / "log.jsonl"
        wanted = [word for name in types for word in ("--type", name)]
        self.run("ann", "log", "export", str(path), *wanted)
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(params=["sqlite", "postgres"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipeline]:
    with ExitStack() as stack:
        yield Pipeline(tmp_path, store_url(request, request.param, tmp_path), stack)


@pytest.mark.req("OP-2", engines=None, reason="real processes; its own parameters are engines")
def test_no_bad_release_of_dev_reaches_prod_and_people_roll_back(pipeline: Pipeline) -> None:
    what_succeeded_on_dev_reaches_prod(pipeline)
    what_failed_on_dev_is_held_and_stays_so_when_it_is_aborted_there(pipeline)
    what_was_aborted_or_replaced_on_dev_is_held(pipeline)
    what_never_ran_on_dev_is_held_until_a_person_overrides_it(pipeline)
    what_is_quarantined_on_dev_is_held(pipeline)
    rolling_dev_back_holds_prod_in_the_middle_of_its_rollout(pipeline)
    two_bad_releases_in_a_row_then_back_twice(pipeline)
    back_during_a_freeze_waits_and_now_does_not(pipeline)
    a_protected_channel_takes_two_people_and_break_glass_a_review(pipeline)
    the_log_agrees(pipeline)


def what_succeeded_on_dev_reaches_prod(here: Pipeline) -> None:
    here.promote("dev", "web.1", *WAIT)
    here.deliver_to_prod("web.1")

    here.runs("prod-1", "good 1")
    here.runs("prod-2", "good 1")


def what_failed_on_dev_is_held_and_stays_so_when_it_is_aborted_there(here: Pipeline) -> None:
    bad = here.promote("dev", "web.2", *WAIT, code=7)
    held = here.promote("prod", "web.2")
    here.held(held, "web.2 stopped on dev", "dev-")

    here.abort(bad)

    here.held(held, "web.2 failed on dev", "dev-")
    said = here.run("ann", "rollout", "explain", held).out
    assert "web.2 failed on dev" in said, said
    assert here.outcome(bad) == "rolled_back"
    assert here.states(held) == {}


def what_was_aborted_or_replaced_on_dev_is_held(here: Pipeline) -> None:
    freeze_id = here.freeze("dev")
    for release, successor in (("web.3", ""), ("web.4", "web.5")):
        rollout_id = here.promote("dev", release)
        held = here.promote("prod", release)
        here.held(held, f"{release} is still rolling out on dev")
        if successor:
            here.promote("dev", successor)
            here.held(held, f"{release} was replaced by {successor} on dev")
        else:
            here.abort(rollout_id)
            here.held(held, f"{release} was aborted on dev")
        assert here.states(held) == {}
    here.run("ann", "rollout", "skip", "dev@web.5", "dev-2", *WHY)
    here.run("ann", "freeze", "delete", freeze_id, *WHY)
    here.succeeds("dev@web.5")


def what_never_ran_on_dev_is_held_until_a_person_overrides_it(here: Pipeline) -> None:
    held = here.promote("prod", "web.6")
    here.held(held, "web.6 was never rolled out on dev", "tidegate channel promote dev web.6")
    words = ("rollout", "override", held, "--gate", "edges", *WHY)

    here.run("ann", *words, code=5)  # it needs the permission emergency
    assert here.states(held) == {}
    here.run("olga", *words)

    here.runs("prod-1", "good 6")
    said = here.run("ann", "rollout", "explain", held).out
    assert "Olga" in said, said
    assert "INC-7" in said, said
    here.run("ann", "rollout", "continue", held)
    here.succeeds(held)


def what_is_quarantined_on_dev_is_held(here: Pipeline) -> None:
    """web.5 succeeded on dev. The host that was skipped gets it later, and fails with it."""
    here.reaches("dev@web.5", "dev-2", "Reverted")
    assert here.outcome("dev@web.5") == "succeeded"
    held = here.promote("prod", "web.5")
    here.held(held, "web.5 is quarantined on dev", "dev-2")

    assert here.states(held) == {}


def rolling_dev_back_holds_prod_in_the_middle_of_its_rollout(here: Pipeline) -> None:
    here.promote("dev", "web.7", *WAIT)
    going = here.promote("prod", "web.7")
    here.reaches(going, "prod-1", "Converged")

    here.run("ann", "channel", "rollback", "dev", "--reason", "memory leak", *WAIT)

    here.held(going, "Ann rolled dev back from web.7", "memory leak")
    here.run("ann", "rollout", "continue", going)
    here.held(going, "Ann rolled dev back from web.7")
    assert here.states(going) == {"prod-1": "Converged"}
    assert here.hosts["prod-2"].text == "good 6"
    back = here.run("ann", "channel", "rollback", "prod", "--reason", "memory leak")
    assert "web.6" in back.out + back.err
    here.runs("prod-1", "good 6")
    assert here.hosts["prod-2"].text == "good 6"


def two_bad_releases_in_a_row_then_back_twice(here: Pipeline) -> None:
    for release in ("web.1", "web.3", "web.4"):
        here.promote("qa", release, *WAIT)
    for release in ("web.2", "web.9"):
        here.promote("qa", release, *WAIT, code=7)

    here.run("ann", "channel", "rollback", "qa", *WHY, *WAIT)
    here.runs("qa-1", "good 4")
    here.run("ann", "channel", "rollback", "qa", *WHY, *WAIT)
    here.runs("qa-1", "good 3")


def back_during_a_freeze_waits_and_now_does_not(here: Pipeline) -> None:
    here.promote("qa", "web.8", *WAIT)
    freeze_id = here.freeze("qa")

    plain = here.run("ann", "channel", "rollback", "qa", *WHY)

    assert f"Freeze {freeze_id} holds it" in plain.err, plain.err
    assert "--now --reason" in plain.err
    here.run("ann", "channel", "rollback", "qa", "--now", *WHY, code=5)
    assert here.hosts["qa-1"].text == "good 8"
    here.run("olga", "channel", "rollback", "qa", "--now", *WHY, *WAIT)
    here.runs("qa-1", "good 3")
    here.run("ann", "freeze", "delete", freeze_id, *WHY)


def a_protected_channel_takes_two_people_and_break_glass_a_review(here: Pipeline) -> None:
    here.run("ann", "channel", "protect", "qa", *WHY)
    asked = here.run("ann", "channel", "promote", "qa", "web.4", code=9)
    (request_id,) = here.requests("waiting")
    assert request_id in asked.out + asked.err

    own = here.run("ann", "request", "approve", request_id, code=5)
    assert here.hosts["qa-1"].text == "good 3", own
    here.run("bob", "request", "approve", request_id)
    here.runs("qa-1", "good 4")
    here.succeeds("qa@web.4~3")

    alone = ("channel", "promote", "qa", "web.8", "--break-glass", "--reason", "checkout is down")
    here.run("ann", *alone, code=5)  # it needs the permission emergency
    here.run("olga", *alone)
    here.runs("qa-1", "good 8")
    (request_id,) = here.requests("to-review")
    verdict = ("request", "review", request_id, "--accept", "--reason", "it was down")
    assert here.run("olga", *verdict, code=5).err
    here.run("bob", *verdict)
    assert here.requests("to-review") == []


def the_log_agrees(here: Pipeline) -> None:
    """Check that every order on prod is for a release that had succeeded on dev, or that Olga
    overrode.
    """
    good, passed, ordered = set[str](), set[str](), set[tuple[str, str]]()
    kinds = ("RolloutConcluded", "GateOverridden", "DispatchReserved")
    for event in here.export(*kinds):
        data = event["data"]
        channel, _, release = data["rollout_id"].partition("@")
        release = release.partition("~")[0]
        match event["type"].removeprefix("tidegate."):
            case "RolloutConcluded" if channel == "dev" and data["outcome"] == "succeeded":
                good.add(release)
            case "GateOverridden" if channel == "prod":
                passed.add(release)
            case "DispatchReserved" if channel == "prod":
                ordered.add((release, data["host_id"]))
                assert release in good | passed, (release, good, passed)
    both = {(release, host_id) for release in ("web.1", "web.6") for host_id in PROD}
    assert ordered == both | {("web.7", "prod-1")}
    assert passed == {"web.6"}
    here.run("ann", "log", "verify")
