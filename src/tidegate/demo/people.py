"""The users of the demo. Each calls operations of the installation with their own roles."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from itertools import count

from msgspec import Struct

from tidegate.control.installation import Installation
from tidegate.control.operations.accounts import PersonNames
from tidegate.control.storage.content_store import store_files
from tidegate.domain.access import callers, principals
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.domain.packages import approvals, facts, rows, slices
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.kernel.slices import Slice

REPOSITORY = "default"
KEY_BYTES = 32
PROGRAMS = "bin/"  # the directory of a package's programs
ACCOUNTS: Mapping[str, tuple[str, tuple[Role, ...]]] = {
    "author": ("The author", (Role.AUTHOR,)),
    "approver": ("The approver", (Role.APPROVER, Role.AUTHOR)),
    "manager": ("The manager", (Role.RELEASE_MANAGER, Role.FLEET_OPERATOR)),
}
VISITOR = "demo"


class DemoRelease(Struct, frozen=True):
    """A published revision."""

    release_id: str
    digest: str


class DemoPeople:
    """The users, created in a new installation."""

    def __init__(self, installation: Installation, password: str) -> None:
        self._installation = installation
        self._numbers = count(1)
        self.password = password  # the visitor's
        access, code = installation.access, installation.accounts.open_setup()
        assert code is not None, "the installation is new"
        called = PersonNames("admin", "The administrator")
        access.set_up(code, called, secrets.token_urlsafe(24), alone=False, address="")
        found = installation.log.feed(after=0, limit=1)[0].meta.actor
        admin = callers.Caller(
            principal=principals.Principal(found, "session", (Grant(Role.SECURITY_ADMIN),))
        )
        self._callers: dict[str, callers.Caller] = {}
        for login, (name, roles) in {**ACCOUNTS, VISITOR: ("You", tuple(Role))}.items():
            password = self.password if login == VISITOR else secrets.token_urlsafe(24)
            grants = tuple(sorted(Grant(role) for role in roles))
            added = access.add_user(admin, PersonNames(login, name), password, grants)
            principal = principals.Principal(added.user.id, "session", grants)
            self._callers[login] = callers.Caller(principal=principal)

    def tell(self, login: str, item: Slice, command: Struct) -> None:
        """Run a command as this person."""
        self._installation.execute(item, command, self._callers[login])

    # ── packages ──

    def draft(self, package: str, files: Mapping[str, str]) -> str:
        """Draft the next revision of a package as the author; return its name."""
        contents = {path: text.encode() for path, text in files.items()}
        programs = {path for path in files if path.startswith(PROGRAMS)}
        manifest = store_files(self._installation.blobs, contents, executables=programs)
        found = self._installation.reads.find(
            rows.package_key(f"{REPOSITORY}/{package}"), rows.PackageRow
        )
        latest = None if found is None else found.row.latest
        command = slices.CreateRevision(
            repository=REPOSITORY,
            package=package,
            workspace=f"change-{next(self._numbers)}",
            uid=secrets.token_hex(13),
            by=self._callers["author"].id,
            tasks=() if latest is None else (facts.Edit(latest.name),),
            files=manifest.files,
        )
        self.tell("author", slices.create_revision, command)
        return command.place.name

    def propose(self, name: str) -> None:
        version = self._revision(name)[1]
        command = approvals.ProposeRevision(
            name=name, by=self._callers["author"].id, expected_version=version
        )
        self.tell("author", approvals.propose_revision, command)

    def approve(self, name: str, remark: str) -> DemoRelease:
        """Approve a revision as the approver; return the release."""
        row, version = self._revision(name)
        command = approvals.ApproveRevision(
            name=name,
            by=self._callers["approver"].id,
            expected_version=version,
            digest=row.content.digest,
            reason=remark,
        )
        self.tell("approver", approvals.approve_revision, command)
        row, _ = self._revision(name)
        return DemoRelease(release_id_of(row.package, row.number), row.content.digest)

    def _revision(self, name: str) -> tuple[rows.Revision, int]:
        found = self._installation.reads.find(rows.revision_key(name), rows.Revision)
        assert found is not None, f"{name} was drafted"
        return found.row, found.version

    # ── channels and hosts ──

    def open_channel(self, channel: str, package: str, policy: ChannelPolicy) -> None:
        self._installation.channels.create(
            self._callers["manager"],
            channel,
            package=f"{REPOSITORY}/{package}",
            selector=f"channel={channel}",
            policy=policy,
        )

    def enroll(self, channel: str, prefix: str, hosts: int) -> Iterator[str]:
        """Enroll hosts with random public keys: the simulated agents sign nothing."""
        for number in range(1, hosts + 1):
            host_id = f"{prefix}-{number:03}"
            command = EnrollHost(
                host_id=host_id,
                public_key=secrets.token_hex(KEY_BYTES),
                labels={"channel": channel, "zone": "abc"[number % 3]},
                operator=self._callers["manager"].id,
            )
            self.tell("manager", enroll_host, command)
            yield host_id

    def limit(self, budget_id: str, selector: str, hosts: int) -> None:
        self._installation.budgets.set(
            self._callers["manager"], budget_id, selector, max_in_flight=hosts
        )

    def promote(self, channel: str, release_id: str) -> str:
        """Promote the release on the channel; return the rollout."""
        manager = self._callers["manager"]
        return self._installation.promotion.promote(manager, channel, release_id).rollout_id
