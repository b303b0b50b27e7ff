"""One story over HTTP on every engine, with the same responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.api.people import NAME, People
from tests.api.served_fleet import PROTOCOL_HEADERS
from tests.api.serving import Served, serving
from tidegate.domain.access.roles import Role
from tidegate.domain.fleet.credentials import TOKEN_REPLAY
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.hosts.protocol import enrollment_message
from tidegate.kernel.model import Meta

AGENTS = 64


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
def test_takes_a_revision_through_its_life_on_every_engine(everywhere: Served) -> None:
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


def test_a_repeat_gets_the_first_response_on_every_engine(everywhere: Served) -> None:
    body = {"name": "once"}
    headers = {"idempotency-key": "same"}

    first = everywhere.admin.post("/v1/repositories", json=body, headers=headers)
    again = everywhere.admin.post("/v1/repositories", json=body, headers=headers)

    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()


class Newcomer:
    """A host with an enrollment token, and its agent's key."""

    def __init__(self, served: Served, number: int) -> None:
        self.host_id = f"host-{number:02}"
        made = served.installation.enrollment.make_token(
            f"t{number:02}", self.host_id, {"app": "web"}, Meta(actor="user_1")
        )
        self._token = made.token
        self._key = Ed25519PrivateKey.generate()
        self._client = served.client(None, **PROTOCOL_HEADERS)

    def enroll(self) -> httpx2.Response:
        public_key = self._key.public_key().public_bytes_raw().hex()
        proof = self._key.sign(enrollment_message(self._token, public_key)).hex()
        body = {"token": self._token, "public_key": public_key, "proof": proof}
        return self._client.post("/v1/agent/enroll", json=body)


def test_enrolls_every_one_of_many_agents_at_once(everywhere: Served) -> None:
    """All of them change the fleet's one row, and so do operators at the same time."""
    installation = everywhere.installation
    manager, operator = (
        everywhere.as_role(role) for role in (Role.RELEASE_MANAGER, Role.FLEET_OPERATOR)
    )
    first, *others = (Newcomer(everywhere, number) for number in range(AGENTS))
    assert first.enroll().status_code == 200
    start = Barrier(AGENTS + 1)

    def together(send: Callable[[], httpx2.Response]) -> httpx2.Response:
        start.wait()
        return send()

    channel = {"channel": "web-stable", "package": "default/web", "selector": "app=web"}
    labels = {"labels": {"app": "db"}}
    sends = [
        *(other.enroll for other in others),
        lambda: operator.put(f"/v1/hosts/{first.host_id}/labels", json=labels),
        lambda: manager.post("/v1/channels", json=channel),
    ]
    with ThreadPoolExecutor(len(sends)) as crowd:
        answers = list(crowd.map(together, sends))

    assert Counter((answer.status_code, answer.json().get("code")) for answer in answers) == {
        (200, None): AGENTS,
        (201, None): 1,
    }
    fleet = installation.reads.find(fleet_key(), Fleet)
    assert fleet is not None
    assert (fleet.row.hosts, fleet.row.changes) == (AGENTS, AGENTS + 2)
    assert len(installation.reads.range(TOKEN_REPLAY, limit=AGENTS + 1)) == AGENTS
    again = others[0].enroll()
    assert (again.status_code, again.json()["code"]) == (409, "token_replayed")
    assert installation.health.differences() == []
