"""Ends requests that expired or are void, and reminds people of reviews, in the leading process.

    waiting, approved ──▶ its time has passed, or its channel changed ──▶ expired, voided
    to review ──▶ no review for 72 h ──▶ people are notified, once

An expired or void request cannot be approved, even before this has recorded its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from tidegate.clock import Clock
from tidegate.control import leaders, runtime
from tidegate.control.queries.reads import Reads
from tidegate.domain.requests import deadlines, rows, states
from tidegate.kernel.model import Meta

ACTOR = Meta(actor="worker")
PAGE = 500  # requests that are read at once
PAGES_MAX = 200  # of one state in a round


class RequestDeadlines:
    """Checks every open request while this process is the leader."""

    def __init__(
        self,
        control: runtime.Control,
        reads: Reads,
        clock: Clock,
        leader: leaders.Leader,
        notify: Callable[[], None],
    ) -> None:
        self._control = control
        self._reads = reads
        self._clock = clock
        self._leader = leader
        self._notify = notify

    def round(self) -> bool:
        """Record the requests that are over and the reviews that are overdue.

        Returns False: there is never more to do at once.

        Raises:
            LeaseLost, AttemptsExhausted, Unavailable, Unknown.
        """
        if not self._leader.lead():
            return False
        done = [self._end(row) for state in sorted(states.OPEN) for row in self._rows(state)]
        due = self._clock() - timedelta(seconds=deadlines.REVIEW_SECONDS)
        done += [
            self._remind(row)
            for row in self._rows(states.RequestState.TO_REVIEW)
            if row.reminded_at is None and row.made_at <= due
        ]
        if any(done):
            self._notify()
        return False

    def close(self) -> None:
        self._leader.resign()

    def _rows(self, state: states.RequestState) -> Iterator[rows.ChannelRequest]:
        after = ""
        for _ in range(PAGES_MAX):
            page = self._reads.newest(
                rows.REQUESTS, "by_state", of=(str(state),), after=after, limit=PAGE
            )
            yield from (item.row for item in page)
            if len(page) < PAGE:
                return
            after = page[-1].entry

    def _end(self, row: rows.ChannelRequest) -> bool:
        command = deadlines.EndRequest(
            request_id=row.request_id,
            channel=row.channel,
            by=ACTOR.actor,
            kind=row.kind,
            command=row.command,
            term=self._leader.token,
        )
        return self._control.execute(deadlines.end_request, command, meta=ACTOR).position > 0

    def _remind(self, row: rows.ChannelRequest) -> bool:
        command = deadlines.RemindReview(
            request_id=row.request_id, channel=row.channel, by=ACTOR.actor, term=self._leader.token
        )
        return self._control.execute(deadlines.remind_review, command, meta=ACTOR).position > 0
