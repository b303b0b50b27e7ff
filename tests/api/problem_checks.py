"""Check that a response is a problem with the right code and status."""

from __future__ import annotations

from typing import Any

import httpx2


def check(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check that the response is a complete problem document, and return its body."""
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    ), answer.text
    body: dict[str, Any] = answer.json()
    assert body["code"] == code
    assert body["type"] == f"/problems/{code}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert body["instance"] == f"/requests/{answer.headers['x-request-id']}"
    return body
