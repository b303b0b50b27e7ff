"""What people do with requests on protected channels: approve, reject, withdraw, run, review."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tidegate import decoders
from tidegate.control.operations.budgets import BudgetOperations
from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.freezes import FreezeOperations
from tidegate.control.operations.hosts import HostOperations
from tidegate.control.operations.promotion import PromotionOperations
from tidegate.control.operations.protection import ProtectionGuard, RequestShown
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.control.operations.rollouts import RolloutOperations
from tidegate.control.operations.windows import WindowOperations
from tidegate.control.queries.people import principal_of
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import (
    APPROVE_REQUEST,
    CREATE_WINDOW,
    DELETE_CHANNEL,
    DELETE_WINDOW,
    EDIT_CHANNEL,
    EDIT_WINDOW,
    END_FREEZE,
    LABEL_HOST,
    LIFT_QUARANTINE,
    PROMOTE,
    PROTECT_CHANNEL,
    REJECT_REQUEST,
    REMOVE_BUDGET,
    REVIEW_REQUEST,
    ROLL_BACK,
    RUN_REQUEST,
    SET_BUDGET,
    UNHOLD_CHANNEL,
    WITHDRAW_REQUEST,
    Step,
)
from tidegate.domain.channels.facts import ChannelPolicy, ChannelProtection
from tidegate.domain.requests.refusals import (
    ApprovalsMissing,
    RequestHostsMoved,
    RequestOutdated,
    RequestOver,
)
from tidegate.domain.requests.rows import ChannelRequest
from tidegate.domain.requests.slices import (
    ApproveRequest,
    CarryRequest,
    EndRequest,
    RejectRequest,
    ReviewRequest,
    WithdrawRequest,
    approve_request,
    carry_request,
    end_request,
    reject_request,
    review_request,
    withdraw_request,
)
from tidegate.domain.requests.states import OPEN, RequestState
from tidegate.domain.rollouts.states import OverridableGate
from tidegate.domain.windows.facts import WindowSpec
from tidegate.errors import Conflict, Forbidden, NotFound, Refused, TidegateError
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Alongside, Slice

# What keeps an approved request from being carried out now. It can be run later.
NOT_NOW = (Refused, Conflict, NotFound, Forbidden)


class PromotionAsked(Struct, frozen=True, kw_only=True):
    release_id: str
    reason: str = ""
    display_name: str = ""
    refresh: bool = False
    overrides: tuple[OverridableGate, ...] = ()
    start_at: datetime | None = None


class RollbackAsked(Struct, frozen=True, kw_only=True):
    to: str | None = None
    now: bool = False
    ignore_budgets: bool = False
    lift_quarantine: bool = False
    reason: str = ""


class EditAsked(Struct, frozen=True, kw_only=True):
    selector: str | None = None
    policy: ChannelPolicy | None = None


class ProtectionAsked(Struct, frozen=True, kw_only=True):
    protection: ChannelProtection | None
    reason: str


class LiftingAsked(Struct, frozen=True, kw_only=True):
    closure_hash: str
    reason: str


class ThawAsked(Struct, frozen=True, kw_only=True):
    freeze_id: str
    reason: str


class WindowAsked(Struct, frozen=True, kw_only=True):
    window: WindowSpec
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


for _asked in (
    *(PromotionAsked, RollbackAsked, EditAsked, ProtectionAsked, LiftingAsked),
    *(ThawAsked, WindowAsked, WindowDeletionAsked, BudgetAsked, LabelsAsked),
):
    decoders.build(_asked)


@dataclass(frozen=True, slots=True)
class GuardedOperations:
    """The operations that may have to wait for a second person."""

    promotion: PromotionOperations
    channels: ChannelOperations
    rollouts: RolloutOperations
    quarantine: QuarantineOperations
    freezes: FreezeOperations
    windows: WindowOperations
    budgets: BudgetOperations
    hosts: HostOperations


class RequestOutcome(Struct, frozen=True, kw_only=True):
    """Where the request stands, and why it was not carried out, if it was only approved."""

    request: RequestShown
    position: Position
    not_carried_out: str = ""


def _mend(error: TidegateError, row: ChannelRequest) -> str:
    """Why a request is not carried out, and the command that mends it."""
    if "tidegate " in error.detail:
        return error.detail
    mends = {
        "channel_held": f"channel release {row.channel} --reason …",
        "nothing_to_go_back_to": f"channel rollback {row.channel} --dry-run",
        "already_promoted": f"request withdraw {row.request_id}",
        "missing_permission": f"user show {row.by}",
    }
    command = mends.get(error.code, f"channel show {row.channel}")
    return f"{error.detail.rstrip('.')}. Next: tidegate {command}"


class RequestOperations:
    """The verbs of a request.

    Raises:
        MissingPermission, RequestNotFound, RequestOver, RequestOutdated.
    """

    def __init__(
        self,
        execute: Execute,
        reads: Reads,
        guard: ProtectionGuard,
        operations: GuardedOperations,
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._guard = guard
        self._operations = operations

    def show(self, found: Found[ChannelRequest]) -> RequestShown:
        """A request, with what an approver should know as things are now."""
        return replace(self._guard.show(found), notes=self.list_notes(found.row))

    def list_notes(self, row: ChannelRequest) -> tuple[str, ...]:
        """Of an open promotion or rollback: what happened here, what holds it, how many hosts."""
        if row.state not in OPEN:
            return ()
        try:
            if row.kind == PROMOTE.name and not row.command.get("refresh"):
                release_id = row.command["release_id"]
                return self._operations.promotion.describe_promotion(row.channel, release_id)
            if row.kind == ROLL_BACK.name:
                to, now = row.command.get("to"), bool(row.command.get("now"))
                return self._operations.promotion.describe_rollback(row.channel, to, now=now)
        except NotFound:
            return ()  # the channel is gone
        return ()

    def approve(
        self,
        caller: Caller,
        request_id: str,
        digest: str,
        reason: str = "",
        hosts: int | None = None,
    ) -> RequestOutcome:
        """Agree to what has this digest. The last approval carries the request out in its own
        commit. If that is refused, only the approval is recorded, and the answer says why.
        ``hosts``: how many hosts the plan has that the caller looked at.

        Raises:
            OwnRequest, RequestChanged, ApprovalsBarred.
            RequestHostsMoved: the plan has many more or fewer hosts than that.
        """
        row = self._demand(caller, APPROVE_REQUEST, request_id)
        if caller.id in row.approvals:
            return self._outcome(request_id, 0)  # it does not count twice
        approval = ApproveRequest(
            request_id=request_id, channel=row.channel, by=caller.id, reason=reason, digest=digest
        )
        refusal = ""
        others = len(row.approvals) + 1 >= row.approvals_needed
        if row.state is RequestState.WAITING and others and caller.id != row.by:
            carried = CarryRequest(
                request_id=request_id,
                channel=row.channel,
                by=caller.id,
                reason=reason,
                digest=digest,
                hosts=self._count_hosts(row),
                confirmed_hosts=hosts,
            )
            try:
                return self._carry_out(caller, row, carried)
            except RequestOutdated:
                self._end(caller, row)
                raise
            except RequestHostsMoved:
                raise
            except NOT_NOW as error:
                refusal = _mend(error, row)
        position = self._run(approve_request, approval, caller, row)
        return self._outcome(request_id, position, refusal)

    def run(self, caller: Caller, request_id: str, hosts: int | None = None) -> RequestOutcome:
        """Carry out a request that enough people have approved. ``hosts``: as for ``approve``.

        Raises:
            ApprovalsMissing, RequestHostsMoved. Those of what it asks for.
        """
        row = self._demand(caller, RUN_REQUEST, request_id)
        if row.state is RequestState.WAITING:
            raise ApprovalsMissing(request_id, len(row.approvals), row.approvals_needed)
        if row.state is not RequestState.APPROVED:
            raise RequestOver(request_id, row.state)
        carried = CarryRequest(
            request_id=request_id,
            channel=row.channel,
            by=caller.id,
            hosts=self._count_hosts(row),
            confirmed_hosts=hosts,
        )
        try:
            return self._carry_out(caller, row, carried)
        except RequestOutdated:
            self._end(caller, row)
            raise

    def reject(self, caller: Caller, request_id: str, reason: str) -> RequestOutcome:
        """Say no to it."""
        row = self._demand(caller, REJECT_REQUEST, request_id)
        command = RejectRequest(
            request_id=request_id, channel=row.channel, by=caller.id, reason=reason
        )
        return self._outcome(request_id, self._run(reject_request, command, caller, row))

    def withdraw(self, caller: Caller, request_id: str, reason: str = "") -> RequestOutcome:
        """Take the caller's own request back.

        Raises:
            NotOwnRequest.
        """
        row = self._guard.demand(request_id).row
        caller.demand(WITHDRAW_REQUEST, channel_scope(row.channel))
        command = WithdrawRequest(
            request_id=request_id, channel=row.channel, by=caller.id, reason=reason
        )
        return self._outcome(request_id, self._run(withdraw_request, command, caller, row))

    def review(
        self, caller: Caller, request_id: str, reason: str, *, accepted: bool
    ) -> RequestOutcome:
        """Say whether what another person did with break-glass was right; undoes nothing.

        Raises:
            OwnRequest.
        """
        row = self._demand(caller, REVIEW_REQUEST, request_id)
        command = ReviewRequest(
            request_id=request_id,
            channel=row.channel,
            by=caller.id,
            reason=reason,
            accepted=accepted,
        )
        return self._outcome(request_id, self._run(review_request, command, caller, row))

    def _demand(self, caller: Caller, step: Step, request_id: str) -> ChannelRequest:
        """A request that the caller may decide about, on each channel that it concerns.

        Raises:
            RequestNotFound, MissingPermission.
        """
        row = self._guard.demand(request_id).row
        for channel in row.channels:
            caller.demand(step, channel_scope(channel))
        return row

    def _count_hosts(self, row: ChannelRequest) -> int | None:
        """How many hosts the plan would have now; None: it has no plan."""
        if row.seen is None or row.seen.hosts is None:
            return None
        is_rollback = row.kind == ROLL_BACK.name
        now = bool(row.command.get("now"))
        return self._operations.promotion.count_hosts(row.channel, rollback=is_rollback, now=now)

    def _run(self, item: Slice, command: Struct, caller: Caller, row: ChannelRequest) -> Position:
        try:
            return self._execute(item, command, caller).position
        except RequestOutdated:
            self._end(caller, row)
            raise

    def _end(self, caller: Caller, row: ChannelRequest) -> None:
        """Record that the request expired or is void."""
        command = EndRequest(request_id=row.request_id, channel=row.channel, by=caller.id)
        self._execute.run(end_request, command, meta=caller.meta)

    def _outcome(self, request_id: str, position: Position, refusal: str = "") -> RequestOutcome:
        found = self._guard.demand(request_id)
        return RequestOutcome(
            request=self._guard.show(found),
            position=position or found.version,
            not_carried_out=refusal,
        )

    def _carry_out(
        self, caller: Caller, row: ChannelRequest, command: CarryRequest
    ) -> RequestOutcome:
        """Do it as who asked for it, with the permissions that this person has now."""
        asker = Caller(
            principal=principal_of(self._reads)(row.by),
            request_id=caller.request_id,
            carried_by=caller.id,
            alongside=Alongside(carry_request, command),
        )
        self._runner(row)(asker)
        return self._outcome(row.request_id, 0)

    def _runner(self, row: ChannelRequest) -> Callable[[Caller], object]:
        """What carries out a request of this kind."""
        channel, said, do = row.channel, row.command, self._operations
        match row.kind:
            case PROMOTE.name:
                promotion = decoders.convert(said, PromotionAsked)
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
            case ROLL_BACK.name:
                back = decoders.convert(said, RollbackAsked)
                return lambda asker: do.promotion.roll_back(asker, channel, **asdict(back))
            case EDIT_CHANNEL.name:
                edit = decoders.convert(said, EditAsked)
                return lambda asker: do.channels.edit(
                    asker, channel, selector=edit.selector, policy=edit.policy
                )
            case PROTECT_CHANNEL.name:
                change = decoders.convert(said, ProtectionAsked)
                return lambda asker: do.channels.protect(
                    asker, channel, change.protection, change.reason
                )
            case LIFT_QUARANTINE.name:
                lifting = decoders.convert(said, LiftingAsked)
                return lambda asker: do.quarantine.lift(
                    asker, channel, lifting.closure_hash, lifting.reason
                )
            case DELETE_CHANNEL.name:
                return lambda asker: do.channels.delete(asker, channel, said["reason"])
            case UNHOLD_CHANNEL.name:
                return lambda asker: do.channels.unhold(asker, channel, said["reason"])
        return self._of_stops(row.kind, said)

    def _of_stops(self, kind: str, said: dict[str, Any]) -> Callable[[Caller], object]:
        do = self._operations
        match kind:
            case END_FREEZE.name:
                thaw = decoders.convert(said, ThawAsked)
                return lambda asker: do.freezes.end(asker, thaw.freeze_id, thaw.reason)
            case CREATE_WINDOW.name:
                made = decoders.convert(said, WindowAsked)
                return lambda asker: do.windows.create(asker, made.window, made.reason)
            case EDIT_WINDOW.name:
                edited = decoders.convert(said, WindowAsked)
                return lambda asker: do.windows.replace(asker, edited.window, edited.reason)
            case DELETE_WINDOW.name:
                gone = decoders.convert(said, WindowDeletionAsked)
                return lambda asker: do.windows.delete(asker, gone.window_id, gone.reason)
            case SET_BUDGET.name:
                budget = decoders.convert(said, BudgetAsked)
                return lambda asker: do.budgets.set(asker, **asdict(budget))
            case REMOVE_BUDGET.name:
                budget = decoders.convert(said, BudgetAsked)
                return lambda asker: do.budgets.remove(asker, budget.budget_id)
            case LABEL_HOST.name:
                labels = decoders.convert(said, LabelsAsked)
                return lambda asker: do.hosts.label(asker, labels.host_id, labels.labels)
        return lambda asker: do.rollouts.run_again(asker, kind, said)
