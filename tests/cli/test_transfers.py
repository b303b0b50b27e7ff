"""Large files with the command line: sent raw, received in pieces, resumed after a break."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.conftest import Seat
from tidegate.cli import client as cli_client
from tidegate.cli.client import ApiClient
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.profile import Profile
from tidegate.domain.access.roles import Role

BIG = random.Random(5).randbytes(1_500_000)
ETAG = '"one"'


def test_pushes_and_pulls_a_large_file(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "big.bin").write_bytes(BIG)
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "bin").mkdir()
    (tree / "bin" / "start").symlink_to("../run")
    for number in range(80):  # more than one request takes with their bytes
        (tree / f"{number}.bin").write_bytes(os.urandom(60_000))

    created = author.run("rev", "create", "big", "--workspace", "v1", "--from", str(tree))
    pulled = author.run("rev", "pull", "big.v1", str(tmp_path / "again"), "--quiet")
    (tree / "big.bin").write_bytes(BIG[::-1])
    pushed = author.run("rev", "push", "big.v1", str(tree))

    assert (created.code, pulled.code, pushed.code) == (0, 0, 0), (created, pulled, pushed)
    assert "pulling" not in pulled.err, "no progress bar without a terminal"
    again = tmp_path / "again"
    assert (again / "big.bin").read_bytes() == BIG
    assert (again / "79.bin").read_bytes() == (tree / "79.bin").read_bytes()
    assert (again / "run").stat().st_mode & 0o100
    listed = author.run("rev", "files", "big.v1", "-o", "json").json()
    assert len(listed) == 83
    assert (again / "bin" / "start").readlink() == Path("../run")
    assert "link" in author.run("rev", "files", "big.v1").out


def test_names_the_setting_that_a_file_exceeds(seat: Seat, tmp_path: Path) -> None:
    author = seat(Role.AUTHOR)
    (tmp_path / "tree").mkdir()
    with (tmp_path / "tree" / "image").open("wb") as file:
        file.truncate(33 * 1024 * 1024)

    refused = author.run(
        "rev", "create", "image", "--workspace", "v1", "--from", str(tmp_path / "tree")
    )

    assert refused.code == ExitCode.REFUSED, refused
    assert "raise the setting file_bytes_max" in refused.err


# ── interrupted downloads ─────────────────────────────────────────────────────────────────────────


class Breaking(BaseHTTPRequestHandler):
    """Sends 100,000 bytes at a time, then breaks the connection."""

    etags: list[str]
    asked: list[str | None]
    piece = 600_000

    def do_GET(self) -> None:
        wanted = self.headers.get("range")
        self.asked.append(wanted)
        etag = self.etags.pop(0) if len(self.etags) > 1 else self.etags[0]
        is_part = wanted is not None and self.headers.get("if-range") == etag
        start = int(wanted.removeprefix("bytes=")[:-1]) if wanted and is_part else 0
        self.send_response(206 if is_part else 200)
        self.send_header("etag", etag)
        self.send_header("content-length", str(len(BIG) - start))
        self.end_headers()
        self.wfile.write(BIG[start : start + self.piece])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(*etags: str, piece: int = 600_000) -> Iterator[tuple[ApiClient, list[str | None]]]:
    asked: list[str | None] = []
    members = {"etags": list(etags), "asked": asked, "piece": piece}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Breaking,), members))
    Thread(target=server.serve_forever, daemon=True).start()
    client = ApiClient(Profile(f"http://127.0.0.1:{server.server_port}", None))
    try:
        yield client, asked
    finally:
        client.close()
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_client, "_pause", lambda *_: 0.0)


def test_resumes_after_a_broken_connection() -> None:
    seen: list[int] = []
    with serve(ETAG) as (client, asked):
        reader = client.download("/v1/archive")
        reader.progress = seen.append
        found = b"".join(iter(lambda: reader.read(1 << 20), b""))

    assert found == BIG
    assert asked == [None, "bytes=600000-", "bytes=1200000-"]
    assert sum(seen) == len(BIG)


def test_ends_if_the_body_has_changed() -> None:
    with serve(ETAG, '"two"') as (client, _):
        reader = client.download("/v1/archive")
        with pytest.raises(CommandExit) as stopped:
            list(iter(lambda: reader.read(1 << 20), b""))

    assert "changed while it was read" in stopped.value.detail


def test_gives_up_if_no_more_bytes_arrive() -> None:
    with serve(ETAG, piece=0) as (client, asked):
        reader = client.download("/v1/archive")
        with pytest.raises(CommandExit) as stopped:
            reader.read(1 << 20)

    assert stopped.value.code is ExitCode.UNAVAILABLE
    assert len(asked) == cli_client.ATTEMPTS_MAX
