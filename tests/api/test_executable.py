"""Executable files of a revision: sent, listed, packed, compared and shown as executable."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.api.people import NAME, People
from tests.api.serving import serving
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES

TEXT = "#!/bin/sh\n"
THERE = {"path": "bin/app", "uri": "https://example.com/app", "sha256": "ab" * 32, "bytes": 7}


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    with serving(tmp_path / "data", routes=(*ROUTES, *PAGES)) as served:
        people = People(served)
        people.draft()
        yield people


def push(people: People, *files: dict[str, Any], name: str = NAME) -> Any:
    url = f"/v1/revisions/{name}/resources"
    return people.author.put(url, json={"files": files}, headers=people.seen(name))


def shown(people: People, name: str = NAME) -> str:
    """The page of the revision as text."""
    page = people.viewer.get(f"/revisions/{name}", headers={"accept": "text/html"})
    assert page.status_code == 200, page.text
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page.text)))


def test_lists_and_packs_executable_files_as_executable(people: People) -> None:
    pushed = push(
        people,
        {"path": "run", "text": TEXT, "executable": True},
        {"path": "read.me", "text": TEXT, "executable": False},
        {**THERE, "executable": True},
    )

    listed = people.viewer.get(f"/v1/revisions/{NAME}/resources").json()["files"]
    packed = people.viewer.get(f"/v1/revisions/{NAME}/archive").content

    assert pushed.status_code == 200, pushed.text
    assert {file["path"]: file.get("executable") for file in listed} == {
        "bin/app": True,
        "read.me": None,
        "run": True,
    }
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert {item.name: item.mode for item in archive} == {"read.me": 0o644, "run": 0o755}


def test_a_file_that_becomes_executable_changes_the_digest(people: People) -> None:
    plain = push(people, {"path": "run", "text": TEXT}).json()
    program = push(people, {"path": "run", "text": TEXT, "executable": True}).json()

    digests = [found["status"]["content"]["digest"] for found in (plain, program)]
    assert len(set(digests)) == 2


@pytest.mark.parametrize("becomes", [True, False])
def test_shows_reviewers_that_the_executable_bit_changed(people: People, becomes: bool) -> None:
    push(people, {"path": "run", "text": TEXT, "executable": not becomes}, {**THERE})
    people.publish()
    people.draft("v2", tasks=[{"type": "edit", "source": NAME}])
    name = "default.web.v2"
    push(people, {"path": "run", "text": TEXT, "executable": becomes}, {**THERE}, name=name)

    (change,) = people.viewer.get(f"/v1/revisions/{name}/diff").json()["changes"]

    assert (change["path"], change["what"], change["patch"]) == ("run", "changed", "")
    sides = [change[side].get("executable", False) for side in ("before", "after")]
    assert sides == [not becomes, becomes]
    words = "Now executable" if becomes else "No longer executable"
    assert f"run {words}" in shown(people, name)
    assert "The bytes are the same" in shown(people, name)


def test_shows_which_files_of_a_first_revision_are_executable(people: People) -> None:
    push(people, {"path": "run", "text": TEXT, "executable": True}, {"path": "a", "text": "a"})

    assert "Added run Executable" in shown(people)
    assert shown(people).count("Executable") == 1


@pytest.mark.parametrize(
    "member", [{"executable": "yes"}, {"executable": 1}, {"mode": "0755"}, {"link": "other"}]
)
def test_refuses_any_other_form_of_the_mode(people: People, member: dict[str, Any]) -> None:
    refused = push(people, {"path": "run", "text": TEXT, **member})

    assert refused.json()["code"] == "invalid_request", refused.text


def test_refuses_a_path_with_a_newline(people: People) -> None:
    refused = push(people, {"path": "a\nb", "text": TEXT})

    assert refused.json()["code"] == "invalid_argument"
    assert "control character" in refused.json()["detail"]


def test_documents_the_member(people: People) -> None:
    document = people.viewer.get("/v1/openapi.json").json()

    said = [
        schema["properties"]["executable"]
        for schema in document["components"]["schemas"].values()
        if {"executable", "sha256"} <= set(schema.get("properties", ()))
    ]
    assert len(said) == 2, "a file that is sent, a file that is listed"
    assert all(schema["type"] == "boolean" and schema["default"] is False for schema in said)
