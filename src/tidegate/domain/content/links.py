"""Symbolic links inside a release. They are relative and never leave its tree.

    bin/app ──▶ ../lib/app-1.2/app        allowed: the target is a file or directory of the tree
    bin/sh  ──▶ /bin/sh                   refused: absolute
    a       ──▶ ../../etc                 refused: leaves the tree
    a       ──▶ gone                      refused: the target does not exist
    a ──▶ b, b ──▶ a                      refused: a loop, also through a directory

Links are resolved here as a host resolves them, using only the entries of the tree. So on a host
that creates exactly these entries, no link leads anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidegate.domain.content.refusals import InvalidLink

LINK_BYTES_MAX: Final = 1_024
FOLLOWED_MAX: Final = 40  # links in one resolution, as on Linux

Place = tuple[str, ...]  # segments below the root of the tree


def check_target(path: str, target: str) -> None:
    """Check that a link's target is a well-formed relative path. Raises: InvalidLink."""
    try:
        size = len(target.encode())
    except UnicodeEncodeError:
        raise InvalidLink(path, target, "it holds a lone surrogate") from None
    if not 0 < size <= LINK_BYTES_MAX:
        raise InvalidLink(path, target, f"it needs 1 to {LINK_BYTES_MAX} bytes")
    if target.startswith("/"):
        raise InvalidLink(path, target, "it is absolute, and must be relative")
    if "\\" in target:
        raise InvalidLink(path, target, "segments are separated by /, never by a backslash")
    if any(ord(char) < 32 or ord(char) == 127 for char in target):
        raise InvalidLink(path, target, "it holds a control character")
    if "" in target.split("/"):
        raise InvalidLink(path, target, "no segment may be empty")


def check_links(paths: Iterable[str], links: Mapping[str, str]) -> None:
    """Check that each link leads to a file or directory of the tree, and that a walk through the
    tree that follows links always ends.

    ``paths`` are all entries including links; none is below another. ``links``: path → target.

    Raises:
        InvalidLink.
    """
    if not links:
        return
    tree = _Tree(paths, links)
    linked: dict[Place, list[tuple[str, Place]]] = {}
    for path, target in links.items():
        place = tree.follow(path, target)
        if place in tree.directories:
            linked.setdefault(tree.place_of(path)[:-1], []).append((path, place))
    if linked:
        tree.check_walks(linked)


class _Tree:
    """Files, directories and links by their paths."""

    def __init__(self, paths: Iterable[str], links: Mapping[str, str]) -> None:
        self._links = {self.place_of(path): target for path, target in links.items()}
        self.entries = {self.place_of(path) for path in paths}
        self.directories: set[Place] = {()}
        for place in self.entries:
            self.directories.update(place[:depth] for depth in range(1, len(place)))

    @staticmethod
    def place_of(path: str) -> Place:
        return tuple(path.split("/"))

    def follow(self, path: str, target: str) -> Place:
        """Resolve a link to its final target. Raises: InvalidLink."""
        at, ahead = self.place_of(path)[:-1], _reversed(target)
        followed = 1
        while ahead:
            segment = ahead.pop()
            if segment == ".":
                continue
            if segment == "..":
                if not at:
                    raise InvalidLink(path, target, "it leads out of the tree")
                at = at[:-1]
                continue
            step = (*at, segment)
            if step in self._links:
                followed += 1
                if followed > FOLLOWED_MAX:
                    raise InvalidLink(path, target, "it is part of a loop of links")
                ahead += _reversed(self._links[step])
            elif step in self.directories or (step in self.entries and not ahead):
                at = step
            elif step in self.entries:
                raise InvalidLink(path, target, f"{'/'.join(step)} is a file, not a directory")
            else:
                raise InvalidLink(path, target, f"the tree has no {'/'.join(step)}")
        return at

    def check_walks(self, linked: Mapping[Place, list[tuple[str, Place]]]) -> None:
        """Check that no directory can be reached from itself through directories and links.

        Raises:
            InvalidLink.
        """
        below: dict[Place, list[tuple[str, Place]]] = {(): []}
        for place in self.directories:
            if place:
                below.setdefault(place[:-1], []).append(("", place))
        for place, more in linked.items():
            below.setdefault(place, []).extend(more)
        done: set[Place] = set()
        under_way: set[Place] = {()}
        # Each step of the walk: the directory, its remaining entries, and the last link.
        walk: list[tuple[Place, Iterator[tuple[str, Place]], str]] = [((), iter(below[()]), "")]
        while walk:
            place, rest, last_link = walk[-1]
            found = next(rest, None)
            if found is None:
                walk.pop()
                under_way.discard(place)
                done.add(place)
                continue
            link, step = found[0] or last_link, found[1]
            if step in under_way:  # only a link can lead a directory back to itself
                target = self._links[self.place_of(link)]
                raise InvalidLink(link, target, "it leads to a directory that it lies in")
            if step not in done:
                under_way.add(step)
                walk.append((step, iter(below.get(step, ())), link))


def _reversed(target: str) -> list[str]:
    return target.split("/")[::-1]
