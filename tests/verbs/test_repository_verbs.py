"""Creating, changing and deleting a repository have the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role

ADMIN = (Role.SECURITY_ADMIN,)
VIEWER = (Role.VIEWER,)
SCOPED = (Grant(Role.SECURITY_ADMIN, "repository:mine"),)
URL = "/v1/repositories/mine"
EDIT = "/repositories/mine/edit"


def make(fleet: ServedFleet) -> None:
    assert fleet.served.admin.post("/v1/repositories", json={"name": "mine"}).status_code == 201


def made_with_two(fleet: ServedFleet) -> None:
    made = fleet.served.admin.post("/v1/repositories", json={"name": "mine", "quorum": 2})
    assert made.status_code == 201


CREATE = Verb(
    steps.CREATE_REPOSITORY,
    ApiCall("POST", "/v1/repositories", {"name": "mine", "quorum": 2, "deployment": True}),
    ("repo", "create", "mine", "--approvals", "2", "--deployment"),
    Form("/new/repository", {"repository": "mine", "approvals": "2", "settings": "deployment"}),
)
CHANGE = Verb(
    steps.CHANGE_REPOSITORY,
    ApiCall("PATCH", URL, {"quorum": 2}, URL),
    ("repo", "edit", "mine", "--approvals", "2"),
    Form(EDIT, {"approvals": "2"}, EDIT),
)
CHANGE_UNSEEN = Verb(
    steps.CHANGE_REPOSITORY,
    ApiCall("PATCH", URL, {"quorum": 2}),
    "the command line reads the version itself",
    Form(EDIT, {"approvals": "2"}),
)
DELETE = Verb(
    steps.DELETE_REPOSITORY,
    ApiCall("POST", f"{URL}/delete", {"reason": "empty"}),
    ("repo", "delete", "mine", "--reason", "empty"),
    Form("/settings/delete-repository", {"repository": "mine", "reason": "empty"}),
)

CASES = (
    VerbCase(CREATE, "a new one", ADMIN),
    VerbCase(CREATE, "as the administrator of one", SCOPED, code="missing_permission"),
    VerbCase(CREATE, "one that exists", ADMIN, make, "already_exists"),
    VerbCase(CHANGE, "its quorum", SCOPED, make),
    VerbCase(CHANGE, "as it is", ADMIN, made_with_two, changes=False),
    VerbCase(CHANGE, "as a viewer", VIEWER, make, "missing_permission"),
    VerbCase(DELETE, "an empty one", SCOPED, make),
    VerbCase(DELETE, "as a viewer", VIEWER, make, "missing_permission"),
    VerbCase(DELETE, "an unknown one", ADMIN, code="not_found"),
    VerbCase(CHANGE_UNSEEN, "without a version", ADMIN, make, "version_required"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
