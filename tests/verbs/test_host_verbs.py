"""Enrolling, re-enrolling, labelling, revoking and retiring a host: the same through each door."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Door, Form, SharedServers, Verb, VerbCase, check, serve, take
from tidegate.cli import client
from tidegate.control import lanes
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.fleet.credentials import ENROLLMENT_TOKENS
from tidegate.domain.fleet.rows import FLEET

HOST = "web-01"
PAGE = f"/hosts/{HOST}"
LABELS = {"app": "web", "tier": "rest"}
OPERATOR = (Role.FLEET_OPERATOR,)
OF_CHANNEL = (Role.VIEWER, Grant(Role.FLEET_OPERATOR, f"channel:{CHANNEL}"))
WHY = "it was sold"
REASON = {"reason": WHY}


def end(fleet: ServedFleet, name: str) -> None:
    done = fleet.operator.post(f"/v1{PAGE}/{name}", json={"reason": "lost"})
    assert done.status_code == 200, done.text


def revoke(fleet: ServedFleet) -> None:
    end(fleet, "revoke")


def retire(fleet: ServedFleet) -> None:
    end(fleet, "retire")


def enroll_verb(host_id: str) -> Verb:
    return Verb(
        steps.ENROLL_HOST,
        ApiCall("POST", "/v1/hosts/enroll", {"host_id": host_id, "labels": {"app": "web"}}),
        ("host", "enroll", host_id, "--label", "app=web"),
        "the dashboard makes no enrollment tokens yet",
    )


def end_verb(step: steps.Step, name: str, page: str = PAGE) -> Verb:
    return Verb(
        step,
        ApiCall("POST", f"/v1{page}/{name}", REASON),
        ("host", name, page.removeprefix("/hosts/"), "--reason", WHY),
        Form(f"{page}/{name}", REASON, page),
    )


def re_enroll_verb(host_id: str) -> Verb:
    return Verb(
        steps.RE_ENROLL_HOST,
        ApiCall("POST", f"/v1/hosts/{host_id}/re-enroll", {"labels": None, "reason": WHY}),
        ("host", "re-enroll", host_id, "--reason", WHY),
        "the dashboard makes no enrollment tokens yet",
    )


ENROLL = enroll_verb("web-03")
RE_ENROLL = re_enroll_verb(HOST)
LABEL = Verb(
    steps.LABEL_HOST,
    ApiCall("PUT", f"/v1{PAGE}/labels", {"labels": LABELS}, etag_of=f"/v1{PAGE}"),
    ("host", "label", HOST, "tier=rest"),
    "the dashboard labels no hosts yet",
)
REVOKE = end_verb(steps.REVOKE_HOST, "revoke")
RETIRE = end_verb(steps.RETIRE_HOST, "retire")
REVOCATION = VerbCase(REVOKE, "an enrolled one", OPERATOR)

CASES = (
    VerbCase(ENROLL, "a new one", OPERATOR, changes=False),  # recorded when the agent enrolls
    VerbCase(ENROLL, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(enroll_verb(HOST), "a retired one", OPERATOR, retire, "host_retired"),
    # Recorded when the agent enrolls.
    VerbCase(RE_ENROLL, "an enrolled one", OPERATOR, changes=False),
    VerbCase(RE_ENROLL, "a retired one", OPERATOR, retire, changes=False),
    VerbCase(RE_ENROLL, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(re_enroll_verb("web-09"), "an unknown one", OPERATOR, code="host_not_found"),
    VerbCase(LABEL, "an enrolled one", OPERATOR),
    VerbCase(LABEL, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(LABEL, "a retired one", OPERATOR, retire, "host_retired"),
    REVOCATION,
    VerbCase(REVOKE, "a revoked one", OPERATOR, revoke, changes=False),
    VerbCase(REVOKE, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(REVOKE, "a retired one", OPERATOR, retire, "host_retired"),
    VerbCase(RETIRE, "an enrolled one", OPERATOR),
    VerbCase(RETIRE, "a retired one", OPERATOR, retire, changes=False),
    VerbCase(RETIRE, "as the operator of a channel", OF_CHANNEL, code="missing_permission"),
    VerbCase(
        end_verb(steps.RETIRE_HOST, "retire", "/hosts/web-09"),
        "an unknown one",
        OPERATOR,
        code="host_not_found",
    ),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


@pytest.mark.parametrize("door", ENROLL.doors)
def test_stores_the_created_token(door: Door, tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        known = {item.id for item in _tokens(fleet)}

        assert take(CASES[0], door, fleet).code == ""

        (made,) = (item.row for item in _tokens(fleet) if item.id not in known)
        assert (made.host_id, made.labels) == ("web-03", {"app": "web"})


def _tokens(fleet: ServedFleet) -> list[Any]:
    return fleet.installation.reads.range(ENROLLMENT_TOKENS, limit=100)


@pytest.mark.parametrize("door", Door)
def test_refuses_the_key_even_while_the_fleet_is_busy(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "COMMAND_SECONDS", 0.2)
    monkeypatch.setattr(client, "ATTEMPTS_MAX", 1)
    with serve(tmp_path / "data") as fleet:
        go_on = Event()
        slow = fleet.installation.lanes.command(FLEET, go_on.wait)

        result = take(REVOCATION, door, fleet, is_rehearsed=False)
        refused = fleet.agents[HOST].poll()
        go_on.set()
        slow.result()

        assert result == ("lane_busy", ())
        assert refused.json()["code"] == "key_refused"


@pytest.mark.parametrize("verb", ["revoke", "retire"])
def test_refuses_a_form_without_a_reason(verb: str, tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        done = [fleet.operator.post(f"{PAGE}/{verb}", data=form) for form in ({}, {"reason": ""})]

        assert [one.status_code for one in done] == [400, 400]
        assert fleet.agents[HOST].poll().status_code == 204  # its key is still valid


@pytest.mark.parametrize("verb", ["revoke", "retire"])
def test_a_dry_run_refuses_no_key(verb: str, tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        said = fleet.operator.post(
            f"/v1/hosts/{HOST}/{verb}",
            json={"reason": "only a look"},
            headers={"tidegate-dry-run": "true"},
        )

        assert said.json()["dry_run"] is True
        assert fleet.agents[HOST].poll().is_success
