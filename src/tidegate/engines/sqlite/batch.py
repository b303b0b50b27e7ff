"""A group of commits in one transaction: observe, decide, write.

    observe ─▶ what the commits depend on, as it stands under the lock
    decide  ─▶ each commit in order, against that and what the ones before it did
    write   ─▶ all that was accepted, set by set

Nothing is written before everything is decided, so a refused commit leaves nothing to take back,
and a row that several commits of a group write is written once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import cast

import apsw
from msgspec import Struct
from msgspec.structs import replace

from tidegate.engines.sqlite.events import Plan, tags_text
from tidegate.engines.sqlite.layout import Layout, known_ids, new_ids
from tidegate.errors import (
    BoundaryMoved,
    IdempotencyMismatch,
    InvalidInput,
    StoreRefused,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.codec import meta_text, time_text, time_value
from tidegate.kernel.model import (
    ABSENT,
    ONCE_KEPT,
    Clause,
    Commit,
    Delete,
    Key,
    Position,
    Put,
    Receipt,
)
from tidegate.kernel.vocabulary import Vocabulary

ONCE_COLLECTED_MAX = 64  # outdated idempotency keys that one group removes

HEAD = "SELECT head, epoch FROM log_head"
PROBE = "SELECT name, type FROM event_index WHERE name = ? AND type = ? AND seq > ? LIMIT 1"
NEWEST = "SELECT max(seq) FROM event_index WHERE name = ? AND type = ?"
NEWEST_OF_ANY = (
    "SELECT max((SELECT max(seq) FROM event_index WHERE name = ? AND type = t.id))"
    " FROM event_types t"
)
RECEIPT = "SELECT key, first, last, at, answer, digest FROM idempotency_keys WHERE key = ?"
_APPEND = (
    "INSERT INTO event_log (seq, at, kind, type, schema, tags, meta, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_FILE = "INSERT INTO event_index (name, type, seq) VALUES (?, ?, ?)"
_REMEMBER = (
    "INSERT INTO idempotency_keys (key, first, last, at, answer, digest) VALUES (?, ?, ?, ?, ?, ?)"
)
_FORGET = (
    "DELETE FROM idempotency_keys WHERE at < ? AND first IN"
    " (SELECT first FROM idempotency_keys ORDER BY first LIMIT ?)"
)

_ANY_TYPE = (None,)

_Columns = tuple[str, str, str, int, str, str, str]  # of event_log, without seq


class Draft(Struct, frozen=True):
    """A commit made ready outside the lock: its plans, its columns, its text."""

    commit: Commit
    probes: list[tuple[Plan, Position]]
    facts: list[tuple[_Columns, tuple[str, ...]]]  # columns, and the names to file it under
    texts: dict[Key, str]

    @classmethod
    def of(cls, commit: Commit, vocabulary: Vocabulary, plan: Callable[[Clause], Plan]) -> Draft:
        """Raises: InvalidInput."""
        at, meta = time_text(commit.at), meta_text(commit.meta)
        try:
            facts = [
                (
                    (
                        at,
                        fact.kind,
                        fact.type,
                        fact.schema,
                        tags_text(fact.tags),
                        meta,
                        fact.body.decode(),
                    ),
                    vocabulary.indexes(fact),
                )
                for fact in commit.facts
            ]
            texts = {
                write.key: write.data.decode() for write in commit.writes if isinstance(write, Put)
            }
        except UnicodeDecodeError as error:
            raise InvalidInput(f"a fact or row is not UTF-8: {error}") from None
        probes = [
            (plan(clause), boundary.seen)
            for boundary in commit.boundaries
            for clause in boundary.clauses
        ]
        return cls(commit, probes, facts, texts)


class Batch:
    """The commits of one transaction. ``head`` is the last number that they have taken."""

    def __init__(self, cursor: apsw.Cursor, layout: Layout, names: dict[str, int]) -> None:
        self._cursor = cursor
        self._layout = layout
        self._known = names  # ids that are committed: they never change
        self.ids: dict[str, int] = {}  # ids that this group uses
        self.head: Position = 0
        self.accepted = 0
        self._newest: dict[tuple[str, str | None], Position] = {}  # of what moved, else nothing
        self._stamps: dict[Key, tuple[Position, Position]] = {}  # version, born
        self._receipts: dict[str, Receipt] = {}
        self._log: list[tuple[Position, *_Columns]] = []
        self._filed: list[tuple[str, str, Position]] = []
        self._texts: dict[Key, str | None] = {}  # rows as they shall stand, None: removed
        self._remembered: list[tuple[str, Receipt]] = []

    # ── observe ──

    def observe(self, drafts: Sequence[Draft]) -> Position:
        """Read under the lock what the commits depend on; tell the head. Raises: StoreRefused."""
        self.head, epoch = next(self._cursor.execute(HEAD))
        if epoch != self._layout.epoch:
            raise StoreRefused("another program indexed the log by other rules; open it again")
        self._observe_names(drafts)
        self._observe_boundaries(drafts)
        self._observe_rows(drafts)
        keys = [(draft.commit.once.key,) for draft in drafts if draft.commit.once is not None]
        if keys:
            for key, *columns in self._cursor.executemany(RECEIPT, keys):
                self._receipts[key] = receipt_of(*columns)
        return self.head

    def _observe_names(self, drafts: Sequence[Draft]) -> None:
        wanted = {name for draft in drafts for _, names in draft.facts for name in names}
        wanted.update(plan.name for draft in drafts for plan, _ in draft.probes if plan.name)
        known = self._known
        missing = []
        for name in wanted:
            if name in known:
                self.ids[name] = known[name]
            else:
                missing.append(name)
        if missing:
            self.ids |= known_ids(self._cursor, missing)

    def _observe_boundaries(self, drafts: Sequence[Draft]) -> None:
        """Note the newest position of each (name, type) that moved since the first who read it."""
        names, types = self.ids, self._layout.types
        least: dict[tuple[str, str], Position] = {}
        for draft in drafts:
            for plan, seen in draft.probes:
                if plan.name is None or plan.name not in names:
                    continue  # nothing is filed under it
                if plan.types is None:
                    self._observe_any(plan.name)
                    continue
                for name in plan.types:
                    pair = (plan.name, name)
                    if seen < least.get(pair, seen + 1):
                        least[pair] = seen
        if not least:
            return
        pairs = {(names[name], types[type]): (name, type) for name, type in least}
        moved = self._cursor.executemany(
            PROBE, [(*ids, least[pair]) for ids, pair in pairs.items()]
        ).fetchall()
        for ids in cast("list[tuple[int, int]]", moved):
            self._newest[pairs[ids]] = next(self._cursor.execute(NEWEST, ids))[0]

    def _observe_any(self, name: str) -> None:
        newest = next(self._cursor.execute(NEWEST_OF_ANY, (self.ids[name],)))[0]
        self._newest[name, None] = newest or 0

    def _observe_rows(self, drafts: Sequence[Draft]) -> None:
        wanted: defaultdict[str, dict[str, Key]] = defaultdict(dict)
        for draft in drafts:
            for write in draft.commit.writes:
                wanted[write.key.collection][write.key.id] = write.key
        for collection, keys in wanted.items():
            statement = self._layout.tables[collection].stamps
            for id, version, born in self._cursor.executemany(statement, ((id,) for id in keys)):
                self._stamps[keys[id]] = (version, born)

    # ── decide ──

    def decide(self, draft: Draft) -> Receipt | TidegateError:
        """Take the commit, or say why not."""
        once = draft.commit.once
        if once is not None and (seen := self._receipts.get(once.key)) is not None:
            if seen.digest != once.digest:
                return IdempotencyMismatch(once.key)
            return replace(seen, replayed=True)
        return self._moved(draft) or self._outdated(draft) or self._accept(draft)

    def _moved(self, draft: Draft) -> TidegateError | None:
        newest = self._newest
        if not newest:
            return None
        for plan, seen in draft.probes:
            if plan.name is None:
                continue
            position = 0
            for type in plan.types if plan.types is not None else _ANY_TYPE:
                position = max(position, newest.get((plan.name, type), 0))
            if position > seen:
                return BoundaryMoved(str(plan.clause), position)
        return None

    def _outdated(self, draft: Draft) -> TidegateError | None:
        for write in draft.commit.writes:
            stamp = self._stamps.get(write.key)
            found = ABSENT if stamp is None else stamp[0]
            if found != write.expect:
                return VersionConflict(write.key.collection, write.key.id, write.expect, found)
        return None

    def _accept(self, draft: Draft) -> Receipt:
        commit = draft.commit
        first = self.head + 1
        self.head += commit.span
        self.accepted += 1
        for seq, (columns, names) in enumerate(draft.facts, first):
            type = columns[2]
            self._log.append((seq, *columns))
            for name in names:
                self._filed.append((name, type, seq))
                self._newest[name, type] = self._newest[name, None] = seq
        for write in commit.writes:
            if isinstance(write, Put):
                version = first + write.fact
                before = ABSENT if write.expect == ABSENT else self._stamps[write.key][1]
                born = write.born_at(first, before)
                self._stamps[write.key] = (version, born)
                self._texts[write.key] = draft.texts[write.key]
            elif isinstance(write, Delete):
                del self._stamps[write.key]
                self._texts[write.key] = None
        if commit.once is None:
            return Receipt(first, self.head, commit.at)
        once = commit.once
        receipt = Receipt(first, self.head, commit.at, once.answer, digest=once.digest)
        self._receipts[once.key] = receipt
        self._remembered.append((once.key, receipt))
        return receipt

    # ── write ──

    def write(self) -> None:
        """Write all that was accepted."""
        cursor, types = self._cursor, self._layout.types
        if self._log:
            new = sorted({name for name, _, _ in self._filed} - self.ids.keys())
            if new:
                self.ids |= new_ids(cursor, new)
            ids = self.ids
            cursor.executemany(_APPEND, self._log)
            cursor.executemany(
                _FILE, [(ids[name], types[type], seq) for name, type, seq in self._filed]
            )
        if self._texts:
            self._write_rows()
        if self._remembered:
            self._write_receipts()
        cursor.execute("UPDATE log_head SET head = ?", (self.head,))

    def _write_rows(self) -> None:
        puts: defaultdict[str, list[tuple[str, Position, Position, str]]] = defaultdict(list)
        for key, text in self._texts.items():
            if text is None:
                self._cursor.execute(self._layout.tables[key.collection].delete, (key.id,))
            else:
                puts[key.collection].append((key.id, *self._stamps[key], text))
        for collection, rows in puts.items():
            self._cursor.executemany(self._layout.tables[collection].put, rows)

    def _write_receipts(self) -> None:
        self._cursor.executemany(
            _REMEMBER,
            [
                (key, seen.first, seen.last, time_text(seen.at), seen.answer, seen.digest)
                for key, seen in self._remembered
            ],
        )
        oldest: datetime = min(seen.at for _, seen in self._remembered)
        self._cursor.execute(_FORGET, (time_text(oldest - ONCE_KEPT), ONCE_COLLECTED_MAX))


def receipt_of(first: Position, last: Position, at: str, answer: bytes, digest: bytes) -> Receipt:
    """The receipt that a row of idempotency_keys is."""
    return Receipt(first, last, time_value(at), answer, digest=digest)
