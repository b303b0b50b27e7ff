"""A group of commits in one transaction: observe, decide, write.

    observe ─▶ read under the lock what the commits depend on
    decide  ─▶ decide each commit in order, given that and the accepted commits before it
    write   ─▶ write everything that was accepted, table by table

Nothing is written before everything is decided. So a refused commit needs no rollback, and a row
that several commits of a group change is written once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import cast

import apsw
from msgspec import Struct, structs

from tidegate import errors
from tidegate.engines.key_ages import KEY_AGES, LogClock
from tidegate.engines.sqlite import events, layout as sqlite_layout, own_writes
from tidegate.kernel import canonical_json, codec, model
from tidegate.kernel.vocabulary import Vocabulary

ONCE_COLLECTED_MAX = 64  # expired idempotency keys that one group deletes

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
    "DELETE FROM idempotency_keys WHERE first IN"
    " (SELECT first FROM idempotency_keys WHERE first <= ? ORDER BY first LIMIT ?)"
)
_AGES = "SELECT value FROM log_meta WHERE name = ?"
_KEEP_AGES = (
    "INSERT INTO log_meta (name, value) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)

_Columns = tuple[str, str, str, int, str, str, str]  # of event_log, without seq


# Index name (None: nothing to check), types (None: every type), position seen, clause to report.
_Probe = tuple[str | None, frozenset[str] | None, model.Position, model.Clause]


class PreparedCommit(Struct, frozen=True, gc=False):
    """A commit with everything that can be computed before the lock is taken."""

    commit: model.Commit
    probes: list[_Probe]
    facts: list[tuple[_Columns, tuple[str, ...]]]  # columns and index names
    texts: dict[model.Key, str]

    @classmethod
    def of(cls, commit: model.Commit, vocabulary: Vocabulary) -> PreparedCommit:
        """Raises: InvalidInput."""
        at, shared = canonical_json.time_text(commit.at), codec.meta_text(commit.meta)
        facts = [
            (
                (
                    at,
                    fact.kind,
                    fact.type,
                    fact.schema,
                    events.tags_text(fact.tags),
                    shared if fact.meta is None else codec.meta_text(fact.meta),
                    fact.body.decode(),
                ),
                vocabulary.indexes(fact),
            )
            for fact in commit.facts
        ]
        texts = {
            write.key: write.data.decode()
            for write in commit.writes
            if isinstance(write, model.Put)
        }
        probes = [
            (*vocabulary.served(clause), boundary.seen, clause)
            for boundary in commit.boundaries
            for clause in boundary.clauses
        ]
        return cls(commit, probes, facts, texts)


class SqliteBatch:
    """The commits of one transaction. ``head`` is the last position that they have taken."""

    def __init__(
        self,
        cursor: apsw.Cursor,
        layout: sqlite_layout.FileLayout,
        names: dict[str, int],
        recent: own_writes.OwnWrites,
        clock: LogClock,
    ) -> None:
        self._cursor = cursor
        self._layout = layout
        self._known = names  # committed ids of index names; they never change
        self._recent = recent
        self._clock = clock
        self.ids: dict[str, int] = {}  # ids that this group read or created
        self.head: model.Position = 0
        self._before: model.Position = 0  # the head before the group; no valid read is beyond it
        self.accepted = 0
        self._births: dict[model.Key, model.Position] = {}  # ``born`` of the rows in the tables
        self._stamps: dict[
            model.Key, tuple[model.Position, model.Position]
        ] = {}  # version, born, as decided so far
        self._receipts: dict[str, model.Receipt] = {}
        self._log: list[tuple[model.Position, *_Columns]] = []
        self._filed: list[tuple[str, str, model.Position]] = []
        self._texts: dict[model.Key, str | None] = {}  # rows to write; None: to delete
        self._remembered: list[tuple[str, model.Receipt]] = []

    # ── observe ──

    def observe(self, drafts: Sequence[PreparedCommit]) -> model.Position:
        """Read under the lock what the commits depend on, and return the head.

        Raises:
            StoreRefused: another version has changed the index rules.
        """
        self.head, epoch = next(self._cursor.execute(events.HEAD))
        if epoch != self._layout.epoch:
            raise errors.StoreRefused(
                "another program indexed the log by other rules; open it again"
            )
        self._before = self.head
        self._recent.meet(self.head)
        self._observe_boundaries(drafts)
        self._observe_rows(drafts)
        keys = [(draft.commit.once.key,) for draft in drafts if draft.commit.once is not None]
        if keys:
            for key, *columns in self._cursor.executemany(RECEIPT, keys):
                self._receipts[key] = receipt_of(*columns)
        return self.head

    def _observe_boundaries(self, drafts: Sequence[PreparedCommit]) -> None:
        """Look up what changed since boundaries that are too old for ``OwnWrites`` were read."""
        types = self._layout.types
        least: dict[tuple[str, str], model.Position] = {}
        for draft in drafts:
            for name, fenced, seen, _ in draft.probes:
                if seen >= self._recent.since or name is None:
                    continue
                if fenced is None:
                    self._observe_any(name)
                    continue
                for type in fenced:
                    pair = (name, type)
                    if seen < least.get(pair, seen + 1):
                        least[pair] = seen
        if not least:
            return
        ids = self._ids({name for name, _ in least})
        pairs = {(ids[name], types[type]): (name, type) for name, type in least if name in ids}
        moved = self._cursor.executemany(
            PROBE, [(*key, least[pair]) for key, pair in pairs.items()]
        ).fetchall()
        for key in cast("list[tuple[int, int]]", moved):
            self._recent.note(*pairs[key], next(self._cursor.execute(NEWEST, key))[0])

    def _observe_any(self, name: str) -> None:
        if ids := self._ids((name,)):
            newest = next(self._cursor.execute(NEWEST_OF_ANY, (ids[name],)))[0]
            self._recent.note(name, None, newest or 0)

    def _ids(self, names: Iterable[str]) -> dict[str, int]:
        """The ids of those index names that have one."""
        known, found = self._known, self.ids
        missing = [name for name in names if name not in known and name not in found]
        if missing:
            found |= sqlite_layout.known_ids(self._cursor, missing)
        return {name: id for name in names if (id := known.get(name) or found.get(name))}

    def _observe_rows(self, drafts: Sequence[PreparedCommit]) -> None:
        wanted: defaultdict[str, dict[str, model.Key]] = defaultdict(dict)
        for draft in drafts:
            for write in draft.commit.writes:
                wanted[write.key.collection][write.key.id] = write.key
        for collection, keys in wanted.items():
            statement = self._layout.tables[collection].stamps
            for id, version, born in self._cursor.executemany(statement, ((id,) for id in keys)):
                self._stamps[keys[id]] = (version, born)
                self._births[keys[id]] = born

    # ── decide ──

    def decide(self, draft: PreparedCommit) -> model.Receipt | errors.TidegateError:
        """Accept the commit and return its receipt, or return why it is refused."""
        once = draft.commit.once
        if once is not None and (seen := self._receipts.get(once.key)) is not None:
            if seen.digest != once.digest:
                return errors.IdempotencyMismatch(once.key)
            return structs.replace(seen, replayed=True)
        return self._moved(draft) or self._outdated(draft) or self._accept(draft)

    def _moved(self, draft: PreparedCommit) -> errors.TidegateError | None:
        moved, before = self._recent.moved, self._before
        for name, fenced, seen, clause in draft.probes:
            if name is None:
                continue
            if seen > before:  # the log has lost commits since it was read
                return errors.BoundaryMoved(clause, self._newest(name, fenced))
            if newest := moved(name, fenced, seen):
                return errors.BoundaryMoved(clause, newest)
        return None

    def _newest(self, name: str, fenced: frozenset[str] | None) -> model.Position:
        """The newest position of these types under the index name; 0 if there is none."""
        found = [self._recent.moved(name, fenced, 0)]
        if id := self._ids((name,)).get(name):
            types = self._layout.types
            asked: list[tuple[str, tuple[int, ...]]] = [(NEWEST_OF_ANY, (id,))]
            if fenced is not None:
                asked = [(NEWEST, (id, types[type])) for type in fenced]
            found += [next(self._cursor.execute(*one))[0] or 0 for one in asked]
        return max(found)

    def _outdated(self, draft: PreparedCommit) -> errors.TidegateError | None:
        for write in draft.commit.writes:
            stamp = self._stamps.get(write.key)
            found = model.ABSENT if stamp is None else stamp[0]
            if found != write.expect:
                return errors.VersionConflict(
                    write.key.collection, write.key.id, write.expect, found
                )
        return None

    def _accept(self, draft: PreparedCommit) -> model.Receipt:
        commit, note = draft.commit, self._recent.note
        first = self.head + 1
        self.head += commit.span
        self.accepted += 1
        for seq, (columns, names) in enumerate(draft.facts, first):
            type = columns[2]
            self._log.append((seq, *columns))
            for name in names:
                self._filed.append((name, type, seq))
                note(name, type, seq)
        for write in commit.writes:
            if isinstance(write, model.Put):
                version = first + write.fact
                before = (
                    model.ABSENT if write.expect == model.ABSENT else self._stamps[write.key][1]
                )
                born = write.born_at(first, before)
                self._stamps[write.key] = (version, born)
                self._texts[write.key] = draft.texts[write.key]
            elif isinstance(write, model.Delete):
                del self._stamps[write.key]
                self._texts[write.key] = None
        if commit.once is None:
            return model.Receipt(first, self.head, commit.at)
        once = commit.once
        receipt = model.Receipt(first, self.head, commit.at, once.answer, digest=once.digest)
        self._receipts[once.key] = receipt
        self._remembered.append((once.key, receipt))
        return receipt

    # ── write ──

    def write(self) -> None:
        """Write everything that was accepted."""
        cursor, types = self._cursor, self._layout.types
        if self._log:
            cursor.executemany(_APPEND, self._log)
            ids = self._index_rule_ids()
            cursor.executemany(
                _FILE, [(ids[name], types[type], seq) for name, type, seq in self._filed]
            )
        if self._texts:
            self._write_rows()
        if self._remembered:
            self._write_receipts()
        cursor.execute("UPDATE log_head SET head = ?", (self.head,))

    def _index_rule_ids(self) -> dict[str, int]:
        """The ids of all index names of the group; new names get one."""
        names = {name for name, _, _ in self._filed}
        if names <= self._known.keys():
            return self._known
        ids = self._ids(names)
        if len(ids) < len(names):
            made = sqlite_layout.new_ids(self._cursor, sorted(names - ids.keys()))
            self.ids |= made
            ids |= made
        return ids

    def _write_rows(self) -> None:
        rows: defaultdict[str, list[tuple[str | model.Position, ...]]] = defaultdict(list)
        for key, text in self._texts.items():
            table, before = self._layout.tables[key.collection], self._births.get(key)
            if text is None:
                rows[table.delete].append((key.id,))  # deletes nothing if this group created it
                continue
            version, born = self._stamps[key]
            if before is None:
                rows[table.insert].append((key.id, version, born, text))
            elif before == born:
                rows[table.change].append((version, text, key.id))
            else:
                rows[table.renew].append((version, born, text, key.id))
        for statement, bindings in rows.items():
            self._cursor.executemany(statement, bindings)

    def _write_receipts(self) -> None:
        self._cursor.executemany(
            _REMEMBER,
            [
                (
                    key,
                    seen.first,
                    seen.last,
                    canonical_json.time_text(seen.at),
                    seen.answer,
                    seen.digest,
                )
                for key, seen in self._remembered
            ],
        )
        if self._clock.is_due:
            row = self._cursor.execute(_AGES, (KEY_AGES,)).fetchone()
            ages = self._clock.tick(None if row is None else row[0], self.head)
            self._cursor.execute(_KEEP_AGES, (KEY_AGES, ages))
        if self._clock.floor:
            self._cursor.execute(_FORGET, (self._clock.floor, ONCE_COLLECTED_MAX))


def receipt_of(
    first: model.Position, last: model.Position, at: str, answer: bytes, digest: bytes
) -> model.Receipt:
    """Convert a row of idempotency_keys to a receipt."""
    return model.Receipt(first, last, codec.time_value(at), answer, digest=digest)
