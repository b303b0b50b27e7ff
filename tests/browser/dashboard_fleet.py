"""A served dashboard with people and a fleet: real slices, a real dispatcher, agents by hand.

The class does everything outside the browser: authors propose, the worker's dispatcher runs, and
agents send single reports. No row is written directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.control.fleet.dispatch import Dispatcher, DispatchResult
from tidegate.control.operations.accounts import PersonNames
from tidegate.control.operations.promotion_planning import Promote
from tidegate.control.storage.content_store import store_files
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.slices import CreateChannel, create_channel
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    ActivationStarted,
    AgentEvent,
    Converged,
    DispatchAck,
    Failed,
    ProbeDeclared,
    ProbeFailureFirst,
    ProbeResult,
    ProbeTopologyDeclared,
    RollbackComplete,
)
from tidegate.domain.hosts.rows import HOST_RECORDS, HostRecord, record_key
from tidegate.domain.hosts.states import HostState, ProbeMode, ProbeStatus
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    WithdrawProposal,
    approve_revision,
    propose_revision,
    withdraw_proposal,
)
from tidegate.domain.packages.facts import Edit
from tidegate.domain.packages.rows import PackageRow, Revision, package_key, revision_key
from tidegate.domain.packages.slices import CreateRevision, create_revision
from tidegate.domain.rollouts.promotion import PromotionResult
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.kernel import codec
from tidegate.kernel.model import Meta

PASSWORD = "a long enough passphrase"
OLD = "sha256:" + "0" * 64  # what hosts ran before the first release
RECORDS_MAX = 1_000
PEOPLE = {
    "author": ("user_ada0000000", "The author", (Role.AUTHOR,)),
    "approver": (
        "user_grace00000",
        "The approver",
        (Role.APPROVER, Role.RELEASE_MANAGER, Role.FLEET_OPERATOR, Role.AUTHOR, Role.AUDITOR),
    ),
    "viewer": ("user_viewer0000", "The viewer", (Role.VIEWER,)),
    "root": ("user_root000000", "The administrator", (Role.SECURITY_ADMIN,)),
}


class DashboardFleet:
    """One installation, the people of a team, and a fleet."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.url = served.url
        self.installation = served.installation
        self._dispatcher = Dispatcher(
            self.installation.lanes, self.installation.fleet_reader, self.installation.clock
        )
        self._count = 0
        if not served.installation.accounts.is_set_up:
            return  # the test creates its first user in the browser
        for login, (user_id, name, roles) in PEOPLE.items():
            grants = tuple(sorted(Grant(role) for role in roles))
            called = PersonNames(login, name)
            served.add_person(user_id, called, PASSWORD, *grants)

    def _id(self) -> str:
        self._count += 1
        return f"{self._count:026d}"

    def execute(self, item: Any, command: Any, by: str) -> Any:
        return self.installation.execute.run(item, command, meta=Meta(actor=by))

    def sign_out(self, cookies: dict[str, str]) -> int:
        """End a browser's session from elsewhere; return the status."""
        client = self.served.client()
        client.cookies.update(cookies)
        found = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/settings").text)
        assert found is not None
        return client.post("/signout", data={"csrf_token": found[1]}).status_code

    # ── releases ──

    def draft(self, workspace: str, files: Mapping[str, str], *, package: str = "web") -> str:
        """Create a draft of the author's with these files; return its name."""
        contents = {path: text.encode() for path, text in files.items()}
        manifest = store_files(self.installation.blobs, contents)
        author = PEOPLE["author"][0]
        found = self.installation.reads.find(package_key(f"default/{package}"), PackageRow)
        latest = None if found is None else found.row.latest
        command = CreateRevision(
            repository="default",
            package=package,
            workspace=workspace,
            uid=self._id(),
            by=author,
            tasks=() if latest is None else (Edit(latest.name),),
            files=manifest.files,
        )
        self.execute(create_revision, command, author)
        return command.place.name

    def propose(self, name: str) -> None:
        author = PEOPLE["author"][0]
        command = ProposeRevision(name=name, by=author, expected_version=self._version(name))
        self.execute(propose_revision, command, author)

    def withdraw(self, name: str) -> None:
        author = PEOPLE["author"][0]
        command = WithdrawProposal(name=name, by=author, expected_version=self._version(name))
        self.execute(withdraw_proposal, command, author)

    def publish(self, workspace: str, files: Mapping[str, str], *, package: str = "web") -> str:
        """Publish a revision that Ada proposes and Grace approves."""
        name = self.draft(workspace, files, package=package)
        self.propose(name)
        grace = PEOPLE["approver"][0]
        found = self.installation.reads.find(revision_key(name), Revision)
        assert found is not None
        command = ApproveRevision(
            name=name,
            by=grace,
            expected_version=found.version,
            digest=found.row.content.digest,
            reason="read the diff",
        )
        self.execute(approve_revision, command, grace)
        return name

    def _version(self, name: str) -> int:
        found = self.installation.reads.find(revision_key(name), Revision)
        assert found is not None
        return found.version

    # ── channels and hosts ──

    def channel(self, name: str, *, package: str = "web", **policy: Any) -> None:
        fleet = self.installation.reads.find(fleet_key(), Fleet)
        grace = PEOPLE["approver"][0]
        command = CreateChannel(
            channel=name,
            package=f"default/{package}",
            selector=f"channel={name}",
            operator=grace,
            policy=ChannelPolicy(**policy),
            fleet_version=0 if fleet is None else fleet.version,
        )
        self.execute(create_channel, command, grace)

    def enroll(self, channel: str, *hosts: str) -> None:
        grace = PEOPLE["approver"][0]
        for number, host in enumerate(hosts):
            labels = {"channel": channel, "zone": "abc"[number % 3]}
            key = f"{hash((channel, host)) & (2**256 - 1):064x}"
            command = EnrollHost(host_id=host, public_key=key, labels=labels, operator=grace)
            self.execute(enroll_host, command, grace)

    def promote(self, channel: str, release: str) -> str:
        """Promote the release on the channel; return the id of its rollout."""
        grace = PEOPLE["approver"][0]
        asked = Promote(channel=channel, release_id=release, command_id=self._id(), by=grace)
        outcome = self.installation.promotions.promote(asked, meta=Meta(actor=grace))
        self.installation.nudge()
        promoted = codec.decode(outcome.answer, PromotionResult)
        assert promoted.rollout_id is not None
        return promoted.rollout_id

    # ── the worker and the agents ──

    def dispatch(self) -> DispatchResult:
        """Run one pass of the dispatcher."""
        done = self._dispatcher.run_pass(thorough=True)
        self.installation.nudge()
        return done

    def records(self, rollout_id: str, *states: HostState) -> list[HostRecord]:
        rows = self.installation.reads.range(
            HOST_RECORDS, prefix=f"{rollout_id}/", limit=RECORDS_MAX
        )
        return [item.row for item in rows if not states or item.row.state in states]

    def say(self, rollout_id: str, host_id: str, kind: type[AgentEvent], **members: Any) -> None:
        """Send one report of a host's agent, in the rollout's lane."""
        found = self.installation.reads.find(record_key(rollout_id, host_id), HostRecord)
        assert found is not None
        event = kind(
            rollout_id=rollout_id,
            host_id=host_id,
            at=self.installation.clock(),
            seq=found.row.last_event_seq + 1,
            **members,
        )
        report = ReportEvent(rollout_id=rollout_id, host_id=host_id, event=event)
        meta = Meta(actor=f"host_{host_id}")
        self.installation.lanes.record(rollout_id, report_event, report, meta=meta).result(60)
        self.installation.nudge()

    def activate(self, rollout_id: str, host_id: str, *, runs: str = OLD) -> None:
        """Acknowledge, switch, declare a probe, and let it pass, so that the host soaks."""
        record = self.installation.reads.find(record_key(rollout_id, host_id), HostRecord)
        assert record is not None
        target = record.row.target_closure
        self.say(
            rollout_id,
            host_id,
            DispatchAck,
            current_closure_at_dispatch=runs,
            target_closure=target,
        )
        self.say(rollout_id, host_id, ActivationStarted, switch_method="symlink")
        self.say(rollout_id, host_id, ActivationCompleted, observed_current_closure=target)
        probe = ProbeDeclared("http", "http", ProbeMode.ENFORCE)
        self.say(rollout_id, host_id, ProbeTopologyDeclared, probes=(probe,))
        self._probe(rollout_id, host_id, ProbeStatus.PASS)

    def _probe(
        self, rollout_id: str, host_id: str, status: ProbeStatus, reason: str | None = None
    ) -> None:
        self.say(
            rollout_id,
            host_id,
            ProbeResult,
            probe_name="http",
            mode=ProbeMode.ENFORCE,
            status=status,
            failure_reason=reason,
        )

    def converge(self, rollout_id: str, host_id: str) -> None:
        """End the soak, and let the host converge."""
        record = self.installation.reads.find(record_key(rollout_id, host_id), HostRecord)
        assert record is not None
        closure = record.row.target_closure
        self.say(rollout_id, host_id, Converged, current_closure=closure)

    def fail(
        self, rollout_id: str, host_id: str, reason: str = "answered 500", *, back_to: str = OLD
    ) -> None:
        """Let the probe fail and the host roll back by itself."""
        self._probe(rollout_id, host_id, ProbeStatus.FAIL, reason)
        mode = ProbeMode.ENFORCE
        self.say(rollout_id, host_id, ProbeFailureFirst, probe_name="http", mode=mode)
        record = self.installation.reads.find(record_key(rollout_id, host_id), HostRecord)
        assert record is not None
        self.say(
            rollout_id,
            host_id,
            Failed,
            sustained_duration_secs=0,
            failing_probes=("http",),
            policy_applied=record.row.policy.on_failure,
        )
        self.say(rollout_id, host_id, RollbackComplete, reverted_to_closure=back_to)


@contextmanager
def serve_dashboard(data: Path, **settings: Any) -> Iterator[DashboardFleet]:
    """Serve a dashboard on SQLite in this directory."""
    routes = tuple(dict.fromkeys((*ROUTES, *PAGES)))
    with serving(data, routes=routes, **settings) as served:
        yield DashboardFleet(served)
