"""File transfers: upload for a push and unpack for a pull, with a progress bar for long ones.

push: small files in one request, all others raw, one by one ──▶ receipts ──▶ the revision
pull: the archive, in chunks ──▶ a staging directory ──▶ verified by digest ──▶ in place
"""

from __future__ import annotations

import base64
import stat
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from tidegate.cli import client, exit_codes, paths
from tidegate.cli.context import CommandContext
from tidegate.cli.revisions import checkout
from tidegate.domain.content import entries, refusals

BAR_BYTES_MIN = 512 * 1024  # smaller transfers are too fast for a bar
INLINE_FILE_BYTES_MAX = 64 * 1024  # larger files are sent raw
INLINE_BYTES_MAX = 4 * 1024 * 1024  # of all files in one request


def send_files(
    context: CommandContext,
    repository: str,
    place: Path,
    files: checkout.Files,
    references: Iterable[checkout.Reference] = (),
    *,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Upload large files, and return all files as the API accepts them.

    Raises:
        CommandExit: the server refuses, or a file changed during the upload.
    """
    sent: list[dict[str, Any]] = []
    left = INLINE_BYTES_MAX
    raw = {path for path, file in files.items() if file.bytes > INLINE_FILE_BYTES_MAX}
    for path, file in files.items():
        if path not in raw and file.link is None:
            left -= file.bytes
            if left < 0:
                raw.add(path)
    total = sum(files[path].bytes for path in raw)
    with transfer_bar(context, "pushing", total, quiet=quiet) as progress:
        for path, file in sorted(files.items()):
            marked = {"executable": True} if file.executable else {}
            if file.link is not None:
                sent.append({"path": path, "link": file.link})
            elif path in raw:
                target = paths.at("repositories", repository, "uploads", file.sha256)
                body = client.FileBody(place / path, file.bytes, progress)
                found = context.client.write("PUT", target, body).json()
                sent.append({"path": path, "upload": found["upload"], **marked})
            else:
                sent.append({"path": path, **_inline(place, file), **marked})
    return sent + [checkout.reference_to_json(item) for item in references]


def _inline(place: Path, file: entries.File) -> dict[str, Any]:
    """A file in JSON: text as it is, other bytes as base64. The server compares the hash."""
    content = (place / file.path).read_bytes()
    try:
        return {"text": content.decode(), "sha256": file.sha256}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode(), "sha256": file.sha256}


def unpack_archive(
    source: client.DownloadReader | IO[bytes], stage: Path, count: int, total: int
) -> checkout.Files:
    """Write the files of a tar into a staging directory. Its paths are never used for extraction.

    ``count`` and ``total``: the expected numbers of files and bytes. Raises: CommandExit.
    """
    files: checkout.Files = {}
    size = 0
    try:
        opened = cast("IO[bytes]", source)
        with tarfile.open(fileobj=opened, mode="r|", bufsize=checkout.PIECE_BYTES) as archive:
            for member in archive:
                size += member.size
                if member.issym() and len(files) < count:
                    checkout.check_path(member.name)
                    files[member.name] = entries.link_to(member.name, member.linkname)
                    continue
                if not member.isreg() or len(files) >= count or size > total:
                    raise _bad_archive(f"{member.name[:80]!r} is too much or no file")
                content = archive.extractfile(member)
                assert content is not None, "a regular file has content"
                pieces = iter(lambda: content.read(checkout.PIECE_BYTES), b"")  # noqa: B023 - used at once
                executable = bool(member.mode & stat.S_IXUSR)
                files[member.name] = checkout.stage_file(
                    stage, member.name, pieces, executable=executable
                )
    except tarfile.TarError as error:
        raise _bad_archive(str(error)) from None
    except refusals.InvalidLink as error:
        raise _bad_archive(error.detail) from None
    except FileExistsError as error:
        raise _bad_archive(f"{error.filename} is there twice") from None
    except OSError as error:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"{stage} cannot be written: {error.strerror}",
            f"df -h {stage}",
        ) from None
    return files


def _bad_archive(why: str) -> exit_codes.CommandExit:
    return exit_codes.CommandExit(
        exit_codes.ExitCode.UNAVAILABLE,
        f"the server's archive cannot be used: {why}",
        "tidegate doctor",
    )


@contextmanager
def transfer_bar(
    context: CommandContext, what: str, size: int, *, quiet: bool = False
) -> Iterator[client.Progress]:
    """Show a progress bar with rate and remaining time on a terminal; elsewhere nothing."""
    is_seen = context.is_for_people and sys.stderr.isatty() and not quiet
    if not is_seen or size < BAR_BYTES_MIN:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress as Bars,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=size)
        yield lambda count: bars.advance(task, count)
