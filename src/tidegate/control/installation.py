"""An installation: everything over one log, composed from settings, a store and its writer.

``commands/startup.py`` opens one; only that module knows the engines.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.fleet import agent_reports, enrollment, order_queue, reader
from tidegate.control.lanes import Lanes
from tidegate.control.notifications import addresses, targets
from tidegate.control.operations import (
    access,
    accounts,
    automation,
    budgets,
    channels,
    freezes,
    hosts,
    join_tokens,
    outbox,
    owner_cleanup,
    packages,
    promotion,
    promotion_planning,
    protection,
    publications,
    quarantine,
    releases,
    repositories,
    requests,
    revisions,
    rollouts,
    subscriptions,
    uploads,
    windows,
)
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.targets import TargetOperations
from tidegate.control.publication import manifests, publisher
from tidegate.control.queries import (
    as_of,
    forecasts,
    history,
    log_health,
    log_reader,
    people,
)
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import Control, Submit
from tidegate.control.secrets import Secrets
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.content.limits import ContentLimits
from tidegate.domain.epochs import LOG_IDS, LogId
from tidegate.domain.notifications.messages import InstallationRef
from tidegate.errors import ConditionFailed, WriterClosed
from tidegate.kernel import folds as kernel_folds, model
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store
from tidegate.rate_limits import Bucket


@dataclass
class Installation:
    """Everything over one log, opened, composed and closed together.

    Only programs use it: a server, a worker, a command. They pass to each function the parts that
    it needs; no function takes the whole installation.
    """

    settings: Settings
    store: Store
    folds: kernel_folds.Folds
    control: Control
    submit: Submit
    lanes: Lanes
    blobs: Blobs
    secrets: Secrets
    clock: Clock
    closing: ExitStack
    forecast: forecasts.Forecaster = forecasts.no_forecast  # simulates a plan
    is_local: bool = False  # point reads take microseconds: they may run on an event loop
    listeners: list[Callable[[], None]] = field(default_factory=list)  # after own commits
    key_listeners: list[Callable[[], None]] = field(default_factory=list)  # after a key ended
    _closing: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.log_id = log_id(self.store, self.clock)
        self._compose_queries()
        self._compose_fleet()
        self._compose_operations()

    def close(self) -> None:
        """Finish current work, then close everything. A second call does nothing."""
        with self._closing:
            self.closing.close()

    @property
    def fault(self) -> WriterClosed | None:
        """Return why this process must end: its log rejects further writes. Only for SQLite."""
        found = getattr(self.store, "fault", None)
        return found if isinstance(found, WriterClosed) else None

    def nudge(self) -> None:
        """Notify the followers of the log of a commit in this process."""
        for listener in self.listeners:
            listener()

    def records(self, meta: model.Meta) -> Records:
        """Return access to generic rows, with ``meta`` for what it writes."""
        return Records(self.store, self.clock, meta)

    def _compose_queries(self) -> None:
        self.reads = Reads(self.store, is_local=self.is_local)
        self.log = log_reader.LogReader(self.store, self.folds.vocabulary)
        self.row_history = as_of.RowHistory(self.store, self.folds)
        self.scope_history = history.ScopeHistory(self.store)
        self.outbox_reader = OutboxReader(self.store)
        self.fleet_reader = reader.FleetReader(self.store, self.blobs)
        self.health = log_health.LogHealth(self.store, self.folds, self.clock)

    def _compose_fleet(self) -> None:
        self.enrollment = enrollment.Enrollment(
            self.reads,
            self.records,
            self.lanes,
            self.secrets,
            self.clock,
            lambda: self.log_id,
            self.nudge,
            self.key_listeners,
        )
        self.deliveries = order_queue.OrderQueue(self.store, self.submit, self.clock)
        self.agent_reports = agent_reports.AgentReports(self.lanes)
        self.heartbeats = agent_reports.Heartbeats(
            self.control,
            self.lanes,
            self.reads,
            self.records,
            self.clock,
            self.nudge,
            self.settings.allowed_facts,
        )
        self.publisher = publisher.Publisher(self.control, self.blobs)
        self.manifests = manifests.Manifests(
            self.control, self.publisher, enrollment.manifest_key(self.secrets)
        )

    def _compose_operations(self) -> None:
        self.execute = execute = Execute(self.control, self.nudge)
        lanes, reads, row_history = self.lanes, self.reads, self.row_history
        guard = protection.ProtectionGuard(execute, reads, self.name_of)
        self.guard = guard
        self.rollouts = rollouts.RolloutOperations(execute, lanes, reads, self.fleet_reader, guard)
        self.promotions = promotion_planning.Promotions(
            self.control, self.fleet_reader, self.blobs, self.name_of
        )
        self.promotion = promotion.PromotionOperations(
            execute, lanes, reads, row_history, self.promotions, self.manifests, guard
        )
        self.automation = automation.AutomationOperations(
            self.fleet_reader, reads, self.promotion, people.principal_of(reads), self.clock
        )
        self.channels = channels.ChannelOperations(
            execute, lanes, reads, self.fleet_reader, self.log, guard
        )
        self.freezes = freezes.FreezeOperations(execute, reads, self.clock, guard)
        self.windows = windows.WindowOperations(execute, reads, self.clock, guard)
        self.quarantine = quarantine.QuarantineOperations(execute, reads, guard)
        self.budgets = budgets.BudgetOperations(execute, reads, self.fleet_reader, guard)
        self.hosts = hosts.HostOperations(execute, lanes, reads, self.enrollment, guard)
        self.requests = requests.RequestOperations(
            execute,
            reads,
            guard,
            requests.GuardedOperations(
                promotion=self.promotion,
                channels=self.channels,
                rollouts=self.rollouts,
                quarantine=self.quarantine,
                freezes=self.freezes,
                windows=self.windows,
                budgets=self.budgets,
                hosts=self.hosts,
            ),
        )
        self.join_tokens = join_tokens.JoinTokenOperations(execute, self.enrollment)
        self.uploads = uploads.UploadOperations(
            reads, self.blobs, self.secrets, content_limits(self.settings), self.clock
        )
        self.revisions = revisions.RevisionOperations(
            execute, lanes, reads, row_history, self.blobs, self.uploads
        )
        self.packages = packages.PackageOperations(execute, lanes, reads, self.uploads)
        self.owner_cleanup = owner_cleanup.OwnerCleanupOperations(self.control, self.nudge)
        self.releases = releases.ReleaseOperations(execute, reads, row_history)
        self.repositories = repositories.RepositoryOperations(execute, reads, row_history)
        self.outbox = outbox.OutboxOperations(execute, self.outbox_reader)
        self.targets = TargetOperations(self.settings, self.clock, self.log)
        self.publications = publications.PublicationOperations(
            self.control,
            reads,
            publisher.Publisher(self.control, self.blobs, owner="api"),
            self.log,
            self.nudge,
        )
        setup_code = Path(self.settings.data) / "setup-code"
        self.accounts = accounts.Accounts(
            execute, reads, self.records, self.secrets, self.clock, setup_code
        )
        per_minute = self.settings.sign_ins_per_minute
        sign_ins = Bucket("sign-ins per minute", per_minute / 60, per_minute)
        self.access = access.AccessOperations(
            execute, reads, row_history, self.accounts, sign_ins, guard
        )
        self._compose_notifications()

    def _compose_notifications(self) -> None:
        url = self.settings.public_url
        self.installation_ref = InstallationRef(
            urlsplit(url).hostname or "tidegate", url, self.log_id
        )
        self.addresses = addresses.Addresses(self.records, self.secrets)
        self.notify_targets = targets.Targets(self.clock, self.settings.notify)
        self.subscriptions = subscriptions.SubscriptionOperations(
            self.execute,
            self.reads,
            self.log,
            self.addresses,
            self.notify_targets,
            self.installation_ref,
            self.name_of,
            self.clock,
        )

    def name_of(self, user_id: str) -> str | None:
        """Return the current name of a user; None: erased, or no user."""
        return self.accounts.name_of(user_id)


def content_limits(settings: Settings) -> ContentLimits:
    """Return the limits on a revision's content."""
    return ContentLimits(
        **{name: getattr(settings, name) for name in ContentLimits.__struct_fields__}
    )


def log_id(store: Store, clock: Clock) -> str:
    """Return the id of the log, which is made at the first start and never changes."""
    records = Records(store, clock)
    found = records.find(LOG_IDS.name, "log")
    if found is None:
        try:
            found = records.create(LOG_IDS.name, "log", LogId(randomness.token_hex(16)))
        except ConditionFailed:  # another process was faster
            found = records.get(LOG_IDS.name, "log")
    assert isinstance(found.value, LogId)
    return found.value.log_id
