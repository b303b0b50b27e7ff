"""Remember the proofs that opened a session, so that a replayed one is refused.

They are remembered in the memory of one server. For the 60 s that a proof is valid, another
server, or the same one after a restart, would accept it again.
"""

from __future__ import annotations

from datetime import datetime
from threading import Lock
from typing import Final

from tidegate.domain.hosts.protocol import SKEW_SECONDS_MAX
from tidegate.errors import Forbidden

PROOFS_MAX: Final = 200_000  # beyond, the oldest is forgotten
KEPT_SECONDS: Final = 2 * SKEW_SECONDS_MAX  # between the earliest and the latest use of a proof


class ProofReplayed(Forbidden):
    """This proof opened a session before; sign a new nonce."""

    code = "proof_replayed"


class UsedProofs:
    """Remembers each used proof for as long as it is valid."""

    def __init__(self, entries_max: int = PROOFS_MAX) -> None:
        self._entries_max = entries_max
        self._used: dict[str, float] = {}  # proof → time of use, oldest first
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, proof: str, now: datetime) -> bool:
        """Remember the proof; False: it was already used."""
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
