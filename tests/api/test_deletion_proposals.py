"""A deletion proposal is one person's word: it stops no rollback and no rollout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.api.served_fleet import CHANNEL, Crew, sailing
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Role

OLD, NEW = "default.web.v1", "default.web.v2"


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with sailing(tmp_path / "data", (*ROUTES, *PAGES)) as crew:
        yield crew


def moved_on(crew: Crew) -> None:
    """web.1 runs everywhere; web.2 is promoted and fails on the first host."""
    crew.sail()
    crew.converge("web-01")
    crew.dispatch()
    crew.converge("web-02")
    promoted = crew.promote("web.2")
    assert promoted.status_code == 200, promoted.text
    crew.dispatch()
    crew.fail("web-01")


def propose_deletion(crew: Crew, name: str) -> httpx2.Response:
    return crew.step(crew.author, "propose-delete", name, reason="old")


def test_a_proposal_leaves_the_way_back_open(crew: Crew) -> None:
    moved_on(crew)
    assert propose_deletion(crew, OLD).status_code == 200

    back = crew.manager.post(f"/v1/channels/{CHANNEL}/rollback", json={"reason": "bad"})

    assert back.status_code == 200, back.text
    assert back.json()["release_id"] == "web.1"
    actual = crew.viewer.get(f"/v1/releases/{CHANNEL}/actual").json()
    assert actual["pinnedReleaseId"] == "web.1"
    deleted = crew.approver.delete(f"/v1/revisions/{OLD}")
    assert (deleted.status_code, deleted.json()["code"]) == (403, "still_pinned")


def test_a_proposal_leaves_the_way_back_open_on_the_page(crew: Crew) -> None:
    moved_on(crew)
    assert propose_deletion(crew, OLD).status_code == 200
    manager = crew.served.as_role(Role.RELEASE_MANAGER)
    version = crew.viewer.get(f"/v1/releases/{CHANNEL}/actual").json()["version"]

    page = manager.get(f"/channels/{CHANNEL}").text
    form = {"release": "web.1", "command_id": "back-to-web-1", "version": str(version)}
    back = manager.post(f"/channels/{CHANNEL}/promote", data=form)

    assert '<option value="web.1"' in page
    assert back.status_code == 303, back.text
    actual = crew.viewer.get(f"/v1/releases/{CHANNEL}/actual").json()
    assert actual["pinnedReleaseId"] == "web.1"


def test_a_proposal_leaves_a_manifest_its_match(crew: Crew) -> None:
    moved_on(crew)
    digest = crew.viewer.get("/v1/releases/web.1").json()["digest"]
    assert propose_deletion(crew, OLD).status_code == 200
    seen = {"if-match": crew.viewer.get(f"/v1/releases/{CHANNEL}/actual").headers["etag"]}
    body = {
        "batch": "b1",
        "ref": "factory://batch",
        "observedAt": crew.clock().isoformat().replace("+00:00", "Z"),
        "digests": [digest],
    }

    sent = crew.manager.post(f"/v1/releases/{CHANNEL}/manifests", json=body, headers=seen)

    assert sent.status_code == 201, sent.text
    actual = crew.viewer.get(f"/v1/releases/{CHANNEL}/actual").json()
    assert actual["pinnedReleaseId"] == "web.1"


@pytest.mark.parametrize("by", ["its own route", "an update"])
def test_a_proposal_is_refused_while_a_channel_is_pinned_and_names_it(crew: Crew, by: str) -> None:
    crew.sail()
    if by == "an update":
        refused = crew.author.patch(
            f"/v1/revisions/{OLD}",
            json={"lifecycle": "DeletionProposed"},
            headers=crew.seen(OLD),
        )
    else:
        refused = propose_deletion(crew, OLD)

    assert (refused.status_code, refused.json()["code"]) == (403, "still_pinned")
    assert refused.json()["detail"] == (
        f"web.1 is pinned on {CHANNEL}; promote another release there first"
    )
    assert refused.json()["channels"] == [CHANNEL]
    assert crew.document(OLD)["spec"]["lifecycle"] == "Published"


def test_a_proposal_is_possible_once_the_channel_moved_on(crew: Crew) -> None:
    crew.sail()
    assert propose_deletion(crew, OLD).status_code == 403
    assert crew.promote("web.2").status_code == 200

    proposed = propose_deletion(crew, OLD)

    assert proposed.json()["spec"]["lifecycle"] == "DeletionProposed"
    assert propose_deletion(crew, NEW).status_code == 403
