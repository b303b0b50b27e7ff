"""Channels, rollouts and hosts with the command line, on a real server with a small fleet."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.api.serving import ADMIN, Served
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.kernel.model import Meta

POLICY = {"waves": [{"name": "canary", "count": 1}, {"name": "rest"}]}
ROLLOUT = "web-stable@web.1"
WHY = ("--reason", "I looked")


@pytest.fixture
def operator(served: Served, tmp_path: Path) -> Shell:
    """A person who may do everything, with release web.1 published by two others."""
    shells = [
        Shell(tmp_path / f"home-{n}", served.url, served.token(served.user(*map(Grant, Role))))
        for n in range(2)
    ]
    author, other = shells
    assert author.run("rev", "create", "web", "--workspace", "v1").code == 0
    assert author.run("rev", "propose", "web.v1").code == 0
    assert other.run("rev", "approve", "web.v1").code == 0
    return other


def enroll(served: Served, *hosts: str) -> None:
    for number, host in enumerate(hosts):
        command = EnrollHost(
            host_id=host, public_key=f"{number:064x}", labels={"env": "prod"}, operator=ADMIN
        )
        served.installation.execute.run(enroll_host, command, meta=Meta(actor=ADMIN))


def make_channel(operator: Shell, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    made = operator.run(
        *("channel", "create", "web-stable", "--package", "default/web", "--hosts", "env=prod"),
        *("--policy", str(tmp_path / "policy.json")),
    )
    assert made.code == 0, made.err


def test_a_rollout_without_hosts_ends_at_once(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)

    done = operator.run("channel", "promote", "web-stable", "web.1", "--wait", "--timeout", "80")
    again = operator.run("channel", "promote", "web-stable", "web.1")
    shown = operator.run("channel", "show", "web-stable")
    back = operator.run("channel", "rollback", "web-stable", *WHY)
    events = operator.run("rollout", "events", "web-stable", "-o", "jsonl").lines()
    listed = operator.run("channel", "list")
    moves = operator.run("channel", "history", "web-stable")

    assert (done.code, "without a host that ran it" in done.err) == (8, True), done
    assert (again.code, "web-stable@web.1~2" in again.out) == (0, True), "no host ran it"
    assert re.search(r"^wanted +web\.1, promoted \S+ \S+Z by ", shown.out, re.MULTILINE), shown.out
    assert re.search(r"^actual +no hosts$", shown.out, re.MULTILINE), shown.out
    assert re.search(r"^outcome +○ No hosts$", shown.out, re.MULTILINE), shown.out
    assert re.search(r"web-stable .* web\.1 +no hosts +○ No hosts", listed.out), listed.out
    assert [line.split()[2] for line in moves.out.splitlines()[1:]] == ["confirmed", "promoted"]
    assert (back.code, "try: tidegate channel rollback web-stable --dry-run" in back.err) == (
        1,
        True,
    ), back
    assert events[0]["type"] == "tidegate.RolloutOpened"


def test_controls_and_explains_a_rollout(served: Served, operator: Shell, tmp_path: Path) -> None:
    enroll(served, "web-01", "web-02", "web-03")
    make_channel(operator, tmp_path)

    plan = operator.run("rollout", "plan", "web-stable", "web.1")
    opened = operator.run("rollout", "open", "web-stable", "web.1", "-o", "json").json()
    paused = operator.run("rollout", "pause", ROLLOUT, *WHY)
    shown = operator.run("rollout", "show", "web-stable")
    why = operator.run("rollout", "explain", ROLLOUT)
    resumed = operator.run("rollout", "resume", ROLLOUT, *WHY)
    early = operator.run("rollout", "clear", ROLLOUT, "--mode", "resume", *WHY)
    listed = operator.run("rollout", "list", "--channel", "web-stable", "-o", "json").json()
    late = operator.run("rollout", "watch", ROLLOUT, "--timeout", "1")
    unknown = operator.run("rollout", "pause", "web-stable@web.9", *WHY)

    assert "wave 1  canary  1 host," in plan.out
    assert opened["rollout_id"] == ROLLOUT
    assert paused.code == resumed.code == 0, paused.err
    assert "■ paused by" in shown.out
    assert "· 2 Waiting" in shown.out
    assert "✘ paused" in why.out, why.out
    assert early.code == 1, early
    assert [item["rollout_id"] for item in listed] == [ROLLOUT]
    assert late.code == 6
    assert (unknown.code, "try: tidegate rollout list" in unknown.err) == (4, True)


def test_shows_the_installation_on_one_screen(
    served: Served, operator: Shell, tmp_path: Path
) -> None:
    empty = operator.run("status")
    enroll(served, "web-01", "web-02", "web-03")
    make_channel(operator, tmp_path)
    operator.run("channel", "promote", "web-stable", "web.1")
    going = operator.run("status", "-o", "json")
    operator.run("rollout", "pause", ROLLOUT, *WHY)
    paused = operator.run("status")

    assert (empty.code, "✔ All is well." in empty.out) == (0, True)
    assert "no channel yet; try: tidegate channel create --help" in empty.out
    (channel,) = going.json()["channels"]
    assert (channel["wanted"], channel["hosts"], channel["on_wanted"]) == ("web.1", 3, 0)
    assert paused.code == 1
    assert "✘ web-stable: web.1 is paused" in paused.out
    assert "next: tidegate rollout resume web-stable --reason …" in paused.out
    assert "1 rollout open" in paused.out


def test_a_viewer_sees_whom_to_ask_instead_of_commands_that_are_refused(
    served: Served, operator: Shell, tmp_path: Path
) -> None:
    enroll(served, "web-01", "web-02", "web-03")
    make_channel(operator, tmp_path)
    operator.run("channel", "promote", "web-stable", "web.1")
    operator.run("rollout", "pause", ROLLOUT, *WHY)
    viewer = Shell(tmp_path / "viewer", served.url, served.token(served.user(Grant(Role.VIEWER))))
    ask = re.escape("Ask a fleet-operator or an on-call of web-stable (")
    resume = r"tidegate rollout resume \S+ --reason …"

    shown = [
        viewer.run("rollout", "explain", "web-stable").out,
        viewer.run("host", "explain", "web-01").out,
        viewer.run("status").out,
    ]

    for out in shown:
        assert re.search(rf"^    {ask}.+\): {resume}$", out, re.MULTILINE), out
        assert not re.search(rf"next: .*{resume}", out), out
    assert "    next: tidegate rollout explain web-stable\n" in shown[-1]
    own = operator.run("rollout", "explain", "web-stable").out
    assert re.search(rf"^    next: {resume}$", own, re.MULTILINE), own
    assert "Ask " not in own


def test_after_an_abort_explain_names_what_the_caller_may_do_next(
    served: Served, operator: Shell, tmp_path: Path
) -> None:
    enroll(served, "web-01", "web-02", "web-03")
    make_channel(operator, tmp_path)
    operator.run("channel", "promote", "web-stable", "web.1")
    runner = Shell(
        tmp_path / "runner", served.url, served.token(served.user(Grant(Role.FLEET_OPERATOR)))
    )

    aborted = runner.run("rollout", "abort", "web-stable", *WHY)
    own = operator.run("rollout", "explain", "web-stable").out
    others = runner.run("rollout", "explain", "web-stable").out

    assert aborted.out.endswith("is aborted; next: tidegate rollout explain web-stable\n"), aborted
    onward = "if you have a release to go on to: tidegate channel promote web-stable RELEASE"
    assert f"    next: {onward}\n" in own
    assert re.search(rf"^    Ask a release-manager of web-stable \(.+\), {onward}$", others, re.M)


def test_status_exits_with_1_only_for_what_needs_the_caller(
    served: Served, operator: Shell, tmp_path: Path
) -> None:
    enroll(served, "web-01", "web-02", "web-03")
    make_channel(operator, tmp_path)
    operator.run("freeze", "create", "--channel", "web-stable", *WHY)
    frozen = operator.run("status")
    operator.run("channel", "promote", "web-stable", "web.1")
    going = operator.run("status")

    assert (frozen.code, going.code) == (0, 0), going.out
    assert "✔ Nothing needs you." in frozen.out
    assert "! web-stable frozen by " in frozen.out
    assert "next: tidegate freeze delete " in frozen.out
    assert "✘" not in going.out
    assert "· web-stable: web.1 waits for freeze freeze-" in going.out
    assert "■ Frozen" in going.out


def test_checks_a_policy_before_its_channel_exists(operator: Shell, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({**POLICY, "edges": ["early"]}))
    check = ("channel", "policy", "late", "--check", str(file))

    alone = operator.run(*check)
    placed = operator.run(*check, "--package", "web", "--hosts", "env=prod")
    compared = operator.run("channel", "policy", "late", "--diff", str(file))

    assert (alone.code, "there is no channel late yet" in alone.err) == (0, True), alone
    assert (compared.code, "there is no channel late [" in compared.err) == (4, True), compared
    assert "can be used" in alone.out
    assert (placed.code, "late waits for early, which does not exist" in placed.out) == (2, True)


def test_a_check_finds_the_same_faults_as_create(
    served: Served, operator: Shell, tmp_path: Path
) -> None:
    enroll(served, "web-01")
    make_channel(operator, tmp_path)
    file = tmp_path / "e.json"
    file.write_text(json.dumps({"edges": ["nope"]}))
    whole = ("--package", "default/web", "--hosts", "env=prod")

    unnamed = operator.run("channel", "policy", "--check", str(file), *whole)
    file.write_text("{}")
    taken = operator.run("channel", "policy", "late", "--check", str(file), *whole)

    assert unnamed.code == 2, unnamed
    assert "fault: the channel waits for nope, which does not exist." in unnamed.out
    assert (taken.code, "web-01" in taken.out) == (2, True), taken
    assert "can be used" not in taken.out


def test_names_every_fault_of_a_policy_that_is_refused(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)
    file = tmp_path / "bad.json"
    file.write_text(
        json.dumps({"waves": [{"percent": 101}], "edges": ["nope"], "offline_grace_secs": 3})
    )

    made = operator.run(
        *("channel", "create", "late", "--package", "default/web", "--hosts", "env=late"),
        *("--policy", str(file)),
    )
    edited = operator.run("channel", "edit", "web-stable", "--policy", str(file))

    for ran in (made, edited):
        assert ran.code == 2, ran
        assert f"{file} has 3 faults [" in ran.err, ran.err
        for part in ("percent", "nope, which does not exist", "offline_grace_secs"):
            assert part in ran.err
    assert f"try: tidegate channel policy late --check {file}" in made.err


def test_suggests_similar_names(served: Served, operator: Shell, tmp_path: Path) -> None:
    enroll(served, "web-01")
    make_channel(operator, tmp_path)

    channel = operator.run("channel", "show", "web-stabel")
    host = operator.run("host", "show", "web-1")
    release = operator.run("host", "list", "--runs", "wbe.1")
    nothing = operator.run("channel", "show", "qqqq")
    revision = operator.run("rev", "show", "web.1")
    document = operator.run("channel", "show", "web-stabel", "-o", "json")

    assert (channel.code, host.code, release.code, nothing.code) == (4, 4, 4, 4)
    assert "there is no channel web-stabel: did you mean web-stable? [" in channel.err
    assert "did you mean web-01?" in host.err
    assert "did you mean web.1?" in release.err
    assert "there is no package revision default.web.1: did you mean default.web.v1? [" in (
        revision.err
    )
    assert "did you mean" not in nothing.err + document.err


def test_an_unknown_name_suggests_the_list_command(operator: Shell, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    window = ("--start", "2026-11-17T02:00", "--for", "2h", "--zone", "UTC", *WHY)
    assert operator.run("window", "create", "nights", *window).code == 0

    said = {
        "notify list": operator.run("notify", "show", "osp"),
        "join list": operator.run("join", "show", "join-1"),
        "host list": operator.run("window", "next", "nights", "--host", "wbe-1"),
        "channel policy --example": operator.run(
            "channel", "policy", "--check", str(tmp_path / "broken.json")
        ),
    }

    assert {name: ran.err.split("try: tidegate ")[-1].strip() for name, ran in said.items()} == {
        name: name for name in said
    }


def test_refuses_or_warns_of_a_channel_that_does_not_exist(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)
    window = ("window", "create", "nights", "--start", "2026-11-17T02:00", "--for", "2h")

    lists = [operator.run(noun, "list", "--channel", "web-stabel") for noun in LISTS]
    empty = [operator.run(noun, "list", "--channel", "web-stable") for noun in LISTS]
    told = operator.run(
        *("notify", "create", "ops", "--kind", "slack", "--to", "https://93.184.215.14/hook"),
        *("--scope", "channel:web-stabel", "--scope", "channel:web-stable"),
    )
    checked = operator.run(*window, "--channel", "web-stabel", "--check")
    made = operator.run("user", "create", "cem", "--name", "Cem", "--role", "viewer@channel:qqq")
    granted = operator.run("user", "grant", "cem", "approver@channel:web-stabel")

    for ran in (*lists, told, checked):
        assert ran.code == 4, ran
        assert "there is no channel web-stabel: did you mean web-stable? [" in ran.err
    assert [ran.code for ran in empty] == [0, 0, 0]
    slip = "warning: there is no channel web-stabel; did you mean web-stable?"
    assert (granted.code, slip in granted.err) == (0, True), granted
    assert (made.code, "warning: there is no channel qqq\n" in made.err) == (0, True), made


LISTS = ("rollout", "quarantine", "outbox")


def test_prints_that_no_rollout_matches_the_filters(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)

    narrowed = operator.run("rollout", "list", "--outcome", "rolled-back,failed", "--since", "30d")
    stopped = operator.run("rollout", "list", "--state", "stopped", "--channel", "web-stable")
    same = operator.run("rollout", "list", "--state", "rolled_back")
    none = operator.run("rollout", "list")

    assert narrowed.err == "no rollout matches --outcome rolled-back,failed --since 30d\n"
    assert stopped.err == "no rollout matches --channel web-stable --state stopped\n"
    assert same.err == "no rollout matches --state rolled-back\n"
    assert none.err == "no rollout; try: tidegate channel promote CHANNEL RELEASE\n"


def test_an_invalid_field_is_named_by_its_option(operator: Shell) -> None:
    window = ("window", "create", "nights", "--start", "2026-11-17T02:00", "--zone", "UTC")
    create = ("channel", "create", "Web_Prod", "--package", "web", "--hosts", "env=prod")

    name = operator.run(*create)
    short = operator.run(*window, "--for", "10s", *WHY)
    role = operator.run("user", "create", "cem", "--name", "Cem", "--role", "boss")

    form = "consists of lower-case letters, digits and hyphens, and begins and ends with a letter"
    assert f"\n  CHANNEL {form} or digit; found 'Web_Prod'\n" in name.err
    assert "\n  --for is at least " in short.err, short.err
    assert "\n  --role is one of viewer" in role.err, role.err


def test_a_preview_needs_no_reason(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)
    window = ("window", "create", "nights", "--start", "2026-11-17T02:00", "--zone", "UTC")

    checked = operator.run(*window, "--for", "2h", "--rule", "FREQ=DAILY", "--check")
    written = operator.run(*window, "--for", "2h", "--rule", "FREQ=DAILY")
    dry = operator.run("channel", "rollback", "web-stable", "--dry-run")
    back = operator.run("channel", "rollback", "web-stable", "--now")

    assert (checked.code, "02:00" in checked.out) == (0, True), checked
    assert written.err.endswith("--rule FREQ=DAILY --reason …\n"), written.err
    assert "Missing option" not in dry.err
    assert back.err.endswith("  try: tidegate channel rollback web-stable --now --reason …\n")


def test_shows_names_of_people_to_everyone_who_may_read(
    served: Served, operator: Shell, tmp_path: Path
) -> None:
    make_channel(operator, tmp_path)
    viewer = Shell(tmp_path / "viewer", served.url, served.token(served.user(Grant(Role.VIEWER))))
    window = ("--start", "2026-11-17T02:00", "--for", "2h", "--zone", "UTC", *WHY)
    hook = ("--kind", "slack", "--to", "https://93.184.215.14/hook")
    roles = [word for role in Role for word in ("--role", str(role))]
    password = "correct horse battery\n"
    named = ("user", "create", "ada", "--name", "Ada Lovelace", "--password-stdin", *roles)
    assert operator.run(*named, stdin=password).code == 0
    ada = Shell(tmp_path / "ada", served.url)
    assert ada.run("login", "--login", "ada", "--password-stdin", stdin=password).code == 0
    assert ada.run("freeze", "create", "--channel", "web-stable", *WHY).code == 0
    assert ada.run("window", "create", "nights", *window).code == 0
    assert ada.run("notify", "create", "ops", *hook).code == 0
    me = ada.run("whoami", "-o", "json").json()

    assert ada.run("rev", "create", "api", "--workspace", "v1").code == 0

    shown = [
        viewer.run("rev", "list"),
        viewer.run("freeze", "list"),
        viewer.run("window", "show", "nights"),
        viewer.run("notify", "show", "ops"),
    ]

    for ran in shown:
        assert ran.code == 0, ran
        assert "Ada Lovelace" in ran.out, ran.out
        assert me["user_id"] not in ran.out


def test_holds_and_freezes(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)

    held = operator.run("channel", "hold", "web-stable", *WHY)
    refused = operator.run("channel", "promote", "web-stable", "web.1")
    freed = operator.run("channel", "release", "web-stable", *WHY)
    frozen = operator.run("freeze", "create", "--channel", "web-stable", *WHY, "-o", "json").json()
    listed = operator.run("freeze", "list")
    ended = operator.run("freeze", "delete", frozen["freeze_id"], *WHY)
    edited = operator.run("channel", "edit", "web-stable", "--hosts", "env=dev")
    channels = operator.run("channel", "list")

    assert held.code == freed.code == ended.code == edited.code == 0
    assert (refused.code, "try: tidegate channel release web-stable" in refused.err) == (1, True)
    assert frozen["freeze_id"] in listed.out
    assert "env=dev" in channels.out


def test_says_that_a_hold_changed_nothing(operator: Shell, tmp_path: Path) -> None:
    make_channel(operator, tmp_path)
    hold = ("channel", "hold", "web-stable", "--reason")

    first = operator.run(*hold, "audit")
    second = operator.run(*hold, "lunch")
    freed = [operator.run("channel", "release", "web-stable", *WHY) for _ in range(2)]

    assert "✔ channel web-stable is held; release it with: " in first.out
    assert "✔" not in second.out + freed[1].out
    assert second.out.startswith("– web-stable is held already by ")
    assert second.out.endswith(": audit. Your hold was not added.\n")
    assert "✔ the hold of web-stable is released" in freed[0].out
    assert freed[1].out == "– web-stable is not held. Nothing was released.\n"


def test_shows_whether_a_window_is_open_now(operator: Shell) -> None:
    begun = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    always = ("--for", "2h", *WHY)
    for name, more in {
        "days": ("--start", begun),
        "audit": ("--start", begun, "--kind", "deny"),
        "nights": ("--start", "2020-01-01T02:00"),
        "sites": ("--start", begun, "--zone", "label:tz", "--zone-default", "UTC"),
    }.items():
        assert operator.run("window", "create", name, *more, *always).code == 0

    head, *lines = operator.run("window", "list").out.splitlines()
    shown = operator.run("window", "show", "audit")

    assert head.split()[:3] == ["WINDOW", "KIND", "NOW"]
    now = {line.split()[0]: re.split(r"  +", line)[2] for line in lines}
    assert now == {"audit": "denies", "days": "open", "nights": "closed", "sites": "by host"}
    assert re.search(r"^ *now +denies$", shown.out, re.MULTILINE), shown.out


def test_manages_hosts_and_budgets(served: Served, operator: Shell) -> None:
    enroll(served, "web-01", "web-02")

    labelled = operator.run("host", "label", "web-01", "zone=b", "env-", "-o", "json").json()
    invited = operator.run("host", "enroll", "web-03", "--label", "env=prod")
    revoked = operator.run("host", "revoke", "web-01", *WHY)
    retired = operator.run("host", "retire", "web-02", *WHY)
    listed = operator.run("host", "list")
    shown = operator.run("host", "show", "web-01")
    missing = operator.run("host", "show", "web-99")
    bounded = operator.run("budget", "create", "prod", "--hosts", "env=prod", "--max", "1")
    budgets = operator.run("budget", "list")
    removed = operator.run("budget", "delete", "prod")
    nothing = operator.run("quarantine", "list")

    silent, silent_long = (
        operator.run("host", "list", "--silent", *more) for more in ((), ("2h",))
    )
    unknown = operator.run("host", "list", "--runs", "web.99")
    nowhere = operator.run("host", "list", "--runs", "web.1")
    wrong = operator.run("host", "list", "--silent", "soon")

    assert [(ran.code, "no such host" in ran.err) for ran in (silent, silent_long)] == [
        (0, True)
    ] * 2
    assert (unknown.code, "there is no release web.99" in unknown.err) == (4, True)
    assert (nowhere.code, "no host runs web.1" in nowhere.err) == (0, True)
    assert (wrong.code, "'soon' is no duration" in wrong.err) == (2, True)
    assert labelled["labels"] == {"zone": "b"}
    assert invited.code == 0, invited.err
    assert invited.out.strip()
    assert revoked.code == retired.code == 0, revoked.err + retired.err
    assert "✘ revoked" in listed.out
    assert "– retired" in listed.out
    assert "zone=b" in shown.out
    assert (missing.code, "try: tidegate host list" in missing.err) == (4, True)
    assert bounded.code == removed.code == 0, bounded.err + removed.err
    assert "env=prod" in budgets.out
    assert (nothing.code, "nothing is quarantined" in nothing.err) == (0, True)
