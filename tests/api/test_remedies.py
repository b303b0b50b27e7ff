"""``explain`` and ``status`` offer each person the commands that they may run now, and say whom to
ask for the others (OP-10).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.accounts import PASSWORD, signed_in
from tests.api.served_fleet import CHANNEL, ServedFleet, serve_fleet
from tidegate.api.routes import ROUTES
from tidegate.control.operations.accounts import PersonNames
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.scopes import channel_scope

ROLLOUT = f"{CHANNEL}@web.1"
HERE = channel_scope(CHANNEL)
SKIP_WAVE = f"tidegate rollout skip-wave {ROLLOUT} canary --reason …"
ABORT = f"tidegate rollout abort {ROLLOUT} --reason …"


@pytest.fixture
def stuck(fleet: ServedFleet) -> ServedFleet:
    """The only host of the first wave was skipped, so that the wave cannot converge."""
    fleet.sail()
    body = {"host_id": "web-01", "reason": "switched off"}
    assert fleet.operator.post(f"/v1/rollouts/{ROLLOUT}/skip", json=body).status_code == 200
    fleet.dispatch(thorough=True)
    return fleet


def add(fleet: ServedFleet, name: str, role: Role, scope: str = HERE) -> httpx2.Client:
    """A client of a new person of this name."""
    user_id = f"user_{name.encode().hex():0>20}"
    names = PersonNames(name.lower(), name)
    fleet.served.add_person(user_id, names, PASSWORD, Grant(role, scope))
    return fleet.served.client(fleet.served.token(user_id))


def explain(who: httpx2.Client, code: str, rollout: str = ROLLOUT) -> dict[str, Any]:
    """The wait of this code."""
    answer = who.get(f"/v1/rollouts/{rollout}/explain")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = next(w for w in answer.json()["waits"] if w["code"] == code)
    return found


def list_commands(wait: dict[str, Any]) -> list[str]:
    return [item["command"] for item in wait.get("remedies", [])]


@pytest.mark.req("OP-10", engines=None, reason="a pure function of the rows")
def test_offers_each_person_the_commands_that_they_may_run(stuck: ServedFleet) -> None:
    on_call = stuck.served.as_role(Role.ON_CALL)

    viewed, operated, called = (
        explain(who, "minimum") for who in (stuck.viewer, stuck.operator, on_call)
    )

    assert (list_commands(viewed), len(viewed["ask"])) == ([], 2)
    assert list_commands(operated) == [ABORT]
    (ask,) = operated["ask"]
    assert ask.startswith(f"Ask an on-call of {CHANNEL} (")
    assert ask.endswith(f"), to continue with the next wave: {SKIP_WAVE}")
    assert (list_commands(called), called.get("ask", [])) == ([SKIP_WAVE, ABORT], [])


def test_offers_each_person_the_commands_for_a_host(fleet: ServedFleet) -> None:
    fleet.sail()
    on_it = f"/v1/rollouts/{ROLLOUT}/pause"
    assert fleet.operator.post(on_it, json={"reason": "looking"}).status_code == 200
    resume = f"tidegate rollout resume {ROLLOUT} --reason …"

    viewed, operated = (
        who.get("/v1/hosts/web-02/explain").json()["items"][0]["waits"]
        for who in (fleet.viewer, fleet.operator)
    )

    (theirs,) = (wait for wait in viewed if wait["code"] == "paused")
    (own,) = (wait for wait in operated if wait["code"] == "paused")
    assert (list_commands(theirs), list_commands(own)) == ([], [resume])
    (ask,) = theirs["ask"]
    assert ask.startswith(f"Ask a fleet-operator or an on-call of {CHANNEL} (")
    assert ask.endswith(f"): {resume}")


@pytest.mark.req("OP-13", engines=None, reason="a pure function of the rows")
def test_names_the_people_to_ask(stuck: ServedFleet) -> None:
    add(stuck, "Elsewhere", Role.ON_CALL, channel_scope("other"))
    add(stuck, "Bea", Role.ON_CALL, "*")
    add(stuck, "Ann", Role.ON_CALL)
    assert "(Ann, Bea or user_admin0000), " in explain(stuck.viewer, "minimum")["ask"][0]
    for name in ("Cal", "Dan", "Eve"):
        add(stuck, name, Role.ON_CALL)
    assert "(Ann, Bea, Cal or 3 others), " in explain(stuck.viewer, "minimum")["ask"][0]


def hold_at_an_edge(fleet: ServedFleet) -> None:
    """Promote web.1 on a channel after one where it was never promoted."""
    fleet.create()
    late = {"channel": "late", "package": "default/web", "selector": "app=late"}
    body = {**late, "policy": {"edges": [CHANNEL]}}
    assert fleet.manager.post("/v1/channels", json=body).status_code == 201
    fleet.enroll("late-01", app="late")
    opened = fleet.manager.post("/v1/channels/late/promote", json={"release_id": "web.1"})
    assert opened.status_code == 200, opened.text
    fleet.dispatch(thorough=True)


def test_a_reason_does_not_end_with_a_command_that_is_refused(fleet: ServedFleet) -> None:
    hold_at_an_edge(fleet)
    command = f": tidegate channel promote {CHANNEL} web.1"

    seen, own = (
        explain(who, "channel-edges", "late@web.1") for who in (fleet.viewer, fleet.manager)
    )
    of_host = fleet.viewer.get("/v1/hosts/late-01/explain").json()["items"][0]
    status = fleet.viewer.get("/v1/status").json()

    assert seen["sentence"].endswith("Promote it there first")
    assert own["sentence"].endswith(f"Promote it there first{command}")
    assert of_host["answer"].endswith("Promote it there first")
    assert all(command not in item["reason"] for item in of_host["verdicts"])
    assert all(command not in item["says"] for item in status["attention"])
    assert "Promote it there first" in str(status["attention"])


def test_the_gate_panel_and_the_page_of_a_host_show_no_commands(tmp_path: Path) -> None:
    with serve_fleet(tmp_path / "data", (*ROUTES, *PAGES)) as fleet:
        hold_at_an_edge(fleet)
        add(fleet, "Vic", Role.VIEWER, "*")
        person = signed_in(fleet.served, "vic")
        for path in ("/rollouts/late@web.1/gates", "/hosts/late-01"):
            page = person.get(path).text
            assert "Promote it there first" in page, path
            assert "tidegate channel promote" not in page, path


def test_tells_a_person_whose_token_is_too_narrow(stuck: ServedFleet) -> None:
    user_id = stuck.served.user(Grant(Role.ON_CALL))
    narrow = stuck.served.client(stuck.served.token(user_id, (Grant(Role.VIEWER),)))

    found = explain(narrow, "minimum")

    assert list_commands(found) == []
    assert found["ask"][0] == (
        "Your roles allow this, but your token does not, to continue with the next wave: "
        f"{SKIP_WAVE}"
    )


def test_a_command_that_is_offered_is_not_refused_for_a_permission(stuck: ServedFleet) -> None:
    body = {"wave": "canary", "reason": "none left"}
    url = f"/v1/rollouts/{ROLLOUT}/skip-wave"

    refused = stuck.operator.post(url, json=body)
    done = stuck.served.as_role(Role.ON_CALL).post(url, json=body)

    assert (refused.status_code, refused.json()["code"]) == (403, "missing_permission")
    assert done.status_code == 200, done.text


def test_says_on_a_protected_channel_that_a_second_person_is_needed(stuck: ServedFleet) -> None:
    add(stuck, "Abe", Role.APPROVER)
    add(stuck, "Ada", Role.APPROVER)
    body = {"approvals": 1, "reason": "customers"}
    done = stuck.manager.post(f"/v1/channels/{CHANNEL}/protect", json=body)
    assert done.status_code == 200, done.text

    for who in (stuck.viewer, stuck.served.as_role(Role.ON_CALL)):
        found = who.get(f"/v1/rollouts/{ROLLOUT}/explain").json()
        assert "needs a second person, or --break-glass" in found["protection"]


def test_the_end_of_a_freeze_takes_the_permission_on_each_of_its_channels(
    fleet: ServedFleet,
) -> None:
    fleet.sail()
    other = {"channel": "other", "package": "default/web", "selector": "app=other"}
    assert fleet.manager.post("/v1/channels", json=other).status_code == 201
    freeze = {"reason": "audit", "channels": [CHANNEL, "other"], "freeze_id": "xmas"}
    assert fleet.operator.post("/v1/freezes", json=freeze).status_code == 201
    both = fleet.served.as_role(Role.FLEET_OPERATOR)
    one, viewer = add(fleet, "One", Role.FLEET_OPERATOR), add(fleet, "Vic", Role.VIEWER)
    end = "tidegate freeze delete xmas --reason …"

    assert end in list_commands(explain(both, "freeze"))
    for who in (one, viewer):
        wait = explain(who, "freeze")
        assert end not in list_commands(wait)
        (ask,) = (sentence for sentence in wait["ask"] if sentence.endswith(end))
        who_to_ask = f"Ask a fleet-operator or an on-call of {CHANNEL} and other channels, "
        assert ask.startswith(who_to_ask), ask


@pytest.mark.req("OP-10", engines=None, reason="a pure function of the rows")
def test_status_names_a_command_that_the_caller_may_run_and_whom_to_ask(
    fleet: ServedFleet,
) -> None:
    fleet.sail()
    add(fleet, "Ann", Role.ON_CALL)
    on_it = f"/v1/rollouts/{ROLLOUT}/pause"
    assert fleet.operator.post(on_it, json={"reason": "looking"}).status_code == 200
    hold = {"reason": "audit"}
    assert fleet.operator.post(f"/v1/channels/{CHANNEL}/hold", json=hold).status_code == 200
    freeze = {"reason": "audit", "channels": [CHANNEL], "freeze_id": "xmas"}
    assert fleet.operator.post("/v1/freezes", json=freeze).status_code == 201
    resume = f"tidegate rollout resume {CHANNEL} --reason …"
    release = f"tidegate channel release {CHANNEL} --reason …"
    end = "tidegate freeze delete xmas --reason …"

    seen, own = (who.get("/v1/status").json() for who in (fleet.viewer, fleet.operator))

    for found, commands in (
        (own, {resume, release, end}),
        (
            seen,
            {
                f"tidegate rollout explain {CHANNEL}",
                f"tidegate channel show {CHANNEL}",
                "tidegate freeze list",
            },
        ),
    ):
        items = [*found["attention"], *found["notices"]]
        assert {item["next"] for item in items} == commands
    asks = [item["ask"] for item in [*seen["attention"], *seen["notices"]]]
    assert {ask.partition(": ")[2] for ask in asks} == {resume, release, end}
    assert all("(Ann, " in ask for ask in asks), asks
    assert all(item["ask"] == "" for item in [*own["attention"], *own["notices"]])
