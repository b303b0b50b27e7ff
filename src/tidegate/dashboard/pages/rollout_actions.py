"""The forms of a rollout's page: pause, resume, clear, skip, override, abort."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from tidegate.control.operations.rollouts import RolloutOperations
from tidegate.dashboard import grid_encoding, layout as dashboard_layout
from tidegate.dashboard.pages.rollouts import RolloutPages
from tidegate.domain.access import steps
from tidegate.domain.rollouts.states import Clearance, OverridableGate
from tidegate.kernel.model import Position
from tidegate.web import inputs, routing

CLEARED = {Clearance.RESUME: "cleared", Clearance.WAIVE: "cleared", Clearance.ABANDON: "aborted"}


class RolloutForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_layout.Reason


class ClearForm(RolloutForm, frozen=True, kw_only=True):
    mode: Clearance
    hosts: Annotated[str, Meta(max_length=4_000)] = ""  # separated by commas


class OverrideForm(RolloutForm, frozen=True, kw_only=True):
    gate: OverridableGate


class SkipForm(RolloutForm, frozen=True, kw_only=True):
    host_id: Annotated[str, Meta(min_length=1, max_length=256)]


class ContinueForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_layout.OptionalReason = ""


class SkipWaveForm(RolloutForm, frozen=True, kw_only=True):
    wave: Annotated[str, Meta(min_length=1, max_length=63)]


Action = routing.Request[grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, RolloutForm]
Verb = Callable[[], Position]


def pause(
    request: Action,
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Pause the rollout."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    run = partial(rollouts.pause, request.caller, rollout_id, reason)
    return _attempt(request, pages, layout, run, "paused")


def resume(
    request: Action,
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Resume the rollout."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    run = partial(rollouts.resume, request.caller, rollout_id, reason)
    return _attempt(request, pages, layout, run, "resumed")


def abort(
    request: Action,
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Abort the rollout."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    run = partial(rollouts.abort, request.caller, rollout_id, reason)
    return _attempt(request, pages, layout, run, "aborted")


def clear(
    request: routing.Request[grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, ClearForm],
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Clear a halted rollout: retry the failed hosts, waive them, or abandon the rollout."""
    rollout_id, body = request.path.rollout_id, request.body
    names = (name.strip() for name in body.hosts.split(","))
    hosts = tuple(filter(None, names)) if body.mode is not Clearance.ABANDON else ()
    run = partial(rollouts.clear, request.caller, rollout_id, body.mode, body.reason, hosts)
    return _attempt(request, pages, layout, run, CLEARED[body.mode])


def skip(
    request: routing.Request[grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, SkipForm],
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Continue without a host."""
    rollout_id, body = request.path.rollout_id, request.body
    run = partial(rollouts.skip, request.caller, rollout_id, body.host_id.strip(), body.reason)
    return layout.attempt_and_lead(
        request,
        run,
        lambda done: (f"/rollouts/{rollout_id}", "skipped already" if done.warnings else "skipped"),
        lambda: pages.page_of(request, rollout_id),
    )


def override(
    request: routing.Request[
        grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, OverrideForm
    ],
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Override a gate of the rollout."""
    rollout_id, body = request.path.rollout_id, request.body
    run = partial(rollouts.override, request.caller, rollout_id, body.gate, body.reason)
    return _attempt(request, pages, layout, run, "overridden")


def continue_wave(
    request: routing.Request[
        grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, ContinueForm
    ],
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Start the next wave."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    run = partial(rollouts.continue_wave, request.caller, rollout_id, reason)
    return _attempt(request, pages, layout, run, "continued")


def skip_wave(
    request: routing.Request[
        grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, SkipWaveForm
    ],
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Skip a wave."""
    rollout_id, body = request.path.rollout_id, request.body
    run = partial(rollouts.skip_wave, request.caller, rollout_id, body.wave, body.reason)
    return _attempt(request, pages, layout, run, "wave-skipped")


def promote_all(
    request: Action,
    rollouts: RolloutOperations,
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Start all waves now."""
    rollout_id, reason = request.path.rollout_id, request.body.reason
    run = partial(rollouts.promote_all, request.caller, rollout_id, reason)
    return _attempt(request, pages, layout, run, "all-promoted")


def _attempt(
    request: routing.Request[grid_encoding.RolloutPagePath, dashboard_layout.PageQuery, Any],
    pages: RolloutPages,
    layout: dashboard_layout.Layout,
    run: Verb,
    done: str,
) -> routing.Response:
    rollout_id = request.path.rollout_id
    page = partial(pages.page_of, request, rollout_id)
    return layout.attempt(request, run, f"/rollouts/{rollout_id}", done, page)


def _form(name: str, handler: Callable[..., Any], step: steps.Step) -> routing.Route:
    path = f"/rollouts/{{rollout_id}}/{name}"
    return dashboard_layout.step_route(path, handler, step, grid_encoding.rollout_scope)


ROUTES = (
    _form("pause", pause, steps.PAUSE_ROLLOUT),
    _form("resume", resume, steps.RESUME_ROLLOUT),
    _form("abort", abort, steps.ABORT_ROLLOUT),
    _form("clear", clear, steps.CLEAR_ROLLOUT),
    _form("override", override, steps.OVERRIDE_GATE),
    _form("skip", skip, steps.SKIP_HOST),
    _form("continue", continue_wave, steps.CONTINUE_ROLLOUT),
    _form("skip-wave", skip_wave, steps.SKIP_WAVE),
    _form("promote-all", promote_all, steps.PROMOTE_ALL),
)
