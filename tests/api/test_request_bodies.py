"""A body costs the server no more than the client: its size, its values, its errors."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.problem_checks import check
from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.web import decoding
from tidegate.web.routing import PUBLIC, SIGN_IN_BYTES_MAX, Route

JSON = {"content-type": "application/json"}
LARGE = 100_000  # bytes: more than the event loop decodes itself


@pytest.fixture
def decoded_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that decoded bodies."""
    names: list[str] = []
    body_of = decoding.body_of

    def noted(route: Route, raw: bytes) -> Any:
        if raw:
            names.append(threading.current_thread().name)
        return body_of(route, raw)

    monkeypatch.setattr(decoding, "body_of", noted)
    return names


@pytest.fixture
def author(shared: Served) -> httpx2.Client:
    return shared.everything()


def draft(name: str, **members: Any) -> dict[str, Any]:
    return {"repository": "default", "packageName": "web", "workspaceName": name, **members}


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v1/agent/enroll", "/v1/agent/session"])
def test_accepts_four_kib_from_unauthenticated_clients(shared: Served, path: str) -> None:
    most = json.dumps({"x": "y" * (4_096 - 9)}).encode()
    assert len(most) == 4_096

    fits = shared.client().post(path, content=most, headers=JSON)
    larger = shared.client().post(path, content=most + b" ", headers=JSON)

    assert fits.status_code == 400
    assert check(larger, 413, "limit_exceeded")["allowed"] == 4_096


SIGN_IN_ROUTES = (
    *("/v1/setup", "/v1/sessions", "/v1/password-resets"),
    *("/setup", "/signin", "/reset"),
)


def test_no_public_route_accepts_more_than_it_needs() -> None:
    takes = {
        route.path: route.body_bytes_max
        for route in (*ROUTES, *PAGES)
        if route.permission is PUBLIC and route.takes_body
    }

    assert takes == {
        **dict.fromkeys(("/v1/agent/enroll", "/v1/agent/session"), 4_096),
        **dict.fromkeys(SIGN_IN_ROUTES, SIGN_IN_BYTES_MAX),
    }


def test_the_longest_name_and_password_fit(shared: Served) -> None:
    credentials = {"login": "\N{WATER WAVE}" * 64, "password": "\N{WATER WAVE}" * 256}

    answer = shared.client().post("/v1/sessions", content=json.dumps(credentials), headers=JSON)

    check(answer, 403, "wrong_credentials")


def test_counts_a_request_before_it_decodes_the_body(tmp_path: Path, decoded_in: list[str]) -> None:
    with serving(tmp_path / "data", writes_per_second=1) as served:
        client = served.client()
        codes = [
            client.post("/v1/sessions", content=b'{"a": 1}', headers=JSON).json()["code"]
            for _ in range(6)
        ]

    assert codes[:2] == ["invalid_request"] * 2
    assert "rate_limited" in codes
    assert len(decoded_in) == codes.count("invalid_request")


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_lists_the_first_faults_and_the_number_of_others(shared: Served) -> None:
    body = {f"member{number:03}": 1 for number in range(50)}

    found = check(shared.admin.post("/v1/repositories", json=body), 400, "invalid_request")

    assert len(found["errors"]) == 20
    assert found["count"] == 51  # the name is missing as well
    assert found["detail"].endswith("; and 43 more")


def test_stops_looking_for_faults_at_a_limit(shared: Served) -> None:
    body = {f"member{number:04}": 1 for number in range(3_000)}

    found = check(shared.admin.post("/v1/repositories", json=body), 400, "invalid_request")

    assert len(found["errors"]) == 20
    assert found["detail"].endswith("; and at least 192 more")


def test_shortens_a_long_unknown_name(shared: Served) -> None:
    found = shared.admin.post("/v1/repositories", json={"name": "a", "x" * 10_000: 1}).json()

    assert found["errors"][0]["field"] == "body." + "x" * 80


def test_names_the_faulty_one_of_many_files(author: httpx2.Client) -> None:
    files: list[dict[str, Any]] = [{"path": f"f{number}", "text": ""} for number in range(500)]
    files[321]["path"] = 5

    answer = author.post("/v1/revisions", json=draft("v1", files=files))

    found = check(answer, 400, "invalid_request")

    assert [fault["field"] for fault in found["errors"]] == ["body.files[321].path"]


# ── large bodies ──────────────────────────────────────────────────────────────────────────────────


def test_decodes_a_large_body_off_the_event_loop(
    author: httpx2.Client, decoded_in: list[str]
) -> None:
    small = author.post("/v1/repositories", json={"name": "small"})
    files = [{"path": "a", "text": '[{,\\"' * (LARGE // 4)}]
    large = author.post("/v1/revisions", json=draft("large", files=files))

    assert (small.status_code, large.status_code) == (201, 201), large.text
    assert decoded_in[0] == "served"
    assert decoded_in[1].startswith("tidegate-api")


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"files": [{"path": "a", "text": "x" * LARGE}, {"path": 5}]}, "body.files[1].path"),
        ({"files": [{"path": "a", "text": "x" * LARGE, "more": 1}]}, "body.files[0]"),
        ({"files": [{"path": "a", "text": "x" * LARGE}], "lifecycle": []}, "body.lifecycle"),
        ({"files": [0] * LARGE}, "body.files[0]"),
    ],
)
def test_names_the_first_fault_of_a_large_body(
    author: httpx2.Client, members: dict[str, Any], field: str
) -> None:
    answer = author.post("/v1/revisions", json=draft("faulty", **members))

    assert [fault["field"] for fault in check(answer, 400, "invalid_request")["errors"]] == [field]


def test_refuses_a_large_body_that_is_not_json(author: httpx2.Client) -> None:
    for content in (b'{"repository": "' + b"x" * LARGE, b"[" * LARGE, b"\\" * LARGE):
        answer = author.post("/v1/revisions", content=content, headers=JSON)
        assert check(answer, 400, "malformed_body")


@pytest.mark.parametrize("again", [b"0,", b"{},", b'"",', b'{"a":[0]},'], ids=str)
def test_refuses_a_body_of_too_many_values(author: httpx2.Client, again: bytes) -> None:
    content = b'{"files":[' + again * 600_000 + b"0]}"

    answer = author.post("/v1/revisions", content=content, headers=JSON)

    assert check(answer, 413, "limit_exceeded")["limit"] == "values of a body"
