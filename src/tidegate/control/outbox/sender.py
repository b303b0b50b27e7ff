"""The sender of the outbox: delivers the intents of commits to targets, at least once.

    due? ─▶ claim the scope ─▶ target.perform(key) ─▶ record the outcome ─▶ release the scope
               a lease            always the same key     a fact

A crash between any two steps loses nothing: an effect without a recorded outcome is repeated with
the same key by the next worker that claims the scope, after the lease has expired. One worker at a
time works on a scope, in the order of its intents. The outcome is not part of the commit that
caused the intent; it is recorded as a later fact.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from threading import Event
from typing import TypeVar

from msgspec import Struct

from tidegate import errors
from tidegate.control.outbox.targets import Effect, Target, TargetDone, TargetFailed, effect_of
from tidegate.control.runtime import Control
from tidegate.domain.outbox import reconciliation, rows, slices
from tidegate.kernel import codec, collections, leases, model

LEASE_SECONDS = 30.0
POLL_SECONDS = 1.0
BATCH_MAX = 64  # scopes per round
SCANNED_MAX = 1_000  # due scopes read per round, most of them claimed by others
PAGE = 100

ACTOR = "outbox-worker"

Answer = TypeVar("Answer")


class Attempted(Struct, frozen=True):
    """An attempt that was made and recorded."""

    scope: str
    intent_id: str
    key: str
    outcome: TargetDone | TargetFailed


class OutboxSender:
    """Attempts due intents, through the target of each operation.

    Raises:
        InvalidInput: a target's timeout is longer than the lease.
    """

    def __init__(
        self,
        control: Control,
        targets: Mapping[str, Target],
        *,
        lease_seconds: float = LEASE_SECONDS,
        token: Callable[[], str] = lambda: secrets.token_hex(16),
        jitter: Callable[[], float] = random.random,
        owner: str = "",
    ) -> None:
        for operation, target in targets.items():
            if target.timeout_seconds >= lease_seconds:
                raise errors.InvalidInput(
                    f"{target.name} may take {target.timeout_seconds} s for {operation}, "
                    f"longer than a lease of {lease_seconds} s"
                )
        self.control = control
        self.targets = targets
        self._leases = leases.Leases(control.store)
        self._lease_seconds = lease_seconds
        self._token = token
        self._jitter = jitter
        self._owner = owner

    # ── rounds ──

    def run(
        self,
        stop: Event,
        *,
        poll_seconds: float = POLL_SECONDS,
        wait: Callable[[Event, float], object] = Event.wait,
    ) -> None:
        """Run until ``stop``; a current attempt is finished and recorded.

        Errors of the store are retried; any other error is raised.
        """
        while not stop.is_set():
            try:
                idle = not self.work(stop)
            except (errors.Unavailable, errors.Unknown, errors.Conflict):
                idle = True  # nothing is lost: an intent is due until its outcome is recorded
            if idle:
                wait(stop, poll_seconds)

    def work(self, stop: Event | None = None, *, limit: int = BATCH_MAX) -> tuple[Attempted, ...]:
        """Run one round: an attempt in each due scope that no other worker has claimed."""
        made: list[Attempted] = []
        for scope in self._due():
            if len(made) >= min(limit, BATCH_MAX) or (stop is not None and stop.is_set()):
                break
            if (attempted := self.attempt(scope)) is not None:
                made.append(attempted)
        return tuple(made)

    def _due(self) -> Iterator[str]:
        """Yield the scopes whose first intent is due, longest due first."""
        now = codec.time_text(self.control.clock())
        after = ""
        for _ in range(SCANNED_MAX // PAGE):
            page = self.control.store.range(rows.QUEUES.name, index="due", after=after, limit=PAGE)
            for record in page:
                queue = codec.decode(record.data, rows.Queue)
                assert queue.next_attempt_at is not None, "it would not be in the index"
                due = codec.time_text(queue.next_attempt_at)
                if due > now:
                    return
                after = collections.entry(due, record.key.id)
                yield queue.scope
            if len(page) < PAGE:
                return

    # ── one attempt ──

    def attempt(self, scope: str) -> Attempted | None:
        """Attempt the first intent of a scope; None: not due, or claimed by another worker.

        Raises:
            Unavailable, Unknown, Conflict: the outcome was not recorded; the intent stays due.
        """
        token = self._token()
        lease = f"outbox/{scope}"
        now = self.control.clock()
        try:
            held = self._leases.acquire(
                lease, token, now=now, seconds=self._lease_seconds, owner=self._owner
            )
        except errors.LeaseHeld:
            return None
        try:
            attempted = self._under(held, scope)
        except errors.TidegateError:
            # Not for other exceptions: the effect is unknown then, so the scope stays claimed until
            # the lease expires.
            self._leases.release(lease, token, now=self.control.clock())
            raise
        self._leases.release(lease, token, now=self.control.clock())
        return attempted

    def _under(self, held: leases.HeldLease, scope: str) -> Attempted | None:
        store, now = self.control.store, self.control.clock()
        (record,) = store.get(rows.queue_key(scope))
        queue = None if record is None else codec.decode(record.data, rows.Queue)
        if queue is None or queue.next_attempt_at is None or queue.next_attempt_at > now:
            return None  # another worker was faster
        first = queue.waiting[0]
        asked, became = store.get(
            rows.intent_key(first.intent_id), rows.delivery_key(first.intent_id)
        )
        assert asked is not None, "an intent is never deleted"
        assert became is not None, "it came with its intent"
        intent = codec.decode(asked.data, rows.Intent)
        number = codec.decode(became.data, rows.Delivery).attempts + 1
        target = self.targets.get(intent.operation)
        if target is not None and not self._has_time(held, target):
            return None
        outcome = (
            TargetFailed(f"no target does {intent.operation} here")
            if target is None
            else target.perform(intent.idempotency_key, effect_of(intent))
        )
        self._record(scope, first.intent_id, number, outcome)
        return Attempted(scope, first.intent_id, intent.idempotency_key, outcome)

    def _has_time(self, held: leases.HeldLease, target: Target) -> bool:
        """Whether the attempt will end before another worker may claim the scope."""
        over = self.control.clock() + timedelta(seconds=target.timeout_seconds)
        return over < held.expires_at

    def _record(
        self, scope: str, intent_id: str, number: int, outcome: TargetDone | TargetFailed
    ) -> None:
        succeeded = isinstance(outcome, TargetDone)
        command = slices.RecordAttempt(
            scope=scope,
            intent_id=intent_id,
            attempt=number,
            succeeded=succeeded,
            detail=outcome.detail if isinstance(outcome, TargetDone) else outcome.reason,
            retryable=isinstance(outcome, TargetDone) or outcome.retryable,
            jitter=min(int(self._jitter() * slices.JITTER_MAX), slices.JITTER_MAX),
        )
        self.control.execute(
            slices.record_attempt, command, meta=model.Meta(actor=ACTOR, cause=intent_id)
        )


# ── the other direction: the effect first, then the state with its evidence ───────────────────────


class EffectFailed(errors.Unavailable):
    """The external system did not do it; nothing was recorded. Retry with the same key."""

    code = "effect_failed"


class EffectRefused(errors.Refused):
    """The external system refused it, and a retry would not help; nothing was recorded."""

    code = "effect_refused"


class NotObserved(errors.Refused):
    """The external system does not show the effect; nothing was recorded."""

    code = "not_observed"


def perform_then_record(
    target: Target, key: str, effect: Effect, record: Callable[[reconciliation.Observation], Answer]
) -> Answer:
    """Perform the effect, observe it, then commit state and event with the observation as evidence.

    ``record`` makes that commit, with an idempotency key derived from ``key``. If it fails, or this
    process dies first, the effect exists without a state. Call again with the same key: the effect
    is then observed, not repeated.

    Raises:
        EffectFailed, EffectRefused, NotObserved, Unobservable, and what ``record`` raises.
    """
    seen = target.observe(effect.scope, effect.operation)
    if seen is None or seen.idempotency_key != key:
        outcome = target.perform(key, effect)
        if isinstance(outcome, TargetFailed):
            leaf = EffectFailed if outcome.retryable else EffectRefused
            raise leaf(f"{target.name} did not do {effect.operation}", operation=effect.operation)
    return record(_demand(target, key, effect))


def recover(
    target: Target, key: str, effect: Effect, record: Callable[[reconciliation.Observation], Answer]
) -> Answer | None:
    """Record an effect that exists outside but not here; None: it never happened.

    Raises:
        Unobservable, and what ``record`` raises.
    """
    seen = target.observe(effect.scope, effect.operation)
    if seen is None or seen.idempotency_key != key:
        return None
    return record(seen)


def _demand(target: Target, key: str, effect: Effect) -> reconciliation.Observation:
    seen = target.observe(effect.scope, effect.operation)
    if seen is None or seen.idempotency_key != key:
        raise NotObserved(
            f"{target.name} does not show {effect.operation} under its key",
            operation=effect.operation,
        )
    return seen
