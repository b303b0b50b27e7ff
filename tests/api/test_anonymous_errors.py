"""Errors tell clients without credentials nothing about paths, hosts and databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Role
from tidegate.errors import StoreUnavailable

INTERNAL = 'connection to server on socket "/run/pg/.s.PGSQL.5432" failed'


def break_store(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable(INTERNAL, path="/run/pg")

    for method in ("get", "range", "read"):
        monkeypatch.setattr(served.installation.store, method, away)


def test_a_problem_contains_no_details(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_store(served, monkeypatch)

    answer = served.client().post("/v1/sessions", json={"login": "ada", "password": "x" * 12})

    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert answer.json()["detail"] == (
        "The server cannot do this at the moment. The reason is in the server's log."
    )
    assert "/run/pg" not in answer.text
    assert INTERNAL in caplog.text
    assert answer.headers["x-request-id"] in caplog.text


def test_an_error_page_contains_no_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    form = {"login": "ada", "password": "x" * 12}
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES)) as served:
        break_store(served, monkeypatch)
        browser = served.client(accept="text/html")

        answers = (
            browser.post("/signin", data=form),
            browser.get("/signin"),
            browser.get("/setup"),
        )

    for answer in answers:
        assert answer.status_code == 503, answer.url
        assert "/run/pg" not in answer.text
    assert INTERNAL in caplog.text


def test_a_user_who_is_signed_in_sees_the_reason(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = served.as_role(Role.VIEWER)
    assert viewer.get("/v1/repositories").status_code == 200

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable(INTERNAL)

    monkeypatch.setattr(served.installation.store, "range", away)

    assert viewer.get("/v1/repositories").json()["detail"] == INTERNAL
