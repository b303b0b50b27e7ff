"""Files on their way: encoded for a push, unpacked from a pull, with a bar while it takes long."""

from __future__ import annotations

import base64
import io
import stat
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tidegate.cli.client import Progress
from tidegate.cli.context import CommandContext
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.revisions.checkout import BYTES_MAX, Body, Files, Reference, reference_to_json
from tidegate.domain.content.manifests import FILES_MAX

BAR_BYTES_MIN = 512 * 1024  # below, a push is over before a bar is read


def encode_files(files: Files, references: Iterable[Reference] = ()) -> list[dict[str, Any]]:
    """Files as the API takes them: text as it is, other bytes as base64, references as such."""
    sent: list[dict[str, Any]] = [
        {"path": path, **_content(body)} for path, body in sorted(files.items())
    ]
    return sent + [reference_to_json(item) for item in references]


def _content(body: Body) -> dict[str, Any]:
    marked = {"executable": True} if body.executable else {}
    try:
        return {"text": body.content.decode(), **marked}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body.content).decode(), **marked}


def unpack_archive(content: bytes) -> Files:
    """The files of a tar, in memory; nothing is extracted by what it says. Raises: Stop."""
    files: Files = {}
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                size += member.size
                if not member.isreg() or len(files) >= FILES_MAX or size > BYTES_MAX:
                    raise _bad_archive(f"{member.name[:80]!r} is too much or no file")
                file = archive.extractfile(member)
                assert file is not None, "a regular file has content"
                files[member.name] = Body(file.read(), bool(member.mode & stat.S_IXUSR))
    except tarfile.TarError as error:
        raise _bad_archive(str(error)) from None
    return files


def _bad_archive(why: str) -> CommandExit:
    return CommandExit(
        ExitCode.UNAVAILABLE, f"the server's archive cannot be used: {why}", "tidegate doctor"
    )


@contextmanager
def upload_progress(context: CommandContext, size: int) -> Iterator[Progress | None]:
    """A bar on the terminal while an upload runs; none where nobody would see it."""
    if not (context.is_for_people and sys.stderr.isatty() and size >= BAR_BYTES_MIN):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("pushing", total=size)
        yield lambda sent, total: bars.update(task, completed=sent, total=total)
