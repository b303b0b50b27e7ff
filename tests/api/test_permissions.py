"""Which permission each step needs, through every route and form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx2
import pytest

from tests.api.serving import Served, serving
from tests.domain.documents import good
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import EVERYWHERE, VERBS, Grant, Role, Verb

OPERATOR = ("operator_command", "release-control-plane")
REASON = "because"


class PermissionPeople:
    """One person with every role, who acts through tokens narrowed to one role each."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.other = served.everything()  # the other owner of revisions
        self.third = served.everything()  # approves what they propose
        self.actor = served.user(*map(Grant, Role))
        self.wide = served.client(served.token(self.actor))
        self.narrowed = cache(self._narrow)
        self.by_role = {role: self.narrowed(role, EVERYWHERE) for role in Role}
        self._count = 0

    def _narrow(self, role: Role, scope: str) -> httpx2.Client:
        """A client of the actor with one role on one scope."""
        return self.served.client(self.served.token(self.actor, (Grant(role, scope),)))

    def __call__(self, state: str, *, own: bool = False) -> str:
        """Create a revision in this state, owned by the actor or by the other user."""
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
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PermissionPeople]:
    data = tmp_path_factory.mktemp("permissions") / "data"
    with serving(data, routes=(*ROUTES, *PAGES)) as served:
        yield PermissionPeople(served)


Door = Callable[[PermissionPeople, httpx2.Client, str], httpx2.Response]


def patch(**body: Any) -> Door:
    def door(people: PermissionPeople, who: httpx2.Client, name: str) -> httpx2.Response:
        return who.patch(f"/v1/revisions/{name}", json=body, headers=people.seen(name))

    return door


def post(verb: str, **body: Any) -> Door:
    def door(people: PermissionPeople, who: httpx2.Client, name: str) -> httpx2.Response:
        sent = {**body, "digest": people.digest(name)} if verb == "approve" else body
        return who.post(f"/v1/revisions/{name}/{verb}", json=sent, headers=people.seen(name))

    return door


def page(verb: str) -> Door:
    def door(people: PermissionPeople, who: httpx2.Client, name: str) -> httpx2.Response:
        form = {"expected_version": people.version(name), "reason": REASON}
        if verb == "approve":
            form["digest"] = people.digest(name)
        return who.post(f"/revisions/{name}/{verb}", data=form)

    return door


def put(what: str) -> Door:
    def door(people: PermissionPeople, who: httpx2.Client, name: str) -> httpx2.Response:
        bodies: dict[str, dict[str, Any]] = {
            "resources": {"files": [{"path": "a", "text": "a"}]},
            "conditions": {
                "digest": people.digest(name),
                "conditions": [{"type": "tested", "status": "True"}],
            },
        }
        url = f"/v1/revisions/{name}/{what}"
        return who.put(url, json=bodies[what], headers=people.seen(name))

    return door


def delete(people: PermissionPeople, who: httpx2.Client, name: str) -> httpx2.Response:
    return who.delete(f"/v1/revisions/{name}")


AUTHOR, APPROVE = Verb.AUTHOR, Verb.APPROVE
SPELLED = {  # the last part of the route's path
    "propose": "propose",
    "withdraw": "withdraw",
    "approve": "approve",
    "reject": "reject",
    "propose deletion": "propose-delete",
    "reject deletion": "reject-delete",
}
FILES = [{"path": "a", "text": "a"}]
CASES: dict[str, tuple[str, bool, Verb, Door]] = {
    # step and route: initial state, owned by the actor, the permission, the request
    "edit files, resources": ("Draft", False, AUTHOR, put("resources")),
    "edit files, update": ("Draft", False, AUTHOR, patch(files=FILES)),
    "edit gates, update": ("Draft", False, AUTHOR, patch(readinessGates=["tested"])),
    "edit labels, update": ("Draft", False, AUTHOR, patch(labels={"a": "b"})),
    "edit labels of a proposal": ("Proposed", False, AUTHOR, patch(labels={"a": "b"})),
    "edit labels of a release": ("Published", False, AUTHOR, patch(labels={"a": "b"})),
    "edit finalizers": ("DeletionProposed", False, AUTHOR, patch(finalizers=["wait"])),
    "report": ("Draft", False, Verb.REPORT, put("conditions")),
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


HERE = (EVERYWHERE, "repository:default")
ELSEWHERE = ("repository:elsewhere", "channel:default")


@pytest.mark.parametrize("case", CASES)
def test_requires_the_permission_of_the_step_on_every_route(
    people: PermissionPeople, case: str
) -> None:
    """Each role, on grants everywhere, on this repository, and on other scopes."""
    state, own, right, door = CASES[case]
    able = {role for role in Role if right in VERBS[role]}
    name = people(state, own=own)
    before = people.document(name)

    for role in Role:
        for scope in ELSEWHERE if role in able else (*HERE, *ELSEWHERE):
            answer = door(people, people.narrowed(role, scope), name)
            assert answer.status_code == 403, (role, scope, answer.text)
            if answer.headers["content-type"] == "application/problem+json":
                assert answer.json()["code"] == "missing_permission"
    assert people.document(name) == before

    for role in able:
        for scope in HERE:
            name = people(state, own=own)
            before = people.document(name)
            answer = door(people, people.narrowed(role, scope), name)
            assert answer.status_code in (200, 204, 303), (role, scope, answer.text)
            assert people.other.get(f"/v1/revisions/{name}").json() != before


def test_every_route_that_changes_a_revision_has_a_case() -> None:
    covered = {
        *(f"{verb} /v1/revisions/{{name}}" for verb in ("PATCH", "DELETE")),
        *(f"PUT /v1/revisions/{{name}}/{what}" for what in ("resources", "conditions")),
    }
    for case in CASES:
        verb = SPELLED.get(case.partition(",")[0])
        if verb is not None and not case.endswith(", update"):
            prefix = "/revisions" if case.endswith(", page") else "/v1/revisions"
            covered.add(f"POST {prefix}/{{name}}/{verb}")
    routes = {
        f"{route.method} {route.path}"
        for route in (*ROUTES, *PAGES)
        if route.is_write and "/revisions/{name}" in route.path
    }

    assert routes - covered == set(), "add a case for each"
    assert covered - routes == set()


def test_an_update_of_two_steps_requires_both_permissions(people: PermissionPeople) -> None:
    body = {"labels": {"a": "b"}, "lifecycle": "Draft", "reason": REASON}
    both = people.served.as_role(Role.AUTHOR, Role.APPROVER)
    name = people("Proposed")

    answers = [
        who.patch(f"/v1/revisions/{name}", json=body, headers=people.seen(name))
        for who in (people.by_role[Role.AUTHOR], people.by_role[Role.APPROVER], both)
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 200]


def test_an_unchanged_member_of_an_update_requires_no_permission(people: PermissionPeople) -> None:
    """A client may send the whole document back with only one step changed."""
    name = people("Proposed")
    document = people.document(name)
    body = {
        "tasks": document["spec"]["tasks"],
        "labels": document["metadata"]["labels"],
        "files": [],
        "lifecycle": "Draft",
        "reason": REASON,
    }

    answer = people.by_role[Role.APPROVER].patch(
        f"/v1/revisions/{name}", json=body, headers=people.seen(name)
    )

    assert answer.status_code == 200, answer.text
    assert answer.json()["spec"]["lifecycle"] == "Draft"


def test_two_authors_delete_no_release(people: PermissionPeople) -> None:
    name = people("Published")
    one, two = (people.served.as_role(Role.AUTHOR) for _ in range(2))

    proposed = one.post(f"/v1/revisions/{name}/propose-delete", json={}, headers=people.seen(name))
    deleted = two.delete(f"/v1/revisions/{name}", headers=people.seen(name))

    assert proposed.status_code == 200
    assert (deleted.status_code, deleted.json()["code"]) == (403, "missing_permission")
    assert people.lifecycle(name) == "DeletionProposed"


def test_deleting_published_revisions_of_a_package_needs_an_approver(
    people: PermissionPeople,
) -> None:
    name = people("DeletionProposed")
    package = name.split(".")[1]
    url = f"/v1/packages/default/{package}"
    seen = {"if-match": people.other.get(url).headers["etag"]}
    draft = people("Draft").split(".")[1]
    drafted = {"if-match": people.other.get(f"/v1/packages/default/{draft}").headers["etag"]}
    alone = people.by_role[Role.SECURITY_ADMIN]
    both = people.served.as_role(Role.SECURITY_ADMIN, Role.APPROVER)

    refused = alone.delete(url, headers=seen)
    open_one = alone.delete(f"/v1/packages/default/{draft}", headers=drafted)
    deleted = both.delete(url, headers=seen)

    assert (refused.status_code, refused.json()["code"]) == (403, "missing_permission")
    assert open_one.status_code == 200, open_one.text
    assert deleted.status_code == 200, deleted.text


def test_a_repeat_gets_the_first_response_whatever_the_state_is_now(
    people: PermissionPeople,
) -> None:
    name = people("Proposed", own=True)
    author = people.by_role[Role.AUTHOR]
    url, body = f"/v1/revisions/{name}", {"lifecycle": "Draft", "reason": REASON}
    headers = {**people.seen(name), "idempotency-key": f"withdraw-{name}"}

    first = author.patch(url, json=body, headers=headers)
    people.other.post(f"{url}/propose", json={}, headers=people.seen(name))
    again = author.patch(url, json=body, headers=headers)

    assert first.status_code == 200, first.text
    assert (again.status_code, again.json()) == (200, first.json())
    assert people.lifecycle(name) == "Proposed", "no person rejected what another one proposed"


# ── names in a request ────────────────────────────────────────────────────────────────────────────


class Border:
    """Two repositories: ``own``, whose author sends requests, and ``secret``, which they cannot
    read.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        self.wide, self.third = served.everything(), served.everything()
        for name in ("own", "secret"):
            made = served.admin.post("/v1/repositories", json={"name": name})
            assert made.status_code == 201, made.text
        self.publish("secret", "web", "v1", text="one")
        self.publish("secret", "web", "v2", task={"type": "edit", "source": "secret.web.v1"})
        clone = {"type": "clone", "upstream": "secret.web.v1"}
        self.publish("own", "site", "v1", task=clone)
        self.publish("own", "blog", "v1", text="blog")
        self.publish("secret", "key", "v1", text="nobody else has this")
        scoped = (
            Grant(Role.AUTHOR, "repository:own"),
            Grant(Role.RELEASE_MANAGER, "channel:own"),
            Grant(Role.RELEASE_MANAGER, "channel:free"),  # a scope without a channel
        )
        self.author = served.as_role(*scoped)
        self.reader = served.as_role(*scoped, Grant(Role.VIEWER, "repository:secret"))
        self._count = 0

    def publish(self, repository: str, package: str, workspace: str, **how: Any) -> None:
        body: dict[str, Any] = {
            "repository": repository,
            "packageName": package,
            "workspaceName": workspace,
        }
        if "task" in how:
            body["tasks"] = [how["task"]]
        if "text" in how:
            body["files"] = [{"path": "a.txt", "text": how["text"]}]
        made = self.wide.post("/v1/revisions", json=body)
        assert made.status_code == 201, made.text
        url = f"/v1/revisions/{repository}.{package}.{workspace}"
        made = self.wide.post(f"{url}/propose", json={}, headers={"if-match": made.headers["etag"]})
        sent = {"digest": made.json()["status"]["content"]["digest"]}
        seen = {"if-match": made.headers["etag"]}
        assert self.third.post(f"{url}/approve", json=sent, headers=seen).status_code == 200

    def create(self, who: httpx2.Client, task: dict[str, str], package: str) -> httpx2.Response:
        self._count += 1
        body = {
            "repository": "own",
            "packageName": package or f"p{self._count}",
            "workspaceName": f"w{self._count}",
            "tasks": [task],
        }
        return who.post("/v1/revisions", json=body)

    def add(self, who: httpx2.Client, task: dict[str, str]) -> httpx2.Response:
        """Add a task to a new draft of own/site."""
        made = self.create(self.wide, {"type": "edit", "source": "own.site.v1"}, "site")
        tasks = [*made.json()["spec"]["tasks"], task]
        url = f"/v1/revisions/{made.json()['metadata']['name']}"
        seen = {"if-match": made.headers["etag"]}
        return who.patch(url, json={"tasks": tasks}, headers=seen)


@pytest.fixture(scope="module")
def border(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Border]:
    with serving(tmp_path_factory.mktemp("border") / "data") as served:
        yield Border(served)


def upgrade(old: str, new: str, **more: str) -> dict[str, str]:
    named = {"oldUpstream": old, "newUpstream": new, "localPackageRevision": "own.site.v1"}
    return {"type": "upgrade", **named, **more}


WHOLE = {"strategy": "force-delete-replace"}
NAMING: dict[str, Callable[[Border, httpx2.Client, str], httpx2.Response]] = {
    "clone": lambda border, who, name: border.create(who, {"type": "clone", "upstream": name}, ""),
    "edit": lambda border, who, name: border.create(who, {"type": "edit", "source": name}, "site"),
    "upgrade to": lambda border, who, name: border.create(
        who, upgrade("secret.web.v1", name), "site"
    ),
    "upgrade from": lambda border, who, name: border.create(
        who, upgrade(name, "own.blog.v1"), "site"
    ),
    "upgrade whole": lambda border, who, name: border.create(
        who, upgrade("secret.web.v1", name, **WHOLE), "site"
    ),
    "add an edit": lambda border, who, name: border.add(who, {"type": "edit", "source": name}),
    "add an upgrade": lambda border, who, name: border.add(
        who, upgrade("secret.web.v1", name, **WHOLE)
    ),
    "diff": lambda border, who, name: who.get(
        "/v1/revisions/own.site.v1/diff", params={"against": name}
    ),
}


@pytest.mark.parametrize("name", ["secret.web.v2", "secret.web.v9", "secret.none.v1"])
@pytest.mark.parametrize("naming", NAMING)
def test_reveals_nothing_about_an_unreadable_repository(
    border: Border, naming: str, name: str
) -> None:
    before = border.author.get("/v1/revisions", params={"author": "me"}).json()

    answer = NAMING[naming](border, border.author, name)

    assert (answer.status_code, answer.json()["code"]) == (403, "missing_permission")
    assert answer.json()["scope"] == "repository:secret"
    assert border.author.get("/v1/revisions", params={"author": "me"}).json() == before


@pytest.mark.parametrize(
    "naming", ["clone", "upgrade to", "upgrade whole", "add an upgrade", "diff"]
)
def test_a_reader_of_a_repository_can_use_its_revisions(border: Border, naming: str) -> None:
    answer = NAMING[naming](border, border.reader, "secret.web.v2")

    assert answer.status_code in (200, 201), answer.text


def test_an_author_restates_the_origin_of_a_draft_without_reading_it(border: Border) -> None:
    made = border.create(border.wide, {"type": "clone", "upstream": "secret.web.v1"}, "")
    url = f"/v1/revisions/{made.json()['metadata']['name']}"
    body = {"tasks": made.json()["spec"]["tasks"], "labels": {"a": "b"}}

    answer = border.author.patch(url, json=body, headers={"if-match": made.headers["etag"]})

    assert answer.status_code == 200, answer.text


def test_shows_only_readable_revisions_in_the_descent(border: Border) -> None:
    secret = border.served.as_role(Grant(Role.VIEWER, "repository:secret"))

    below = secret.get("/v1/revisions/secret.web.v1/lineage").json()
    above = border.author.get("/v1/revisions/own.site.v1/lineage").json()
    both = border.wide.get("/v1/revisions/secret.web.v1/lineage").json()

    assert (below["dependents"], above["lineage"]) == ([], [])
    assert "own.site.v1" in both["dependents"]


def test_names_only_readable_reasons_why_a_revision_stays(border: Border) -> None:
    name = "secret.web.v1"
    url = f"/v1/revisions/{name}"
    seen = {"if-match": border.wide.get(url).headers["etag"]}
    approver = border.served.as_role(Grant(Role.APPROVER, "repository:secret"))
    wide = border.served.as_role(Role.APPROVER)
    border.wide.post(f"{url}/propose-delete", json={}, headers=seen)

    refused, told = approver.delete(url), wide.delete(url)
    seen = {"if-match": border.wide.get(url).headers["etag"]}
    wide.post(f"{url}/reject-delete", json={"reason": REASON}, headers=seen)

    assert (refused.status_code, refused.json()["code"]) == (403, "still_referenced")
    assert "own." not in refused.text
    assert refused.json()["count"] == told.json()["count"] > 0
    assert "own.site.v1" in told.json()["blockers"]


# ── releases ──────────────────────────────────────────────────────────────────────────────────────


def pin(border: Border, release: str) -> dict[str, Any]:
    known = border.wide.get(f"/v1/releases/{release}")
    digest = known.json()["digest"] if known.status_code == 200 else f"sha256:{'0' * 64}"
    return {"releaseId": release, "digest": digest, **good(OPERATOR, "free", release, digest)}


PINNING: dict[str, Callable[[Border, httpx2.Client, str], httpx2.Response]] = {
    "register": lambda border, who, release: who.post(
        "/v1/releases/free/register", json=pin(border, release)
    ),
    "promote": lambda border, who, release: who.post(
        "/v1/channels/own/promote", json={"release_id": release}
    ),
    "open a rollout": lambda border, who, release: who.post(
        "/v1/rollouts", json={"channel": "own", "release_id": release}
    ),
    "plan": lambda border, who, release: who.post(
        "/v1/rollouts/plan", json={"channel": "own", "release_id": release}
    ),
}


@pytest.mark.parametrize("pinning", PINNING)
def test_answers_alike_for_unreadable_and_missing_releases(border: Border, pinning: str) -> None:
    channel = {"channel": "own", "package": "own/blog", "selector": "app=blog"}
    made = border.wide.post("/v1/channels", json=channel)
    assert made.status_code == 201 or made.json()["code"] == "channel_exists", made.text

    present, absent = (
        PINNING[pinning](border, border.author, release)
        for release in ("secret.web.1", "secret.web.9")
    )

    assert present.status_code in (404, 422), present.text
    assert (present.status_code, present.json()["code"], present.json()["detail"]) == (
        absent.status_code,
        absent.json()["code"],
        absent.json()["detail"].replace("secret.web.9", "secret.web.1"),
    )
    assert "sha256" not in present.text


def test_registers_releases_of_the_own_package_or_a_readable_repository(
    border: Border,
) -> None:
    channel = {"channel": "apart", "package": "secret/web", "selector": "app=apart"}
    assert border.wide.post("/v1/channels", json=channel).status_code == 201
    manager = border.served.as_role(Grant(Role.RELEASE_MANAGER, "channel:apart"))

    answer = manager.post("/v1/channels/apart/promote", json={"release_id": "secret.web.1"})

    assert answer.status_code == 200, answer.text


def test_a_manifest_matches_no_unreadable_release(border: Border) -> None:
    def sent(who: httpx2.Client, batch: str, digest: str) -> httpx2.Response:
        body = {
            "batch": batch,
            "ref": "factory://batch",
            "observedAt": "2026-04-24T19:00:00Z",
            "digests": [digest],
        }
        seen = {"if-match": who.get("/v1/releases/free/actual").headers["etag"]}
        return who.post("/v1/releases/free/manifests", json=body, headers=seen)

    here = border.wide.get("/v1/releases/own.blog.1").json()["digest"]
    there = border.wide.get("/v1/releases/secret.key.1").json()["digest"]
    pinned = border.wide.post("/v1/releases/free/register", json=pin(border, "own.blog.1"))
    assert pinned.status_code == 201, pinned.text

    answers = [
        sent(border.author, batch, digest)
        for batch, digest in (("b1", there), ("b2", f"sha256:{'0' * 64}"), ("b3", here))
    ]

    assert [answer.status_code for answer in answers] == [201, 201, 201], answers[0].text
    kept = border.author.get("/v1/releases/free/evidence").json()["items"]
    assert len({item["reason"] for item in kept}) == 1
    assert [item.get("matches", []) for item in kept] == [[], []]
    actual = border.author.get("/v1/releases/free/actual").json()
    assert (actual["pinnedReleaseId"], actual["version"]) == ("own.blog.1", 1)


def test_creates_no_channel_for_an_unreadable_package(border: Border) -> None:
    made = {
        package: border.author.post(
            "/v1/channels", json={"channel": "own", "package": package, "selector": "app=x"}
        )
        for package in ("secret/web", "secret/none")
    }

    codes = {(answer.status_code, answer.json()["code"]) for answer in made.values()}
    assert codes == {(403, "missing_permission")}
