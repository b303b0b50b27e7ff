"""Deleting and importing a package: the results, and who may do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.served_fleet import ServedFleet
from tests.verbs.doors import ApiCall, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Role

ADMIN = (Role.SECURITY_ADMIN,)
AUTHOR = (Role.AUTHOR,)
NAME = "default.site.v1"
URL = "/v1/packages/default/site"
NO_CLI = "the command line has no packages yet"
NO_PAGE = "the dashboard has no verbs of packages"


def draft(fleet: ServedFleet) -> None:
    fleet.draft("v1", packageName="site")


def publish(fleet: ServedFleet) -> None:
    draft(fleet)
    fleet.publish(NAME)


def propose_deletion(fleet: ServedFleet) -> None:
    publish(fleet)
    assert fleet.step(fleet.author, "propose-delete", NAME).status_code == 200


def on_import(package: str, **more: Any) -> Verb:
    revision = {"workspaceName": "v7", "number": 7, "files": [{"path": "a.txt", "text": "old"}]}
    body = {"source": "elsewhere", "revisions": [{**revision, **more}]}
    call = ApiCall("POST", f"/v1/package-imports/{package}", body)
    return Verb(steps.IMPORT_PACKAGE, call, NO_CLI, NO_PAGE)


DELETE = Verb(steps.DELETE_PACKAGE, ApiCall("DELETE", URL, None, URL), NO_CLI, NO_PAGE)
IMPORT = on_import("default/site")

CASES = (
    VerbCase(DELETE, "of drafts", ADMIN, draft),
    VerbCase(DELETE, "as an author", AUTHOR, draft, "missing_permission"),
    VerbCase(DELETE, "that has a release", ADMIN, publish, "package_not_deletable"),
    VerbCase(
        DELETE,
        "whose deletion is proposed, as no approver",
        ADMIN,
        propose_deletion,
        "missing_permission",
    ),
    VerbCase(DELETE, "whose deletion is proposed", (*ADMIN, Role.APPROVER), propose_deletion),
    VerbCase(IMPORT, "a new package", ADMIN),
    VerbCase(IMPORT, "as an author", AUTHOR, code="missing_permission"),
    VerbCase(IMPORT, "over one that was made here", ADMIN, draft, "package_not_empty"),
    VerbCase(on_import("none/site"), "into no repository", ADMIN, code="not_found"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
