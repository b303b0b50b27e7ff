"""Symbolic links inside a tree: part of the content, and never a way out of it."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tidegate.domain.content.digests import digest_of, encode
from tidegate.domain.content.entries import File, link_to
from tidegate.domain.content.links import FOLLOWED_MAX
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.content.refusals import InvalidFilePath, InvalidLink

EMPTY = sha256(b"").hexdigest()


def manifest(*paths: str, **links: str) -> FileManifest:
    """Build a tree of empty files and links; __ in a link's name stands for a slash."""
    files = [File(path, EMPTY, 0) for path in paths]
    made = [link_to(name.replace("__", "/"), target) for name, target in links.items()]
    return FileManifest((*files, *made))


@pytest.mark.req("OP-11", engines=None, reason="links are content, which no engine sees")
@pytest.mark.parametrize(
    "links",
    [
        {"a": "lib/app"},
        {"a": "lib"},
        {"a": "./lib/../lib/app"},
        {"bin__a": "../lib/app"},
        {"bin__a": "../lib"},
        {"a": "b", "b": "lib/app"},
        {"a": "b/app", "b": "lib"},
        {"x__y__z": "../../lib/deep/file"},
        {"lib__same": "app"},
        {"a": "lib", "b": "lib"},
    ],
)
def test_accepts_links_that_stay_inside(tmp_path: Path, links: dict[str, str]) -> None:
    found = manifest("lib/app", "lib/deep/file", **links)

    assert FileManifest.parse(found.blob).files == found.files
    for file in found.files:
        place = tmp_path / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch() if file.link is None else place.symlink_to(file.link)
    for file in found.files:
        real = Path(os.path.realpath(tmp_path / file.path, strict=True))
        assert real.is_relative_to(tmp_path), "a host follows it to the same place"


@pytest.mark.req("OP-11", engines=None, reason="links are content, which no engine sees")
@pytest.mark.parametrize(
    ("links", "why"),
    [
        ({"a": "/etc/passwd"}, "absolute"),
        ({"a": "../x"}, "out of the tree"),
        ({"bin__a": "../../etc"}, "out of the tree"),
        ({"a": "lib/../../x"}, "out of the tree"),
        ({"a": "gone"}, "the tree has no gone"),
        ({"a": "lib/app/x"}, "is a file"),
        ({"a": "lib/app/.."}, "is a file"),
        ({"a": "a"}, "loop"),
        ({"a": "b", "b": "a"}, "loop"),
        ({"a": "b/x", "b": "a/y"}, "loop"),
        ({"a": "."}, "lies in"),
        ({"lib__a": "../lib"}, "lies in"),
        ({"lib__deep__a": "../.."}, "lies in"),
        ({"lib__a": "../x", "x__b": "../lib"}, "lies in"),
        ({"a": "lib/out", "lib__out": "../../x"}, "out of the tree"),
        ({"a": "b/../x", "b": "lib/deep"}, "the tree has no lib/x"),
        ({"a": "lib//app"}, "empty"),
        ({"a": "lib/"}, "empty"),
        ({"a": "lib\\app"}, "backslash"),
        ({"a": "lib\n"}, "control"),
        ({"a": "lib\tapp"}, "control"),
        ({"a": "n\udcff"}, "surrogate"),
        ({"a": "x" * 1_025}, "1024"),
        ({"a": ""}, "1 to"),
    ],
)
def test_refuses_links_that_lead_elsewhere(links: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidLink) as refused:
        manifest("lib/app", "lib/deep/file", "x/file", **links)

    assert why in refused.value.detail
    assert "A link is relative" in refused.value.detail


def test_names_a_link_of_a_loop_even_if_a_directory_closes_it() -> None:
    with pytest.raises(InvalidLink):
        manifest("a/b/file", a__b__x="../../a", aa="a/b")


def test_follows_chains_no_longer_than_a_host_does() -> None:
    chain = {f"l{number:02}": f"l{number + 1:02}" for number in range(FOLLOWED_MAX - 1)}
    last = {f"l{FOLLOWED_MAX - 1:02}": "file"}

    assert len(manifest("file", **chain, **last).files) == FOLLOWED_MAX + 1
    with pytest.raises(InvalidLink):
        manifest("file", first="l00", **chain, **last)


def test_refuses_paths_below_a_link() -> None:
    with pytest.raises(InvalidFilePath):
        manifest("lib/app", "a/x", a="lib")


@pytest.mark.parametrize(
    "file",
    [
        File("a", EMPTY, 4, link="file"),
        File("a", sha256(b"file").hexdigest(), 5, link="file"),
        File("a", sha256(b"file").hexdigest(), 4, executable=True, link="file"),
        File("a", sha256(b"file").hexdigest(), 4, "https://cdn.example/a", link="file"),
    ],
)
def test_refuses_a_link_with_contradicting_members(file: File) -> None:
    with pytest.raises(InvalidLink):
        FileManifest((file, File("file", EMPTY, 0)))


@pytest.mark.req("OP-11", engines=None, reason="links are content, which no engine sees")
def test_a_link_has_another_digest_than_a_file_with_its_target() -> None:
    target = b"file"
    kinds = [
        File("a", sha256(target).hexdigest(), 4),
        File("a", sha256(target).hexdigest(), 4, executable=True),
        link_to("a", "file"),
        link_to("a", "./file"),
    ]

    digests = {FileManifest((kind, File("file", EMPTY, 0))).digest for kind in kinds}

    assert len(digests) == 4
    assert digest_of(encode([kinds[2]])) != digest_of(encode([kinds[0]]))
