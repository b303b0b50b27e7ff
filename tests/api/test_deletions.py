"""What people can create they can delete, or the response says what still uses it."""

from __future__ import annotations

import pytest

from tests.api.protected_fleet import approver
from tests.api.served_fleet import CHANNEL, ServedFleet

HERE = f"/v1/channels/{CHANNEL}"
WHY = {"reason": "not used any more"}
served = {"engines": None, "reason": "an operation of a served fleet"}


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


def make_dev(fleet: ServedFleet, **policy: object) -> None:
    body = {"channel": "dev", "package": "default/web", "selector": "app=dev", "policy": policy}
    assert fleet.manager.post("/v1/channels", json=body).status_code == 201


@pytest.mark.req("OP-12", **served)
def test_deletes_a_channel_frees_its_hosts_and_keeps_its_history(fleet: ServedFleet) -> None:
    fleet.promote()
    fleet.succeed()
    before = len(fleet.viewer.get(f"{HERE}/history").json()["items"])

    deleted = fleet.manager.post(f"{HERE}/delete", json=WHY)
    gone = fleet.viewer.get(HERE)
    body = {"channel": "other", "package": "default/web", "selector": "app=web"}
    heir = fleet.manager.post("/v1/channels", json=body)
    again = fleet.manager.post("/v1/channels", json=body | {"channel": CHANNEL})
    fleet.dispatch(thorough=True)
    fleet.wait(7_776_001)  # after the retention time of its rollout
    fleet.tick()

    assert before > 0
    assert deleted.status_code == 200, deleted.text
    assert (gone.status_code, heir.status_code) == (404, 201), heir.text
    assert (again.status_code, again.json()["code"]) == (409, "channel_name_used")
    types = [event.type for event in fleet.installation.log.feed(after=0, limit=10_000)]
    assert [name for name in types if name in ("ReleaseRetired", "ChannelDeleted")] == [
        *("ReleaseRetired", "ChannelDeleted"),
    ]
    assert fleet.installation.health.differences() == []


@pytest.mark.req("OP-12", **served)
def test_the_name_of_a_channel_without_releases_is_free_again(fleet: ServedFleet) -> None:
    make_dev(fleet)

    assert fleet.manager.post("/v1/channels/dev/delete", json=WHY).status_code == 200
    make_dev(fleet)


@pytest.mark.req("OP-12", **served)
def test_names_everything_that_still_uses_a_channel(fleet: ServedFleet) -> None:
    make_dev(fleet, edges=[CHANNEL])
    fleet.promote()
    fleet.operator.post("/v1/freezes", json={"freeze_id": "x", "channels": [CHANNEL], **WHY})

    refused = fleet.manager.post(f"{HERE}/delete", json=WHY)

    assert (refused.status_code, refused.json()["code"]) == (422, "channel_in_use")
    for user in (f"{CHANNEL}@web.1 (open)", "dev (its policy)", "freeze x"):
        assert user in refused.json()["detail"]


@pytest.mark.req("OP-6", **served)
@pytest.mark.req("OP-12", **served)
def test_deletes_a_protected_channel_only_with_a_second_person(fleet: ServedFleet) -> None:
    ann = approver(fleet)
    fleet.manager.post(f"{HERE}/protect", json=WHY)

    asked = fleet.manager.post(f"{HERE}/delete", json=WHY)
    found = asked.json()
    done = ann.post(f"/v1/requests/{found['request_id']}/approve", json={"digest": found["digest"]})

    assert (asked.status_code, found["what"]) == (202, f"delete {CHANNEL}")
    assert done.json()["state"] == "executed", done.text
    assert fleet.viewer.get(HERE).status_code == 404


@pytest.mark.req("OP-12", **served)
def test_deletes_only_an_empty_repository(fleet: ServedFleet) -> None:
    admin = fleet.served.admin
    admin.post("/v1/repositories", json={"name": "mine"})

    done = admin.post("/v1/repositories/mine/delete", json=WHY)
    missing = admin.post("/v1/repositories/mine/delete", json=WHY)
    kept = admin.post("/v1/repositories/default/delete", json=WHY)
    again = admin.post("/v1/repositories", json={"name": "mine"})

    assert (done.status_code, missing.status_code, again.status_code) == (200, 404, 201)
    assert (kept.status_code, kept.json()["code"]) == (422, "repository_in_use")
    assert fleet.installation.health.differences() == []
