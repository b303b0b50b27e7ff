"""The OpenAPI 3.1 document of the API, derived from routes and their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec.structs import FieldInfo, fields

from tidegate.api.agents.auth import SERVED
from tidegate.domain.access import dry_runs, steps
from tidegate.domain.hosts import protocol, report_json
from tidegate.domain.provenance import Confidence, Provenance
from tidegate.web import decoding, inputs, problems, routing as web_routing, shapes

REFERENCE = "#/components/schemas/{name}"
JsonSchema = dict[str, Any]

_TAIL = re.compile(r"\{([a-z][a-z0-9_]*)\.\.\.\}")
_PAGE = re.compile(r"Listed_(\w+)_")  # how msgspec names Listed[Item]

HEADERS: dict[str, JsonSchema] = {
    "If-Match": {"type": "string", "pattern": '^"[0-9]{1,15}(-[0-9]{1,15})*"$'},
    "If-None-Match": {"type": "string"},
    "If-Range": {"type": "string"},
    "Range": {"type": "string", "pattern": "^bytes=[0-9]{0,20}-[0-9]{0,20}$"},
    "Idempotency-Key": {"type": "string", "pattern": f"^[!-~]{{1,{decoding.KEY_CHARS_MAX}}}$"},
    "Tidegate-Dry-Run": {"type": "string", "enum": ["true", "false"]},
    "Tidegate-Break-Glass": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9%._~-]{0,1000}$"},
    protocol.PROTOCOL_HEADER: {"type": "string", "enum": sorted(map(str, SERVED))},
}


def document(routes: Sequence[web_routing.Route], version: str) -> dict[str, Any]:
    """Build the whole document."""
    routes = [route for route in routes if not route.is_page]
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _TAIL.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    assembled = {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": version,
            "description": "A release control plane. Every write answers its log position; every "
            "error is a problem detail with a stable code.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": noun} for noun in sorted({route.noun for route in routes})],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "tg_<id>_<secret>"},
                "session": {"type": "apiKey", "in": "cookie", "name": "tidegate_session"},
                "agent": {"type": "http", "scheme": "tidegate-mac"},
            },
        },
    }
    # As JSON: tuples among the defaults become arrays.
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(assembled))
    return found


class _Schemas:
    """The JSON Schemas of all types that routes name, each once."""

    def __init__(self, routes: Sequence[web_routing.Route]) -> None:
        self._types: list[Any] = [shapes.Problem, Provenance, Confidence]
        for route in routes:
            _, _, body = route.types
            if (
                route.content is web_routing.Consumes.JSON
                or route.content is web_routing.Consumes.FORM
            ):
                self._types.append(body)
            if route.answer is not None:
                self._types.append(route.answer)
            if route.requests is not None:
                self._types.append(route.requests)
            if route.dry_run:
                self._types.append(dry_runs.DryRunShown)
        self._types = list({repr(item): item for item in self._types}.values())
        schemas, components = msgspec.json.schema_components(self._types, ref_template=REFERENCE)
        names = {name: _PAGE.sub(r"\1Page", name) for name in components}
        self._found: dict[str, JsonSchema] = {
            repr(item): _rename_references(schema, names)
            for item, schema in zip(self._types, schemas, strict=True)
        }
        self.components: dict[str, Any] = {
            names[name]: {**_rename_references(schema, names), "title": names[name]}
            for name, schema in components.items()
        }
        self.components |= _report_schemas()
        self.components["Problem"]["additionalProperties"] = True
        for (name, member), real_schema in REAL_SCHEMAS.items():
            self.components[name]["properties"][member].update(real_schema)
            if "anyOf" in real_schema or "$ref" in real_schema:
                self.components[name]["properties"][member].pop("type", None)

    def of(self, hint: Any) -> JsonSchema:
        return self._found[repr(hint)]


def _rename_references(schema: Any, names: Mapping[str, str]) -> Any:
    """A copy of a schema whose references use these names."""
    if isinstance(schema, dict):
        return {
            key: _reference(names[item.rpartition("/")[2]])
            if key == "$ref"
            else _rename_references(item, names)
            for key, item in schema.items()
        }
    return (
        [_rename_references(item, names) for item in schema] if isinstance(schema, list) else schema
    )


# ── bodies that operations decode ─────────────────────────────────────────────────────────────────

# The server decodes these members itself, so that one bad report of a batch gets its own result,
# and bad evidence is refused with a reason. Their Structs have ``dict``; the document describes the
# real members.


def _reference(name: str) -> str:
    return REFERENCE.format(name=name)


def _report_schemas() -> dict[str, JsonSchema]:
    """One schema per kind of report, and one of any kind."""
    _, components = msgspec.json.schema_components(
        report_json.KINDS.values(), ref_template=REFERENCE
    )
    for kind in report_json.KINDS:
        event = components.pop(kind)
        components[f"{kind}Report"] = {
            **event,
            "title": f"{kind}Report",
            "properties": {"kind": {"type": "string", "const": kind}, **event["properties"]},
            "required": ["kind", *event["required"]],
        }
    places = {kind: _reference(f"{kind}Report") for kind in report_json.KINDS}
    components["AgentReport"] = {
        "title": "AgentReport",
        "description": "One report of an agent. Its kind says which members it has.",
        "anyOf": [{"$ref": place} for place in places.values()],
        "discriminator": {"propertyName": "kind", "mapping": places},
    }
    return components


def _open(description: str) -> JsonSchema:
    return {"additionalProperties": True, "description": description}


REAL_SCHEMAS: Final[Mapping[tuple[str, str], JsonSchema]] = {
    ("Reports", "report"): {
        "anyOf": [{"$ref": _reference("AgentReport")}, {"type": "null"}],
    },
    ("Reports", "reports"): {
        "anyOf": [
            {
                "type": "array",
                "items": {"$ref": _reference("AgentReport")},
                "maxItems": protocol.REPORTS_MAX,
            },
            {"type": "null"},
        ],
    },
    ("Pin", "provenance"): {"$ref": _reference("Provenance")},
    ("Pin", "confidence"): {"$ref": _reference("Confidence")},
    ("CloudEvent", "data"): {
        "type": "object",
        **_open("The members of the event. `type` names the event."),
    },
    ("Happened", "value"): _open("The row that was written once, or else the event."),
    ("EvidenceSent", "document"): _open("Any JSON object. It is stored as you send it."),
    ("KeptEvidence", "document"): _open("The JSON object as it was sent."),
}


def _operation(route: web_routing.Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "tags": [route.noun],
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
        "security": [{name: []} for name in _schemes(route)],
    }
    if isinstance(route.permission, web_routing.Requires):
        operation["x-tidegate-permission"] = " or ".join(route.permission.verbs)
    if route.errors:
        operation["x-tidegate-codes"] = sorted({error.code for error in route.errors})
    if route.takes_body:
        schema: JsonSchema = {"type": "string", "format": "binary"}
        if route.content is not web_routing.Consumes.BYTES:
            schema = schemas.of(route.types[2])
        operation["requestBody"] = {
            "required": not route.has_optional_body or route.content is web_routing.Consumes.BYTES,
            "content": {route.content.value: {"schema": schema}},
        }
    return operation


def _schemes(route: web_routing.Route) -> tuple[str, ...]:
    if route.permission is web_routing.PUBLIC:
        return ()
    return ("agent",) if route.permission is web_routing.AGENT else ("token", "session")


def _parameters(route: web_routing.Route) -> list[dict[str, Any]]:
    path, query, _ = route.types
    found = [_parameter(item, "path") for item in _fields(path)]
    found += [_parameter(item, "query") for item in _fields(query)]
    names: list[tuple[str, bool]] = []
    if problems.UnsupportedProtocol in route.errors:
        names.append((protocol.PROTOCOL_HEADER, True))
    if route.is_write:
        names.append(("Idempotency-Key", False))
    if route.requests is not None:
        names.append(("Tidegate-Break-Glass", False))
    if route.dry_run:
        names.append(("Tidegate-Dry-Run", False))
    if route.guard is not steps.VersionRule.IGNORED:
        # A request without it gets a 428, so the header is optional here.
        names.append(("If-Match", False))
    if route.cached or route.ranges:
        names.append(("If-None-Match", False))
    if route.ranges:
        names += [("Range", False), ("If-Range", False)]
    found += [
        {"name": name, "in": "header", "required": required, "schema": HEADERS[name]}
        for name, required in names
    ]
    return found


def _fields(struct: type[inputs.Input]) -> Iterable[FieldInfo]:
    return () if struct is inputs.Nothing else fields(struct)


def _parameter(item: FieldInfo, where: str) -> dict[str, Any]:
    schema, components = msgspec.json.schema_components([item.type], ref_template=REFERENCE)
    found = _inline(schema[0], components)
    if item.default not in (msgspec.NODEFAULT, None, ""):
        found["default"] = msgspec.to_builtins(item.default)
    parameter = {
        "name": item.encode_name,
        "in": where,
        "required": item.required or where == "path",
        "schema": found,
    }
    if where == "path" and found.get("type") == "string":
        found.setdefault("minLength", 1)
    return parameter


def _inline(schema: JsonSchema, components: dict[str, Any]) -> JsonSchema:
    """Inline a parameter's schema: enums are components of their own, and null has no text form."""
    reference = schema.get("$ref")
    if reference is not None:
        return dict(components[reference.rpartition("/")[2]])
    if "anyOf" in schema:
        arms = [_inline(arm, components) for arm in schema["anyOf"] if arm != {"type": "null"}]
        if len(arms) == 1:
            return arms[0]
    if schema.get("type") == "array":
        return {**schema, "items": _inline(schema["items"], components)}
    return dict(schema)


def _responses(route: web_routing.Route, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    partly = (206,) if route.ranges else ()
    for status in (route.status if route.answer is not None else 204, *route.also, *partly):
        found[str(status)] = _success(route, status, schemas)
    if route.requests is not None:
        found["202"] = {
            "description": "A request was made: the channel is protected",
            "content": {web_routing.JSON: {"schema": schemas.of(route.requests)}},
        }
    if route.dry_run:
        _add_dry_run(found, schemas)
    if route.cached or route.ranges:
        found["304"] = {"description": "Not Modified"}
    for status in sorted(_problem_statuses(route) - set(map(int, found))):
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {problems.MEDIA: {"schema": REF_PROBLEM}},
        }
    return found


def _add_dry_run(found: dict[str, Any], schemas: _Schemas) -> None:
    """Add the 200 of a dry run."""
    shown = schemas.of(dry_runs.DryRunShown)
    done = found.setdefault("200", {"description": "What it would record; nothing was changed"})
    content = done.setdefault("content", {}).setdefault(web_routing.JSON, {})
    arms = [content["schema"], shown] if "schema" in content else [shown]
    content["schema"] = {"anyOf": arms} if len(arms) > 1 else shown


REF_PROBLEM = {"$ref": REFERENCE.format(name="Problem")}


def _success(route: web_routing.Route, status: int, schemas: _Schemas) -> dict[str, Any]:
    response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if route.answer is not None and status != 204:
        schema = schemas.of(route.answer)
        if route.answer is bytes:
            schema = {"type": "string", "format": "binary"}
        content = {route.produces: {"schema": schema}}
        if route.streams:
            content[web_routing.EVENT_STREAM] = {"schema": {"type": "string"}}
        if status >= 500:
            content[problems.MEDIA] = {"schema": REF_PROBLEM}
        response["content"] = content
    headers: dict[str, Any] = {}
    if route.cached or route.ranges:
        headers["ETag"] = {"schema": {"type": "string"}}
    if route.ranges:
        headers["Accept-Ranges"] = {"schema": {"type": "string"}}
    if status == 206:
        headers["Content-Range"] = {"schema": {"type": "string"}}
    if route.is_write:
        headers["Tidegate-Position"] = {"schema": {"type": "string"}}
    if headers:
        response["headers"] = headers
    return response


def _problem_statuses(route: web_routing.Route) -> set[int]:
    """Every status that the framework or the route itself may return."""
    found = {400, 406, 429, 431, 503}
    if route.permission is not web_routing.PUBLIC:
        found |= {401, 403}
    else:
        found.add(401)  # a credential that was sent and is invalid
    if "min_position" in route.types[1].__struct_fields__:
        found.add(problems.status_of(problems.PositionNotReached))
    if route.parameters:
        found.add(404)
    if route.ranges:
        found.add(problems.status_of(problems.RangeNotSatisfiable))
    if route.is_write:
        found |= {403, 404, 409, 422}
    if route.takes_body:
        found |= {413, 415, 422}
    if route.guard is not steps.VersionRule.IGNORED:
        found.add(428)
    return found | {problems.status_of(error) for error in route.errors}


# ── serving ───────────────────────────────────────────────────────────────────────────────────────


class ApiDocument:
    """The OpenAPI document of a server's own routes."""

    def __init__(self, routes: tuple[web_routing.Route, ...], version: str) -> None:
        self._routes = routes
        self._version = version

    @cached_property
    def content(self) -> bytes:
        """The document as bytes."""
        return msgspec.json.encode(document(self._routes, self._version))


def openapi(
    request: web_routing.Request[inputs.Nothing, inputs.Nothing, inputs.Nothing],
    description: ApiDocument,
) -> web_routing.Response:
    """The OpenAPI document of this server."""
    return web_routing.Response(description.content)


Facts = dict[str, Any]

ROUTES = (
    web_routing.Route("GET", "/v1/openapi.json", openapi, web_routing.PUBLIC, Facts, quick=True),
)
