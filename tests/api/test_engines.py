"""One story over HTTP on every engine: the same answers, whatever holds the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from tests.api.serving import Served, serving
from tests.api.test_packages import NAME, People


@pytest.fixture
def everywhere(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """A server on each engine."""
    name = f"api_{uuid4().hex[:16]}"
    store = "memory:"
    match engine:
        case "sqlite":
            store = f"sqlite:///{tmp_path / 'own.db'}"
        case "postgres":
            url: str = request.getfixturevalue("postgres_url")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            store = urlsplit(url)._replace(path=f"/{name}").geturl()
        case "dynamodb":
            endpoint = request.getfixturevalue("dynamodb_url")
            store = f"dynamodb://{name}?region=local&endpoint={endpoint}"
    with serving(tmp_path / "data", store=store) as served:
        yield served


@pytest.mark.req("LC-1", "LC-8", "LC-15")
def test_tells_the_story_of_a_revision(everywhere: Served) -> None:
    people = People(everywhere)
    drafted = people.draft()
    people.push(NAME, index_html="<h1>hello</h1>")

    published = people.publish()
    again = people.viewer.get(
        f"/v1/revisions/{NAME}", headers={"if-none-match": published.headers["etag"]}
    )
    stale = people.author.patch(
        f"/v1/revisions/{NAME}",
        json={"labels": {"a": "b"}},
        headers={"if-match": drafted.headers["etag"]},
    )
    then = people.viewer.get(
        f"/v1/revisions/{NAME}", params={"as_of": drafted.headers["tidegate-position"]}
    )
    steps = people.viewer.get(f"/v1/revisions/{NAME}/history").json()["items"]
    position = published.headers["tidegate-position"]
    page = people.viewer.get("/v1/events", params={"min_position": position, "limit": 500}).json()

    assert published.json()["spec"]["lifecycle"] == "Published"
    assert again.status_code == 304
    assert stale.status_code == 409
    assert then.json() == drafted.json()
    assert [step["action"] for step in steps] == [
        *("Create", "Update", "Propose", "Approve", "Publish"),
    ]
    assert page["items"][-1]["type"] == "tidegate.ReleaseOffered"
    assert [step["position"] for step in steps] == sorted(step["position"] for step in steps)
    assert everywhere.client().get("/readyz").json()["ready"] is True
    assert everywhere.admin.get("/v1/views/verify").json()["verified"] is True


def test_gives_a_repeat_the_first_answer_on_every_engine(everywhere: Served) -> None:
    body = {"name": "once"}
    headers = {"idempotency-key": "same"}

    first = everywhere.admin.post("/v1/repositories", json=body, headers=headers)
    again = everywhere.admin.post("/v1/repositories", json=body, headers=headers)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
