"""Files by reference over HTTP: added, shown, compared, listed for hosts, and never stored here."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.served_fleet import ServedFleet
from tests.api.serving import Served, serving
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.content.entries import CONTENT_BYTES_MAX

BODY = b"\0" * 5
HASH = sha256(BODY).hexdigest()
URI = "https://cdn.example/app-1.bin"
REFERENCE: dict[str, Any] = {"path": "bin/app", "uri": URI, "sha256": HASH, "bytes": 5}
TEXT: dict[str, Any] = {"path": "app.conf", "text": "a=1\n"}


@pytest.fixture
def people(served: Served) -> People:
    return People(served)


def put(people: People, *files: dict[str, Any], name: str = NAME) -> httpx2.Response:
    return people.author.put(
        f"/v1/revisions/{name}/resources", json={"files": files}, headers=people.seen(name)
    )


def test_accepts_references_together_with_files(people: People) -> None:
    people.draft()

    answer = put(people, TEXT, REFERENCE)

    assert answer.status_code == 200, answer.text
    content = answer.json()["status"]["content"]
    assert (content["file_count"], content["total_bytes"], content["references"]) == (2, 9, 1)
    listed = people.viewer.get(f"/v1/revisions/{NAME}/resources").json()["files"]
    assert listed == [
        {"path": "app.conf", "sha256": sha256(b"a=1\n").hexdigest(), "bytes": 4},
        REFERENCE,
    ]


def test_a_reference_and_a_stored_file_have_the_same_digest(people: People) -> None:
    people.draft()
    before = put(people, TEXT, REFERENCE).json()["status"]["content"]

    kept = put(people, TEXT, {"path": "bin/app", "text": BODY.decode(), "sha256": HASH, "bytes": 5})

    after = kept.json()["status"]["content"]
    assert after["digest"] == before["digest"]
    assert after["manifest"] != before["manifest"]
    assert "references" not in after


def test_accepts_references_in_a_draft_and_in_an_update(people: People) -> None:
    people.draft(files=[REFERENCE])

    changed = people.author.patch(
        f"/v1/revisions/{NAME}", json={"files": [TEXT, REFERENCE]}, headers=people.seen(NAME)
    )

    assert changed.status_code == 200, changed.text
    assert changed.json()["status"]["content"]["references"] == 1


def test_lists_where_the_bytes_are_and_archives_none(people: People) -> None:
    people.draft()
    put(people, TEXT, REFERENCE)

    missing = people.viewer.get(f"/v1/revisions/{NAME}/resources/bin/app")
    archive = people.viewer.get(f"/v1/revisions/{NAME}/archive")

    problem = missing.json()
    assert (missing.status_code, problem["code"]) == (404, "file_by_reference")
    assert (problem["uri"], problem["sha256"], problem["bytes"]) == (URI, HASH, 5)
    assert archive.headers["tidegate-references"] == "1"
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as tar:
        assert tar.getnames() == ["app.conf"]


def test_a_hash_does_not_give_access_to_the_bytes_of_others(people: People) -> None:
    people.draft("v1", files=[{"path": "secret", "text": "of ours"}])
    hashed = sha256(b"of ours").hexdigest()
    people.draft("v2", files=[REFERENCE | {"sha256": hashed, "bytes": 7}])
    name = "default.web.v2"

    answers = [
        people.viewer.get(f"/v1/revisions/{name}/{path}")
        for path in ("resources/bin/app", "archive", "diff", f"diff?against={NAME}")
    ]

    assert answers[0].status_code == 404
    assert all(b"of ours" not in answer.content for answer in answers[:3])
    change = next(c for c in answers[3].json()["changes"] if c["path"] == "bin/app")
    assert change["patch"] is None


def test_compares_addresses_instead_of_lines(people: People) -> None:
    people.draft()
    put(people, TEXT, REFERENCE)
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    moved = REFERENCE | {"uri": "https://mirror.example/app-1.bin"}
    put(people, TEXT, moved, name="default.web.v2")

    (change,) = people.viewer.get("/v1/revisions/default.web.v2/diff").json()["changes"]

    assert change["what"] == "changed"
    assert (change["before"], change["after"], change["patch"]) == (REFERENCE, moved, None)


@pytest.mark.parametrize(
    ("file", "status", "code", "told"),
    [
        ({"uri": "ftp://cdn.example/a"}, 400, "invalid_reference", "https, http or file"),
        ({"uri": "cdn.example/a"}, 400, "invalid_reference", "scheme"),
        ({"uri": "https://ann:pw5ecret@cdn.example/a"}, 400, "invalid_reference", "credentials"),
        ({"uri": "https://cdn.example/a\n"}, 400, "invalid_reference", "RFC 3986"),
        ({"uri": "https://cdn.example/" + "a" * 3_000}, 400, "invalid_request", "2048"),
        ({"uri": ""}, 400, "invalid_request", "uri"),
        ({"sha256": None}, 400, "invalid_request", "needs sha256 and bytes"),
        ({"bytes": None}, 400, "invalid_request", "needs sha256 and bytes"),
        ({"sha256": "AB" * 32}, 400, "invalid_request", "sha256"),
        ({"bytes": -1}, 400, "invalid_request", "bytes"),
        ({"bytes": 2**30 + 1}, 413, "too_large", "references_bytes_max"),
        ({"bytes": CONTENT_BYTES_MAX + 1}, 413, "too_large", str(CONTENT_BYTES_MAX)),
        ({"text": "both"}, 400, "invalid_request", "one of the three"),
        ({"uri": None}, 400, "invalid_request", "has one of"),
        ({"uri": None, "text": "x"}, 400, "invalid_request", "expected"),
        ({"uri": None, "text": BODY.decode(), "sha256": "0" * 64}, 400, "invalid_request", HASH),
        ({"path": "../up"}, 400, "invalid_argument", "segment"),
        ({"path": "app.conf"}, 400, "invalid_argument", "twice"),
    ],
)
def test_names_what_is_wrong_with_a_reference(
    people: People, file: dict[str, Any], status: int, code: str, told: str
) -> None:
    people.draft()

    answer = put(people, TEXT, REFERENCE | file)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert told in answer.text
    assert "pw5ecret" not in answer.text
    assert people.document()["status"]["content"]["file_count"] == 0


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[People]:
    """People at a server that also has the dashboard."""
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES)) as served:
        yield People(served)


def test_shows_on_the_page_where_the_bytes_are(readers: People) -> None:
    people = readers
    people.draft()
    put(people, TEXT, REFERENCE | {"uri": f"{URI}?a=1&b=2"})
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    put(people, TEXT, {"path": "bin/app", "text": BODY.decode()}, name="default.web.v2")

    first = people.viewer.get(f"/revisions/{NAME}")
    second = people.viewer.get("/revisions/default.web.v2")

    assert (first.status_code, second.status_code) == (200, 200), first.text
    shown = f"{URI}?a=1&amp;b=2"
    assert "By reference" in first.text
    assert f"by reference {shown}<" in first.text
    assert f"sha256:{HASH} 5 B" in first.text
    assert "By reference" not in second.text
    assert f"by reference {shown}" in second.text
    assert "kept here<" in second.text


# ── hosts ──


def test_lists_for_a_host_where_to_fetch(fleet: ServedFleet) -> None:
    fleet.create()
    name = "default.web.v9"
    source = fleet.viewer.get("/v1/revisions?lifecycle=Published").json()["items"][0]
    fleet.draft("v9", tasks=[{"type": "edit", "source": source["metadata"]["name"]}])
    put(fleet, TEXT, REFERENCE, name=name)
    number = fleet.publish(name).json()["spec"]["revision"]
    agent = fleet.agents["web-01"]

    path = f"/v1/agent/releases/web.{number}"
    content = agent.send("GET", path).json()
    kept, referenced = content["files"]
    missing = agent.send("GET", f"{path}/blobs/{HASH}")

    assert "uri" not in kept
    assert agent.send("GET", f"{path}/blobs/{kept['sha256']}").content == b"a=1\n"
    assert referenced == REFERENCE
    assert (missing.status_code, missing.json()["code"]) == (404, "file_by_reference")
