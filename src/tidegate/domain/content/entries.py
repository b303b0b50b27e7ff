"""One file or link of a release."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from msgspec import Struct

from tidegate.domain.content import links, paths, references, refusals

CONTENT_BYTES_MAX = 2**40  # of a file or a revision; installations allow less, see limits.py
HEX_CHARS: Final = 64
FILE: Final = "f"
EXECUTABLE: Final = "x"
LINK: Final = "l"
IS_EXECUTABLE: Final = {FILE: False, EXECUTABLE: True, LINK: False}  # has every type


class File(Struct, frozen=True, order=True, omit_defaults=True):
    """One file: its path, the SHA-256 of its bytes in hex, and its size.

    With a ``link`` it is a symbolic link to this target; ``sha256`` and ``bytes`` are those of the
    target's text, and it has no blob. With a ``uri`` it is a reference: hosts fetch its bytes from
    there, and they are never in our blob store. An ``executable`` file gets mode 0755 on hosts, all
    others 0644.
    """

    path: str
    sha256: str
    bytes: int
    uri: str | None = None
    executable: bool = False
    link: str | None = None

    @property
    def type(self) -> str:
        """Its type in the content digest and in a manifest."""
        if self.link is not None:
            return LINK
        return EXECUTABLE if self.executable else FILE

    @property
    def is_kept(self) -> bool:
        """Whether its bytes are in our blob store."""
        return self.uri is None and self.link is None

    @property
    def mode(self) -> int:
        """Its permissions on hosts and in archives."""
        return 0o755 if self.executable else 0o644


def check_file(file: File) -> None:
    """Raises: InvalidFilePath, InvalidDigest, ContentTooLarge, InvalidReference, InvalidLink."""
    paths.check_file_path(file.path)
    if not is_hash(file.sha256):
        raise refusals.InvalidDigest(
            "a file's sha256 is 64 hexadecimal digits in lower case", path=file.path
        )
    if not 0 <= file.bytes <= CONTENT_BYTES_MAX:
        raise refusals.ContentTooLarge(
            f"{file.path} has {file.bytes} bytes, at most {CONTENT_BYTES_MAX} are allowed",
            found=file.bytes,
            allowed=CONTENT_BYTES_MAX,
        )
    if file.uri is not None:
        references.check_uri(file.path, file.uri)
    if file.link is not None:
        _check_link(file, file.link)


def link_to(path: str, target: str) -> File:
    """A symbolic link. Raises: InvalidLink."""
    links.check_target(path, target)
    text = target.encode()
    return File(path, sha256(text).hexdigest(), len(text), link=target)


def _check_link(file: File, target: str) -> None:
    if file.uri is not None or file.executable:
        raise refusals.InvalidLink(file.path, target, "it is executable, or a reference, too")
    if file != link_to(file.path, target):
        raise refusals.InvalidLink(file.path, target, "its hash or size is not that of its target")


def is_hash(text: str) -> bool:
    return len(text) == HEX_CHARS and set(text) <= set("0123456789abcdef")
