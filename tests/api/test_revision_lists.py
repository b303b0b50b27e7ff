"""Revisions over HTTP: listed by state, author and owner, and cleaned up by owner."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.serving import Served
from tidegate.domain.access.roles import Role


@pytest.fixture
def people(served: Served) -> People:
    return People(served)


def test_lists_by_repository_package_and_lifecycle(people: People) -> None:
    people.draft()
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    people.draft(packageName="other")

    def names(**params: Any) -> list[str]:
        items = people.viewer.get("/v1/revisions", params=params).json()["items"]
        return [item["metadata"]["name"] for item in items]

    assert names() == ["default.other.v1", NAME, "default.web.v2"]
    assert names(package="default/web") == [NAME, "default.web.v2"]
    assert names(lifecycle="Published") == [NAME]
    assert names(repository="default", lifecycle="Draft") == ["default.other.v1", "default.web.v2"]
    assert people.viewer.get("/v1/revisions", params={"lifecycle": "X"}).status_code == 400


def test_lists_by_author(people: People) -> None:
    other = people.served.as_role(Role.AUTHOR)
    people.draft()
    people.publish()
    people.draft(packageName="other")
    body = {"repository": "default", "packageName": "theirs", "workspaceName": "v1"}
    assert other.post("/v1/revisions", json=body).status_code == 201
    author = people.author.get("/v1/me").json()["user_id"]

    def names(who: httpx2.Client = people.viewer, **params: Any) -> list[str]:
        answer = who.get("/v1/revisions", params=params)
        assert answer.status_code == 200, answer.text
        return [item["metadata"]["name"] for item in answer.json()["items"]]

    first = people.viewer.get("/v1/revisions", params={"author": author, "limit": 1}).json()
    rest = names(author=author, limit=1, next=first["next"])

    assert names(author=author) == ["default.other.v1", NAME]
    assert [item["metadata"]["name"] for item in first["items"]] == ["default.other.v1"]
    assert rest == [NAME]
    assert names(other, author="me") == ["default.theirs.v1"]
    assert names(author="me") == [], "a viewer drafts nothing"
    assert names(author=author, lifecycle="Published") == [NAME]
    assert names(author=author, package="default/theirs") == []
    assert names(author=author[:-1]) == [], "a prefix of a name matches no user"
    assert people.viewer.get("/v1/revisions", params={"author": "a\x1fb"}).status_code == 400


def test_lists_by_owner(people: People) -> None:
    edge, core = {"kind": "variant", "id": "edge"}, {"kind": "acme.example/team", "id": "a/b"}
    people.draft(ownerReferences=[edge, core])
    people.draft(packageName="a", ownerReferences=[edge])
    people.draft(packageName="z", ownerReferences=[edge])
    people.draft(packageName="other")

    def names(**params: Any) -> list[str]:
        answer = people.viewer.get("/v1/revisions", params=params)
        assert answer.status_code == 200, answer.text
        return [item["metadata"]["name"] for item in answer.json()["items"]]

    def owned_by(name: str, *owners: dict[str, str]) -> None:
        changed = people.author.patch(
            f"/v1/revisions/{name}",
            json={"ownerReferences": list(owners)},
            headers=people.seen(name),
        )
        assert changed.status_code == 200, changed.text

    first = people.viewer.get("/v1/revisions", params={"owner": "variant/edge", "limit": 2}).json()
    rest = names(owner="variant/edge", limit=2, next=first["next"])
    before = names(owner="variant/edge")
    other = names(owner="acme.example/team/a/b")
    owned_by("default.a.v1", core)
    people.author.delete("/v1/revisions/default.z.v1")

    assert before == ["default.a.v1", NAME, "default.z.v1"]
    assert [item["metadata"]["name"] for item in first["items"]] == before[:2]
    assert rest == before[2:]
    assert other == [NAME]
    assert names(owner="variant/edge") == [NAME]
    assert names(owner="acme.example/team/a/b") == ["default.a.v1", NAME]
    assert names(owner="variant/edge", lifecycle="Published") == []
    assert names(owner="variant/edge", package="default/a") == []
    assert names(owner="variant/nobody") == []
    assert people.viewer.get("/v1/revisions", params={"owner": "edge"}).status_code == 400


def test_reaps_open_revisions_of_an_owner_that_is_gone(people: People) -> None:
    admin = people.served.admin
    owner = {"kind": "variant", "id": "edge"}
    people.draft(ownerReferences=[owner])
    people.publish()
    edit = [{"type": "edit", "source": NAME}]
    people.draft("v2", tasks=edit, ownerReferences=[owner])
    people.draft("v3", tasks=edit, ownerReferences=[{"kind": "variant", "id": "core"}])
    url = "/v1/revision-reaps"

    refused = people.author.post(url, json=owner)
    nobody = admin.post(url, json={"kind": "variant", "id": ""})
    reaped = admin.post(url, json=owner)
    again = admin.post(url, json=owner)

    assert (refused.status_code, nobody.status_code) == (403, 400)
    assert reaped.status_code == 200, reaped.text
    assert (reaped.json()["deleted"], reaped.json()["kept"]) == (["default.web.v2"], [])
    assert reaped.headers["tidegate-position"] == str(reaped.json()["position"])
    assert again.json() == {"deleted": [], "kept": [], "position": 0}
    items = people.viewer.get("/v1/revisions").json()["items"]
    assert [item["metadata"]["name"] for item in items] == [NAME, "default.web.v3"]
    event = people.served.installation.log.feed(after=reaped.json()["position"] - 1, limit=1)[0]
    assert (event.meta.actor, event.meta.on_behalf_of) == (
        "reaper",
        admin.get("/v1/me").json()["user_id"],
    )
