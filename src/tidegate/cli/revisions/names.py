"""Names of package revisions: parse, complete and shorten them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.cli import completion, exit_codes

if TYPE_CHECKING:
    pass


REPOSITORY_DEFAULT = "default"


REVISIONS = completion.names("/v1/revisions", "metadata", "name")


PUBLISHED = completion.names("/v1/revisions", "metadata", "name", lifecycle="Published")


DRAFTS = completion.names("/v1/revisions", "metadata", "name", lifecycle="Draft")


PROPOSED = completion.names("/v1/revisions", "metadata", "name", lifecycle="Proposed")


def full_name(name: str) -> str:
    """The full name of a revision; ``web.v1`` is in the repository ``default``.

    Raises:
        CommandExit.
    """
    if "." not in name:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            f"a revision is named repository.package.workspace, such as default.web.v1 or, in"
            f" {REPOSITORY_DEFAULT}, web.v1; found {name!r}",
            "tidegate rev list",
        )
    return f"{REPOSITORY_DEFAULT}.{name}" if name.count(".") == 1 else name


def split_name(name: str) -> tuple[str, str, str]:
    """The repository, package path and workspace of a name."""
    repository, *path, workspace = full_name(name).split(".")
    return repository, "/".join(path), workspace
