"""The forms of a channel's page: promote, roll back, hold, unhold, lift, protect, delete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta

from tidegate.control.operations.channels import ChannelOperations
from tidegate.control.operations.execute import VerbResult
from tidegate.control.operations.promotion import ChannelPromotion, PromotionOperations
from tidegate.control.operations.quarantine import QuarantineOperations
from tidegate.dashboard import forms, layout as dashboard_layout
from tidegate.dashboard.pages.channels import Asked, ChannelPagePath, ChannelPages, scope_of
from tidegate.domain.access import steps
from tidegate.domain.channels import facts, slices
from tidegate.web import inputs, routing


class ChannelForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_layout.Reason


class PromoteForm(inputs.Input, frozen=True, kw_only=True):
    release: Annotated[str, Meta(min_length=1, max_length=200)]
    display_name: Annotated[str, Meta(max_length=256)] = ""
    refresh: Literal["", "yes"] = ""
    start_at: Annotated[str, Meta(max_length=40)] = ""
    reason: dashboard_layout.OptionalReason = ""


class RollbackForm(ChannelForm, frozen=True, kw_only=True):
    to: Annotated[str, Meta(max_length=200)] = ""
    now: Literal["", "yes"] = ""


class ProtectForm(ChannelForm, frozen=True, kw_only=True):
    approvals: Annotated[int, Meta(ge=1, le=slices.APPROVALS_MAX)] = 1
    hours: Annotated[int, Meta(ge=1, le=slices.REQUEST_SECONDS_MAX // 3_600)] = 24
    emergency: bool = True


class LiftForm(ChannelForm, frozen=True, kw_only=True):
    closure_hash: Annotated[str, Meta(min_length=1, max_length=256)]


def promote(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, PromoteForm],
    promotion: PromotionOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Promote a release on the channel."""
    body = request.body

    def run() -> ChannelPromotion:
        return promotion.promote(
            request.caller,
            request.path.channel,
            body.release,
            reason=body.reason,
            display_name=body.display_name,
            refresh=body.refresh == "yes",
            start_at=forms.read_moment("start_at", body.start_at),
        )

    return _lead_to_rollout(request, pages, layout, run, "promoted")


def roll_back(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, RollbackForm],
    promotion: PromotionOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Roll the channel back to a release that succeeded on it."""
    body = request.body

    def run() -> ChannelPromotion:
        return promotion.roll_back(
            request.caller,
            request.path.channel,
            to=body.to or None,
            now=body.now == "yes",
            reason=body.reason,
        )

    return _lead_to_rollout(request, pages, layout, run, "rolled back")


def _lead_to_rollout(
    request: Asked,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
    do: Callable[[], ChannelPromotion],
    done: str,
) -> routing.Response:
    """Redirect to the channel, or to the rollout if its orders wait, which has the reason."""
    return layout.attempt_and_lead(
        request,
        do,
        lambda result: (
            (f"/rollouts/{result.rollout_id}", f"{done} and waits")
            if result.waits
            else (f"/channels/{request.path.channel}", done)
        ),
        lambda: pages.page_of(request),
    )


def _done(
    request: Asked,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
    do: Callable[[], int],
    done: str,
) -> routing.Response:
    back = f"/channels/{request.path.channel}"
    return layout.attempt(request, do, back, done, lambda: pages.page_of(request))


def hold(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, ChannelForm],
    channels: ChannelOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Hold a channel: no promotions and no orders until the hold is released."""
    run = partial(channels.hold, request.caller, request.path.channel, request.body.reason)
    return _hold_done(request, pages, layout, run, "held", "held already")


def unhold(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, ChannelForm],
    channels: ChannelOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Release the hold of a channel."""
    run = partial(channels.unhold, request.caller, request.path.channel, request.body.reason)
    return _hold_done(request, pages, layout, run, "unheld", "not held")


def _hold_done(
    request: Asked,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
    do: Callable[[], VerbResult],
    done: str,
    unchanged: str,
) -> routing.Response:
    """Redirect to the channel, with a notice that says whether anything changed."""
    return layout.attempt_and_lead(
        request,
        do,
        lambda change: (
            f"/channels/{request.path.channel}",
            unchanged if change.warnings else done,
        ),
        lambda: pages.page_of(request),
    )


def lift(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, LiftForm],
    quarantine: QuarantineOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Lift a quarantine: the artifact may be sent to the channel's hosts again."""
    channel, body = request.path.channel, request.body
    run = partial(quarantine.lift, request.caller, channel, body.closure_hash, body.reason)
    return _done(request, pages, layout, run, "lifted")


def protect(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, ProtectForm],
    channels: ChannelOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Protect the channel: require a second person."""
    body = request.body
    protection = facts.ChannelProtection(
        approvals=body.approvals, request_seconds=body.hours * 3_600, break_glass=body.emergency
    )
    run = partial(channels.protect, request.caller, request.path.channel, protection, body.reason)
    return _done(request, pages, layout, run, "protected")


def unprotect(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, ChannelForm],
    channels: ChannelOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Remove the protection of the channel."""
    run = partial(channels.protect, request.caller, request.path.channel, None, request.body.reason)
    return _done(request, pages, layout, run, "unprotected")


def delete(
    request: routing.Request[ChannelPagePath, dashboard_layout.PageQuery, ChannelForm],
    channels: ChannelOperations,
    pages: ChannelPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Delete a channel that nothing uses."""
    run = partial(channels.delete, request.caller, request.path.channel, request.body.reason)
    return layout.attempt(request, run, "/channels", "deleted", lambda: pages.page_of(request))


def _form(name: str, handler: Callable[..., Any], step: steps.Step) -> routing.Route:
    return dashboard_layout.step_route(f"/channels/{{channel}}/{name}", handler, step, scope_of)


ROUTES = (
    _form("promote", promote, steps.PROMOTE),
    _form("rollback", roll_back, steps.ROLL_BACK),
    _form("hold", hold, steps.HOLD_CHANNEL),
    _form("unhold", unhold, steps.UNHOLD_CHANNEL),
    _form("delete", delete, steps.DELETE_CHANNEL),
    _form("lift", lift, steps.LIFT_QUARANTINE),
    _form("protect", protect, steps.PROTECT_CHANNEL),
    _form("unprotect", unprotect, steps.PROTECT_CHANNEL),
)
