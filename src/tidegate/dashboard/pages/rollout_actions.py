"""What the verbs of a rollout do: each runs in the rollout's lane, before the reports that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

from tidegate.control.installation import Installation
from tidegate.control.runtime import CommandOutcome
from tidegate.dashboard.grid_encoding import RolloutPagePath, rollout_scope
from tidegate.dashboard.layout import PageQuery, Reason, action_route, attempt
from tidegate.dashboard.pages.rollouts import page_of
from tidegate.domain.access.roles import Verb
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.slices import (
    AbortRollout,
    PauseRollout,
    ResumeRollout,
    abort_rollout,
    pause_rollout,
    resume_rollout,
)
from tidegate.domain.rollouts.states import Clearance
from tidegate.web.inputs import Input
from tidegate.web.routing import Request, Response, requires

LANE_SECONDS_MAX = 20.0
DONE = {
    Clearance.RESUME: "cleared",
    Clearance.WAIVE: "cleared",
    Clearance.ABANDON: "aborted",
}


class RolloutForm(Input, frozen=True, kw_only=True):
    """A form about the rollout as it was shown."""

    version: Annotated[int, Meta(ge=0, le=2**53 - 1)]
    reason: Reason = ""


class ClearForm(RolloutForm, frozen=True, kw_only=True):
    mode: Clearance
    hosts: Annotated[str, Meta(max_length=4_000)] = ""  # that are waived, by commas


Steered = Request[RolloutPagePath, PageQuery, RolloutForm]


def _steer(
    request: Request[RolloutPagePath, PageQuery, Any],
    installation: Installation,
    run: Callable[[], CommandOutcome],
    done: str,
) -> Response:
    rollout_id = request.path.rollout_id

    def do() -> int:
        outcome: CommandOutcome = installation.lanes.command(rollout_id, run).result(
            LANE_SECONDS_MAX
        )
        installation.nudge()
        return outcome.position

    return attempt(
        request,
        installation,
        do,
        f"/rollouts/{rollout_id}",
        done,
        lambda: page_of(request, installation, rollout_id),
    )


def pause(request: Steered, installation: Installation) -> Response:
    """No further order until it is resumed."""
    command = PauseRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=request.body.reason,
        expected_version=request.body.version,
    )
    run = lambda: installation.execute(pause_rollout, command, meta=request.meta)  # noqa: E731
    return _steer(request, installation, run, "paused")


def resume(request: Steered, installation: Installation) -> Response:
    """Orders go out again."""
    command = ResumeRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=request.body.reason,
        expected_version=request.body.version,
    )
    run = lambda: installation.execute(resume_rollout, command, meta=request.meta)  # noqa: E731
    return _steer(request, installation, run, "resumed")


def abort(request: Steered, installation: Installation) -> Response:
    """End it where it stands."""
    command = AbortRollout(
        rollout_id=request.path.rollout_id,
        operator=request.by,
        reason=request.body.reason,
        expected_version=request.body.version,
    )
    run = lambda: installation.execute(abort_rollout, command, meta=request.meta)  # noqa: E731
    return _steer(request, installation, run, "aborted")


def clear(
    request: Request[RolloutPagePath, PageQuery, ClearForm], installation: Installation
) -> Response:
    """Take a halted rollout on: try again, go on without hosts, or give it up."""
    body = request.body
    rollout_id = request.path.rollout_id
    names = [name.strip() for name in body.hosts.split(",")]

    def run() -> CommandOutcome:
        command = ClearRollout(
            rollout_id=rollout_id,
            operator=request.by,
            reason=body.reason,
            mode=body.mode,
            closure_hash=installation.fleet_reader.tally(rollout_id).row.target_closure,
            host_ids=tuple(filter(None, names)) if body.mode is Clearance.WAIVE else (),
            expected_version=body.version,
        )
        return installation.execute(clear_rollout, command, meta=request.meta)

    return _steer(request, installation, run, DONE[body.mode])


_OPERATES = requires(Verb.OPERATE, rollout_scope)
ROUTES = (
    action_route("/rollouts/{rollout_id}/pause", pause, _OPERATES, urgent=True),
    action_route("/rollouts/{rollout_id}/resume", resume, _OPERATES),
    action_route("/rollouts/{rollout_id}/abort", abort, _OPERATES, urgent=True),
    action_route("/rollouts/{rollout_id}/clear", clear, _OPERATES),
)
