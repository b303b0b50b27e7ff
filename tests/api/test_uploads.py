"""Uploads of files: raw, in chunks, compared while they arrive, and owned by their sender."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.serving import Served, serving
from tidegate.domain.access.roles import Grant, Role

BODY = bytes(range(256)) * 3_000
HASH = sha256(BODY).hexdigest()


@pytest.fixture(scope="module")
def people(shared: Served) -> People:
    return People(shared)


def put(
    who: httpx2.Client, body: Any = BODY, hashed: str = HASH, repository: str = "default"
) -> httpx2.Response:
    return who.put(
        f"/v1/repositories/{repository}/uploads/{hashed}",
        content=body,
        headers={"content-type": "application/octet-stream"},
    )


def push(people: People, name: str, *files: dict[str, Any]) -> httpx2.Response:
    return people.author.put(
        f"/v1/revisions/{name}/resources", json={"files": files}, headers=people.seen(name)
    )


def incoming(served: Served) -> list[Path]:
    """The files in temporary storage."""
    return [*Path(served.installation.settings.data, "blobs", "incoming").iterdir()]


def test_stores_raw_bytes_that_a_revision_names_later(people: People) -> None:
    people.draft()

    stored = put(people.author)
    pushed = push(
        people, NAME, {"path": "bin/app", "upload": stored.json()["upload"], "executable": True}
    )

    assert (stored.status_code, pushed.status_code) == (201, 200), stored.text + pushed.text
    assert (stored.json()["sha256"], stored.json()["bytes"]) == (HASH, len(BODY))
    (listed,) = people.viewer.get(f"/v1/revisions/{NAME}/resources").json()["files"]
    assert listed == {"path": "bin/app", "sha256": HASH, "bytes": len(BODY), "executable": True}
    assert people.viewer.get(f"/v1/revisions/{NAME}/resources/bin/app").content == BODY
    assert incoming(people.served) == []


def test_accepts_a_body_without_a_length(people: People) -> None:
    def pieces() -> Iterator[bytes]:
        for start in range(0, len(BODY), 10_000):
            yield BODY[start : start + 10_000]

    assert put(people.author, pieces()).json()["bytes"] == len(BODY)
    assert put(people.author, b"", sha256(b"").hexdigest()).json()["bytes"] == 0


def test_a_draft_accepts_uploads_as_its_first_files(people: People) -> None:
    stored = put(people.author).json()

    drafted = people.draft(
        "v7", files=[{"path": "app", "upload": stored["upload"], "bytes": len(BODY)}]
    )

    assert drafted.json()["status"]["content"]["total_bytes"] == len(BODY)


def test_stores_nothing_that_differs_from_the_announced_hash(people: People) -> None:
    other = put(people.author, BODY + b"x")

    assert (other.status_code, other.json()["code"]) == (400, "upload_mismatch")
    assert HASH in other.json()["detail"]
    assert incoming(people.served) == []
    assert not people.served.installation.blobs.exists(f"sha256:{sha256(BODY + b'x').hexdigest()}")


def test_a_receipt_is_valid_for_its_user_and_repository_only(people: People) -> None:
    served = people.served
    people.draft("v2")
    name = "default.web.v2"
    receipt = put(people.author).json()["upload"]
    another = served.client(served.token(served.user(Grant(Role.AUTHOR))))
    text, _, mac = receipt.rpartition(".")
    forged = [
        put(another).json()["upload"],
        f"{text}.{'0' * len(mac)}",
        receipt.replace(HASH, "0" * 64),
        "nothing",
        "a.b.c.ü",
    ]

    refused = [push(people, name, {"path": "a", "upload": item}) for item in forged]

    assert {answer.json()["code"] for answer in refused} == {"upload_unknown"}
    assert {answer.status_code for answer in refused} == {422}
    assert "uploads" in refused[0].json()["detail"]
    assert push(people, name, {"path": "a", "upload": receipt}).status_code == 200


def test_names_a_file_that_has_an_upload_and_other_bytes(people: People) -> None:
    people.draft("v3")
    receipt = put(people.author).json()["upload"]

    both = push(people, "default.web.v3", {"path": "a", "upload": receipt, "text": "x"})
    other = push(people, "default.web.v3", {"path": "a", "upload": receipt, "sha256": "0" * 64})

    assert (both.status_code, both.json()["code"]) == (400, "invalid_request")
    assert (other.status_code, other.json()["code"]) == (400, "upload_mismatch")


@pytest.mark.parametrize(
    ("role", "repository", "hashed", "status"),
    [
        (Role.VIEWER, "default", HASH, 403),
        (Role.APPROVER, "default", HASH, 403),
        (Role.AUTHOR, "nowhere", HASH, 404),
        (Role.AUTHOR, "default", "xyz", 400),
    ],
)
def test_checks_the_user_and_the_repository_before_it_reads_a_byte(
    people: People, role: Role, repository: str, hashed: str, status: int
) -> None:
    answer = put(people.served.as_role(role), BODY, hashed, repository)

    assert answer.status_code == status, answer.text
    assert incoming(people.served) == []


def test_accepts_only_raw_bytes(people: People) -> None:
    answer = people.author.put(f"/v1/repositories/default/uploads/{HASH}", json={"a": 1})

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_cleans_up_after_a_client_that_disconnects(people: People) -> None:
    served = people.served
    token = people.author.headers["authorization"]
    host, port = served.url.removeprefix("http://").split(":")
    head = (
        f"PUT /v1/repositories/default/uploads/{HASH} HTTP/1.1\r\nhost: {host}:{port}\r\n"
        f"authorization: {token}\r\ncontent-type: application/octet-stream\r\n"
        f"content-length: {len(BODY)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + BODY[: len(BODY) // 2])
        until(lambda: bool(incoming(served)))

    until(lambda: not incoming(served))


def until(is_so: Any) -> None:
    """Wait for a condition."""
    for _ in range(500):
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError("the condition did not become true")


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """People at a server with low limits."""
    data = tmp_path_factory.mktemp("narrow") / "data"
    limits: dict[str, Any] = {
        "file_bytes_max": 1_000,
        "revision_bytes_max": 1_500,
        "revision_files_max": 3,
        "references_bytes_max": 2_000,
    }
    with serving(data, **limits) as served:
        people = People(served)
        people.draft()
        yield people


def text(path: str, size: int) -> dict[str, Any]:
    return {"path": path, "text": "x" * size}


def reference(path: str, size: int) -> dict[str, Any]:
    return {"path": path, "uri": "https://cdn.example/a", "sha256": HASH, "bytes": size}


@pytest.mark.parametrize(
    ("files", "setting"),
    [
        ([text("a", 1_001)], "file_bytes_max"),
        ([text("a", 800), text("b", 701)], "revision_bytes_max"),
        ([text(name, 1) for name in "abcd"], "revision_files_max"),
        ([reference("a", 1_500), reference("b", 501)], "references_bytes_max"),
    ],
)
def test_names_the_limit_and_the_setting_that_raises_it(
    narrow: People, files: list[dict[str, Any]], setting: str
) -> None:
    refused = push(narrow, NAME, *files)

    allowed = getattr(narrow.served.installation.settings, setting)
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (413, "too_large")
    assert (problem["setting"], problem["allowed"]) == (setting, allowed)
    assert f"raise the setting {setting}" in problem["detail"]


def test_counts_references_separately_from_stored_bytes(narrow: People) -> None:
    taken = push(narrow, NAME, text("a", 1_000), text("b", 500), reference("c", 2_000))

    assert taken.status_code == 200, taken.text


@pytest.mark.parametrize("is_announced", [True, False])
def test_refuses_an_upload_that_is_too_long(narrow: People, is_announced: bool) -> None:
    body = b"x" * 1_001
    sent = body if is_announced else iter([body[:600], body[600:]])

    refused = put(narrow.author, sent, sha256(body).hexdigest())

    assert (refused.status_code, refused.json()["setting"]) == (413, "file_bytes_max")
    assert incoming(narrow.served) == []
