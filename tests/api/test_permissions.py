"""Who may take which step: the step decides the right, whatever door it comes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.api.serving import Served, serving
from tidegate.api.dashboard.routes import PAGES
from tidegate.api.routes import ROUTES
from tidegate.domain.access.roles import VERBS, Grant, Role, Verb

REASON = "because"


class Desk:
    """One person with every role, seen through tokens that are narrowed to one role each."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.other = served.everything()  # whoever the revision belongs to
        self.third = served.everything()  # who approves what they propose
        self.actor = served.user(*map(Grant, Role))
        self.wide = served.client(served.token(self.actor))
        self.by_role = {
            role: served.client(served.token(self.actor, (Grant(role),))) for role in Role
        }
        self._count = 0

    def __call__(self, state: str, *, own: bool = False) -> str:
        """A new revision in this state, of the actor or of somebody else."""
        self._count += 1
        package, who = f"p{self._count}", self.wide if own else self.other
        body = {"repository": "default", "packageName": package, "workspaceName": "v1"}
        assert who.post("/v1/revisions", json=body).status_code == 201
        name = f"default.{package}.v1"
        for verb, after in (
            ("propose", "Proposed"),
            ("approve", "Published"),
            ("propose-delete", "DeletionProposed"),
        ):
            if self.lifecycle(name) == state:
                return name
            sent = {"digest": self.digest(name)} if verb == "approve" else {}
            who = self.third if verb == "approve" else who
            stepped = who.post(f"/v1/revisions/{name}/{verb}", json=sent, headers=self.seen(name))
            assert stepped.json()["spec"]["lifecycle"] == after, stepped.text
        return name

    def document(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.other.get(f"/v1/revisions/{name}").json()
        return found

    def lifecycle(self, name: str) -> str:
        found: str = self.document(name)["spec"]["lifecycle"]
        return found

    def digest(self, name: str) -> str:
        found: str = self.document(name)["status"]["content"]["digest"]
        return found

    def seen(self, name: str) -> dict[str, str]:
        return {"if-match": self.other.get(f"/v1/revisions/{name}").headers["etag"]}

    def version(self, name: str) -> str:
        found: str = self.document(name)["metadata"]["resourceVersion"]
        return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    data = tmp_path_factory.mktemp("permissions") / "data"
    with serving(data, routes=(*ROUTES, *PAGES)) as served:
        yield Desk(served)


Door = Callable[[Desk, httpx2.Client, str], httpx2.Response]


def patch(**body: Any) -> Door:
    def door(desk: Desk, who: httpx2.Client, name: str) -> httpx2.Response:
        return who.patch(f"/v1/revisions/{name}", json=body, headers=desk.seen(name))

    return door


def post(verb: str, **body: Any) -> Door:
    def door(desk: Desk, who: httpx2.Client, name: str) -> httpx2.Response:
        sent = {**body, "digest": desk.digest(name)} if verb == "approve" else body
        return who.post(f"/v1/revisions/{name}/{verb}", json=sent, headers=desk.seen(name))

    return door


def page(verb: str) -> Door:
    def door(desk: Desk, who: httpx2.Client, name: str) -> httpx2.Response:
        form = {"version": desk.version(name), "reason": REASON}
        if verb == "approve":
            form["digest"] = desk.digest(name)
        return who.post(f"/revisions/{name}/{verb}", data=form)

    return door


def put(what: str) -> Door:
    def door(desk: Desk, who: httpx2.Client, name: str) -> httpx2.Response:
        bodies: dict[str, dict[str, Any]] = {
            "resources": {"files": [{"path": "a", "text": "a"}]},
            "conditions": {
                "digest": desk.digest(name),
                "conditions": [{"type": "tested", "status": "True"}],
            },
        }
        url = f"/v1/revisions/{name}/{what}"
        return who.put(url, json=bodies[what], headers=desk.seen(name))

    return door


def delete(desk: Desk, who: httpx2.Client, name: str) -> httpx2.Response:
    return who.delete(f"/v1/revisions/{name}")


AUTHOR, APPROVE = Verb.AUTHOR, Verb.APPROVE
FILES = [{"path": "a", "text": "a"}]
CASES: dict[str, tuple[str, bool, Verb, Door]] = {
    # what, by which door: from which state, is it the actor's own, the right, the door
    "edit files, resources": ("Draft", False, AUTHOR, put("resources")),
    "edit files, update": ("Draft", False, AUTHOR, patch(files=FILES)),
    "edit gates, update": ("Draft", False, AUTHOR, patch(readinessGates=["tested"])),
    "edit labels, update": ("Draft", False, AUTHOR, patch(labels={"a": "b"})),
    "edit labels of a proposal": ("Proposed", False, AUTHOR, patch(labels={"a": "b"})),
    "edit labels of a release": ("Published", False, AUTHOR, patch(labels={"a": "b"})),
    "edit finalizers": ("DeletionProposed", False, AUTHOR, patch(finalizers=["wait"])),
    "report": ("Draft", False, AUTHOR, put("conditions")),
    "propose": ("Draft", False, AUTHOR, post("propose")),
    "propose, update": ("Draft", False, AUTHOR, patch(lifecycle="Proposed")),
    "propose, page": ("Draft", False, AUTHOR, page("propose")),
    "edit and propose, update": ("Draft", False, AUTHOR, patch(files=FILES, lifecycle="Proposed")),
    "withdraw": ("Proposed", True, AUTHOR, post("withdraw")),
    "withdraw, update": ("Proposed", True, AUTHOR, patch(lifecycle="Draft")),
    "withdraw, page": ("Proposed", True, AUTHOR, page("withdraw")),
    "approve": ("Proposed", False, APPROVE, post("approve")),
    "approve, page": ("Proposed", False, APPROVE, page("approve")),
    "reject": ("Proposed", False, APPROVE, post("reject", reason=REASON)),
    "reject, update": ("Proposed", False, APPROVE, patch(lifecycle="Draft", reason=REASON)),
    "reject, page": ("Proposed", False, APPROVE, page("reject")),
    "propose deletion": ("Published", False, AUTHOR, post("propose-delete")),
    "propose deletion, update": ("Published", False, AUTHOR, patch(lifecycle="DeletionProposed")),
    "reject deletion": ("DeletionProposed", False, APPROVE, post("reject-delete", reason=REASON)),
    "reject deletion, update": (
        *("DeletionProposed", False, APPROVE),
        patch(lifecycle="Published", reason=REASON),
    ),
    "delete a draft": ("Draft", False, AUTHOR, delete),
    "delete one's own proposal": ("Proposed", True, AUTHOR, delete),
    "delete another's proposal": ("Proposed", False, APPROVE, delete),
    "carry out a proposed deletion": ("DeletionProposed", False, APPROVE, delete),
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("case", CASES)
def test_asks_for_the_right_of_the_step_at_every_door(desk: Desk, case: str, role: Role) -> None:
    state, own, right, door = CASES[case]
    name = desk(state, own=own)
    before = desk.document(name)

    answer = door(desk, desk.by_role[role], name)

    if right in VERBS[role]:
        assert answer.status_code in (200, 204, 303), answer.text
        assert desk.other.get(f"/v1/revisions/{name}").json() != before
    else:
        assert answer.status_code == 403, answer.text
        if answer.headers["content-type"] == "application/problem+json":
            assert answer.json()["code"] == "missing_permission"
        assert desk.document(name) == before


def test_asks_for_both_rights_of_an_update_that_takes_two_steps(desk: Desk) -> None:
    body = {"labels": {"a": "b"}, "lifecycle": "Draft", "reason": REASON}
    both = desk.served.as_role(Role.AUTHOR, Role.APPROVER)
    name = desk("Proposed")

    answers = [
        who.patch(f"/v1/revisions/{name}", json=body, headers=desk.seen(name))
        for who in (desk.by_role[Role.AUTHOR], desk.by_role[Role.APPROVER], both)
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 200]


def test_asks_for_nothing_that_an_update_only_restates(desk: Desk) -> None:
    """A client may send the whole document back, with the one step that it means."""
    name = desk("Proposed")
    document = desk.document(name)
    body = {
        "tasks": document["spec"]["tasks"],
        "labels": document["metadata"]["labels"],
        "files": [],
        "lifecycle": "Draft",
        "reason": REASON,
    }

    answer = desk.by_role[Role.APPROVER].patch(
        f"/v1/revisions/{name}", json=body, headers=desk.seen(name)
    )

    assert answer.status_code == 200, answer.text
    assert answer.json()["spec"]["lifecycle"] == "Draft"


def test_two_authors_delete_no_release(desk: Desk) -> None:
    name = desk("Published")
    one, two = (desk.served.as_role(Role.AUTHOR) for _ in range(2))

    proposed = one.post(f"/v1/revisions/{name}/propose-delete", json={}, headers=desk.seen(name))
    deleted = two.delete(f"/v1/revisions/{name}", headers=desk.seen(name))

    assert proposed.status_code == 200
    assert (deleted.status_code, deleted.json()["code"]) == (403, "missing_permission")
    assert desk.lifecycle(name) == "DeletionProposed"


def test_an_administrator_deletes_a_package_and_only_an_approver_what_was_published(
    desk: Desk,
) -> None:
    name = desk("DeletionProposed")
    package = name.split(".")[1]
    url = f"/v1/packages/default/{package}"
    seen = {"if-match": desk.other.get(url).headers["etag"]}
    draft = desk("Draft").split(".")[1]
    drafted = {"if-match": desk.other.get(f"/v1/packages/default/{draft}").headers["etag"]}
    alone = desk.by_role[Role.SECURITY_ADMIN]
    both = desk.served.as_role(Role.SECURITY_ADMIN, Role.APPROVER)

    refused = alone.delete(url, headers=seen)
    open_one = alone.delete(f"/v1/packages/default/{draft}", headers=drafted)
    deleted = both.delete(url, headers=seen)

    assert (refused.status_code, refused.json()["code"]) == (403, "missing_permission")
    assert open_one.status_code == 200, open_one.text
    assert deleted.status_code == 200, deleted.text


def test_answers_a_repeat_as_the_first_time_whatever_the_step_would_be_now(desk: Desk) -> None:
    name = desk("Proposed", own=True)
    author = desk.by_role[Role.AUTHOR]
    url, body = f"/v1/revisions/{name}", {"lifecycle": "Draft", "reason": REASON}
    headers = {**desk.seen(name), "idempotency-key": f"withdraw-{name}"}

    first = author.patch(url, json=body, headers=headers)
    desk.other.post(f"{url}/propose", json={}, headers=desk.seen(name))
    again = author.patch(url, json=body, headers=headers)

    assert first.status_code == 200, first.text
    assert (again.status_code, again.json()) == (200, first.json())
    assert desk.lifecycle(name) == "Proposed", "nobody rejected what another one proposed"
