"""Rollouts as people watch them: bars, gates, ends; against a server that plays one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.scripted_server import (
    RecordedRequest,
    Script,
    ScriptedResponse,
    problem,
    serve_script,
)
from tests.cli.shell import Shell

ROLLOUT = "web-stable@web.3"


def wave(name: str, hosts: int, **states: int) -> dict[str, Any]:
    return {"name": name, "hosts": hosts, "states": states}


def rollout(state: str, current: int = 0, *waves: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "rollout_id": ROLLOUT,
        "channel": "web-stable",
        "state": state,
        "current_wave": current,
        "waves": list(waves),
        **more,
    }


def playing(*frames: dict[str, Any]) -> Script:
    """Play a rollout: each of these frames is returned once, the last one forever."""
    left: Iterator[dict[str, Any]] = iter(frames)
    shown = frames[0]

    def script(asked: RecordedRequest) -> ScriptedResponse:
        nonlocal shown
        if asked.path == "/v1/channels/web-stable":
            stands = {"channel": "web-stable", "newest_rollout_id": ROLLOUT, "version": 4}
            return ScriptedResponse(200, stands, {"etag": '"4"'})
        if asked.path.endswith(("/promote", "/rollback", "/retry")):
            return ScriptedResponse(200, {"rollout_id": ROLLOUT, "position": 9})
        if asked.path == f"/v1/rollouts/{ROLLOUT}":
            shown = next(left, shown)
            return ScriptedResponse(200, shown)
        return problem(404, "not_found")

    return script


FRAMES = (
    rollout("Opening", 0, wave("canary", 2), wave("rest", 8)),
    rollout("Active", 0, wave("canary", 2, Soaking=1, Converged=1), wave("rest", 8)),
    rollout("Active", 1, wave("canary", 2, Converged=2), wave("rest", 8, Activating=3)),
)


def test_prints_that_a_skip_changed_nothing(tmp_path: Path) -> None:
    def script(asked: RecordedRequest) -> ScriptedResponse:
        return ScriptedResponse(200, rollout("Active", 0, wave("a", 1), warnings=["It was so."]))

    with serve_script(script) as server:
        shell = Shell(tmp_path / "home", server.url, "tg1_x_y")
        ran = shell.run("rollout", "skip", ROLLOUT, "web-01", "--reason", "x")

    assert (ran.code, ran.out) == (0, "– It was so.\n")


def test_a_dry_run_of_a_retry_needs_no_reason(tmp_path: Path) -> None:
    with serve_script(lambda _: ScriptedResponse(200, {"facts": []})) as server:
        shell = Shell(tmp_path / "home", server.url, "tg1_x_y")
        dry = shell.run("rollout", "retry", ROLLOUT, "--dry-run")
        real = shell.run("rollout", "retry", ROLLOUT)

    assert (dry.code, "nothing was changed" in dry.out) == (0, True), dry
    assert (real.code, "Missing option '--reason'" in real.err) == (2, True), real


def test_an_empty_list_of_failures_mentions_rollouts_that_stopped(tmp_path: Path) -> None:
    stopped = {**rollout("Failed", 0, wave("canary", 2)), "opened_at": "2026-05-01T02:00:00Z"}

    def script(asked: RecordedRequest) -> ScriptedResponse:
        items = [stopped] if "state=Failed" in asked.path else []
        return ScriptedResponse(200, {"items": items})

    with serve_script(script) as server:
        shell = Shell(tmp_path / "home", server.url, "tg1_x_y")
        failed = shell.run("rollout", "list", "--outcome", "aborted,failed")
        data = shell.run("rollout", "list", "--outcome", "failed", "-o", "json")
        replaced = shell.run("rollout", "list", "--outcome", "replaced")

    assert failed.err == (
        "no rollout matches --outcome aborted,failed\n"
        "1 rollout is stopped and has not ended: tidegate rollout list --state stopped\n"
    )
    assert (data.err, data.json()) == ("", [])
    assert replaced.err == "no rollout matches --outcome replaced\n"


@pytest.mark.parametrize(
    ("end", "words", "exit_code"),
    [
        ("Terminal", "✔ Ended", 0),
        ("Reverted", "Stopped: a host rolled back", 7),
        ("Failed", "Stopped: a host failed", 1),
        ("Superseded", "Replaced", 3),
    ],
)
def test_the_exit_code_shows_how_a_rollout_ended(
    tmp_path: Path, end: str, words: str, exit_code: int
) -> None:
    last = rollout(end, 1, wave("canary", 2, Converged=2), wave("rest", 8, Converged=8))
    with serve_script(playing(FRAMES[0], last)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        ended = shell.run("channel", "promote", "web-stable", "web.3", "--wait")

    promoted = next(asked for asked in server.asked if asked.method == "POST")
    assert ended.code == exit_code, ended.err
    assert promoted.json() == {"release_id": "web.3", "reason": ""}
    assert promoted.headers["if-match"] == '"4"'
    assert words in ended.out
    assert ("try: tidegate rollout explain" in ended.err) is (exit_code != 0)


def test_prints_a_plain_line_for_each_change_on_a_pipe(tmp_path: Path) -> None:
    last = rollout("Terminal", 1, wave("canary", 2, Converged=2), wave("rest", 8, Converged=8))
    with serve_script(playing(*FRAMES, last)) as server:
        watched = Shell(tmp_path / "home", server.url, "t").run("rollout", "watch", "web-stable")

    lines = watched.out.splitlines()
    assert watched.code == 0
    assert "\x1b" not in watched.out
    assert len(lines) == len(set(lines))
    assert f"{ROLLOUT}  ▶ Rolling out, wave 1 of 2" in lines
    assert any("◑ 1 Soaking" in line and "1/2" in line for line in lines)
    assert lines[-1].endswith("8/8  ● 8 Converged")


def test_redraws_in_place_on_a_terminal(tmp_path: Path) -> None:
    last = rollout("Terminal", 1, wave("canary", 2, Converged=2), wave("rest", 8, Converged=8))
    with serve_script(playing(*FRAMES, last)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        watched = shell.on_terminal("rollout", "watch", "web-stable")
        plain = shell.on_terminal("rollout", "show", ROLLOUT, NO_COLOR="1")

    ups = re.findall(r"\x1b\[(\d+)F", watched.out)
    assert watched.code == 0
    assert ups == ["3", "3", "3"]
    assert "\x1b[32m█" in watched.out
    assert "\x1b[32m" not in plain.out
    assert "✔ Ended" in plain.out


def test_prints_a_line_of_json_for_each_change(tmp_path: Path) -> None:
    last = rollout("Reverted", 0, wave("canary", 2, Reverted=1), halted_at="2026-01-01T00:00:00Z")
    with serve_script(playing(*FRAMES, last)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        watched = shell.run("rollout", "watch", ROLLOUT, "-o", "jsonl")

    assert watched.code == 7
    assert [line.count('"state":"') for line in watched.out.splitlines()] == [1, 1, 1, 1]


def test_stops_waiting_when_the_time_is_over(tmp_path: Path) -> None:
    with serve_script(playing(FRAMES[1])) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        late = shell.run("rollout", "watch", ROLLOUT, "--timeout", "1")

    assert (late.code, "try: tidegate rollout explain" in late.err) == (6, True)


def test_shows_what_a_rollout_waits_for(tmp_path: Path) -> None:
    gates = [{"gate": "freeze", "reason": "holidays", "since": "2026-12-24T00:00:00Z"}]
    paused = {"paused_at": "x", "paused_by": "user_1", "paused_reason": "checking logs"}
    held = rollout("Active", 0, wave("canary", 2), gates=gates, **paused)
    with serve_script(playing(held)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "show", ROLLOUT)

    assert "■ paused by user_1: checking logs" in shown.out
    assert "✘ freeze: holidays (since 2026-12-24 00:00:00Z)" in shown.out


def test_shows_a_wait_that_ends_by_itself_as_progress(tmp_path: Path) -> None:
    gates = [
        {"gate": "wave-promotion", "reason": "e2: wave all waits", "since": "2026-12-24T00:00:00Z"},
        {"gate": "window", "reason": "nights is closed", "since": "2026-12-24T00:00:00Z"},
    ]
    until = (datetime.now(UTC) + timedelta(seconds=170)).isoformat()
    soaks = rollout(
        "Active",
        0,
        wave("canary", 2),
        gates=[gate | {"needs_person": False} for gate in gates],
        progress={"says": "wave 1 of 2 (canary) soaks", "until": until},
    )
    with serve_script(playing(soaks)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "show", ROLLOUT)

    assert "✘" not in shown.out
    assert "wave 1 of 2 (canary) soaks, 3 min left" in shown.out
    assert "· window: nights is closed" in shown.out
    assert "wave-promotion" not in shown.out


def test_explains_each_gate_with_its_facts(tmp_path: Path) -> None:
    evidence = {"collection": "rollout_tallies", "id": ROLLOUT, "position": 4711}
    verdicts = [
        {"gate": "freeze", "passed": True, "reason": ""},
        {
            "gate": "wave-promotion",
            "passed": False,
            "reason": "wave 0 soaks",
            "evidence": evidence,
            "hosts": 3,
        },
    ]
    found = {
        "rollout_id": ROLLOUT,
        "answer": "it waits for wave 0",
        "verdicts": verdicts,
        "host_id": "web-02",
        "host_state": "Pending",
        "wave": 1,
    }
    with serve_script(lambda asked: ScriptedResponse(200, found)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        words = shell.run("rollout", "explain", ROLLOUT, "--host", "web-02")
        document = shell.run("rollout", "explain", ROLLOUT, "-o", "json").json()

    lines = words.out.splitlines()
    assert lines[:3] == [
        "web-02  ○ Pending  wave 2",
        "it waits for wave 0",
        "✔ freeze          open",
    ]
    assert lines[3] == (
        "✘ wave-promotion  blocked  wave 0 soaks  (3 hosts)"
        "  [rollout_tallies/web-stable@web.3 at 4711]"
    )
    assert "host_id=web-02" in server.asked[0].path
    assert document == found


def test_explains_each_wait_with_its_commands_below(tmp_path: Path) -> None:
    wait = {
        "sentence": "Stopped: web-01 failed",
        "since": "2026-05-01T06:00:00.371965Z",
        "remedies": [
            {"command": "tidegate channel rollback prod", "when": "if the release is bad"},
            {"command": f"tidegate rollout abort {ROLLOUT}"},
        ],
    }
    found = {
        "rollout_id": ROLLOUT,
        "answer": "it stopped",
        "waits": [wait],
        "protection": "prod is protected",
    }
    with serve_script(lambda asked: ScriptedResponse(200, found)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "explain", ROLLOUT)

    assert shown.out.splitlines() == [
        ROLLOUT,
        "it stopped",
        "- Stopped: web-01 failed  (since 2026-05-01 06:00:00Z)",
        "    next: if the release is bad: tidegate channel rollback prod",
        f"    next: tidegate rollout abort {ROLLOUT}",
        "prod is protected",
    ]


def test_says_whom_to_ask_below_the_commands_of_the_caller(tmp_path: Path) -> None:
    ask = f"Ask an on-call of prod (Ann), in an emergency: tidegate rollout promote-all {ROLLOUT}"
    wait = {
        "sentence": "Wave 2 waits for an operator to continue it",
        "remedies": [{"command": f"tidegate rollout continue {ROLLOUT}"}],
        "ask": [ask],
    }
    found = {"rollout_id": ROLLOUT, "answer": "it waits", "waits": [wait, {**wait, "remedies": []}]}
    with serve_script(lambda asked: ScriptedResponse(200, found)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "explain", ROLLOUT)

    assert shown.out.splitlines() == [
        ROLLOUT,
        "it waits",
        "- Wave 2 waits for an operator to continue it",
        f"    next: tidegate rollout continue {ROLLOUT}",
        f"    {ask}",
        "- Wave 2 waits for an operator to continue it",
    ]


def test_explains_a_reason_once(tmp_path: Path) -> None:
    reason = "web.1 was never rolled out on dev"
    found = {
        "rollout_id": ROLLOUT,
        "answer": f"channel-edges holds 2 of 2 hosts: {reason}",
        "waits": [{"sentence": f"web-01 (and 1 more): {reason}"}],
        "verdicts": [{"gate": "channel-edges", "passed": False, "reason": reason, "hosts": 2}],
    }
    with serve_script(lambda asked: ScriptedResponse(200, found)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "explain", ROLLOUT)

    assert shown.out.splitlines() == [
        ROLLOUT,
        "channel-edges holds 2 of 2 hosts",
        f"- web-01 (and 1 more): {reason}",
        "✘ channel-edges  blocked  (2 hosts)",
    ]


def test_counts_waves_from_1_in_events(tmp_path: Path) -> None:
    event = {
        "position": 7,
        "time": "2026-05-01T06:00:00Z",
        "type": "tidegate.WaveAdvanced",
        "actor": "host_web-01",
        "data": {"rollout_id": ROLLOUT, "from_wave": 0, "to_wave": 1},
    }
    page = {"items": [event], "next": None}
    with serve_script(lambda asked: ScriptedResponse(200, page)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        shown = shell.run("rollout", "events", ROLLOUT)
        (document,) = shell.run("rollout", "events", ROLLOUT, "-o", "jsonl").lines()

    assert shown.out.splitlines()[1].endswith("WaveAdvanced  –     wave 1 → 2  web-01")
    assert document == event, "programs get the index"


def test_shows_names_in_events(tmp_path: Path) -> None:
    budgets = [{"budget_id": "db", "slots": 4}]
    items = [
        event("RolloutOpened", "user_1", actorname="Ada", waves=[{"hosts": 1}], target_ref="web.3"),
        event("DispatchReserved", "dispatcher", host_id="web-01", wave=0, budgets=budgets),
        event("ActivationStarted", "host_web-01", host_id="web-01", switch_method="symlinkdriver"),
    ]
    page = {"items": items, "next": None}
    with serve_script(lambda asked: ScriptedResponse(200, page)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "events", ROLLOUT)

    said = [line.split("Z  ")[1].split("  ") for line in shown.out.splitlines()[1:]]
    assert [[cell.strip() for cell in line if cell] for line in said] == [
        ["RolloutOpened", "–", "web.3 to 1 host in 1 wave", "Ada"],
        ["DispatchReserved", "web-01", "wave 1, takes a slot of db", "dispatcher"],
        ["ActivationStarted", "web-01", "driver symlink", "web-01"],
    ]


def event(kind: str, actor: str, *, actorname: str | None = None, **data: Any) -> dict[str, Any]:
    return {
        "position": 7,
        "time": "2026-05-01T06:00:00Z",
        "type": f"tidegate.{kind}",
        "actor": actor,
        "actorname": actorname,
        "data": {"rollout_id": ROLLOUT, **data},
    }


def test_shows_who_opened_it_and_why(tmp_path: Path) -> None:
    opened: dict[str, Any] = {"opened_at": "2026-05-01T06:00:00Z", "opened_by": "user_1"}
    found = rollout("Active", opened_reason="the checkout was slow", **opened)
    with serve_script(lambda asked: ScriptedResponse(200, found)) as server:
        shown = Shell(tmp_path / "home", server.url, "t").run("rollout", "show", ROLLOUT)

    line = shown.out.splitlines()[1]
    assert line.startswith("  opened ")
    assert line.endswith(" by user_1: the checkout was slow")


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        ("succeeded", "✔ Succeeded"),
        ("empty", "○ No hosts"),
        ("failed", "✘ Failed"),
        ("rolled_back", "↩ Rolled back"),
        ("aborted", "■ Aborted"),
        ("replaced", "» Replaced"),
    ],
)
def test_shows_how_it_ended(tmp_path: Path, outcome: str, says: str) -> None:
    found = rollout(
        "Superseded",
        outcome=outcome,
        opened_at="2026-05-01T05:37:00Z",
        outcome_at="2026-05-01T06:00:00Z",
    )
    listed = {"items": [found], "next": None}
    with serve_script(
        lambda asked: ScriptedResponse(200, found if ROLLOUT in asked.path else listed)
    ) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        shown = shell.run("rollout", "show", ROLLOUT)
        table = shell.run("rollout", "list")

    assert f"{ROLLOUT}  {says}" in shown.out
    assert "  ended 2026-05-01 06:00:00Z" in shown.out.splitlines()
    assert says in table.out
    assert "23 min" in table.out


@pytest.mark.parametrize(
    ("more", "words"),
    [({"superseded_by": "web-stable@web.4"}, "replaced by web-stable@web.4"), ({}, "aborted")],
)
def test_distinguishes_an_aborted_from_a_replaced_rollout(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    with serve_script(lambda asked: ScriptedResponse(200, rollout("Superseded", **more))) as server:
        watched = Shell(tmp_path / "home", server.url, "t").run("rollout", "watch", ROLLOUT)

    assert watched.code == 3
    assert f"{ROLLOUT} was {words}" in watched.err


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (("pause",), "pause", {}),
        (("resume",), "resume", {}),
        (("abort",), "abort", {}),
        (("retry",), "retry", {}),
        (("clear", "--mode", "resume"), "clearance", {"mode": "resume", "hosts": []}),
        (
            ("clear", "--mode", "waive", "--host", "a", "--host", "b"),
            "clearance",
            {"mode": "waive", "hosts": ["a", "b"]},
        ),
    ],
)
def test_controls_a_rollout_with_a_reason(
    tmp_path: Path, words: tuple[str, ...], path: str, body: dict[str, Any]
) -> None:
    verb, *flags = words
    with serve_script(lambda asked: ScriptedResponse(200, rollout("Active"))) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        silent = shell.run("rollout", verb, ROLLOUT, *flags)
        done = shell.run("rollout", verb, ROLLOUT, *flags, "--reason", "I looked")

    assert silent.code == 2
    assert done.code == 0, done.err
    assert server.asked[-1].path == f"/v1/rollouts/{ROLLOUT}/{path}"
    assert server.asked[-1].json() == {"reason": "I looked", **body}
