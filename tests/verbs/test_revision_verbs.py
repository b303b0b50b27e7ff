"""Drafting, changing, proposing, deciding and deleting: the same result through each door."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import httpx2
import pytest

from tests.api.served_fleet import ServedFleet
from tests.verbs.doors import (
    EVENTS_MAX,
    ApiCall,
    Form,
    SharedServers,
    Verb,
    VerbCase,
    check,
    hidden_fields,
    serve,
)
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.content.manifests import FileManifest

AUTHOR = (Role.AUTHOR,)
APPROVER = (Role.APPROVER,)
VIEWER = (Role.VIEWER,)
ADMIN = (Role.SECURITY_ADMIN,)
NAME = "default.site.v1"
URL = f"/v1/revisions/{NAME}"
PAGE = f"/revisions/{NAME}"
WHY = "it is ready"
REASON = {"reason": WHY}
DIGEST = FileManifest.of({"a.txt": b"one"}).digest
OTHER_DIGEST = FileManifest(()).digest
OWNER = {"kind": "team", "id": "gone"}

NO_EDITOR = "the dashboard has no editor"
NO_DELETION = "the dashboard has no deletion yet"


@cache
def checkout() -> str:
    """A directory with one file."""
    place = Path(mkdtemp(prefix="tidegate-checkout-"))
    atexit.register(rmtree, place, ignore_errors=True)
    (place / "a.txt").write_text("two")
    return str(place)


# ── situations ────────────────────────────────────────────────────────────────────────────────────


def draft(fleet: ServedFleet, **more: Any) -> None:
    body = {"packageName": "site", "files": [{"path": "a.txt", "text": "one"}], **more}
    fleet.draft("v1", **body)


def propose(fleet: ServedFleet) -> None:
    draft(fleet)
    assert fleet.step(fleet.author, "propose", NAME).status_code == 200


def publish(fleet: ServedFleet) -> None:
    draft(fleet)
    fleet.publish(NAME)


def propose_deletion(fleet: ServedFleet) -> None:
    publish(fleet)
    assert fleet.step(fleet.author, "propose-delete", NAME).status_code == 200


def publish_a_clone(fleet: ServedFleet) -> None:
    task = {"type": "clone", "upstream": "default.web.v1"}
    fleet.draft("v1", packageName="site", tasks=[task])
    fleet.publish(NAME)


def make_repository(fleet: ServedFleet) -> None:
    assert fleet.served.admin.post("/v1/repositories", json={"name": "mine"}).status_code == 201


def propose_as_caller(fleet: ServedFleet, caller: httpx2.Client) -> None:
    assert fleet.step(caller, "propose", NAME).status_code == 200


with_gate: Callable[[ServedFleet], None] = partial(draft, readinessGates=["tested"])
with_owner: Callable[[ServedFleet], None] = partial(draft, ownerReferences=[OWNER])


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────


def on_creation(package: str, workspace: str, task: dict[str, str], *words: str) -> Verb:
    repository, _, path = package.partition("/")
    body = {
        "repository": repository,
        "packageName": path,
        "workspaceName": workspace,
        "tasks": [task],
    }
    cli = ("rev", *words, "--workspace", workspace)
    return Verb(steps.CREATE_REVISION, ApiCall("POST", "/v1/revisions", body), cli, NO_EDITOR)


def on_review(step: steps.Step, name: str, form: str = "") -> Verb:
    """A verb with the same name at all doors that takes only a reason."""
    return Verb(
        step,
        ApiCall("POST", f"{URL}/{name}", REASON, URL),
        ("rev", name, NAME, "--reason", WHY),
        form or Form(f"{PAGE}/{name}", REASON, PAGE),
    )


def on_approval(digest: str) -> Verb:
    body = {**REASON, "digest": digest}
    return Verb(
        steps.APPROVE_REVISION,
        ApiCall("POST", f"{URL}/approve", body, URL),
        ("rev", "approve", NAME, "--digest", digest, "--reason", WHY),
        Form(f"{PAGE}/approve", body, PAGE),
    )


def on_update(**body: Any) -> Verb:
    return Verb(
        steps.UPDATE_REVISION,
        ApiCall("PATCH", URL, body, URL),
        "the command line has no update: it pushes files and takes the verbs of the review",
        NO_EDITOR,
    )


def on_conditions(digest: str) -> Verb:
    body = {"digest": digest, "conditions": [{"type": "tested", "status": "True"}]}
    return Verb(
        steps.SET_CONDITIONS,
        ApiCall("PUT", f"{URL}/conditions", body, URL),
        "the command line has no conditions: they are reported by programs",
        "the dashboard has no conditions: they are reported by programs",
    )


INIT = on_creation("default/site", "v1", {"type": "init", "description": ""}, "create", "site")
CLONE = on_creation(
    "default/site",
    "v1",
    {"type": "clone", "upstream": "default.web.v1"},
    *("clone", "default.web.v1", "site"),
)
CLONE_FROM_ELSEWHERE = on_creation(
    "mine/site",
    "v1",
    {"type": "clone", "upstream": "default.web.v1"},
    *("clone", "default.web.v1", "site", "--repo", "mine"),
)
COPY = on_creation(
    "default/web",
    "v3",
    {"type": "edit", "source": "default.web.v2"},
    *("copy", "default.web.v2"),
)
UPGRADE = on_creation(
    "default/site",
    "v2",
    {
        "type": "upgrade",
        "oldUpstream": "default.web.v1",
        "newUpstream": "default.web.v2",
        "localPackageRevision": NAME,
        "strategy": "three-way",
    },
    *("upgrade", NAME),
)
LABEL = on_update(labels={"team": "web"})
PUSH = Verb(
    steps.EDIT_REVISION,
    ApiCall("PUT", f"{URL}/resources", {"files": [{"path": "a.txt", "text": "two"}]}, URL),
    ("rev", "push", NAME, checkout()),
    NO_EDITOR,
)
REPORT = on_conditions(DIGEST)
PROPOSE = on_review(steps.PROPOSE_REVISION, "propose")
WITHDRAW = on_review(steps.WITHDRAW_PROPOSAL, "withdraw")
WITHDRAW_ANOTHERS = on_review(
    steps.WITHDRAW_PROPOSAL, "withdraw", "the page offers it only to who proposed it"
)
APPROVE = on_approval(DIGEST)
REJECT = on_review(steps.REJECT_PROPOSAL, "reject")
REJECT_WITHOUT_REASON = Verb(
    steps.REJECT_PROPOSAL,
    ApiCall("POST", f"{URL}/reject", {"reason": ""}, URL),
    ("rev", "reject", NAME, "--reason", ""),
    Form(f"{PAGE}/reject", {"reason": ""}, PAGE),
)
PROPOSE_DELETION = on_review(steps.PROPOSE_DELETION, "propose-delete", NO_DELETION)
REJECT_DELETION = on_review(steps.REJECT_DELETION, "reject-delete", NO_DELETION)
DELETE = Verb(
    steps.DELETE_REVISION,
    ApiCall("DELETE", URL, None, URL),
    ("rev", "delete", NAME),
    NO_DELETION,
)
CLEAN_UP = Verb(
    steps.CLEAN_UP_OWNER,
    ApiCall("POST", "/v1/revision-reaps", OWNER),
    ("rev", "reap", OWNER["kind"], OWNER["id"]),
    "the dashboard has no clean-up",
)

MISSING = "missing_permission"
ELSEWHERE = (Grant(Role.AUTHOR, "repository:mine"),)
CASES = (
    VerbCase(INIT, "a new package", AUTHOR),
    VerbCase(INIT, "as a viewer", VIEWER, code=MISSING),
    VerbCase(INIT, "one that exists", AUTHOR, draft, "already_exists"),
    VerbCase(CLONE, "a published one", AUTHOR),
    VerbCase(CLONE_FROM_ELSEWHERE, "an unreadable one", ELSEWHERE, make_repository, MISSING),
    VerbCase(COPY, "a published one", AUTHOR),
    VerbCase(UPGRADE, "to the newest upstream", AUTHOR, publish_a_clone),
    VerbCase(LABEL, "a draft", AUTHOR, draft),
    VerbCase(LABEL, "as an approver", APPROVER, draft, MISSING),
    VerbCase(on_update(lifecycle="Proposed"), "to a proposal", AUTHOR, draft),
    VerbCase(on_update(lifecycle="Draft", **REASON), "to a rejection", APPROVER, propose),
    VerbCase(on_update(lifecycle="Draft", **REASON), "as another author", AUTHOR, propose, MISSING),
    VerbCase(on_update(files=[]), "a published one", AUTHOR, publish, "immutable"),
    VerbCase(PUSH, "to a draft", AUTHOR, draft),
    VerbCase(PUSH, "as a viewer", VIEWER, draft, MISSING),
    VerbCase(PUSH, "to a proposal", AUTHOR, propose, "not_draft"),
    VerbCase(REPORT, "on a proposal", AUTHOR, propose),
    VerbCase(REPORT, "as a viewer", VIEWER, propose, MISSING),
    VerbCase(on_conditions(OTHER_DIGEST), "on other content", AUTHOR, propose, "digest_mismatch"),
    VerbCase(PROPOSE, "a draft", AUTHOR, draft),
    VerbCase(PROPOSE, "as a viewer", VIEWER, draft, MISSING),
    VerbCase(PROPOSE, "with a gate that is not met", AUTHOR, with_gate, "not_ready"),
    VerbCase(WITHDRAW, "one's own proposal", AUTHOR, draft, prepare=propose_as_caller),
    VerbCase(WITHDRAW, "as a viewer", VIEWER, propose, MISSING),
    VerbCase(WITHDRAW_ANOTHERS, "another's proposal", AUTHOR, propose, "not_proposer"),
    VerbCase(APPROVE, "a proposal", APPROVER, propose),
    VerbCase(APPROVE, "as an author", AUTHOR, propose, MISSING),
    VerbCase(on_approval(OTHER_DIGEST), "other content", APPROVER, propose, "digest_mismatch"),
    VerbCase(REJECT, "a proposal", APPROVER, propose),
    VerbCase(REJECT, "as an author", AUTHOR, propose, MISSING),
    VerbCase(REJECT_WITHOUT_REASON, "without a reason", APPROVER, propose, "invalid_request"),
    VerbCase(PROPOSE_DELETION, "a published one", AUTHOR, publish),
    VerbCase(PROPOSE_DELETION, "as a viewer", VIEWER, publish, MISSING),
    VerbCase(PROPOSE_DELETION, "a draft", AUTHOR, draft, "invalid_transition"),
    VerbCase(REJECT_DELETION, "a proposed one", APPROVER, propose_deletion),
    VerbCase(REJECT_DELETION, "as an author", AUTHOR, propose_deletion, MISSING),
    VerbCase(REJECT_DELETION, "none is proposed", APPROVER, publish, "invalid_transition"),
    VerbCase(DELETE, "a draft", AUTHOR, draft),
    VerbCase(DELETE, "as a viewer", VIEWER, draft, MISSING),
    VerbCase(DELETE, "another's proposal as an author", AUTHOR, propose, MISSING),
    VerbCase(DELETE, "whose deletion is proposed", APPROVER, propose_deletion),
    VerbCase(DELETE, "a published one", APPROVER, publish, "deletion_not_proposed"),
    VerbCase(CLEAN_UP, "after an owner", ADMIN, with_owner),
    VerbCase(CLEAN_UP, "as an author", AUTHOR, with_owner, MISSING),
    VerbCase(CLEAN_UP, "an owner of nothing", ADMIN, changes=False),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


def test_refuses_a_form_with_a_missing_or_old_version(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        draft(fleet)
        hidden = hidden_fields(shown(fleet.author), f"{PAGE}/propose")
        fleet.push(NAME, a_txt="changed meanwhile")

        old = fleet.author.post(f"{PAGE}/propose", data=hidden)
        none = fleet.author.post(f"{PAGE}/propose", data={})

        assert (old.status_code, "version_conflict" in old.text) == (409, True)
        assert (none.status_code, "version_required" in none.text) == (428, True)
        assert fleet.document(NAME)["spec"]["lifecycle"] == "Draft"


def test_a_form_that_is_sent_twice_takes_effect_once(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        draft(fleet)
        form = {**hidden_fields(shown(fleet.author), f"{PAGE}/propose"), **REASON}

        done = [fleet.author.post(f"{PAGE}/propose", data=form) for _ in range(2)]

        assert [one.status_code for one in done] == [303, 303]
        assert done[0].headers["location"] == done[1].headers["location"]
        events = fleet.installation.log.feed(after=0, limit=EVENTS_MAX)
        proposed = [event for event in events if NAME in event.body.decode()]
        assert [event.type for event in proposed].count("RevisionProposed") == 1


def shown(client: httpx2.Client) -> str:
    return client.get(PAGE, headers={"accept": "text/html"}).text
