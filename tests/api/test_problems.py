"""Refusals: every problem names its code, what was found and what is allowed."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.api.problem_checks import check
from tests.api.serving import Served, serving
from tidegate import errors
from tidegate.api.health import Alive
from tidegate.errors import TidegateError
from tidegate.web import application, problems
from tidegate.web.inputs import Nothing
from tidegate.web.routing import PUBLIC, Request, Response, Route

JSON = {"content-type": "application/json"}


def test_maps_every_family_to_its_status() -> None:
    families = {
        errors.Invalid: 400,
        errors.NotFound: 404,
        errors.Forbidden: 403,
        errors.Gone: 410,
        errors.TooLarge: 413,
        errors.PreconditionRequired: 428,
        errors.Refused: 422,
        errors.Conflict: 409,
        errors.Unavailable: 503,
        errors.Unknown: 503,
    }

    assert set(families) == {
        kind for kind in TidegateError.__subclasses__() if kind.__module__ == errors.__name__
    }
    assert {kind: problems.status_of(kind) for kind in families} == families


def test_refuses_unknown_paths_and_methods(shared: Served) -> None:
    client = shared.client()

    check(client.get("/v1/nothing"), 404, "no_such_path")
    check(client.get("/v1/repositories/"), 404, "no_such_path")
    check(client.get("//"), 404, "no_such_path")
    wrong = client.delete("/v1/repositories")
    assert check(wrong, 405, "method_not_allowed")["allowed"] == "GET, POST"
    assert wrong.headers["allow"] == "GET, POST"


def test_refuses_unknown_media_types(shared: Served) -> None:
    admin = shared.admin

    body = check(
        admin.get("/v1/repositories", headers={"accept": "text/html"}), 406, "not_acceptable"
    )
    assert body["allowed"] == "application/json"
    for accept in ("application/*", "*/*", "text/html, application/json;q=0.5"):
        assert admin.get("/v1/me", headers={"accept": accept}).status_code == 200
    xml = admin.post("/v1/repositories", content=b"<a/>", headers={"content-type": "text/xml"})
    assert check(xml, 415, "unsupported_media_type")["allowed"] == "application/json"
    packed = admin.post(
        "/v1/repositories", content=b"{}", headers={**JSON, "content-encoding": "gzip"}
    )
    check(packed, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1,", b"\xff", b'{"name": "\\ud800"}', b"nul", b"[" * 40 + b"]" * 40],
)
def test_refuses_a_body_that_is_not_json(shared: Served, content: bytes) -> None:
    answer = shared.admin.post("/v1/repositories", content=content, headers=JSON)

    assert answer.status_code == 400
    assert answer.json()["code"] in ("malformed_body", "invalid_request")


def test_refuses_a_body_that_is_nested_too_deeply(shared: Served) -> None:
    deep = b'{"a":' * 33 + b"1" + b"}" * 33
    brackets_in_text = json.dumps({"name": "[{" * 100}).encode()

    answer = shared.admin.post("/v1/repositories", content=deep, headers=JSON)
    shallow = shared.admin.post("/v1/repositories", content=brackets_in_text, headers=JSON)

    assert "deeper than 32" in check(answer, 400, "malformed_body")["detail"]
    check(shallow, 400, "invalid_request")


def test_names_every_field_that_is_wrong(shared: Served) -> None:
    body = {"name": "NO", "quorum": 99, "deployment": "x", "more": 1}

    answer = shared.admin.post("/v1/repositories", json=body)

    found = check(answer, 400, "invalid_request")
    assert [fault["field"] for fault in found["errors"]] == [
        "body.more",
        "body.name",
        "body.quorum",
        "body.deployment",
    ]
    missing = shared.admin.post("/v1/users", json={"roles": [{"role": "x"}, {"scope": "*"}]})
    assert {fault["field"] for fault in missing.json()["errors"]} == {
        *("body.login", "body.name"),
        *("body.roles[0].role", "body.roles[1].role"),
    }


def test_names_every_parameter_that_is_wrong(shared: Served) -> None:
    query = "limit=0&min_position=x&other=1&next=a&next=b"

    answer = shared.admin.get(f"/v1/repositories?{query}")

    found = check(answer, 400, "invalid_request")
    assert {fault["field"] for fault in found["errors"]} == {
        *("query.limit", "query.min_position", "query.other", "query.next"),
    }
    check(shared.admin.get("/v1/repositories?next=%ff"), 400, "invalid_request")
    check(shared.admin.get("/v1/repositories/%ff"), 400, "invalid_request")
    formed = check(shared.admin.get("/v1/repositories/UPPER"), 400, "invalid_request")
    assert formed["errors"][0]["detail"].endswith("; found 'UPPER'")
    check(shared.admin.get("/v1/repositories?limit=501"), 400, "invalid_request")


def test_limits_a_body_to_the_byte(shared: Served) -> None:
    admin = shared.admin
    most = 256 * 1024

    def sent(size: int) -> httpx2.Response:
        content = b'{"name":"' + b"x" * (size - 11) + b'"}'
        assert len(content) == size
        return admin.post("/v1/repositories", content=content, headers=JSON)

    check(sent(most), 400, "invalid_request")
    body = check(sent(most + 1), 413, "limit_exceeded")
    assert (body["found"], body["allowed"]) == (most + 1, most)

    def chunks() -> Any:
        for _ in range(300):
            yield b" " * 1024

    check(admin.post("/v1/repositories", content=chunks(), headers=JSON), 413, "limit_exceeded")


def test_limits_the_head_of_a_request(shared: Served) -> None:
    client = shared.client()

    large = client.get("/livez", headers={"x-large": "x" * 17_000})

    check(large, 431, "headers_too_large")
    check(client.get("/livez?a=" + "x" * 17_000), 400, "invalid_request")
    check(client.get("/" + "x" * 17_000), 400, "invalid_request")
    assert client.get("/livez", headers={"x-large": "x" * 15_000}).status_code == 200


@pytest.mark.parametrize("key", ["", "a b", "x" * 65, "ÿ"])
def test_refuses_an_invalid_idempotency_key(shared: Served, key: str) -> None:
    headers = {"idempotency-key": key.encode("latin-1")}

    answer = shared.admin.request(
        "POST",
        "/v1/repositories",
        json={"name": "keyed"},
        headers=[(name.encode(), value) for name, value in headers.items()],
    )

    assert check(answer, 400, "invalid_input")["field"] == "Idempotency-Key"


def test_puts_security_headers_on_every_answer(shared: Served) -> None:
    answers = [
        shared.client().get("/livez"),
        shared.client().get("/v1/nothing"),
        shared.client().get("/v1/me"),
        shared.admin.get("/v1/repositories/default"),
    ]

    for answer in answers:
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] in ("no-store", "private, no-cache")
        assert "server" not in answer.headers


def test_keeps_a_valid_request_id(shared: Served) -> None:
    client = shared.client()

    given = client.get("/livez", headers={"x-request-id": "abc-123"})
    made = client.get("/livez", headers={"x-request-id": "no spaces please"})

    assert given.headers["x-request-id"] == "abc-123"
    assert made.headers["x-request-id"] != "no spaces please"


def broken(request: Request[Nothing, Nothing, Nothing]) -> Response:
    """A handler with a bug."""
    raise RuntimeError("a secret detail")


def test_a_500_reveals_nothing_but_the_request_id(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    route = Route("GET", "/broken", broken, PUBLIC, Alive)
    with serving(tmp_path_factory.mktemp("broken"), routes=(route,)) as served:
        answer = served.client().get("/broken")

        body = check(answer, 500, "internal_error")
        assert "secret" not in answer.text
        assert body["instance"].rpartition("/")[2] in caplog.text
        assert "a secret detail" in caplog.text


def test_refuses_requests_without_a_free_thread(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "WAITING_MAX", 0)

    answer = shared.admin.get("/v1/repositories")

    check(answer, 503, "overloaded")
    assert answer.headers["retry-after"] == "1"


def test_survives_bytes_that_are_not_http(shared: Served) -> None:
    place = urlsplit(shared.url)
    for noise in (
        b"\x00\x01\x02",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/me HTTP/1.1\r\n" + b"a" * 99,
    ):
        with socket.create_connection((place.hostname, place.port), timeout=60) as raw:
            raw.sendall(noise)

    assert shared.client().get("/livez").status_code == 200


def test_reports_a_position_that_the_log_has_not_reached(
    shared: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "MIN_POSITION_SECONDS_MAX", 0.05)
    head = shared.installation.log.head()

    near = shared.admin.get("/v1/repositories", params={"min_position": head + 1_000})
    far = shared.admin.get("/v1/repositories", params={"min_position": 2**53 - 1})

    assert check(near, 409, "position_not_reached")["wanted"] == head + 1_000
    check(far, 409, "position_not_reached")
