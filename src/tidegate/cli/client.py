"""HTTP as the verbs need it: keys, versions, repeats, pages, problems. Plain ``http.client``,
because a verb is over before a bigger library is imported.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tidegate import __version__
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.hints import problem
from tidegate.cli.paths import Query, located
from tidegate.cli.profile import Profile

ATTEMPTS_MAX = 5
PAUSE_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 30.0
PAGES_MAX = 10_000
KNOWN_MAX = 64  # answers that are kept for their ETag
PAGE_ROWS = 500
CHUNK_BYTES = 64 * 1024
ANSWER_BYTES_MAX = 256 * 1024 * 1024
ACCEPTED: Final = 202
REPEATED: Final = frozenset({429, 503})  # nothing was done, or the key makes a repeat harmless

Progress = Callable[[int, int], None]  # bytes sent so far, of how many


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """What the server said, if it did not say no."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def etag(self) -> str | None:
        return self.headers.get("etag")

    @property
    def position(self) -> int:
        """Of the log, caused by this write; 0: it wrote nothing."""
        return int(self.headers.get("tidegate-position", "0"))

    def json(self) -> Any:
        """The body. Raises: Stop: it is not JSON, so it is not one of our servers."""
        if not self.body:
            return {}
        try:
            return json.loads(self.body)
        except ValueError:
            raise CommandExit(
                ExitCode.UNAVAILABLE,
                "the answer is not JSON: is this address a Tidegate server?",
                "tidegate whoami",
            ) from None


class ApiClient:
    """One server, asked as one principal, over one connection at a time."""

    def __init__(self, profile: Profile, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.profile = profile
        self.attempts_max = ATTEMPTS_MAX
        self.break_glass = ""  # why the approval of a protected channel is gone past
        self._timeout = timeout
        self._known: dict[str, ServerResponse] = {}
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Query | None = None) -> ServerResponse:
        """Read; what was read before and has not changed is not sent again."""
        target = located(path, query)
        known = self._known.get(target)
        headers = {} if known is None else {"If-None-Match": known.etag or ""}
        answer = self._asked("GET", target, headers, None)
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
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> ServerResponse:
        """Change something, once: every repeat carries the same key."""
        said = {"Idempotency-Key": os.urandom(16).hex(), **(headers or {})}
        if etag is not None:
            said["If-Match"] = etag
        content: bytes | None = None
        if isinstance(body, bytes):
            said["Content-Type"] = "application/octet-stream"
            content = body
        elif body is not None:
            said["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        if self.break_glass:
            said["Tidegate-Break-Glass"] = quote(self.break_glass, safe="")
        answer = self._asked(method, located(path, query), said, content, progress)
        if answer.status == ACCEPTED and "approvers" in answer.json():
            raise waits(answer.json())
        return answer

    def items(self, path: str, query: Query | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page after page."""
        asked = {"limit": PAGE_ROWS, **(query or {})}
        for _ in range(PAGES_MAX):
            page = self.get(path, asked).json()
            yield from page["items"]
            if page.get("next") is None:
                return
            asked["next"] = page["next"]

    def _asked(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | None,
        progress: Progress | None = None,
    ) -> ServerResponse:
        for attempt in range(1, self.attempts_max + 1):
            last = attempt == self.attempts_max
            try:
                answer = self._exchange(method, target, headers, body, progress)
            except ConnectionRefusedError as error:
                raise self._unreachable(error) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()  # the same key makes it safe to ask again
                if last or isinstance(error, TimeoutError):
                    raise self._unreachable(error) from None
                time.sleep(_pause(attempt, None))
                continue
            if answer.status < 300 or answer.status == 304:
                return answer
            if answer.status < 400:
                raise self._elsewhere(answer)
            if last or answer.status not in REPEATED:
                raise problem(answer.status, answer.body, answer.headers)
            time.sleep(_pause(attempt, answer.headers.get("retry-after")))
        raise AssertionError("some attempt is the last")

    def _exchange(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | None,
        progress: Progress | None,
    ) -> ServerResponse:
        if self._connection is None:
            self._connection = self._connected()
        said = {
            "Accept": "application/json, application/problem+json, */*;q=0.1",
            "User-Agent": f"tidegate/{__version__}",
            **headers,
        }
        if self.profile.token is not None:
            said["Authorization"] = f"Bearer {self.profile.token}"
        sent: bytes | Iterator[bytes] | None = body
        if body is not None and progress is not None:
            said["Content-Length"] = str(len(body))
            sent = _chunks(body, progress)
        self._connection.request(method, target, sent, said)
        with self._connection.getresponse() as response:
            content = response.read(ANSWER_BYTES_MAX)
            named = {name.lower(): value for name, value in response.headers.items()}
            return ServerResponse(response.status, named, content)

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.profile.url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            return kind(parts.hostname or "", parts.port, timeout=self._timeout)
        except ValueError as error:
            raise CommandExit(
                ExitCode.USAGE, f"{self.profile.url}: {error}", "tidegate --help"
            ) from None

    def _elsewhere(self, answer: ServerResponse) -> CommandExit:
        """A redirect is told, not followed: the token is for this server alone."""
        place = answer.headers.get("location", "another place")
        return CommandExit(
            ExitCode.UNAVAILABLE,
            f"{self.profile.url} sends us to {place}",
            "tidegate login --url …",
        )

    def _unreachable(self, error: Exception) -> CommandExit:
        words = str(error) or type(error).__name__
        return CommandExit(
            ExitCode.UNAVAILABLE,
            f"no answer from {self.profile.url}: {words}",
            "tidegate serve",
            "tidegate login --url …",
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _chunks(body: bytes, progress: Progress) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK_BYTES):
        yield body[start : start + CHUNK_BYTES]
        progress(min(start + CHUNK_BYTES, len(body)), len(body))


def _pause(attempt: int, retry_after: str | None) -> float:
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return min(PAUSE_SECONDS_MAX, max(asked, 0.2 * float(2**attempt)))


def waits(request: Mapping[str, Any]) -> CommandExit:
    """The channel is protected, and a request was made: nothing is done yet."""
    request_id = request["request_id"]
    return CommandExit(
        ExitCode.WAITING,
        f"{request['channel']} is protected, and nothing was changed yet. {request['next']}",
        f"tidegate request show {request_id}",
        problem=request,
    )
