"""Generic calls on kept rows, under the write policy of their collection, and raw access past it.

    screen ──▶ get ──▶ plan ──▶ commit, each row guarded by the version that was read
       │         ▲                    │
    refused      └── a row changed ◀──┘
    before any I/O

If a row changed between the read and the commit, the call reads it again and checks the conditions
again. With an idempotency key, the call looks for an earlier receipt first, and once more before it
reports a refusal. So a caller that does not know the outcome of a call can repeat it, and it
happens once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Struct

from tidegate import errors
from tidegate.clock import Clock
from tidegate.kernel import codec, idempotency, model, tags, vocabulary
from tidegate.kernel.collections import Collection, Writers
from tidegate.kernel.records import actions as record_actions, conditions, repeats
from tidegate.kernel.store import Schema, Store

PUT_ATTEMPTS_MAX = 32  # how often a row may change between our read and our commit
BACK_OFF_SECONDS = 0.002  # after a conflict, doubled per attempt, full jitter
BACK_OFF_SECONDS_MAX = 0.5
DOUBLINGS_MAX = 10
BATCH_MAX = 100
REASON_BYTES_MAX = 2_048
NAME: Final = "records"  # keeps the digests of these calls apart from those of slices

_UNNAMED: Final = model.Meta()


class Records:
    """Reads and writes rows of kept collections under their write policies.

    Every write raises InvalidInput, ImmutableRecord or ProtectedField before any I/O,
    ConditionFailed or VersionConflict if the row is not as required, and AttemptsExhausted if it
    kept changing. With a ``key``, a repeated call writes nothing and returns what the first one
    returned; IdempotencyMismatch: the key was used for another call.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        meta: model.Meta = _UNNAMED,
        *,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._clock = clock
        self._meta = meta
        self._sleep = sleep
        self._jitter = jitter

    @property
    def schema(self) -> Schema:
        """What the store holds."""
        return self._store.schema

    @property
    def clock(self) -> Clock:
        """The clock for the times in rows."""
        return self._clock

    def find(self, collection: str, id: str) -> record_actions.Stored | None:
        """The row; None if there is none."""
        model.check_text("a row id", id, model.ID_BYTES_MAX)
        (record,) = self._store.get(model.Key(collection, id))
        if record is None:
            return None
        value = codec.decode(record.data, self._store.schema.collection(collection).model)
        return record_actions.Stored(record.key, record.version, record.born, value)

    def get(self, collection: str, id: str) -> record_actions.Stored:
        """The row. Raises: NotFound."""
        found = self.find(collection, id)
        if found is None:
            raise errors.NotFound(f"{collection}/{id} does not exist", collection=collection, id=id)
        return found

    def create(
        self,
        collection: str,
        id: str,
        value: Struct,
        *,
        when: conditions.Condition | None = None,
        key: str | None = None,
    ) -> record_actions.Stored:
        """Create a row. Raises: ConditionFailed: it exists already."""
        return self._write_one(record_actions.CreateRow(collection, id, value, when=when), key)

    def put(
        self,
        collection: str,
        id: str,
        value: Struct,
        *,
        when: conditions.Condition | None = None,
        expect: model.Position | None = None,
        key: str | None = None,
    ) -> record_actions.Stored:
        """Create or replace a row; only create it where the policy protects existing rows."""
        return self._write_one(
            record_actions.PutRow(collection, id, value, when=when, expect=expect), key
        )

    def save(
        self, collection: str, id: str, value: Struct, *, key: str | None = None
    ) -> record_actions.Stored:
        """Create or replace a row without conditions."""
        return self._write_one(record_actions.SaveRow(collection, id, value), key)

    def update(
        self,
        collection: str,
        id: str,
        changes: Mapping[str, Any],
        *,
        expected_version: int | None = None,
        expect: model.Position | None = None,
        when: conditions.Condition | None = None,
        protected_attributes: Iterable[str] = (),
        key: str | None = None,
    ) -> record_actions.Stored:
        """Change some attributes of an existing row. Raises: NotFound."""
        return self._write_one(
            record_actions.UpdateRow(
                collection,
                id,
                changes,
                when=when,
                expect=expect,
                expected_version=expected_version,
                protected_attributes=protected_attributes,
            ),
            key,
        )

    def delete(
        self,
        collection: str,
        id: str,
        *,
        when: conditions.Condition | None = None,
        expect: model.Position | None = None,
        key: str | None = None,
    ) -> None:
        """Delete a row. It may be absent, unless a condition requires it."""
        self.transaction(
            record_actions.DeleteRow(collection, id, when=when, expect=expect), key=key
        )

    def transaction(
        self, *actions: record_actions.Action, key: str | None = None
    ) -> tuple[record_actions.Stored | None, ...]:
        """Do all actions or none, and return the rows after them, in the order of the actions."""
        model.at_most("actions of a transaction", len(actions), model.COST_MAX)
        keys = self._screen(actions)
        once = None if key is None else self._to_commit_key(key, actions)
        if once is not None and (rows := self._find_earlier(once, actions)) is not None:
            return rows
        for attempt in range(PUT_ATTEMPTS_MAX):
            self._back_off(attempt)
            try:
                planned, commit = self._prepare(actions, keys, once)
            except (errors.Unavailable, errors.Unknown):
                raise
            except errors.TidegateError:
                # An earlier copy of this call may be what made it fail now.
                if once is not None and (rows := self._find_earlier(once, actions)) is not None:
                    return rows
                raise
            (outcome,) = self._store.commit(commit)
            if isinstance(outcome, model.Receipt):
                if outcome.replayed:
                    return repeats.rows_from_answer(self._store.schema, actions, outcome)
                return tuple(item.stored(outcome) for item in planned)
            if not isinstance(outcome, errors.VersionConflict):
                raise outcome
        raise errors.AttemptsExhausted(
            f"{', '.join(map(str, keys))} changed at every attempt; try again"
        )

    def batch(
        self, *actions: record_actions.PutRow | record_actions.DeleteRow
    ) -> tuple[record_actions.Stored | None, ...]:
        """Do each action on its own, in one flush; do none if the policy refuses one.

        If an error occurs later, the rows before it are written already; repeat the whole batch. A
        batch needs no idempotency key, because a repeated put or delete without a condition has
        the same result. It could not have one: a key belongs to one commit, and here each row is
        a commit.
        """
        model.at_most("actions of a batch", len(actions), BATCH_MAX)
        keys = self._screen(actions, batch=True)
        written: dict[model.Key, record_actions.Stored | None] = {}
        for attempt in range(PUT_ATTEMPTS_MAX):
            self._back_off(attempt)
            remaining = [
                action for action in actions if record_actions.key_of(action) not in written
            ]
            now = self._clock()
            planned = self._plan(
                remaining, [record_actions.key_of(action) for action in remaining], now
            )
            commits = (model.Commit(now, self._meta, writes=(item.write,)) for item in planned)
            for item, outcome in zip(planned, self._store.commit(*commits), strict=True):
                if isinstance(outcome, model.Receipt):
                    written[item.write.key] = item.stored(outcome)
                elif not isinstance(outcome, errors.VersionConflict):
                    raise outcome
            if len(written) == len(actions):
                return tuple(written[key] for key in keys)
        raise errors.AttemptsExhausted(f"{len(written)} of {len(actions)} rows were written")

    def _back_off(self, attempt: int) -> None:
        """Wait before every attempt but the first, so that callers do not conflict again."""
        if attempt:
            longest = BACK_OFF_SECONDS * 2 ** min(attempt - 1, DOUBLINGS_MAX)
            self._sleep(min(longest, BACK_OFF_SECONDS_MAX) * self._jitter())

    def _write_one(self, action: record_actions.Action, key: str | None) -> record_actions.Stored:
        (stored,) = self.transaction(action, key=key)
        assert stored is not None, "the row was just written"
        return stored

    def _screen(
        self, actions: Sequence[record_actions.Action], *, batch: bool = False
    ) -> list[model.Key]:
        if not actions:
            raise errors.InvalidInput("no action: nothing to do")
        for action in actions:
            record_actions.screen(self._store.schema, action, batch=batch)
        keys = [record_actions.key_of(action) for action in actions]
        for key in keys:
            if keys.count(key) > 1:
                raise errors.InvalidInput(f"{key} is named twice; use one action per row")
        return keys

    def _to_commit_key(self, key: str, actions: Sequence[record_actions.Action]) -> model.CommitKey:
        model.check_text("an idempotency key", key, model.ONCE_KEY_BYTES_MAX)
        asked = repeats.to_requested_actions(self._store.schema, actions)
        return model.CommitKey(key, idempotency.digest(self._meta.actor, NAME, asked))

    def _find_earlier(
        self, once: model.CommitKey, actions: Sequence[record_actions.Action]
    ) -> tuple[record_actions.Stored | None, ...] | None:
        """What an earlier copy of this call returned; None if there was none."""
        receipt = idempotency.earlier_receipt(self._store, once)
        if receipt is None:
            return None
        return repeats.rows_from_answer(self._store.schema, actions, receipt)

    def _prepare(
        self,
        actions: Sequence[record_actions.Action],
        keys: Sequence[model.Key],
        once: model.CommitKey | None,
    ) -> tuple[list[record_actions.PlannedWrite], model.Commit]:
        """Read and plan one attempt, and build its commit."""
        now = self._clock()
        schema = self._store.schema
        planned = self._plan(actions, keys, now)
        if once is not None:
            once = model.CommitKey(
                once.key, once.digest, repeats.encode_answer(schema, actions, planned)
            )
        commit = model.Commit(
            now, self._meta, writes=tuple(item.write for item in planned), once=once
        )
        schema.check(commit, model.COST_MAX)
        return planned, commit

    def _plan(
        self, actions: Sequence[record_actions.Action], keys: Sequence[model.Key], now: datetime
    ) -> list[record_actions.PlannedWrite]:
        records = self._store.get(*keys)
        return [
            record_actions.plan(self._store.schema, action, record, now)
            for action, record in zip(actions, records, strict=True)
        ]


# ── raw access ────────────────────────────────────────────────────────────────────────────────────


class RecordRepaired(Struct, frozen=True):
    """A person wrote a kept row past its write policy, and gave a reason."""

    collection: Annotated[str, tags.Partition()]
    id: str
    reason: str
    by: str
    replaced: model.Position = model.ABSENT  # the version that was there before


REPAIRS: Final[tuple[vocabulary.FactType, ...]] = vocabulary.facts("repair", RecordRepaired)


class RawRecords:
    """Repairs kept rows regardless of their write policy. Each write logs its actor and reason.

    Folded rows are repaired by rebuilding them. The log is no collection and cannot be repaired.

    Raises:
        InvalidDefinition: the store's vocabulary lacks ``REPAIRS``.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        known = store.schema.vocabulary.types.get(RecordRepaired.__name__)
        if known is None or known.struct is not RecordRepaired:
            raise errors.InvalidDefinition(
                "raw access needs RecordRepaired: declare records.REPAIRS"
            )
        self._store = store
        self._clock = clock

    def put(self, collection: str, id: str, value: Struct, *, reason: str, actor: str) -> None:
        """Create or replace a row, exactly as given."""
        declared = self._repairable(collection)
        data = codec.encode(record_actions.normalize(declared, value))
        declared.check_id(id, value)
        self._repair(model.Key(collection, id), data, reason, actor)

    def delete(self, collection: str, id: str, *, reason: str, actor: str) -> None:
        """Delete a row. Raises: NotFound: there was none, so nothing was repaired."""
        self._repairable(collection)
        self._repair(model.Key(collection, id), None, reason, actor)

    def _repair(self, key: model.Key, data: bytes | None, reason: str, actor: str) -> None:
        model.check_text("a row id", key.id, model.ID_BYTES_MAX)
        model.check_text("the reason of a repair", _strip(reason), REASON_BYTES_MAX)
        model.check_text("the actor of a repair", _strip(actor), model.TAG_BYTES_MAX)
        for _ in range(PUT_ATTEMPTS_MAX):
            (record,) = self._store.get(key)
            version = model.ABSENT if record is None else record.version
            if data is None and record is None:
                raise errors.NotFound(f"{key} does not exist", collection=key.collection, id=key.id)
            write: model.Write = (
                model.Delete(key, version) if data is None else model.Put(key, data, version)
            )
            repaired = RecordRepaired(key.collection, key.id, reason, actor, version)
            fact = self._store.schema.vocabulary.fact(repaired)
            commit = model.Commit(self._clock(), model.Meta(actor=actor), (fact,), writes=(write,))
            (outcome,) = self._store.commit(commit)
            if isinstance(outcome, model.Receipt):
                return
            if not isinstance(outcome, errors.VersionConflict):
                raise outcome
        raise errors.AttemptsExhausted(f"{key} changed at every attempt; try again")

    def _repairable(self, name: str) -> Collection:
        declared = self._store.schema.collection(name)
        if declared.writers is Writers.FOLDED:
            raise errors.ImmutableRecord(
                f"{name} is folded: rebuild it from the log", collection=name, operation="repair"
            )
        return declared


def _strip(text: object) -> object:
    """The text without blanks, so that blanks alone are not accepted as a reason."""
    return text.strip() if isinstance(text, str) else text
