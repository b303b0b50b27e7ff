"""Every byte of the database, the log and the responses, searched for secrets.

A real server issues tokens, an enrollment token, a session and a webhook's secret. None of them may
be in a file of the data directory, in the output of the server, or in a response other than the one
that issued it. Passwords and prefixes are searched for, too.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.faults.server import prepare, serving
from bench.trials import Findings, Trial
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES

PASSWORD = "an unusual passphrase 8341"
HOOK_SECRET = "whsec_aG9vay1zZWNyZXQtN2YzZTlkMWM1YjJh"
SECRET_CHARS_MIN = 16
TOKEN_HEAD = re.compile(r"^(tg|te)_[^_]+_")  # the beginning of a token; its id is no secret
SECRET_FILES = ("secret",)  # the installation's own, mode 0600
STREAM = "/live"  # the response that never ends


class Recorder:
    """A client that stores every response."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self.cookie = ""
        self.kept: list[tuple[str, bytes]] = []

    def call(self, method: str, path: str, body: Any = None) -> tuple[dict[str, str], bytes]:
        """Send a request and store the response; return the headers and the body."""
        headers = {"cookie": self.cookie} if self.cookie else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["content-type"] = "application/json"
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        told = dict(answer.getheaders())
        self.kept.append((f"{method} {path}", repr(told).encode() + content))
        return told, content


def run(trial: Trial) -> Findings:
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="secrets-") as home:
        data = Path(home) / "data"
        token = prepare(data)
        hook = Path(home) / "hook-secret"
        hook.write_text(HOOK_SECRET)
        hook.chmod(0o600)
        settings = Path(home) / "settings.toml"
        settings.write_text(
            f'[targets.announce]\nkind = "webhook"\nurl = "https://hooks.example.com/"\n'
            f'secret_file = "{hook}"\n'
        )
        with serving(data, "--config", str(settings)) as server:
            client = Recorder(server.port, token)
            issued = {"the token of the start": token, "the hook's secret": HOOK_SECRET}
            issued |= _issue(client, server.port)
            _read_all(client)
            server.stop()
        places = [*_files(data), ("what it printed", server.log.read_bytes()), *client.kept]
        findings.counts["places"] += len(places)
        findings.counts["bytes"] += sum(len(content) for _, content in places)
        for name, secret in issued.items():
            findings.counts["secrets"] += 1
            findings.failures += list(_found(name, secret, places))
    return findings


def _issue(client: Recorder, port: int) -> dict[str, str]:
    """Issue every secret that is shown once; the response that shows it is not stored."""
    issued = {"a password": PASSWORD}

    def made(name: str, path: str, body: Any, member: str) -> None:
        _, content = client.call("POST", path, body)
        client.kept.pop()
        found = json.loads(content)
        assert member in found, content
        issued[name] = found[member]

    made("a token", "/v1/tokens", {"days": 3}, "token")
    made("an enrollment token", "/v1/hosts/enroll", {"host_id": "web-01"}, "token")
    person = {"login": "ada", "name": "Ada", "password": PASSWORD, "roles": [{"role": "viewer"}]}
    client.call("POST", "/v1/users", person)
    browser = Recorder(port, "")
    told, _ = browser.call("POST", "/v1/sessions", {"login": "ada", "password": PASSWORD})
    cookies = told.get("set-cookie", "")
    found = re.search(r"session=([^;]+)", cookies)
    assert found is not None, told
    issued["a session"] = found[1]
    browser.cookie = cookies.partition(";")[0]
    _read_all(browser)
    client.kept += browser.kept[1:]
    # Wrong passwords and tokens in URLs end up in logs more often than anything else.
    client.call("POST", "/v1/sessions", {"login": "ada", "password": f"{PASSWORD}x"})
    client.call("GET", f"/v1/me?token={issued['a token']}")
    client.call("GET", f"/v1/{issued['an enrollment token']}")
    return issued


def _read_all(client: Recorder) -> None:
    """Read every route and page that needs no parameter."""
    for route in (*ROUTES, *PAGES):
        if route.method == "GET" and not route.parameters and route.path != STREAM:
            client.call("GET", route.path)


def _files(data: Path) -> Iterator[tuple[str, bytes]]:
    for path in data.rglob("*"):
        if path.is_file() and path.name not in SECRET_FILES:
            yield path.name, path.read_bytes()


def _found(name: str, secret: str, places: list[tuple[str, bytes]]) -> Iterator[str]:
    """Where the secret occurs, or the part of it that cannot be guessed."""
    parts = {secret, TOKEN_HEAD.sub("", secret)}
    for part in parts:
        assert len(part) >= SECRET_CHARS_MIN, "too short to search for"
        for place, content in places:
            own = f"/v1/me?token={secret}", f"/v1/{secret}"
            if part.encode() in content and not any(text in place for text in own):
                yield f"{name} is found in {place.partition('?')[0]}"
