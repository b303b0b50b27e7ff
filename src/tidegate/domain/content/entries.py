"""One file of a release."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidegate.domain.content.paths import check_file_path
from tidegate.domain.content.references import check_uri
from tidegate.domain.content.refusals import ContentTooLarge, InvalidDigest

CONTENT_BYTES_MAX = 2**40  # of a file or a revision; installations allow less: see limits
HEX_CHARS: Final = 64
FILE: Final = "f"
EXECUTABLE: Final = "x"


class File(Struct, frozen=True, order=True, omit_defaults=True):
    """One file: its path, the SHA-256 of its bytes in hex, and their number.

    With a ``uri`` it is a reference: its bytes are there, and never in our blob store. An
    ``executable`` one gets mode 0755 on hosts, all others 0644.
    """

    path: str
    sha256: str
    bytes: int
    uri: str | None = None
    executable: bool = False

    @property
    def type(self) -> str:
        """Its type in the content digest and in a manifest."""
        return EXECUTABLE if self.executable else FILE

    @property
    def mode(self) -> int:
        """Its permissions on hosts and in archives."""
        return 0o755 if self.executable else 0o644


def check_file(file: File) -> None:
    """Raises: InvalidFilePath, InvalidDigest, ContentTooLarge, InvalidReference."""
    check_file_path(file.path)
    if not is_hash(file.sha256):
        raise InvalidDigest(
            "a file's sha256 is 64 hexadecimal digits in lower case", path=file.path
        )
    if not 0 <= file.bytes <= CONTENT_BYTES_MAX:
        raise ContentTooLarge(
            f"{file.path} has {file.bytes} bytes, at most {CONTENT_BYTES_MAX} are allowed",
            found=file.bytes,
            allowed=CONTENT_BYTES_MAX,
        )
    if file.uri is not None:
        check_uri(file.path, file.uri)


def is_hash(text: str) -> bool:
    return len(text) == HEX_CHARS and set(text) <= set("0123456789abcdef")
