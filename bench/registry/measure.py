"""Each verb through the one write path, durable, by one client; both registries take turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

from msgspec import Struct

from bench.registry.sample_registry import (
    AUTHOR,
    FILE,
    MANAGER,
    PER_PACKAGE,
    REVIEWER,
    SLICE_OF,
    creation,
    digest,
    filled,
    pinning,
    revision_name,
)
from bench.speed.log_cache import LogCache
from tidegate.clock import system_clock
from tidegate.control.queries import history
from tidegate.control.runtime import Control
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.packages.approvals import ApproveRevision, ProposeRevision
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion
from tidegate.domain.packages.rows import REVISIONS, PackageRow, Revision, package_key, revision_key
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.releases.slices import TransitionRelease
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.sqlite import SqliteStore
from tidegate.kernel import codec
from tidegate.kernel.collections import entry

PAGE_ROWS = 500
WARM_UP = 5  # rounds that are not counted


class Verb(StrEnum):
    """What is timed."""

    CREATE = "create"
    PROPOSE = "propose"
    APPROVE = "approve"
    TRANSITION = "transition"
    PROPOSE_DELETION = "propose deletion"
    DELETE = "delete"
    PAGE = f"page of {PAGE_ROWS}"


Seconds = dict[Verb, list[float]]


@dataclass
class Registry:
    """One registry at work, and the time that each verb took."""

    control: Control
    packages: int
    random: Random
    took: Seconds = field(default_factory=lambda: {verb: [] for verb in Verb})
    _idle: list[str] = field(default_factory=list)  # published, neither pinned nor the latest

    def __post_init__(self) -> None:
        for number in range(self.packages):
            self._idle += [revision_name(number, each) for each in range(2, PER_PACKAGE)]

    def round(self) -> None:
        """Take a revision from draft to pin, delete an old revision, and read a page."""
        number = self.random.randrange(self.packages)
        self._promote(number)
        self._end()
        self._page()

    def _promote(self, number: int) -> None:
        store = self.control.store
        (record,) = store.get(package_key(creation(number, 1).place.package))
        assert record is not None
        latest = codec.decode(record.data, PackageRow).latest
        assert latest is not None
        revision = latest.number + 1
        name, looked_at = revision_name(number, revision), digest(number, revision)
        self._execute(Verb.CREATE, creation(number, revision))
        seen = self._version(name)
        self._execute(Verb.PROPOSE, ProposeRevision(name=name, by=AUTHOR, expected_version=seen))
        seen = self._version(name)
        approval = ApproveRevision(name=name, by=REVIEWER, digest=looked_at, expected_version=seen)
        self._execute(Verb.APPROVE, approval)
        pin = pinning(number, revision, system_clock())
        version = history.find_actual(store, pin["scope"]).value.version
        transition = TransitionRelease(**pin, expected_version=version, operations=("notify",))
        self._execute(Verb.TRANSITION, transition)
        self._idle.append(revision_name(number, revision - 1))

    def _end(self) -> None:
        place = self.random.randrange(len(self._idle))
        self._idle[place], self._idle[-1] = self._idle[-1], self._idle[place]
        name = self._idle.pop()
        seen = self._version(name)
        proposal = ProposeDeletion(name=name, by=AUTHOR, expected_version=seen)
        self._execute(Verb.PROPOSE_DELETION, proposal)
        self._execute(Verb.DELETE, DeleteRevision(name=name, by=MANAGER))

    def _page(self) -> None:
        """A page of published revisions from some point on, as values."""
        name = revision_name(self.random.randrange(self.packages // 2 or 1), 1)
        state = str(Lifecycle.PUBLISHED)
        begun = time.perf_counter()
        records = self.control.store.range(
            REVISIONS.name,
            index="by_lifecycle",
            prefix=entry(state, ""),
            after=entry(state, name),
            limit=PAGE_ROWS,
        )
        rows = [codec.decode(record.data, Revision) for record in records]
        self.took[Verb.PAGE].append(time.perf_counter() - begun)
        assert len(rows) == PAGE_ROWS, "a page that is not full would be too fast"

    def _execute(self, verb: Verb, command: Struct) -> None:
        item = SLICE_OF[type(command)]
        begun = time.perf_counter()
        outcome = self.control.execute(item, command)
        self.took[verb].append(time.perf_counter() - begun)
        assert outcome.receipt is not None, f"{verb} wrote nothing"

    def _version(self, name: str) -> int:
        (record,) = self.control.store.get(revision_key(name))
        assert record is not None, f"there is no {name}"
        return record.version


def measured(
    log_cache: LogCache,
    sizes: Sequence[int],
    rounds: int,
    random: Random,
    say: Callable[[str], None],
) -> dict[int, Seconds]:
    """The time that each verb took in registries of these sizes, round after round."""
    with ExitStack() as stack:
        registries = {}
        for size in sizes:
            say(f"a registry of {size:,} revisions")
            home = stack.enter_context(log_cache.copy(filled(log_cache, size)))
            registries[size] = stack.enter_context(_opened(home, size, random))
        say(f"{rounds:,} rounds in each")
        for turn in range(WARM_UP + rounds):
            if turn == WARM_UP:
                for registry in registries.values():
                    registry.took = {verb: [] for verb in Verb}
                gc.collect()
            for size in random.sample(list(sizes), len(sizes)):
                registries[size].round()
        return {size: registry.took for size, registry in registries.items()}


@contextmanager
def _opened(home: Path, size: int, random: Random) -> Iterator[Registry]:
    with (
        closing(SqliteStore(str(home / FILE), SCHEMA)) as store,
        closing(GroupCommit(store)) as writer,
    ):
        yield Registry(Control(store, FOLDS, writer.submit), size // PER_PACKAGE, random)
