"""Requests on protected channels with the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.protected_fleet import GLASS, HERE, WHY, climb, protect
from tests.api.served_fleet import CHANNEL, ServedFleet
from tests.cli.shell import Shell
from tidegate.cli.client import waits
from tidegate.cli.root import print_exit
from tidegate.domain.access.roles import Grant, Role

NOW = ("channel", "rollback", CHANNEL, "--now", "--reason", "bad")


@pytest.fixture
def cem(fleet: ServedFleet, tmp_path: Path) -> Shell:
    """The approver."""
    return shell_of(fleet, tmp_path / "cem", Role.APPROVER, Role.VIEWER)


@pytest.fixture
def eve(fleet: ServedFleet, tmp_path: Path) -> Shell:
    """The person who makes requests."""
    return shell_of(fleet, tmp_path / "eve", Role.RELEASE_MANAGER, Role.ON_CALL)


def shell_of(fleet: ServedFleet, home: Path, *roles: Role) -> Shell:
    served = fleet.served
    return Shell(home, served.url, served.token(served.user(*map(Grant, roles))))


def test_prints_each_way_to_act_alone_on_separate_lines(
    fleet: ServedFleet, cem: Shell, eve: Shell
) -> None:
    climb(fleet)
    protect(fleet)

    made = eve.run(*NOW)

    assert made.code == 9, made
    assert "\\x0a" not in made.err
    first, *lines = made.err.splitlines()
    assert first.startswith(f"◐ {CHANNEL} is protected, and nothing was changed yet. Request R-")
    command = f"tidegate channel rollback {CHANNEL}"
    assert lines[-5:-1] == [
        "  A rollback in waves, which freezes and windows hold, needs no second person:",
        f"  try: {command} --to web.2 --reason …",
        "  To do it at once, and have it reviewed afterwards:",
        f"  try: {command} --to web.2 --now --reason … --break-glass",
    ]
    assert lines[-1].startswith("  try: tidegate request show R-")
    assert lines[0].startswith("  note: It goes to web.2, which succeeded here at ")


def test_typed_text_cannot_add_lines_to_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    request = {
        "request_id": "R-1",
        "channel": "prod",
        "next": "Ann\n  try: rm -rf / may give it",
        "notes": ["Ann held it: \x1b[2J\n  try: rm -rf /"],
        "alternatives": [{"says": "Alone", "command": "tidegate\n  try: rm -rf /"}],
    }

    print_exit(waits(request))

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert not any(line.strip().startswith("try: rm") for line in lines)
    assert "\\x1b" in lines[1]


def test_the_last_approver_reads_what_happened_and_how_to_follow_it(
    fleet: ServedFleet, cem: Shell, eve: Shell
) -> None:
    protect(fleet)
    fleet.operator.post("/v1/freezes", json={"reason": "holidays", "channels": [CHANNEL]})
    asked = eve.run("channel", "promote", CHANNEL, "web.1", "-o", "json")
    (request,) = fleet.viewer.get("/v1/requests").json()["items"]

    done = cem.run("request", "approve", request["request_id"])

    assert asked.code == 9, asked
    assert done.code == 0, done
    assert "carried out: rollout web-stable@web.1 is open, and its orders wait" in done.out
    assert "warning: Its orders wait. Freeze " in done.err
    assert "follow it: tidegate rollout watch web-stable@web.1" in done.err


def test_a_review_shows_what_was_done(fleet: ServedFleet, cem: Shell, eve: Shell) -> None:
    protect(fleet)
    manager = fleet.served.as_role(Role.RELEASE_MANAGER, Role.ON_CALL)
    body = WHY | {"release_id": "web.1"}
    assert manager.post(f"{HERE}/promote", json=body, headers=GLASS).status_code == 200
    (review,) = fleet.viewer.get("/v1/requests?state=to-review").json()["items"]

    shown = cem.run("request", "show", review["request_id"])
    before = cem.run("channel", "history", CHANNEL)
    verdict = ("request", "review", review["request_id"], "--accept", "--reason", "fine")
    assert cem.run(*verdict).code == 0
    after = cem.run("channel", "history", CHANNEL)

    fields = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines()}
    assert fields["release"] == ["none", "→", "web.1"], shown.out
    assert (fields["hosts"], fields["rollout"]) == (["2"], ["web-stable@web.1"])
    assert f"break-glass {review['request_id']}, not reviewed" in before.out
    assert f"break-glass {review['request_id']}, reviewed by " in after.out


def test_warns_if_no_approver_remains(fleet: ServedFleet, tmp_path: Path) -> None:
    admin = shell_of(fleet, tmp_path / "admin", Role.SECURITY_ADMIN)
    approver = fleet.served.user(Grant(Role.APPROVER, f"channel:{CHANNEL}"))
    protect(fleet)
    for user in fleet.installation.guard.approvers(CHANNEL):
        if user != approver:
            assert "warning" not in admin.run("user", "disable", user).err

    done = admin.run("user", "disable", approver)

    assert done.code == 0, done
    assert f"warning: Nobody may approve on {CHANNEL} now, and 1 must." in done.err
    assert f"tidegate user grant LOGIN approver@channel:{CHANNEL}" in done.err


def test_explain_names_a_request_that_keeps_a_rollout_from_opening(
    fleet: ServedFleet, cem: Shell, eve: Shell
) -> None:
    protect(fleet)
    made = eve.run("channel", "promote", CHANNEL, "web.1", "--reason", "go")
    (request,) = fleet.viewer.get("/v1/requests").json()["items"]
    request_id, (approver, *_) = request["request_id"], request["approvers"]

    before = eve.run("rollout", "explain", CHANNEL)
    approved = cem.run("request", "approve", request_id)
    fleet.succeed()
    done = eve.run("rollout", "explain", CHANNEL)
    eve.run("channel", "promote", CHANNEL, "web.2", "--reason", "go on")
    after = eve.run("rollout", "explain", CHANNEL)

    assert made.code == 9, made
    assert before.code == 4, before
    assert f"channel {CHANNEL} has no rollout yet; {request_id} waits for the approval of " in (
        before.err
    )
    assert (approver["name"] or approver["user_id"]) in before.err, before.err
    assert f"try: tidegate request show {request_id}" in before.err
    assert approved.code == 0, approved
    assert "waits for the approval" not in done.out
    assert " waits for the approval of " in after.out, after
    assert "promote web.2" in after.out
    assert "    next: tidegate request show R-" in after.out
