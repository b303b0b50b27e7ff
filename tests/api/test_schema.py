"""The OpenAPI document: valid, complete, and true of the running server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.api.serving import Served
from tidegate.api import app
from tidegate.api.openapi import document
from tidegate.api.routes import ROUTES
from tidegate.api.routing import AGENT

CASES = 25
PARTS = 12
SHOWN = [route for route in ROUTES if not route.is_page]  # pages are for people
SECONDS_MAX = 100
# A request that the schema allows may still meet a rule (409, 422) or nothing at all (404), so
# acceptance of valid data is no promise; everything else that the tool knows is checked.
NOT_PROMISED = "positive_data_acceptance"


def parts() -> list[tuple[str, ...]]:
    """The operations in parts of about as many; what agents do needs more than a token."""
    names = [route.operation for route in SHOWN if route.permission is not AGENT]
    return [tuple(names[number::PARTS]) for number in range(PARTS)]


def test_is_a_valid_document() -> None:
    OpenAPIV31SpecValidator(document(ROUTES, "1.0")).validate()


def test_names_every_route_once() -> None:
    paths = document(ROUTES, "1.0")["paths"]

    operations = [item["operationId"] for path in paths.values() for item in path.values()]

    assert len(operations) == len(SHOWN)
    assert len(set(operations)) == len(SHOWN)


def test_is_served_as_it_is_derived(shared: Served) -> None:
    answer = shared.client().get("/v1/openapi.json")

    assert answer.json() == document(ROUTES, shared.installation.version)


@pytest.mark.parametrize("operations", parts(), ids=range(PARTS))
def test_is_true_of_the_running_server(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operations: tuple[str, ...]
) -> None:
    """Generated requests to every operation, with a token that may everything.

    Each part has a server of its own: they find users in lists, and disable them.
    """
    monkeypatch.setattr(app, "MIN_POSITION_SECONDS_MAX", 0.02)  # nobody comes to what is made up
    token = served.everything().headers["authorization"]
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/v1/openapi.json"),
        *("--header", f"Authorization: {token}"),
        *("--phases", "fuzzing", "--max-examples", str(CASES)),
        *("--checks", "all", "--exclude-checks", NOT_PROMISED),
        *("--generation-deterministic", "--no-color", "--suppress-health-check", "all"),
        "--continue-on-failure",
        *(part for name in operations for part in ("--include-operation-id", name)),
    ]

    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=tmp_path, check=False
    )

    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
