"""Printed output: columns, states, bars, and texts that cannot control a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.cli.scripted_server import ScriptedResponse, in_turn, serve_script
from tests.cli.shell import Shell
from tidegate import errors
from tidegate.cli.exit_codes import CommandExit, ExitCode, exit_code_of, exit_code_of_status
from tidegate.cli.gates import explain_lines
from tidegate.cli.live_view import plain, retry_while_away, wave_line
from tidegate.cli.output import aligned, fact_members, text
from tidegate.cli.symbols import STATES, TONES, clean, moment, segments, size

PAGE = ScriptedResponse(
    200,
    {
        "items": [{"name": "a", "quorum": 1, "deployment": True}, {"name": "long-name"}],
        "next": None,
    },
)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=9), st.integers(9, 60))
def test_every_state_gets_its_share_of_a_bar(counts: list[int], width: int) -> None:
    states = [(f"s{number}", count) for number, count in enumerate(counts)]

    cells = dict(segments(states, width))

    total = sum(counts)
    assert sum(cells.values()) == (width if total else 0)
    for state, count in states:
        assert (state in cells) is (count > 0)
        assert abs(cells.get(state, 0) - count * width / max(1, total)) <= len(counts)


@given(st.text())
def test_prints_no_control_character(words: str) -> None:
    shown = clean(words)

    assert shown.isprintable() or all(not _controls(character) for character in shown)


def _controls(character: str) -> bool:
    return ord(character) < 32 or 127 <= ord(character) < 160 or character in "\u202e\u2066"


def test_waits_for_an_unavailable_server_but_not_after_a_refusal() -> None:
    away = CommandExit(ExitCode.UNAVAILABLE, "no answer")
    answers: list[CommandExit | str] = [away, away, "back", CommandExit(ExitCode.NOT_FOUND, "gone")]

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, CommandExit):
            raise answer
        return answer

    assert retry_while_away(ask) == "back"
    with pytest.raises(CommandExit, match="gone"):
        retry_while_away(ask)


def test_every_state_has_a_glyph_of_one_cell() -> None:
    assert [word for word, (glyph, _) in STATES.items() if len(glyph) != 1] == []
    assert set(TONES) <= set(STATES)


def test_counts_hosts_without_an_order_as_waiting() -> None:
    wave = {"name": "canary", "hosts": 10, "states": {"Converged": 4, "Failed": 1}, "left": 2}

    line = plain(wave_line(0, wave, 0, 6))

    assert line.startswith("▸ canary ")
    assert line.endswith("4/10  ● 4 Converged  ✘ 1 Failed  – 2 Skipped  · 3 Waiting")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        ("", "–"),
        (True, "yes"),
        (0, "0"),
        ({"b": 1, "a": 2}, "a=2, b=1"),
        (
            {"on": True, "none": None, "some": ["x"], "said": "x"},
            'none=null, on=true, said=x, some=["x"]',
        ),
        (["x", "y"], "x, y"),
    ],
)
def test_shows_values_as_people_read_them(value: object, shown: str) -> None:
    assert text(value) == shown


def test_shows_times_and_sizes() -> None:
    assert moment("2026-04-24T19:00:00.123456Z") == "2026-04-24 19:00:00Z"
    assert moment("soon") == "soon"
    assert [size(n) for n in (0, 1023, 1536, 32 << 20)] == ["0 B", "1023 B", "1.5 KiB", "32.0 MiB"]


def test_aligns_columns_without_blanks_at_the_end() -> None:
    assert aligned([["A", "B"], ["long", ""]]) == ["A     B", "long"]


def test_draws_a_table_on_a_terminal_and_plain_columns_on_a_pipe(tmp_path: Path) -> None:
    with serve_script(in_turn(PAGE)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        piped = shell.run("repo", "list")
        drawn = shell.on_terminal("repo", "list")
        plain_terminal = shell.on_terminal("repo", "list", NO_COLOR="1")
        dumb = shell.on_terminal("repo", "list", TERM="dumb")

    assert piped.out.splitlines()[1].split() == ["a", "1", "yes", "–", "–"]
    assert "\x1b[1m" in drawn.out
    assert "\x1b[3" not in plain_terminal.out
    assert "\x1b" not in dumb.out
    assert "long-name" in drawn.out


def test_prints_each_format(tmp_path: Path) -> None:
    with serve_script(in_turn(PAGE)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        whole = shell.run("repo", "list", "-o", "json").json()
        lines = shell.run("-o", "jsonl", "repo", "list").lines()

    assert whole == lines == PAGE.body["items"]


def test_wraps_texts_and_never_breaks_names_on_a_narrow_terminal(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    item = {
        "join_id": "join-5e4b25885f05",
        "labels": {"app": "web", "env": "prod", "zone": "a"},
        "limit": 5,
        "created_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "until": "2030-01-02T03:04:05Z",
        "operator_name": "Eve",
    }
    page = {"items": [item], "next": None}
    with serve_script(lambda asked: ScriptedResponse(200, page)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        narrow = shell.on_terminal("join", "list", NO_COLOR="1", COLUMNS="70")
        least = shell.on_terminal("join", "list", NO_COLOR="1", COLUMNS="40")
        wide = shell.on_terminal("join", "list", NO_COLOR="1", COLUMNS="120")

    lines = re.sub("\x1b\\[[0-9;]*m", "", narrow.out).splitlines()
    assert max(map(len, lines)) <= 70
    assert lines[1].startswith("join-5e4b25885f05  app=web,")
    assert f"  {now:%H:%M:%S}Z  " in lines[1], "the time of a day other than today has its date"
    assert ("2030-01-02" in lines[1], "03:04:05Z" in lines[2]) == (True, True)
    assert "app=web, env=prod, zone=a  0/5" in least.out, "the terminal wraps what does not fit"
    assert f"{now:%Y-%m-%d %H:%M:%S}Z  2030-01-02 03:04:05Z  Eve" in wide.out


def test_prints_on_a_terminal_that_lacks_the_glyphs(tmp_path: Path) -> None:
    with serve_script(in_turn(PAGE)) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        shown = shell.run("repo", "list", PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert (shown.code, "long-name" in shown.out) == (0, True)


def test_ends_quietly_if_its_output_is_closed(tmp_path: Path) -> None:
    many = {"items": [{"name": f"r{number}"} for number in range(20_000)], "next": None}
    with serve_script(in_turn(ScriptedResponse(200, many))) as server:
        shell = Shell(tmp_path / "home", server.url, "t")
        with shell.start("repo", "list", "-o", "jsonl") as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr is not None
            errors_seen = process.stderr.read()
            code = process.wait()

    assert (code, errors_seen) == (0, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("x"), ExitCode.USAGE),
        (errors.ImmutableRecord("x"), ExitCode.REFUSED),
        (errors.LimitExceeded("x", 2, 1), ExitCode.REFUSED),
        (errors.VersionConflict("a", "b", 1, 2), ExitCode.CONFLICT),
        (errors.NotFound("x"), ExitCode.NOT_FOUND),
        (errors.Gone("x"), ExitCode.NOT_FOUND),
        (errors.Forbidden("x"), ExitCode.PERMISSION),
        (errors.StoreUnavailable("x"), ExitCode.UNAVAILABLE),
        (errors.OutcomeUnknown("x"), ExitCode.UNAVAILABLE),
    ],
)
def test_errors_of_this_process_exit_by_their_family(
    error: errors.TidegateError, code: ExitCode
) -> None:
    assert exit_code_of(error) is code


def test_a_family_has_the_same_exit_code_here_and_over_http() -> None:
    from tidegate.web.problems import status_of

    families = errors.TidegateError.__subclasses__()
    known = [kind for kind in families if kind.__module__ == errors.__name__]

    assert {kind: exit_code_of_status(status_of(kind)) for kind in known} == {
        kind: exit_code_of(kind("x")) for kind in known
    }


def test_members_are_cut_at_a_word_and_never_those_that_matter() -> None:
    value = {
        "channel": "prod",
        "detail": "word " * 60,
        "host_id": "prod-1",
        "outcome": "succeeded",
        "reason": "long " * 8,
        "to": "Left",
        "wave": 2,
        "zone": "UTC",
    }

    cut = fact_members(value)

    kept = ("host_id=prod-1", "outcome=succeeded", "to=Left", "wave=2")
    assert all(member in cut.split(", ") for member in kept), cut
    assert f"reason={value['reason']}" in cut
    assert "word…, host_id" in cut
    assert len(cut.replace(f"{value['reason']}", "")) < 160
    assert fact_members({"a": "x" * 200, "to": "Left"}) == "to=Left, …"
    assert fact_members({"a": 1, "b": "two"}) == "a=1, b=two"


def test_an_explanation_prints_each_command_once() -> None:
    waive = {"command": "tidegate rollout clear prod --mode waive --host h1 --reason …"}
    retry = {"command": "tidegate rollout retry prod h1 --reason …"}
    waits = [
        {"sentence": "Stopped", "remedies": [waive]},
        {"sentence": "h1 failed", "remedies": [retry, waive]},
    ]

    lines = ["".join(text for text, _ in line) for line in explain_lines({"waits": waits})]

    assert lines == [
        "- Stopped",
        f"    next: {waive['command']}",
        "- h1 failed",
        f"    next: {retry['command']}",
    ]
