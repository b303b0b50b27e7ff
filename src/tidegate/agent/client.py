"""HTTP as an agent speaks it: a session by the host's key, a MAC on every request.

Whatever is not the server's own word (no answer, a proxy's page, an overload) is ``ServerAway`` and
may be tried again. What the server says is ``RefusedByServer``, with the code of its problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from tidegate import decoders
from tidegate.agent.errors import RefusedByServer, ServerAway
from tidegate.agent.identity import HostKey
from tidegate.clock import Clock
from tidegate.domain.hosts.protocol import (
    PROTOCOL,
    PROTOCOL_HEADER,
    EnrollmentAnswer,
    HeartbeatAnswer,
    Order,
    ReleaseContent,
    ReportResult,
    ReportsAnswer,
    SessionAnswer,
    authorization,
    enrollment_message,
    session_message,
)

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
RENEWED_BEFORE: Final = timedelta(minutes=3)  # a session's end
PASSING: Final = frozenset({408, 425, 429})  # and all of 500 on
# Somebody else was faster: the same request may work the next time.
CONFLICTS: Final = frozenset(
    {"attempts_exhausted", "boundary_moved", "version_conflict", "condition_failed", "lease_held"}
)
UNPROVED: Final = 401
RENEWING: Final = frozenset({"session_expired", "bad_mac", "unauthenticated"})

T = TypeVar("T")

_problem = decoders.build(dict[str, Any])
for _answer in (
    HeartbeatAnswer,
    EnrollmentAnswer,
    SessionAnswer,
    Order,
    ReleaseContent,
    ReportsAnswer,
):
    decoders.build(_answer)


class AgentClient:
    """One server, asked as one host. Threads may share it."""

    def __init__(self, server: str, key: HostKey, clock: Clock, host_id: str = "") -> None:
        self._key = key
        self._clock = clock
        self._host_id = host_id
        self._session: SessionAnswer | None = None
        self._opening = Lock()
        self._http = httpx2.Client(
            base_url=server,
            headers={PROTOCOL_HEADER: str(PROTOCOL), "accept": "application/json, */*"},
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    # ── at the door ──

    def enroll(self, token: str) -> EnrollmentAnswer:
        """Trade a one-time token for the registration of our key. Raises: ServerAway, Answered."""
        public = self._key.public
        proof = self._key.proof(enrollment_message(token, public))
        body = {"token": token, "public_key": public, "proof": proof}
        enrolled = _decoded(self._sent("POST", "/v1/agent/enroll", body), EnrollmentAnswer)
        self._host_id = enrolled.host_id
        return enrolled

    def _opened(self) -> SessionAnswer:
        """A session with some time left."""
        with self._opening:
            session = self._session
            if session is None or self._clock() >= session.expires_at - RENEWED_BEFORE:
                time = int(self._clock().timestamp())
                proof = self._key.proof(session_message(self._host_id, time))
                body = {"host_id": self._host_id, "time": time, "proof": proof}
                session = _decoded(self._sent("POST", "/v1/agent/session", body), SessionAnswer)
                self._session = session
            return session

    # ── what agents ask and say ──

    def dispatch(self, wait_seconds: int) -> Order | None:
        """The host's order; None: there was none so long. Raises: ServerAway, Answered."""
        path = f"/v1/agent/dispatch?wait={wait_seconds}"
        answer = self._asked("GET", path, seconds=wait_seconds + ANSWER_SECONDS)
        return None if answer.status_code == 204 else _decoded(answer, Order)

    def report(self, reports: Sequence[Mapping[str, Any]]) -> tuple[ReportResult, ...]:
        """What became of each, in their order. Raises: ServerAway, Answered."""
        answer = self._asked("POST", "/v1/agent/events", {"reports": list(reports)})
        answers = _decoded(answer, ReportsAnswer).answers
        if len(answers) != len(reports):
            raise ServerAway(f"{len(answers)} answers to {len(reports)} reports")
        return answers

    def heartbeat(
        self, version: str, closures: Mapping[str, str], rollouts: Sequence[str] = ()
    ) -> HeartbeatAnswer:
        """Say that we live and what runs. Raises: ServerAway, Answered."""
        body = {
            "agent_version": version,
            "current_closures": dict(closures),
            "rollouts": list(rollouts),
        }
        return _decoded(self._asked("POST", "/v1/agent/heartbeat", body), HeartbeatAnswer)

    def manifest(self, channel: str) -> bytes:
        """The channel's manifest, as it was signed. Raises: ServerAway, Answered."""
        return self._asked("GET", f"/v1/agent/manifest/{channel}").content

    def listing(self, content: str) -> ReleaseContent:
        return _decoded(self._asked("GET", content), ReleaseContent)

    def file(self, content: str, hashed: str) -> bytes:
        return self._asked("GET", f"{content}/blobs/{hashed}").content

    # ── requests ──

    def _asked(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> httpx2.Response:
        """A request under the session, which is opened anew if the server knows it no more."""
        session = self._opened()
        try:
            return self._sent(method, path, body, session, seconds)
        except RefusedByServer as answered:
            if answered.status != UNPROVED or answered.said not in RENEWING:
                raise
        with self._opening:
            if self._session is session:
                self._session = None
        return self._sent(method, path, body, self._opened(), seconds)

    def _sent(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        session: SessionAnswer | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> httpx2.Response:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        request = self._http.build_request(
            method, path, content=content, headers=headers, timeout=timeout
        )
        if session is not None:
            request.headers["authorization"] = _authorization(request, session, self._clock())
        try:
            answer = self._http.send(request)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise ServerAway(f"{method} {path}: {type(error).__name__} {error}") from None
        except RuntimeError as error:  # it was closed: we are stopping
            raise ServerAway(str(error)) from None
        return _checked(answer)


def _authorization(request: httpx2.Request, session: SessionAnswer, now: datetime) -> str:
    path, _, query = request.url.raw_path.partition(b"?")
    return authorization(
        session.session,
        bytes.fromhex(session.mac_key),
        request.method,
        path,
        query,
        request.content,
        int(now.timestamp()),
    )


def _checked(answer: httpx2.Response) -> httpx2.Response:
    status = answer.status_code
    if status < 300:
        return answer
    try:
        problem = _problem.decode(answer.content)
        said, detail = problem["code"], problem.get("detail")
    except (msgspec.MsgspecError, KeyError):
        raise ServerAway(f"an answer {status} that is none of Tidegate's") from None
    if status < 400 or status >= 500 or status in PASSING or said in CONFLICTS:
        raise ServerAway(f"{status} {said}: {detail}")
    raise RefusedByServer(status, str(said), str(detail), problem)


def _decoded(answer: httpx2.Response, shape: type[T]) -> T:
    try:
        return decoders.decoder(shape).decode(answer.content)
    except msgspec.MsgspecError as error:
        raise ServerAway(f"an answer that is no {shape.__name__}: {error}") from None
