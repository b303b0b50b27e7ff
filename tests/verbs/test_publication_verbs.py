"""Rolling back a publication and collecting generations: the same through each door."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, SharedServers, Verb, VerbCase, check, serve
from tidegate.control.publication.entries import PublicationPolicy
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Role

KEY = "docs-index"
FIRST = "2026-04-24T20:00:00.000000Z-7692c3ad3540"  # the time and the content of a generation
POLICY = PublicationPolicy(versioned=True, retention=timedelta(hours=2))
MANAGER = (Role.RELEASE_MANAGER,)
OPERATOR = (Role.FLEET_OPERATOR,)
VIEWER = (Role.VIEWER,)
NO_PAGE = "the dashboard has no page of publications"


def publish(fleet: ServedFleet) -> None:
    """Create a publication with two generations."""
    fleet.installation.publisher.serve(KEY, lambda: b"one", POLICY)
    fleet.wait(3_600)
    fleet.installation.publisher.serve(KEY, lambda: b"two", POLICY)


def expire(fleet: ServedFleet) -> None:
    publish(fleet)
    fleet.wait(5 * 3_600)


def sail(fleet: ServedFleet) -> None:
    """Create a channel with a manifest."""
    fleet.sail()
    fleet.installation.manifests.publish(CHANNEL)


def roll_back_to(version_id: str, key: str = KEY) -> Verb:
    return Verb(
        steps.ROLL_BACK_PUBLICATION,
        ApiCall("POST", f"/v1/publications/{key}/roll-back", {"version_id": version_id}),
        ("publication", "rollback", key, version_id),
        NO_PAGE,
    )


ROLL_BACK = roll_back_to(FIRST)
COLLECT = Verb(
    steps.COLLECT_PUBLICATIONS,
    ApiCall("POST", "/v1/publication-collections"),
    ("publication", "collect"),
    NO_PAGE,
)
CASES = (
    VerbCase(ROLL_BACK, "to the first generation", MANAGER, publish),
    VerbCase(roll_back_to("v0"), "to an unknown generation", MANAGER, publish, "not_found"),
    VerbCase(ROLL_BACK, "where nothing is published", MANAGER, code="not_found"),
    VerbCase(roll_back_to(FIRST, CHANNEL), "of a channel", MANAGER, sail, "publication_of_channel"),
    VerbCase(ROLL_BACK, "as an operator", OPERATOR, publish, "missing_permission"),
    VerbCase(COLLECT, "what is past its ttl", OPERATOR, expire),
    VerbCase(COLLECT, "when nothing is", OPERATOR, publish, changes=False),
    VerbCase(COLLECT, "as a viewer", VIEWER, expire, "missing_permission"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


def test_rolls_back_once_under_one_idempotency_key(tmp_path: Path) -> None:
    """A repeat does not undo what was published in between."""
    with serve(tmp_path / "data") as fleet:
        publish(fleet)
        path, body = f"/v1/publications/{KEY}/roll-back", {"version_id": FIRST}
        key = {"idempotency-key": "k1"}

        first = fleet.manager.post(path, json=body, headers=key)
        fleet.wait(3_600)
        fleet.installation.publisher.serve(KEY, lambda: b"three", POLICY)
        again = fleet.manager.post(path, json=body, headers=key)
        other = fleet.manager.post(path, json={"version_id": "v0"}, headers=key)

        assert (first.status_code, again.status_code) == (200, 200), again.text
        assert first.json() == again.json()
        assert other.json()["code"] == "idempotency_mismatch"
        assert fleet.viewer.get(f"/v1/publications/{KEY}").content == b"three"
