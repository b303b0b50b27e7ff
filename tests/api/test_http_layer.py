"""The HTTP layer: health, metrics, HEAD, streams of bytes, routing, rate limits."""

from __future__ import annotations

import shutil

import pytest

from tests.api.serving import Served
from tidegate import __version__
from tidegate.api.health import Alive
from tidegate.api.routes import ROUTES
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.domain.access.roles import Role
from tidegate.domain.access.steps import VersionRule
from tidegate.errors import InvalidDefinition, StoreUnavailable
from tidegate.rate_limits import Bucket, RateLimited
from tidegate.web import decoding
from tidegate.web.authentication import check_origin
from tidegate.web.inputs import Input, Nothing
from tidegate.web.problems import CrossSite
from tidegate.web.routing import PUBLIC, RawRequest, Request, Response, Route, Router


def test_reports_liveness_readiness_and_version(shared: Served) -> None:
    client = shared.client()

    assert client.get("/livez").json() == {"alive": True}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert {check["name"] for check in ready.json()["checks"]} == {"log", "blobs", "outbox", "disk"}
    assert client.get("/version").json()["version"] == __version__


def test_is_not_ready_if_the_log_accepts_no_commits(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*commits: object) -> tuple[StoreUnavailable, ...]:
        return tuple(StoreUnavailable("the disk is full") for _ in commits)

    monkeypatch.setattr(served.installation.store, "commit", away)

    answer = served.client().get("/readyz")

    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "the disk is full" not in answer.text, (
        "the page is public, so only the log has the reason"
    )
    assert "the disk is full" in caplog.text
    assert served.client().get("/livez").status_code == 200


def test_is_not_ready_when_the_data_disk_is_almost_full(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [64 * 2**20 - 1, 64 * 2**20]
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 0, free.pop(0))
    )

    full, room = (served.client().get("/readyz") for _ in range(2))

    assert (full.status_code, full.json()["ready"]) == (503, False)
    assert [check["name"] for check in full.json()["checks"] if not check["ok"]] == ["disk"]
    assert (room.status_code, room.json()["ready"]) == (200, True)


@pytest.mark.parametrize(
    ("public_url", "origin"),
    [
        ("https://gate.example", b"http://gate.example"),
        ("http://gate.example", b"https://gate.example"),
        ("https://gate.example", b"https://gate.example:8443"),
    ],
)
def test_a_write_from_another_scheme_or_port_than_the_public_url_is_cross_site(
    public_url: str, origin: bytes
) -> None:
    settings = Settings(data="/nowhere", public_url=public_url)

    def arrived(origin: bytes) -> RawRequest:
        return RawRequest("POST", b"/v1/x", b"", {b"origin": origin}, "", b"")

    with pytest.raises(CrossSite):
        check_origin(arrived(origin), settings)
    check_origin(arrived(public_url.encode()), settings)


def test_metrics_have_no_labels_from_requests(
    served: Served,
) -> None:
    viewer = served.as_role(Role.VIEWER)
    for number in range(50):
        viewer.get(f"/v1/repositories/made-up-{number}")
        viewer.get(f"/nowhere/{number}")

    text = viewer.get("/metrics").text

    assert 'operation="repositories.get",status="404"} 50.0' in text
    assert 'operation="none",status="404"} 50.0' in text
    assert "made-up" not in text
    assert "tidegate_log_position" in text
    assert served.client().get("/metrics").status_code == 401


def test_answers_head_as_get_without_its_body(shared: Served) -> None:
    get = shared.admin.get("/v1/repositories/default")

    head = shared.admin.head("/v1/repositories/default")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert head.headers["etag"] == get.headers["etag"]


def test_verifies_the_views_for_auditors(shared: Served) -> None:
    found = shared.as_role(Role.AUDITOR).get("/v1/views/verify").json()

    assert (found["verified"], found["differences"]) == (True, [])


# ── routes as values ──────────────────────────────────────────────────────────────────────────────


class Named(Input, frozen=True):
    name: str


class Loose(Input, frozen=True, forbid_unknown_fields=False):
    name: str


def plain(request: Request[Nothing, Nothing, Nothing], installation: Installation) -> Response:
    """Do nothing."""
    return Response(Alive())


def named(request: Request[Named, Nothing, Nothing], installation: Installation) -> Response:
    """Do something with a name."""
    return Response(Alive())


def loose(request: Request[Nothing, Nothing, Loose], installation: Installation) -> Response:
    """Accept unknown fields."""
    return Response(Alive())


def untyped(request: object, installation: Installation) -> Response:
    """Take a request without a type."""
    return Response(Alive())


def test_refuses_invalid_routes() -> None:
    with pytest.raises(InvalidDefinition, match="in its path"):
        Route("GET", "/a/{name}", plain, PUBLIC, Alive)
    with pytest.raises(InvalidDefinition, match="must be an Input"):
        Route("POST", "/a", loose, PUBLIC, Alive)
    with pytest.raises(InvalidDefinition, match="Request"):
        Route("GET", "/a", untyped, PUBLIC, Alive)
    with pytest.raises(InvalidDefinition, match="only reads"):
        Route("GET", "/a", plain, PUBLIC, Alive, guard=VersionRule.DEMANDED)
    with pytest.raises(InvalidDefinition, match="no route"):
        Route("STEAL", "/a", plain, PUBLIC, Alive)
    once = Route("GET", "/b", plain, PUBLIC, Alive)
    with pytest.raises(InvalidDefinition, match="two operations"):
        Router((once, once))


def test_matches_literals_before_parameters_and_tails_last() -> None:
    routes = (
        Route("GET", "/a/fixed", plain, PUBLIC, Alive),
        Route("GET", "/a/{name}", named, PUBLIC, Alive),
    )
    router = Router(routes)

    def found(path: str) -> tuple[str, list[str]] | None:
        hit = router.find(decoding.segments_of(path.encode()))
        return None if hit is None else (hit[0]["GET"].path, hit[1])

    assert found("/a/fixed") == ("/a/fixed", [])
    assert found("/a/other") == ("/a/{name}", ["other"])
    assert found("/a/o%2Fther") == ("/a/{name}", ["o/ther"])
    assert found("/a/{name}") == ("/a/{name}", ["{name}"])
    assert found("/a/{}") == ("/a/{name}", ["{}"])
    assert found("/a/") is None
    assert found("/a") is None
    assert found("/a/b/c") is None


def test_declares_a_summary_for_every_route() -> None:
    assert [route.name for route in ROUTES if not route.summary.endswith(".")] == []


# ── rate limits ───────────────────────────────────────────────────────────────────────────────────


def test_a_rate_limit_refills_over_time() -> None:
    now = [0.0]
    bucket = Bucket("tests", 2, 3, monotonic=lambda: now[0])
    for _ in range(3):
        bucket.take("a")

    with pytest.raises(RateLimited) as limited:
        bucket.take("a")
    bucket.take("b")
    now[0] = 0.5
    bucket.take("a")
    with pytest.raises(RateLimited):
        bucket.take("a")
    now[0] = 100
    for _ in range(3):
        bucket.take("a")

    assert limited.value.facts["retry_after"] == 1


def test_rate_limits_keep_a_bounded_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.rate_limits.KEYS_MAX", 10)
    bucket = Bucket("tests", 1, 1, monotonic=lambda: 0.0)

    for number in range(1_000):
        bucket.take(str(number))

    assert len(bucket._levels) == 10
