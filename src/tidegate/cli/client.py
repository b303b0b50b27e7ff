"""The HTTP client: idempotency keys, versions, retries, pages, problems.

It uses plain ``http.client``, because importing a bigger library takes longer than most commands.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from tidegate import __version__
from tidegate.cli import dry_run, exit_codes, hints, paths
from tidegate.cli.profile import Profile

if TYPE_CHECKING:
    from pathlib import Path

ATTEMPTS_MAX = 5
PAUSE_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 30.0
PAGES_MAX = 10_000
KNOWN_MAX = 64  # responses that are cached with their ETag
PAGE_ROWS = 500
CHUNK_BYTES = 64 * 1024
ANSWER_BYTES_MAX = 256 * 1024 * 1024
ACCEPTED: Final = 202
PARTIAL: Final = 206
REPEATED: Final = frozenset({429, 503})  # nothing was done, or the key makes a retry harmless

UNKNOWN_CALLER: Final = frozenset({"unauthenticated", "wrong_credentials"})
NOT_SET_UP: Final = "Nobody has set this server up yet."

TRANSFER_SECONDS = 300.0  # without a byte, while a file is sent or received
Progress = Callable[[int], None]  # called with the number of further bytes


@dataclass(frozen=True, slots=True)
class FileBody:
    """A file that is sent as a request body in chunks, from its beginning in each attempt."""

    place: Path
    size: int
    progress: Progress

    def pieces(self) -> Generator[bytes, None, None]:
        with self.place.open("rb") as file:
            sent = 0
            try:
                while sent < self.size and (part := file.read(min(CHUNK_BYTES, self.size - sent))):
                    yield part
                    sent += len(part)
                    self.progress(len(part))
            except GeneratorExit:
                self.progress(-sent)
                raise


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A successful response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def etag(self) -> str | None:
        return self.headers.get("etag")

    @property
    def position(self) -> int:
        """The log position of this write; 0: it wrote nothing."""
        return int(self.headers.get("tidegate-position", "0"))

    def json(self) -> Any:
        """Parse the body. Raises: CommandExit: it is not JSON, so this is not a Tidegate server."""
        if not self.body:
            return {}
        try:
            return json.loads(self.body)
        except ValueError:
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.UNAVAILABLE,
                "the answer is not JSON: is this address a Tidegate server?",
                "tidegate whoami",
            ) from None


class ApiClient:
    """A client for one server and one principal, with one connection at a time."""

    def __init__(self, profile: Profile, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.profile = profile
        self.attempts_max = ATTEMPTS_MAX
        self.break_glass = ""  # the reason for bypassing the approval of a protected channel
        self.dry_run = False  # writes are only dry runs
        self._timeout = timeout
        self._known: dict[str, ServerResponse] = {}
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, query: paths.Query | None = None) -> ServerResponse:
        """GET, with a cache: the server does not send an unchanged response again."""
        target = paths.located(path, query)
        known = self._known.get(target)
        headers = {} if known is None else {"If-None-Match": known.etag or ""}
        answer = self._send("GET", target, headers, None)
        if answer.status == 304 and known is not None:
            return known
        if answer.etag is not None and len(self._known) < KNOWN_MAX:
            self._known[target] = answer
        return answer

    def write(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        etag: str | None = None,
        query: paths.Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ServerResponse:
        """Send a write. Every retry carries the same idempotency key, so it is applied once."""
        all_headers = {"Idempotency-Key": os.urandom(16).hex(), **(headers or {})}
        if etag is not None:
            all_headers["If-Match"] = etag
        content: bytes | FileBody | None = None
        if isinstance(body, bytes | FileBody):
            all_headers["Content-Type"] = "application/octet-stream"
            content = body
        elif body is not None:
            all_headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        if self.break_glass:
            all_headers["Tidegate-Break-Glass"] = quote(self.break_glass, safe="")
        if self.dry_run:
            all_headers["Tidegate-Dry-Run"] = "true"
        answer = self._send(method, paths.located(path, query), all_headers, content)
        if answer.status == ACCEPTED and "approvers" in answer.json():
            raise waits(answer.json())
        if self.dry_run:
            raise dry_run.DryRunAnswered(answer.json())
        return answer

    def items(self, path: str, query: paths.Query | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page."""
        asked = {"limit": PAGE_ROWS, **(query or {})}
        for _ in range(PAGES_MAX):
            page = self.get(path, asked).json()
            yield from page["items"]
            if page.get("next") is None:
                return
            asked["next"] = page["next"]

    def _send(
        self, method: str, target: str, headers: dict[str, str], body: bytes | FileBody | None
    ) -> ServerResponse:
        """Send a request, again after a lost connection or a "try later". Raises: CommandExit."""
        for attempt in range(1, self.attempts_max + 1):
            last = attempt == self.attempts_max
            try:
                answer = self._exchange(method, target, headers, body)
            except ConnectionRefusedError as error:
                raise self.unreachable(error) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()  # the same key makes a retry safe
                if last or isinstance(error, TimeoutError):
                    raise self.unreachable(error) from None
                time.sleep(_pause(attempt, None))
                continue
            if answer.status < 300 or answer.status == 304:
                return answer
            if answer.status < 400:
                raise self._redirect_error(answer)
            if last or answer.status not in REPEATED:
                raise self._refusal(answer)
            time.sleep(_pause(attempt, answer.headers.get("retry-after")))
        raise AssertionError("some attempt is the last")

    def _refusal(self, answer: ServerResponse) -> exit_codes.CommandExit:
        """The error of a refused request, with one of its own for a server that is not set up."""
        stop = hints.problem(answer.status, answer.body, answer.headers)
        if stop.problem.get("code") not in UNKNOWN_CALLER:
            return stop
        try:
            anonymous = ApiClient(Profile(self.profile.url, None), timeout=self._timeout)
            found = anonymous._exchange("GET", paths.at("setup"), {}, None)
            anonymous.close()
            is_set_up = found.status != 200 or found.json().get("set_up", True)
        except (OSError, http.client.HTTPException, exit_codes.CommandExit):
            return stop
        if is_set_up:
            return stop
        return exit_codes.CommandExit(stop.code, NOT_SET_UP, "tidegate setup")

    def _exchange(
        self, method: str, target: str, headers: dict[str, str], body: bytes | FileBody | None
    ) -> ServerResponse:
        with self._open_response(method, target, headers, body) as response:
            content = response.read(ANSWER_BYTES_MAX)
            return ServerResponse(response.status, _named(response), content)

    def _open_response(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | FileBody | None = None,
        timeout: float = 0.0,
    ) -> http.client.HTTPResponse:
        """Send a request and return the head of the response. Raises: OSError, HTTPException."""
        if self._connection is None:
            self._connection = self._make_connection()
        connection = self._connection
        all_headers = {
            "Accept": "application/json, application/problem+json, */*;q=0.1",
            "User-Agent": f"tidegate/{__version__}",
            **headers,
        }
        if self.profile.token is not None:
            all_headers["Authorization"] = f"Bearer {self.profile.token}"
        is_file = isinstance(body, FileBody)
        connection.timeout = TRANSFER_SECONDS if is_file else timeout or self._timeout
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        if not isinstance(body, FileBody):
            connection.request(method, target, body, all_headers)
            return connection.getresponse()
        all_headers["Content-Length"] = str(body.size)
        pieces = body.pieces()
        try:
            connection.request(method, target, pieces, all_headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may have refused early; its response says why
        finally:
            pieces.close()
        return connection.getresponse()

    def download(self, path: str) -> DownloadReader:
        """Download something large in chunks. Raises: CommandExit."""
        return DownloadReader(self, paths.located(path, None))

    def open(self, target: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Request something large and return the response with its body unread.

        Raises:
            CommandExit: the server refuses. OSError, HTTPException: it is unreachable.
        """
        response = self._open_response("GET", target, headers, timeout=TRANSFER_SECONDS)
        if response.status < 300:
            return response
        with response:
            body = response.read(ANSWER_BYTES_MAX)
        answer = ServerResponse(response.status, _named(response), body)
        if answer.status < 400:
            raise self._redirect_error(answer)
        raise hints.problem(answer.status, answer.body, answer.headers)

    def _make_connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.profile.url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            return kind(parts.hostname or "", parts.port, timeout=self._timeout)
        except ValueError as error:
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.USAGE, f"{self.profile.url}: {error}", "tidegate --help"
            ) from None

    def _redirect_error(self, answer: ServerResponse) -> exit_codes.CommandExit:
        """The error of a redirect, which is not followed, because the token is for this server."""
        place = answer.headers.get("location", "another place")
        return exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"{self.profile.url} sends us to {place}",
            "tidegate login --url …",
        )

    def unreachable(self, error: Exception) -> exit_codes.CommandExit:
        words = str(error) or type(error).__name__
        return exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"no answer from {self.profile.url}: {words}",
            "tidegate login --url …",
            more=(
                "Check the URL, and that the server runs. Another URL: --url or TIDEGATE_URL.",
                "A new server on this machine starts with: tidegate serve --data DIR",
            ),
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class DownloadReader:
    """The body of a large response as a file to read from.

    If the connection breaks, it reconnects and requests the rest. It fails if the body has changed
    in between.

    Raises:
        CommandExit.
    """

    def __init__(self, client: ApiClient, target: str) -> None:
        self._client = client
        self._target = target
        self._read = 0
        self._failures = 0
        self._etag = ""
        self.size = 0
        self.progress: Progress = _no_progress
        self._response: http.client.HTTPResponse | None = None
        self._open()

    def read(self, size: int) -> bytes:
        """Read at most ``size`` bytes; empty at the end."""
        while self._read < self.size:
            try:
                if self._response is None:
                    self._open()
                assert self._response is not None
                part = self._response.read(min(size, CHUNK_BYTES))
                if not part:
                    raise http.client.IncompleteRead(b"", self.size - self._read)
            except (OSError, http.client.HTTPException) as error:
                self._fail(error)
                continue
            self._read += len(part)
            self._failures = 0
            self.progress(len(part))
            return part
        return b""

    def close(self) -> None:
        self._drop()
        if self._read < self.size:
            self._client.close()

    def _drop(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None

    def _open(self) -> None:
        while True:
            try:
                self._response = self._request_rest()
                return
            except (OSError, http.client.HTTPException) as error:
                self._fail(error)

    def _request_rest(self) -> http.client.HTTPResponse:
        if not self._etag:
            response = self._client.open(self._target, {})
            self._etag = response.headers.get("etag", "")
            self.size = int(response.headers.get("content-length", "0"))
            return response
        all_headers = {"Range": f"bytes={self._read}-", "If-Range": self._etag}
        response = self._client.open(self._target, all_headers)
        if response.status != PARTIAL:
            response.close()
            self._client.close()
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.CONFLICT,
                "it was changed while it was read; try again",
                "tidegate doctor",
            )
        return response

    def _fail(self, error: Exception) -> None:
        """Wait before a retry. Raises: CommandExit: too many retries without a new byte."""
        self._drop()
        self._client.close()
        self._failures += 1
        if self._failures >= ATTEMPTS_MAX or isinstance(error, ConnectionRefusedError):
            raise self._client.unreachable(error) from None
        time.sleep(_pause(self._failures, None))


def _no_progress(_: int) -> None:
    pass


def _named(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _pause(attempt: int, retry_after: str | None) -> float:
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return min(PAUSE_SECONDS_MAX, max(asked, 0.2 * float(2**attempt)))


def waits(request: Mapping[str, Any]) -> exit_codes.CommandExit:
    """The end of a command for which a request was made, because the channel is protected."""
    request_id = request["request_id"]
    ways = (
        line
        for way in request.get("alternatives") or ()
        for line in (f"{way['says']}:", f"try: {way['command']}")
    )
    return exit_codes.CommandExit(
        exit_codes.ExitCode.WAITING,
        f"{request['channel']} is protected, and nothing was changed yet. {request['next']}",
        f"tidegate request show {request_id}",
        more=(*(f"note: {note}" for note in request.get("notes") or ()), *ways),
        problem=request,
    )
