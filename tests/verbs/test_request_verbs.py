"""Protecting a channel and deciding about requests have the same result through each door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.verbs.doors import ApiCall, Form, SharedServers, Verb, VerbCase, check
from tidegate.domain.access import steps
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.second_person import SecondPersonNeeded

MANAGER = (Role.RELEASE_MANAGER,)
APPROVER = (Role.APPROVER,)
VIEWER = (Role.VIEWER,)
WHY = "it is production"
REQUEST = "R-751b1faa75"
HERE = f"/v1/channels/{CHANNEL}"
PAGE = f"/channels/{CHANNEL}"
OTHER = "0" * 64
DIGEST = "410a34d55b1449e1f2f04dbeddd932562b5e8720e52938b65013ff0cf53e0625"
PATH = f"/v1/requests/{REQUEST}"


def create(fleet: ServedFleet) -> None:
    fleet.create()
    fleet.served.as_role(Grant(Role.APPROVER, f"channel:{CHANNEL}"))


def protect(fleet: ServedFleet) -> None:
    create(fleet)
    done = fleet.manager.post(f"{HERE}/protect", json={"reason": WHY})
    assert done.status_code == 200, done.text


def ask(fleet: ServedFleet) -> None:
    """Create a request whose id and digest are the same on every server."""
    protect(fleet)
    principal = Principal("user_asker", "session", (Grant(Role.RELEASE_MANAGER),))
    caller = Caller(principal=principal, key="one")
    with pytest.raises(SecondPersonNeeded) as made:
        fleet.installation.promotion.promote(caller, CHANNEL, "web.1")
    assert made.value.request.request_id == REQUEST  # type: ignore[attr-defined]


PROTECT = Verb(
    steps.PROTECT_CHANNEL,
    ApiCall("POST", f"{HERE}/protect", {"reason": WHY}),
    ("channel", "protect", CHANNEL, "--reason", WHY),
    Form(f"{PAGE}/protect", {"reason": WHY}, PAGE),
)
UNPROTECT = Verb(
    steps.PROTECT_CHANNEL,
    ApiCall("POST", f"{HERE}/unprotect", {"reason": WHY}),
    ("channel", "unprotect", CHANNEL, "--reason", WHY),
    Form(f"{PAGE}/unprotect", {"reason": WHY}, PAGE),
)
PROMOTE = Verb(
    steps.PROMOTE,
    ApiCall("POST", f"{HERE}/promote", {"release_id": "web.1", "reason": WHY}),
    ("channel", "promote", CHANNEL, "web.1", "--reason", WHY),
    Form(f"{PAGE}/promote", {"release": "web.1", "reason": WHY}, PAGE),
)
APPROVE_OTHER = Verb(
    steps.APPROVE_REQUEST,
    ApiCall("POST", f"{PATH}/approve", {"digest": OTHER}),
    ("request", "approve", REQUEST, "--digest", OTHER),
    Form("/approvals/approve", {"request_id": REQUEST, "digest": OTHER}),
)
APPROVE = Verb(
    steps.APPROVE_REQUEST,
    ApiCall("POST", f"{PATH}/approve", {"digest": DIGEST}),
    ("request", "approve", REQUEST),
    Form("/approvals/approve", page=f"/approvals/{REQUEST}"),
)
REJECT = Verb(
    steps.REJECT_REQUEST,
    ApiCall("POST", f"{PATH}/reject", {"reason": WHY}),
    ("request", "reject", REQUEST, "--reason", WHY),
    Form("/approvals/reject", {"request_id": REQUEST, "reason": WHY}),
)
WITHDRAW = Verb(
    steps.WITHDRAW_REQUEST,
    ApiCall("POST", f"{PATH}/withdraw", {}),
    ("request", "withdraw", REQUEST),
    Form("/approvals/withdraw", {"request_id": REQUEST}),
)
RUN = Verb(
    steps.RUN_REQUEST,
    ApiCall("POST", f"{PATH}/run"),
    ("request", "run", REQUEST),
    Form("/approvals/run", {"request_id": REQUEST}),
)
REVIEW = Verb(
    steps.REVIEW_REQUEST,
    ApiCall("POST", f"{PATH}/review", {"accepted": True, "reason": WHY}),
    ("request", "review", REQUEST, "--accept", "--reason", WHY),
    Form("/approvals/review", {"request_id": REQUEST, "accepted": "true", "reason": WHY}),
)

CASES = (
    VerbCase(PROTECT, "for the first time", MANAGER, create),
    VerbCase(PROTECT, "as before", MANAGER, protect, changes=False),
    VerbCase(PROTECT, "as a viewer", VIEWER, create, "missing_permission"),
    VerbCase(UNPROTECT, "asks for a second person", MANAGER, protect),
    VerbCase(PROMOTE, "on a protected channel", MANAGER, protect),
    VerbCase(APPROVE_OTHER, "another digest", APPROVER, ask, "request_changed"),
    VerbCase(APPROVE_OTHER, "as a viewer", VIEWER, ask, "missing_permission"),
    VerbCase(APPROVE_OTHER, "an unknown one", APPROVER, code="request_not_found"),
    VerbCase(APPROVE, "as it was seen", APPROVER, ask),
    VerbCase(REJECT, "a request", APPROVER, ask),
    VerbCase(WITHDRAW, "the request of another person", VIEWER, ask, "not_own_request"),
    VerbCase(RUN, "one without approvals", MANAGER, ask, "approvals_missing"),
    VerbCase(REVIEW, "one that waits", APPROVER, ask, "request_over"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)
