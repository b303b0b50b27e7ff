"""With ``-o json`` a failed command prints a problem document on standard error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.scripted_server import ScriptedResponse, problem, serve_script
from tests.cli.shell import Ran, Shell
from tests.source_tree import own_errors
from tidegate.cli.exit_codes import FAMILIES, ExitCode, exit_code_of_status
from tidegate.errors import WriterClosed
from tidegate.web.problems import status_of

STANDARD = {"type", "title", "status", "code", "detail"}


def problem_of(ran: Ran) -> dict[str, Any]:
    """The last line on standard error; standard output is empty."""
    assert ran.out == ""
    found: dict[str, Any] = json.loads(ran.err.splitlines()[-1])
    assert found.keys() >= STANDARD
    return found


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_prints_the_problem_as_the_server_sent_it(tmp_path: Path, output: str) -> None:
    sent = problem(409, "version_conflict", instance="req-1", expected=3, current=5)
    with serve_script(lambda request: sent) as server:
        ran = Shell(tmp_path / "home", server.url, "tg_x_y").run("-o", output, "repo", "list")

    assert ran.code == ExitCode.CONFLICT
    assert problem_of(ran) == sent.body
    assert len(ran.err.splitlines()) == 1


def test_prints_a_problem_for_an_invalid_response(tmp_path: Path) -> None:
    sent = ScriptedResponse(502, "<html>bad gateway</html>", {"x-request-id": "req-2"})
    with serve_script(lambda request: sent) as server:
        ran = Shell(tmp_path / "home", server.url, "tg_x_y").run("-o", "json", "repo", "list")

    found = problem_of(ran)
    assert (ran.code, found["status"], found["code"]) == (6, 502, "unavailable")
    assert found["instance"] == "req-2"


def test_prints_a_problem_when_no_server_answers(tmp_path: Path) -> None:
    ran = Shell(tmp_path / "home", "http://127.0.0.1:1", "tg_x_y").run("repo", "list", "-o", "json")

    found = problem_of(ran)
    assert ran.code == ExitCode.UNAVAILABLE
    assert (found["type"], found["code"], found["status"]) == (
        "/problems/unavailable",
        "unavailable",
        503,
    )
    assert "127.0.0.1:1" in found["detail"]


@pytest.mark.parametrize(
    "words",
    [
        ("repo", "list", "--nonsense", "-o", "json"),
        ("-o", "json", "repo", "nonsense"),
        ("--output=json", "nonsense"),
        ("repo", "create", "-ojson"),
    ],
)
def test_prints_a_problem_for_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = Shell(tmp_path / "home").run(*words)

    found = problem_of(ran)
    assert (ran.code, found["status"], found["code"]) == (ExitCode.USAGE, 400, "invalid")
    assert found["next"]


def test_prints_a_problem_for_an_error_of_a_local_command(tmp_path: Path) -> None:
    settings = tmp_path / "tidegate.toml"
    settings.write_text("nonsense = 1\n")

    ran = Shell(tmp_path / "home").run("-o", "json", "serve", "--config", str(settings))

    found = problem_of(ran)
    assert (ran.code, found["code"]) == (ExitCode.USAGE, "invalid_setting")
    assert found["title"]


def test_prints_text_without_the_option(tmp_path: Path) -> None:
    ran = Shell(tmp_path / "home").run("repo", "nonsense")

    assert ran.code == ExitCode.USAGE
    assert ran.err.startswith("✘ ")


def test_ends_every_error_with_the_exit_code_of_its_family() -> None:
    """A script that checks the exit code learns what to do, whatever the HTTP status was."""
    differing = {
        error.code: (exit_code_of_status(status_of(error)), FAMILIES[kind])
        for error in own_errors()
        for kind in error.__mro__
        if kind in FAMILIES
        and kind is not WriterClosed  # the exit code of the server itself
        and FAMILIES[kind] is not exit_code_of_status(status_of(error))
    }

    assert differing == {}


def test_a_request_that_was_too_slow_may_be_sent_again() -> None:
    from tidegate.errors import Unavailable
    from tidegate.web.problems import RequestTooSlow

    assert issubclass(RequestTooSlow, Unavailable)
    assert status_of(RequestTooSlow) == 408
