"""The guard of protected channels: it lets a verb through, or makes a request of it.

    run ──▶ not protected, or carried out for a request     go on
        ──▶ break-glass                                     go on, recorded in its commit
        ──▶ else                                            a request, and SecondPersonNeeded

Whether a channel is protected is read before the verb is decided, and checked in its commit: if it
changed in between, the verb is admitted again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct, structs

from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.queries.request_changes import RequestChange, list_changes
from tidegate.domain.access import callers, roles, rows as access_rows, second_person, steps
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels import facts, rows as channel_rows
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.requests import (
    refusals,
    rows as request_rows,
    slices as request_slices,
    states,
    words,
)
from tidegate.errors import Conflict
from tidegate.kernel import model, slices as kernel_slices

ID_CHARS = 10
TWINS_MAX = 500  # open requests in which the same one is looked for
ADMISSIONS_MAX = 5  # of one verb, while channels become protected

T = TypeVar("T")


class PersonShown(Struct, frozen=True):
    """A person by name; None: erased."""

    user_id: str
    name: str | None


class RequestShown(request_rows.ChannelRequest, frozen=True, kw_only=True):
    """A request, who may approve it, and what happens next."""

    version: model.Position
    approvers: tuple[PersonShown, ...]  # who may approve or review it and has not yet
    asked_by: str | None  # the name of who made it; None: erased
    approved_by: tuple[str | None, ...]  # the names of those who approved it
    what: str  # what it asks for, in words
    changes: tuple[RequestChange, ...]  # that it would make now; none of one that is over
    next: str  # what happens next, and who does it
    notes: tuple[str, ...] = ()  # what an approver should know; of a single request only


def request_id_of(caller: callers.Caller, step: steps.Step) -> str:
    """The id of the request that the caller makes; under one idempotency key the same one."""
    return f"R-{make_id(caller, step, 'request')[:ID_CHARS]}"


class GuardedVerb(Struct, frozen=True, kw_only=True):
    """A verb that takes a second person on a protected channel, and what it asks for."""

    step: steps.Step
    channels: tuple[str, ...]  # that it concerns; none: all channels
    arguments: dict[str, Any]
    reason: str = ""
    emergency: bool = False  # it cannot wait: its request expires within the hour
    hosts: Callable[[], int] | None = None  # counts the hosts that its plan takes
    own_hold: str = ""  # the channel whose hold it ends: who set it needs nobody else
    own_freeze: str = ""
    alone: str = ""  # how its caller does something like it without a second person, in words
    at_once: str = ""  # the command that does it now, with break-glass
    # What is compared before a request is made of it: the version that the caller saw, and what
    # no approval could mend.
    check: Callable[[], object] = lambda: None


class ProtectionGuard:
    """Knows which channels are protected, and who may approve there."""

    def __init__(
        self, execute: Execute, reads: Reads, name_of: Callable[[str], str | None]
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._name_of = name_of

    def run(
        self,
        caller: callers.Caller,
        verb: GuardedVerb,
        do: Callable[[callers.Caller], T],
        earlier: Callable[[], T | None],
    ) -> T:
        """Carry a verb out for the caller that it is given, or make a request of it. ``earlier`` is
        what the first copy of a repeat led to.

        Raises:
            SecondPersonNeeded: a request was made instead.
            MissingPermission, BreakGlassForbidden: break-glass is not for this caller or channel.
            Those of the verb.
        """
        request_id = request_id_of(caller, verb.step)
        self._show_earlier(caller, verb, request_id)
        found = earlier()
        if found is not None:
            return found
        moved: Conflict = Conflict("no attempt was allowed")
        for _ in range(ADMISSIONS_MAX):
            try:
                return do(self._admit(caller, verb, request_id))
            except (refusals.ProtectionChanged, refusals.NotProtected) as changed:
                moved = changed  # the channel was protected meanwhile, or is no longer
        raise moved

    def _admit(self, caller: callers.Caller, verb: GuardedVerb, request_id: str) -> callers.Caller:
        """The caller, with what is committed along with the verb."""
        if isinstance(caller.alongside, kernel_slices.Alongside) and isinstance(
            caller.alongside.command, request_slices.CarryRequest
        ):
            return caller  # enough people agreed: the commit checks it
        verb.check()
        covered = self._list_covered(caller, verb)
        if not covered:
            alone = request_slices.ActAlone(
                by=caller.id,
                channels=verb.channels,
                own_hold=verb.own_hold,
                own_freeze=verb.own_freeze,
            )
            along = kernel_slices.join(
                caller.alongside, kernel_slices.Alongside(request_slices.act_alone, alone)
            )
            return structs.replace(caller, alongside=along)
        channel, *also = (row.channel for row in covered)
        if caller.break_glass:
            for row in covered:
                caller.demand(steps.BREAK_GLASS, channel_scope(row.channel))
                if row.protection is not None and not row.protection.break_glass:
                    raise refusals.BreakGlassForbidden(
                        row.channel, self._names((row.channel,), caller.id)
                    )
            emergency = request_slices.UseEmergency(
                request_id=request_id,
                channel=channel,
                by=caller.id,
                reason=caller.break_glass,
                kind=verb.step.name,
                command=verb.arguments,
                also=tuple(also),
            )
            return structs.replace(
                caller, alongside=kernel_slices.Alongside(request_slices.use_emergency, emergency)
            )
        command = request_slices.MakeRequest(
            request_id=request_id,
            channel=channel,
            by=caller.id,
            reason=verb.reason.strip(),
            kind=verb.step.name,
            command=verb.arguments,
            also=tuple(also),
            hosts=None if verb.hosts is None else verb.hosts(),
            emergency=verb.emergency,
        )
        twin = self._find_twin(command)
        if twin is not None:
            made = self._show_asker(caller, verb, twin)
            raise second_person.SecondPersonNeeded(made, made.version, made.next)
        outcome = self._execute(request_slices.make_request, command, caller, asked=_asked(command))
        made = self._show_asker(caller, verb, self.demand(request_id))
        raise second_person.SecondPersonNeeded(made, outcome.position or made.version, made.next)

    def _find_twin(
        self, command: request_slices.MakeRequest
    ) -> Found[request_rows.ChannelRequest] | None:
        """An open request in which this person asks for the same on the same channel. Another
        reason makes no other request.
        """
        now = self._execute.now()
        for state in sorted(states.OPEN):
            of = (str(state),)
            for found in self._reads.newest(
                request_rows.REQUESTS, "by_state", of=of, limit=TWINS_MAX
            ):
                row = found.row
                is_late = row.expires_at is not None and row.expires_at <= now
                asked = (row.by, row.kind, row.channels, _without_reason(row.command))
                if is_late or asked != (
                    *(command.by, command.kind),
                    (command.channel, *command.also),
                    _without_reason(command.command),
                ):
                    continue
                channel, pin = self._reads.find_all(
                    (channel_rows.channel_key(row.channel), channel_rows.Channel),
                    (actual_key(row.channel), Actual),
                )
                rows = [None if item is None else item.row for item in (channel, pin)]
                if not request_slices.find_change(row, *rows):
                    return found
        return None

    def _show_asker(
        self, caller: callers.Caller, verb: GuardedVerb, found: Found[request_rows.ChannelRequest]
    ) -> RequestShown:
        """The request for who made it: what this person can do without anyone else comes last."""
        made = self.show(found)
        ways = [made.next, verb.alone] if verb.alone else [made.next]
        if verb.at_once and self._may_break_glass(caller, found.row.channels):
            ways.append(f"To do it at once, and have it reviewed afterwards: {verb.at_once}")
        return structs.replace(made, next="\n".join(ways))

    def _may_break_glass(self, caller: callers.Caller, channels: tuple[str, ...]) -> bool:
        rows = [
            self._reads.find(channel_rows.channel_key(name), channel_rows.Channel)
            for name in channels
        ]
        return all(
            caller.may(steps.BREAK_GLASS, channel_scope(found.row.channel))
            and found.row.protection is not None
            and found.row.protection.break_glass
            for found in rows
            if found is not None
        )

    def protection_of(self, channel: str) -> facts.ChannelProtection | None:
        """How the channel is protected; None: it is not."""
        found = self._reads.find(channel_rows.channel_key(channel), channel_rows.Channel)
        return None if found is None else found.row.protection

    def _show_earlier(self, caller: callers.Caller, verb: GuardedVerb, request_id: str) -> None:
        """A repeat gets the request that its first copy made, whatever changed since.

        Raises:
            SecondPersonNeeded.
        """
        found = (
            None
            if caller.key is None
            else self._reads.find(request_rows.request_key(request_id), request_rows.ChannelRequest)
        )
        if found is None or found.row.seen is None or found.row.command != verb.arguments:
            return
        made = self._show_asker(caller, verb, found)
        raise second_person.SecondPersonNeeded(made, made.version, made.next)

    def _list_covered(
        self, caller: callers.Caller, verb: GuardedVerb
    ) -> list[channel_rows.Channel]:
        """The protected channels that the verb concerns, the one that asks for most first; none
        if what it ends is the caller's own.
        """
        if verb.own_hold:
            held = self._reads.find(channel_rows.channel_key(verb.own_hold), channel_rows.Channel)
            if held is not None and held.row.held_by in (None, caller.id):
                return []
        if verb.own_freeze:
            freeze = self._reads.find(channel_rows.freeze_key(verb.own_freeze), channel_rows.Freeze)
            if freeze is not None and freeze.row.operator == caller.id:
                return []
        return self.list_protected(verb.channels)

    def list_protected(self, channels: tuple[str, ...]) -> list[channel_rows.Channel]:
        """Those of the channels that are protected, the one that asks for most first. None named:
        all channels.
        """
        row = self._reads.find(
            channel_rows.protected_channels_key(), channel_rows.ProtectedChannels
        )
        names = request_slices.list_protected(None if row is None else row.row, channels)
        found = (
            self._reads.find(channel_rows.channel_key(name), channel_rows.Channel) for name in names
        )
        rows = [item.row for item in found if item is not None and item.row.protection is not None]
        return sorted(rows, key=lambda row: (-_approvals(row), row.channel))

    def demand(self, request_id: str) -> Found[request_rows.ChannelRequest]:
        """Raises: RequestNotFound."""
        missing = refusals.RequestNotFound(request_id)
        return self._reads.demand(
            request_rows.request_key(request_id), request_rows.ChannelRequest, missing
        )

    def approvers(self, *channels: str) -> tuple[str, ...]:
        """Who may approve on each of the channels."""
        scopes = [channel_scope(channel) for channel in channels]
        return tuple(
            item.row.user_id
            for item in self._reads.iterate(access_rows.USERS)
            if item.row.enabled
            and not item.row.erased
            and all(roles.allows(item.row.grants, roles.Verb.APPROVE, scope) for scope in scopes)
        )

    def demand_approvers(self, caller: callers.Caller, channel: str, needed: int) -> None:
        """That enough others may approve. Raises: NobodyElseApproves."""
        found = len([user for user in self.approvers(channel) if user != caller.id])
        if found < needed:
            raise refusals.NobodyElseApproves(channel, found, needed)

    def _names(self, channels: tuple[str, ...], but: str) -> tuple[str, ...]:
        """Who else may approve on these channels, by name."""
        return tuple(
            self._name_of(user) or user for user in self.approvers(*channels) if user != but
        )

    def show(self, found: Found[request_rows.ChannelRequest]) -> RequestShown:
        """A request with the people that it waits for."""
        row = found.row
        left = [
            PersonShown(user, self._name_of(user))
            for user in self.approvers(*row.channels)
            if user != row.by and user not in row.approvals
        ]
        return RequestShown(
            **structs.asdict(row),
            version=found.version,
            approvers=tuple(left),
            asked_by=self._name_of(row.by),
            approved_by=tuple(map(self._name_of, row.approvals)),
            what=words.describe_request(row.kind, row.channel, row.command),
            changes=list_changes(self._reads, self._name_of, row),
            next=_describe_next(row, [person.name or person.user_id for person in left]),
        )


def _approvals(row: channel_rows.Channel) -> int:
    return 0 if row.protection is None else row.protection.approvals


def _without_reason(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "reason"}


def _asked(command: request_slices.MakeRequest) -> request_slices.MakeRequest:
    """By what a repeat is known: not by how many hosts there are now."""
    return structs.replace(command, hosts=None)


def _describe_next(row: request_rows.ChannelRequest, people: list[str]) -> str:
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
