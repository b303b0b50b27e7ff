"""A person opens a new installation in a browser."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES

BROWSER = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
PERSON = {"login": "ada", "name": "Ada", "password": "correct horse battery", "alone": "true"}


def browser(served: Served) -> httpx2.Client:
    client = served.client(None, **BROWSER)
    client.follow_redirects = True
    return client


@pytest.mark.parametrize("path", ["/", "/channels", "/releases?tab=all"])
def test_redirects_to_setup_until_there_is_a_user_and_to_sign_in_after(
    tmp_path: Path, path: str
) -> None:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES), is_set_up=False) as served:
        code = served.installation.accounts.open_setup()
        person, later = browser(served), browser(served)

        first = person.get(path)
        assert (first.status_code, first.url.path) == (200, "/setup")
        assert first.history[0].status_code == 303
        assert 'action="/setup"' in first.text

        done = person.post("/setup", data={**PERSON, "code": code})
        assert (done.status_code, done.url.path) == (200, "/")
        assert "Ada" in done.text

        stranger = later.get(path)
        assert (stranger.status_code, stranger.history) == (401, [])
        assert 'action="/signin"' in stranger.text
        assert later.get("/setup").url.path == "/signin"


def test_answers_programs_and_forms_the_same_before_and_after_setup(tmp_path: Path) -> None:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES), is_set_up=False) as served:
        client = served.client(None, **BROWSER)

        answers = {
            "api": client.get("/v1/me", headers={"accept": "application/json"}),
            "form": client.post("/channels/web/hold", data={"reason": "x"}),
            "stream": client.get("/live", headers={"accept": "text/event-stream"}),
        }

        assert {name: answer.status_code for name, answer in answers.items()} == {
            "api": 401,
            "form": 401,
            "stream": 401,
        }
