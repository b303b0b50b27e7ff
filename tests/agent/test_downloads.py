"""An interrupted download resumes where it ended, and the whole file is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.agent.single_host import ContentSource, closure_of
from tidegate.agent import identity
from tidegate.agent.client import AgentClient
from tidegate.agent.content import PIECE_BYTES, provide
from tidegate.agent.errors import ContentMismatch, ServerAway
from tidegate.clock import system_clock
from tidegate.domain.hosts.protocol import SessionAnswer

BIG = bytes(range(256)) * 4_096
FILES = {"big.bin": BIG, "small.txt": b"small"}
CLOSURE = closure_of(FILES)
CUT = 300_000


class Breaking(ContentSource):
    """Sends some bytes of each file, then fails; repeats this as often as the test sets."""

    def __init__(self, *cuts: int) -> None:
        super().__init__(new=FILES)
        self.cuts = list(cuts)

    def file(
        self,
        content: str,
        hashed: str,
        bytes_max: int,
        write: Callable[[bytes], object],
        start: int = 0,
    ) -> None:
        if not self.cuts:
            super().file(content, hashed, bytes_max, write, start)
            return
        self.starts.append(start)
        write(self.body(content, hashed)[start : start + self.cuts.pop(0)])
        raise ServerAway("cut off")


def incoming(place: Path) -> Path:
    (found,) = place.iterdir()
    return found


def test_resumes_with_the_missing_bytes_only(tmp_path: Path) -> None:
    source = Breaking(CUT, 0, 1_000)
    for _ in range(3):
        with pytest.raises(ServerAway):
            provide(CLOSURE, "/new", tmp_path, source)

    found = provide(CLOSURE, "/new", tmp_path, source)

    assert (found / "big.bin").read_bytes() == BIG
    assert source.starts == [0, CUT, CUT, CUT + 1_000, 0]


def test_resumes_a_download_after_the_agent_was_killed(tmp_path: Path) -> None:
    with pytest.raises(ServerAway):
        provide(CLOSURE, "/new", tmp_path, Breaking(CUT))

    source = ContentSource(new=FILES)
    provide(CLOSURE, "/new", tmp_path, source)

    assert source.starts == [CUT, 0]


@pytest.mark.parametrize("damage", [b"x", bytes(CUT), BIG + b"more", BIG[:-1] + b"x"], ids=len)
def test_fetches_everything_again_if_the_partial_file_has_other_bytes(
    tmp_path: Path, damage: bytes
) -> None:
    with pytest.raises(ServerAway):
        provide(CLOSURE, "/new", tmp_path, Breaking(CUT))
    (incoming(tmp_path) / "big.bin").write_bytes(damage)

    found = provide(CLOSURE, "/new", tmp_path, ContentSource(new=FILES))

    assert (found / "big.bin").read_bytes() == BIG


def test_leaves_nothing_of_a_file_with_the_wrong_digest(tmp_path: Path) -> None:
    class Lying(ContentSource):
        def body(self, content: str, hashed: str) -> bytes:
            return b"x" * len(super().body(content, hashed))

    with pytest.raises(ContentMismatch):
        provide(CLOSURE, "/new", tmp_path, Lying(new=FILES))

    assert not (incoming(tmp_path) / "big.bin").exists()


def test_writes_through_no_link_in_the_place_of_a_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("of somebody else")
    place = tmp_path / "place"
    with pytest.raises(ServerAway):
        provide(CLOSURE, "/new", place, Breaking(CUT))
    (incoming(place) / "big.bin").unlink()
    (incoming(place) / "big.bin").symlink_to(outside)

    found = provide(CLOSURE, "/new", place, ContentSource(new=FILES))

    assert outside.read_text() == "of somebody else"
    assert (found / "big.bin").read_bytes() == BIG
    assert not (found / "big.bin").is_symlink()


# ── on the wire ───────────────────────────────────────────────────────────────────────────────────


class Ranged(BaseHTTPRequestHandler):
    """Serves BIG correctly, without ranges, with another range than asked for, or cut off."""

    how: str
    wanted: list[str | None]

    def do_GET(self) -> None:
        wanted = self.headers.get("range")
        self.wanted.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if self.how == "whole":
            start, wanted = 0, None
        shift = 1 if self.how == "shifted" else 0
        body = BIG[start:]
        self.send_response(206 if wanted else 200)
        if wanted:
            said = f"bytes {start + shift}-{len(BIG) - 1}/{len(BIG)}"
            self.send_header("content-range", said)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:CUT] if self.how == "cut" else body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(how: str) -> Iterator[tuple[str, list[str | None]]]:
    asked: list[str | None] = []
    handler = type("Handler", (Ranged,), {"how": how, "wanted": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def client_of(url: str, tmp_path: Path) -> AgentClient:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    client = AgentClient(url, identity.load_or_create_key(state), system_clock, "web-1")
    now = system_clock()
    client._session = SessionAnswer("s", "00" * 32, now + timedelta(hours=1), now)
    return client


@pytest.mark.parametrize("how", ["honest", "whole"])
@pytest.mark.parametrize("start", [0, 1, PIECE_BYTES, CUT, len(BIG) - 1])
def test_resumes_also_with_a_server_that_ignores_ranges(
    tmp_path: Path, how: str, start: int
) -> None:
    found = bytearray()
    with serve(how) as (url, asked):
        client_of(url, tmp_path).file("/r", "ab" * 32, len(BIG), found.extend, start)

    assert bytes(found) == BIG[start:]
    assert asked == [f"bytes={start}-" if start else None]


def test_refuses_another_range_than_it_asked_for(tmp_path: Path) -> None:
    found = bytearray()
    with serve("shifted") as (url, _), pytest.raises(ServerAway):
        client_of(url, tmp_path).file("/r", "ab" * 32, len(BIG), found.extend, CUT)

    assert not found


def test_keeps_the_bytes_from_before_a_broken_connection(tmp_path: Path) -> None:
    found = bytearray()
    with serve("cut") as (url, _), pytest.raises(ServerAway):
        client_of(url, tmp_path).file("/r", "ab" * 32, len(BIG), found.extend)

    assert bytes(found) == BIG[:CUT]


def test_reads_no_more_bytes_than_the_file_has(tmp_path: Path) -> None:
    with serve("honest") as (url, _), pytest.raises(ContentMismatch):
        client_of(url, tmp_path).file("/r", "ab" * 32, CUT + 10, bytearray().extend, CUT)
