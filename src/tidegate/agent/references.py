"""Fetch files by reference from the address that the release names, and verify them.

    uri ──▶ redirects, few ──▶ pieces, no more than announced ──▶ size and hash? ──▶ the file
     └──────────── all of it within one deadline ───────┘

The request holds nothing secret: no session, cookie, key or host name. The content is compared
with the hash that people approved, so the address need not be trusted (ADR-0013).

An author of a release must not reach the host's private network this way. So each name is resolved
once, and all its addresses must be public, unless the settings allow its host and port. This is
checked for every connection, including redirects.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpcore2
import httpx2

from tidegate import bounded_http, public_addresses
from tidegate.agent.errors import ContentMismatch, ReferenceAway, ReferenceRefused
from tidegate.domain.content.entries import File

CONNECT_SECONDS: Final = 5.0
PIECE_SECONDS: Final = 15.0  # to wait for the next piece
FETCH_SECONDS_MAX: Final = 300.0  # for a whole file
PIECE_BYTES: Final = 64 * 1024
REDIRECTS_MAX: Final = 5
SHOWN_CHARS_MAX: Final = 200
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
PASSING: Final = frozenset({408, 425, 429})  # and every status from 500 on
HEADERS: Final = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "tidegate-agent"}


log = logging.getLogger("tidegate.agent")


class References:
    """Fetches referenced files.

    ``directories``: where ``file:`` references may point to. ``seconds``: the timeout of one file.
    ``hosts``: each ``host:port`` that may have a private address.
    """

    def __init__(
        self,
        directories: tuple[Path, ...] = (),
        seconds: float = FETCH_SECONDS_MAX,
        hosts: Container[str] = frozenset(),
    ) -> None:
        self._directories = directories
        self._seconds = seconds
        self._hosts = hosts

    def fetch(self, listed: File, uri: str, path: Path) -> None:
        """Write the referenced file to ``path`` durably, with its mode; on failure remove it.

        Raises:
            ContentMismatch: the file is not the one that the release names.
            ReferenceRefused: it cannot be fetched. ReferenceAway: not now. OSError: our disk.
        """
        deadline = bounded_http.ExchangeDeadline(self._seconds)
        is_local = uri.startswith("file:")
        opened = (
            _local(self._resolve_path(uri)) if is_local else _remote(uri, deadline, self._hosts)
        )
        try:
            with opened as pieces, path.open("wb") as file:
                os.fchmod(file.fileno(), listed.mode)
                hashed, size = sha256(), 0
                for piece in pieces:
                    size += len(piece)
                    if size > listed.bytes:
                        raise _mismatch(listed, uri, f"more than {listed.bytes} bytes")
                    if deadline.is_over:
                        raise _timed_out(uri, deadline)
                    hashed.update(piece)
                    file.write(piece)
                if size != listed.bytes:
                    raise _mismatch(listed, uri, f"{size} bytes, expected {listed.bytes}")
                if hashed.hexdigest() != listed.sha256:
                    raise _mismatch(listed, uri, f"{hashed.hexdigest()}, expected {listed.sha256}")
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _resolve_path(self, uri: str) -> Path:
        """Resolve the path of a ``file:`` reference that this host's settings allow.

        Raises: ReferenceRefused.
        """
        try:
            parts = urlsplit(uri)
            real = Path(os.path.realpath(unquote(parts.path)))
        except ValueError as error:
            raise ReferenceRefused(f"{_shorten(uri)} names no file: {error}") from None
        allowed = (Path(os.path.realpath(directory)) for directory in self._directories)
        if parts.netloc or not any(real.is_relative_to(directory) for directory in allowed):
            raise ReferenceRefused(
                f"{_shorten(uri)} lies in no directory that reference_directories of this agent"
                " names"
            )
        return real


HTTP_ALONE: Final = References()  # for hosts whose settings allow no file: references


@contextmanager
def _local(path: Path) -> Iterator[Iterator[bytes]]:
    try:
        # Do not block: it may be a pipe without a writer.
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ReferenceRefused(f"{path} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ReferenceRefused(f"{path} is no plain file")
        yield iter(lambda: os.read(opened, PIECE_BYTES), b"")
    finally:
        os.close(opened)


@contextmanager
def _remote(
    uri: str, deadline: bounded_http.ExchangeDeadline, hosts: Container[str]
) -> Iterator[Iterator[bytes]]:
    """The body after redirects. The client is separate, so it has no session or cookie."""
    try:
        timeout = httpx2.Timeout(PIECE_SECONDS, connect=CONNECT_SECONDS)
        transport = bounded_http.BoundedTransport(
            _GuardedBackend(deadline, hosts), bounded_http.trusted_roots()
        )
        with httpx2.Client(
            headers=HEADERS, timeout=timeout, trust_env=False, transport=transport
        ) as client:
            url = httpx2.URL(uri)
            if url.scheme not in ("https", "http") or not url.host:
                raise ReferenceRefused(f"{_shorten(uri)} is no address of the web")
            for _ in range(REDIRECTS_MAX + 1):
                client.cookies.clear()
                with client.stream("GET", url) as answer:
                    if answer.status_code not in REDIRECTS:
                        yield _body(uri, answer)
                        return
                    url = _follow_redirect(uri, url, answer)
            raise ReferenceRefused(
                f"{_shorten(uri)} leads through more than {REDIRECTS_MAX} others"
            )
    except (httpx2.InvalidURL, ValueError) as error:  # an invalid host name
        raise ReferenceRefused(f"{_shorten(uri)} is no address: {error}") from None
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        if deadline.is_over:
            raise _timed_out(uri, deadline) from None
        raise ReferenceAway(f"{_shorten(uri)}: {type(error).__name__} {error}") from None


class _GuardedBackend(bounded_http.BoundedBackend):
    """Connects to public addresses, and to all addresses of the hosts in the settings."""

    def __init__(self, deadline: bounded_http.ExchangeDeadline, hosts: Container[str]) -> None:
        super().__init__(deadline)
        self._hosts = hosts

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in self._addresses(host, port):
            try:
                return super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    def _addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Raises: ReferenceRefused: one of them is not public."""
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            found = public_addresses.system_resolve(host, port)[: public_addresses.ADDRESSES_MAX]
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from None
        if name not in self._hosts and not all(map(public_addresses.is_public, found)):
            raise ReferenceRefused(
                f"{name[:SHOWN_CHARS_MAX]} leads to an address that is not public, and"
                " reference_hosts of this agent does not name it"
            )
        return found


def _body(uri: str, answer: httpx2.Response) -> Iterator[bytes]:
    status = answer.status_code
    if status == 200:
        return (
            answer.iter_raw()
        )  # raw pieces, so that the deadline is checked even if they are slow
    if status >= 500 or status in PASSING:
        raise ReferenceAway(f"{_shorten(uri)} answers {status}")
    raise ReferenceRefused(f"{_shorten(uri)} answers {status}")


def _follow_redirect(uri: str, url: httpx2.URL, answer: httpx2.Response) -> httpx2.URL:
    """The target of a redirect. It may lead neither to a file nor from https to http."""
    found = url.join(answer.headers.get("location", ""))
    if found.scheme not in ("https", url.scheme) or not found.host:
        raise ReferenceRefused(
            f"{_shorten(uri)} leads to {_shorten(str(found))}, which is not followed"
        )
    return found.copy_with(username=None, password=None)


def _timed_out(uri: str, deadline: bounded_http.ExchangeDeadline) -> ReferenceAway:
    return ReferenceAway(f"{_shorten(uri)} took longer than {deadline.seconds:g} s")


def _mismatch(listed: File, uri: str, found: str) -> ContentMismatch:
    """Write what was found only to this host's log: in a report, the author of the release could
    read what the address holds.
    """
    log.warning("%s at %s is %s", listed.path[:SHOWN_CHARS_MAX], _shorten(uri), found)
    return ContentMismatch(
        f"{listed.path[:SHOWN_CHARS_MAX]} at {_shorten(uri)} is not what the release names; the"
        " agent's log says what it is",
        expected=listed.sha256,
    )


def _shorten(uri: str) -> str:
    """Shorten an address for logs and people; drop the query, which may be a signature."""
    return uri.partition("?")[0][:SHOWN_CHARS_MAX]
