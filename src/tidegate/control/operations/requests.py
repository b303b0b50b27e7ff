"""Approve, reject, withdraw, run and review requests on protected channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from tidegate import decoders, errors
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.freezes import FreezeOperations
from tidegate.control.operations.hosts import HostOperations
from tidegate.control.operations.promotion import ChannelPromotion, PromotionOperations
from tidegate.control.operations.protection import Alternative, ProtectionGuard, RequestShown
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.control.operations.rollouts import RolloutOperations
from tidegate.control.operations.windows import WindowOperations
from tidegate.control.queries import people, request_changes
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import callers, principals, scopes, steps
from tidegate.domain.channels import facts as channel_facts, refusals as channel_refusals
from tidegate.domain.releases.refusals import ReleaseNotPinnable
from tidegate.domain.requests import (
    break_glass,
    deadlines,
    refusals,
    request_commands,
    rows,
    slices as request_slices,
    states,
)
from tidegate.domain.rollouts import refusals as rollout_refusals, states as rollout_states
from tidegate.domain.windows import facts as window_facts, refusals as window_refusals
from tidegate.kernel import model, slices as kernel_slices

# Errors that never pass: the request becomes void.
NEVER = (
    *(errors.Invalid, errors.NotFound, errors.Gone, errors.IllegalTransition),
    channel_refusals.AlreadyPromoted,
    channel_refusals.NotOnLadder,
    channel_refusals.ReleaseNotPinned,
    channel_refusals.WrongPackage,
    ReleaseNotPinnable,
    rollout_refusals.WavePassed,
    window_refusals.WindowExists,
)
# Errors that may pass: the approval is recorded, and the request can be run later.
NOT_NOW = (errors.Refused, errors.Conflict, errors.NotFound, errors.Forbidden)


class PromotionAsked(Struct, frozen=True, kw_only=True):
    release_id: str
    reason: str = ""
    display_name: str = ""
    refresh: bool = False
    overrides: tuple[rollout_states.OverridableGate, ...] = ()
    start_at: datetime | None = None


class RollbackAsked(Struct, frozen=True, kw_only=True):
    to: str
    now: bool = False
    ignore_budgets: bool = False
    lift_quarantine: bool = False
    reason: str = ""


class EditAsked(Struct, frozen=True, kw_only=True):
    selector: str | None = None
    policy: channel_facts.ChannelPolicy | None = None


class ProtectionAsked(Struct, frozen=True, kw_only=True):
    protection: channel_facts.ChannelProtection | None
    reason: str


class LiftingAsked(Struct, frozen=True, kw_only=True):
    closure_hash: str
    reason: str


class ThawAsked(Struct, frozen=True, kw_only=True):
    freeze_id: str
    reason: str


class WindowAsked(Struct, frozen=True, kw_only=True):
    window: window_facts.WindowSpec
    reason: str


class WindowDeletionAsked(Struct, frozen=True, kw_only=True):
    window_id: str
    reason: str


class BudgetAsked(Struct, frozen=True, kw_only=True):
    budget_id: str
    selector: str = ""
    max_in_flight: int | None = None
    max_in_flight_pct: int | None = None


class LabelsAsked(Struct, frozen=True, kw_only=True):
    host_id: str
    labels: dict[str, str]


for _arguments in (
    *(PromotionAsked, RollbackAsked, EditAsked, ProtectionAsked, LiftingAsked),
    *(ThawAsked, WindowAsked, WindowDeletionAsked, BudgetAsked, LabelsAsked),
):
    decoders.build(_arguments)


@dataclass(frozen=True, slots=True)
class GuardedOperations:
    """The operations that may need a second person."""

    promotion: PromotionOperations
    channels: ChannelOperations
    rollouts: RolloutOperations
    quarantine: QuarantineOperations
    freezes: FreezeOperations
    windows: WindowOperations
    budgets: BudgetOperations
    hosts: HostOperations


class RequestOutcome(Struct, frozen=True, kw_only=True):
    """The request after an operation, and why it was not executed if it was only approved."""

    request: RequestShown
    position: model.Position
    not_carried_out: str = ""
    rollout_id: str | None = None  # that it opened
    warnings: tuple[str, ...] = ()  # what people should know of that rollout
    waits: bool = False  # its orders wait


def _mend(error: errors.TidegateError, row: rows.ChannelRequest) -> str:
    """Describe why a request was not executed, and which command helps."""
    if "tidegate " in error.detail:
        return error.detail
    mends = {
        "channel_held": f"channel release {row.channel} --reason …",
        "missing_permission": f"user show {row.by}",
    }
    command = mends.get(error.code, f"channel show {row.channel}")
    return f"{error.detail.rstrip('.')}. Next: tidegate {command}"


def _may_approve(principal: principals.Principal, row: rows.ChannelRequest) -> bool:
    """Whether a person may approve on each channel of the request, at this moment."""
    verbs = steps.APPROVE_REQUEST.verbs
    found = map(scopes.channel_scope, row.channels)
    return all(any(principal.may(verb, scope) for verb in verbs) for scope in found)


class RequestOperations:
    """The verbs of a request.

    Raises:
        MissingPermission, RequestNotFound, RequestOver, RequestOutdated.
    """

    def __init__(
        self, execute: Execute, reads: Reads, guard: ProtectionGuard, operations: GuardedOperations
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._guard = guard
        self._operations = operations

    def show(self, found: Found[rows.ChannelRequest]) -> RequestShown:
        """Return a request, with what an approver should know now."""
        return structs.replace(
            self._guard.show(found),
            notes=self.list_notes(found.row),
            rollout=request_changes.find_rollout(self._reads, found.row),
        )

    def list_notes(self, row: rows.ChannelRequest) -> tuple[str, ...]:
        """Describe an open promotion or rollback: earlier failures, what holds it, its hosts."""
        if row.state not in states.OPEN:
            return ()
        preview = self._operations.promotion.preview
        try:
            if row.kind == steps.PROMOTE.name and not row.command.get("refresh"):
                release_id = row.command["release_id"]
                return preview.describe_promotion(row.channel, release_id)
            if row.kind == steps.ROLL_BACK.name:
                to, now = row.command["to"], bool(row.command.get("now"))
                ignore = bool(row.command.get("ignore_budgets"))
                return preview.describe_rollback(row.channel, to, now=now, ignore_budgets=ignore)
        except errors.NotFound:
            return ()  # the channel was deleted
        return ()

    def list_alternatives(
        self, caller: callers.Caller, row: rows.ChannelRequest
    ) -> tuple[Alternative, ...]:
        """Describe what the person who made an open request can do alone instead."""
        if row.by != caller.id or row.state not in states.OPEN:
            return ()
        if row.kind != steps.ROLL_BACK.name:
            return ()
        alone, at_once = self._operations.promotion.find_alternatives(row.channel, row.command)
        return self._guard.list_alternatives(caller, row.channels, alone, at_once)

    def approve(
        self,
        caller: callers.Caller,
        request_id: str,
        digest: str,
        reason: str = "",
        hosts: int | None = None,
    ) -> RequestOutcome:
        """Approve the request with this digest. The last approval executes the request in the same
        commit. If that is refused, only the approval is recorded, and the response says why.
        ``hosts``: the number of hosts in the plan that the caller saw.

        Raises:
            OwnRequest, RequestChanged, ApprovalsBarred.
            RequestHostsMoved: the plan has many more or fewer hosts than that.
        """
        row = self._demand(caller, steps.APPROVE_REQUEST, request_id)
        if caller.id in row.approvals:
            return self._outcome(request_id, 0)  # an approval does not count twice
        approval = request_slices.ApproveRequest(
            request_id=request_id,
            channel=row.channel,
            by=caller.id,
            reason=reason,
            kind=row.kind,
            command=row.command,
            digest=digest,
        )
        request_commands.rows_of_request(approval)  # its errors must not void the request
        refusal = ""
        others = len(row.approvals) + 1 >= row.approvals_needed
        if row.state is states.RequestState.WAITING and others and caller.id != row.by:
            carried = request_slices.CarryRequest(
                request_id=request_id,
                channel=row.channel,
                by=caller.id,
                reason=reason,
                kind=row.kind,
                command=row.command,
                digest=digest,
                hosts=self._count_hosts(row),
                confirmed_hosts=hosts,
            )
            try:
                return self._carry_out(caller, row, carried)
            except (refusals.RequestOutdated, refusals.RequestHostsMoved):
                raise
            except NOT_NOW as error:
                refusal = _mend(error, row)
        position = self._run(request_slices.approve_request, approval, caller, row)
        left = self._guard.demand(request_id).row
        if not refusal and left.state is states.RequestState.APPROVED:  # others approved meanwhile
            try:
                return self._carry_approved(caller, left, hosts)
            except refusals.RequestOutdated:
                raise
            except refusals.RequestOver:
                return self._outcome(request_id, position)  # another approver carries it out
            except NOT_NOW as error:
                refusal = _mend(error, left)
        return self._outcome(request_id, position, refusal)

    def run(
        self, caller: callers.Caller, request_id: str, hosts: int | None = None
    ) -> RequestOutcome:
        """Execute a request that enough people have approved. ``hosts``: as in ``approve``.

        Raises:
            ApprovalsMissing, RequestHostsMoved. The errors of the requested command.
        """
        row = self._demand(caller, steps.RUN_REQUEST, request_id)
        if row.state is states.RequestState.WAITING:
            raise refusals.ApprovalsMissing(request_id, len(row.approvals), row.approvals_needed)
        if row.state is not states.RequestState.APPROVED:
            raise refusals.RequestOver(request_id, row.state)
        return self._carry_approved(caller, row, hosts)

    def _carry_approved(
        self, caller: callers.Caller, row: rows.ChannelRequest, hosts: int | None
    ) -> RequestOutcome:
        carried = request_slices.CarryRequest(
            request_id=row.request_id,
            channel=row.channel,
            by=caller.id,
            kind=row.kind,
            command=row.command,
            hosts=self._count_hosts(row),
            confirmed_hosts=hosts,
        )
        return self._carry_out(caller, row, carried)

    def reject(self, caller: callers.Caller, request_id: str, reason: str) -> RequestOutcome:
        """Reject a request."""
        row = self._demand(caller, steps.REJECT_REQUEST, request_id)
        command = request_slices.RejectRequest(
            request_id=request_id, channel=row.channel, by=caller.id, reason=reason
        )
        return self._outcome(
            request_id, self._run(request_slices.reject_request, command, caller, row)
        )

    def withdraw(self, caller: callers.Caller, request_id: str, reason: str = "") -> RequestOutcome:
        """Withdraw the caller's own request.

        Raises:
            NotOwnRequest.
        """
        row = self._guard.demand(request_id).row
        caller.demand(steps.WITHDRAW_REQUEST, scopes.channel_scope(row.channel))
        command = request_slices.WithdrawRequest(
            request_id=request_id, channel=row.channel, by=caller.id, reason=reason
        )
        return self._outcome(
            request_id, self._run(request_slices.withdraw_request, command, caller, row)
        )

    def review(
        self, caller: callers.Caller, request_id: str, reason: str, *, accepted: bool
    ) -> RequestOutcome:
        """Review what another person did with break-glass: accept it or not. This undoes nothing.

        Raises:
            OwnRequest.
        """
        row = self._demand(caller, steps.REVIEW_REQUEST, request_id)
        command = break_glass.ReviewRequest(
            request_id=request_id,
            channel=row.channel,
            by=caller.id,
            reason=reason,
            accepted=accepted,
        )
        return self._outcome(
            request_id, self._run(break_glass.review_request, command, caller, row)
        )

    def _demand(
        self, caller: callers.Caller, step: steps.Step, request_id: str
    ) -> rows.ChannelRequest:
        """Return a request, if the caller may decide about it on each channel that it affects.

        Raises:
            RequestNotFound, MissingPermission.
        """
        row = self._guard.demand(request_id).row
        for channel in row.channels:
            caller.demand(step, scopes.channel_scope(channel))
        return row

    def _count_hosts(self, row: rows.ChannelRequest) -> int | None:
        """Count the hosts that the plan would have now; None: the request has no plan."""
        if row.seen is None or row.seen.hosts is None:
            return None
        is_rollback = row.kind == steps.ROLL_BACK.name
        now = bool(row.command.get("now"))
        preview = self._operations.promotion.preview
        return preview.count_hosts(row.channel, rollback=is_rollback, now=now)

    def _run(
        self,
        item: kernel_slices.Slice,
        command: Struct,
        caller: callers.Caller,
        row: rows.ChannelRequest,
    ) -> model.Position:
        try:
            return self._execute(item, command, caller).position
        except refusals.RequestOutdated as outdated:
            self._end(caller, row, outdated)
            raise

    def _end(
        self, caller: callers.Caller, row: rows.ChannelRequest, outdated: refusals.RequestOutdated
    ) -> None:
        """Record that the request expired or is void."""
        command = deadlines.EndRequest(
            request_id=row.request_id,
            channel=row.channel,
            by=caller.id,
            kind=row.kind,
            command=row.command,
            refusal=outdated.what,
        )
        self._execute.run(deadlines.end_request, command, meta=caller.meta)

    def _outcome(
        self, request_id: str, position: model.Position, refusal: str = ""
    ) -> RequestOutcome:
        found = self._guard.demand(request_id)
        return RequestOutcome(
            request=self._guard.show(found),
            position=position or found.version,
            not_carried_out=refusal,
        )

    def _carry_out(
        self, caller: callers.Caller, row: rows.ChannelRequest, command: request_slices.CarryRequest
    ) -> RequestOutcome:
        """Execute a request as the person who made it, with their current permissions.

        Raises:
            RequestOutdated, RequestImpossible: it is void, which was recorded.
            The errors of the requested command.
        """
        find = people.principal_of(self._reads)
        asker = callers.Caller(
            principal=find(row.by),
            request_id=caller.request_id,
            carried_by=caller.id,
            alongside=kernel_slices.Alongside(request_slices.carry_request, command),
        )
        try:
            if not all(_may_approve(find(by), row) for by in row.approvals):
                what = "a person who approved it lost that permission"
                raise refusals.RequestOutdated(row.request_id, row.channel, what)
            done = self._runner(row)(asker)
        except refusals.RequestOutdated as outdated:
            self._end(caller, row, outdated)
            raise
        except refusals.RequestNotFound:
            raise
        except NEVER as error:
            changed = request_changes.find_change(self._reads, row)
            void = (
                refusals.RequestOutdated(row.request_id, row.channel, changed)
                if changed
                else refusals.RequestImpossible(row.request_id, row.channel, error.detail)
            )
            self._end(caller, row, void)
            raise void from error
        outcome = self._outcome(row.request_id, 0)
        if not isinstance(done, ChannelPromotion):
            return outcome
        return structs.replace(
            outcome, rollout_id=done.rollout_id, warnings=done.warnings, waits=done.waits
        )

    def _runner(self, row: rows.ChannelRequest) -> Callable[[callers.Caller], object]:
        """Return the function that executes a request of this kind."""
        channel, command, do = row.channel, row.command, self._operations
        match row.kind:
            case steps.PROMOTE.name:
                promotion = decoders.convert(command, PromotionAsked)
                return lambda asker: do.promotion.promote(
                    asker,
                    channel,
                    promotion.release_id,
                    reason=promotion.reason,
                    display_name=promotion.display_name,
                    refresh=promotion.refresh,
                    overrides=promotion.overrides,
                    start_at=promotion.start_at,
                )
            case steps.ROLL_BACK.name:
                back = decoders.convert(command, RollbackAsked)
                return lambda asker: do.promotion.roll_back(asker, channel, **structs.asdict(back))
            case steps.EDIT_CHANNEL.name:
                edit = decoders.convert(command, EditAsked)
                return lambda asker: do.channels.edit(
                    asker, channel, selector=edit.selector, policy=edit.policy
                )
            case steps.PROTECT_CHANNEL.name:
                change = decoders.convert(command, ProtectionAsked)
                return lambda asker: do.channels.protect(
                    asker, channel, change.protection, change.reason
                )
            case steps.LIFT_QUARANTINE.name:
                lifting = decoders.convert(command, LiftingAsked)
                return lambda asker: do.quarantine.lift(
                    asker, channel, lifting.closure_hash, lifting.reason
                )
            case steps.DELETE_CHANNEL.name:
                return lambda asker: do.channels.delete(asker, channel, command["reason"])
            case steps.UNHOLD_CHANNEL.name:
                return lambda asker: do.channels.unhold(asker, channel, command["reason"])
        return self._stops_runner(row.kind, command)

    def _stops_runner(
        self, kind: str, command: dict[str, Any]
    ) -> Callable[[callers.Caller], object]:
        do = self._operations
        match kind:
            case steps.END_FREEZE.name:
                thaw = decoders.convert(command, ThawAsked)
                return lambda asker: do.freezes.end(asker, thaw.freeze_id, thaw.reason)
            case steps.CREATE_WINDOW.name:
                made = decoders.convert(command, WindowAsked)
                return lambda asker: do.windows.create(asker, made.window, made.reason)
            case steps.EDIT_WINDOW.name:
                edited = decoders.convert(command, WindowAsked)
                return lambda asker: do.windows.replace(asker, edited.window, edited.reason)
            case steps.DELETE_WINDOW.name:
                gone = decoders.convert(command, WindowDeletionAsked)
                return lambda asker: do.windows.delete(asker, gone.window_id, gone.reason)
            case steps.SET_BUDGET.name:
                budget = decoders.convert(command, BudgetAsked)
                return lambda asker: do.budgets.set(asker, **structs.asdict(budget))
            case steps.REMOVE_BUDGET.name:
                budget = decoders.convert(command, BudgetAsked)
                return lambda asker: do.budgets.remove(asker, budget.budget_id)
            case steps.LABEL_HOST.name:
                labels = decoders.convert(command, LabelsAsked)
                return lambda asker: do.hosts.label(asker, labels.host_id, labels.labels)
        return lambda asker: do.rollouts.run_again(asker, kind, command)
