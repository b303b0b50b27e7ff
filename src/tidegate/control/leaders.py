"""Leader election: one of several processes does a job, and each of its commits checks this.

    follower ──lead()──▶ leader ──lead(), before half of the term is over──▶ leader
       ▲                   │
       └── another process took the lease, or the term is over ──┘

The lease is a row, and each term of a leader has its own token. Each commit of the leader checks
the row. So a leader that was paused for a minute cannot write after another process took over,
whatever its clock shows. Between commits a leader relies only on its monotonic clock: setting the
wall clock does not change the length of a term.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from tidegate.clock import Clock
from tidegate.errors import LeaseHeld, LeaseLost
from tidegate.kernel import leases as kernel_leases, model

LEADER_SECONDS = 24.0  # half of it is longer than any HTTP request takes
RENEW_SHARE = 0.5  # of a term; the rest is for a store that responds late


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
        self._ends = 0.0  # monotonic time

    def lead(self) -> bool:
        """Become or remain the leader; False: another process is the leader.

        Raises:
            Unavailable, Unknown: the store did not respond; a current term lasts until its end.
        """
        began = self._monotonic()
        if self.seconds_left > self._seconds * RENEW_SHARE:
            return True
        try:
            self._held = self._renew() or self._leases.acquire(
                self._id, self._new_token(), now=self._clock(), seconds=self._seconds
            )
        except LeaseHeld:
            self._held = None
            return False
        self._ends = began + self._seconds
        return True

    def _renew(self) -> kernel_leases.HeldLease | None:
        """Renew the lease of the current term; None: there is no current term."""
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
        """How long this process may still act as the leader; 0: it is not the leader."""
        if self._held is None:
            return 0.0
        return max(0.0, self._ends - self._monotonic())

    @property
    def token(self) -> str:
        """Return the token of this term, for a slice that reads the lease. Raises: LeaseLost."""
        return self._demand().token

    @property
    def fence(self) -> model.Check:
        """Return a check that fails a commit outside this term. Raises: LeaseLost."""
        held = self._demand()
        return model.Check(held.key, held.number)

    def resign(self) -> None:
        """Release the lease, so that another process can lead at once."""
        held, self._held = self._held, None
        if held is not None:
            self._leases.release(self._id, held.token, now=self._clock())

    def _demand(self) -> kernel_leases.HeldLease:
        if self._held is None or self.seconds_left <= 0:
            raise LeaseLost(f"this process is not the leader of {self._id}", id=self._id)
        return self._held
