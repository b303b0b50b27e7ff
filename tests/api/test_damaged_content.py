"""A revision whose bytes the server has lost cannot be approved."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.serving import Served

Damage = Callable[[Path], object]


def overwrite(path: Path) -> None:
    path.write_bytes(b"something else")


def blob_path(served: Served, digest: str) -> Path:
    digits = digest.removeprefix("sha256:")
    return Path(served.installation.settings.data, "blobs", "sha256", digits[:2], digits[2:])


def propose(served: Served) -> tuple[People, str]:
    people = People(served)
    people.draft()
    people.push(NAME, index_html="one", about_html="two")
    assert people.step(people.author, "propose").status_code == 200
    digest: str = people.document()["status"]["content"]["digest"]
    return people, digest


def approve(people: People, digest: str) -> httpx2.Response:
    return people.step(people.approver, "approve", digest=digest)


@pytest.mark.parametrize(
    ("damage", "word"), [(Path.unlink, "missing"), (overwrite, "damaged")], ids=["gone", "other"]
)
def test_a_revision_whose_file_is_lost_or_damaged_is_not_approved(
    served: Served, damage: Damage, word: str
) -> None:
    people, digest = propose(served)
    damage(blob_path(served, sha256(b"one").hexdigest()))

    refused = approve(people, digest)

    assert (refused.status_code, refused.json()["code"]) == (422, "content_damaged")
    assert refused.json()["detail"] == (
        f"{NAME} cannot be approved: the stored bytes of index.html are {word}. Restore them from a"
        " backup, or reject the proposal and push the files again."
    )
    assert people.document()["spec"]["lifecycle"] == "Proposed"


def test_a_revision_whose_list_of_files_is_lost_is_not_approved(served: Served) -> None:
    people, digest = propose(served)
    blob_path(served, people.document()["status"]["content"]["manifest"]).unlink()

    refused = approve(people, digest)

    assert refused.json()["code"] == "content_damaged"
    assert "the stored bytes of its list of files are missing" in refused.json()["detail"]


def test_files_that_are_pushed_again_can_be_approved(served: Served) -> None:
    people, digest = propose(served)
    blob_path(served, sha256(b"one").hexdigest()).unlink()
    assert approve(people, digest).status_code == 422

    rejected = people.step(people.approver, "reject", reason="damaged")
    assert rejected.status_code == 200, rejected.text
    people.push(NAME, index_html="one", about_html="two")

    people.publish()
