"""The errors of requests on protected channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tidegate.domain.times import describe_time
from tidegate.errors import Conflict, Formatted, NotFound, Refused


def spell_grant(channel: str) -> str:
    """The command that makes a person an approver of the channel."""
    return f"tidegate user grant LOGIN approver@channel:{channel}"


class RequestNotFound(Formatted, NotFound):
    """There is no request with this id."""

    code = "request_not_found"
    message = "there is no request {request_id}; see them with `tidegate request list`"
    request_id: str


class RequestOver(Refused):
    """The request is not open any more."""

    code = "request_over"

    def __init__(self, request_id: str, state: str, detail: str = "") -> None:
        super().__init__(
            detail or f"Request {request_id} is {state}; nothing more can be done with it.",
            request_id=request_id,
            state=state,
        )


class RequestOutdated(Refused):
    """The channel has changed since the request was made, or the request has expired."""

    code = "request_outdated"

    def __init__(self, request_id: str, channel: str, what: str) -> None:
        super().__init__(
            f"Request {request_id} is void: {what} since it was made. Make it again.",
            request_id=request_id,
            channel=channel,
        )
        self.what = what


class RequestImpossible(RequestOutdated):
    """The request can never be carried out any more, so it is void."""

    code = "request_impossible"

    def __init__(self, request_id: str, channel: str, what: str) -> None:
        super().__init__(request_id, channel, what)
        self.detail = f"Request {request_id} can never be carried out now, so it is void: {what}"


class RequestExpiredAt(RequestOutdated):
    """The request was not carried out in time."""

    code = "request_expired"

    def __init__(self, request_id: str, channel: str, at: datetime) -> None:
        super().__init__(request_id, channel, f"it expired at {describe_time(at)}")
        self.detail = f"Request {request_id} expired at {describe_time(at)}. Make it again."


class RequestChanged(Conflict):
    """The approval names a digest that is not the request's."""

    code = "request_changed"

    def __init__(self, request_id: str, named: str, found: str) -> None:
        super().__init__(
            f"You looked at {named[:12]}, and request {request_id} has the digest {found[:12]}; "
            f"look again: tidegate request show {request_id}",
            request_id=request_id,
            found=found,
        )


class RequestHostsMoved(Conflict):
    """The plan has many more or fewer hosts than when the request was made."""

    code = "request_hosts_moved"

    def __init__(
        self, request_id: str, channel: str, seen: int, found: int, *, verb: str, is_own: bool
    ) -> None:
        confirm = "Another person must confirm that" if is_own else "Confirm that"
        super().__init__(
            f"{channel} had {seen} host{'' if seen == 1 else 's'} when request {request_id} was "
            f"made, and has {found} now. {confirm}: "
            f"tidegate request {verb} {request_id} --hosts {found}",
            request_id=request_id,
            seen=seen,
            found=found,
        )


class ProtectionChanged(Conflict):
    """A channel was protected, or a hold or freeze replaced, while the command was decided."""

    code = "protection_changed"

    def __init__(self, channels: Iterable[str]) -> None:
        named = ", ".join(channels)
        super().__init__(
            f"{named} is protected since a moment ago; do it again, it makes a request",
            channels=named,
        )


class OwnRequest(Refused):
    """You cannot approve or review a request that you made."""

    code = "own_request"

    def __init__(self, request_id: str, verb: str) -> None:
        super().__init__(
            f"You made request {request_id}; another person must {verb} it.", request_id=request_id
        )


class NotOwnRequest(Formatted, Refused):
    """Only the person who made a request can withdraw it."""

    code = "not_own_request"
    message = (
        "Only the person who made request {request_id} can withdraw it; reject it instead: "
        "tidegate request reject {request_id} --reason …"
    )
    request_id: str


class ApprovalsMissing(Formatted, Refused):
    """Not enough people have approved the request."""

    code = "approvals_missing"
    message = (
        "{found} of {needed} people approved request {request_id}; the next one runs: tidegate "
        "request approve {request_id}"
    )
    request_id: str
    found: int
    needed: int


class NobodyElseApproves(Refused):
    """A channel cannot be protected if no other person could approve."""

    code = "nobody_else_approves"

    def __init__(self, channel: str, found: int, needed: int) -> None:
        who = "Nobody else" if not found else f"Only {found} other{'s' if found > 1 else ''}"
        super().__init__(
            f"{who} may approve on {channel}, and {needed} must; add an approver first: "
            f"{spell_grant(channel)}",
            channel=channel,
            found=found,
            needed=needed,
        )


class BreakGlassForbidden(Refused):
    """On this channel no one may act alone, not even in an emergency."""

    code = "break_glass_forbidden"

    def __init__(self, channel: str, approvers: Sequence[str] = ()) -> None:
        asked = f"an approver of {channel}"
        if approvers:
            asked = f"{', '.join(approvers)} (approvers of {channel})"
        super().__init__(f"{channel} allows no break-glass; ask {asked}.", channel=channel)


class NotProtected(Formatted, Conflict):
    """The channel is not protected any more; do it at once."""

    code = "not_protected"
    message = "{channel} is not protected (any more), so it takes no request; do it at once."
    channel: str
