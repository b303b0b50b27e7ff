"""The only write path: decide a command, fold its facts, and write all of it in one commit.

    receipt(key)? ─▶ read ─▶ decide ─▶ follow-ups and rows ─▶ commit
                       ▲                      ▲                 │ a fold's row changed: fold again
                       │                      └─────────────────┤
                       └────────────────────────────────────────┘ the boundary changed: retry

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
REFOLDS_MAX = 50  # a changed row of a fold does not count as an attempt, up to this limit
BACK_OFF_SECONDS = 0.005  # doubled per attempt, full jitter
BACK_OFF_SECONDS_MAX = 0.2
DOUBLINGS_MAX = 10

Submit = Callable[[model.Commit], "Future[model.Receipt]"]

# All other errors of a slice or fold are refusals that depend on the rows that were read.
NO_RULINGS = (errors.Invalid, errors.TooLarge, errors.Unavailable, errors.Unknown)


class CommandOutcome(Struct, frozen=True):
    """The outcome of a command or report. Without a receipt, nothing had to be written."""

    facts: tuple[Struct, ...]
    receipt: model.Receipt | None
    answer: bytes = b""

    @property
    def position(self) -> model.Position:
        """Return the log position of its commit, 0 if none."""
        return 0 if self.receipt is None else self.receipt.last


class _Moved(Exception):
    """A conflict of the store with our commit, as opposed to one that a rule raises."""

    def __init__(self, conflict: errors.BoundaryMoved | errors.VersionConflict) -> None:
        super().__init__(conflict.detail)
        self.conflict = conflict

    @property
    def row(self) -> model.Key | None:
        """Return the row that changed, if it was a row."""
        if not isinstance(self.conflict, errors.VersionConflict):
            return None
        return model.Key(str(self.conflict.facts["collection"]), str(self.conflict.facts["id"]))


class _Decision(Struct, frozen=True):
    """The decision of a slice, and what it was based on."""

    values: tuple[Struct, ...]
    basis: model.Commit  # the boundary or the checks that it depends on
    read: commit_builder.Rows
    spent: tuple[model.Key, ...]
    answer: bytes


class Control:
    """Runs slices against a store and keeps its folds up to date.

    ``submit`` passes a commit to the writer (``Grouped(store).submit``). Waiting and randomness
    are parameters, so that a simulation can control them.
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
        """Return the writer, for rows that are written without a slice."""
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
        """Decide the command and commit its facts.

        With a ``key``, a repeat returns the first answer. ``asked`` is the caller's request, if the
        command has values added to it; it identifies a repeat. ``alongside`` is committed together
        with the command: both or neither.

        Raises:
            Refused: a rule refuses it. IdempotencyMismatch: the key belongs to another command.
            AttemptsExhausted: another process was faster every time.
            Unavailable: nothing was applied. Unknown: perhaps it was; retry with the same key.
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
                # An earlier copy of this command may have caused the refusal.
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
        """Return the facts that the command would append now, including follow-ups.

        Nothing is written, and earlier copies of the command are not considered.

        Raises:
            Refused: a rule would refuse the command. Unavailable.
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
        """Return the outcome of this request's first copy; None: this is the first. ``execute``
        checks this, too; call this if there is work to do before it. Raises: IdempotencyMismatch.
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
        # An earlier copy of this command may have caused the empty decision, too.
        earlier = None if once is None else self._earlier(once)
        return CommandOutcome((), None, decision.answer) if earlier is None else earlier

    def _decide(self, item: slices.Slice, command: Struct, meta: model.Meta) -> _Decision:
        """Read what the slice needs, and let it decide. A refusal may need an empty commit that
        confirms that the rows have not changed.
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
        """Read the rows of a slice; their versions are its boundary."""
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
        """Fold the decided facts into rows and commit. A row that changed is read and folded again.

        What the slice itself read is not read again: if that changed, the slice must decide again.
        """
        for _ in range(REFOLDS_MAX - 1):
            builder = self._builder(decision)
            try:
                return self._fold_once(builder, decision, once)
            except _Moved as moved:
                if moved.row is None or moved.row in decision.read or builder.intends(moved.row):
                    raise
                self._back_off(1)
        return self._fold_once(self._builder(decision), decision, once)

    def _builder(self, decision: _Decision) -> commit_builder.CommitBuilder:
        builder = commit_builder.CommitBuilder(self.folds, self.store.get, dict(decision.read))
        builder.fetch(key for value in decision.values for key in self.folds.keys(value))
        for key in decision.read:
            builder.row(key)
        return builder

    def _fold_once(
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
            # The rows are newer than the decision and were not read at one moment. So the
            # refusal counts only if neither the boundary nor any of these rows has changed.
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
