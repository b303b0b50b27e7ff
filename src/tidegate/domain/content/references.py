"""The addresses of references: files whose bytes are stored elsewhere (ADR-0013).

https, http   on a server that the hosts can reach
file          on the hosts themselves, in directories that their agents' settings allow

The address only says where to fetch the bytes. The hash alone decides whether they are right.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from tidegate.domain.content.refusals import InvalidReference

URI_CHARS_MAX: Final = 2_048
SCHEMES: Final = ("https", "http", "file")
# The characters of a URI by RFC 3986, without a fragment, which clients never send to a server.
_URI = re.compile(r"([A-Za-z0-9._~:/?\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:.]+\]")


def check_uri(path: str, uri: str) -> None:
    """Check that agents may fetch the file of this path from there. Raises: InvalidReference."""
    if not 0 < len(uri) <= URI_CHARS_MAX:
        allowed = f"1 to {URI_CHARS_MAX} characters"
        raise InvalidReference(path, f"a URI of {len(uri)} characters", allowed)
    scheme, colon, _ = uri.partition(":")
    if scheme not in SCHEMES or not colon:
        found = f"the scheme {scheme[:40]!a}" if colon else "a URI without a scheme"
        raise InvalidReference(path, found, "an absolute URI of https, http or file")
    if not _URI.fullmatch(uri):
        raise InvalidReference(
            path,
            "a character that no URI has, or a fragment",
            "letters, digits and marks of RFC 3986, all others as %XX, without #",
        )
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise InvalidReference(path, "no host or port", "scheme://host[:port]/path") from None
    if "@" in parts.netloc:
        raise InvalidReference(
            path,
            "user information before its host",
            "no credentials: all who may read the revision see its references",
        )
    if scheme == "file":
        _check_file(path, uri, parts)
    elif not _HOST.fullmatch(parts.netloc.removesuffix(f":{port}")):
        raise InvalidReference(path, "no host", f"{scheme}://host[:port]/path")


def _check_file(path: str, uri: str, parts: SplitResult) -> None:
    plain = unquote_to_bytes(parts.path)
    odd = any(segment in (b"", b".", b"..") for segment in plain.split(b"/")[1:])
    if odd or b"\0" in plain or "?" in uri or not uri.startswith("file:///"):
        raise InvalidReference(
            path,
            "a host, a query, or a path that is not the plain one of a file",
            "file:///directory/file without empty, . and .. segments",
        )
