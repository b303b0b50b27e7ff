"""A deletion proposal, made by one person, stops no rollback and no rollout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet, serve_fleet
from tests.domain.documents import good
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role

OLD, NEW = "default.web.v1", "default.web.v2"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data", (*ROUTES, *PAGES)) as fleet:
        yield fleet


def moved_on(fleet: ServedFleet) -> None:
    """web.1 runs everywhere; web.2 is promoted and fails on the first host."""
    fleet.sail()
    fleet.converge("web-01")
    fleet.dispatch()
    fleet.converge("web-02")
    promoted = fleet.promote("web.2")
    assert promoted.status_code == 200, promoted.text
    fleet.dispatch()
    fleet.fail("web-01")


def propose_deletion(fleet: ServedFleet, name: str) -> httpx2.Response:
    return fleet.step(fleet.author, "propose-delete", name, reason="old")


def test_a_proposal_does_not_prevent_a_rollback(fleet: ServedFleet) -> None:
    assert propose_deletion(fleet, OLD).status_code == 200
    moved_on(fleet)

    back = fleet.manager.post(f"/v1/channels/{CHANNEL}/rollback", json={"reason": "bad"})

    assert back.status_code == 200, back.text
    assert back.json()["release_id"] == "web.1"
    actual = fleet.viewer.get(f"/v1/releases/{CHANNEL}/actual").json()
    assert actual["pinnedReleaseId"] == "web.1"
    deleted = fleet.approver.delete(f"/v1/revisions/{OLD}")
    assert (deleted.status_code, deleted.json()["code"]) == (403, "still_pinned")


def test_a_proposal_does_not_prevent_a_rollback_on_the_page(fleet: ServedFleet) -> None:
    assert propose_deletion(fleet, OLD).status_code == 200
    moved_on(fleet)
    manager = fleet.served.as_role(Role.RELEASE_MANAGER)
    seen = fleet.viewer.get(f"/v1/releases/{CHANNEL}/actual").headers["etag"].strip('"')

    page = manager.get(f"/channels/{CHANNEL}").text
    form = {"release": "web.1", "expected_version": seen}
    back = manager.post(f"/channels/{CHANNEL}/promote", data=form)

    assert '<option value="web.1"' in page
    assert back.status_code == 303, back.text
    actual = fleet.viewer.get(f"/v1/releases/{CHANNEL}/actual").json()
    assert actual["pinnedReleaseId"] == "web.1"


def test_a_manifest_still_matches_a_release_proposed_for_deletion(fleet: ServedFleet) -> None:
    assert propose_deletion(fleet, OLD).status_code == 200
    moved_on(fleet)
    scope = "/v1/releases/factory"
    second = fleet.viewer.get("/v1/releases/web.2").json()["digest"]
    evidence = good(("operator_command", "release-control-plane"), "factory", "web.2", second)
    pin = {"releaseId": "web.2", "digest": second, **evidence}
    assert fleet.manager.post(f"{scope}/register", json=pin).status_code == 201
    digest = fleet.viewer.get("/v1/releases/web.1").json()["digest"]
    seen = {"if-match": fleet.viewer.get(f"{scope}/actual").headers["etag"]}
    body = {
        "batch": "b1",
        "ref": "factory://batch",
        "observedAt": fleet.clock().isoformat().replace("+00:00", "Z"),
        "digests": [digest],
    }

    sent = fleet.manager.post(f"{scope}/manifests", json=body, headers=seen)

    assert sent.status_code == 201, sent.text
    actual = fleet.viewer.get(f"{scope}/actual").json()
    assert actual["pinnedReleaseId"] == "web.1"


@pytest.mark.parametrize("by", ["its own route", "an update"])
def test_a_proposal_is_refused_while_a_channel_is_pinned_and_names_it(
    fleet: ServedFleet, by: str
) -> None:
    fleet.sail()
    if by == "an update":
        refused = fleet.author.patch(
            f"/v1/revisions/{OLD}",
            json={"lifecycle": "DeletionProposed"},
            headers=fleet.seen(OLD),
        )
    else:
        refused = propose_deletion(fleet, OLD)

    assert (refused.status_code, refused.json()["code"]) == (403, "still_pinned")
    assert refused.json()["detail"] == (
        f"web.1 can't be proposed for deletion: it is what {CHANNEL} wants. "
        f"Promote another release there first: tidegate channel promote {CHANNEL} RELEASE"
    )
    assert refused.json()["channels"] == [CHANNEL]
    assert (refused.json()["hosts"], refused.json()["host_count"]) == ([], 0)
    assert fleet.document(OLD)["spec"]["lifecycle"] == "Published"


def test_a_refusal_names_the_hosts_that_run_the_release(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.converge("web-01")
    fleet.dispatch()
    fleet.converge("web-02")

    refused = propose_deletion(fleet, OLD).json()

    assert refused["detail"] == (
        f"web.1 can't be proposed for deletion: it is what {CHANNEL} wants, and web-01, web-02 "
        "run it. Promote another release there first: "
        f"tidegate channel promote {CHANNEL} RELEASE"
    )
    assert (refused["hosts"], refused["host_count"]) == (["web-01", "web-02"], 2)


def test_a_refusal_hides_hosts_of_channels_that_the_caller_cannot_read(
    fleet: ServedFleet,
) -> None:
    fleet.sail()
    fleet.converge("web-01")
    author = fleet.served.as_role(Grant(Role.AUTHOR, "repository:default"))

    refused = fleet.step(author, "propose-delete", OLD, reason="old").json()

    assert (refused["code"], refused["hosts"]) == ("still_pinned", [])
    assert "web-01" not in refused["detail"]


def test_a_proposal_is_refused_while_a_channel_would_roll_back_to_it(fleet: ServedFleet) -> None:
    moved_on(fleet)

    refused = propose_deletion(fleet, OLD)

    assert (refused.status_code, refused.json()["code"]) == (403, "still_rollback_target")
    assert refused.json()["detail"] == (
        f"web.1 can't be proposed for deletion: {CHANNEL} would roll back to it"
    )
    assert refused.json()["channels"] == [CHANNEL]


def test_a_proposal_is_possible_once_the_channel_moved_on(fleet: ServedFleet) -> None:
    fleet.sail()
    assert propose_deletion(fleet, OLD).status_code == 403
    assert fleet.promote("web.2").status_code == 200

    proposed = propose_deletion(fleet, OLD)

    assert proposed.json()["spec"]["lifecycle"] == "DeletionProposed"
    assert propose_deletion(fleet, NEW).status_code == 403
