"""Creating and deleting a join token have the same result through each door."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, T0, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.fleet.joins import CreateJoinToken, create_join_token

OPERATOR = (Role.FLEET_OPERATOR,)
OF_CHANNEL = (Role.VIEWER, Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"))
LABELS = {"app": "db"}


def create_verb(until: str) -> Verb:
    return Verb(
        steps.CREATE_JOIN_TOKEN,
        ApiCall("POST", "/v1/join-tokens", {"labels": LABELS, "limit": 2, "until": until}),
        ("join", "create", "--label", "app=db", "--limit", "2", "--until", until),
        Form("/new/join", {"labels": "app=db", "limit": "2", "until": until}),
    )


def delete_verb(join_id: str) -> Verb:
    return Verb(
        steps.DELETE_JOIN_TOKEN,
        ApiCall("POST", f"/v1/join-tokens/{join_id}/delete"),
        ("join", "delete", join_id),
        Form("/joins/delete", {"join_id": join_id}),
    )


def create(fleet: ServedFleet) -> None:
    command = CreateJoinToken(
        join_id="join-1", labels=LABELS, limit=2, until=T0 + timedelta(days=1), operator="user_op"
    )
    fleet.installation.control.execute(create_join_token, command)


CREATE = create_verb((T0 + timedelta(days=1)).isoformat())
DELETE = delete_verb("join-1")
CASES = (
    VerbCase(CREATE, "a new one", OPERATOR),
    VerbCase(CREATE, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(
        create_verb((T0 - timedelta(days=1)).isoformat()),
        "an expired one",
        OPERATOR,
        code="invalid_input",
    ),
    VerbCase(DELETE, "one that is open", OPERATOR, create),
    VerbCase(DELETE, "as the operator of a channel", OF_CHANNEL, create, "missing_permission"),
    VerbCase(delete_verb("join-9"), "an unknown one", OPERATOR, code="join_token_not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
