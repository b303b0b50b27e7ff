"""Symlinks of a release on a host: made as they were pushed, and never written through."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

import pytest

from tests.agent.single_host import ContentSource
from tidegate.agent.content import provide
from tidegate.agent.errors import ContentMismatch, ServerAway
from tidegate.domain.content.digests import digest_of, encode
from tidegate.domain.content.entries import File, link_to
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.hosts.protocol import ReleaseContent

BODIES = {"lib/app-1/run": b"#!/bin/sh\n", "lib/app-1/data": b"data"}
PROGRAMS = frozenset({"lib/app-1/run"})
LINKS = (link_to("bin/run", "../lib/app"), link_to("lib/app", "app-1/run"), link_to("now", "lib"))
FILES = (*FileManifest.of(BODIES, PROGRAMS).files, *LINKS)
CLOSURE = FileManifest(FILES).digest


class Linked(ContentSource):
    """Serves files and links, valid or not."""

    def __init__(self, *files: File) -> None:
        super().__init__(new=BODIES)
        self.files = files or FILES

    def listing(self, content: str) -> ReleaseContent:
        self._ask()
        return ReleaseContent(content, CLOSURE, self.files)


@pytest.mark.req("OP-11", engines=None, reason="a host's disk is no engine")
def test_creates_files_modes_and_links_as_they_were_pushed(tmp_path: Path) -> None:
    source = Linked()

    found = provide(CLOSURE, "/new", tmp_path, source)

    assert os.readlink(found / "bin" / "run") == "../lib/app"
    assert (found / "bin" / "run").read_bytes() == b"#!/bin/sh\n"
    assert os.access(found / "bin" / "run", os.X_OK)
    assert (found / "now" / "app-1" / "data").read_bytes() == b"data"
    asked = source.asked
    assert provide(CLOSURE, "/new", tmp_path, source) == found
    assert source.asked == asked, "it exists and is intact"


@pytest.mark.parametrize("change", ["other", "gone", "file"])
def test_fetches_again_if_a_link_was_changed(tmp_path: Path, change: str) -> None:
    found = provide(CLOSURE, "/new", tmp_path, Linked())
    (found / "bin" / "run").unlink()
    if change == "other":
        (found / "bin" / "run").symlink_to("/bin/sh")
    elif change == "file":
        (found / "bin" / "run").write_text("../lib/app")

    again = provide(CLOSURE, "/new", tmp_path, Linked())

    assert os.readlink(again / "bin" / "run") == "../lib/app"


def hostile(*links: tuple[str, str]) -> list[File]:
    files = [
        File(path, sha256(to.encode()).hexdigest(), len(to.encode()), link=to) for path, to in links
    ]
    return [*FileManifest.of(BODIES, PROGRAMS).files, *files]


@pytest.mark.req("OP-11", engines=None, reason="a host's disk is no engine")
@pytest.mark.parametrize(
    "files",
    [
        hostile(("a", "/etc")),
        hostile(("a", "../../outside")),
        hostile(("a", "b"), ("b", "../outside")),
        hostile(("a", "gone")),
        hostile(("a", "a")),
        hostile(("a", ".")),
        [*hostile(("a", "lib")), File("a/x", sha256(b"data").hexdigest(), 4)],
        [*hostile(("a", "../outside")), File("a/x", sha256(b"data").hexdigest(), 4)],
    ],
)
def test_writes_nothing_if_a_listed_link_leads_elsewhere(tmp_path: Path, files: list[File]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    closure = digest_of(encode(files))

    with pytest.raises(ContentMismatch):
        provide(closure, "/new", tmp_path / "place", Linked(*files))

    assert not (tmp_path / "place").exists()
    assert not list(outside.iterdir())


@pytest.mark.parametrize("path", ["lib", "lib/app-1", "bin"])
def test_writes_through_no_foreign_link(tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tmp_path / "place"
    source = Linked()
    source.file = lambda *_: (_ for _ in ()).throw(ServerAway("away"))  # type: ignore[method-assign]
    with pytest.raises(ServerAway):
        provide(CLOSURE, "/new", place, source)
    (incoming,) = place.iterdir()
    rmtree(incoming / path, ignore_errors=True)
    (incoming / path).parent.mkdir(exist_ok=True, parents=True)
    (incoming / path).symlink_to(outside)

    found = provide(CLOSURE, "/new", place, Linked())

    assert not list(outside.iterdir())
    assert (found / "lib" / "app-1" / "data").read_bytes() == b"data"
