"""Artifacts on disk: fetch the files, verify them, then rename the directory to its digest.

    listing = the digest? ──▶ each file = its hash? ──▶ .incoming-… ──▶ sha256-<hex>, one rename

A file is fetched from the server by its hash, or from the address of its reference.

``tidegate.domain.content`` defines the allowed paths and the digest, here and on the server.
Programs and directories get mode 0755 and other files 0644, whatever the agent's umask is. Links
are created last, after all files, and only if they point into the same tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import rmtree
from stat import S_IMODE, S_ISLNK, S_ISREG, S_IXUSR
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from tidegate.agent.errors import ContentMismatch, ReferenceRefused, ServerAway
from tidegate.agent.references import HTTP_ALONE, References
from tidegate.domain.content import entries, manifests, refusals
from tidegate.domain.hosts.protocol import ReleaseContent
from tidegate.errors import Invalid, TooLarge

if TYPE_CHECKING:
    from hashlib import _Hash as Hash  # what sha256() returns

INCOMING: Final = ".incoming-"
PIECE_BYTES: Final = 256 * 1024
DIRECTORY_MODE: Final = 0o755
OPENED: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"sha256-([0-9a-f]{64})")


class Source(Protocol):
    """Where artifacts are fetched; ``content`` is the address that an order names."""

    def listing(self, content: str) -> ReleaseContent:
        """Raises: ServerAway, RefusedByServer."""
        ...

    def file(
        self,
        content: str,
        hashed: str,
        bytes_max: int,
        write: Callable[[bytes], object],
        start: int = 0,
    ) -> None:
        """Write the bytes from ``start`` on; ``bytes_max`` limits the whole file.

        Raises:
            ContentMismatch: the file is longer. ServerAway, RefusedByServer.
        """
        ...


def name_of(closure: str) -> str:
    """The directory name of an artifact. Raises: ContentMismatch: it is not a digest."""
    found = _DIGEST.fullmatch(closure)
    if found is None:
        raise ContentMismatch(
            f"a closure is sha256: and 64 hexadecimal digits, found {closure[:80]!r}"
        )
    return f"sha256-{found[1]}"


def closure_of(name: str) -> str:
    """The artifact of a directory; empty: the agent did not create the directory."""
    found = _NAME.fullmatch(name)
    return "" if found is None else f"sha256:{found[1]}"


def provide(
    closure: str,
    content: str,
    place: Path,
    source: Source,
    references: References = HTTP_ALONE,
) -> Path:
    """Return the artifact's directory below ``place``; fetch it unless it is there and intact.

    Files that an interrupted attempt has fetched are not fetched again.

    Raises:
        ContentMismatch: the source offers something else.
        ServerAway, RefusedByServer: from the source. ReferenceAway, ReferenceRefused: from the
        address of a reference. OSError: from the disk.
    """
    final = place / name_of(closure)
    if final.is_dir() and _holds(final, closure):
        return final
    files = _check_listing(source.listing(content).files, closure).files
    incoming = place / f"{INCOMING}{final.name}"
    _make_directory(incoming)
    _remove_links(incoming)  # an interrupted attempt may have made them
    for listed in files:
        path = incoming / listed.path
        if listed.link is not None or _is_complete(listed, path):
            continue
        _make_directory(path.parent)
        if listed.uri is None:
            _fetch_file(listed, path, content, source)
        else:
            references.fetch(listed, listed.uri, path)
    # Last, when all files are written: so no write can go through a link.
    for listed in files:
        if listed.link is not None:
            path = incoming / listed.path
            _make_directory(path.parent)
            path.symlink_to(listed.link)
    if not _holds(incoming, closure):
        rmtree(incoming)
        raise ContentMismatch(f"what lies in {incoming.name} is not {closure}", expected=closure)
    _sync(incoming)
    if final.exists():
        _remove(final)  # its content was changed
    os.replace(incoming, final)
    _sync(place)
    return final


def keep_only(place: Path, closures: set[str]) -> None:
    """Remove all other artifacts, and unfinished ones."""
    names = {name_of(closure) for closure in closures if _DIGEST.fullmatch(closure)}
    for path in place.iterdir():
        if path.name not in names and (closure_of(path.name) or path.name.startswith(INCOMING)):
            _remove(path)


def _make_directory(path: Path) -> None:
    """Make a directory and those above it that are missing, with mode 0755."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(DIRECTORY_MODE)
    path.chmod(DIRECTORY_MODE)  # the umask may have taken bits away


def _remove(path: Path) -> None:
    """Rename the directory, then delete it: its name never holds half an artifact."""
    doomed = path.with_name(f"{INCOMING}gone-{path.name.removeprefix(INCOMING)}")
    rmtree(doomed, ignore_errors=True)
    os.replace(path, doomed)
    rmtree(doomed)


def _check_listing(files: Iterable[entries.File], closure: str) -> manifests.FileManifest:
    """Return the listed files if they have this digest and valid paths.

    Raises:
        ContentMismatch, ReferenceRefused.
    """
    try:
        manifest = manifests.FileManifest(files)
    except refusals.InvalidReference as error:
        raise ReferenceRefused(error.detail) from None
    except (Invalid, TooLarge) as error:
        raise ContentMismatch(f"the listing of {closure} is refused: {error.detail}") from None
    if manifest.digest != closure:
        raise ContentMismatch(
            f"the content offered for {closure} is {manifest.digest}",
            expected=closure,
            found=manifest.digest,
        )
    return manifest


def _fetch_file(listed: entries.File, path: Path, content: str, source: Source) -> None:
    """Fetch a file from the server; write it durably, with its mode.

    If the download breaks off, what arrived is kept and the next attempt fetches only the rest.
    After any other failure the file is removed.
    """
    try:
        with _open_own(path) as file:
            os.fchmod(file.fileno(), listed.mode)
            hashed, size = _hash_partial(file, listed)
            is_resumed = bool(size)
            found = _fetch_rest(listed, file, hashed, size, content, source)
            if found is not None and is_resumed:  # the part from before may have been damaged
                file.seek(0)
                file.truncate()
                found = _fetch_rest(listed, file, sha256(), 0, content, source)
            if found is not None:
                raise found
            file.flush()
            os.fsync(file.fileno())
    except ServerAway:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _open_own(path: Path) -> BinaryIO:
    """Open the file with what an earlier attempt wrote. Links are not followed."""
    if path.is_symlink():
        path.unlink()
    return os.fdopen(os.open(path, OPENED, 0o600), "r+b")


def _hash_partial(file: BinaryIO, listed: entries.File) -> tuple[Hash, int]:
    """Hash and count the bytes on disk; drop them if they cannot be the start of this file."""
    hashed, size = sha256(), 0
    while piece := file.read(PIECE_BYTES):
        hashed.update(piece)
        size += len(piece)
        if size > listed.bytes:
            break
    if size > listed.bytes or (size == listed.bytes and hashed.hexdigest() != listed.sha256):
        file.seek(0)
        file.truncate()
        return sha256(), 0
    return hashed, size


def _fetch_rest(
    listed: entries.File, file: BinaryIO, hashed: Hash, size: int, content: str, source: Source
) -> ContentMismatch | None:
    """Fetch and append the missing bytes; return an error if the file is not the listed one."""

    def write(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        hashed.update(piece)
        file.write(piece)

    if size < listed.bytes or not size:
        source.file(content, listed.sha256, listed.bytes, write, size)
    if size == listed.bytes and hashed.hexdigest() == listed.sha256:
        return None
    return ContentMismatch(
        f"{listed.path[:200]} has {size} bytes and the hash {hashed.hexdigest()},"
        f" expected {listed.bytes} and {listed.sha256}",
        expected=listed.sha256,
        found=hashed.hexdigest(),
    )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _is_complete(listed: entries.File, path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or S_IMODE(path.stat().st_mode) != listed.mode:
        return False
    return _hash(path) == listed.sha256


def _holds(directory: Path, closure: str) -> bool:
    """Whether the directory holds exactly this artifact, with the right executable bits."""
    files: list[entries.File] = []
    try:
        for path in _walk(directory):
            if len(files) >= manifests.FILES_MAX:
                return False
            files.append(_entry(path, path.relative_to(directory).as_posix()))
        return manifests.FileManifest(files).digest == closure
    except (Invalid, TooLarge):  # it holds something that no release can have
        return False


def _entry(path: Path, name: str) -> entries.File:
    """Raises: InvalidFilePath, InvalidLink."""
    found = path.lstat()
    if S_ISLNK(found.st_mode):
        return entries.link_to(name, os.readlink(path))
    if not S_ISREG(found.st_mode):
        raise refusals.InvalidFilePath(name, "it is neither a file nor a link")
    executable = bool(found.st_mode & S_IXUSR)
    return entries.File(name, _hash(path), found.st_size, executable=executable)


def _walk(directory: Path) -> Iterator[Path]:
    """Files and links below a directory; links are not followed."""
    for root, directories, names in os.walk(directory):
        for name in (*directories, *names):
            path = Path(root, name)
            if path.is_symlink() or not path.is_dir():
                yield path


def _remove_links(directory: Path) -> None:
    for path in list(_walk(directory)):
        if path.is_symlink():
            path.unlink()


def _sync(directory: Path) -> None:
    for root, _, _ in os.walk(directory):
        file = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
