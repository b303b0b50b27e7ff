"""More requests than allowed: the sender gets 429, and no other client does."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.faults.http_load import HttpClient
from bench.faults.server import prepare, serving
from bench.trials import Findings, Trial
from tidegate.commands.startup import open_installation
from tidegate.config import Settings
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.slices import AddUser, CreateToken, add_user, create_token
from tidegate.kernel.model import Meta

READS, WRITES, SIGN_INS = 20, 5, 5
SHARE = 3  # the most seconds of requests that a bucket holds; above it there is no limit
SECONDS = 3.0


def run(trial: Trial) -> Findings:
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="rates-") as home:
        data = Path(home) / "data"
        token, other = prepare(data), _second_person(data)
        limits = ("--reads-per-second", str(READS), "--writes-per-second", str(WRITES))
        with serving(data, *limits, "--sign-ins-per-minute", str(SIGN_INS)) as server:
            _hammer(server.port, token, other, findings, "GET", "/v1/me", None, READS)
            body = {"name": "A"}  # invalid: refused requests count as well
            _hammer(server.port, token, other, findings, "POST", "/v1/repositories", body, WRITES)
            _guess(server.port, findings)
    return findings


def _second_person(data: Path) -> str:
    installation = open_installation(Settings(data=str(data)))
    try:
        meta = Meta(actor="user_admin0000")
        grants = (Grant(Role.VIEWER),)
        command = AddUser(user_id="user_other0000", by="user_admin0000", grants=grants)
        installation.execute.run(add_user, command, meta=meta)
        meta = Meta(actor="user_other0000")
        token = installation.accounts.tokens.keep_token("othertoken", meta)
        made = CreateToken(user_id="user_other0000", token_id="othertoken", days=3, grants=None)
        installation.execute.run(create_token, made, meta=meta)
        return token
    finally:
        installation.close()


def _hammer(
    port: int,
    token: str,
    other: str,
    findings: Findings,
    method: str,
    path: str,
    body: object,
    rate: int,
) -> None:
    """Send requests as fast as one connection can, for some seconds."""
    client, bystander = HttpClient(port, token), HttpClient(port, other)
    statuses: Counter[int] = Counter()
    began = time.monotonic()
    while time.monotonic() - began < SECONDS:
        statuses[client.call(method, path, body)[0]] += 1
    if (status := bystander.call("GET", "/v1/me")[0]) != 200:
        findings.failures.append(f"{path}: another person gets {status}")
    if (status := HttpClient(port, "").call("GET", "/livez")[0]) != 200:
        findings.failures.append(f"{path}: /livez gets {status}")
    seconds = time.monotonic() - began
    served = sum(count for status, count in statuses.items() if status != 429)
    findings.counts["refused with 429"] += statuses[429]
    findings.counts["served"] += served
    if served > rate * (seconds + SHARE):
        findings.failures.append(f"{method} {path}: {served} in {seconds:.1f} s at {rate} a second")
    if any(status >= 500 for status in statuses):
        findings.failures.append(f"{method} {path}: {dict(statuses)}")


def _guess(port: int, findings: Findings) -> None:
    """Guess passwords of one name, then names for one password."""
    client = HttpClient(port, "")
    for kind in ("passwords", "names"):
        statuses: Counter[int] = Counter()
        for number in range(6 * SIGN_INS):
            login = "somebody" if kind == "passwords" else f"person{number}"
            body = {"login": login, "password": f"a wrong passphrase {number}"}
            statuses[client.call("POST", "/v1/sessions", body)[0]] += 1
        findings.counts["refused with 429"] += statuses[429]
        if statuses[429] < 3 * SIGN_INS:
            findings.failures.append(f"{kind} can be guessed: {dict(statuses)}")
