"""The guard of protected channels: it lets a verb through, or makes a request of it.

admit ──▶ not protected, or carried out for a request     go on
      ──▶ break-glass                                     go on, recorded in its commit
      ──▶ else                                            a request, and SecondPersonNeeded
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import Verb, allows
from tidegate.domain.access.rows import USERS
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.second_person import SecondPersonNeeded
from tidegate.domain.access.steps import BREAK_GLASS, Step
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.requests.refusals import NobodyElseApproves, RequestNotFound
from tidegate.domain.requests.rows import ChannelRequest, request_key
from tidegate.domain.requests.slices import (
    CarryRequest,
    MakeRequest,
    UseEmergency,
    make_request,
    use_emergency,
)
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Alongside

ID_CHARS = 10


class PersonShown(Struct, frozen=True):
    """A person by name; None: erased."""

    user_id: str
    name: str | None


class RequestShown(ChannelRequest, frozen=True, kw_only=True):
    """A request, who may approve it, and what happens next."""

    version: Position
    approvers: tuple[PersonShown, ...]  # who may approve or review it and has not yet
    asked_by: str | None  # the name of who made it; None: erased
    next: str  # what happens next, and who does it


class ProtectionGuard:
    """Knows which channels are protected, and who may approve there."""

    def __init__(
        self, execute: Execute, reads: Reads, name_of: Callable[[str], str | None]
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._name_of = name_of

    def admit(
        self, caller: Caller, step: Step, channel: str, arguments: dict[str, Any], reason: str = ""
    ) -> Caller:
        """Let the caller go on, perhaps with something to commit alongside.

        Raises:
            SecondPersonNeeded: a request was made instead.
            MissingPermission, BreakGlassForbidden: break-glass is not for this caller or channel.
        """
        if isinstance(caller.alongside, Alongside) and isinstance(
            caller.alongside.command, CarryRequest
        ):
            return caller  # enough people agreed: the commit checks it
        found = self._reads.find(channel_key(channel), Channel)
        if found is None or found.row.protection is None:
            return caller
        request_id = f"R-{make_id(caller, step, 'request')[:ID_CHARS]}"
        if caller.break_glass:
            caller.demand(BREAK_GLASS, channel_scope(channel))
            emergency = UseEmergency(
                request_id=request_id,
                channel=channel,
                by=caller.id,
                reason=caller.break_glass,
                kind=step.name,
                command=arguments,
            )
            return replace(caller, alongside=Alongside(use_emergency, emergency))
        command = MakeRequest(
            request_id=request_id,
            channel=channel,
            by=caller.id,
            reason=reason.strip(),
            kind=step.name,
            command=arguments,
        )
        outcome = self._execute(make_request, command, caller)
        made = self.show(self.demand(request_id))
        raise SecondPersonNeeded(made, outcome.position or made.version, made.next)

    def demand(self, request_id: str) -> Found[ChannelRequest]:
        """Raises: RequestNotFound."""
        missing = RequestNotFound(request_id)
        return self._reads.demand(request_key(request_id), ChannelRequest, missing)

    def approvers(self, channel: str) -> tuple[str, ...]:
        """Who may approve on the channel."""
        scope = channel_scope(channel)
        return tuple(
            item.row.user_id
            for item in self._reads.iterate(USERS)
            if item.row.enabled
            and not item.row.erased
            and allows(item.row.grants, Verb.APPROVE, scope)
        )

    def demand_approvers(self, caller: Caller, channel: str, needed: int) -> None:
        """That enough others may approve. Raises: NobodyElseApproves."""
        found = len([user for user in self.approvers(channel) if user != caller.id])
        if found < needed:
            raise NobodyElseApproves(channel, found, needed)

    def show(self, found: Found[ChannelRequest]) -> RequestShown:
        """A request with the people that it waits for."""
        row = found.row
        left = [
            PersonShown(user, self._name_of(user))
            for user in self.approvers(row.channel)
            if user != row.by and user not in row.approvals
        ]
        return RequestShown(
            **asdict(row),
            version=found.version,
            approvers=tuple(left),
            asked_by=self._name_of(row.by),
            next=_describe_next(row, [person.name or person.user_id for person in left]),
        )


def _describe_next(row: ChannelRequest, people: list[str]) -> str:
    names = ", ".join(people) or "nobody"
    match row.state:
        case "waiting":
            missing = row.approvals_needed - len(row.approvals)
            return (
                f"Request {row.request_id} waits for {missing} more "
                f"approval{'' if missing == 1 else 's'}; {names} may give it: "
                f"tidegate request approve {row.request_id}"
            )
        case "approved":
            return (
                f"Request {row.request_id} is approved and not carried out; "
                f"run it: tidegate request run {row.request_id}"
            )
        case "to-review":
            return (
                f"Request {row.request_id} was carried out with break-glass; {names} may review "
                f"it: tidegate request review {row.request_id} --accept --reason …"
            )
    said = f": {row.ended_reason}" if row.ended_reason else ""
    return f"Request {row.request_id} is {row.state}{said}."
