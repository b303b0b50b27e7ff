"""How the client handles responses: repeats, keys, versions, problems, and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.scripted_server import (
    RecordedRequest,
    ScriptedResponse,
    in_turn,
    problem,
    serve_script,
)
from tests.cli.shell import Shell
from tests.servers.process import free_port

CREATED = ScriptedResponse(
    201, {"name": "x", "quorum": 1}, {"tidegate-position": "7", "etag": '"7"'}
)

SPEC = {"lifecycle": "Draft", "revision": 0, "tasks": [], "readinessGates": []}


def shell(tmp_path: Path, url: str) -> Shell:
    return Shell(tmp_path / "home", url, "tg_abc_def")


def test_repeats_a_write_with_the_same_key_until_the_server_is_there(tmp_path: Path) -> None:
    away = problem(503, "store_unavailable")
    with serve_script(in_turn(away, ScriptedResponse(0), CREATED)) as server:
        done = shell(tmp_path, server.url).run("repo", "create", "x")

    keys = [asked.headers["idempotency-key"] for asked in server.asked]
    assert done.code == 0, done.err
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len({asked.body for asked in server.asked}) == 1


def test_mints_a_new_key_for_every_write(tmp_path: Path) -> None:
    with serve_script(in_turn(CREATED)) as server:
        home = shell(tmp_path, server.url)
        home.run("repo", "create", "x")
        home.run("repo", "create", "x")

    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 2


def test_does_not_repeat_a_refused_write(tmp_path: Path) -> None:
    with serve_script(in_turn(problem(422, "refused"), CREATED)) as server:
        refused = shell(tmp_path, server.url).run("repo", "create", "x")

    assert refused.code == 1
    assert len(server.asked) == 1


def test_sends_the_current_version_back_unchanged(tmp_path: Path) -> None:
    stands = ScriptedResponse(200, {"name": "x"}, {"etag": '"41-7"'})
    with serve_script(in_turn(stands, CREATED)) as server:
        shell(tmp_path, server.url).run("repo", "edit", "x", "--approvals", "1")

    read, written = server.asked
    assert (read.method, "if-match" in read.headers) == ("GET", False)
    assert (written.method, written.headers["if-match"]) == ("PATCH", '"41-7"')


def test_sends_the_version_that_was_given_and_reads_nothing(tmp_path: Path) -> None:
    with serve_script(in_turn(CREATED)) as server:
        shell(tmp_path, server.url).run("repo", "edit", "x", "--approvals", "1", "--version", "3")

    assert [asked.headers["if-match"] for asked in server.asked] == ['"3"']


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "try_next"),
    [
        (400, "invalid_input", 2, "tidegate channel show --help"),
        (401, "unauthenticated", 5, "tidegate login"),
        (403, "missing_permission", 5, "tidegate whoami"),
        (404, "channel_not_found", 4, "tidegate channel list"),
        (409, "version_conflict", 3, "tidegate channel show stable"),
        (410, "gone", 4, "tidegate channel list"),
        (413, "limit_exceeded", 1, "tidegate channel show --help"),
        (422, "refused", 1, "tidegate channel show stable"),
        (428, "version_required", 2, "tidegate channel show stable --version …"),
        (500, "internal_error", 6, "tidegate doctor"),
    ],
)
def test_ends_each_problem_with_its_code_and_the_next_command(
    tmp_path: Path, status: int, code: str, exit_code: int, try_next: str
) -> None:
    with serve_script(in_turn(problem(status, code))) as server:
        ended = shell(tmp_path, server.url).run("channel", "show", "stable")

    first, *rest = ended.err.splitlines()
    assert ended.code == exit_code
    assert ended.out == ""
    assert first == f"✘ because of {code} [{code}]"
    assert f"  try: {try_next}" in rest


def test_names_every_field_that_is_wrong(tmp_path: Path) -> None:
    faults = [{"field": "body.name", "detail": "is missing"}, {"field": "body.x", "detail": "no"}]
    with serve_script(in_turn(problem(400, "invalid_request", errors=faults))) as server:
        refused = shell(tmp_path, server.url).run("repo", "create", "x")

    assert refused.code == 2
    assert "  NAME is missing\n  x no\n" in refused.err


def test_shows_both_versions_of_a_conflict(tmp_path: Path) -> None:
    stale = problem(409, "version_conflict", expected=3, current=9)
    with serve_script(in_turn(stale)) as server:
        refused = shell(tmp_path, server.url).run(
            "repo", "edit", "x", "--approvals", "1", "--version", "3"
        )

    assert "you saw version 3, it is at 9" in refused.err


def test_asks_to_check_the_url_if_no_server_answers(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    away = shell(tmp_path, url).run("whoami")

    line, *more = away.err.splitlines()
    assert (away.code, line.startswith(f"✘ no answer from {url}: ")) == (6, True)
    assert more == [
        "  Check the URL, and that the server runs. Another URL: --url or TIDEGATE_URL.",
        "  A new server on this machine starts with: tidegate serve --data DIR",
        "  try: tidegate login --url …",
    ]


def test_detects_a_server_that_is_not_tidegate(tmp_path: Path) -> None:
    with serve_script(in_turn(ScriptedResponse(200, b"<html>hello</html>"))) as server:
        other = shell(tmp_path, server.url).run("whoami")

    assert (other.code, "not JSON" in other.err) == (6, True)


def test_follows_the_cursor_to_the_last_page(tmp_path: Path) -> None:
    def script(asked: RecordedRequest) -> ScriptedResponse:
        if "next=" in asked.path:
            return ScriptedResponse(200, {"items": [{"name": "b"}], "next": None})
        return ScriptedResponse(200, {"items": [{"name": "a"}], "next": "c u/r"})

    with serve_script(script) as server:
        listed = shell(tmp_path, server.url).run("repo", "list", "-o", "json").json()

    assert [item["name"] for item in listed] == ["a", "b"]
    assert "next=c+u%2Fr" in server.asked[1].path


def test_polls_with_the_etag_of_the_last_response(tmp_path: Path) -> None:
    draft = {"metadata": {"name": "default.web.v1", "resourceVersion": "1"}, "spec": SPEC}
    known = ScriptedResponse(200, {**draft, "status": {}}, {"etag": '"1"'})
    changed = ScriptedResponse(200, {**draft, "status": {"createdBy": "bob"}}, {"etag": '"2"'})

    def script(asked: RecordedRequest) -> ScriptedResponse:
        seen = asked.headers.get("if-none-match")
        if seen is None:
            return known
        return ScriptedResponse(304, b"", {"etag": '"1"'}) if len(server.asked) < 4 else changed

    with serve_script(script) as server:
        home = shell(tmp_path, server.url)
        with home.start("rev", "show", "web.v1", "--watch", "-o", "jsonl") as watching:
            assert watching.stdout is not None
            try:
                lines = [watching.stdout.readline() for _ in range(2)]
            finally:
                watching.kill()

    assert "bob" not in lines[0]
    assert "bob" in lines[1]
    tags = [asked.headers.get("if-none-match") for asked in server.asked[:4]]
    assert tags == [None, '"1"', '"1"', '"1"']


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "http://", "http://a/b?c"])
def test_refuses_an_invalid_server_address(tmp_path: Path, url: str) -> None:
    refused = Shell(tmp_path / "home").run("whoami", "--url", url)

    assert (refused.code, "try: tidegate" in refused.err) == (2, True)


def test_follows_no_redirect_with_its_token(tmp_path: Path) -> None:
    with serve_script(in_turn(ScriptedResponse(200, {"items": []}))) as elsewhere:
        moved = ScriptedResponse(302, {}, {"location": f"{elsewhere.url}/v1/repositories"})
        with serve_script(in_turn(moved)) as server:
            ended = shell(tmp_path, server.url).run("repo", "list")

    assert (ended.code, "sends us to" in ended.err) == (6, True)
    assert elsewhere.asked == []


def test_removes_control_characters_from_responses(tmp_path: Path) -> None:
    item = {"name": "evil\x1b[2J\r\nnext", "quorum": 1, "deployment": False}
    with serve_script(in_turn(ScriptedResponse(200, {"items": [item], "next": None}))) as server:
        listed = shell(tmp_path, server.url).run("repo", "list")
        failed = shell(tmp_path, server.url).on_terminal("repo", "list")

    assert "\x1b" not in listed.out
    assert len(listed.out.splitlines()) == 2
    assert "\x1b[2J" not in failed.out
    assert "evil\\x1b[2J" in failed.out
