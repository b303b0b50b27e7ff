"""What ``--dry-run`` prints for a person: what the command would do, then what it would record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.protected_fleet import HERE, WHY as WHY_BODY, ask, protect
from tests.api.served_fleet import CHANNEL, ROLLOUT, ServedFleet
from tests.api.serving import ADMIN
from tests.cli.shell import Shell
from tidegate.control.operations.accounts import PersonNames
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.slices import DisableUser, disable_user
from tidegate.kernel.model import Meta

WHY = ("--reason", "I looked")


@pytest.fixture
def dan(fleet: ServedFleet, tmp_path: Path) -> Shell:
    served = fleet.served
    roles = (Role.RELEASE_MANAGER, Role.ON_CALL)
    return Shell(tmp_path / "dan", served.url, served.token(served.user(*map(Grant, roles))))


def add_approver(fleet: ServedFleet, name: str) -> None:
    called = PersonNames(name.lower(), name)
    grants = (Grant(Role.APPROVER), Grant(Role.VIEWER))
    fleet.served.add_person(f"user_{name.lower():0>10}", called, "correct horse", *grants)


def test_a_promotion_says_what_it_replaces_and_whom_it_reaches(
    fleet: ServedFleet, dan: Shell
) -> None:
    first = dan.run("channel", "promote", CHANNEL, "web.1", "--dry-run")
    fleet.promote("web.1")
    body = {"reason": "holidays", "channels": [CHANNEL], "freeze_id": "xmas"}
    assert fleet.operator.post("/v1/freezes", json=body).status_code == 201
    second = dan.run("channel", "promote", CHANNEL, "web.2", "--dry-run")
    passing = ("--override", "freeze", "--start-at", "2026-04-25T02:00:00Z", *WHY)
    passed = dan.run("channel", "promote", CHANNEL, "web.2", "--dry-run", *passing)

    assert first.out.splitlines()[:4] == [
        "✔ This would succeed; nothing was changed.",
        f"  web.1 would be the first release on {CHANNEL}",
        "  It would reach 2 hosts in 2 waves: canary (1), all (1)",
        "It would record:",
    ], first
    assert second.out.splitlines()[:6] == [
        "✔ This would succeed; nothing was changed.",
        f"  web.2 would replace web.1 on {CHANNEL}",
        "  It would reach 2 hosts in 2 waves: canary (1), all (1)",
        "  Its orders would wait. Freeze xmas holds it",
        f"  {ROLLOUT} would end: replaced",
        "It would record:",
    ], second
    assert "Freeze xmas" not in passed.out
    assert "  It would send no order before 2026-04-25 02:00 UTC" in passed.out, passed


def test_the_facts_have_names_and_waves_from_1_without_ids(fleet: ServedFleet, dan: Shell) -> None:
    fleet.promote("web.1")

    shown = dan.run("channel", "promote", CHANNEL, "web.2", "--dry-run").out

    facts = {line.split()[0]: line for line in shown.partition("record:\n")[2].splitlines()}
    assert "current_wave=1" in facts["RolloutTransitioned"]
    assert "to=replaced" in facts["RolloutTransitioned"]
    assert "outcome=replaced" in facts["RolloutConcluded"]
    assert "target_ref=web.2" in facts["RolloutOpened"]
    assert "moved_from=web.1, release_id=web.2" in facts["ReleaseTransitioned"]
    for word in ("sha256", "user_", "command_id", "null", "T20:00:00"):
        assert word not in shown, shown


def test_a_release_that_is_only_confirmed_opens_no_rollout(fleet: ServedFleet, dan: Shell) -> None:
    fleet.promote("web.1")
    fleet.succeed()

    shown = dan.run("channel", "promote", CHANNEL, "web.1", "--refresh", "--dry-run")

    line = f"  web.1 would get new evidence on {CHANNEL}; no rollout would open"
    assert line in shown.out.splitlines(), shown


def test_on_a_protected_channel_it_says_that_a_request_would_be_made(
    fleet: ServedFleet, dan: Shell
) -> None:
    fleet.promote("web.1")
    add_approver(fleet, "Cem")
    add_approver(fleet, "Ann")
    protect(fleet)

    promoted = dan.run("channel", "promote", CHANNEL, "web.2", "--dry-run")
    override = ("rollout", "override", CHANNEL, "--gate", "edges", "--dry-run", *WHY)
    passed, machine = dan.run(*override), dan.run(*override, "-o", "json")

    asked = fleet.viewer.get("/v1/requests").json()["items"]
    made = ask(fleet.manager.post(f"{HERE}/promote", json=WHY_BODY | {"release_id": "web.2"}))
    names = [item["name"] or item["user_id"] for item in made["approvers"]]
    who = f"{', '.join(names[:-1])} or {names[-1]} must approve it"
    says = f"◐ This would make a request, and change nothing yet: {who}"
    assert {"Ann", "Cem"} < set(names)
    assert asked == []
    assert promoted.out.splitlines()[:5] == [
        says,
        f"  web.2 would replace web.1 on {CHANNEL}",
        "  It would reach 2 hosts in 2 waves: canary (1), all (1)",
        "It would record:",
        f"  RequestMade  channel={CHANNEL}, expires_at=2026-04-25 20:00:00Z, kind=channel.promote",
    ], promoted
    assert passed.out.splitlines()[0] == says, passed
    assert "succeed" not in promoted.out + passed.out
    assert machine.json()["request"] == who


def test_a_skip_says_how_the_rollout_would_end(fleet: ServedFleet, dan: Shell) -> None:
    fleet.promote("web.1")
    early = dan.run("rollout", "skip", CHANNEL, "web-02", "--dry-run", *WHY)
    fleet.dispatch()
    fleet.converge("web-01")
    fleet.wait(40)
    fleet.dispatch()
    last = dan.run("rollout", "skip", CHANNEL, "web-02", "--dry-run", *WHY)

    skipped = f"channel={CHANNEL}, host_id=web-02, reason=I looked, rollout_id={ROLLOUT}, wave=2"
    assert early.out.splitlines() == [
        "✔ This would succeed; nothing was changed.",
        "It would record:",
        f"  HostSkipped  {skipped}",
    ]
    assert last.out.splitlines()[:3] == [
        "✔ This would succeed; nothing was changed.",
        f"  {ROLLOUT} would end: succeeded",
        "It would record:",
    ]
    facts = {line.split()[0]: line for line in last.out.splitlines()[3:]}
    assert facts["HostStateChanged"].endswith(
        f"  from=pending, host_id=web-02, rollout_id={ROLLOUT}, to=skipped, wave=2"
    )
    assert "outcome=succeeded" in facts["RolloutConcluded"]
    assert "…" not in last.out


def test_it_says_how_many_must_approve_and_if_there_are_too_few(
    fleet: ServedFleet, dan: Shell
) -> None:
    for name in ("Cem", "Ann"):
        add_approver(fleet, name)
    protect(fleet, approvals=2)
    made = ask(fleet.manager.post(f"{HERE}/promote", json=WHY_BODY | {"release_id": "web.2"}))
    names = [item["name"] or item["user_id"] for item in made["approvers"]]
    promote = ("channel", "promote", CHANNEL, "web.1", "--dry-run")

    some = dan.run(*promote)
    for user in {item["user_id"] for item in made["approvers"]} - {"user_0000000ann"}:
        command = DisableUser(user_id=user, by=ADMIN, reason="they went")
        fleet.installation.execute.run(disable_user, command, meta=Meta(actor=ADMIN))
    few = dan.run(*promote)

    says = "◐ This would make a request, and change nothing yet: "
    who = f"2 of {', '.join(names[:-1])} and {names[-1]} must approve it"
    assert some.out.splitlines()[0] == says + who, some
    assert few.out.splitlines()[0] == says + "2 people must approve it, but only Ann may", few
