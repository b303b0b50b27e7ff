"""The one write path: a command is decided, its facts are folded, and all of it is one commit.

    receipt(key)? ─▶ read ─▶ decide ─▶ follow-ups and rows ─▶ commit
                       ▲                      ▲                 │ a fold's row moved: step again
                       │                      └─────────────────┤
                       └────────────────────────────────────────┘ the boundary moved: again

Two verbs write facts: ``execute`` (a command) and ``record`` (a report, through its lane).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future

from msgspec import Struct

from tidegate import errors
from tidegate.clock import Clock, system_clock
from tidegate.kernel import commit_builder, folds as kernel_folds, idempotency, model, slices
from tidegate.kernel.store import Store, demand_boundary

ATTEMPTS_MAX = 3
REFOLDS_MAX = 50  # a fold's row that moved costs no attempt, but not for ever
BACK_OFF_SECONDS = 0.005  # doubled per attempt, full jitter
BACK_OFF_SECONDS_MAX = 0.2
DOUBLINGS_MAX = 10

Submit = Callable[[model.Commit], "Future[model.Receipt]"]

# Every other error of a slice or fold is what a rule says of the state that it saw.
NO_RULINGS = (errors.Invalid, errors.TooLarge, errors.Unavailable, errors.Unknown)


class CommandOutcome(Struct, frozen=True):
    """What became of a command or report. No receipt: it changes nothing, nothing was written."""

    facts: tuple[Struct, ...]
    receipt: model.Receipt | None
    answer: bytes = b""

    @property
    def position(self) -> model.Position:
        """The log position that it caused, 0 if none."""
        return 0 if self.receipt is None else self.receipt.last


class _Moved(Exception):
    """The store's conflict with a commit of ours, apart from any that a rule raises itself."""

    def __init__(self, conflict: errors.BoundaryMoved | errors.VersionConflict) -> None:
        super().__init__(conflict.detail)
        self.conflict = conflict

    @property
    def row(self) -> model.Key | None:
        """The row that moved, if it was one."""
        if not isinstance(self.conflict, errors.VersionConflict):
            return None
        return model.Key(str(self.conflict.facts["collection"]), str(self.conflict.facts["id"]))


class _Decision(Struct, frozen=True):
    """What a slice decided, and on what."""

    values: tuple[Struct, ...]
    basis: model.Commit  # the boundary or the checks that it stands on
    read: commit_builder.Rows
    spent: tuple[model.Key, ...]
    answer: bytes


class Control:
    """Runs slices against a store and keeps its folds in step.

    ``submit`` hands a commit to the writer (``Grouped(store).submit``); everything that waits or
    tosses a coin is a parameter, so that a simulation owns it.
    """

    def __init__(
        self,
        store: Store,
        folds: kernel_folds.Folds,
        submit: Submit,
        *,
        clock: Clock = system_clock,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> None:
        self.store = store
        self.folds = folds
        self.clock = clock
        self._submit = submit
        self._sleep = sleep
        self._jitter = jitter
        self._attempts_max = attempts_max

    @property
    def submit(self) -> Submit:
        """The writer, for rows that no slice decides on."""
        return self._submit

    def execute(
        self,
        item: slices.Slice,
        command: Struct,
        *,
        meta: model.Meta = model.NO_META,
        key: str | None = None,
        asked: Struct | None = None,
        alongside: slices.Alongside | None = None,
    ) -> CommandOutcome:
        """Decide the command and commit what follows from it.

        With a ``key`` a repeat gives the first answer. ``asked`` is what the caller said, where
        the command holds more than that: by it a repeat is known. ``alongside`` is committed with
        it, and if one of the two is refused, neither is.

        Raises:
            Refused: a rule says no. IdempotencyMismatch: the key belongs to another command.
            AttemptsExhausted: somebody else moved first, every time.
            Unavailable: nothing was applied. Unknown: it may have been; ask again with the key.
        """
        if not isinstance(command, item.command):
            raise errors.InvalidInput(f"{item.name} takes {item.command.__name__}")
        once = (
            None
            if key is None
            else model.CommitKey(key, idempotency.digest(meta.actor, item.name, asked or command))
        )
        if once is not None and (earlier := self._earlier(once)) is not None:
            return earlier
        if alongside is not None:
            item = slices.put_together(alongside.item, item)
            command = slices.CommandPair(alongside.command, command)
        moved: errors.Conflict = errors.Conflict("no attempt was allowed")
        for attempt in range(self._attempts_max):
            if attempt:
                self._back_off(attempt)
            try:
                return self._attempt(item, command, meta, once)
            except _Moved as again:
                moved = again.conflict
            except NO_RULINGS:
                raise
            except errors.TidegateError:
                # The refusal may have seen this very command's earlier copy.
                if once is not None and (earlier := self._earlier(once)) is not None:
                    return earlier
                raise
        raise errors.AttemptsExhausted(
            f"{item.name} met another commit {self._attempts_max} times, last: {moved.detail}",
            attempts=self._attempts_max,
            **moved.facts,
        ) from moved

    def rehearse(
        self,
        item: slices.Slice,
        command: Struct,
        *,
        meta: model.Meta = model.NO_META,
        alongside: slices.Alongside | None = None,
    ) -> tuple[model.Fact, ...]:
        """The facts that the command would append now, and those that would follow from them.

        Nothing is written, and no earlier copy of the command is looked for.

        Raises:
            Refused: a rule says no, as it would say to the command itself. Unavailable.
            Conflict: something that it depends on changed meanwhile.
        """
        if alongside is not None:
            item = slices.put_together(alongside.item, item)
            command = slices.CommandPair(alongside.command, command)
        try:
            decision = self._decide(item, command, meta)
        except _Moved as moved:
            raise moved.conflict from None
        builder = self._builder(decision)
        builder.add(decision.values, decision.basis.at)
        builder.spend(decision.spent)
        self.store.schema.check(builder.commit(decision.basis, None), model.COST_MAX)
        return tuple(builder.facts)

    def earlier(
        self,
        item: slices.Slice,
        asked: Struct,
        *,
        meta: model.Meta = model.NO_META,
        key: str | None = None,
    ) -> CommandOutcome | None:
        """What the first copy of this request led to; None: there was none. ``execute`` asks this
        itself; whoever has work to do before it asks first. Raises: IdempotencyMismatch.
        """
        return (
            None
            if key is None
            else self._earlier(
                model.CommitKey(key, idempotency.digest(meta.actor, item.name, asked))
            )
        )

    def _attempt(
        self, item: slices.Slice, command: Struct, meta: model.Meta, once: model.CommitKey | None
    ) -> CommandOutcome:
        decision = self._decide(item, command, meta)
        if decision.values:
            return self._fold(decision, once)
        # The empty decision, too, may have seen this very command's earlier copy.
        earlier = None if once is None else self._earlier(once)
        return CommandOutcome((), None, decision.answer) if earlier is None else earlier

    def _decide(self, item: slices.Slice, command: Struct, meta: model.Meta) -> _Decision:
        """Read what the slice reads, and let it decide. A refusal may have to be certified by an
        empty commit on what was read.
        """
        at = self.clock()
        state: object
        if item.rows is not None:
            keys = item.rows(command)
            known = self._read_rows(keys)
            self._demand_expected(item, command, known)
            state = tuple(known[key][1] for key in keys)
            seen = tuple(model.Check(key, version) for key, (version, _) in known.items())
            basis = model.Commit(at, meta, writes=seen)
        else:
            known = {}
            boundary, state = self._read(item, command)
            basis = model.Commit(at, meta, boundaries=(boundary,))
        try:
            values = tuple(item.decide(state, command, at))
        except NO_RULINGS:
            raise
        except errors.TidegateError:
            if item.certify:
                self._land(basis)
            raise
        spent = item.spends(command) if values and item.spends is not None else ()
        return _Decision(values, basis, known, spent, item.answer(values))

    def _read(self, item: slices.Slice, command: Struct) -> tuple[model.Boundary, object]:
        vocabulary = self.folds.vocabulary
        query = vocabulary.query(item, command)
        page = self.store.read(query, guard=vocabulary.guard(item, query))
        views = {struct.__name__: struct for struct in item.reads}
        assert item.start is not None
        assert item.evolve is not None
        state = item.start(command)
        for event in page.events:
            state = item.evolve(state, vocabulary.value(event, views[event.type]))
        return demand_boundary(page, query), state

    def _read_rows(self, keys: tuple[model.Key, ...]) -> commit_builder.Rows:
        """The rows that a slice starts from: their versions are its boundary."""
        builder = commit_builder.CommitBuilder(self.folds, self.store.get)
        builder.fetch(keys)
        return builder.known

    def _demand_expected(
        self, item: slices.Slice, command: Struct, known: commit_builder.Rows
    ) -> None:
        for key, version in ({} if item.expects is None else item.expects(command)).items():
            found = known[key][0]
            if found not in (model.ABSENT, version):
                raise errors.StaleVersion(version, found)

    def _fold(self, decision: _Decision, once: model.CommitKey | None) -> CommandOutcome:
        """Step the rows of decided facts and commit; a row that moved is read and stepped again.

        What the slice itself read stays as it was read: if that moved, it must decide again.
        """
        for _ in range(REFOLDS_MAX - 1):
            builder = self._builder(decision)
            try:
                return self._folded(builder, decision, once)
            except _Moved as moved:
                if moved.row is None or moved.row in decision.read or builder.intends(moved.row):
                    raise
                self._back_off(1)
        return self._folded(self._builder(decision), decision, once)

    def _builder(self, decision: _Decision) -> commit_builder.CommitBuilder:
        builder = commit_builder.CommitBuilder(self.folds, self.store.get, dict(decision.read))
        builder.fetch(key for value in decision.values for key in self.folds.keys(value))
        for key in decision.read:
            builder.row(key)
        return builder

    def _folded(
        self,
        builder: commit_builder.CommitBuilder,
        decision: _Decision,
        once: model.CommitKey | None,
    ) -> CommandOutcome:
        basis = decision.basis
        try:
            builder.add(decision.values, basis.at)
            builder.spend(decision.spent)
        except NO_RULINGS:
            raise
        except errors.TidegateError:
            # Its rows are newer than the decision and were not read at one moment: the refusal
            # counts only if neither the boundary nor any of them has moved.
            self._land(model.Commit(basis.at, basis.meta, (), basis.boundaries, builder.pins()))
            raise
        if once is not None:
            once = model.CommitKey(once.key, once.digest, decision.answer)
        receipt = self._land(builder.commit(basis, once))
        if receipt.replayed:
            return CommandOutcome((), receipt, receipt.answer)
        return CommandOutcome(decision.values, receipt, decision.answer)

    def _land(self, commit: model.Commit) -> model.Receipt:
        self.store.schema.check(commit, model.COST_MAX)
        try:
            return self._submit(commit).result()
        except (errors.BoundaryMoved, errors.VersionConflict) as conflict:
            raise _Moved(conflict) from conflict

    def _earlier(self, once: model.CommitKey) -> CommandOutcome | None:
        receipt = idempotency.earlier_receipt(self.store, once)
        return None if receipt is None else CommandOutcome((), receipt, receipt.answer)

    def _back_off(self, attempt: int) -> None:
        longest = min(BACK_OFF_SECONDS * 2 ** min(attempt - 1, DOUBLINGS_MAX), BACK_OFF_SECONDS_MAX)
        self._sleep(longest * self._jitter())
