"""Back up an installation into one directory, and restore it.

    backup/
      backup.json    log, head, time, digests; written last, so without it the backup is incomplete
      tidegate.db    the database as it was at one moment
      secret         encrypts names and signs sessions, so protect the backup like the server
      blobs/         every blob that the database in the backup references, and no other

A server may run while a backup is taken. The database is copied first, then the blobs that the
copy references: they exist, because a blob is durable before the commit that references it. Blobs
that a previous backup has are hard-linked from there, so a second backup stores only what is new.
Each backup is complete: you may delete any of them at any time. A restore begins a new epoch, a
fact at the head of the log, because what was acknowledged after the backup is lost.

Credentials that ended after the backup would become valid again. So a restore ends every session,
API token and enrollment token. Passwords and agent keys stay: without them no one could sign in,
and every host would have to enroll again. The restore and the doctor warn that keys may have been
revoked since the backup. A restore can also revoke the keys of all agents.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from fcntl import LOCK_EX, flock
from hashlib import file_digest
from pathlib import Path
from typing import Final

import msgspec

from tidegate import __version__, decoders
from tidegate.clock import Clock
from tidegate.control.installation import Installation
from tidegate.control.queries.reads import Reads
from tidegate.control.secrets import SECRET_FILE
from tidegate.control.storage.blobs import BlobMissing, Blobs, files
from tidegate.control.storage.garbage_collection import list_named_blobs
from tidegate.domain.access import callers, principals, roles, rows, slices
from tidegate.domain.epochs import Epoch, StartEpoch, epoch_key, start_epoch
from tidegate.domain.fleet.rows import ENROLLED, HOSTS
from tidegate.errors import Refused
from tidegate.kernel import model, store

FORMAT = 2  # a backup contains a log, so this grows with LOG_FORMAT
LABEL: Final = "backup.json"
DATABASE: Final = "tidegate.db"
PARTIAL: Final = ".partial"
LABEL_BYTES_MAX = 64 * 1024
MISSING_MAX: Final = 100
ACTOR = model.Meta(actor="restore")

Copy = Callable[[Path], model.Position]  # copies the database into this file; returns its head
OpenCopy = Callable[[Path], store.Store]


class PlaceTaken(Refused):
    """The directory for a backup or an installation is not empty."""

    code = "place_taken"


class BackupDamaged(Refused):
    """The directory is not a complete backup: files are missing or have changed."""

    code = "backup_damaged"


class LogEmpty(Refused):
    """An epoch was to begin after a restore, but the log has no events."""

    code = "log_empty"


class BackupLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The label of a backup."""

    format: int
    program: str  # version of the program that took it
    log_id: str
    head: model.Position
    taken_at: datetime
    digests: dict[str, str]  # file → SHA-256
    blobs: int
    linked: int = 0  # blobs linked from the previous backup
    missing: list[str] = []  # blobs that the database references but that were already lost


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a restore."""

    epoch: Epoch
    position: model.Position  # of the fact that begins the epoch
    users: int  # whose sessions and API tokens have ended
    enrollment_tokens: int  # that have ended
    revoked: int  # hosts whose key was revoked on request
    hosts: int  # enrolled hosts, with the keys of the backup


def back_up(
    installation: Installation,
    copy: Copy,
    open_copy: OpenCopy,
    place: Path,
    previous: Path | None = None,
) -> BackupLabel:
    """Take a backup into a directory that is new or empty. The directory appears atomically.

    ``previous`` is an earlier backup of the same log, from which blobs are linked.

    Raises:
        PlaceTaken, StoreUnavailable, BlobDamaged. BackupDamaged: ``previous`` is no backup.
        BlobsForeign: ``previous`` is of another log.
    """
    _check_empty(place)
    source = None if previous is None else _open_previous(previous, installation)
    partial = _partial(place)
    taken_at = installation.clock()
    head = copy(partial / DATABASE)
    shutil.copyfile(Path(installation.settings.data) / SECRET_FILE, partial / SECRET_FILE)
    for name in (DATABASE, SECRET_FILE):
        (partial / name).chmod(0o600)
    with closing(open_copy(partial / DATABASE)) as snapshot:
        named = list_named_blobs(snapshot, installation.blobs, taken_at, may_lack_manifests=True)
    (partial / f"{DATABASE}-lock").unlink(missing_ok=True)  # left by reading the copy
    bodies = files.FileBlobs(partial / "blobs", installation.log_id, clock=installation.clock)
    rest = [digest for digest in named if source is None or not bodies.link(digest, source)]
    missing = _copy_blobs(installation.blobs, rest, bodies)
    label = BackupLabel(
        format=FORMAT,
        program=__version__,
        log_id=installation.log_id,
        head=head,
        taken_at=taken_at,
        digests={name: _digest(partial / name) for name in (DATABASE, SECRET_FILE)},
        blobs=len(named) - len(missing),
        linked=len(named) - len(rest),
        missing=missing[:MISSING_MAX],
    )
    (partial / LABEL).touch(mode=0o600)
    (partial / LABEL).write_bytes(msgspec.json.format(msgspec.json.encode(label)))
    for name in (DATABASE, SECRET_FILE, LABEL):
        _sync(partial / name)
    _appear(partial, place)
    return label


def _open_previous(place: Path, installation: Installation) -> files.FileBlobs:
    """Open the blobs of an earlier backup. Raises: BackupDamaged, BlobsForeign."""
    read_label(place)
    return files.FileBlobs(place / "blobs", installation.log_id, clock=installation.clock)


_label = decoders.build(BackupLabel)


def read_label(place: Path) -> BackupLabel:
    """Read the label of the backup in this directory. Raises: BackupDamaged."""
    try:
        content = (place / LABEL).read_bytes()[:LABEL_BYTES_MAX]
        label = _label.decode(content)
    except OSError as error:
        raise BackupDamaged(f"{place} holds no backup: {LABEL}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise BackupDamaged(f"{place} holds no backup: {LABEL}: {error}") from None
    if label.format != FORMAT:
        raise BackupDamaged(f"the backup has format {label.format}; this program reads {FORMAT}")
    return label


def restore(
    place: Path,
    data: Path,
    start: Callable[[Path], Installation],
    clock: Clock,
    sleep: Callable[[float], None] = time.sleep,
    *,
    revoke_keys: bool = False,
) -> Restored:
    """Restore a backup into a data directory that is new or empty, and begin a new epoch there.

    ``start`` opens the installation of a directory. ``revoke_keys`` also ends the key of every
    agent, since the backup does not know which of them were revoked later. The directory appears
    atomically, with the new epoch. An epoch's number is its second, so this returns in the next
    second, and another restore gets another epoch. Restores of one backup wait for each other.

    Raises:
        PlaceTaken, BackupDamaged, BlobDamaged, StoreUnavailable.
    """
    label = read_label(place)
    with _turn(place):
        return _restore(place, label, data, start, clock, sleep, revoke_keys)


def _restore(
    place: Path,
    label: BackupLabel,
    data: Path,
    start: Callable[[Path], Installation],
    clock: Clock,
    sleep: Callable[[float], None],
    revoke_keys: bool,
) -> Restored:
    _check_empty(data)
    for name, digest in label.digests.items():
        if not (place / name).is_file() or _digest(place / name) != digest:
            raise BackupDamaged(f"{name} is missing, or is not what was backed up")
    partial = _partial(data)
    for name in label.digests:
        shutil.copyfile(place / name, partial / name)
        (partial / name).chmod(0o600)
        _sync(partial / name)
    bodies = files.FileBlobs(partial / "blobs", label.log_id, clock=clock)
    source = files.FileBlobs(place / "blobs", label.log_id, clock=clock)
    found = [blob.digest for blob in source.iterate()]
    count = len(found) - len(_copy_blobs(source, found, bodies))
    if count != label.blobs:
        raise BackupDamaged(f"{count} blobs of {label.blobs} are there")
    restored = begin_epoch(start(partial), label.head, label.taken_at, revoke_keys=revoke_keys)
    sleep(1 - restored.epoch.started_at.microsecond / 1_000_000)
    _appear(partial, data)
    return restored


def begin_after_database(installation: Installation, *, revoke_keys: bool) -> Restored:
    """Begin an epoch after the database was restored with its own tools; close the installation.

    Raises:
        StoreUnavailable, LogEmpty.
    """
    head = installation.log.head()
    newest = installation.log.feed(after=head - 1, limit=1) if head else ()
    if not newest:
        installation.close()
        raise LogEmpty("the log is empty; restore the database first")
    return begin_epoch(installation, head, newest[0].at, revoke_keys=revoke_keys)


def begin_epoch(
    installation: Installation, head: model.Position, taken_at: datetime, *, revoke_keys: bool
) -> Restored:
    """Begin an epoch, end credentials, and close the installation."""
    try:
        command = StartEpoch(backup_head=head, backed_up_at=taken_at)
        outcome = installation.control.execute(start_epoch, command, meta=ACTOR)
        found = installation.reads.find(epoch_key(), Epoch)
        assert found is not None, "it was just begun"
        return Restored(
            epoch=found.row,
            position=outcome.position,
            users=_void_credentials(installation),
            enrollment_tokens=installation.enrollment.void_tokens(ACTOR),
            revoked=_revoke_keys(installation) if revoke_keys else 0,
            hosts=count_enrolled(installation.reads),
        )
    finally:
        installation.close()


def _revoke_keys(installation: Installation) -> int:
    """End the key of every enrolled host; return how many."""
    principal = principals.Principal(
        ACTOR.actor, "restore", (roles.Grant(roles.Role.FLEET_OPERATOR),)
    )
    enrolled = [
        found.id for found in installation.reads.iterate(HOSTS) if found.row.status == ENROLLED
    ]
    for host_id in enrolled:
        installation.hosts.revoke(
            callers.Caller(principal=principal), host_id, "restored from a backup"
        )
    return len(enrolled)


def _void_credentials(installation: Installation) -> int:
    """End the sessions and API tokens of every user; return how many users there are."""
    count = 0
    for found in installation.reads.iterate(rows.USERS):
        command = slices.VoidCredentials(user_id=found.id, by=ACTOR.actor)
        count += len(
            installation.control.execute(slices.void_credentials, command, meta=ACTOR).facts
        )
    return count


def count_enrolled(reads: Reads) -> int:
    """Count the hosts with a valid key."""
    return sum(found.row.status == ENROLLED for found in reads.iterate(HOSTS))


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _turn(place: Path) -> Iterator[None]:
    """Hold a lock on a backup's label; the system releases it if the process dies."""
    with (place / LABEL).open("rb") as label:
        with suppress(OSError):  # a file system without locks: restore one at a time
            flock(label, LOCK_EX)
        yield


def _check_empty(place: Path) -> None:
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise PlaceTaken(f"{place} is not empty; name a directory that is new or empty")


def _partial(place: Path) -> Path:
    """Make a temporary directory next to the place; delete that of an earlier attempt."""
    partial = place.with_name(place.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700, parents=True)
    return partial


def _appear(partial: Path, place: Path) -> None:
    _sync(partial)
    if place.exists():
        place.rmdir()
    partial.rename(place)
    _sync(place.parent)


def _copy_blobs(source: Blobs, digests: Iterable[str], destination: Blobs) -> list[str]:
    """Copy these blobs, and return those that are missing. Raises: BlobDamaged."""
    missing = []
    for digest in digests:
        try:
            destination.put(source.stream(digest))
        except BlobMissing:
            missing.append(digest)
    return missing


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
