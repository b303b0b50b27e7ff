"""The OpenAPI document is valid, complete, and correct about the running server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from openapi_spec_validator import OpenAPIV31SpecValidator
from requests import PreparedRequest
from requests.auth import AuthBase
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)

from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet, WireAgent, serve_fleet
from tests.api.serving import Served
from tests.quick import more
from tidegate import __version__
from tidegate.api.openapi import document
from tidegate.api.routes import ROUTES
from tidegate.domain.hosts.protocol import authorization
from tidegate.web import application
from tidegate.web.routing import AGENT, Route

CASES = more(8, long=50)  # generated requests to each operation
AGENT_CASES = more(25, long=50)  # random bodies for agents are rarely valid
PARTS = 6
SHOWN = [route for route in ROUTES if not route.is_page]  # pages are for people
SECONDS_MAX = 280
ANSWER_SECONDS_MAX = 60
# Tables of characters, which the tool would otherwise build again in each start directory.
TABLES = Path(__file__).parents[2] / ".hypothesis"
# A request that the schema allows may still break a rule (409, 422) or find nothing (404), so
# acceptance of valid data is not promised; all other checks of the tool run.
NOT_PROMISED = "positive_data_acceptance"


def parts() -> list[tuple[str, ...]]:
    """The operations in parts of similar size; agent operations need more than a token."""
    names = [route.operation for route in SHOWN if route.permission is not AGENT]
    return [tuple(names[number::PARTS]) for number in range(PARTS)]


def test_is_a_valid_document() -> None:
    OpenAPIV31SpecValidator(document(ROUTES, "1.0")).validate()


def test_names_every_route_once() -> None:
    paths = document(ROUTES, "1.0")["paths"]

    operations = [item["operationId"] for path in paths.values() for item in path.values()]

    assert len(operations) == len(SHOWN)
    assert len(set(operations)) == len(SHOWN)


def test_is_served_as_it_is_generated(shared: Served) -> None:
    answer = shared.client().get("/v1/openapi.json")

    assert answer.json() == document(ROUTES, __version__)


@pytest.mark.parametrize("operations", parts(), ids=range(PARTS))
def test_is_true_of_the_running_server(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations: tuple[str, ...]
) -> None:
    """Generated requests to every operation, with a token that may do everything.

    Each part has a server of its own, because the requests find users in lists and disable them.
    """
    monkeypatch.setattr(
        application, "MIN_POSITION_SECONDS_MAX", 0.02
    )  # no commit ever reaches a generated position
    token = served.everything().headers["authorization"]
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/v1/openapi.json"),
        *("--header", f"Authorization: {token}"),
        *("--phases", "fuzzing", "--max-examples", str(CASES)),
        *("--checks", "all", "--exclude-checks", NOT_PROMISED),
        *("--generation-deterministic", "--no-color", "--suppress-health-check", "all"),
        *("--continue-on-failure", "--request-timeout", str(ANSWER_SECONDS_MAX)),
        *(part for name in operations for part in ("--include-operation-id", name)),
    ]

    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=tmp_path,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(TABLES)},
        check=False,
    )

    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]


# ── what agents do ────────────────────────────────────────────────────────────────────────────────

load_all_checks()
# Requests without their MAC have another test (tests/api/test_agents.py).
EXCLUDED = [positive_data_acceptance, ignored_auth]
AGENTS = [route for route in SHOWN if route.permission is AGENT]


class Signed(AuthBase):
    """Signs each request as the host's agent does, over the bytes that are sent."""

    def __init__(self, agent: WireAgent) -> None:
        self._agent = agent

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        path, _, query = request.path_url.partition("?")
        body = request.body or b""
        assert isinstance(body, bytes | str)
        agent = self._agent
        request.headers["authorization"] = authorization(
            agent.session,
            agent.mac_key,
            str(request.method),
            path.encode(),
            query.encode(),
            body if isinstance(body, bytes) else body.encode(),
            int(agent.clock().timestamp()),
        )
        return request


def told(value: Any, real: dict[str, str]) -> Any:
    """Replace generated names by names that exist."""
    if isinstance(value, dict):
        return {
            name: real[name] if name in real else told(item, real) for name, item in value.items()
        }
    return [told(item, real) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """A rollout in progress, so that agents have something to report."""
    with serve_fleet(tmp_path_factory.mktemp("crew") / "data") as fleet:
        fleet.sail()
        yield fleet


@pytest.mark.parametrize("route", AGENTS, ids=lambda route: route.operation)
def test_is_true_of_responses_to_agents(fleet: ServedFleet, route: Route) -> None:
    """Generated requests with the MAC of an enrolled host, so that they pass authentication."""
    schema = schemathesis.openapi.from_dict(document(ROUTES, "1.0"))
    operation = schema[route.path][route.method]
    agent = fleet.agents["web-01"]
    signed = Signed(agent)
    real = {
        "channel": CHANNEL,
        "release_id": "web.1",
        "rollout_id": ROLLOUT,
        "host_id": "web-01",
    }
    behind: list[int] = []

    @settings(
        max_examples=AGENT_CASES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(), known=booleans())
    def run(case: schemathesis.Case, known: bool) -> None:
        case.query.pop("wait", None)  # a request that waits for an order takes long
        if known:
            case.path_parameters = told(case.path_parameters, real)
            case.body = told(case.body, real)
        found = case.call(base_url=fleet.served.url, auth=signed, timeout=ANSWER_SECONDS_MAX)
        behind.append(found.status_code)
        # A request generated as invalid may become valid with real names.
        case.validate_response(found, excluded_checks=[*EXCLUDED, negative_data_rejection])

    run()

    assert len(behind) >= AGENT_CASES
    # A file needs a real hash, and a report a real state: neither is generated.
    if "sha256" not in route.parameters and route.operation != "agent.report":
        assert any(status < 300 for status in behind)
    assert not [status for status in behind if status in (401, 403) or status >= 500]
