"""A sample request for each route: valid in form, with the required members only."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import msgspec
from msgspec import inspect

from tidegate.web.routing import AGENT, Consumes, Route

PATHS: Final = {
    "repository": "default",
    "name": "default.web.v1",
    "path": "web",
    "user_id": "user_nobody00",
    "token_id": "nobodystoken",
    "scope": "web-stable",
    "release_id": "web.1",
    "intent_id": "RELEASE%23web-stable%2FOUTBOX%23announce",
    "cache_key": "page",
    "channel": "web-stable",
    "rollout_id": "web-stable@web.1",
    "host_id": "web-01",
    "index": "0",
    "sha256": "0" * 64,
}
QUERIES: Final = {"/plan/forecast": "?channel=web-stable", "/events/new": "?after=0"}
# Members whose format their type does not say. All others are generated from their type.
MEMBERS: Final[dict[str, Any]] = {
    "repository": "default",
    "packageName": "web",
    "workspaceName": "sample",
    "digest": "sha256:" + "0" * 64,
    "closure_hash": "sha256:" + "0" * 64,
    "channel": "web-stable",
    "channels": ["web-stable"],
    "package": "default/web",
    "selector": "app=web",
    "release_id": "web.1",
    "release": "web.1",
    "scope": "web-stable",
    "id": "RELEASE#web-stable/OUTBOX#announce",
    "intent_id": "RELEASE#web-stable/OUTBOX#announce",
    "user_id": "user_nobody00",
    "token_id": "nobodystoken",
    "host_id": "web-01",
    "hosts": ["web-01"],
    "role": "viewer",
    "mode": "resume",
    "password": "long and sampled words",
    "observedAt": "2026-04-24T19:00:00Z",
    "uid": "0" * 32,
}


def send(client: httpx2.Client, route: Route, **headers: str) -> httpx2.Response:
    """Send a sample request to the route; of an endless response only the head is read."""
    path = route.path.replace("...}", "}")
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", PATHS.get(name, "sample"))
    path += QUERIES.get(route.path, "")
    if route.is_write:
        headers["if-match"] = '"1"'
    if route.permission is AGENT:
        headers["tidegate-protocol"] = "2"  # else the form is refused first
    if route.content is Consumes.FORM:
        form = sample_form(route.types[2])
        return client.request(route.method, path, headers=headers, data=form)
    body = sample_body(route.types[2]) if route.takes_body else None
    with client.stream(route.method, path, headers=headers, json=body) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


def sample_body(model: type[msgspec.Struct]) -> dict[str, Any]:
    """The required members of a struct, by their names in JSON."""
    found = inspect.type_info(model)
    assert isinstance(found, inspect.StructType)
    return _members(found)


def sample_form(model: type[msgspec.Struct]) -> dict[str, Any]:
    """The same as form fields, with the version that every form carries."""
    members = {name: _as_text(value) for name, value in sample_body(model).items()}
    return {**members, "expected_version": "1"}


def _members(found: inspect.StructType) -> dict[str, Any]:
    return {
        field.encode_name: MEMBERS.get(field.encode_name, _sample(field.type))
        for field in found.fields
        if field.required or field.encode_name in ("channels", "reason")
    }


def _sample(found: inspect.Type) -> Any:
    match found:
        case inspect.Metadata(type=inner):
            return _sample(inner)
        case inspect.UnionType(types=types):
            return _sample(types[0])
        case inspect.StructType():
            tag = {found.tag_field: found.tag} if found.tag_field else {}
            return {**tag, **_members(found)}
        case inspect.IntType(ge=least):
            return 1 if least is None else max(1, least)
        case inspect.FloatType():
            return 1.0
        case inspect.BoolType():
            return False
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.DateTimeType():
            return "2026-04-24T19:00:00Z"
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            return [_sample(found.item_type)] if found.min_length else []
        case inspect.DictType() | inspect.AnyType():
            return {}
        case inspect.StrType(min_length=least):
            return "sample".ljust(least or 0, "0")
        case inspect.NoneType():
            return None
    raise AssertionError(f"no sample of {found}")


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else value
