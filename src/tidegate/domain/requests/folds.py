"""The fold that computes the row of a request."""

from __future__ import annotations

from datetime import datetime
from typing import Final, get_args

from msgspec import Struct, structs

from tidegate.domain.requests import facts, rows, states
from tidegate.errors import IllegalTransition
from tidegate.kernel.folds import Fold

Ending = facts.RequestRejected | facts.RequestWithdrawn | facts.RequestExpired | facts.RequestVoided
RequestEvent = (
    facts.RequestMade
    | facts.RequestApproved
    | facts.RequestExecuted
    | Ending
    | facts.EmergencyUsed
    | facts.EmergencyUnreviewed
    | facts.RequestReviewed
)
_ENDS: Final[dict[type[Struct], states.RequestState]] = {
    facts.RequestRejected: states.RequestState.REJECTED,
    facts.RequestWithdrawn: states.RequestState.WITHDRAWN,
    facts.RequestExpired: states.RequestState.EXPIRED,
    facts.RequestVoided: states.RequestState.VOIDED,
}


def step_request(
    row: rows.ChannelRequest | None, fact: RequestEvent, now: datetime
) -> rows.ChannelRequest | None:
    """Raises: IllegalTransition."""
    if isinstance(fact, facts.RequestMade | facts.EmergencyUsed):
        if row is not None:
            raise IllegalTransition("request", row.state, type(fact).__name__)
        return _begun(fact)
    state = "absent" if row is None else row.state
    if row is not None and row.state is states.RequestState.TO_REVIEW:
        if isinstance(fact, facts.RequestReviewed):
            after = structs.replace(row, state=states.RequestState.REVIEWED, accepted=fact.accepted)
            return _ended(after, fact.by, fact.at, fact.reason)
        if isinstance(fact, facts.EmergencyUnreviewed):
            return structs.replace(row, reminded_at=fact.at)
    elif row is not None and row.state in states.OPEN:
        match fact:
            case facts.RequestApproved(by=by) if row.state is states.RequestState.WAITING:
                approvals = (*row.approvals, by)
                enough = len(approvals) >= row.approvals_needed
                state = states.RequestState.APPROVED if enough else states.RequestState.WAITING
                return structs.replace(row, approvals=approvals, state=state)
            case facts.RequestExecuted() if row.state is states.RequestState.APPROVED:
                return _ended(
                    structs.replace(row, state=states.RequestState.EXECUTED), fact.by, fact.at, ""
                )
            case (
                facts.RequestRejected()
                | facts.RequestWithdrawn()
                | facts.RequestExpired()
                | facts.RequestVoided()
            ):
                reason = "" if isinstance(fact, facts.RequestExpired) else fact.reason
                return _ended(
                    structs.replace(row, state=_ENDS[type(fact)]), fact.by, fact.at, reason
                )
    raise IllegalTransition("request", state, type(fact).__name__)


def _begun(fact: facts.RequestMade | facts.EmergencyUsed) -> rows.ChannelRequest:
    row = rows.ChannelRequest(
        request_id=fact.request_id,
        channel=fact.channel,
        kind=fact.kind,
        command=fact.command,
        by=fact.by,
        reason=fact.reason,
        made_at=fact.at,
        state=states.RequestState.TO_REVIEW,
        also=fact.also,
    )
    if isinstance(fact, facts.EmergencyUsed):
        return row
    return structs.replace(
        row,
        state=states.RequestState.WAITING,
        digest=fact.digest,
        seen=fact.seen,
        expires_at=fact.expires_at,
    )


def _ended(row: rows.ChannelRequest, by: str, at: datetime, reason: str) -> rows.ChannelRequest:
    return structs.replace(row, ended_by=by, ended_at=at, ended_reason=reason)


requests = Fold(
    collection=rows.REQUESTS,
    number=2,
    reads=get_args(RequestEvent),
    ids=lambda fact: (fact.request_id,),
    start=lambda id, fact: None,
    step=step_request,
)

FOLDS = (requests,)
