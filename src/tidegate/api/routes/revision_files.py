"""Decodes the files of revisions in requests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from tidegate.control.operations.uploads import ReceivedFiles, UploadedFile
from tidegate.domain.content import entries, links, manifests, refusals
from tidegate.domain.content.references import URI_CHARS_MAX
from tidegate.web import inputs, problems, shapes


class FileSent(inputs.Input, frozen=True, kw_only=True):
    """A file and its bytes: as text, as base64, as the receipt of an upload, or as a reference.

    A reference has uri, sha256 and bytes. With link it is a symbolic link to this target.

    Hosts give an ``executable`` file the mode 0755, all others 0644.
    """

    path: Annotated[str, Meta(min_length=1, max_length=1_024)]
    text: str | None = None
    base64: str | None = None
    upload: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    uri: Annotated[str, Meta(min_length=1, max_length=URI_CHARS_MAX)] | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None
    bytes: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None
    executable: bool = False
    link: Annotated[str, Meta(min_length=1, max_length=links.LINK_BYTES_MAX)] | None = None


def decode_files(files: Sequence[FileSent]) -> ReceivedFiles:
    """Decode the files of a request.

    Raises:
        InvalidRequest, InvalidFilePath, ContentTooLarge.
    """
    if len(files) > manifests.FILES_MAX:
        manifests.FileManifest(
            entries.File(file.path, "0" * 64, 0) for file in files
        )  # its message names the limit
    faults = []
    contents: dict[str, bytes] = {}
    references: dict[str, entries.File] = {}
    uploads: dict[str, UploadedFile] = {}
    for number, file in enumerate(files):
        if file.path in contents or file.path in references or file.path in uploads:
            raise refusals.InvalidFilePath(file.path, "it is there twice")
        try:
            if file.link is not None:
                references[file.path] = _link(file, file.link)
            elif file.upload is not None:
                uploads[file.path] = _uploaded(file, file.upload)
            elif file.uri is None:
                contents[file.path] = _bytes(file)
            else:
                references[file.path] = _reference(file, file.uri)
        except (ValueError, binascii.Error) as error:
            faults.append(shapes.FieldError(f"body.files[{number}]", str(error)))
    if faults:
        raise problems.InvalidRequest(faults)
    executables = frozenset(file.path for file in files if file.executable)
    return ReceivedFiles(contents, tuple(references.values()), executables, tuple(uploads.values()))


def _bytes(file: FileSent) -> bytes:
    data: bytes | None = None
    match file.text, file.base64:
        case str(text), None:
            data = text.encode()
        case None, str(encoded):
            data = base64.b64decode(encoded, validate=True)
    if data is None:
        raise ValueError("has one of text, base64, upload, link, and uri with sha256 and bytes")
    if file.bytes not in (None, len(data)):
        raise ValueError(f"has {len(data)} bytes, expected {file.bytes}")
    if file.sha256 not in (None, found := sha256(data).hexdigest()):
        raise ValueError(f"has the sha256 {found}, expected {file.sha256}")
    return data


def _link(file: FileSent, target: str) -> entries.File:
    if (file.text, file.base64, file.upload, file.uri) != (None,) * 4 or file.executable:
        raise ValueError("has a link and bytes, or is executable; a link is neither")
    return entries.link_to(file.path, target)


def _uploaded(file: FileSent, upload: str) -> UploadedFile:
    if file.text is not None or file.base64 is not None or file.uri is not None:
        raise ValueError("has an upload and text, base64 or a uri; one of these")
    return UploadedFile(file.path, upload, file.executable, file.sha256, file.bytes)


def _reference(file: FileSent, uri: str) -> entries.File:
    if file.text is not None or file.base64 is not None:
        raise ValueError("has text or base64 and a uri; one of the three")
    if file.sha256 is None or file.bytes is None:
        raise ValueError("has a uri, which needs sha256 and bytes: what hosts verify")
    return entries.File(file.path, file.sha256, file.bytes, uri, file.executable)
