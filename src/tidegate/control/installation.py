"""An installation at work: the log, its writer, blobs, secrets and settings, opened and closed.

What the API asks of it is here as well: rows with their versions, events, commands. It is made by
the composition root, which alone knows engines.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

from msgspec import Struct

from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.fleet.enrollment import Enrollment, manifest_key
from tidegate.control.fleet.order_queue import OrderQueue
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.control.operations.access import AccessOperations
from tidegate.control.operations.accounts import Accounts
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.freezes import FreezeOperations
from tidegate.control.operations.hosts import HostOperations
from tidegate.control.operations.outbox import OutboxOperations
from tidegate.control.operations.owner_cleanup import OwnerCleanupOperations
from tidegate.control.operations.packages import PackageOperations
from tidegate.control.operations.promotion import PromotionOperations, Promotions
from tidegate.control.operations.publications import PublicationOperations
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.control.operations.releases import ReleaseOperations
from tidegate.control.operations.repositories import RepositoryOperations
from tidegate.control.operations.revisions import RevisionOperations
from tidegate.control.operations.rollouts import RolloutOperations
from tidegate.control.operations.targets import TargetOperations
from tidegate.control.publication.manifests import Manifests
from tidegate.control.publication.publisher import Publisher
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.documents import OutboxReader
from tidegate.control.queries.forecasts import Forecaster, no_forecast
from tidegate.control.queries.history import ScopeHistory
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Reads
from tidegate.control.rate_limits import Bucket
from tidegate.control.runtime import CommandOutcome, Control, Submit
from tidegate.control.secrets import Secrets
from tidegate.control.storage.blobs import Blobs
from tidegate.domain.epochs import LOG_IDS, LogId
from tidegate.domain.outbox.rows import QUEUES, Queue
from tidegate.errors import ConditionFailed, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import Check, Commit, Key, Meta
from tidegate.kernel.records.records import Records
from tidegate.kernel.replay import Difference, differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store


@dataclass
class Installation:
    """Everything that a server, a worker or a command on this machine works with."""

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
    version: str = ""  # of the program
    forecast: Forecaster = no_forecast  # plays a plan with simulated hosts
    is_local: bool = False  # point reads take microseconds: they may run on an event loop
    listeners: list[Callable[[], None]] = field(default_factory=list)  # called after own commits
    key_listeners: list[Callable[[], None]] = field(default_factory=list)  # an agent's key ended
    _closing: Lock = field(default_factory=Lock)

    def close(self) -> None:
        """Finish what is under way, then let go of everything; twice is no fault."""
        with self._closing:
            self.closing.close()

    # ── what stands ──

    @cached_property
    def reads(self) -> Reads:
        """Rows as they are now."""
        return Reads(self.store)

    @cached_property
    def log(self) -> LogReader:
        """The events of the log."""
        return LogReader(self.store, self.folds.vocabulary)

    @cached_property
    def row_history(self) -> RowHistory:
        """Rows of the past."""
        return RowHistory(self.store, self.folds)

    @cached_property
    def scope_history(self) -> ScopeHistory:
        """What happened in a scope."""
        return ScopeHistory(self.store)

    @cached_property
    def execute(self) -> Execute:
        """Runs commands for callers."""
        return Execute(self.control, self.nudge)

    @cached_property
    def rollouts(self) -> RolloutOperations:
        """What an operator does to a rollout."""
        return RolloutOperations(self.execute, self.lanes, self.reads)

    @cached_property
    def promotion(self) -> PromotionOperations:
        """Promote and roll back."""
        return PromotionOperations(
            self.execute,
            self.lanes,
            self.reads,
            self.row_history,
            self.promotions,
            self.manifests,
        )

    @cached_property
    def revisions(self) -> RevisionOperations:
        """What people do to a revision."""
        return RevisionOperations(self.execute, self.reads, self.row_history, self.blobs)

    @cached_property
    def packages(self) -> PackageOperations:
        """What is done to all revisions of a package at once."""
        return PackageOperations(self.execute, self.reads, self.blobs)

    @cached_property
    def owner_cleanup(self) -> OwnerCleanupOperations:
        """The clean-up after owners that are gone."""
        return OwnerCleanupOperations(self.control, self.nudge)

    @cached_property
    def releases(self) -> ReleaseOperations:
        """What is done to the pin of a scope."""
        return ReleaseOperations(self.execute, self.reads, self.row_history)

    @cached_property
    def repositories(self) -> RepositoryOperations:
        """What an administrator does to a repository."""
        return RepositoryOperations(self.execute, self.row_history)

    @cached_property
    def outbox_reader(self) -> OutboxReader:
        """Intents of the outbox."""
        return OutboxReader(self.store)

    @cached_property
    def outbox(self) -> OutboxOperations:
        """What an operator does to an intent."""
        return OutboxOperations(self.execute, self.outbox_reader)

    @cached_property
    def targets(self) -> TargetOperations:
        """What an operator does to a target."""
        return TargetOperations(self.settings, self.clock, self.log)

    @cached_property
    def publications(self) -> PublicationOperations:
        """What an operator does to publications."""
        publisher = Publisher(self.control, self.blobs, owner="api")
        return PublicationOperations(self.control, publisher, self.log, self.nudge)

    @cached_property
    def accounts(self) -> Accounts:
        """Tells who somebody is."""
        return Accounts(
            self.execute,
            self.reads,
            self.records,
            self.secrets,
            self.clock,
            Path(self.settings.data) / "setup-code",
        )

    @cached_property
    def access(self) -> AccessOperations:
        """What people do about access."""
        per_minute = self.settings.sign_ins_per_minute
        return AccessOperations(
            self.execute,
            self.reads,
            self.row_history,
            self.accounts,
            Bucket("sign-ins per minute", per_minute / 60, per_minute),
        )

    @cached_property
    def channels(self) -> ChannelOperations:
        """What an operator does to a channel."""
        return ChannelOperations(self.execute, self.lanes, self.reads, self.fleet_reader)

    @cached_property
    def freezes(self) -> FreezeOperations:
        """Start and end freezes."""
        return FreezeOperations(self.execute, self.reads, self.clock)

    @cached_property
    def quarantine(self) -> QuarantineOperations:
        """Lift quarantines."""
        return QuarantineOperations(self.execute)

    @cached_property
    def budgets(self) -> BudgetOperations:
        """Set and remove budgets."""
        return BudgetOperations(self.execute)

    @cached_property
    def hosts(self) -> HostOperations:
        """What an operator does to a host."""
        return HostOperations(self.execute, self.lanes, self.reads, self.enrollment)

    @cached_property
    def enrollment(self) -> Enrollment:
        """Lets agents in."""
        return Enrollment(
            self.reads,
            self.records,
            self.lanes,
            self.secrets,
            self.clock,
            lambda: self.log_id,
            self.nudge,
            self.key_listeners,
        )

    def records(self, meta: Meta) -> Records:
        """Kept rows, in somebody's name."""
        return Records(self.store, self.clock, meta)

    def write_fault(self) -> str:
        """Why the log takes no commits at this moment; empty: it does.

        A commit that only demands what stands goes the whole way of a write, and leaves nothing.
        """
        key = Key(LOG_IDS.name, "log")
        try:
            (record,) = self.store.get(key)
            version = 0 if record is None else record.version
            commit = Commit(self.clock(), writes=(Check(key, version),))
            (outcome,) = self.store.commit(commit)
        except TidegateError as error:
            return error.detail
        return outcome.detail if isinstance(outcome, TidegateError) else ""

    def outbox_age(self) -> int:
        """For how many seconds the longest waiting outbox work has been due."""
        for record in self.store.range(QUEUES.name, index="due", limit=1):
            due = codec.decode(record.data, Queue).next_attempt_at
            assert due is not None, "it would not be in the index"
            return max(0, int((self.clock() - due).total_seconds()))
        return 0

    def differences(self) -> list[Difference]:
        """Every folded row that is not what the log says."""
        return differences(self.store, self.folds)

    # ── what shall happen ──

    def run(
        self, item: Slice, command: Struct, *, meta: Meta, key: str | None = None
    ) -> CommandOutcome:
        """As ``Control.execute``; those who follow the log are notified."""
        outcome = self.control.execute(item, command, meta=meta, key=key)
        self.nudge()
        return outcome

    def nudge(self) -> None:
        """Something was committed here: tell who follows the log."""
        for listener in self.listeners:
            listener()

    @cached_property
    def log_id(self) -> str:
        return log_id(self.store, self.clock)

    @cached_property
    def fleet_reader(self) -> FleetReader:
        """The fleet as gates look at it."""
        return FleetReader(self.store, self.blobs)

    @cached_property
    def promotions(self) -> Promotions:
        """Plans and decides promotions."""
        return Promotions(self.control, self.fleet_reader, self.blobs)

    @cached_property
    def deliveries(self) -> OrderQueue:
        """Hands out orders."""
        return OrderQueue(self.store, self.submit, self.clock)

    @cached_property
    def publisher(self) -> Publisher:
        """Reads and publishes bodies."""
        return Publisher(self.control, self.blobs)

    @cached_property
    def manifests(self) -> Manifests:
        """Signs and publishes what channels are pinned to."""
        return Manifests(self.control, self.publisher, manifest_key(self.secrets))


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
