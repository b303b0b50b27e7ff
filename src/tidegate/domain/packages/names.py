"""Names of repositories, packages and workspaces, and the dotted name of a revision.

    repository   package path      workspace        name
    blueprints   networking/vpc    v1          ──▶  blueprints.networking.vpc.v1

A label contains no dot, so a name can be parsed: first the repository, last the workspace.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidegate.domain.packages.refusals import InvalidName

LABEL_CHARS_MAX = 63
NAME_CHARS_MAX = 253
PATH_DEPTH_MAX = 16
PACKAGE_CHARS_MAX = 111  # with its repository; a release id adds 17 and has at most 128
USER_CHARS_MAX = 128

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_USER = re.compile(r"[!-~]+")


DEFAULT_REPOSITORY = "default"  # its packages are named by their path alone (ADR-0008)


class Identity(NamedTuple):
    """The parts of a revision's dotted name."""

    repository: str
    path: str
    workspace: str

    @property
    def name(self) -> str:
        return ".".join((self.repository, *self.path.split("/"), self.workspace))

    @property
    def package(self) -> str:
        """The package with its repository: ``blueprints/networking/vpc``."""
        return f"{self.repository}/{self.path}"


def identity(repository: str, path: str, workspace: str) -> Identity:
    """Validate these parts and build an identity. Raises: InvalidName."""
    check_label("a repository", repository)
    check_path(path)
    check_label("a workspace", workspace)
    found = Identity(repository, path, workspace)
    if len(found.name) > NAME_CHARS_MAX:
        raise InvalidName(f"{found.name!r} is longer than {NAME_CHARS_MAX} characters")
    if len(found.package) > PACKAGE_CHARS_MAX:
        raise InvalidName(
            f"a package with its repository has at most {PACKAGE_CHARS_MAX} characters, because its"
            f" releases are named after it; found {found.package!r}",
            name=found.name,
        )
    return found


def full_path(repository: str, path: str) -> str:
    """The path of a package with its repository. Raises: InvalidName."""
    check_label("a repository", repository)
    check_path(path)
    return f"{repository}/{path}"


def parse(name: str) -> Identity:
    """Parse a dotted name. Raises: InvalidName."""
    repository, *path, workspace = name.split(".") if name.count(".") > 1 else ("", "", "")
    try:
        return identity(repository, "/".join(path), workspace)
    except InvalidName as error:
        raise InvalidName(f"{name!r} names no revision: {error.detail}", name=name) from None


def check_label(what: str, text: str) -> None:
    """Check that the text is a DNS-1123 label. Raises: InvalidName."""
    if len(text) > LABEL_CHARS_MAX or not _LABEL.fullmatch(text):
        raise InvalidName(
            f"{what} is named by at most {LABEL_CHARS_MAX} of a-z, 0-9 and -, starting and ending "
            f"with a letter or digit; found {text[:LABEL_CHARS_MAX]!r}",
            name=text[:NAME_CHARS_MAX],
        )


def check_path(path: str) -> None:
    """Check a package path: labels between slashes, together no longer than one label may be.

    Raises:
        InvalidName.
    """
    segments = path.split("/")
    if len(segments) > PATH_DEPTH_MAX:
        raise InvalidName(f"a package path has at most {PATH_DEPTH_MAX} segments", name=path[:253])
    for segment in segments:
        check_label("each segment of a package path", segment)
    check_label("a package path without its slashes", "".join(segments))


def check_user(by: str) -> None:
    """Check that the text is a user id, because facts never hold a person's name.

    Raises:
        InvalidName.
    """
    if len(by) > USER_CHARS_MAX or not _USER.fullmatch(by):
        raise InvalidName(f"a user id has 1 to {USER_CHARS_MAX} printable characters, no space")


def ancestors(package: str) -> tuple[str, ...]:
    """The paths above this package, outermost first: r/a and r/a/b of r/a/b/c."""
    repository, *path = package.split("/")
    return tuple("/".join((repository, *path[:depth])) for depth in range(1, len(path)))
