"""Package revisions over HTTP: how a draft becomes a release."""

from __future__ import annotations

import io
import tarfile
from base64 import b64encode

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.serving import Served
from tidegate.domain.access.roles import Grant, Role

HTTP = {"engines": None, "reason": "what HTTP shows does not depend on the engine"}


@pytest.fixture
def people(served: Served) -> People:
    return People(served)


@pytest.mark.req("LC-15", "LC-8", **HTTP)
def test_publishes_a_revision_of_one_person_that_another_approves(people: People) -> None:
    people.draft()
    people.push(NAME, index_html="<h1>hello</h1>\n")

    published = people.publish().json()

    assert published["spec"]["lifecycle"] == "Published"
    assert published["spec"]["revision"] == 1
    assert published["status"]["publishedBy"] == people.approver.get("/v1/me").json()["user_id"]
    assert published["status"]["latest"] is True
    assert set(published["metadata"]) >= {
        *("resourceVersion", "labels", "annotations", "finalizers"),
        *("ownerReferences", "deletionTimestamp"),
    }
    package = people.viewer.get("/v1/packages/default/web").json()
    assert package["latest"] == {"name": NAME, "number": 1}
    release = people.viewer.get("/v1/releases/web.1").json()
    assert release["revision"] == NAME


@pytest.mark.req("LC-6", **HTTP)
def test_every_change_needs_the_resource_version(people: People) -> None:
    people.draft()
    seen = people.seen(NAME)
    url = f"/v1/revisions/{NAME}"

    missing = people.author.patch(url, json={"labels": {"a": "b"}})
    empty = people.author.patch(url, json={"labels": {"a": "b"}}, headers={"if-match": ""})
    changed = people.author.patch(url, json={"labels": {"a": "b"}}, headers=seen)
    stale = people.author.patch(url, json={"labels": {"a": "c"}}, headers=seen)
    again = people.author.patch(
        url, json={"labels": {"a": "c"}}, headers={"if-match": changed.headers["etag"]}
    )

    assert missing.status_code == 428
    assert (empty.status_code, empty.json()["code"]) == (428, "version_required")
    assert changed.json()["metadata"]["labels"] == {"a": "b"}
    assert (stale.status_code, stale.json()["current"]) == (
        409,
        int(changed.json()["metadata"]["resourceVersion"]),
    )
    assert stale.json()["detail"] == (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    assert again.status_code == 200


def test_authors_cannot_approve_their_own_revisions(people: People) -> None:
    both = people.served.as_role(Role.AUTHOR, Role.APPROVER)
    people.author = both
    people.draft()
    people.step(both, "propose")
    digest = people.document()["status"]["content"]["digest"]

    answer = people.step(both, "approve", digest=digest)

    assert (answer.status_code, answer.json()["code"]) == (403, "self_approval")


@pytest.mark.req("LC-2", "LC-3", "LC-11", **HTTP)
def test_refuses_steps_that_the_state_does_not_allow(people: People) -> None:
    people.draft()
    digest = people.document()["status"]["content"]["digest"]

    approved = people.step(people.approver, "approve", digest=digest)
    born_published = people.author.post(
        "/v1/revisions",
        json={
            "repository": "default",
            "packageName": "x",
            "workspaceName": "v1",
            "lifecycle": "Published",
        },
    )
    unknown = people.author.patch(
        f"/v1/revisions/{NAME}", json={"lifecycle": "Gone"}, headers=people.seen(NAME)
    )

    assert (approved.status_code, approved.json()["code"]) == (422, "invalid_transition")
    assert (approved.json()["from"], approved.json()["to"]) == ("Draft", "Published")
    assert approved.json()["allowed"] == "Proposed"
    assert born_published.status_code == 400
    assert born_published.json()["detail"] == (
        "cannot create a package revision with lifecycle value 'Final'"
    )
    assert unknown.json()["detail"] == "invalid desired lifecycle value: Gone"


def test_records_withdrawals_and_rejections_separately(people: People) -> None:
    people.draft()
    people.step(people.author, "propose")

    refused = people.step(people.approver, "reject")
    rejected = people.step(people.approver, "reject", reason="too plain")
    people.step(people.author, "propose")
    withdrawn = people.step(people.author, "withdraw")

    assert refused.status_code == 400
    assert rejected.json()["spec"]["lifecycle"] == "Draft"
    assert withdrawn.json()["spec"]["lifecycle"] == "Draft"


def test_an_update_by_an_author_cannot_reject(people: People) -> None:
    people.draft()
    people.step(people.author, "propose")
    other = people.served.as_role(Role.AUTHOR)
    body = {"lifecycle": "Draft", "reason": "mine"}

    refused = other.patch(f"/v1/revisions/{NAME}", json=body, headers=people.seen(NAME))
    own = people.author.patch(f"/v1/revisions/{NAME}", json=body, headers=people.seen(NAME))

    assert (refused.status_code, refused.json()["code"]) == (403, "missing_permission")
    assert own.json()["spec"]["lifecycle"] == "Draft"


@pytest.mark.req("LC-13", "LC-14", **HTTP)
def test_updates_a_draft_in_one_request_or_not_at_all(people: People) -> None:
    people.draft()
    url = f"/v1/revisions/{NAME}"
    body = {
        "files": [{"path": "a.bin", "base64": b64encode(b"\x00\x01").decode()}],
        "labels": {"team": "web"},
        "lifecycle": "Proposed",
    }

    answer = people.author.patch(url, json=body, headers=people.seen(NAME))
    frozen = people.author.patch(
        url,
        json={"files": [], "labels": {"team": "other"}},
        headers={"if-match": answer.headers["etag"]},
    )

    assert answer.json()["spec"]["lifecycle"] == "Proposed"
    assert answer.json()["metadata"]["labels"] == {"team": "web"}
    assert answer.json()["status"]["content"]["file_count"] == 1
    assert (frozen.status_code, frozen.json()["code"]) == (422, "immutable")
    assert people.document()["metadata"]["labels"] == {"team": "web"}


def test_returns_files_as_they_were_sent(people: People) -> None:
    people.draft()
    files = [
        {"path": "deep/er/ü.txt", "text": "Grüße\n"},
        {"path": "b.bin", "base64": b64encode(bytes(range(256))).decode()},
    ]
    people.author.put(
        f"/v1/revisions/{NAME}/resources", json={"files": files}, headers=people.seen(NAME)
    )
    url = f"/v1/revisions/{NAME}/resources"

    listed = people.viewer.get(url).json()
    text = people.viewer.get(f"{url}/deep/er/ü.txt")
    binary = people.viewer.get(f"{url}/b.bin")
    archive = people.viewer.get(f"/v1/revisions/{NAME}/archive")

    assert [file["path"] for file in listed["files"]] == ["b.bin", "deep/er/ü.txt"]
    assert text.content.decode() == "Grüße\n"
    assert text.headers["content-disposition"] == "attachment"
    assert binary.content == bytes(range(256))
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as tar:
        assert sorted(tar.getnames()) == ["b.bin", "deep/er/ü.txt"]
    missing = people.viewer.get(f"{url}/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "file_not_found")


@pytest.mark.parametrize(
    "file",
    [
        {"path": "/etc/passwd", "text": ""},
        {"path": "../up", "text": ""},
        {"path": "a\\b", "text": ""},
        {"path": "a"},
        {"path": "a", "text": "", "base64": ""},
        {"path": "a", "base64": "!"},
    ],
)
def test_refuses_invalid_files(people: People, file: dict[str, str]) -> None:
    people.draft()

    answer = people.author.put(
        f"/v1/revisions/{NAME}/resources", json={"files": [file]}, headers=people.seen(NAME)
    )

    assert answer.status_code == 400
    assert people.document()["status"]["content"]["file_count"] == 0


def test_shows_how_two_revisions_differ_line_by_line(people: People) -> None:
    people.draft()
    people.push(NAME, a_txt="one\ntwo\n", gone_txt="bye\n")
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    people.push("default.web.v2", a_txt="one\nthree\n", new_txt="hi\n")

    found = people.viewer.get("/v1/revisions/default.web.v2/diff").json()

    assert (found["old"], found["new"]) == (NAME, "default.web.v2")
    changes = {item["path"]: (item["what"], item["patch"]) for item in found["changes"]}
    assert {path: what for path, (what, _) in changes.items()} == {
        "a.txt": "changed",
        "gone.txt": "removed",
        "new.txt": "added",
    }
    assert "-two\n+three\n" in (changes["a.txt"][1] or "")


@pytest.mark.req("LC-9", "LC-18", **HTTP)
def test_clones_edits_and_upgrades(people: People) -> None:
    people.draft()
    people.push(NAME, a_txt="1\n", b_txt="1\n")
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    people.push("default.web.v2", a_txt="2\n", b_txt="1\n")
    people.publish("default.web.v2")
    clone = {"type": "clone", "upstream": NAME}
    people.draft(packageName="site", tasks=[clone])
    site = "default.site.v1"
    people.push(site, a_txt="1\n", b_txt="local\n")
    people.publish(site)

    upgrade = {
        "type": "upgrade",
        "oldUpstream": NAME,
        "newUpstream": "default.web.v2",
        "localPackageRevision": site,
    }
    people.draft("v2", packageName="site", tasks=[upgrade])

    url = "/v1/revisions/default.site.v2"
    contents = {
        path: people.viewer.get(f"{url}/resources/{path}").text for path in ("a.txt", "b.txt")
    }
    assert contents == {"a.txt": "2\n", "b.txt": "local\n"}
    lineage = people.viewer.get(f"{url}/lineage").json()
    assert [item["name"] for item in lineage["lineage"]] == ["default.web.v2"]
    kept = people.step(people.author, "propose-delete", "default.web.v2")
    assert kept.status_code == 200
    deleted = people.approver.delete("/v1/revisions/default.web.v2")
    assert (deleted.status_code, deleted.json()["code"]) == (403, "still_referenced")


@pytest.mark.req("LC-7", "LC-16", **HTTP)
def test_deletes_when_the_last_finalizer_is_removed_and_keeps_the_history(people: People) -> None:
    people.draft(finalizers=["wait"])
    url = f"/v1/revisions/{NAME}"

    held = people.author.delete(url)
    gone = people.author.patch(url, json={"finalizers": []}, headers=people.seen(NAME))

    assert held.status_code == 202
    assert held.json()["metadata"]["deletionTimestamp"]
    assert gone.status_code == 200
    assert gone.json()["metadata"]["name"] == NAME
    assert gone.json()["metadata"]["finalizers"] == []
    assert gone.json()["metadata"]["deletionTimestamp"]
    assert int(gone.headers["tidegate-position"]) > int(held.headers["tidegate-position"])
    assert people.viewer.get(url).status_code == 404
    steps = people.viewer.get(f"{url}/history").json()["items"]
    assert [step["action"] for step in steps] == [
        *("Create", "Start-delete", "Update-metadata", "Delete"),
    ]


def test_refuses_labels_that_tidegate_sets_itself(people: People) -> None:
    body = {"repository": "default", "packageName": "web", "workspaceName": "v1"}
    labels = {"tidegate/latest": "true"}
    url = f"/v1/revisions/{NAME}"

    created = people.author.post("/v1/revisions", json={**body, "labels": labels})
    people.draft(labels={"tidegate.example/latest": "mine"})
    changed = people.author.patch(url, json={"labels": labels}, headers=people.seen(NAME))

    for refused in (created, changed):
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")
        assert "tidegate/" in refused.json()["detail"]


def test_after_a_lowered_quorum_an_approver_can_approve_again(
    people: People,
) -> None:
    url = "/v1/repositories/default"

    def set_quorum(quorum: int) -> None:
        seen = {"if-match": people.served.admin.get(url).headers["etag"]}
        done = people.served.admin.patch(url, json={"quorum": quorum}, headers=seen)
        assert done.status_code == 200, done.text

    set_quorum(2)
    digest = people.draft().json()["status"]["content"]["digest"]
    people.step(people.author, "propose")
    first = people.step(people.approver, "approve", digest=digest)
    waiting = people.document()
    set_quorum(1)
    ready = people.document()
    again = people.step(people.approver, "approve", digest=digest)

    assert first.json()["spec"]["lifecycle"] == "Proposed"
    assert waiting["status"]["readyToPublish"] is False
    assert (ready["spec"]["lifecycle"], ready["status"]["readyToPublish"]) == ("Proposed", True)
    assert again.status_code == 200, again.text
    assert again.json()["spec"]["lifecycle"] == "Published"
    assert len(again.json()["status"]["approvedBy"]) == 1


@pytest.mark.req("LC-10", **HTTP)
def test_lists_who_did_what_in_order(people: People) -> None:
    people.draft()
    people.push(NAME, a_txt="1")
    people.publish()

    steps = people.viewer.get(f"/v1/revisions/{NAME}/history", params={"limit": 2}).json()
    rest = people.viewer.get(
        f"/v1/revisions/{NAME}/history", params={"limit": 50, "next": steps["next"]}
    ).json()

    actions = [step["action"] for step in (*steps["items"], *rest["items"])]
    assert actions == ["Create", "Update", "Propose", "Approve", "Publish"]
    author, approver = (
        client.get("/v1/me").json()["user_id"] for client in (people.author, people.approver)
    )
    by = [step["by"] for step in (*steps["items"], *rest["items"])]
    assert by == [author] * 3 + [approver] * 2


def test_a_repeat_gets_the_first_response_although_the_revision_changed(people: People) -> None:
    people.draft()
    headers = {**people.seen(NAME), "idempotency-key": "propose-once"}
    url = f"/v1/revisions/{NAME}/propose"

    first = people.author.post(url, json={}, headers=headers)
    people.step(people.approver, "reject", reason="no")
    again = people.author.post(url, json={}, headers=headers)

    assert again.status_code == first.status_code == 200
    assert again.json() == first.json()
    assert again.headers["etag"] == first.headers["etag"]
    assert people.document()["spec"]["lifecycle"] == "Draft", "nothing was proposed again"


def test_creates_once_under_one_key(people: People) -> None:
    body = {"repository": "default", "packageName": "web", "workspaceName": "v1"}
    headers = {"idempotency-key": "k"}

    first = people.author.post("/v1/revisions", json=body, headers=headers)
    again = people.author.post("/v1/revisions", json=body, headers=headers)
    without = people.author.post("/v1/revisions", json=body)

    assert again.json() == first.json()
    assert (without.status_code, without.json()["code"]) == (409, "already_exists")


def test_a_repeated_upgrade_gets_the_first_response_although_a_source_is_gone(
    people: People,
) -> None:
    site = "default.site.v1"
    people.draft()
    people.push(NAME, a_txt="1")
    people.publish()
    people.draft(packageName="site", tasks=[{"type": "clone", "upstream": NAME}])
    people.publish(site)
    upgrade = {
        "type": "upgrade",
        "oldUpstream": NAME,
        "newUpstream": NAME,
        "localPackageRevision": site,
    }
    body = {"repository": "default", "packageName": "site", "workspaceName": "v2"}
    headers = {"idempotency-key": "k"}
    asked = {**body, "tasks": [upgrade]}

    first = people.author.post("/v1/revisions", json=asked, headers=headers)
    assert people.step(people.author, "propose-delete", site).status_code == 200
    assert people.approver.delete(f"/v1/revisions/{site}").status_code == 204
    again = people.author.post("/v1/revisions", json=asked, headers=headers)

    assert first.status_code == 201
    assert (again.status_code, again.json()) == (201, first.json())


def test_shows_a_revision_as_it_was(people: People) -> None:
    drafted = people.draft()
    position = drafted.headers["tidegate-position"]
    people.publish()
    url = f"/v1/revisions/{NAME}"

    then = people.viewer.get(url, params={"as_of": position})
    before = people.viewer.get(url, params={"as_of": int(position) - 2})

    assert then.json() == drafted.json()
    assert then.headers["tidegate-position"] == position
    assert before.status_code == 404


def test_changes_the_etag_when_another_revision_becomes_the_latest(people: People) -> None:
    people.draft()
    people.publish()
    url = f"/v1/revisions/{NAME}"
    first = people.viewer.get(url)
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    people.publish("default.web.v2")

    second = people.viewer.get(url, headers={"if-none-match": first.headers["etag"]})

    assert second.status_code == 200
    assert (first.json()["status"]["latest"], second.json()["status"]["latest"]) == (True, False)
    labelled = people.author.patch(
        url, json={"labels": {"a": "b"}}, headers={"if-match": first.headers["etag"]}
    )
    assert labelled.status_code == 200, "the revision itself did not change"


def test_authors_can_change_only_their_repository(people: People) -> None:
    people.served.admin.post("/v1/repositories", json={"name": "other"})
    author = people.served.as_role(Grant(Role.AUTHOR, "repository:other"))

    there = author.post(
        "/v1/revisions", json={"repository": "other", "packageName": "a", "workspaceName": "v1"}
    )
    here = author.post(
        "/v1/revisions", json={"repository": "default", "packageName": "a", "workspaceName": "v1"}
    )

    assert (there.status_code, here.status_code) == (201, 403)
    seen = author.get("/v1/revisions").json()["items"]
    assert [item["spec"]["repository"] for item in seen] == ["other"]


def test_deletes_a_whole_package_or_lists_every_reason(people: People) -> None:
    admin = people.served.as_role(Role.SECURITY_ADMIN, Role.APPROVER)
    people.draft()
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    url = "/v1/packages/default/web"

    def deleted() -> httpx2.Response:
        return admin.delete(url, headers={"if-match": people.viewer.get(url).headers["etag"]})

    refused = deleted()
    people.step(people.author, "propose-delete")
    stale = admin.delete(url, headers={"if-match": '"1"'})
    gone = deleted()

    assert (refused.status_code, refused.json()["code"]) == (403, "package_not_deletable")
    assert stale.status_code == 409
    assert gone.status_code == 200, gone.text
    assert people.viewer.get("/v1/revisions").json()["items"] == []
    assert people.viewer.get(f"/v1/revisions/{NAME}/history").status_code == 200
    steps = people.viewer.get("/v1/package-history/default/web").json()["items"]
    assert steps[-1]["action"] == "Empty-package"


def test_a_repeated_deletion_of_a_package_gets_the_first_response(people: People) -> None:
    admin = people.served.admin
    people.draft()
    url = "/v1/packages/default/web"
    headers = {**_etag(people, url), "idempotency-key": "once"}

    first = admin.delete(url, headers=headers)
    again = admin.delete(url, headers=headers)
    people.draft("v2")
    later = admin.delete(url, headers=headers)
    other = admin.delete(url, headers={**_etag(people, url), "idempotency-key": "once"})
    without = admin.delete(url, headers={"if-match": headers["if-match"]})

    assert (first.status_code, again.status_code, later.status_code) == (200, 200, 200)
    assert again.json() == later.json() == first.json()
    assert again.headers["tidegate-position"] == first.headers["tidegate-position"]
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert (without.status_code, without.json()["code"]) == (409, "version_conflict")
    assert people.document("default.web.v2")["spec"]["lifecycle"] == "Draft", "it still exists"


def _etag(people: People, url: str) -> dict[str, str]:
    return {"if-match": people.viewer.get(url).headers["etag"]}


def test_imports_revisions_that_were_published_elsewhere(people: People) -> None:
    files = [{"path": "a.txt", "text": "old"}]
    body = {
        "source": "elsewhere",
        "revisions": [{"workspaceName": "v7", "number": 7, "files": files}],
    }

    refused = people.author.post("/v1/package-imports/default/web", json=body)
    made = people.served.admin.post("/v1/package-imports/default/web", json=body)

    assert refused.status_code == 403
    assert made.status_code == 201, made.text
    found = people.document("default.web.v7")
    assert (found["spec"]["revision"], found["spec"]["lifecycle"]) == (7, "Published")


def test_takes_readiness_from_reported_conditions(people: People) -> None:
    drafted = people.draft(readinessGates=["tested"])
    digest = drafted.json()["status"]["content"]["digest"]

    early = people.step(people.author, "propose")
    people.author.put(
        f"/v1/revisions/{NAME}/conditions",
        json={"digest": digest, "conditions": [{"type": "tested", "status": "True"}]},
        headers=people.seen(NAME),
    )
    ready = people.step(people.author, "propose")

    assert (early.status_code, early.json()["code"]) == (422, "not_ready")
    assert ready.status_code == 200


def test_rows_equal_the_log_in_the_end(people: People) -> None:
    people.draft()
    people.publish()

    found = people.served.admin.get("/v1/views/verify").json()

    assert (found["verified"], found["count"]) == (True, 0)
