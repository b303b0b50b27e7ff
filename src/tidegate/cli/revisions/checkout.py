"""A revision's files in a directory: read for a push, written by a pull.

A pull writes ``.tidegate.json`` next to the files, with the revision and its version at that time.
A push from the directory is refused if another person pushed in between.

A file is executable in the revision if its owner may execute it here.

Files are read and written in chunks, never whole in memory, and identified by their hash.

References are listed in ``.tidegate-references.json``: path, uri, sha256 and bytes of each, with
``"executable": true`` for a program. A pull or a person writes the list, and a push sends it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.domain.content import entries, manifests, paths, refusals
from tidegate.errors import Invalid, TooLarge

MARK: Final = ".tidegate.json"
REFERENCES: Final = ".tidegate-references.json"
GIT: Final = ".git"  # skipped at any depth
STAGED: Final = ".tidegate-pull-"  # the directory of an unfinished pull
_STAGE: Final = re.compile(re.escape(STAGED) + r"[a-z0-9_]{8}")  # as ``tempfile`` names it
PIECE_BYTES: Final = 256 * 1024

Files = dict[str, entries.File]  # by path as in the API; their bytes are in a directory


@dataclass(frozen=True, slots=True)
class CheckoutMark:
    """The revision and version that a directory was pulled from."""

    name: str
    version: int
    digest: str
    manifest: str  # includes the addresses of references


@dataclass(frozen=True, slots=True)
class Reference:
    """A file that is stored elsewhere."""

    path: str
    uri: str
    sha256: str
    bytes: int
    executable: bool = False


def manifest_of(files: Files, references: Iterable[Reference] = ()) -> manifests.FileManifest:
    """Build the manifest of the files. It also depends on the addresses of references.

    Raises:
        Invalid, TooLarge: these cannot be the files of a revision.
    """
    linked = (
        entries.File(item.path, item.sha256, item.bytes, item.uri, item.executable)
        for item in references
    )
    return manifests.FileManifest((*files.values(), *linked))


def read(directory: Path) -> Files:
    """All files below a directory, without ``.git`` and our own files in it.

    Raises:
        CommandExit: the directory does not exist, has something other than plain files and links,
            or too much content.
    """
    if not directory.is_dir():
        raise CommandExit(ExitCode.USAGE, f"there is no directory {directory}", "ls -ld PATH")
    files: Files = {}
    for path in _below(directory):
        named = path.relative_to(directory).as_posix()
        try:
            paths.check_file_path(named)
            files[named] = _entry(named, path)
        except (refusals.InvalidFilePath, refusals.InvalidLink) as error:
            raise CommandExit(ExitCode.USAGE, error.detail, f"ls -lb {directory}") from None
        except OSError as error:
            raise CommandExit(
                ExitCode.USAGE, f"{named} cannot be read: {error.strerror}", f"ls -l {path}"
            ) from None
        if len(files) > manifests.FILES_MAX:
            raise CommandExit(
                ExitCode.REFUSED,
                f"{directory} holds more than {manifests.FILES_MAX} files",
                "tidegate rev push --help",
            )
    return files


def _entry(named: str, path: Path) -> entries.File:
    if path.is_symlink():
        return entries.link_to(named, os.readlink(path))
    with path.open("rb") as file:
        hashed = file_digest(file, "sha256").hexdigest()
        found = os.fstat(file.fileno())
    return entries.File(named, hashed, found.st_size, executable=bool(found.st_mode & stat.S_IXUSR))


def reference_from_json(item: Any) -> Reference:
    """Parse a reference from JSON. Raises: KeyError, TypeError, ValueError."""
    executable = item.get("executable", False)
    if not isinstance(executable, bool):
        raise TypeError(f"executable is true or false, not {executable!r}")
    return Reference(
        str(item["path"]), str(item["uri"]), str(item["sha256"]), int(item["bytes"]), executable
    )


def reference_to_json(item: Reference) -> dict[str, Any]:
    """A reference in JSON. ``executable`` is omitted unless it is true."""
    return {name: value for name, value in asdict(item).items() if value is not False}


def read_references(directory: Path) -> tuple[Reference, ...]:
    """Read the directory's list of references. Raises: CommandExit: the list is malformed."""
    place = directory / REFERENCES
    try:
        return tuple(reference_from_json(item) for item in json.loads(place.read_text()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandExit(
            ExitCode.USAGE,
            f"{place} is no list of path, uri, sha256 and bytes: {type(error).__name__} {error}",
            "tidegate rev push --help",
        ) from None


def write_references(directory: Path, references: Iterable[Reference]) -> None:
    """Write the directory's list of references, or delete it if there are none."""
    items = [
        reference_to_json(item) for item in sorted(references, key=lambda item: item.path.encode())
    ]
    if items:
        _replace(directory / REFERENCES, (json.dumps(items, indent=2) + "\n").encode())
    else:
        (directory / REFERENCES).unlink(missing_ok=True)


def _below(directory: Path) -> list[Path]:
    """The files and links in a fixed order. Links are not followed."""
    found: list[Path] = []
    for root, directories, names in os.walk(directory):
        is_top = Path(root) == directory
        kept, others = (
            sorted(name for name in found if name != GIT and not (is_top and _is_ours(name)))
            for found in (directories, names)
        )
        directories[:] = kept
        for name in (*kept, *others):
            path = Path(root, name)
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise CommandExit(
                    ExitCode.USAGE,
                    f"{path.relative_to(directory)} is no plain file; a revision holds files and"
                    " links",
                    f"ls -l {path}",
                )
            found.append(path)
    return found


def _is_ours(name: str) -> bool:
    """Whether a name at the top of the directory is one of our own files."""
    return name in (MARK, REFERENCES) or _STAGE.fullmatch(name) is not None


def read_mark(directory: Path) -> CheckoutMark | None:
    """Read the mark of the last pull; None if there is none or it is unreadable."""
    try:
        found = json.loads((directory / MARK).read_text())
        name, version = str(found["name"]), int(found["version"])
        return CheckoutMark(name, version, str(found["digest"]), str(found["manifest"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def mark(directory: Path, what: CheckoutMark) -> None:
    _replace(directory / MARK, (json.dumps(asdict(what), indent=2) + "\n").encode())


def check_free(directory: Path, name: str, *, discard: bool) -> None:
    """Check that a pull of this revision may write here without losing changes.

    Raises:
        CommandExit: names what would be lost.
    """
    if not directory.exists() or all(_STAGE.fullmatch(path.name) for path in directory.iterdir()):
        return  # the rest of a killed pull does not matter
    mark = read_mark(directory)
    if mark is None or mark.name != name:
        held = "files of its own" if mark is None else mark.name
        raise CommandExit(
            ExitCode.CONFLICT,
            f"{directory} holds {held}",
            f"tidegate rev pull {name} ANOTHER-DIRECTORY",
        )
    if not discard and _is_changed(directory, mark):
        raise CommandExit(
            ExitCode.CONFLICT,
            f"{directory} has changes that were not pushed",
            f"tidegate rev push {name} {directory}",
            f"tidegate rev pull {name} {directory} --discard",
        )


def _is_changed(directory: Path, mark: CheckoutMark) -> bool:
    try:
        found = manifest_of(read(directory), read_references(directory)).content
    except (Invalid, TooLarge):
        return True  # a file that no revision can contain was not pushed
    return found.manifest != mark.manifest


@contextmanager
def staging(directory: Path) -> Iterator[Path]:
    """A temporary directory on the same disk, for files that are not verified yet.

    It is deleted at the end, with the rest of killed pulls, and with the target directory if that
    was created for it and stays empty.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _remove_old_stages(directory)
    stage = Path(tempfile.mkdtemp(dir=directory, prefix=STAGED))
    in_use = _lock(stage)
    try:
        yield stage
    finally:
        rmtree(stage, ignore_errors=True)
        if in_use is not None:
            os.close(in_use)
        with suppress(OSError):
            directory.rmdir()  # fails if it is not empty


def _remove_old_stages(directory: Path) -> None:
    for path in directory.iterdir():
        if _STAGE.fullmatch(path.name) is None or path.is_symlink():
            continue
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif (free := _lock(path)) is not None:
            rmtree(path, ignore_errors=True)
            os.close(free)


def _lock(stage: Path) -> int | None:
    """Lock a directory until the returned descriptor is closed; None: another process has it."""
    try:
        opened = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def stage_file(
    stage: Path, named: str, pieces: Iterable[bytes], *, executable: bool
) -> entries.File:
    """Write a file of a pull into its staging directory. Raises: CommandExit, OSError."""
    check_path(named)
    place = stage / named
    place.parent.mkdir(parents=True, exist_ok=True)
    hashed, size = sha256(), 0
    with place.open("xb") as file:
        for piece in pieces:
            hashed.update(piece)
            size += len(piece)
            file.write(piece)
    umask = os.umask(0)
    os.umask(umask)
    place.chmod((0o777 if executable else 0o666) & ~umask)
    return entries.File(named, hashed.hexdigest(), size, executable=executable)


def write(
    directory: Path,
    stage: Path,
    files: Files,
    what: CheckoutMark,
    references: tuple[Reference, ...] = (),
) -> None:
    """Move the staged files into the directory, and delete the files of an earlier pull.

    Raises:
        CommandExit: the files do not match their digest, or something is in the way.
    """
    try:
        found = manifest_of(files, references).digest
    except (Invalid, TooLarge) as error:
        raise CommandExit(
            ExitCode.REFUSED,
            f"the server named files that no revision holds: {error.detail}",
            "tidegate doctor",
        ) from None
    if found != what.digest:
        raise CommandExit(
            ExitCode.UNAVAILABLE,
            f"the files of {what.name} are not those of its digest {what.digest}",
            f"tidegate rev pull {what.name}",
        )
    # Old links and removed files are deleted first, and new links are created last. So no write
    # goes through a link.
    for old in _below(directory):
        if old.is_symlink() or old.relative_to(directory).as_posix() not in files:
            old.unlink()
            _prune(old.parent, directory)
    for named, file in sorted(files.items(), key=lambda item: item[1].link is not None):
        place = directory / named
        _make_parents(place, directory)
        if place.is_symlink() or place.is_dir():
            raise CommandExit(ExitCode.CONFLICT, f"{place} is in the way", f"ls -l {place}")
        if file.link is None:
            (stage / named).replace(place)
        else:
            place.symlink_to(file.link)
    write_references(directory, references)
    mark(directory, what)


def _make_parents(place: Path, root: Path) -> None:
    """Create the directories of a file. Raises: CommandExit: one of them is a link."""
    for parent in reversed(place.relative_to(root).parents):
        path = root / parent
        if path != root and path.is_symlink():
            raise CommandExit(ExitCode.CONFLICT, f"{path} is in the way", f"ls -l {path}")
        path.mkdir(exist_ok=True)


def check_path(path: str) -> None:
    """Raises: CommandExit: the path leads out of the directory, so the server is not trusted, or
    it is one that a push never sends. Git runs programs that a ``.git`` directory names.
    """
    try:
        paths.check_file_path(path)
    except refusals.InvalidFilePath as error:
        raise CommandExit(
            ExitCode.REFUSED, f"the server sent an invalid file: {error.detail}", "tidegate doctor"
        ) from None
    segments = path.split("/")
    if any(name.lower() == GIT for name in segments) or _is_ours(segments[0]):
        raise CommandExit(
            ExitCode.REFUSED,
            f"the revision has the file {path[:80]!r}, which a pull does not write: it belongs to"
            " Git or to tidegate",
            "tidegate rev files --help",
        )


def _replace(place: Path, content: bytes) -> None:
    """Write the file atomically, replacing whatever is there."""
    if place.is_symlink() or place.is_dir():
        raise CommandExit(ExitCode.CONFLICT, f"{place} is in the way", f"ls -l {place}")
    handle, fresh = tempfile.mkstemp(dir=place.parent, prefix=STAGED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        Path(fresh).chmod(0o666 & ~umask)
        Path(fresh).replace(place)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def _prune(directory: Path, root: Path) -> None:
    while directory != root:
        try:
            directory.rmdir()
        except OSError:
            return  # not empty
        directory = directory.parent
