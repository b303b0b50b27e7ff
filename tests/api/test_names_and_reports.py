"""Readers see who approved; reporting a check's result needs no right to edit content."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

from tests.agent.single_host import T0
from tests.api.accounts import LOGIN, NAME, PASSWORD
from tests.api.people import NAME as REVISION, People
from tests.api.serving import Served, serving
from tidegate.clock import ManualClock
from tidegate.control.operations.accounts import PersonNames
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.domain.access.roles import Grant, Role

ROSALIND = "user_rosalind00"


def publish(served: Served) -> People:
    """Let Rosalind approve a revision of the author."""
    people = People(served)
    served.add_person(ROSALIND, PersonNames(LOGIN, NAME), PASSWORD, Grant(Role.APPROVER))
    people.draft()
    assert people.step(people.author, "propose").status_code == 200
    digest = people.document()["status"]["content"]["digest"]
    rosalind = served.client(served.token(ROSALIND))
    assert people.step(rosalind, "approve", digest=digest).status_code == 200
    return people


def test_every_reader_of_the_repository_sees_the_names(served: Served) -> None:
    people = publish(served)
    here = served.as_role(Grant(Role.VIEWER, "repository:default"))
    elsewhere = served.as_role(Grant(Role.VIEWER, "repository:elsewhere"))
    path = f"/v1/revisions/{REVISION}/people"

    for reader in (people.viewer, here):
        found = {item["user_id"]: item["name"] for item in reader.get(path).json()["items"]}
        assert found[ROSALIND] == NAME
        assert len(found) == 2, "the author, whose name is not known, and the approver"
    assert elsewhere.get(path).status_code == 403

    assert served.admin.post(f"/v1/users/{ROSALIND}/erase").status_code == 200
    erased = {i["user_id"]: i["name"] for i in people.viewer.get(path).json()["items"]}
    assert erased[ROSALIND] is None


def test_a_reporter_sets_conditions_and_edits_nothing(served: Served) -> None:
    people = People(served)
    people.draft(readinessGates=["tested"])
    reporter = served.as_role(Role.REPORTER)
    digest = people.document()["status"]["content"]["digest"]
    body = {"digest": digest, "conditions": [{"type": "tested", "status": "True"}]}
    path = f"/v1/revisions/{REVISION}"

    told = reporter.put(f"{path}/conditions", json=body, headers=people.seen(REVISION))
    edited = reporter.put(f"{path}/resources", json={"files": []}, headers=people.seen(REVISION))
    proposed = people.step(reporter, "propose")
    refused = people.approver.put(f"{path}/conditions", json=body, headers=people.seen(REVISION))

    assert told.status_code == 200, told.text
    assert (edited.status_code, proposed.status_code, refused.status_code) == (403, 403, 403)
    assert refused.json()["detail"].startswith("This needs the role author or reporter")


def test_lists_generations_newest_first_in_pages(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with serving(tmp_path / "data", clock=clock) as served:
        policy = PublicationPolicy(versioned=True)
        for number in range(5):
            served.installation.publisher.serve("page", partial(bytes, number), policy)
            clock.advance(timedelta(hours=1))
        viewer = served.as_role(Role.VIEWER)
        url, query, found = "/v1/publications/page/generations", "?limit=2", []
        while True:
            page = viewer.get(url + query).json()
            assert len(page["items"]) <= 2
            found += page["items"]
            if not page.get("next"):
                break
            query = f"?limit=2&next={page['next']}"

    assert len(found) == 5
    assert [item["current"] for item in found] == [True, False, False, False, False]
    assert found == sorted(found, key=lambda item: item["generated_at"], reverse=True)
