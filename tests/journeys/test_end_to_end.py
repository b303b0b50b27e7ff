"""The product's story from end to end, through real processes, with kills in the middle of it.

Every engine must reach the same end by the same steps: the commands that people typed, their output
and what the API shows afterwards are one transcript, on any engine. It is stored for each engine in
`.tools/transcripts`; a run that ends later is compared with those that ended before it.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.process_fleet import (
    CANARY,
    CHANNEL,
    EARLY,
    HOSTS,
    PASSWORD,
    PROGRAM,
    RINGS,
    AgentHost,
    Person,
    ServerProcess,
    Transcript,
    policy_file,
    site,
    store_url,
    until,
)
from tests.servers.npm import TOOLS
from tests.servers.process import RUN_VARIABLE

UNTOLD = {"GateChanged", "HostStateChanged", "RecoveryActivationAssumed"}
ARTEFACTS = TOOLS / "transcripts"
GOOD, BAD = f"{CHANNEL}@web.1", f"{CHANNEL}@web.2"


class ProcessFleet:
    """The server, the fleet and the people of one story."""

    def __init__(self, tmp: Path, store: str, stack: ExitStack) -> None:
        self.tmp = tmp
        self.transcript = Transcript(tmp)
        self.master = ServerProcess(tmp, store)
        stack.callback(self.master.end)
        self._stack = stack
        names = ("admin", "author", "approver", "manager")
        people = [Person(tmp, name, self.master.url, self.transcript) for name in names]
        self.admin, self.author, self.approver, self.manager = people
        self.vessels: dict[str, AgentHost] = {}

    # ── the story ──

    def open(self) -> None:
        """Start for the first time, and set up all users."""
        self.master.start()
        code = (self.master.data / "setup-code").read_text().strip()
        herself = ("--login", "admin", "--name", "Admin", "--password-stdin", "--team")
        self.admin.does("setup", "--code", code, *herself, stdin=PASSWORD)
        for person, roles in (
            (self.author, ("author",)),
            (self.approver, ("approver",)),
            (self.manager, ("release-manager", "fleet-operator", "auditor")),
        ):
            granted = tuple(word for role in roles for word in ("--role", role))
            named = ("--name", person.name.title(), "--password-stdin", *granted)
            self.admin.does("user", "create", person.name, *named, stdin=PASSWORD)
            person.sign_in()
        self.http = self._stack.enter_context(self.manager.client())

    def publish(self, workspace: str, text: str, *start: str) -> None:
        """Have one person draft, push and propose a revision, and another read and approve it."""
        name = f"web.{workspace}"
        self.author.does("rev", *start, "--workspace", workspace)
        self.author.does("rev", "push", name, site(self.tmp, text))
        self.author.does("rev", "propose", name)
        self.approver.does("rev", "diff", name)
        self.approver.does("rev", "approve", name)

    def enroll_hosts(self) -> None:
        """Enroll twenty hosts: the first one by an invitation at the shell, the others as a script
        would.
        """
        first = HOSTS[0]
        labels = ("--label", "app=web", "--label", f"ring={RINGS[first]}")
        tokens = {first: self.manager.does("host", "enroll", first, *labels).out.strip()}
        for host_id in HOSTS[1:]:
            wanted = {"app": "web", "ring": RINGS.get(host_id, "rest")}
            answer = self.http.post("/v1/hosts/enroll", json={"host_id": host_id, "labels": wanted})
            assert answer.status_code == 201, answer.text
            tokens[host_id] = answer.json()["token"]
        for host_id, token in tokens.items():
            vessel = AgentHost(self.tmp, host_id, self.master.url, token)
            self._stack.callback(vessel.kill)
            self.vessels[host_id] = vessel
            vessel.start()
        until(lambda: len(self._heard()) == len(HOSTS), "a sign of life of every host")

    def _heard(self) -> list[str]:
        items = self.get("/v1/hosts?limit=500")["items"]
        return [item["host_id"] for item in items if item.get("last_seen_at")]

    # ── state ─────────────────────────────────────────────────────────────────────────────────────

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def states(self, rollout_id: str) -> dict[str, str]:
        items = self.get(f"/v1/rollouts/{rollout_id}/hosts?limit=500")["items"]
        return {item["host_id"]: item["state"] for item in items}

    def texts(self) -> dict[str, str]:
        """Return what runs on each host's disk."""
        return {host_id: vessel.text for host_id, vessel in self.vessels.items()}

    def history(self, rollout_id: str) -> list[str]:
        """Describe what happened to a rollout, host by host: hosts do not wait for each other, and
        the records of gates depend on when they were evaluated. The heartbeat of a host that was
        killed may arrive before its report, so only its own reports are listed, not its
        transitions.
        """
        by_host: dict[str, list[str]] = defaultdict(list)
        for item in self.get(f"/v1/rollouts/{rollout_id}/events?limit=500")["items"]:
            kind = item["type"].removeprefix("tidegate.")
            if kind not in UNTOLD:
                by_host[item["data"].get("host_id", "")].append(kind)
        return [f"  {host or 'all'}: {', '.join(kinds)}" for host, kinds in sorted(by_host.items())]

    def end(self) -> None:
        """Describe the final state, as the API shows it."""
        for rollout_id in (GOOD, BAD):
            found = self.get(f"/v1/rollouts/{rollout_id}")
            self.transcript.tell(
                f"rollout {rollout_id}: {found['state']}",
                *(f"  {host}: {state}" for host, state in self.states(rollout_id).items()),
                "happened:",
                *self.history(rollout_id),
            )
        pin = self.get(f"/v1/channels/{CHANNEL}")["pin"]
        self.transcript.tell(
            f"pinned: {pin['pinnedReleaseId']}, before: {pin['previousReleaseId']}",
            *(
                f"quarantined: {item['channel']} {item['closure_hash']}"
                for item in self.get("/v1/quarantine")["items"]
            ),
            *(f"on the disk of {host}: {text}" for host, text in self.texts().items()),
        )


@pytest.fixture(params=["sqlite", "postgres", "dynamodb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request, request.param, tmp_path)


@pytest.fixture
def fleet(store: str, tmp_path: Path) -> Iterator[ProcessFleet]:
    with ExitStack() as stack:
        yield ProcessFleet(tmp_path, store, stack)


def test_the_whole_story_ends_in_the_same_state_on_every_engine(
    fleet: ProcessFleet, request: pytest.FixtureRequest
) -> None:
    here = fleet
    here.open()
    here.publish("v1", "good one", "create", "web")
    carried = ("--package", "default/web", "--hosts", "app=web")
    here.manager.does("channel", "create", CHANNEL, *carried, "--policy", policy_file(here.tmp))
    here.enroll_hosts()

    here.manager.does("channel", "promote", CHANNEL, "web.1")
    struck = EARLY[0]
    until(lambda: here.states(GOOD).get(struck) == "Soaking", "the soak of the second wave")
    here.transcript.tell(f"# kill -9 of the agent on {struck} and of the server; both come back")
    here.vessels[struck].kill()
    here.master.kill()
    here.master.start()
    here.vessels[struck].come_back()
    here.manager.waits("rollout", "watch", GOOD, "--timeout", "60")
    assert here.states(GOOD) == dict.fromkeys(HOSTS, "Converged")
    assert here.texts() == dict.fromkeys(HOSTS, "good one")

    here.publish("v2", "bad two", "copy", "web.v1")
    here.manager.waits("channel", "promote", CHANNEL, "web.2", "--wait", "--timeout", "60", code=7)
    here.manager.does("rollout", "show", BAD)
    here.manager.does("rollout", "explain", BAD)
    here.manager.does("quarantine", "list")
    here.manager.does("log", "verify")
    assert here.states(BAD) == dict.fromkeys(CANARY, "Reverted")
    assert here.texts() == dict.fromkeys(HOSTS, "good one")

    here.end()
    assert here.master.stop() == 0
    words = [*PROGRAM, "views", "verify", *here.master.where]
    verified = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stdout
    here.transcript.tell(verified.stdout)
    keep(request.node.callspec.id, here.transcript)


def keep(engine: str, transcript: Transcript) -> None:
    """Store the transcript for people, and compare it with those of other engines of this run."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    (ARTEFACTS / f"{engine}.txt").write_text(transcript.text)
    told = Path(os.environ[RUN_VARIABLE]) / "transcripts"
    told.mkdir(exist_ok=True)
    (told / engine).write_text(transcript.compared)
    for other in told.iterdir():
        assert transcript.compared == other.read_text(), f"{engine} and {other.name} differ"
