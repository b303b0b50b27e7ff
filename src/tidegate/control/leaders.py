"""Leaders: of several processes that could do a job, one does it, and proves it in each commit.

    follower ──lead()──▶ leader ──lead(), before half of the time is over──▶ leader
       ▲                   │
       └── another process took the lease, or the time is over ──┘

The lease is a row, and each term of a leader has a token of its own. A commit of the leader checks
the row. So a leader that was paused for a minute cannot write after another one took over,
whatever its clock says. Between commits a leader trusts its monotonic clock alone: setting the
wall clock neither prolongs nor shortens a term.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from tidegate.clock import Clock
from tidegate.errors import LeaseHeld, LeaseLost
from tidegate.kernel import leases as kernel_leases, model

LEADER_SECONDS = 24.0  # at half of it, more is left than an exchange over HTTP takes
RENEW_SHARE = 0.5  # of a term; what is left is for a store that answers late


class Leader:
    """This process as a candidate for one job."""

    def __init__(
        self,
        leases: kernel_leases.Leases,
        job: str,
        clock: Clock,
        *,
        seconds: float = LEADER_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._leases = leases
        self._id = kernel_leases.leader_key(job).id
        self._clock = clock
        self._seconds = seconds
        self._monotonic = monotonic
        self._new_token = token
        self._held: kernel_leases.HeldLease | None = None
        self._ends = 0.0  # by the monotonic clock

    def lead(self) -> bool:
        """Become the leader or stay it; False: another process is.

        Raises:
            Unavailable, Unknown: nobody knows; the current term goes on until it ends.
        """
        began = self._monotonic()
        if self.seconds_left > self._seconds * RENEW_SHARE:
            return True
        try:
            self._held = self._renewed() or self._leases.acquire(
                self._id, self._new_token(), now=self._clock(), seconds=self._seconds
            )
        except LeaseHeld:
            self._held = None
            return False
        self._ends = began + self._seconds
        return True

    def _renewed(self) -> kernel_leases.HeldLease | None:
        """The lease of the current term, prolonged; None: there is no term to prolong."""
        if self._held is None or self.seconds_left <= 0:
            return None
        try:
            return self._leases.renew(
                self._id, self._held.token, now=self._clock(), seconds=self._seconds
            )
        except LeaseLost:
            return None

    @property
    def seconds_left(self) -> float:
        """How long this process may still act as the leader; 0: it is none."""
        if self._held is None:
            return 0.0
        return max(0.0, self._ends - self._monotonic())

    @property
    def token(self) -> str:
        """What names this term, for a slice that reads the lease's row. Raises: LeaseLost."""
        return self._demand().token

    @property
    def fence(self) -> model.Check:
        """What lets a commit land only in this term. Raises: LeaseLost."""
        held = self._demand()
        return model.Check(held.key, held.number)

    def resign(self) -> None:
        """Let another process lead at once."""
        held, self._held = self._held, None
        if held is not None:
            self._leases.release(self._id, held.token, now=self._clock())

    def _demand(self) -> kernel_leases.HeldLease:
        if self._held is None or self.seconds_left <= 0:
            raise LeaseLost(f"this process is not the leader of {self._id}", id=self._id)
        return self._held
