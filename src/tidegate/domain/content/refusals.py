"""The errors about files of a release."""

from __future__ import annotations

from tidegate.errors import Invalid, TooLarge

SHOWN_CHARS_MAX = 200  # of a path from a request


class InvalidFilePath(Invalid):
    """A file path could mean another file elsewhere, or leave its directory."""

    code = "invalid_argument"

    def __init__(self, path: str, why: str) -> None:
        shown = ascii(path[:SHOWN_CHARS_MAX])
        super().__init__(f"{shown} is no path of a file in a package: {why}", path=shown)


class InvalidLink(Invalid):
    """A symbolic link is absolute, leaves its tree, leads to nothing, or leads in a circle."""

    code = "invalid_link"

    def __init__(self, path: str, target: str, why: str) -> None:
        shown, to = ascii(path[:SHOWN_CHARS_MAX]), ascii(target[:SHOWN_CHARS_MAX])
        super().__init__(
            f"the link {shown} to {to} is refused: {why}. A link is relative and leads to a file or"
            " directory of the same revision.",
            path=shown,
            target=to,
        )
        self.link = path


class InvalidDigest(Invalid):
    """A digest or a file's hash is malformed."""

    code = "invalid_argument"


class InvalidReference(Invalid):
    """A reference has an address that is not allowed, or lacks its hash or size."""

    code = "invalid_reference"

    def __init__(self, path: str, found: str, allowed: str) -> None:
        shown = ascii(path[:SHOWN_CHARS_MAX])
        super().__init__(
            f"the reference of {shown} has {found}; allowed is {allowed}",
            path=shown,
            found=found,
            allowed=allowed,
        )


class ContentTooLarge(TooLarge):
    """The content has more files or bytes than a revision may have."""

    code = "too_large"
