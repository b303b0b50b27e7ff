"""Create users and sign them in over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.api.serving import Served

PASSWORD = "correct horse battery"


NAME = "Rosalind Franklin-Zweistein"


LOGIN = "rosalind.zweistein"


def person(**changes: Any) -> dict[str, Any]:
    return {"login": LOGIN, "name": NAME, "password": PASSWORD, **changes}


def signed_in(served: Served, login: str = LOGIN, password: str = PASSWORD) -> httpx2.Client:
    """A client with a session of its own, as a browser has it."""
    client = served.client()
    answer = client.post("/v1/sessions", json={"login": login, "password": password})
    assert answer.status_code == 201, answer.text
    client.headers["x-csrf-token"] = answer.json()["csrf_token"]
    return client
