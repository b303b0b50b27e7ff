"""An installation: what runs over one log, composed from settings, a store and its writer.

``commands/startup.py`` opens one; it alone knows engines.
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
from tidegate.control.fleet.agent_reports import AgentReports, Heartbeats
from tidegate.control.fleet.enrollment import Enrollment, manifest_key
from tidegate.control.fleet.order_queue import OrderQueue
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.control.notifications.addresses import Addresses
from tidegate.control.notifications.targets import Targets
from tidegate.control.operations.access import AccessOperations
from tidegate.control.operations.accounts import Accounts
from tidegate.control.operations.automation import AutomationOperations
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.freezes import FreezeOperations
from tidegate.control.operations.hosts import HostOperations
from tidegate.control.operations.join_tokens import JoinTokenOperations
from tidegate.control.operations.outbox import OutboxOperations
from tidegate.control.operations.owner_cleanup import OwnerCleanupOperations
from tidegate.control.operations.packages import PackageOperations
from tidegate.control.operations.promotion import PromotionOperations, Promotions
from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.operations.publications import PublicationOperations
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.control.operations.releases import ReleaseOperations
from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.operations.requests import GuardedOperations, RequestOperations
from tidegate.control.operations.revisions import RevisionOperations
from tidegate.control.operations.rollouts import RolloutOperations
from tidegate.control.operations.subscriptions import SubscriptionOperations
from tidegate.control.operations.targets import TargetOperations
from tidegate.control.operations.uploads import UploadOperations
from tidegate.control.operations.windows import WindowOperations
from tidegate.control.publication.manifests import Manifests
from tidegate.control.publication.publisher import Publisher
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.documents import OutboxReader
from tidegate.control.queries.forecasts import Forecaster, no_forecast
from tidegate.control.queries.history import ScopeHistory
from tidegate.control.queries.log_health import LogHealth
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.people import principal_of
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import Control, Submit
from tidegate.control.secrets import Secrets
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.content.limits import ContentLimits
from tidegate.domain.epochs import LOG_IDS, LogId
from tidegate.domain.notifications.messages import InstallationRef
from tidegate.errors import ConditionFailed, WriterClosed
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import Meta
from tidegate.kernel.records.records import Records
from tidegate.kernel.store import Store
from tidegate.rate_limits import Bucket


@dataclass
class Installation:
    """Everything that runs over one log, opened, composed and closed together.

    Only programs know it: a server, a worker, a command. They hand each function the parts that its
    signature names, and no function takes the whole.
    """

    settings: Settings
    store: Store
    folds: Folds
    control: Control
    submit: Submit
    lanes: Lanes
    blobs: Blobs
    secrets: Secrets
    clock: Clock
    closing: ExitStack
    forecast: Forecaster = no_forecast  # plays a plan with simulated hosts
    is_local: bool = False  # point reads take microseconds: they may run on an event loop
    listeners: list[Callable[[], None]] = field(default_factory=list)  # called after own commits
    key_listeners: list[Callable[[], None]] = field(default_factory=list)  # an agent's key ended
    _closing: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.log_id = log_id(self.store, self.clock)
        self._compose_queries()
        self._compose_fleet()
        self._compose_operations()

    def close(self) -> None:
        """Finish what is under way, then close everything. A second call does nothing."""
        with self._closing:
            self.closing.close()

    @property
    def fault(self) -> WriterClosed | None:
        """Why this process must end: its log takes no more writes from it. SQLite alone has one."""
        found = getattr(self.store, "fault", None)
        return found if isinstance(found, WriterClosed) else None

    def nudge(self) -> None:
        """Tell those who follow the log that something was committed here."""
        for listener in self.listeners:
            listener()

    def records(self, meta: Meta) -> Records:
        """Generic rows, written in the name of this actor."""
        return Records(self.store, self.clock, meta)

    def _compose_queries(self) -> None:
        self.reads = Reads(self.store, is_local=self.is_local)
        self.log = LogReader(self.store, self.folds.vocabulary)
        self.row_history = RowHistory(self.store, self.folds)
        self.scope_history = ScopeHistory(self.store)
        self.outbox_reader = OutboxReader(self.store)
        self.fleet_reader = FleetReader(self.store, self.blobs)
        self.health = LogHealth(self.store, self.folds, self.clock)

    def _compose_fleet(self) -> None:
        self.enrollment = Enrollment(
            self.reads,
            self.records,
            self.lanes,
            self.secrets,
            self.clock,
            lambda: self.log_id,
            self.nudge,
            self.key_listeners,
        )
        self.deliveries = OrderQueue(self.store, self.submit, self.clock)
        self.agent_reports = AgentReports(self.lanes)
        self.heartbeats = Heartbeats(
            self.control,
            self.lanes,
            self.reads,
            self.records,
            self.clock,
            self.nudge,
            self.settings.allowed_facts,
        )
        self.publisher = Publisher(self.control, self.blobs)
        self.manifests = Manifests(self.control, self.publisher, manifest_key(self.secrets))

    def _compose_operations(self) -> None:
        self.execute = execute = Execute(self.control, self.nudge)
        lanes, reads, row_history = self.lanes, self.reads, self.row_history
        guard = ProtectionGuard(execute, reads, self.name_of)
        self.guard = guard
        self.rollouts = RolloutOperations(execute, lanes, reads, self.fleet_reader, guard)
        self.promotions = Promotions(self.control, self.fleet_reader, self.blobs, self.name_of)
        self.promotion = PromotionOperations(
            execute, lanes, reads, row_history, self.promotions, self.manifests, guard
        )
        self.automation = AutomationOperations(
            self.fleet_reader, reads, self.promotion, principal_of(reads), self.clock
        )
        self.channels = ChannelOperations(execute, lanes, reads, self.fleet_reader, self.log, guard)
        self.freezes = FreezeOperations(execute, reads, self.clock, guard)
        self.windows = WindowOperations(execute, reads, self.clock, guard)
        self.quarantine = QuarantineOperations(execute, reads, guard)
        self.budgets = BudgetOperations(execute, reads, self.fleet_reader, guard)
        self.hosts = HostOperations(execute, lanes, reads, self.enrollment, guard)
        self.requests = RequestOperations(
            execute,
            reads,
            guard,
            GuardedOperations(
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
        self.join_tokens = JoinTokenOperations(execute, self.enrollment)
        self.uploads = UploadOperations(
            reads, self.blobs, self.secrets, content_limits(self.settings), self.clock
        )
        self.revisions = RevisionOperations(
            execute, lanes, reads, row_history, self.blobs, self.uploads
        )
        self.packages = PackageOperations(execute, lanes, reads, self.uploads)
        self.owner_cleanup = OwnerCleanupOperations(self.control, self.nudge)
        self.releases = ReleaseOperations(execute, reads, row_history)
        self.repositories = RepositoryOperations(execute, reads, row_history)
        self.outbox = OutboxOperations(execute, self.outbox_reader)
        self.targets = TargetOperations(self.settings, self.clock, self.log)
        self.publications = PublicationOperations(
            self.control,
            reads,
            Publisher(self.control, self.blobs, owner="api"),
            self.log,
            self.nudge,
        )
        setup_code = Path(self.settings.data) / "setup-code"
        self.accounts = Accounts(execute, reads, self.records, self.secrets, self.clock, setup_code)
        per_minute = self.settings.sign_ins_per_minute
        sign_ins = Bucket("sign-ins per minute", per_minute / 60, per_minute)
        self.access = AccessOperations(execute, reads, row_history, self.accounts, sign_ins)
        self._compose_notifications()

    def _compose_notifications(self) -> None:
        url = self.settings.public_url
        self.installation_ref = InstallationRef(
            urlsplit(url).hostname or "tidegate", url, self.log_id
        )
        self.addresses = Addresses(self.records, self.secrets)
        self.notify_targets = Targets(self.clock, self.settings.notify)
        self.subscriptions = SubscriptionOperations(
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
        """How a user is called now; None: erased, or no user."""
        return self.accounts.name_of(user_id)


def content_limits(settings: Settings) -> ContentLimits:
    """How much a revision may hold here."""
    return ContentLimits(
        **{name: getattr(settings, name) for name in ContentLimits.__struct_fields__}
    )


def log_id(store: Store, clock: Clock) -> str:
    """Which log this is: a name that it got at its first start and keeps."""
    records = Records(store, clock)
    found = records.find(LOG_IDS.name, "log")
    if found is None:
        try:
            found = records.create(LOG_IDS.name, "log", LogId(randomness.token_hex(16)))
        except ConditionFailed:  # another process was faster
            found = records.get(LOG_IDS.name, "log")
    assert isinstance(found.value, LogId)
    return found.value.log_id
