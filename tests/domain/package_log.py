"""Packages in tests: a store, a clock that ticks, and commands that read before they act."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct

from tidegate.clock import ManualClock
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages import declarations as packages
from tidegate.domain.packages.approvals import ApproveRevision, ProposeRevision, RejectProposal
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.facts import Task
from tidegate.domain.packages.history import TimelineStep, history_of, timeline
from tidegate.domain.packages.names import identity
from tidegate.domain.packages.revision_commands import RevisionCommand
from tidegate.domain.packages.rows import (
    PackageRow,
    Revision,
    RevisionLinks,
    links_key,
    package_key,
    revision_key,
)
from tidegate.domain.packages.slices import CreateRepository, CreateRevision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, UpdateRevision
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import ABSENT, ALL, Commit, Event, Key, Position, Receipt
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

SCHEMA = Schema(Vocabulary(packages.FACTS, packages.SLICES), packages.COLLECTIONS)
FOLDS = Folds(SCHEMA, packages.FOLDS)
T0 = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)

AUTHOR, REVIEWER, OPERATOR = "user_author", "user_reviewer", "user_operator"

SLICE_OF: dict[type[Struct], Slice] = {item.command: item for item in packages.SLICES}

Row = TypeVar("Row", bound=Struct)


def files(**texts: str) -> tuple[File, ...]:
    """Build files by name. Their bytes are not stored; the rules do not need them."""
    return FileManifest.of({name: text.encode() for name, text in texts.items()}).files


def direct(store: Store) -> Any:
    """Commit in the calling thread."""

    def submit(commit: Commit) -> Future[Receipt]:
        future: Future[Receipt] = Future()
        (answer,) = store.commit(commit)
        if isinstance(answer, TidegateError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    return submit


class PackageLog:
    """A log with packages on it."""

    def __init__(self, store: Store | None = None, *, uids: str = "uid") -> None:
        self.store: Store = MemoryStore(SCHEMA) if store is None else store
        self.clock = ManualClock(T0)
        self.control = Control(self.store, FOLDS, direct(self.store), clock=self.clock)
        self._uids = (f"{uids}-{number}" for number in count(1))

    # ── state ─────────────────────────────────────────────────────────────────────────────────────

    def get(self, key: Key, model: type[Row]) -> Row | None:
        (record,) = self.store.get(key)
        return None if record is None else codec.decode(record.data, model)

    def find(self, name: str) -> Revision | None:
        return self.get(revision_key(name), Revision)

    def revision(self, name: str) -> Revision:
        found = self.find(name)
        assert found is not None, f"there is no {name}"
        return found

    def version(self, name: str) -> Position:
        """Return 0 if there is no revision."""
        (record,) = self.store.get(revision_key(name))
        return ABSENT if record is None else record.version

    def package(self, package: str) -> PackageRow:
        return self.get(package_key(package), PackageRow) or PackageRow(package)

    def links(self, name: str) -> RevisionLinks | None:
        return self.get(links_key(name), RevisionLinks)

    def timeline(self, name: str, uid: str | None = None) -> tuple[TimelineStep, ...]:
        return timeline(SCHEMA.vocabulary, self.store.read(history_of(name)).events, uid)

    def log(self) -> tuple[Event, ...]:
        return self.store.read(ALL).events

    # ── acting ──

    def run(self, command: Struct) -> CommandOutcome:
        """Execute a command unchanged, and let the clock tick."""
        self.clock.advance(timedelta(seconds=1))
        return self.control.execute(SLICE_OF[type(command)], command)

    def repository(self, name: str = "blueprints", **settings: Any) -> None:
        self.run(CreateRepository(name=name, by=OPERATOR, **settings))

    def create(
        self,
        workspace: str = "v1",
        package: str = "web",
        *,
        task: Task | None = None,
        repository: str = "blueprints",
        by: str = AUTHOR,
        **members: Any,
    ) -> str:
        """Create a new revision and return its name."""
        tasks = () if task is None else (task,)
        command = CreateRevision(
            repository=repository,
            package=package,
            workspace=workspace,
            uid=next(self._uids),
            by=by,
            tasks=tasks,
            **members,
        )
        self.run(command)
        return identity(repository, package, workspace).name

    def act(
        self, command: type[RevisionCommand], name: str, by: str, **members: Any
    ) -> CommandOutcome:
        """Run a command on a revision at its current version."""
        members.setdefault("expected_version", self.version(name))
        return self.run(command(name=name, by=by, **members))

    def update(self, name: str, by: str = AUTHOR, **members: Any) -> CommandOutcome:
        return self.act(UpdateRevision, name, by, **members)

    def push(self, name: str, new: Sequence[File], by: str = AUTHOR) -> CommandOutcome:
        return self.act(ReplaceResources, name, by, files=tuple(new))

    def propose(self, name: str, by: str = AUTHOR) -> CommandOutcome:
        return self.act(ProposeRevision, name, by)

    def approve(self, name: str, by: str = REVIEWER, **members: Any) -> CommandOutcome:
        members.setdefault("digest", self.revision(name).content.digest)
        return self.act(ApproveRevision, name, by, **members)

    def reject(self, name: str, by: str = REVIEWER, reason: str = "not yet") -> CommandOutcome:
        return self.act(RejectProposal, name, by, reason=reason)

    def propose_deletion(self, name: str, by: str = OPERATOR) -> CommandOutcome:
        return self.act(ProposeDeletion, name, by)

    def reject_deletion(
        self, name: str, by: str = REVIEWER, reason: str = "needed"
    ) -> CommandOutcome:
        return self.act(RejectDeletion, name, by, reason=reason)

    def delete(self, name: str, by: str = OPERATOR, **members: Any) -> CommandOutcome:
        return self.run(DeleteRevision(name=name, by=by, **members))

    def published(self, workspace: str = "v1", package: str = "web", **members: Any) -> str:
        """Create, propose and publish a revision."""
        name = self.create(workspace, package, **members)
        self.propose(name)
        self.approve(name)
        return name

    def brought_to(self, state: Lifecycle, workspace: str = "v1", **members: Any) -> str:
        """Create a revision in this state. Without a task it is the first of a package with its
        name.
        """
        if "task" not in members:
            members.setdefault("package", workspace)
        name = self.create(workspace, **members)
        if state is not Lifecycle.DRAFT:
            self.propose(name)
        if state in (Lifecycle.PUBLISHED, Lifecycle.DELETION_PROPOSED):
            self.approve(name)
        if state is Lifecycle.DELETION_PROPOSED:
            self.propose_deletion(name)
        return name


def approvers(steps: Sequence[TimelineStep]) -> tuple[str, ...]:
    """Return who approved what was published: those after the last proposal."""
    found: list[str] = []
    for step in steps:
        if step.action == "Propose":
            found = []
        elif step.action == "Approve":
            found.append(step.by)
    return tuple(found)
