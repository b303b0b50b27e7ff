"""The OpenAPI document as tools use it: short names, typed bodies, two stock generators."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import Served
from tidegate.api.openapi import document
from tidegate.api.routes import ROUTES
from tidegate.domain.access.roles import Grant, Role

SECONDS_MAX = 120
TOOLS = Path(sys.executable).parent
SHORT = re.compile(r"[A-Z][A-Za-z0-9]{0,39}")

# Operations that openapi-python-client cannot parse. It must generate all others.
UNPARSED_MEDIA = {"application/x-tar"}

# Objects whose members the API does not fix. All others are typed.
OPEN_OBJECTS = {
    "CloudEvent.data": "the members of an event, by its type",
    "RolloutEvent.data": "the same",
    "DryRunFact.value": "the members of a fact, by its type",
    "EvidenceSent.document": "stored as it was sent",
    "Happened.value": "a row or a fact, by its type",
    "KeptEvidence.document": "stored as it was sent",
    "PolicyAsked.policy": "any document: what is wrong with it is the answer",
    "PolicyChange.after": "a value of any member",
    "PolicyChange.before": "a value of any member",
    "PolicyChecked.policy": "the document that was asked about",
    "PolicyShown.policy": "the policy as a document that can be sent back",
    "DecidedRequest.command": "the arguments of a verb, by its kind",
    "RequestShown.command": "the arguments of a verb, by its kind",
}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document(ROUTES, "1.0")


def test_component_names_are_short_and_are_the_titles(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]

    assert [name for name in schemas if not SHORT.fullmatch(name)] == []
    assert {name: item.get("title", name) for name, item in schemas.items()} == {
        name: name for name in schemas
    }


def test_every_object_is_typed_or_is_listed_as_open(described: dict[str, Any]) -> None:
    found = {
        f"{name}.{member}"
        for name, schema in described["components"]["schemas"].items()
        for member, content in schema.get("properties", {}).items()
        for part in parts(content)
        if is_untyped(part)
    }

    assert found == set(OPEN_OBJECTS)


def test_a_report_is_one_of_the_kinds_that_agents_send(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]

    report = schemas["AgentReport"]
    arms = [schemas[arm["$ref"].rpartition("/")[2]] for arm in report["anyOf"]]

    assert len(arms) == 14
    assert report["discriminator"]["propertyName"] == "kind"
    assert all(
        {"kind", "rollout_id", "host_id", "at", "seq"} <= set(arm["required"]) for arm in arms
    )


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and the schemas in it."""
    if isinstance(schema, dict):
        yield schema
        for name, item in schema.items():
            if name not in ("default", "discriminator", "enum", "propertyNames"):
                yield from parts(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from parts(item)


def is_untyped(schema: dict[str, Any]) -> bool:
    if schema.get("type") == "object":
        return "properties" not in schema and schema.get("additionalProperties", True) is True
    return not schema.keys() & {"$ref", "anyOf", "oneOf", "type", "enum", "const", "propertyName"}


# ── stock generators ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def served_document(
    shared: Served, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The document as the server sends it, in a file."""
    content = shared.client().get("/v1/openapi.json").content
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_bytes(content)
    return path, json.loads(content)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a tool, which must succeed, and return its output."""
    ran = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=cwd,
        env={**os.environ, "PATH": f"{TOOLS}:{os.environ.get('PATH', '')}", "NO_COLOR": "1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr[-5_000:]
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def generated_client(served_document: tuple[Path, dict[str, Any]]) -> tuple[Path, str]:
    """A package made by openapi-python-client, and the tool's output."""
    path, _ = served_document
    printed = run(
        *(TOOLS / "openapi-python-client", "generate", "--meta", "none"),
        *("--path", path, "--output-path", path.parent / "generated_client"),
        cwd=path.parent,
    )
    return path.parent, printed


def test_openapi_python_client_generates_every_operation(
    served_document: tuple[Path, dict[str, Any]], generated_client: tuple[Path, str]
) -> None:
    directory, printed = generated_client
    modules = {
        path.stem
        for path in (directory / "generated_client" / "api").rglob("*.py")
        if path.stem != "__init__"
    }

    assert modules == {
        re.sub(r"[.-]", "_", operation["operationId"])
        for methods in served_document[1]["paths"].values()
        for operation in methods.values()
    }
    assert set(re.findall(r"Unsupported content_type ([^)]*)", printed)) <= UNPARSED_MEDIA
    media = re.findall(r"Unsupported content_type (\S+?)\)", printed)
    assert set(media) == UNPARSED_MEDIA, printed
    assert len(re.findall(r"\bWARNING\b", printed)) == len(media), printed
    assert "ERROR" not in printed


def test_a_generated_client_talks_to_a_running_server(
    shared: Served, generated_client: tuple[Path, str]
) -> None:
    """Imports every generated module, creates a repository with the client, and reads it back."""
    directory, _ = generated_client
    token = shared.token(shared.user(*(Grant(role) for role in Role)))
    program = directory / "use_client.py"
    program.write_text(PROGRAM)

    printed = run(sys.executable, "-W", "error", program, shared.url, token, cwd=directory)

    assert printed.splitlines() == [
        "created generated",
        "listed default generated",
        "missing not_found",
    ]


PROGRAM = """
import importlib, pkgutil, sys
import generated_client
from generated_client import AuthenticatedClient, models
from generated_client.api.repositories import (
    repositories_create, repositories_get, repositories_list_all
)

for module in pkgutil.walk_packages(generated_client.__path__, "generated_client."):
    importlib.import_module(module.name)
url, token = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True) as client:
    body = models.NewRepository(name="generated")
    made = repositories_create.sync(client=client, body=body)
    print("created", made.name)
    page = repositories_list_all.sync(client=client)
    print("listed", *[item.name for item in page.items])
    missing = repositories_get.sync("nothing", client=client)
    assert isinstance(missing, models.Problem)
    print("missing", missing.code)
"""


def test_datamodel_code_generator_makes_models_that_import(
    served_document: tuple[Path, dict[str, Any]],
) -> None:
    path, content = served_document
    printed = run(
        *(TOOLS / "datamodel-codegen", "--input", path, "--input-file-type", "openapi"),
        *("--output", path.parent / "generated_models.py"),
        *("--output-model-type", "pydantic_v2.BaseModel", "--target-python-version", "3.11"),
        *("--formatters", "builtin"),
        cwd=path.parent,
    )
    names = sorted(content["components"]["schemas"])
    program = (
        f"import generated_models as models\nprint([n for n in {names} if not hasattr(models, n)])"
    )

    missing = run(sys.executable, "-W", "error", "-c", program, cwd=path.parent)

    assert printed.strip() == ""
    assert missing.strip() == "[]"
