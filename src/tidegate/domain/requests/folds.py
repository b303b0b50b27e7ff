"""How facts become the row of a request."""

from __future__ import annotations

from datetime import datetime
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.requests.facts import (
    EmergencyUnreviewed,
    EmergencyUsed,
    RequestApproved,
    RequestExecuted,
    RequestExpired,
    RequestMade,
    RequestRejected,
    RequestReviewed,
    RequestVoided,
    RequestWithdrawn,
)
from tidegate.domain.requests.rows import REQUESTS, ChannelRequest
from tidegate.domain.requests.states import OPEN, RequestState
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold

Ending = RequestRejected | RequestWithdrawn | RequestExpired | RequestVoided
RequestEvent = (
    RequestMade
    | RequestApproved
    | RequestExecuted
    | Ending
    | EmergencyUsed
    | EmergencyUnreviewed
    | RequestReviewed
)
_ENDS: Final[dict[type[Struct], RequestState]] = {
    RequestRejected: RequestState.REJECTED,
    RequestWithdrawn: RequestState.WITHDRAWN,
    RequestExpired: RequestState.EXPIRED,
    RequestVoided: RequestState.VOIDED,
}


def step_request(
    row: ChannelRequest | None, fact: RequestEvent, now: datetime
) -> ChannelRequest | None:
    """Raises: IllegalTransition."""
    if isinstance(fact, RequestMade | EmergencyUsed):
        if row is not None:
            raise IllegalTransition("request", row.state, type(fact).__name__)
        return _begun(fact)
    state = "absent" if row is None else row.state
    if row is not None and row.state is RequestState.TO_REVIEW:
        if isinstance(fact, RequestReviewed):
            after = replace(row, state=RequestState.REVIEWED, accepted=fact.accepted)
            return _ended(after, fact.by, fact.at, fact.reason)
        if isinstance(fact, EmergencyUnreviewed):
            return replace(row, reminded_at=fact.at)
    elif row is not None and row.state in OPEN:
        match fact:
            case RequestApproved(by=by) if row.state is RequestState.WAITING:
                approvals = (*row.approvals, by)
                enough = len(approvals) >= row.approvals_needed
                state = RequestState.APPROVED if enough else RequestState.WAITING
                return replace(row, approvals=approvals, state=state)
            case RequestExecuted() if row.state is RequestState.APPROVED:
                return _ended(replace(row, state=RequestState.EXECUTED), fact.by, fact.at, "")
            case RequestRejected() | RequestWithdrawn() | RequestExpired() | RequestVoided():
                reason = "" if isinstance(fact, RequestExpired) else fact.reason
                return _ended(replace(row, state=_ENDS[type(fact)]), fact.by, fact.at, reason)
    raise IllegalTransition("request", state, type(fact).__name__)


def _begun(fact: RequestMade | EmergencyUsed) -> ChannelRequest:
    row = ChannelRequest(
        request_id=fact.request_id,
        channel=fact.channel,
        kind=fact.kind,
        command=fact.command,
        by=fact.by,
        reason=fact.reason,
        made_at=fact.at,
        state=RequestState.TO_REVIEW,
        also=fact.also,
    )
    if isinstance(fact, EmergencyUsed):
        return row
    return replace(
        row,
        state=RequestState.WAITING,
        digest=fact.digest,
        seen=fact.seen,
        expires_at=fact.expires_at,
    )


def _ended(row: ChannelRequest, by: str, at: datetime, reason: str) -> ChannelRequest:
    return replace(row, ended_by=by, ended_at=at, ended_reason=reason)


requests = Fold(
    collection=REQUESTS,
    number=2,
    reads=get_args(RequestEvent),
    ids=lambda fact: (fact.request_id,),
    start=lambda id, fact: None,
    step=step_request,
)

FOLDS = (requests,)
