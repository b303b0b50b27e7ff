"""Run the Python of a page: its blocks in order, with the names that its text assumes.

A name is created when a block first uses it, so it may depend on what an earlier block defined.
Everything is real: a log on SQLite, bodies in files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

from msgspec import Struct

from tests.docs.blocks import Block
from tidegate.clock import system_clock
from tidegate.commands.startup import FOLDS
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.control.publication.generations import list_referenced_blobs
from tidegate.control.publication.publisher import Publisher
from tidegate.control.runtime import Control
from tidegate.control.storage.archive import Archive
from tidegate.control.storage.archive.files import FileSegmentStore
from tidegate.control.storage.blobs.collect import collect
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.provenance import Rules, Triple
from tidegate.domain.releases.registry import registry_under
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.sqlite import SqliteStore
from tidegate.kernel.attributes import FieldRole
from tidegate.kernel.collections import Collection
from tidegate.kernel.leases import LEASES, Leases, spend
from tidegate.kernel.model import ABSENT, Commit, Key, Put
from tidegate.kernel.records.actions import DeleteRow, PutRow
from tidegate.kernel.records.changes import Add, Append, IfAbsent, Remove
from tidegate.kernel.records.conditions import NOW, AllOf, Where
from tidegate.kernel.records.records import Records
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

LOG: Final = "log_0000000000000000"


class Names(dict[str, Any]):
    """The names of a page's blocks: plain values, and values that are created on first use."""

    def __init__(self, directory: Path, closing: ExitStack, plain: Mapping[str, Any]) -> None:
        super().__init__(plain)
        self.directory = directory
        self.closing = closing
        self.makers: dict[str, Callable[[Names], Any]] = {}

    def __missing__(self, name: str) -> Any:
        if name not in self.makers:
            raise KeyError(name)
        self[name] = made = self.makers[name](self)
        return made


class Occurrence(Struct, frozen=True):
    what: str


class Job(Struct, frozen=True, omit_defaults=True):
    attempts: int = 0
    notes: tuple[str, ...] = ()
    error: str | None = None
    seen_at: datetime | None = None


class Metadata(Struct, frozen=True):
    s3_key: str
    generated_at: datetime
    etag: str


def _installed(names: Names) -> SqliteStore:
    """A log with everything that Tidegate stores in it."""
    return _opened(names, FOLDS.schema)


def _opened(names: Names, schema: Schema) -> SqliteStore:
    store = SqliteStore(str(names.directory / "log.db"), schema)
    names.closing.callback(store.close)
    return store


def _control(names: Names) -> Control:
    writer = GroupCommit(names["store"])
    names.closing.callback(writer.close)
    return Control(names["store"], FOLDS, writer.submit, clock=system_clock)


def _stopped(_: Names) -> Event:
    stop = Event()
    stop.set()
    return stop


def _rows(names: Names) -> SqliteStore:
    """A log with the collections of the page, and the row that it changes."""
    kept = (Collection("jobs", Job), Collection("pages", Metadata), LEASES)
    store = _opened(names, Schema(Vocabulary(()), (names["ACTUAL"], names["HISTORY"], *kept)))
    Records(store, system_clock).create("jobs", "j1", Job(error="timeout"))
    return store


def _token(names: Names) -> str:
    """Take the lease on the page; return its holder."""
    token = "holder-1"
    Leases(names["store"]).acquire(names["key"], token, now=system_clock(), seconds=30)
    return token


def _called(*values: Any) -> dict[str, Any]:
    """Map each value to its own name."""
    return {value.__name__: value for value in values}


COMMON: Final[Mapping[str, Callable[[Names], Any]]] = {
    "directory": lambda names: names.directory,
    "store": _installed,
    "now": lambda _: system_clock(),
}
PAGES: Final[Mapping[str, tuple[Mapping[str, Any], Mapping[str, Callable[[Names], Any]]]]] = {
    "docs/agent-protocol.md": ({}, {}),
    "docs/archive.md": (
        {**_called(Archive, FileSegmentStore, system_clock), "log_id": LOG},
        {"stop": _stopped, "watch": lambda _: lambda lag: None},
    ),
    "docs/blobs.md": (
        _called(collect, list_referenced_blobs),
        {"blobs": lambda names: FileBlobs(names.directory / "blobs", LOG)},
    ),
    "docs/library.md": ({}, {}),
    "docs/outbox.md": ({}, {}),
    "docs/packages.md": ({}, {}),
    "docs/publication.md": (
        {**_called(Publisher), "body": b"<h1>tide</h1>", "policy": PublicationPolicy()},
        {
            "blobs": lambda names: FileBlobs(names.directory / "blobs", LOG),
            "control": _control,
            "at": lambda _: system_clock(),
        },
    ),
    "docs/releases.md": (_called(Rules, Triple, registry_under), {}),
    "docs/records.md": (
        {
            **_called(
                Struct, FieldRole, Collection, WritePolicy, WriteMode, Occurrence, Records, datetime
            ),
            **_called(Add, Append, Remove, IfAbsent, PutRow, DeleteRow, AllOf, Where),
            **_called(Metadata, Leases, Commit, spend),
            "Annotated": Annotated,
            "NOW": NOW,
            "clock": system_clock,
            "key": "/index.html",
            "s3_key": "bodies/1",
            "etag": "e1",
            "generated_at": datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=12),
        },
        {
            "store": _rows,
            "token": _token,
            "row": lambda _: Put(Key("pages", "page-1"), b"{}", ABSENT),
            "record": lambda names: names["store"].get(names["held"].key)[0],
        },
    ),
}


def run(page: str, blocks: list[Block], directory: Path) -> None:
    """Run the blocks. Raises: whatever a block raises; its traceback names the line of the page."""
    plain, makers = PAGES[page]
    with ExitStack() as closing:
        names = Names(directory, closing, plain)
        names.makers = {**COMMON, **makers}
        for block in blocks:
            padded = "\n" * block.line + block.text
            exec(compile(padded, block.page, "exec", dont_inherit=True), names, names)
