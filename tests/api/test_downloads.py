"""Downloads of files and archives: streamed, whole or in ranges, never truncated unnoticed."""

from __future__ import annotations

import base64
import io
import random
import tarfile
from hashlib import sha256

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.served_fleet import ServedFleet
from tests.api.serving import Served
from tests.api.test_damaged_content import blob_path
from tidegate.control.storage.blobs import CHUNK_BYTES
from tidegate.web.downloads import ByteRange, select_range
from tidegate.web.problems import RangeNotSatisfiable

BODY = random.Random(11).randbytes(3 * CHUNK_BYTES + 17)
HASH = sha256(BODY).hexdigest()
TAG = f'"{HASH}"'
SIZE = len(BODY)
FILE = f"/v1/revisions/{NAME}/resources/data.bin"
ARCHIVE = f"/v1/revisions/{NAME}/archive"


# ── ranges ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        (None, None),
        (b"bytes=0-", ByteRange(0, 10)),
        (b"bytes=4-6", ByteRange(4, 7)),
        (b"bytes=9-9", ByteRange(9, 10)),
        (b"bytes=4-99999", ByteRange(4, 10)),
        (b"bytes=-3", ByteRange(7, 10)),
        (b"bytes=-99", ByteRange(0, 10)),
        (b"Bytes = 4-6 ", ByteRange(4, 7)),
        (b"bytes=6-4", None),
        (b"bytes=-", None),
        (b"bytes=0-1,4-5", None),
        (b"lines=1-2", None),
        (b"bytes=a-b", None),
        (b"bytes=" + b"9" * 40 + b"-", None),
    ],
)
def test_reads_one_range_and_ignores_what_it_does_not_know(
    wanted: bytes | None, part: ByteRange | None
) -> None:
    assert select_range(wanted, None, 10, TAG) == part


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        (b"bytes=10-", 10),
        (b"bytes=10-12", 10),
        (b"bytes=-0", 10),
        (b"bytes=0-", 0),
        (b"bytes=-1", 0),
    ],
)
def test_refuses_ranges_past_the_end(wanted: bytes, size: int) -> None:
    with pytest.raises(RangeNotSatisfiable):
        select_range(wanted, None, size, TAG)


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        (TAG.encode(), True),
        (b'"other"', False),
        (b"W/" + TAG.encode(), False),
        (b"Wed, 18 Nov 2026 08:00:00 GMT", False),
    ],
)
def test_serves_a_range_only_of_the_body_that_the_client_knows(
    condition: bytes, matches: bool
) -> None:
    part = select_range(b"bytes=4-", condition, 10, TAG)

    assert (part is not None) is matches


# ── over HTTP ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def people(shared: Served) -> People:
    return with_files(shared)


def with_files(served: Served) -> People:
    people = People(served)
    sent = [
        {"path": "data.bin", "base64": base64.b64encode(BODY).decode()},
        {"path": "empty", "text": ""},
        {"path": "run", "text": "#!/bin/sh\n", "executable": True},
        {"path": "start", "link": "run"},
    ]
    people.draft(files=sent)
    return people


def get(people: People, path: str = FILE, method: str = "GET", **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return people.viewer.request(method, path, headers=named)


def test_sends_a_file_with_its_length_and_a_strong_etag(people: People) -> None:
    whole = get(people)

    assert (whole.status_code, whole.content) == (200, BODY)
    assert whole.headers["content-length"] == str(SIZE)
    assert whole.headers["etag"] == TAG
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["tidegate-sha256"] == HASH
    assert get(people, FILE.replace("data.bin", "empty")).content == b""


def test_answers_head_with_all_headers_and_no_bytes(people: People) -> None:
    head = get(people, method="HEAD", range="bytes=4-6")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(SIZE)
    assert head.headers["etag"] == TAG


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        (f"bytes={CHUNK_BYTES - 1}-{CHUNK_BYTES}", CHUNK_BYTES - 1, CHUNK_BYTES + 1),
        (f"bytes={CHUNK_BYTES + 3}-", CHUNK_BYTES + 3, SIZE),
        ("bytes=-20", SIZE - 20, SIZE),
    ],
)
def test_sends_the_requested_range(people: People, wanted: str, start: int, stop: int) -> None:
    part = get(people, range=wanted)

    assert (part.status_code, part.content) == (206, BODY[start:stop])
    assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{SIZE}"
    assert part.headers["content-length"] == str(stop - start)
    assert part.headers["etag"] == TAG


def test_refuses_a_range_past_the_end_and_returns_the_length(people: People) -> None:
    past = get(people, range=f"bytes={SIZE}-")

    assert (past.status_code, past.json()["code"]) == (416, "range_not_satisfiable")
    assert past.headers["content-range"] == f"bytes */{SIZE}"
    assert str(SIZE) in past.json()["detail"]


def test_sends_everything_if_the_client_knows_another_body(people: People) -> None:
    same = get(people, range="bytes=5-", if_range=TAG)
    other = get(people, range="bytes=5-", if_range='"another"')

    assert (same.status_code, same.content) == (206, BODY[5:])
    assert (other.status_code, other.content) == (200, BODY)
    assert "content-range" not in other.headers


def test_sends_nothing_if_the_client_has_the_file(people: People) -> None:
    known = get(people, if_none_match=TAG, range="bytes=5-")

    assert (known.status_code, known.content) == (304, b"")
    assert known.headers["etag"] == TAG


def test_sends_an_archive_in_ranges_that_fit_together(people: People) -> None:
    whole = get(people, ARCHIVE)
    size = int(whole.headers["content-length"])
    cut = size // 2

    first = get(people, ARCHIVE, range=f"bytes=0-{cut - 1}")
    second = get(people, ARCHIVE, range=f"bytes={cut}-", if_range=whole.headers["etag"])
    headers = get(people, ARCHIVE, range="bytes=-10300")

    assert len(whole.content) == size
    assert (first.status_code, second.status_code) == (206, 206)
    assert first.content + second.content == whole.content
    assert headers.content == whole.content[-10_300:]
    with tarfile.open(fileobj=io.BytesIO(whole.content)) as tar:
        assert {entry.name: entry.mode for entry in tar if entry.isreg()} == {
            "data.bin": 0o644,
            "empty": 0o644,
            "run": 0o755,
        }
        assert tar.getmember("start").linkname == "run"
        found = tar.extractfile("data.bin")
        assert found is not None
        assert found.read() == BODY


def test_reports_lost_bytes_before_it_sends_a_head(served: Served) -> None:
    people = with_files(served)
    blob_path(people.served, HASH).unlink()

    answers = [get(people), get(people, range="bytes=4-"), get(people, method="HEAD")]

    assert [answer.status_code for answer in answers] == [404, 404, 404]
    assert answers[0].json()["code"] == "blob_missing"


def test_stops_sending_bytes_that_do_not_match_the_hash(served: Served) -> None:
    people = with_files(served)
    path = blob_path(people.served, HASH)
    path.write_bytes(BODY[:-1] + bytes([BODY[-1] ^ 1]))

    with pytest.raises(httpx2.RemoteProtocolError):
        get(people)
    with pytest.raises(httpx2.RemoteProtocolError):
        get(people, ARCHIVE)


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_gets_the_rest_of_a_file(fleet: ServedFleet) -> None:
    fleet.create()
    source = fleet.viewer.get("/v1/revisions?lifecycle=Published").json()["items"][0]
    fleet.draft("v9", tasks=[{"type": "edit", "source": source["metadata"]["name"]}])
    fleet.push("default.web.v9", index_html="a page")
    number = fleet.publish("default.web.v9").json()["spec"]["revision"]
    agent = fleet.agents["web-01"]
    path = f"/v1/agent/releases/web.{number}"
    (listed,) = agent.send("GET", path).json()["files"]
    blob = f"{path}/blobs/{listed['sha256']}"

    whole = agent.send("GET", blob)
    rest = agent.send("GET", blob, headers={"range": "bytes=1-"})

    assert sha256(whole.content).hexdigest() == listed["sha256"]
    assert (rest.status_code, rest.content) == (206, whole.content[1:])
    assert "immutable" in whole.headers["cache-control"]
