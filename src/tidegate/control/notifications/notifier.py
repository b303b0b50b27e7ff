"""The notifier: follows the log and puts notices into the queues of subscriptions.

It stores its position after a page, not in the commits that fill the queues. If it stops in
between, the next notifier reads the same facts again. A queue stores its newest notice, so none is
queued twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from tidegate.control import leaders, runtime
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.notifications import stuck_rollouts
from tidegate.domain.notifications import (
    bursts,
    from_facts,
    matching,
    rows,
    slices,
    stored_bursts,
)
from tidegate.domain.notifications.notices import Notice
from tidegate.kernel import codec, model, store

PAGE = 1_000
STORED_EVERY: Final = 5_000  # positions; at most so many are read again after a restart
BURSTS_BYTES_MAX: Final = model.ROW_BYTES_MAX - 1_024  # a row has the position, too
LOOK_EVERY: Final = timedelta(seconds=15)  # for gates that need a person
READS: Final = from_facts.READS | bursts.READS
ACTOR: Final = model.Meta(actor="notifier")

Subscribers = Sequence[
    tuple[rows.Subscription, model.Position]
]  # with the positions of their creation


class Notifier:
    """Turns facts into notices while this process is the leader."""

    def __init__(
        self, control: runtime.Control, leader: leaders.Leader, reader: FleetReader
    ) -> None:
        self._control = control
        self._leader = leader
        self._reader = reader
        self._looked_at: datetime | None = None  # when stuck rollouts were looked for
        self._term = ""  # the term in which the position was read
        self._position: model.Position = 0
        self._stored: model.Position = 0
        self._bursts = bursts.BurstState()
        self._replays: dict[str, model.Position] = {}  # the position of each replay

    def round(self) -> bool:
        """Queue notices of new facts; return whether there is more to read at once."""
        if not self._leader.lead():
            return False
        head = self._control.store.head()
        subscribers = self._subscribers()
        if self._leader.token != self._term:
            self._begin(subscribers, head)
        if not subscribers:  # what happens until there is one is not followed
            self._position, self._bursts = head, bursts.BurstState()
            return False
        page = self._control.store.feed(after=self._position, limit=PAGE).events
        subscribers = self._subscribers()  # again: one may have been created before the last event
        is_last = len(page) < PAGE
        if not is_last:
            page = whole_commits(page)
        followed = self._follow(page)
        known = self._read_for(followed)
        notices = from_facts.notices_of(followed, known)
        gathered = bursts.advance(self._bursts, followed, known)
        position = page[-1].position if page else self._position
        if is_last:  # deadlines are checked when all facts have been read
            now = self._control.clock()
            gathered, due = bursts.tell(gathered, now, position, self._find_stuck(gathered, now))
            notices += due
        self._queue(notices, subscribers)
        self._bursts = gathered  # only now: what was not queued is queued in the next round
        self._position = position
        if notices or position - self._stored >= STORED_EVERY:
            self._store_position()
        return self._replay(subscribers) or not is_last

    def _find_stuck(self, gathered: bursts.BurstState, now: datetime) -> dict[str, str] | None:
        """Return why gates need a person now; None: this was looked at a moment ago."""
        if self._looked_at is not None and now < self._looked_at + LOOK_EVERY:
            return None
        self._looked_at = now
        return stuck_rollouts.find_stuck(self._reader, gathered.gates, now)

    # ── replays ──

    def _replay(self, subscribers: Subscribers) -> bool:
        """Read a page for each active replay; return whether one continues."""
        by_name = {subscription.name: subscription for subscription, _ in subscribers}
        for queue in store.values(self._control.store, rows.QUEUES.name, rows.NoticeQueue):
            if queue.replay_after is None:
                self._replays.pop(queue.name, None)
            elif queue.name in by_name:
                self._replay_page(by_name[queue.name], queue)
        return bool(self._replays)

    def _replay_page(self, subscription: rows.Subscription, queue: rows.NoticeQueue) -> None:
        name, through = subscription.name, queue.replay_through
        after = max(self._replays.get(name, 0), queue.replay_after or 0)
        page = self._control.store.feed(after=after, limit=PAGE).events
        is_last = len(page) < PAGE or page[-1].position >= through
        page = page if is_last else whole_commits(page)
        followed = self._follow(event for event in page if event.position <= through)
        notices = from_facts.notices_of(followed, self._read_for(followed))
        items = (
            slices.AddressedNotice(name, notice)
            for notice in notices
            if matching.is_wanted(subscription, notice)
        )
        self._land(items, replayed=True)
        if not is_last:
            self._replays[name] = page[-1].position
            return
        self._replays.pop(name, None)
        command = slices.FinishReplay(term=self._leader.token, name=name)
        self._control.execute(slices.finish_replay, command, meta=ACTOR)

    def _begin(self, subscribers: Subscribers, head: model.Position) -> None:
        """Read where the last leader stopped. The first leader begins at the first subscription."""
        (record,) = self._control.store.get(rows.position_key())
        if record is not None:
            stored = codec.decode(record.data, rows.NotifierPosition)
            self._position, self._bursts = stored.position, stored.bursts
        elif subscribers:
            self._position = min(born for _, born in subscribers)
        else:
            self._position = head
        self._stored = self._position
        self._replays = {}
        self._term = self._leader.token

    def _subscribers(self) -> Subscribers:
        found = store.rows(self._control.store, rows.SUBSCRIPTIONS.name)
        return [(codec.decode(record.data, rows.Subscription), record.born) for record in found]

    # ── facts to notices ──

    def _follow(self, page: Iterable[model.Event]) -> list[from_facts.FollowedFact]:
        value = self._control.folds.vocabulary.value
        return [
            from_facts.FollowedFact(event.position, event.at, event.meta.actor, value(event))
            for event in page
            if event.type in READS and bursts.MARKS.get(event.type, b"") in event.body
        ]

    def _read_for(self, followed: Sequence[from_facts.FollowedFact]) -> dict[model.Key, object]:
        known = self._read(
            key
            for item in followed
            for key in (*from_facts.rows_for(item.fact), *bursts.rows_for(item.fact))
        )
        more = (key for item in followed for key in from_facts.more_rows_for(item.fact, known))
        return known | self._read(more)

    def _read(self, keys: Iterable[model.Key]) -> dict[model.Key, object]:
        wanted = tuple(dict.fromkeys(keys))
        if not wanted:
            return {}
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
            slices.AddressedNotice(subscription.name, notice)
            for notice in notices
            for subscription, born in subscribers
            # The creation makes no notice, but one that is due to time may have its position.
            if notice.position >= born and matching.is_wanted(subscription, notice)
        )
        self._land(items)

    def _land(self, items: Iterator[slices.AddressedNotice], *, replayed: bool = False) -> None:
        while batch := tuple(islice(items, slices.QUEUED_MAX)):
            command = slices.QueueNotices(term=self._leader.token, items=batch, replayed=replayed)
            self._control.execute(slices.queue_notices, command, meta=ACTOR)

    def _store_position(self) -> None:
        """Store the position. A failure is ignored: the facts are only read again."""
        key = rows.position_key()
        (record,) = self._control.store.get(key)
        version = model.ABSENT if record is None else record.version
        kept = stored_bursts.fit(self._bursts, BURSTS_BYTES_MAX)
        content = codec.encode(rows.NotifierPosition(position=self._position, bursts=kept))
        writes = (model.Put(key, content, version), self._leader.fence)
        (outcome,) = self._control.store.commit(
            model.Commit(self._control.clock(), ACTOR, writes=writes)
        )
        if isinstance(outcome, model.Receipt):
            self._stored = self._position


def whole_commits(page: tuple[model.Event, ...]) -> tuple[model.Event, ...]:
    """Drop the last commit of a full page, because it may be incomplete. Events of one commit have
    the same time; if all events have it, the page is returned as it is.
    """
    end = len(page)
    while end and page[end - 1].at == page[-1].at:
        end -= 1
    return page[:end] or page
