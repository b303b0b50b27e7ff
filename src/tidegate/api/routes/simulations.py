"""Simulates a rollout before it is opened; nothing changes."""

from __future__ import annotations

from typing import Annotated, Any, cast

from msgspec import Meta, structs

from tidegate.api.routes import rollout_commands, rollouts
from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.promotion_planning import Promotions
from tidegate.control.queries import forecasts
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import roles, scopes
from tidegate.domain.channels import refusals, rows
from tidegate.errors import NotFound
from tidegate.web import inputs, routing

RUNS_MAX = 5  # a server has other work; the command line runs more
SEED_MAX = 2**31 - 1
FAILING_MAX = 100

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class OddsAsked(inputs.Input, frozen=True, kw_only=True):
    """How often things fail, as shares; what is left out never fails."""

    activation_fails: Share = 0.0
    probe_fails: Share = 0.0
    probe_flaps: Share = 0.0
    rollback_fails: Share = 0.0
    dies: Share = 0.0
    offline: Share = 0.0
    lost: Share = 0.0


class Simulating(rollout_commands.Planning, frozen=True, kw_only=True):
    seed: Annotated[int, Meta(ge=0, le=SEED_MAX)] = 1
    runs: Annotated[int, Meta(ge=1, le=RUNS_MAX)] = 1
    failing: Annotated[tuple[rollouts.HostId, ...], Meta(max_length=FAILING_MAX)] = ()
    odds: OddsAsked = OddsAsked()  # by default nothing fails
    from_history: bool = False  # as often as in the channel's last rollouts, instead of ``odds``


def simulate(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Simulating],
    reads: Reads,
    forecast: forecasts.Forecaster,
    promotions: Promotions,
    fleet_reader: FleetReader,
    clock: Clock,
) -> routing.Response:
    """Simulate a rollout: when waves would end, and what would stop it."""
    body = request.body
    plan = rollout_commands.dry_plan(cast(Any, request), reads, promotions, clock).body
    channel = reads.find(rows.channel_key(body.channel), rows.Channel)
    assert isinstance(plan, rollout_commands.PlanAhead), "a dry plan answers the plan"
    assert channel is not None, "what is planned for is there"
    history = forecasts.read_history(reads, body.channel)
    odds = history.odds if body.from_history else forecasts.Odds(**structs.asdict(body.odds))
    odds = structs.replace(odds, failing=body.failing)
    seeds = range(body.seed, body.seed + body.runs)
    conditions = forecasts.read_conditions(fleet_reader, channel.row, clock())
    conditions = structs.replace(conditions, activation=history.activation, start_at=body.start_at)
    found = forecast(channel.row, plan, odds, seeds, conditions)
    return routing.Response(structs.replace(found, holds=plan.holds))


ROUTES = (
    routing.Route(
        "POST",
        "/v1/rollouts/simulate",
        simulate,
        routing.requires(
            roles.Verb.READ, lambda request: scopes.channel_scope(request.body.channel)
        ),
        forecasts.Forecast,
        errors=(NotFound, refusals.WrongPackage, refusals.MalformedPolicy),
    ),
)
