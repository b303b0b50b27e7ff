"""The states of a request on a protected channel."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RequestState(StrEnum):
    """The state of a request."""

    WAITING = "waiting"
    APPROVED = "approved"  # by enough people, and not carried out yet
    EXECUTED = "executed"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    VOIDED = "voided"
    TO_REVIEW = "to-review"  # carried out by one person with break-glass
    REVIEWED = "reviewed"


OPEN: Final = frozenset({RequestState.WAITING, RequestState.APPROVED})
