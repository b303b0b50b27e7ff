"""Computes rows from the log alone, to compare them with the live rows or to rebuild those.

Follow-ups in the log are history (ADR-0009). Older machines may have emitted others than today's
would. So follow-ups are checked only after the position where the newest machine was first used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from tidegate.errors import StoreRefused, TidegateError, VersionConflict
from tidegate.kernel import codec, folds as kernel_folds, model, store as kernel_store

PAGE = 1_000
VERIFY_ROUNDS_MAX = 10

# This row exists while a rebuild is in progress: some rows may be rebuilt and others not.
REBUILD_MARK = model.Key(kernel_store.FOLD_NUMBERS.name, "(rebuild)")


Numbered = tuple[kernel_folds.Fold, model.Record | None]  # a fold and the row of its number


class Difference(Struct, frozen=True):
    """A live row, or a follow-up in the log, that is not what the replay computes."""

    key: str
    what: str
    expected: str
    found: str


class Replay:
    """Rows folded from the log alone, by the same functions that wrote the live rows.

    ``only`` limits the replay to some folds and skips the check of follow-ups. Otherwise it checks
    the follow-ups of facts after the position ``unchecked_upto``.
    """

    def __init__(
        self,
        folds: kernel_folds.Folds,
        only: tuple[kernel_folds.Fold, ...] | None = None,
        unchecked_upto: model.Position = 0,
    ) -> None:
        self._folds = folds
        self._unchecked_upto = unchecked_upto
        self._only = None if only is None else {fold.collection.name for fold in only}
        self._expected: deque[Struct] = deque()
        self.position: model.Position = 0
        self.at = datetime(1970, 1, 1, tzinfo=UTC)  # of the newest event
        self.rows: dict[model.Key, model.Record] = {}
        self._values: dict[model.Key, Any] = {}
        self.differences: list[Difference] = []

    def follow(
        self, store: kernel_store.Store, *, upto: model.Position = model.POSITION_MAX
    ) -> int:
        """Fold the events after the last position, and return how many they were."""
        count = 0
        while self.position < upto:
            events = store.feed(after=self.position, limit=PAGE).events
            for event in events:
                if event.position > upto:
                    return count
                self.step(event)
                count += 1
            if len(events) < PAGE:
                break  # the end of the feed; do not chase the new events of a live store
        return count

    def step(self, event: model.Event) -> None:
        """Fold one event, and compare it with the follow-up that is expected at its place."""
        self.position, self.at = event.position, event.at
        value = self._folds.vocabulary.value(event)
        if self._expected:
            self._compare(self._expected.popleft(), value, event)
        caused: list[Struct] = []
        for fold in self._folds.of(event.type):
            if self._only is None or fold.collection.name in self._only:
                for id in fold.ids(value):
                    caused += self._fold(fold, id, value, event)
        if self._only is None and event.position > self._unchecked_upto:
            # In front of the others: a follow-up's own follow-ups come before its siblings.
            self._expected.extendleft(reversed(caused))

    def _fold(
        self, fold: kernel_folds.Fold, id: str, value: Struct, event: model.Event
    ) -> list[Struct]:
        key = model.Key(fold.collection.name, id)
        old = self._values.get(key)
        try:
            new, effects = kernel_folds.step_row(fold, id, old, value, event.at)
        except TidegateError as error:
            self.differences.append(
                Difference(str(key), "refused fact in the log", "", f"{event.position} {error}")
            )
            return []
        if new is not old and new != old:
            self._store(key, new, event.position)
        return [effect for effect in effects if not isinstance(effect, kernel_folds.WorkRow)]

    def _store(self, key: model.Key, value: Any, position: model.Position) -> None:
        if value is None:
            del self._values[key], self.rows[key]
            return
        born = self.rows[key].born if key in self.rows else position
        self._values[key] = value
        self.rows[key] = model.Record(key, position, born, b"")

    def record(self, key: model.Key) -> model.Record:
        """The row with its bytes. It is encoded only here, because most rows change many times."""
        row = self.rows[key]
        return model.Record(key, row.version, row.born, codec.encode(self._values[key]))

    def _compare(self, expected: Struct, value: Struct, event: model.Event) -> None:
        wanted = self._folds.vocabulary.fact(expected)
        # A fact of an older schema has other bytes, but after the upcasts it is the same value.
        altered = wanted.schema == event.schema and wanted != model.Fact(
            event.kind, event.type, event.schema, event.tags, event.body
        )
        if expected != value or altered:
            self.differences.append(
                Difference(
                    f"event_log/{event.position}",
                    "follow-up",
                    f"{wanted.type} {wanted.body.decode()}",
                    f"{event.type} {event.body.decode()}",
                )
            )

    def missing_follow_ups(self) -> list[Difference]:
        """The follow-ups that the last events require and that the log does not have."""
        where = f"event_log/{self.position}"
        return [
            Difference(where, "follow-up", type(expected).__name__, "end of the log")
            for expected in self._expected
        ]


def differences(store: kernel_store.Store, folds: kernel_folds.Folds) -> list[Difference]:
    """Replay the log, and compare every folded row byte for byte, with its version and ``born``.

    The store may be live: before a newer row is compared, the replay advances to the position that
    wrote the row.
    """
    replay = Replay(folds, unchecked_upto=_last_renumbering(store, folds))
    replay.follow(store)
    names = [fold.collection.name for fold in folds.folds]
    found = [
        difference for name in names for difference in _compare_collection(store, name, replay)
    ]
    replay.follow(store)  # to the end of a commit, so that all its follow-ups were seen
    return [*replay.differences, *replay.missing_follow_ups(), *found]


def _last_renumbering(store: kernel_store.Store, folds: kernel_folds.Folds) -> model.Position:
    """The position at which a machine's number was last saved; 0 if none was."""
    machines = [fold for fold in folds.folds if isinstance(fold, kernel_folds.Machine)]
    keys = [_number_key(fold) for fold in machines]
    return max((record.version for record in _get(store, keys) if record is not None), default=0)


def _compare_collection(
    store: kernel_store.Store, collection: str, replay: Replay
) -> Iterator[Difference]:
    seen: set[str] = set()
    for page in kernel_store.row_pages(store, collection):
        seen.update(record.key.id for record in page)
        yield from _compare_rows(store, page, replay)
    missing = [k for k in replay.rows if k.collection == collection and k.id not in seen]
    for _ in range(VERIFY_ROUNDS_MAX):
        if not missing:
            return
        found = [record for record in _get(store, missing) if record is not None]
        yield from _compare_rows(store, found, replay)
        # A missing row may have been deleted since. Then the replay now deletes it too.
        present = {record.key for record in found}
        count = replay.follow(store)
        missing = [key for key in missing if key not in present and key in replay.rows]
        if not count:
            break
    for key in missing:
        yield Difference(str(key), "missing row", replay.record(key).data.decode(), "")


def _compare_rows(
    store: kernel_store.Store, records: Sequence[model.Record], replay: Replay
) -> Iterator[Difference]:
    """Compare rows that were read after the replay reached its position."""
    for record in sorted(records, key=lambda record: record.version):
        replay.follow(store, upto=record.version)
        key = record.key
        if key not in replay.rows:
            yield Difference(str(key), "extra row", "", record.data.decode())
            continue
        wanted = replay.record(key)
        if wanted.data != record.data:
            yield Difference(str(key), "data", wanted.data.decode(), record.data.decode())
        if (wanted.version, wanted.born) != (record.version, record.born):
            yield Difference(
                str(key),
                "stamp",
                f"version {wanted.version}, born {wanted.born}",
                f"version {record.version}, born {record.born}",
            )


def _get(store: kernel_store.Store, keys: Sequence[model.Key]) -> Iterator[model.Record | None]:
    for start in range(0, len(keys), PAGE):
        yield from store.get(*keys[start : start + PAGE])


def rebuild(
    store: kernel_store.Store, folds: kernel_folds.Folds, *changed: kernel_folds.Fold
) -> int:
    """Rebuild the rows of these folds in one pass over the log, and return how many there are.

    Nothing else may write at the same time. If it is interrupted, the next start rebuilds all rows.
    """
    is_whole = len(changed) == len(folds.folds) or store.get(REBUILD_MARK) == (None,)
    replay = _rebuild_rows(store, folds, changed)
    if is_whole:
        _end_rebuild(store, replay.at)
    return len(replay.rows)


def rebuild_all(store: kernel_store.Store, folds: kernel_folds.Folds, at: datetime) -> int:
    """Rebuild every row and save the folds' numbers; otherwise as ``rebuild``."""
    return _rebuild_and_save(store, folds, _numbers(store, folds), at)


def changed_folds(
    store: kernel_store.Store, folds: kernel_folds.Folds
) -> tuple[kernel_folds.Fold, ...]:
    """The folds whose rows need a rebuild: another number wrote them, or a rebuild was interrupted.

    This reads only the numbers, so it is cheap.
    """
    return tuple(fold for fold, _ in _changed(store, folds))


def rebuild_changed(
    store: kernel_store.Store, folds: kernel_folds.Folds, at: datetime
) -> tuple[str, ...]:
    """Rebuild each collection that a fold with another number wrote; return their names.

    Call it at start, before anything else writes, in the only process that uses the log.
    """
    changed = _changed(store, folds)
    if changed:
        _rebuild_and_save(store, folds, changed, at)
    return tuple(fold.collection.name for fold, _ in changed)


def _rebuild_and_save(
    store: kernel_store.Store, folds: kernel_folds.Folds, changed: Sequence[Numbered], at: datetime
) -> int:
    replay = _rebuild_rows(store, folds, tuple(fold for fold, _ in changed))
    _save_numbers(store, [pair for pair in changed if not _is_current(*pair)], at)
    _end_rebuild(store, at)
    return len(replay.rows)


def _rebuild_rows(
    store: kernel_store.Store, folds: kernel_folds.Folds, changed: Sequence[kernel_folds.Fold]
) -> Replay:
    """Replace the rows of these folds by replayed ones, and return the replay."""
    replay = Replay(folds, only=tuple(changed))
    replay.follow(store)
    # A feed stops at a position whose writer died. A read waits until that position is voided.
    for event in store.read(model.ALL, after=replay.position).events:
        replay.step(event)
    _commit(
        store,
        model.Commit(
            replay.at,
            writes=(
                model.Put(REBUILD_MARK, codec.encode(kernel_store.FoldNumber(0)), model.ABSENT),
            ),
        ),
    )
    for fold in changed:
        name = fold.collection.name
        keys = [key for key in replay.rows if key.collection == name]
        store.restore(name, (replay.record(key) for key in keys))
    return replay


def _end_rebuild(store: kernel_store.Store, at: datetime) -> None:
    """Mark the rebuild as finished."""
    for ending in _mark_deletions(store):
        _commit(store, model.Commit(at, writes=(ending,)))


def _mark_deletions(store: kernel_store.Store) -> list[model.Put | model.Delete]:
    return [
        model.Delete(REBUILD_MARK, mark.version)
        for mark in store.get(REBUILD_MARK)
        if mark is not None
    ]


def _commit(store: kernel_store.Store, commit: model.Commit) -> None:
    """Commit. A version conflict is ignored: then another process has done the same already.

    Raises:
        TidegateError: any other error that the store returned.
    """
    (result,) = store.commit(commit)
    if isinstance(result, TidegateError) and not isinstance(result, VersionConflict):
        raise result


def _changed(store: kernel_store.Store, folds: kernel_folds.Folds) -> list[Numbered]:
    numbers = _numbers(store, folds)
    if store.get(REBUILD_MARK) != (None,):
        return numbers
    return [pair for pair in numbers if not _is_current(*pair)]


def begin(store: kernel_store.Store, folds: kernel_folds.Folds, at: datetime) -> None:
    """Save the numbers of all folds in a log that has neither facts nor numbers.

    Other processes may do so at the same time. A number that another process saved first stays;
    if it differs, ``changed_folds`` reports the fold.
    """
    numbers = _numbers(store, folds)
    if all(record is None for _, record in numbers) and not store.feed(after=0, limit=1).events:
        _save_numbers(store, numbers, at, is_first=True)


def _save_numbers(
    store: kernel_store.Store, numbers: Sequence[Numbered], at: datetime, *, is_first: bool = False
) -> None:
    """Save the numbers. The commit of the last one also ends a rebuild.

    If it ended earlier, a process with the old numbers would use the new rows as its own.
    """
    writes: list[list[model.Put | model.Delete]] = [
        [
            model.Put(
                _number_key(fold),
                codec.encode(kernel_store.FoldNumber(fold.number)),
                model.ABSENT if record is None else record.version,
            )
        ]
        for fold, record in numbers
    ]
    for last in writes[-1:]:
        last += _mark_deletions(store)
    results = store.commit(*(model.Commit(at, writes=tuple(group)) for group in writes))
    for (fold, _), result in zip(numbers, results, strict=True):
        if isinstance(result, VersionConflict) and (
            is_first or _is_current(fold, store.get(_number_key(fold))[0])
        ):
            continue  # another process, started at the same time, saved it first
        if isinstance(result, TidegateError):
            raise result


def _numbers(store: kernel_store.Store, folds: kernel_folds.Folds) -> list[Numbered]:
    """Each fold, with the row that holds the number of the fold that wrote its collection.

    Raises:
        StoreRefused: a newer version wrote the rows. An older one never rebuilds them.
    """
    numbered = {
        record.key.id: record for record in kernel_store.rows(store, kernel_store.FOLD_NUMBERS.name)
    }
    numbered.pop(REBUILD_MARK.id, None)
    found = [(fold, numbered.pop(fold.collection.name, None)) for fold in folds.folds]
    later = (fold.collection.name for fold, record in found if _is_newer(fold, record))
    newer = ", ".join(sorted([*numbered, *later]))
    if newer:
        raise StoreRefused(f"a newer version wrote rows of this log ({newer}): upgrade Tidegate")
    return found


def _is_newer(fold: kernel_folds.Fold, record: model.Record | None) -> bool:
    return (
        record is not None
        and codec.decode(record.data, kernel_store.FoldNumber).number > fold.number
    )


def _number_key(fold: kernel_folds.Fold) -> model.Key:
    return model.Key(kernel_store.FOLD_NUMBERS.name, fold.collection.name)


def _is_current(fold: kernel_folds.Fold, record: model.Record | None) -> bool:
    return record is not None and record.data == codec.encode(kernel_store.FoldNumber(fold.number))
