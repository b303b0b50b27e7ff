"""The reconciler: compares external systems with our rows, and records the differences.

    for each scope      ACTUAL row = its history?      no: refuse, touch nothing
    for each operation  observe, judge                 confirmed  complete an unanswered intent
                                                       adrift     record, repeat if it is safe
                                                       conflict   store the observation as evidence
                                                                  without authority, and refuse;
                                                                  pin and confidence stay
    what is overdue     retry with the same key

A second pass with nothing changed appends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256

from msgspec import Struct

from tidegate.control.outbox.sender import OutboxSender
from tidegate.control.outbox.targets import Unobservable
from tidegate.domain.outbox import reconciliation, rows as outbox_rows, states
from tidegate.domain.releases import facts, folds as release_folds, registry, rows as release_rows
from tidegate.domain.releases.evidence import KeepEvidence
from tidegate.errors import AttemptsExhausted, TooLarge
from tidegate.kernel import codec, folds as kernel_folds, model, slices, store

# Twice a lease: by then another worker has taken over from one that died.
OVERDUE_SECONDS = 60.0
FULL_PASS = timedelta(hours=1)  # between two checks of scopes without due effects
COMPARISONS_MAX = 8
HISTORY_PAGE = 500
HISTORY_MAX = 100_000  # facts of a scope that are replayed in one pass
ACTOR = "reconciler"


class ScopeHistoryTooLong(TooLarge):
    """The scope has more history than one comparison replays; its row is not compared."""

    code = "scope_history_too_long"

    def __init__(self, scope: str, allowed: int) -> None:
        super().__init__(
            f"{scope} has more than {allowed} facts, which is what one pass replays; "
            "its row was not compared, and nothing outside was looked at",
            scope=scope,
            allowed=allowed,
        )


class ReconcileResult(Struct, frozen=True):
    """The result of a pass: how many scopes it checked and how many facts it appended."""

    scopes: int = 0
    appended: int = 0
    attempted: int = 0
    unobservable: int = 0


class Reconciler:
    """Checks every scope that ever had an effect, and hourly all other scopes, too."""

    def __init__(
        self,
        worker: OutboxSender,
        *,
        overdue_seconds: float = OVERDUE_SECONDS,
        history_max: int = HISTORY_MAX,
    ) -> None:
        self._worker = worker
        self._control = worker.control
        self._overdue = timedelta(seconds=overdue_seconds)
        self._history_max = history_max
        self._all_seen_at: datetime | None = None  # None: not yet in this process

    def run_once(self) -> ReconcileResult:
        """Run one pass.

        Raises:
            Unavailable, Unknown, Conflict: the pass is incomplete; the next one starts again.
            HistoryTooLong: a scope could not be compared; all others were checked.
        """
        total = ReconcileResult()
        too_long: ScopeHistoryTooLong | None = None
        now = self._control.clock()
        is_full = self._all_seen_at is None or now - self._all_seen_at >= FULL_PASS
        for scope in self._all_scopes() if is_full else self._scopes():
            try:
                seen = self.reconcile(scope)
            except ScopeHistoryTooLong as error:
                too_long = too_long or error
                continue
            total = ReconcileResult(
                total.scopes + 1,
                total.appended + seen.appended,
                total.attempted + seen.attempted,
                total.unobservable + seen.unobservable,
            )
        if is_full:
            self._all_seen_at = now
        if too_long is not None:
            raise too_long
        return total

    def reconcile(self, scope: str) -> ReconcileResult:
        """Check one scope: its row against its history, then each operation against its target.

        Raises:
            HistoryTooLong.
        """
        actual, differs, appended = self._compare(scope)
        (record,) = self._control.store.get(outbox_rows.queue_key(scope))
        if record is None:
            return ReconcileResult(1, appended)
        queue = codec.decode(record.data, outbox_rows.Queue)
        found: dict[str, states.ReconciliationFinding | None] = {}
        for operation, intent_id in sorted(queue.newest.items()):
            finding, count = self._look(scope, operation, intent_id, actual, differs)
            found[operation] = finding
            appended += count
        attempted = 0 if differs else self._hasten(scope, found)
        unobservable = sum(finding is None for finding in found.values())
        return ReconcileResult(1, appended, attempted, unobservable)

    # ── the registry's row against its history ──

    def _compare(self, scope: str) -> tuple[release_rows.Actual | None, bool, int]:
        """Return the row, whether its history contradicts it, and how many facts were appended.

        Row and history are not read at one moment, so the row is read before and after the history.
        """
        key = release_rows.actual_key(scope)
        for _ in range(COMPARISONS_MAX):
            (record,) = self._control.store.get(key)
            expected = self._replayed(scope)
            if self._control.store.get(key) == (record,):
                break
        else:
            raise AttemptsExhausted(f"{key} did not hold still")
        found = None if record is None else record.data
        wanted = None if expected is None else codec.encode(expected)
        actual = None if found is None else codec.decode(found, release_rows.Actual)
        signature = sha256(b"|".join((found or b"", wanted or b""))).hexdigest()[:32]
        command = reconciliation.ReconcileActual(
            scope=scope, differs=found != wanted, signature=signature
        )
        return actual, command.differs, self._append(reconciliation.reconcile_actual, command)

    def _replayed(self, scope: str) -> release_rows.Actual | None:
        """Compute the row from the scope's history, with the fold that wrote it.

        Raises:
            HistoryTooLong: an incomplete history would give another row, and report a false drift.
        """
        vocabulary = self._control.folds.vocabulary
        types = frozenset(fact.__name__ for fact in release_folds.release_actual.reads)
        query = model.Query((model.Clause(types, frozenset({f"scope:{scope}"})),))
        id = release_rows.actual_key(scope).id
        row: release_rows.Actual | None = None
        after = 0
        left = self._history_max
        while True:
            limit = min(HISTORY_PAGE, left + 1)
            events = self._control.store.read(query, after=after, limit=limit).events
            left -= len(events)
            if left < 0:
                raise ScopeHistoryTooLong(scope, self._history_max)
            for event in events:
                row, _ = kernel_folds.step_row(
                    release_folds.release_actual, id, row, vocabulary.value(event), event.at
                )
                after = event.position
            if len(events) < limit:
                return row

    # ── the world ──

    def _look(
        self,
        scope: str,
        operation: str,
        intent_id: str,
        actual: release_rows.Actual | None,
        differs: bool,
    ) -> tuple[states.ReconciliationFinding | None, int]:
        """Return the finding, None if it cannot be observed, and how many facts were appended."""
        target = self._worker.targets.get(operation)
        if target is None:
            return None, 0
        try:
            observation = target.observe(scope, operation)
        except Unobservable:
            return None, 0
        if observation is None:
            return None, 0
        record, became = self._control.store.get(
            outbox_rows.intent_key(intent_id), outbox_rows.delivery_key(intent_id)
        )
        assert record is not None, "an intent is never deleted"
        assert became is not None, "it came with its intent"
        intent = codec.decode(record.data, outbox_rows.Intent)
        finding = reconciliation.judge(intent, observation)
        if codec.decode(became.data, outbox_rows.Delivery).state is states.IntentState.CANCELLED:
            return finding, 0
        wanted = actual is None or (
            actual.pinned_release_id == intent.release_id
            and actual.status is not facts.PinStatus.RETIRED
        )
        command = reconciliation.ReconcileEffect(
            scope=scope,
            operation=operation,
            intent_id=intent_id,
            finding=finding,
            signature=observation.signature,
            repairable=wanted and not differs,
        )
        # Evidence first: a refused operation is not checked again, so it must have evidence.
        kept = (
            self._keep(command, observation)
            if finding is states.ReconciliationFinding.CONFLICTING
            else 0
        )
        return finding, kept + self._append(reconciliation.reconcile_effect, command)

    def _keep(
        self, command: reconciliation.ReconcileEffect, observation: reconciliation.Observation
    ) -> int:
        """Store a conflicting observation for an operator; equal ones are stored once."""
        evidence = KeepEvidence(
            scope=command.scope,
            source=ACTOR,
            batch=command.signature,
            document={
                "operation": command.operation,
                **reconciliation.redact_observation(observation),
            },
            command_id=f"{command.operation}-{command.signature}",
            by=ACTOR,
        )
        return self._append(registry.BUILT_IN.keep_evidence, evidence)

    def _hasten(self, scope: str, found: dict[str, states.ReconciliationFinding | None]) -> int:
        """Retry overdue effects, unless the evidence conflicts."""
        (record,) = self._control.store.get(outbox_rows.queue_key(scope))
        assert record is not None, "a queue is never deleted"
        queue = codec.decode(record.data, outbox_rows.Queue)
        if queue.next_attempt_at is None:
            return 0
        late = queue.next_attempt_at + self._overdue <= self._control.clock()
        if (
            not late
            or found.get(queue.waiting[0].operation) is states.ReconciliationFinding.CONFLICTING
        ):
            return 0
        return int(self._worker.attempt(scope) is not None)

    def _append(self, item: slices.Slice, command: Struct) -> int:
        outcome = self._control.execute(item, command, meta=model.Meta(actor=ACTOR))
        return len(outcome.facts)

    def _all_scopes(self) -> Iterator[str]:
        """Yield all registered scopes, and those with effects whose row was lost."""
        seen = set()
        for pin in store.values(self._control.store, release_rows.ACTUAL.name, release_rows.Actual):
            seen.add(pin.scope)
            yield pin.scope
        yield from (scope for scope in self._scopes() if scope not in seen)

    def _scopes(self) -> Iterator[str]:
        return (
            record.key.id for record in store.rows(self._control.store, outbox_rows.QUEUES.name)
        )
