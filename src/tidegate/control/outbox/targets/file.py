"""A target that writes files: ``<directory>/<scope>/<operation>.json``, replaced atomically.

A reader sees either the old or the new content. The content includes its key and sequence, so a
repeat writes nothing, and a late effect does not overwrite a newer one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from tidegate import decoders, errors
from tidegate.control.outbox.targets import Effect, TargetDone, TargetFailed, Unobservable
from tidegate.domain.outbox import names, reconciliation

FILE_BYTES_MAX = 64 * 1024
TIMEOUT_SECONDS = 5.0  # a local write; used only for the lease


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    idempotency_key: str
    effect: Effect


class FileTarget:
    """Writes effects below an existing directory.

    Raises:
        InvalidInput: the directory does not exist.
    """

    timeout_seconds = TIMEOUT_SECONDS

    def __init__(self, directory: Path | str, *, name: str = "file") -> None:
        self.name = name
        self._directory = Path(directory)
        if not self._directory.is_dir():
            raise errors.InvalidInput(
                "the directory of a file target does not exist", field="directory"
            )

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        names.check_name("scope", effect.scope)
        names.check_name("operation", effect.operation)
        try:
            (self._directory / effect.scope).mkdir(mode=0o700, exist_ok=True)
            with self._scope(effect.scope) as place:
                return _replace(place, key, effect)
        except OSError as error:
            return TargetFailed(error.strerror or type(error).__name__)

    def try_out(self) -> TargetDone | TargetFailed:
        """Write an unnamed temporary file, of which nothing remains."""
        try:
            with tempfile.TemporaryFile(dir=self._directory) as file:
                file.write(b"test")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return TargetFailed(error.strerror or type(error).__name__)
        return TargetDone("the directory can be written")

    def observe(self, scope: str, operation: str) -> reconciliation.Observation | None:
        names.check_name("scope", scope)
        names.check_name("operation", operation)
        try:
            with self._scope(scope) as place:
                content = _read(place, f"{operation}.json")
        except FileNotFoundError:
            return reconciliation.Observation()
        except (OSError, msgspec.DecodeError) as error:
            raise Unobservable(f"the file of {operation} cannot be read") from error
        if content is None:
            return reconciliation.Observation()
        state: dict[str, str] = msgspec.to_builtins(content.effect.requested_state)
        return reconciliation.Observation(content.idempotency_key, state)

    @contextmanager
    def _scope(self, scope: str) -> Iterator[int]:
        """Open the scope's directory without following a symbolic link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        place = os.open(self._directory / scope, flags)
        try:
            yield place
        finally:
            os.close(place)


def _replace(place: int, key: str, effect: Effect) -> TargetDone | TargetFailed:
    name = f"{effect.operation}.json"
    try:
        known = _read(place, name)
    except msgspec.DecodeError:
        return TargetFailed("the file holds something that is not ours", retryable=False)
    if known is not None and known.idempotency_key == key:
        return TargetDone("it exists already")
    if known is not None and known.effect.sequence > effect.sequence:
        return TargetFailed("a newer effect is there", retryable=False)
    _write(place, name, key, msgspec.json.encode(_Content(key, effect)))
    return TargetDone()


_content = decoders.build(_Content)


def _read(place: int, name: str) -> _Content | None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        return _content.decode(opened.read(FILE_BYTES_MAX))


def _write(place: int, name: str, key: str, content: bytes) -> None:
    # Named by its key: two writers of one effect write the same bytes; others use other names.
    draft = f".{name}.{sha256(key.encode()).hexdigest()[:16]}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600, dir_fd=place), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    os.rename(draft, name, src_dir_fd=place, dst_dir_fd=place)
    os.fsync(place)
