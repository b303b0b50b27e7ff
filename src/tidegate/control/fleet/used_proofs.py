"""The proofs that opened a session: a recorded one must not open it a second time.

The memory is the server's own. It does not survive a restart, and servers do not share it: for the
60 s that a proof is valid, another server or one that was restarted would accept it again.
"""

from __future__ import annotations

from datetime import datetime
from threading import Lock
from typing import Final

from tidegate.domain.hosts.protocol import SKEW_SECONDS_MAX
from tidegate.errors import Forbidden

PROOFS_MAX: Final = 200_000  # past it, the oldest is forgotten
KEPT_SECONDS: Final = 2 * SKEW_SECONDS_MAX  # from the earliest use of a proof to its latest


class ProofReplayed(Forbidden):
    """This proof opened a session before; sign a new nonce."""

    code = "proof_replayed"


class UsedProofs:
    """Which proofs were used, for as long as each could be used again."""

    def __init__(self, entries_max: int = PROOFS_MAX) -> None:
        self._entries_max = entries_max
        self._used: dict[str, float] = {}  # proof → when it was used; the oldest comes first
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, proof: str, now: datetime) -> bool:
        """Remember the proof; False: it was used before."""
        seconds = now.timestamp()
        with self._lock:
            while self._used:
                oldest = next(iter(self._used))
                if seconds - self._used[oldest] <= KEPT_SECONDS:
                    break
                del self._used[oldest]
            if proof in self._used:
                return False
            if len(self._used) >= self._entries_max:
                del self._used[next(iter(self._used))]
            self._used[proof] = seconds
            return True
