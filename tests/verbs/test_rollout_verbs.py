"""Pause, resume, abort, clear, retry, skip, pass waves, promote: the same through each door."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tests.verbs.doors import (
    EVENTS_MAX,
    ApiCall,
    Door,
    Form,
    SharedServers,
    Verb,
    VerbCase,
    check,
    hidden_fields,
    serve,
    take,
)
from tidegate.cli import client
from tidegate.control import lanes
from tidegate.domain.access import steps
from tidegate.domain.access.roles import Role

PAGE = f"/rollouts/{ROLLOUT}"
CHANNEL_PAGE = f"/channels/{CHANNEL}"
OPERATOR = (Role.FLEET_OPERATOR,)
MANAGER = (Role.RELEASE_MANAGER,)
VIEWER = (Role.VIEWER,)
ON_CALL = (Role.ON_CALL,)
WHY = "the metrics look odd"
REASON = {"reason": WHY}


def start(fleet: ServedFleet) -> None:
    fleet.sail()


def pause(fleet: ServedFleet) -> None:
    fleet.sail()
    done = fleet.operator.post(f"/v1{PAGE}/pause", json={"reason": "lunch"})
    assert done.status_code == 200, done.text


def halt(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.fail("web-01")


MANUAL = [
    {"name": "canary", "selector": "tier=canary"},
    {"name": "rest", "manual": True},
]


def start_manual(fleet: ServedFleet) -> None:
    """Start a rollout whose second wave waits for a person."""
    fleet.sail(waves=MANUAL)


def switch(fleet: ServedFleet) -> None:
    fleet.sail()
    agent = fleet.agents["web-01"]
    order = agent.order()
    assert order is not None
    agent.activate(order)


def promote_twice(fleet: ServedFleet) -> None:
    fleet.sail()
    assert fleet.promote("web.2").status_code == 200


def succeed(fleet: ServedFleet) -> None:
    """Let web.1 succeed, and promote web.2."""
    fleet.sail()
    fleet.succeed()
    assert fleet.promote("web.2").status_code == 200


def end(fleet: ServedFleet) -> None:
    fleet.sail()
    fleet.succeed()


def on_rollout(step: steps.Step, name: str) -> Verb:
    """A verb with the same name at all doors that takes only a reason."""
    return Verb(
        step,
        ApiCall("POST", f"/v1{PAGE}/{name}", REASON),
        ("rollout", name, ROLLOUT, "--reason", WHY),
        Form(f"{PAGE}/{name}", REASON, PAGE),
    )


PAUSE = on_rollout(steps.PAUSE_ROLLOUT, "pause")
RESUME = on_rollout(steps.RESUME_ROLLOUT, "resume")
ABORT = on_rollout(steps.ABORT_ROLLOUT, "abort")
RETRY = on_rollout(steps.RETRY_ROLLOUT, "retry")._replace(
    form=Form(f"{PAGE}/clear", {**REASON, "mode": "resume"}, PAGE)
)
SKIP = Verb(
    steps.SKIP_HOST,
    ApiCall("POST", f"/v1{PAGE}/skip", {**REASON, "host_id": "web-01"}),
    ("rollout", "skip", ROLLOUT, "web-01", "--reason", WHY),
    Form(f"{PAGE}/skip", {**REASON, "host_id": "web-01"}, PAGE),
)
CONTINUE = on_rollout(steps.CONTINUE_ROLLOUT, "continue")
PROMOTE_ALL = on_rollout(steps.PROMOTE_ALL, "promote-all")


def skip_wave(wave: str) -> Verb:
    return Verb(
        steps.SKIP_WAVE,
        ApiCall("POST", f"/v1{PAGE}/skip-wave", {**REASON, "wave": wave}),
        ("rollout", "skip-wave", ROLLOUT, wave, "--reason", WHY),
        Form(f"{PAGE}/skip-wave", {**REASON, "wave": wave}, PAGE),
    )


ABANDON = Verb(
    steps.CLEAR_ROLLOUT,
    ApiCall("POST", f"/v1{PAGE}/clearance", {**REASON, "mode": "abandon"}),
    ("rollout", "clear", ROLLOUT, "--mode", "abandon", "--reason", WHY),
    Form(f"{PAGE}/clear", {**REASON, "mode": "abandon"}, PAGE),
)
WAIVE = Verb(
    steps.CLEAR_ROLLOUT,
    ApiCall("POST", f"/v1{PAGE}/clearance", {**REASON, "mode": "waive", "hosts": ["web-01"]}),
    ("rollout", "clear", ROLLOUT, "--mode", "waive", "--host", "web-01", "--reason", WHY),
    Form(f"{PAGE}/clear", {**REASON, "mode": "waive", "hosts": "web-01"}, PAGE),
)
PROMOTE = Verb(
    steps.PROMOTE,
    ApiCall("POST", f"/v1{CHANNEL_PAGE}/promote", {**REASON, "release_id": "web.2"}),
    ("channel", "promote", CHANNEL, "web.2", "--reason", WHY),
    Form(f"{CHANNEL_PAGE}/promote", {**REASON, "release": "web.2"}, CHANNEL_PAGE),
)
START_AT = "2126-01-01T02:00:00+01:00"  # refused: too far ahead
PROMOTE_LATER = Verb(
    steps.PROMOTE,
    ApiCall(
        "POST",
        f"/v1{CHANNEL_PAGE}/promote",
        {**REASON, "release_id": "web.2", "start_at": START_AT},
    ),
    ("channel", "promote", CHANNEL, "web.2", "--start-at", START_AT, "--reason", WHY),
    Form(
        f"{CHANNEL_PAGE}/promote",
        {**REASON, "release": "web.2", "start_at": START_AT},
        CHANNEL_PAGE,
    ),
)
REFRESH = Verb(
    steps.PROMOTE,
    ApiCall(
        "POST", f"/v1{CHANNEL_PAGE}/promote", {**REASON, "release_id": "web.1", "refresh": True}
    ),
    ("channel", "promote", CHANNEL, "web.1", "--refresh", "--reason", WHY),
    Form(f"{CHANNEL_PAGE}/promote", {**REASON, "release": "web.1", "refresh": "yes"}, CHANNEL_PAGE),
)
OVERRIDE = Verb(
    steps.OVERRIDE_GATE,
    ApiCall("POST", f"/v1{PAGE}/override", {**REASON, "gate": "freeze"}),
    ("rollout", "override", ROLLOUT, "--gate", "freeze", "--reason", WHY),
    Form(f"{PAGE}/override", {**REASON, "gate": "freeze"}, PAGE),
)
ROLL_BACK = Verb(
    steps.ROLL_BACK,
    ApiCall("POST", f"/v1{CHANNEL_PAGE}/rollback", REASON),
    ("channel", "rollback", CHANNEL, "--reason", WHY),
    Form(f"{CHANNEL_PAGE}/rollback", REASON, CHANNEL_PAGE),
)
ROLL_BACK_TO = Verb(
    steps.ROLL_BACK,
    ApiCall("POST", f"/v1{CHANNEL_PAGE}/rollback", {**REASON, "to": "web.1"}),
    ("channel", "rollback", CHANNEL, "--to", "web.1", "--reason", WHY),
    Form(f"{CHANNEL_PAGE}/rollback", {**REASON, "to": "web.1"}, CHANNEL_PAGE),
)
ROLL_BACK_NOW = Verb(
    steps.ROLL_BACK,
    ApiCall("POST", f"/v1{CHANNEL_PAGE}/rollback", {**REASON, "now": True}),
    ("channel", "rollback", CHANNEL, "--now", "--reason", WHY),
    Form(f"{CHANNEL_PAGE}/rollback", {**REASON, "now": "yes"}, CHANNEL_PAGE),
)
PROMOTION = VerbCase(PROMOTE, "over a running rollout", MANAGER, start)

CASES = (
    VerbCase(PAUSE, "a running one", OPERATOR, start),
    VerbCase(PAUSE, "a paused one", OPERATOR, pause, changes=False),
    VerbCase(PAUSE, "as a viewer", VIEWER, start, "missing_permission"),
    VerbCase(PAUSE, "an unknown one", OPERATOR, code="rollout_unknown"),
    VerbCase(RESUME, "a paused one", OPERATOR, pause),
    VerbCase(RESUME, "a running one", OPERATOR, start, changes=False),
    VerbCase(ABORT, "a running one", OPERATOR, start),
    VerbCase(ABORT, "as a viewer", VIEWER, start, "missing_permission"),
    VerbCase(REFRESH, "the pinned release", MANAGER, start),
    VerbCase(REFRESH, "another release", MANAGER, promote_twice, "release_not_pinned"),
    VerbCase(SKIP, "a host with an order", OPERATOR, start),
    VerbCase(SKIP, "a host that rolled back", OPERATOR, halt, "invalid_transition"),
    VerbCase(SKIP, "a host that switches", OPERATOR, switch, "host_under_way"),
    VerbCase(SKIP, "as a viewer", VIEWER, start, "missing_permission"),
    VerbCase(SKIP, "an unknown one", OPERATOR, code="rollout_unknown"),
    VerbCase(CONTINUE, "a manual wave", OPERATOR, start_manual),
    VerbCase(CONTINUE, "where no wave waits", OPERATOR, start, "nothing_to_continue"),
    VerbCase(CONTINUE, "a halted one", OPERATOR, halt, "invalid_transition"),
    VerbCase(CONTINUE, "as a viewer", VIEWER, start_manual, "missing_permission"),
    VerbCase(CONTINUE, "an unknown one", OPERATOR, code="rollout_unknown"),
    VerbCase(skip_wave("canary"), "the current wave", ON_CALL, start),
    VerbCase(skip_wave("none"), "an unknown wave", ON_CALL, start, "wave_not_found"),
    VerbCase(skip_wave("canary"), "as an operator", OPERATOR, start, "missing_permission"),
    VerbCase(skip_wave("canary"), "an unknown one", ON_CALL, code="rollout_unknown"),
    VerbCase(PROMOTE_ALL, "a running one", ON_CALL, start),
    VerbCase(PROMOTE_ALL, "a halted one", ON_CALL, halt, "invalid_transition"),
    VerbCase(PROMOTE_ALL, "as an operator", OPERATOR, start, "missing_permission"),
    VerbCase(PROMOTE_ALL, "an unknown one", ON_CALL, code="rollout_unknown"),
    VerbCase(RETRY, "a halted one", OPERATOR, halt),
    VerbCase(RETRY, "a running one", OPERATOR, start, "invalid_transition"),
    VerbCase(ABANDON, "a halted one", OPERATOR, halt),
    VerbCase(WAIVE, "a host of a halted one", OPERATOR, halt),
    PROMOTION,
    VerbCase(PROMOTE_LATER, "in a hundred years", MANAGER, start, "invalid_input"),
    VerbCase(PROMOTE, "as a viewer", VIEWER, start, "missing_permission"),
    VerbCase(OVERRIDE, "of a running one", ON_CALL, start),
    VerbCase(OVERRIDE, "as a fleet operator", OPERATOR, start, "missing_permission"),
    VerbCase(OVERRIDE, "of one that ended", ON_CALL, end, "invalid_transition"),
    VerbCase(OVERRIDE, "an unknown one", ON_CALL, code="rollout_unknown"),
    VerbCase(ROLL_BACK, "to the newest success", MANAGER, succeed),
    VerbCase(ROLL_BACK, "where nothing succeeded", MANAGER, start, "nothing_to_go_back_to"),
    VerbCase(ROLL_BACK, "as an operator", OPERATOR, succeed, "missing_permission"),
    VerbCase(ROLL_BACK_NOW, "in an emergency", ON_CALL, succeed),
    VerbCase(ROLL_BACK_NOW, "as a release manager", MANAGER, succeed, "missing_permission"),
    VerbCase(ROLL_BACK_TO, "to a release that is named", MANAGER, succeed),
    VerbCase(ROLL_BACK_TO, "to a release that never succeeded", MANAGER, start, "not_on_ladder"),
)


@pytest.mark.req("OP-14", engines=None, reason="the doors are above the engine")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_does_the_same_through_each_door(
    case: VerbCase, tmp_path: Path, shared: SharedServers
) -> None:
    check(case, tmp_path, shared)


@pytest.mark.parametrize("door", Door)
@pytest.mark.parametrize("case", [CASES[0], PROMOTION], ids=str)
def test_reports_a_busy_lane_and_changes_nothing(
    case: VerbCase, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "COMMAND_SECONDS", 0.2)
    monkeypatch.setattr(client, "ATTEMPTS_MAX", 1)
    with serve(tmp_path / "data") as fleet:
        case.arrange(fleet)
        go_on = Event()
        slow = fleet.installation.lanes.command(ROLLOUT, go_on.wait)

        result = take(case, door, fleet, is_rehearsed=False)
        go_on.set()
        slow.result()
        head = fleet.installation.log.head()
        fleet.installation.lanes.run(ROLLOUT, lambda: None)  # every waiting command has run

        assert result == ("lane_busy", ())
        assert fleet.installation.log.head() == head


def test_promotes_from_the_dashboard_in_the_lane_of_the_rollout_that_ends(tmp_path: Path) -> None:
    """The running command of the lane ends first."""
    with serve(tmp_path / "data") as fleet, ThreadPoolExecutor(1) as pool:
        PROMOTION.arrange(fleet)
        go_on = Event()
        slow = fleet.installation.lanes.command(ROLLOUT, go_on.wait)
        promoting = pool.submit(take, PROMOTION, Door.PAGE, fleet)

        with pytest.raises(TimeoutError):
            promoting.result(1)
        assert not slow.done()
        go_on.set()

        assert promoting.result().code == ""


def test_a_form_that_is_sent_twice_takes_effect_once(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        start(fleet)
        page = fleet.operator.get(PAGE, headers={"accept": "text/html"}).text
        hidden = hidden_fields(page, f"{PAGE}/pause")
        form = {**hidden, "reason": WHY}

        done = [fleet.operator.post(f"{PAGE}/pause", data=form) for _ in range(2)]

        assert [one.status_code for one in done] == [303, 303]
        assert done[0].headers["location"] == done[1].headers["location"]
        paused = [
            event
            for event in fleet.installation.log.feed(after=0, limit=EVENTS_MAX)
            if event.type == "RolloutPaused"
        ]
        assert len(paused) == 1


def test_says_that_a_host_was_skipped_already(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as fleet:
        fleet.sail()
        body = {"reason": WHY, "host_id": "web-01"}

        first, second = (fleet.operator.post(f"/v1{PAGE}/skip", json=body) for _ in range(2))
        posted = fleet.operator.post(f"{PAGE}/skip", data=body, follow_redirects=False)
        shown = fleet.operator.get(posted.headers["location"]).text

        assert (first.status_code, "warnings" in first.json()) == (200, False)
        told = f"web-01 was skipped in {ROLLOUT} already. Nothing was changed."
        assert second.json()["warnings"] == [told]
        assert "The host was skipped already, and nothing was changed." in shown
