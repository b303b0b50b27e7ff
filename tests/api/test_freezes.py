"""Freezes over HTTP: nothing is dispatched while one holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.crew import CHANNEL, Crew, sailing
from tidegate.domain.access.roles import Grant, Role


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with sailing(tmp_path / "data") as crew:
        yield crew


def test_freezes_dispatch_until_it_ends(crew: Crew) -> None:
    crew.create()
    started = crew.operator.post("/v1/freezes", json={"reason": "sale", "channels": [CHANNEL]})
    crew.promote()
    crew.dispatch()
    frozen = crew.agents["web-01"].order()
    listed = crew.viewer.get("/v1/freezes").json()["items"]

    freeze_id = started.json()["freeze_id"]
    ended = crew.operator.post(f"/v1/freezes/{freeze_id}/end", json={"reason": "over"})
    crew.dispatch()

    assert started.status_code == 201, started.text
    assert frozen is None
    assert listed == [started.json()]
    assert ended.status_code == 200
    assert crew.agents["web-01"].order() is not None
    again = crew.operator.post(f"/v1/freezes/{freeze_id}/end", json={"reason": "over"})
    assert (again.status_code, again.json()["code"]) == (404, "freeze_not_found")


def test_gives_a_repeat_the_same_freeze(crew: Crew) -> None:
    headers = {"idempotency-key": "one"}

    first = crew.operator.post("/v1/freezes", json={"reason": "sale"}, headers=headers)
    again = crew.operator.post("/v1/freezes", json={"reason": "sale"}, headers=headers)

    assert first.json() == again.json()
    assert len(crew.viewer.get("/v1/freezes").json()["items"]) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"reason": "x", "channels": ["none"]}, 404),
        ({"reason": "x", "channels": ["A B"]}, 400),
        ({"reason": "x", "until": "2020-01-01T00:00:00Z"}, 400),
        ({"reason": "x", "until": "tomorrow"}, 400),
        ({"reason": "x", "until": "2030-01-01T00:00:00"}, 400),
        ({"reason": "x", "freeze_id": "No Name"}, 400),
    ],
)
def test_refuses_freezes_that_cannot_be(crew: Crew, body: dict[str, object], status: int) -> None:
    assert crew.operator.post("/v1/freezes", json=body).status_code == status


def test_lets_an_operator_of_one_channel_freeze_that_one_alone(crew: Crew) -> None:
    crew.create()
    own = crew.served.as_role(Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"))

    all_of_them = own.post("/v1/freezes", json={"reason": "x"})
    both = own.post("/v1/freezes", json={"reason": "x", "channels": [CHANNEL, "other"]})
    one = own.post("/v1/freezes", json={"reason": "x", "channels": [CHANNEL]})

    assert [all_of_them.status_code, both.status_code, one.status_code] == [403, 403, 201]
