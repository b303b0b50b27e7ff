"""The agent's HTTP client: a session proved by the host's key, and a MAC on every request.

If there is no response, or one that is not from Tidegate (a proxy's page), or the server is
overloaded, ``ServerAway`` is raised: retry later. If the server refuses the request,
``RefusedByServer`` is raised with the code of the problem document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from secrets import token_hex
from threading import Lock
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from tidegate import bounded_http, decoders
from tidegate.agent import errors as agent_errors, identity
from tidegate.clock import Clock
from tidegate.domain.hosts import protocol

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0  # for a whole exchange
DOWNLOAD_SECONDS: Final = 300.0  # for a listing or a file
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
LISTING_BYTES_MAX: Final = 64 * 1024 * 1024  # 10,000 files with long paths and addresses
CONNECTIONS_MAX: Final = 8  # poller, sender and switcher send requests at once
RENEWED_BEFORE: Final = timedelta(minutes=3)  # the end of a session
PASSING: Final = frozenset({408, 425, 429})  # and every status from 500 on
# Another request was faster: a retry may succeed.
CONFLICTS: Final = frozenset(
    {"attempts_exhausted", "boundary_moved", "version_conflict", "condition_failed", "lease_held"}
)
UNPROVED: Final = 401
PARTIAL: Final = 206
NONCE_BYTES: Final = 16
RENEWING: Final = frozenset({"session_expired", "bad_mac", "unauthenticated"})

T = TypeVar("T")
Write = Callable[[bytes], object]

_problem = decoders.build(dict[str, Any])
for _answer in (
    protocol.HeartbeatAnswer,
    protocol.EnrollmentAnswer,
    protocol.SessionAnswer,
    protocol.Order,
    protocol.ReleaseContent,
    protocol.ReportsAnswer,
):
    decoders.build(_answer)


class AgentAnswer(msgspec.Struct, frozen=True):
    """A response, with its whole body."""

    status: int
    content: bytes


class AgentClient:
    """Requests of one host to one server. Threads may share it.

    Every exchange has a deadline and a limit on the bytes of its response. Compressed responses
    are refused, because a small one may decompress to a large one.
    """

    def __init__(
        self,
        server: str,
        key: identity.HostKey,
        clock: Clock,
        host_id: str = "",
        *,
        answer_seconds: float = ANSWER_SECONDS,
        download_seconds: float = DOWNLOAD_SECONDS,
    ) -> None:
        self._key = key
        self._answer_seconds = answer_seconds
        self._download_seconds = download_seconds
        self._deadline = bounded_http.ThreadDeadline()
        self._clock = clock
        self._host_id = host_id
        self._session: protocol.SessionAnswer | None = None
        self._session_lock = Lock()
        self._http = httpx2.Client(
            base_url=server,
            headers={
                protocol.PROTOCOL_HEADER: str(protocol.PROTOCOL),
                "accept": "application/json, */*",
                "accept-encoding": "identity",
            },
            timeout=httpx2.Timeout(answer_seconds, connect=CONNECT_SECONDS),
            trust_env=False,
            transport=bounded_http.BoundedTransport(
                bounded_http.BoundedBackend(self._deadline),
                bounded_http.trusted_roots(),
                CONNECTIONS_MAX,
            ),
        )

    def close(self) -> None:
        self._http.close()

    # ── enrollment and sessions ──

    def enroll(self, token: str) -> protocol.EnrollmentAnswer:
        """Register our key with a one-time token. Raises: ServerAway, RefusedByServer."""
        public = self._key.public
        proof = self._key.proof(protocol.enrollment_message(token, public))
        return self._enroll({"token": token, "public_key": public, "proof": proof})

    def join(self, token: str, host_id: str) -> protocol.EnrollmentAnswer:
        """Register under a new name with a join token. Raises: ServerAway, RefusedByServer."""
        public = self._key.public
        proof = self._key.proof(protocol.join_message(token, host_id, public))
        return self._enroll(
            {"token": token, "host_id": host_id, "public_key": public, "proof": proof}
        )

    def _enroll(self, body: dict[str, str]) -> protocol.EnrollmentAnswer:
        enrolled = _decode(self._send("POST", "/v1/agent/enroll", body), protocol.EnrollmentAnswer)
        self._host_id = enrolled.host_id
        return enrolled

    def _open_session(self) -> protocol.SessionAnswer:
        """Return a session that does not expire soon; open one if needed."""
        with self._session_lock:
            session = self._session
            if session is None or self._clock() >= session.expires_at - RENEWED_BEFORE:
                time = int(self._clock().timestamp())
                nonce = token_hex(NONCE_BYTES)
                proof = self._key.proof(protocol.session_message(self._host_id, time, nonce))
                body = {"host_id": self._host_id, "time": time, "nonce": nonce, "proof": proof}
                session = _decode(
                    self._send("POST", "/v1/agent/session", body), protocol.SessionAnswer
                )
                self._session = session
            return session

    # ── the requests of an agent ──

    def dispatch(self, wait_seconds: int) -> protocol.Order | None:
        """Poll for an order; None: none came in time. Raises: ServerAway, RefusedByServer."""
        path = f"/v1/agent/dispatch?wait={wait_seconds}"
        answer = self._request("GET", path, seconds=wait_seconds + self._answer_seconds)
        return None if answer.status == 204 else _decode(answer, protocol.Order)

    def report(self, reports: Sequence[Mapping[str, Any]]) -> tuple[protocol.ReportResult, ...]:
        """Send reports; return a result for each, in order. Raises: ServerAway, RefusedByServer."""
        answer = self._request("POST", "/v1/agent/events", {"reports": list(reports)})
        answers = _decode(answer, protocol.ReportsAnswer).answers
        if len(answers) != len(reports):
            raise agent_errors.ServerAway(f"{len(answers)} answers to {len(reports)} reports")
        return answers

    def heartbeat(
        self,
        version: str,
        closures: Mapping[str, str],
        rollouts: Sequence[str] = (),
        facts: protocol.HostFacts | None = None,
    ) -> protocol.HeartbeatAnswer:
        """Report that the agent is alive and what runs; host facts only if they changed.

        Raises:
            ServerAway, RefusedByServer.
        """
        body: dict[str, Any] = {
            "agent_version": version,
            "current_closures": dict(closures),
            "rollouts": list(rollouts),
        }
        if facts is not None:
            body["facts"] = facts
        return _decode(self._request("POST", "/v1/agent/heartbeat", body), protocol.HeartbeatAnswer)

    def manifest(self, channel: str) -> bytes:
        """Fetch the channel's signed manifest. Raises: ServerAway, RefusedByServer."""
        return self._request("GET", f"/v1/agent/manifest/{channel}").content

    def listing(self, content: str) -> protocol.ReleaseContent:
        """Fetch the file list of a release. Raises: ServerAway, RefusedByServer."""
        answer = self._request(
            "GET", content, seconds=self._download_seconds, bytes_max=LISTING_BYTES_MAX
        )
        return _decode(answer, protocol.ReleaseContent)

    def file(self, content: str, hashed: str, bytes_max: int, write: Write, start: int = 0) -> None:
        """Write the bytes of a file from ``start`` on, piece by piece as they arrive.

        Raises:
            ContentMismatch: the whole file has more bytes than ``bytes_max``. ServerAway: the
            download broke off; what arrived was written. RefusedByServer.
        """
        path = f"{content}/blobs/{hashed}"
        seconds = self._download_seconds
        self._request("GET", path, seconds=seconds, bytes_max=bytes_max, write=write, start=start)

    # ── requests ──

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        bytes_max: int = ANSWER_BYTES_MAX,
        write: Write | None = None,
        start: int = 0,
    ) -> AgentAnswer:
        """Send a request in the session. If the server rejects the session, open a new one."""
        session = self._open_session()
        rest = (seconds, bytes_max, write, start)
        try:
            return self._send(method, path, body, session, *rest)
        except agent_errors.RefusedByServer as answered:
            if answered.status != UNPROVED or answered.problem_code not in RENEWING:
                raise
        with self._session_lock:
            if self._session is session:
                self._session = None
        return self._send(method, path, body, self._open_session(), *rest)

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        session: protocol.SessionAnswer | None = None,
        seconds: float | None = None,
        bytes_max: int = ANSWER_BYTES_MAX,
        write: Write | None = None,
        start: int = 0,
    ) -> AgentAnswer:
        """Send one request. A successful body goes to ``write``, from ``start`` on, if given."""
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        if start:
            headers["range"] = f"bytes={start}-"
        seconds = self._answer_seconds if seconds is None else seconds
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        request = self._http.build_request(
            method, path, content=content, headers=headers, timeout=timeout
        )
        if session is not None:
            request.headers["authorization"] = _authorization(request, session, self._clock())
        try:
            with self._deadline.within(seconds):
                return _check_status(self._exchange(request, bytes_max, write, start))
        except bounded_http.BodyTooLong as error:
            if write is not None:
                raise agent_errors.ContentMismatch(f"{path}: {error}") from None
            raise agent_errors.ServerAway(f"{method} {path}: {error}") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise agent_errors.ServerAway(
                f"{method} {path}: {type(error).__name__} {error}"
            ) from None
        except OSError as error:
            if write is not None:  # from ``write``: the disk may have failed
                raise
            raise agent_errors.ServerAway(
                f"{method} {path}: {type(error).__name__} {error}"
            ) from None
        except RuntimeError as error:  # the client was closed: the agent is stopping
            raise agent_errors.ServerAway(str(error)) from None

    def _exchange(
        self, request: httpx2.Request, bytes_max: int, write: Write | None, start: int
    ) -> AgentAnswer:
        response = self._http.send(request, stream=True)
        try:
            if response.status_code < 300 and write is not None:
                _write_from(response, bytes_max, write, start)
                return AgentAnswer(response.status_code, b"")
            if response.status_code >= 300:
                bytes_max = ANSWER_BYTES_MAX
            found = bytearray()
            for piece in bounded_http.pieces_of(response, bytes_max):
                found += piece
            return AgentAnswer(response.status_code, bytes(found))
        finally:
            response.close()


def _write_from(response: httpx2.Response, bytes_max: int, write: Write, start: int) -> None:
    """Write a body from ``start`` on, even if the server or a proxy sent the whole file.

    Raises:
        ServerAway: the response holds another range. BodyTooLong.
    """
    known = start  # leading bytes of the response to skip: they are on disk
    if response.status_code == PARTIAL:
        found = response.headers.get("content-range", "")
        if not found.startswith(f"bytes {start}-"):
            raise agent_errors.ServerAway(
                f"asked for the bytes from {start} on, got {found[:80]!r}"
            )
        known, bytes_max = 0, bytes_max - start
    for piece in bounded_http.pieces_of(response, bytes_max):
        if known >= len(piece):
            known -= len(piece)
            continue
        write(piece[known:])
        known = 0


def _authorization(request: httpx2.Request, session: protocol.SessionAnswer, now: datetime) -> str:
    path, _, query = request.url.raw_path.partition(b"?")
    return protocol.authorization(
        session.session,
        bytes.fromhex(session.mac_key),
        request.method,
        path,
        query,
        request.content,
        int(now.timestamp()),
    )


def _check_status(answer: AgentAnswer) -> AgentAnswer:
    status = answer.status
    if status < 300:
        return answer
    try:
        problem = _problem.decode(answer.content)
        code, detail = problem["code"], problem.get("detail")
    except (msgspec.MsgspecError, KeyError):
        raise agent_errors.ServerAway(f"status {status}, but not from a Tidegate server") from None
    if status < 400 or status >= 500 or status in PASSING or code in CONFLICTS:
        raise agent_errors.ServerAway(f"{status} {code}: {detail}")
    raise agent_errors.RefusedByServer(status, str(code), str(detail), problem)


def _decode(answer: AgentAnswer, shape: type[T]) -> T:
    try:
        return decoders.decoder(shape).decode(answer.content)
    except msgspec.MsgspecError as error:
        raise agent_errors.ServerAway(f"a response that is no {shape.__name__}: {error}") from None
