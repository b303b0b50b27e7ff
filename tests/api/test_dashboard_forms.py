"""Forms of the dashboard do the same to the installation as the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx2
import pytest

from tests.api.people import People
from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet, serve_fleet
from tests.api.serving import serving
from tests.domain.documents import good
from tidegate.api.routes import ROUTES
from tidegate.dashboard.components import Field, Option
from tidegate.dashboard.forms import FormReader, fill
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.fleet.credentials import Revocation, revocation_key
from tidegate.web.problems import InvalidRequest

PAGE = f"/rollouts/{ROLLOUT}"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data", (*ROUTES, *PAGES)) as fleet:
        yield fleet


def sent(client: httpx2.Client, path: str, **form: str) -> httpx2.Response:
    """Send a form as a browser would."""
    return client.post(path, data=form, headers={"accept": "text/html"})


def page(client: httpx2.Client, path: str) -> str:
    shown = client.get(path, headers={"accept": "text/html"})
    assert shown.status_code == 200, shown.text
    return shown.text


@pytest.mark.parametrize("verb", ["revoke", "retire"])
def test_locks_a_revoked_or_retired_host_out(fleet: ServedFleet, verb: str) -> None:
    agent = fleet.agents["web-01"]

    done = sent(fleet.operator, f"/hosts/web-01/{verb}", reason="it was stolen")
    asked = agent.poll()

    assert (done.status_code, "done=" in done.headers["location"]) == (303, True), done.text
    kept = fleet.installation.reads.find(revocation_key(agent.public_key), Revocation)
    assert kept is not None
    assert (kept.row.host_id, kept.row.reason) == ("web-01", "it was stolen")
    assert (asked.status_code, asked.json()["code"]) == (401, "key_refused")
    assert fleet.installation.health.differences() == []


def test_shows_a_revision_that_its_author_approved(tmp_path: Path) -> None:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES), alone=True) as served:
        people = People(served)
        people.author = people.approver = served.everything()
        people.draft()
        people.push("default.web.v1", index_html="hello")
        people.publish("default.web.v1")

        shown = page(people.author, "/revisions/default.web.v1")

    assert "Self-approved" in shown
    assert "(none needed)" in shown
    assert "1 file, 5 B" in shown


def test_explains_why_there_is_no_plan(fleet: ServedFleet) -> None:
    body = {"channel": "empty", "package": "default/none", "selector": "app=none"}
    made = fleet.manager.post("/v1/channels", json={**body, "policy": {"waves": [{"name": "all"}]}})
    assert made.status_code == 201, made.text

    shown = page(fleet.manager, "/plan?channel=empty")

    assert "There is no plan" in shown
    assert "No enrolled host matches" in shown
    assert "none is published" in shown


@pytest.mark.parametrize("package", ["web", "default/web"])
def test_offers_the_releases_of_a_package_for_each_form_of_its_name(
    fleet: ServedFleet, package: str
) -> None:
    body = {"channel": "short", "package": package, "selector": "app=web", "policy": {}}
    assert fleet.manager.post("/v1/channels", json=body).status_code == 201

    shown = page(fleet.manager, "/channels/short")
    planned = page(fleet.manager, "/plan?channel=short")
    form = {"release": "web.2"}
    done = sent(fleet.manager, "/channels/short/promote", **form)

    assert '<option value="web.2"' in shown
    assert '<option value="web.2"' in planned
    assert done.status_code == 303, done.text


def test_links_to_no_channel_that_was_never_created(fleet: ServedFleet) -> None:
    """A scope of the registry may be pinned without a channel."""
    digest = fleet.viewer.get("/v1/releases/web.1").json()["digest"]
    evidence = good(("operator_command", "release-control-plane"), "outside", "web.1", digest)
    body = {"releaseId": "web.1", "digest": digest, **evidence}
    assert fleet.manager.post("/v1/releases/outside/register", json=body).status_code == 201

    shown = page(fleet.viewer, "/revisions/default.web.v1")
    hidden = page(
        fleet.served.as_role(Grant(Role.AUTHOR, "repository:default")), "/revisions/default.web.v1"
    )

    assert "outside" in shown
    assert "/channels/outside" not in shown
    assert "outside" not in hidden, "a user who may not read the channel does not see its pin"


def test_links_to_the_second_page_of_a_list_from_any_first_page(fleet: ServedFleet) -> None:
    for came in (
        "/releases?limit=1",
        "/hosts?filter=nonsense&limit=1",
        "/hosts?done=revoked&limit=1",
    ):
        more = re.search(r'href="([^"]+next=[^"]+)">Next page', page(fleet.viewer, came))
        assert more is not None, came

        assert 'role="alert"' not in page(fleet.viewer, unescape(more[1]))


def test_aborts_a_running_rollout(fleet: ServedFleet) -> None:
    fleet.sail()
    before = page(fleet.operator, PAGE)
    version = str(fleet.viewer.get(f"/v1{PAGE}").json()["version"])

    stale = sent(fleet.operator, f"{PAGE}/abort", expected_version="1", reason="not this one")
    done = sent(fleet.operator, f"{PAGE}/abort", expected_version=version, reason="not this one")
    again = sent(fleet.operator, f"{PAGE}/abort", expected_version=version, reason="not this one")
    after = page(fleet.operator, PAGE)

    assert f'action="{PAGE}/abort"' in before
    assert "version_conflict" in stale.text
    assert done.status_code == 303, done.text
    assert again.status_code in (409, 422)
    assert fleet.viewer.get(f"/v1{PAGE}").json()["reason"] == "aborted: not this one"
    assert re.search(r"Aborted by [^<]+", after)
    assert f'action="{PAGE}/abort"' not in after


def test_shows_who_promoted_and_why(fleet: ServedFleet) -> None:
    fleet.create()

    form = {"release": "web.1", "reason": "the checkout was slow"}
    done = sent(fleet.manager, f"/channels/{CHANNEL}/promote", **form)

    assert done.status_code == 303, done.text
    assert "the checkout was slow" in page(fleet.operator, PAGE)
    shown = fleet.viewer.get(f"/v1{PAGE}").json()
    assert shown["opened_reason"] == "the checkout was slow"


def test_shows_what_the_orders_of_a_promotion_wait_for(fleet: ServedFleet) -> None:
    dev = {"channel": "dev", "package": "default/web", "selector": "app=dev"}
    assert fleet.manager.post("/v1/channels", json=dev).status_code == 201
    fleet.create(edges=["dev"])

    done = sent(fleet.manager, f"/channels/{CHANNEL}/promote", release="web.1", reason="now")

    assert done.status_code == 303, done.text
    assert done.headers["location"].startswith(f"{PAGE}?done=promoted+and+waits")
    shown = page(fleet.manager, done.headers["location"])
    assert "Read below what its orders wait for." in shown
    assert "web.1 was never rolled out on dev" in shown


def test_shows_on_the_page_of_a_request_what_an_approver_needs(fleet: ServedFleet) -> None:
    fleet.create()
    protected = {"reason": "it is production", "approvals": 1}
    assert fleet.manager.post(f"/v1/channels/{CHANNEL}/protect", json=protected).is_success
    freeze = {"reason": "holidays", "channels": [CHANNEL]}
    assert fleet.operator.post("/v1/freezes", json=freeze).is_success

    made = sent(fleet.manager, f"/channels/{CHANNEL}/promote", release="web.1", reason="now")
    shown = page(fleet.manager, made.headers["location"])

    assert "It reaches 2 hosts" in shown
    assert "Its orders would wait. Freeze " in shown


def test_cancels_an_intent_of_the_outbox(fleet: ServedFleet) -> None:
    fleet.create(operations=["announce"])
    assert fleet.promote().status_code == 200
    (intent,) = fleet.viewer.get("/v1/outbox").json()["items"]
    form = {"id": intent["id"], "reason": "nobody listens"}

    before = page(fleet.operator, "/outbox")
    looked = page(fleet.viewer, "/outbox")
    refused = sent(fleet.viewer, "/outbox/cancel", **form)
    done = sent(fleet.operator, "/outbox/cancel", **form)
    after = page(fleet.operator, "/outbox")

    assert 'action="/outbox/cancel"' in before
    assert (
        f"This needs the role fleet-operator or on-call on channel:{CHANNEL}. You have viewer."
        in looked
    )
    assert refused.status_code == 403
    assert (done.status_code, "done=cancelled" in done.headers["location"]) == (303, True)
    assert 'action="/outbox/cancel"' not in after
    (cancelled,) = fleet.viewer.get("/v1/outbox", params={"state": "cancelled"}).json()["items"]
    assert cancelled["id"] == intent["id"]
    assert "Cancelled" in page(fleet.operator, "/outbox?tab=other")


@pytest.mark.parametrize("typed", ["9E9999999", "nan", "-1", "1e3000", "", "one"])
def test_refuses_minutes_that_are_not_a_time(typed: str) -> None:
    reader = FormReader()

    reader.minutes("minutes", typed, 60, 3_600)

    with pytest.raises(InvalidRequest, match="allowed is"):
        reader.check()


def test_a_form_keeps_values_that_it_does_not_offer() -> None:
    field = Field(name="channels", label="Channels", kind="many", options=(Option("a", "a"),))

    (filled,) = fill([field], {"channels": ("a", "b")})

    assert filled.values == ("a", "b")
    assert [option.value for option in filled.options] == ["a", "b"]
