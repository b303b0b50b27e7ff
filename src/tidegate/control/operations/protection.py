"""The guard of protected channels: it runs a verb, or turns it into a request.

    run ──▶ not protected, or executed for a request        run
        ──▶ break-glass                                     run, and record it in the same commit
        ──▶ else                                            make a request, raise SecondPersonNeeded

Whether a channel is protected is read before the verb is decided, and checked in its commit. If it
changed in between, the guard starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct, structs

from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.queries import request_changes
from tidegate.control.queries.people import list_permitted
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import (
    callers,
    dry_runs,
    roles,
    rows as access_rows,
    second_person,
    steps,
)
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels import facts, refusals as channel_refusals, rows as channel_rows
from tidegate.domain.requests import (
    break_glass,
    protection as request_protection,
    refusals,
    rows as request_rows,
    slices as request_slices,
    states,
    words,
)
from tidegate.domain.rollouts.refusals import RollbackRunning
from tidegate.errors import Conflict
from tidegate.kernel import model, slices as kernel_slices

ID_CHARS = 10
TWINS_MAX = 500  # open requests that are searched for the same one
ADMISSIONS_MAX = 5  # attempts for one verb, while protections change

# Refusals that may pass. The request is made nevertheless, because it can be run later.
NOT_NOW = (channel_refusals.ChannelOnHold, channel_refusals.ChannelFrozen, RollbackRunning)

T = TypeVar("T")


class PersonShown(Struct, frozen=True):
    """A person with their name; None: erased."""

    user_id: str
    name: str | None


class Alternative(Struct, frozen=True):
    """Another way to reach what a request asks for, and its command."""

    says: str
    command: str


class RequestShown(request_rows.ChannelRequest, frozen=True, kw_only=True):
    """A request, who may approve it, and what happens next."""

    version: model.Position
    approvers: tuple[PersonShown, ...]  # who may approve or review it and has not yet
    asked_by: str | None  # the name of the person who made it; None: erased
    approved_by: tuple[str | None, ...]  # the names of those who approved it
    what: str  # what it asks for, in words
    changes: tuple[
        request_changes.RequestChange, ...
    ]  # that it would make now; empty if it is over
    next: str  # what happens next, and who does it
    notes: tuple[str, ...] = ()  # what people should know; only for a single request
    rollout: request_changes.RequestRollout | None = (
        None  # that it opened or is about; only for a single request
    )
    alternatives: tuple[Alternative, ...] = ()  # what the asker can do alone; only in the response


def request_id_of(caller: callers.Caller, step: steps.Step) -> str:
    """Return the id of the request that the caller makes; one idempotency key gives one id."""
    return f"R-{make_id(caller, step, 'request')[:ID_CHARS]}"


class GuardedVerb(Struct, frozen=True, kw_only=True):
    """A verb that takes a second person on a protected channel, and what it asks for."""

    step: steps.Step
    channels: tuple[str, ...]  # that it affects; none: all channels
    arguments: dict[str, Any]
    reason: str = ""
    # Fills in arguments that are None when a request is made, so that what is executed later is
    # what the approver saw.
    complete: Callable[[], dict[str, Any]] = dict
    emergency: bool = False  # it is urgent: its request expires within the hour
    hosts: Callable[[], int] | None = None  # counts the hosts of its plan
    own_hold: str = ""  # the channel whose hold it ends; its setter needs no second person
    own_freeze: str = ""
    # What the caller should know and can do alone, given the request's command.
    notes: Callable[[dict[str, Any]], tuple[str, ...]] = lambda command: ()
    alone: Callable[[dict[str, Any]], Alternative | None] = lambda command: None
    at_once: Callable[[dict[str, Any]], str] = lambda command: ""  # with break-glass
    # Checked before a request is made: the version that the caller saw, and everything that an
    # approval could not change.
    check: Callable[[], object] = lambda: None
    # Decides it without writing, so that no request is made for what would be refused.
    rehearse: Callable[[], object] = lambda: None
    # Says in sentences what it would do; for dry runs.
    outline: Callable[[], tuple[str, ...]] = tuple


class ProtectionGuard:
    """Reads which channels are protected, and who may approve there."""

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
        """Run a verb with the caller that ``run`` receives, or make a request for it. ``earlier``
        returns the result of this request's first copy, if there was one.

        Raises:
            SecondPersonNeeded: a request was made instead.
            RequestOutdated: it is executed for a request, but now affects more channels.
            MissingPermission, BreakGlassForbidden: break-glass is not for this caller or channel.
            DryRunEnded: it is a dry run, of the verb or of its request.
            The errors of the verb.
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
                moved = changed  # a protection was added or removed meanwhile
            except dry_runs.DryRunEnded as ended:
                raise ended.describe(*verb.outline()) from None
        raise moved

    def _admit(self, caller: callers.Caller, verb: GuardedVerb, request_id: str) -> callers.Caller:
        """Return the caller, with what goes into the same commit as the verb."""
        carried = None if caller.alongside is None else caller.alongside.command
        if isinstance(carried, request_slices.CarryRequest):
            # The commit checks that enough people approved, and may approve on each channel.
            carried = structs.replace(carried, covers=verb.channels)
            along = kernel_slices.Alongside(request_slices.carry_request, carried)
            return structs.replace(caller, alongside=along)
        verb.check()
        covered = self._list_covered(caller, verb)
        if not covered:
            alone = request_protection.ActAlone(
                by=caller.id,
                channels=verb.channels,
                own_hold=verb.own_hold,
                own_freeze=verb.own_freeze,
            )
            along = kernel_slices.join(
                caller.alongside, kernel_slices.Alongside(request_protection.act_alone, alone)
            )
            return structs.replace(caller, alongside=along)
        channel, *also = (row.channel for row in covered)
        arguments = verb.arguments | verb.complete()
        if caller.break_glass:
            for row in covered:
                caller.demand(steps.BREAK_GLASS, channel_scope(row.channel))
                if row.protection is not None and not row.protection.break_glass:
                    raise refusals.BreakGlassForbidden(
                        row.channel, self._names((row.channel,), caller.id)
                    )
            emergency = break_glass.UseEmergency(
                request_id=request_id,
                channel=channel,
                by=caller.id,
                reason=caller.break_glass,
                kind=verb.step.name,
                command=arguments,
                also=tuple(also),
            )
            twins = self._find_twins(emergency, break_glass.TWINS_ENDED_MAX)
            ids = tuple(twin.row.request_id for twin in twins)
            emergency = structs.replace(emergency, twins=ids)
            return structs.replace(
                caller, alongside=kernel_slices.Alongside(break_glass.use_emergency, emergency)
            )
        with suppress(*NOT_NOW):
            verb.rehearse()
        command = request_slices.MakeRequest(
            request_id=request_id,
            channel=channel,
            by=caller.id,
            reason=verb.reason.strip(),
            kind=verb.step.name,
            command=arguments,
            also=tuple(also),
            hosts=None if verb.hosts is None else verb.hosts(),
            emergency=verb.emergency,
        )
        for twin in self._find_twins(command, 1, by=caller.id):
            made = self._show_asker(caller, verb, twin)
            raise second_person.SecondPersonNeeded(made, made.version, made.next)
        # A repeat is recognized without the number of hosts and the approvals that it needs.
        asked = structs.replace(command, hosts=None, command=verb.arguments)
        try:
            outcome = self._execute(request_slices.make_request, command, caller, asked=asked)
        except dry_runs.DryRunEnded as ended:
            names = self._names((channel, *also), caller.id)
            raise ended.describe(request=_describe_approval(covered, names)) from None
        made = self._show_asker(caller, verb, self.demand(request_id))
        raise second_person.SecondPersonNeeded(made, outcome.position or made.version, made.next)

    def _find_twins(
        self,
        command: request_slices.MakeRequest | break_glass.UseEmergency,
        limit: int,
        by: str | None = None,
    ) -> list[Found[request_rows.ChannelRequest]]:
        """Find open requests for the same command on the same channels, of this person or of
        anyone. The reason does not matter.
        """
        now = self._execute.now()
        twins: list[Found[request_rows.ChannelRequest]] = []
        for state in sorted(states.OPEN):
            of = (str(state),)
            for found in self._reads.newest(
                request_rows.REQUESTS, "by_state", of=of, limit=TWINS_MAX
            ):
                row = found.row
                is_late = row.expires_at is not None and row.expires_at <= now
                asked = (row.kind, row.channels, _without_reason(row.command))
                same = (
                    command.kind,
                    (command.channel, *command.also),
                    _without_reason(command.command),
                )
                if is_late or by not in (None, row.by) or asked != same:
                    continue
                if len(twins) < limit and not request_changes.find_change(self._reads, row):
                    twins.append(found)
        return twins

    def _show_asker(
        self, caller: callers.Caller, verb: GuardedVerb, found: Found[request_rows.ChannelRequest]
    ) -> RequestShown:
        """Return the request for the person who made it, with what they can do alone."""
        made = self.show(found)
        command = found.row.command
        ways = self.list_alternatives(
            caller, found.row.channels, verb.alone(command), verb.at_once(command)
        )
        return structs.replace(made, notes=verb.notes(command), alternatives=ways)

    def list_alternatives(
        self,
        caller: callers.Caller,
        channels: tuple[str, ...],
        alone: Alternative | None,
        at_once: str,
    ) -> tuple[Alternative, ...]:
        """List what takes one person, and the command that breaks the glass if the caller may."""
        ways = [] if alone is None else [alone]
        if at_once and self._may_break_glass(caller, channels):
            ways.append(Alternative("To do it at once, and have it reviewed afterwards", at_once))
        return tuple(ways)

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
        """Return the channel's protection; None: not protected."""
        found = self._reads.find(channel_rows.channel_key(channel), channel_rows.Channel)
        return None if found is None else found.row.protection

    def _show_earlier(self, caller: callers.Caller, verb: GuardedVerb, request_id: str) -> None:
        """If this is a repeat, raise the first copy's request again, whatever changed since.

        Raises:
            SecondPersonNeeded.
        """
        found = (
            None
            if caller.key is None
            else self._reads.find(request_rows.request_key(request_id), request_rows.ChannelRequest)
        )
        if found is None or found.row.seen is None or not _is_asked(verb, found.row.command):
            return
        made = self._show_asker(caller, verb, found)
        raise second_person.SecondPersonNeeded(made, made.version, made.next)

    def _list_covered(
        self, caller: callers.Caller, verb: GuardedVerb
    ) -> list[channel_rows.Channel]:
        """List the protected channels that the verb affects, strictest first; none if it ends what
        the caller set.
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
        """List which of these channels are protected, strictest first; without names, of all."""
        row = self._reads.find(
            channel_rows.protected_channels_key(), channel_rows.ProtectedChannels
        )
        names = request_protection.list_protected(None if row is None else row.row, channels)
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
        """Return the ids of users who may approve on all of these channels."""
        scopes = [channel_scope(channel) for channel in channels]
        return list_permitted(self._reads, (roles.Verb.APPROVE,), scopes)

    def list_unapproved(self, user: access_rows.User) -> tuple[str, ...]:
        """List warnings for protected channels that now have too few approvers, if this user could
        approve there when the row was read.
        """
        if not user.enabled:
            return ()
        return tuple(
            _describe_unapproved(row, len(self.approvers(row.channel)))
            for row in self.list_protected(())
            if roles.allows(user.grants, roles.Verb.APPROVE, channel_scope(row.channel))
            and len(self.approvers(row.channel)) < _approvals(row)
        )

    def demand_approvers(self, caller: callers.Caller, channel: str, needed: int) -> None:
        """Check that enough other people may approve. Raises: NobodyElseApproves."""
        found = len([user for user in self.approvers(channel) if user != caller.id])
        if found < needed:
            raise refusals.NobodyElseApproves(channel, found, needed)

    def _names(self, channels: tuple[str, ...], but: str) -> tuple[str, ...]:
        """Return the names of the others who may approve on these channels."""
        return tuple(
            self._name_of(user) or user for user in self.approvers(*channels) if user != but
        )

    def show(self, found: Found[request_rows.ChannelRequest]) -> RequestShown:
        """Return a request with the people that it waits for."""
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
            changes=request_changes.list_changes(self._reads, self._name_of, row),
            next=_describe_next(row, [person.name or person.user_id for person in left]),
        )


def _approvals(row: channel_rows.Channel) -> int:
    return 0 if row.protection is None else row.protection.approvals


def _describe_approval(covered: list[channel_rows.Channel], names: tuple[str, ...]) -> str:
    """Describe who must approve a request that affects these channels, strictest first."""
    needed = _approvals(covered[0])
    if not names:
        missing = "nobody may approve it now. Give another person the role approver on "
        return f"{missing}{covered[0].channel}: {refusals.spell_grant(covered[0].channel)}"
    if needed > len(names):
        return f"{needed} people must approve it, but only {_join(names, 'and')} may"
    if needed == len(names):
        return f"{_join(names, 'and')} must approve it"
    count = f"{needed} of " if needed > 1 else ""
    return f"{count}{_join(names, 'and' if count else 'or')} must approve it"


def _join(names: tuple[str, ...], word: str) -> str:
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def _describe_unapproved(row: channel_rows.Channel, found: int) -> str:
    who = "Nobody" if not found else f"Only {found} {'person' if found == 1 else 'people'}"
    return (
        f"{who} may approve on {row.channel} now, and {_approvals(row)} must. Give another person "
        f"the role approver: {refusals.spell_grant(row.channel)}"
    )


def _without_reason(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "reason"}


def _is_asked(verb: GuardedVerb, command: dict[str, Any]) -> bool:
    """Whether a request with this command is for the verb; the verb may lack some arguments."""
    if verb.complete is dict:
        return command == verb.arguments
    return all(
        command.get(name) == value for name, value in verb.arguments.items() if value is not None
    )


def _describe_next(row: request_rows.ChannelRequest, people: list[str]) -> str:
    names = ", ".join(people)
    if not people and row.state in ("waiting", "to-review"):
        return _describe_grants(row)
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
    reason = f": {row.ended_reason}" if row.ended_reason else ""
    return f"Request {row.request_id} is {row.state}{reason}."


def _describe_grants(row: request_rows.ChannelRequest) -> str:
    """Describe which role to grant for a request that no person may approve or review."""
    verb = "review" if row.state is states.RequestState.TO_REVIEW else "approve"
    return (
        f"Nobody may {verb} request {row.request_id} now. Give another person the role approver on "
        f"{', '.join(row.channels)}: {refusals.spell_grant(row.channel)}"
    )
