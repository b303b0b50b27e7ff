"""Clients that write over HTTP, and remember outside of the server what was acknowledged.

A 2xx response is an acknowledgement. The outcome is unknown if there is no response, or if it says
so: the same request with the same key, sent again, must succeed, and must have been applied once.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from threading import Event, Lock, Thread
from typing import Any

ANSWER_SECONDS_MAX = 60.0
RESENDS_MAX = 200
RESEND_SECONDS = 0.1


@dataclass(frozen=True)
class WriteRequest:
    """Something to create, with a name and an idempotency key of its own."""

    path: str
    body: dict[str, Any]
    key: str
    seen_at: str  # where it can be read afterwards
    content: str = ""  # what is read there


def repository(name: str) -> WriteRequest:
    return WriteRequest("/v1/repositories", {"name": name}, name, f"/v1/repositories/{name}")


def draft(name: str) -> WriteRequest:
    package, text = name.partition("-")[0], f"the text of {name}"
    body = {
        "repository": "default",
        "packageName": package,
        "workspaceName": name,
        "files": [{"path": "a", "text": text}],
    }
    seen_at = f"/v1/revisions/default.{package}.{name}/resources/a"
    return WriteRequest("/v1/revisions", body, name, seen_at, text)


@dataclass
class LoadLedger:
    """The responses that all clients got."""

    acknowledged: list[WriteRequest] = field(default_factory=list)
    unknown: list[WriteRequest] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)  # responses that must not occur
    lock: Lock = field(default_factory=Lock)


class HttpClient:
    """One connection at a time to a server on loopback."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._connection: HTTPConnection | None = None

    def call(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, bytes]:
        """Send a request. Raises: OSError, HTTPException: there was no response."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        if key:
            headers["idempotency-key"] = key
        sent = None
        if body is not None:
            sent = json.dumps(body)
            headers["content-type"] = "application/json"
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS_MAX)
        try:
            self._connection.request(method, path, sent, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class HttpLoad:
    """Clients that each create one thing after the other until stopped."""

    def __init__(
        self, port: int, token: str, ledger: LoadLedger, *, prefix: str, clients: int = 4
    ) -> None:
        self._port, self._token, self._ledger = port, token, ledger
        self._prefix = prefix
        self._stop = Event()
        self._threads = [Thread(target=self._work, args=(number,)) for number in range(clients)]

    def __enter__(self) -> HttpLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, client: int) -> None:
        http = HttpClient(self._port, self._token)
        number = 0
        while not self._stop.is_set():
            make = draft if number % 2 else repository
            if not send(http, make(f"{self._prefix}c{client}-{number}"), self._ledger):
                time.sleep(0.01)
            number += 1
        http.close()


def send(http: HttpClient, request: WriteRequest, ledger: LoadLedger) -> bool:
    """Send the request once and record the outcome; return whether it was acknowledged."""
    try:
        status, said = http.call("POST", request.path, request.body, request.key)
    except (OSError, HTTPException):
        with ledger.lock:
            ledger.unknown.append(request)
        return False
    with ledger.lock:
        ledger.statuses[status] += 1
        if status == 201:
            ledger.acknowledged.append(request)
        elif status in (503, 507):  # not done, or not known to be done
            ledger.unknown.append(request)
        else:
            ledger.odd.append(f"{status} to {request.path} {request.key}: {said[:200]!r}")
    return status == 201


def resend_unknown(port: int, token: str, ledger: LoadLedger) -> list[str]:
    """Send requests without a response again; return what is wrong with the new responses."""
    http, wrong = HttpClient(port, token), []
    waiting, ledger.unknown = ledger.unknown, []
    for request in waiting:
        status, said = 0, b""
        for _ in range(RESENDS_MAX):
            status, said = http.call("POST", request.path, request.body, request.key)
            if status not in (503, 507):
                break
            time.sleep(RESEND_SECONDS)
        if status == 201:
            ledger.acknowledged.append(request)
        else:
            wrong.append(f"{request.key}, sent again with its key, gets {status} {said[:200]!r}")
    http.close()
    return wrong


def missing(port: int, token: str, requests: Iterable[WriteRequest]) -> list[str]:
    """Acknowledged writes that cannot be read."""
    http, wrong = HttpClient(port, token), []
    for request in requests:
        status, said = http.call("GET", request.seen_at)
        if status != 200 or request.content.encode() not in said:
            wrong.append(f"{request.key} was acknowledged, {request.seen_at} is {status}")
    http.close()
    return wrong


def wait_until(is_so: Callable[[], bool], seconds_max: float) -> bool:
    """Wait for the condition; False if it does not hold in time."""
    deadline = time.monotonic() + seconds_max
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
