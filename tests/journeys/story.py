"""The roles of the story and what each of them can do: one log, one blob store, one clock.

author     writes packages
approver   reads what others wrote, and approves
manager    decides which release a channel is pinned to
tidegate   delivers outbox effects, publishes the channel's manifest, mirrors the log
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from tests.contract.address import Address
from tests.domain.registry import T0, operator
from tidegate.clock import ManualClock
from tidegate.control.publication.entries import ServedState
from tidegate.control.publication.manifests import ManifestResponse, Manifests, key_id
from tidegate.control.publication.publisher import Publisher
from tidegate.control.queries import history
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.control.storage.archive import ARCHIVE_POSITIONS, Archive
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.composition import SLICES, compose
from tidegate.domain.content.differences import FileDifference, diff
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.facts import Edit, Task
from tidegate.domain.packages.history import TimelineStep, history_of, timeline
from tidegate.domain.packages.names import identity
from tidegate.domain.packages.revision_commands import RevisionCommand
from tidegate.domain.packages.rows import Revision, revision_key
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.updates import ReplaceResources
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.domain.releases.rows import Actual, ReleaseEvent
from tidegate.domain.releases.slices import RegisterRelease, TransitionRelease
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.kernel import codec
from tidegate.kernel.model import Position
from tidegate.kernel.store import Store

FOLDS = compose(ARCHIVE_POSITIONS)
SCHEMA = FOLDS.schema
SLICE_OF = {item.command: item for item in SLICES}

AUTHOR, APPROVER, MANAGER = "user_author", "user_approver", "user_manager"
DEFAULT, PACKAGE, CHANNEL, NOTIFY = "default", "web", "web-stable", "notify"
LOG = "log-of-the-story"
PAGE = 500
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
TRUSTED = {key_id(KEY.public_key()): KEY.public_key()}


class Story:
    """The state of the story; each step takes a second."""

    def __init__(self, store: Store, control: Control, clock: ManualClock, home: Path) -> None:
        self.store = store
        self.control = control
        self.clock = clock
        self.blobs = FileBlobs(home / "blobs", LOG, clock=clock)
        self.publisher = Publisher(control, self.blobs)
        self.manifests = Manifests(control, self.publisher, KEY)
        self.archive = Archive(store, FileSegmentStore(home / "archive"), log_id=LOG, clock=clock)
        self._numbers = count(1)

    def tell(self, command: Struct) -> CommandOutcome:
        self.clock.advance(timedelta(seconds=1))
        return self.control.execute(SLICE_OF[type(command)], command)

    # ── packages ──

    def draft(self, workspace: str, by: str, task: Task | None = None) -> str:
        """Create a new revision of the package, and return its name."""
        place = identity(DEFAULT, PACKAGE, workspace)
        tasks = () if task is None else (task,)
        uid = f"uid-{next(self._numbers)}"
        command = CreateRevision(
            repository=DEFAULT, package=PACKAGE, workspace=workspace, uid=uid, by=by, tasks=tasks
        )
        self.tell(command)
        return place.name

    def edit(self, source: str, workspace: str, by: str) -> str:
        """Create the next revision of the package from a published one, and return its name."""
        return self.draft(workspace, by, Edit(source))

    def push(self, name: str, files: Mapping[str, bytes], by: str) -> None:
        """Put the bytes first, then commit the reference to them."""
        manifest = FileManifest.of(files)
        for body in (*files.values(), manifest.blob):
            self.blobs.put(body)
        self.act(ReplaceResources, name, by, files=manifest.files)

    def act(
        self, command: type[RevisionCommand], name: str, by: str, **members: Any
    ) -> CommandOutcome:
        """Run a command on a revision at its current version."""
        (record,) = self.store.get(revision_key(name))
        version = None if record is None else record.version
        return self.tell(command(name=name, by=by, expected_version=version, **members))

    def revision(self, name: str) -> Revision:
        (record,) = self.store.get(revision_key(name))
        assert record is not None, f"there is no {name}"
        return codec.decode(record.data, Revision)

    def manifest(self, name: str) -> FileManifest:
        """Read the content of a revision from where the bytes are stored."""
        return FileManifest.parse(self.blobs.get(self.revision(name).content.manifest))

    def changes(self, name: str, since: str | None = None) -> tuple[FileDifference, ...]:
        """List the changes that a reviewer reads."""
        return diff(
            FileManifest(()) if since is None else self.manifest(since), self.manifest(name)
        )

    # ── the channel ──

    def pinning(self, name: str) -> dict[str, Any]:
        """Name a release to the registry: its id, its content, and its authority."""
        revision = self.revision(name)
        release_id = release_id_of(revision.package, revision.number)
        return {
            "scope": CHANNEL,
            "release_id": release_id,
            "digest": revision.content.digest,
            "authority": operator(release_id, CHANNEL),
            "command_id": f"c{next(self._numbers)}",
            "operations": (NOTIFY,),
        }

    def register(self, name: str, by: str) -> CommandOutcome:
        return self.tell(RegisterRelease(by=by, **self.pinning(name)))

    def promote(self, name: str, by: str) -> CommandOutcome:
        """Pin the channel to a revision, at the current version."""
        version = self.actual().version
        return self.tell(TransitionRelease(by=by, expected_version=version, **self.pinning(name)))

    def actual(self) -> Actual:
        found = history.find_actual(self.store, CHANNEL).value
        assert isinstance(found, Actual)
        return found

    # ── the manifest ──

    def publish(self, by: str) -> ServedState:
        """Publish the channel's manifest again, under its lease."""
        self.clock.advance(timedelta(seconds=1))
        return self.manifests.publish(CHANNEL, by=by).state

    def get(self, if_none_match: str | None = None) -> ManifestResponse:
        """Send a GET of the manifest, as an agent does."""
        return self.manifests.get(CHANNEL, if_none_match)

    # ── questions about the past ──────────────────────────────────────────────────────────────────

    def timeline(self, name: str) -> tuple[TimelineStep, ...]:
        return timeline(SCHEMA.vocabulary, self.store.read(history_of(name)).events)

    def authoritative_at(self, position: Position) -> ReleaseEvent:
        """Return the change of the channel that was in force at this position of the log."""
        found = history.list_scope_events(self.store, CHANNEL, limit=PAGE)
        changes = [
            item.value
            for item in found
            if item.position <= position and isinstance(item.value, ReleaseEvent)
        ]
        return changes[-1]


@contextmanager
def play_story(address: Address | None, home: Path) -> Iterator[Story]:
    """Start a story on the log at this address or in memory."""
    store: Store = MemoryStore(SCHEMA) if address is None else address.open(SCHEMA)
    clock = ManualClock(T0)
    with closing(store), closing(GroupCommit(store)) as writer:
        yield Story(store, Control(store, FOLDS, writer.submit, clock=clock), clock, home)
