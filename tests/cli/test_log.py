"""The log with the command line: its end, one event, an export, and the check of the rows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Seat
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Role


def drafts(author: Shell, *packages: str) -> None:
    for package in packages:
        assert author.run("rev", "create", package, "--workspace", "v1").code == 0


def test_shows_the_last_events_and_one_in_full(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    drafts(author, "tail-a", "tail-b")

    last = author.run("log", "tail", "-n", "2", "-o", "jsonl").lines()
    typed = author.run("log", "tail", "-n", "1", "--type", "RevisionCreated", "-o", "jsonl").lines()
    words = author.run("log", "tail", "-n", "1")
    whole = author.run("log", "show", str(typed[0]["position"]))
    nothing = author.run("log", "show", "9000000")

    assert [item["position"] for item in last] == sorted(item["position"] for item in last)
    assert typed[0]["data"]["name"] == "default.tail-b.v1"
    assert "tail-b" in words.out
    assert "default.tail-b.v1" in whole.out
    assert (nothing.code, "try: tidegate log tail" in nothing.err) == (4, True)


def test_follows_the_log_while_others_write(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    drafts(author, "behind")
    with author.start("log", "tail", "-n", "1", "-f", "-o", "jsonl") as following:
        assert following.stdout is not None
        try:
            following.stdout.readline()  # the end of the log has been read: later events are new
            drafts(author, "followed")
            line = json.loads(following.stdout.readline())
        finally:
            following.kill()

    assert "followed" in json.dumps(line["data"])


def test_exports_the_whole_log_or_nothing(seat: Seat, tmp_path: Path) -> None:
    author = seat()
    drafts(author, "exported")
    place = tmp_path / "log.jsonl"

    done = author.run("log", "export", str(place), "-o", "json").json()
    piped = author.run("log", "export")
    refused = author.run("log", "export", str(tmp_path / "missing" / "log.jsonl"))

    positions = [json.loads(line)["position"] for line in place.read_text().splitlines()]
    assert len(positions) == done["events"] > 0
    assert positions == sorted(set(positions))
    assert positions[-1] == done["position"]
    assert piped.out == place.read_text()
    assert refused.code == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".log")] == []


def test_verifies_that_the_rows_equal_the_log(seat: Seat) -> None:
    verified = seat(Role.AUDITOR).run("log", "verify")

    assert (verified.code, "every row is what the log says" in verified.out) == (0, True)
