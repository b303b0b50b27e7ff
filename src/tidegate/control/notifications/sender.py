"""The sender: empties the queue of each subscription, first in, first out.

    due? ──▶ read the first notice ──▶ send ──▶ record the answer ──▶ the next one

A slow target has its own thread and does not delay others. If a message was sent but could not be
recorded, it is sent again with the same id.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from msgspec import Struct

from tidegate.control import leaders, runtime, secrets
from tidegate.control.notifications.addresses import Addresses
from tidegate.control.notifications.mail import TargetAnswer
from tidegate.control.notifications.targets import Targets
from tidegate.domain.notifications import messages, refusals, rows, slices, states
from tidegate.domain.outbox.slices import JITTER_MAX
from tidegate.errors import Unavailable
from tidegate.kernel import codec, model
from tidegate.kernel.store import values

log = logging.getLogger("tidegate.worker")

THREADS_MAX: Final = 8
UNSENDABLE: Final = 422  # counts as this status, so that it is dropped after three attempts
IN_A_ROW_MAX: Final = 50  # messages to one target before others get the thread
IN_DIGEST_MAX: Final = 1_000  # notices in one digest
ACTOR: Final = model.Meta(actor="notifier")


class DueNotice(Struct, frozen=True):
    """The notices in the next message of a queue: the first one, or many for a digest."""

    subscription: rows.Subscription
    waiting: tuple[rows.QueuedNotice, ...]


class NoticeSender:
    """Sends due notices while this process is the leader."""

    def __init__(
        self,
        control: runtime.Control,
        leader: leaders.Leader,
        addresses: Addresses,
        targets: Targets,
        installation: messages.InstallationRef,
        name_of: messages.NameOf,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._control = control
        self._leader = leader
        self._addresses = addresses
        self._targets = targets
        self._installation = installation
        self._name_of = name_of
        self._jitter = jitter
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="tidegate-notify")
        self._busy: dict[str, Future[int]] = {}

    def round(self) -> None:
        """Send due notices in threads. Raises the errors of earlier rounds."""
        done = [name for name, future in self._busy.items() if future.done()]
        finished = [self._busy.pop(name) for name in done]
        for name in self._due():
            if name not in self._busy:
                self._busy[name] = self._threads.submit(self.send_waiting, name)
        for future in finished:
            future.result()

    def close(self) -> None:
        """Finish the current messages."""
        self._threads.shutdown(wait=True)

    def work(self) -> int:
        """Send due notices in this thread; return how many messages were tried."""
        return sum(self.send_waiting(name) for name in list(self._due()))

    def _due(self) -> Iterator[str]:
        now = self._control.clock()
        for queue in values(self._control.store, rows.QUEUES.name, rows.NoticeQueue):
            if queue.waiting and (queue.next_attempt_at is None or queue.next_attempt_at <= now):
                yield queue.name

    def send_waiting(self, name: str) -> int:
        """Send the notices of one queue until one fails; return how many were tried."""
        for tried in range(IN_A_ROW_MAX):
            if not self._send_first(name):
                return tried
        return IN_A_ROW_MAX

    def _send_first(self, name: str) -> bool:
        """Send the first message of a queue; return whether the target accepted it."""
        if self._leader.seconds_left <= self._targets.timeout_seconds:
            return False
        due = self._read(name)
        if due is None:
            return False
        answer = self._answer_to(due)
        for first in range(due.waiting[0].number, due.waiting[-1].number + 1, slices.ENDED_MAX):
            self._record(
                name, first, min(first + slices.ENDED_MAX - 1, due.waiting[-1].number), answer
            )
            if not answer.is_delivered:
                break
        return answer.is_delivered

    def _record(self, name: str, first: int, last: int, answer: TargetAnswer) -> None:
        command = slices.RecordDelivery(
            term=self._leader.token,
            name=name,
            number=first,
            through=last if answer.is_delivered else first,
            is_delivered=answer.is_delivered,
            status=answer.status,
            detail=answer.detail,
            warning=answer.warning,
            jitter=min(int(self._jitter() * JITTER_MAX), JITTER_MAX),
        )
        self._control.execute(slices.record_delivery, command, meta=ACTOR)

    def _read(self, name: str) -> DueNotice | None:
        store, now = self._control.store, self._control.clock()
        found, queued = store.get(rows.subscription_key(name), rows.queue_key(name))
        if found is None or queued is None:
            return None
        subscription = codec.decode(found.data, rows.Subscription)
        queue = codec.decode(queued.data, rows.NoticeQueue)
        is_due = queue.next_attempt_at is None or queue.next_attempt_at <= now
        if subscription.disabled_at is not None or not queue.waiting or not is_due:
            return None
        count = 1
        if subscription.kind in states.IN_DIGESTS and queue.waiting > states.DIGEST_MIN:
            count = min(queue.waiting, IN_DIGEST_MAX)
        numbers = range(queue.first, queue.first + count)
        records = store.get(*(rows.notice_key(name, number) for number in numbers))
        waiting = [
            codec.decode(found.data, rows.QueuedNotice) for found in records if found is not None
        ]
        if len(waiting) < count:
            return None  # some were skipped between the two reads
        return DueNotice(subscription, tuple(waiting))

    def _answer_to(self, due: DueNotice) -> TargetAnswer:
        """Send and return the target's response. A message that cannot be made counts as refused by
        the target, so that one subscription does not stop the others.
        """
        try:
            return self._attempt(due)
        except Unavailable:
            raise
        except Exception as error:
            log.exception("a message for %s cannot be sent", due.subscription.name)
            return TargetAnswer(False, UNSENDABLE, f"cannot be sent: {type(error).__name__}")

    def _attempt(self, due: DueNotice) -> TargetAnswer:
        try:
            address = self._addresses.open(due.subscription.address_id)
        except (refusals.AddressMissing, secrets.SealBroken) as error:
            return TargetAnswer(False, 0, error.detail)
        return self._targets.send(due.subscription.kind, address, self._message(due))

    def _message(self, due: DueNotice) -> messages.Message:
        name = due.subscription.name
        if len(due.waiting) > 1:
            notices = [item.notice for item in due.waiting]
            return messages.to_digest(notices, name, self._installation)
        (first,) = due.waiting
        return messages.to_message(
            first.notice, name, self._installation, self._name_of, replayed=first.replayed
        )
