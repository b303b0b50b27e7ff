"""The notifier: follows the log and puts what there is to tell into the queues of subscriptions.

It stores its position after a page, not in the commits that queue. If it stops in between, the next
notifier reads the same facts again. A queue knows the newest notice that it got, so none is queued
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from tidegate.control.leaders import Leader
from tidegate.control.runtime import Control
from tidegate.domain.notifications import rows
from tidegate.domain.notifications.from_facts import READS, FollowedFact, notice_of, rows_for
from tidegate.domain.notifications.matching import is_wanted
from tidegate.domain.notifications.notices import Notice
from tidegate.domain.notifications.rows import NotifierPosition, Subscription
from tidegate.domain.notifications.slices import (
    QUEUED_MAX,
    AddressedNotice,
    QueueNotices,
    queue_notices,
)
from tidegate.kernel import codec
from tidegate.kernel.model import ABSENT, Commit, Event, Key, Meta, Position, Put, Receipt
from tidegate.kernel.store import rows as all_rows

PAGE = 1_000
STORED_EVERY: Final = 5_000  # positions that are read again at most when the notifier restarts
ACTOR: Final = Meta(actor="notifier")

Subscribers = Sequence[tuple[Subscription, Position]]  # with the position of their creation


class Notifier:
    """Turns what happens into notices, as long as it is the leader."""

    def __init__(self, control: Control, leader: Leader) -> None:
        self._control = control
        self._leader = leader
        self._term = ""  # in which the position was read
        self._position: Position = 0
        self._stored: Position = 0

    def round(self) -> bool:
        """Queue what happened since the last round; whether there is more to read at once."""
        if not self._leader.lead():
            return False
        subscribers = self._subscribers()
        if self._leader.token != self._term:
            self._begin(subscribers)
        if not subscribers:
            self._position = self._control.store.head()
            return False
        page = self._control.store.feed(after=self._position, limit=PAGE).events
        notices = tuple(self._notices(page))
        self._queue(notices, subscribers)
        if page:
            self._position = page[-1].position
        if notices or self._position - self._stored >= STORED_EVERY:
            self._store_position()
        return len(page) == PAGE

    def _begin(self, subscribers: Subscribers) -> None:
        """Read where the last leader stopped. The first one begins with the first subscription."""
        (record,) = self._control.store.get(rows.position_key())
        if record is not None:
            self._position = codec.decode(record.data, NotifierPosition).position
        elif subscribers:
            self._position = min(born for _, born in subscribers)
        else:
            self._position = self._control.store.head()
        self._stored = self._position
        self._term = self._leader.token

    def _subscribers(self) -> Subscribers:
        found = all_rows(self._control.store, rows.SUBSCRIPTIONS.name)
        return [(codec.decode(record.data, Subscription), record.born) for record in found]

    # ── facts to notices ──

    def _notices(self, page: Iterable[Event]) -> Iterator[Notice]:
        vocabulary = self._control.folds.vocabulary
        happened = [
            FollowedFact(event.position, event.at, event.meta.actor, vocabulary.value(event))
            for event in page
            if event.type in READS
        ]
        known = self._read(key for item in happened for key in rows_for(item.fact))
        for item in happened:
            if (notice := notice_of(item, known)) is not None:
                yield notice

    def _read(self, keys: Iterable[Key]) -> dict[Key, object]:
        wanted = tuple(dict.fromkeys(keys))
        collections = self._control.store.schema.collections
        return {
            key: codec.decode(record.data, collections[key.collection].model)
            for key, record in zip(wanted, self._control.store.get(*wanted), strict=True)
            if record is not None
        }

    # ── notices to queues ──

    def _queue(self, notices: Iterable[Notice], subscribers: Subscribers) -> None:
        """Raises: LeaseLost, AttemptsExhausted, Unavailable, Unknown."""
        items = (
            AddressedNotice(subscription.name, notice)
            for notice in notices
            for subscription, born in subscribers
            if notice.position > born and is_wanted(subscription, notice)
        )
        while batch := tuple(islice(items, QUEUED_MAX)):
            command = QueueNotices(term=self._leader.token, items=batch)
            self._control.execute(queue_notices, command, meta=ACTOR)

    def _store_position(self) -> None:
        """A position that is not stored is read again: no reason to fail."""
        key = rows.position_key()
        (record,) = self._control.store.get(key)
        version = ABSENT if record is None else record.version
        content = codec.encode(NotifierPosition(position=self._position))
        writes = (Put(key, content, version), self._leader.fence)
        (outcome,) = self._control.store.commit(Commit(self._control.clock(), ACTOR, writes=writes))
        if isinstance(outcome, Receipt):
            self._stored = self._position
