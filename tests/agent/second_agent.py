"""A small agent written from docs/agent-protocol.md alone; it imports nothing from Tidegate.

``step`` does what can be done now and returns. The agent writes its state to disk before it acts,
so a step may be repeated after any error. It supports neither deferred switches nor files by
reference.

    waiting ──▶ answering ──▶ switching ──▶ soaking ──────▶ no order
    (manifest)  (DispatchAck)     └────────────┴──▶ reverting ──┘

"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from unicodedata import category, normalize
from urllib.parse import quote

import httpx2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

Json = dict[str, Any]
MINUTE = timedelta(minutes=1)
BYTES_MAX = 32 * 2**20  # bytes of an artifact, and of a response
POLICY = {"soak_seconds": 0, "on_failure": "rollback-and-halt", "sustained_failure_seconds": 120}
PROBE = {"probe_name": "health", "mode": "enforce"}
AGAIN = {"attempts_exhausted", "boundary_moved", "version_conflict", "condition_failed"}
AGAIN |= {"lease_held", "clock_skew", "rollout_paused"}
time_from = datetime.fromisoformat


class Untrusted(Exception):
    """This manifest or artifact must not be used."""


class Refused(Exception):
    """The server refused a request."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(f"{status} {problem['code']}: {problem.get('detail')}")
        self.status, self.code, self.state = status, problem["code"], problem.get("state")


def write_durably(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.touch(mode)
    partial.write_bytes(data)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def check_files(files: list[Json], target: str) -> None:
    """Refuse a list of files that is unsafe or is not the target's. Raises: Untrusted."""
    paths = [normalize("NFC", file["path"]) for file in files]
    directories = {str(parent) for path in paths for parent in Path(path).parents}
    is_large = len(files) > 10_000 or sum(file["bytes"] for file in files) > BYTES_MAX
    if is_large or len(set(paths)) < len(paths) or directories & set(paths):
        raise Untrusted("too many files or bytes, or two files in one place")
    hashed = sha256(b"tidegate.content.v2\n")
    for file in sorted(files, key=lambda file: str(file["path"]).encode()):
        path, parts = file["path"], file["path"].split("/")
        is_long = len(path.encode()) > 1024 or any(len(part.encode()) > 255 for part in parts)
        is_control = any(category(letter) == "Cc" for letter in path)
        if is_long or is_control or "\\" in path or {"", ".", ".."} & set(parts):
            raise Untrusted(f"unsafe path {path!r}")
        hashed.update(b"x" if file.get("executable") else b"f")
        for part in (path.encode(), bytes.fromhex(file["sha256"])):
            hashed.update(len(part).to_bytes(8, "big") + part)
    if f"sha256:{hashed.hexdigest()}" != target:
        raise Untrusted("the listed files are not those of the target")


@dataclass
class SecondAgent:
    """One host: its directory, its clock, its activation command, and its one probe."""

    http: httpx2.Client
    root: Path
    clock: Callable[[], datetime]
    activate: Callable[[Path], int] = lambda _: 0
    is_healthy: Callable[[Path], bool] = lambda _: True
    session: Json = field(default_factory=dict)
    beat_at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.root / "state.json").exists():
            self.state: Json = json.loads((self.root / "state.json").read_bytes())
            self.key = Ed25519PrivateKey.from_private_bytes((self.root / "key").read_bytes())

    def save(self, **members: Any) -> None:
        self.state.update(members)
        write_durably(self.root / "state.json", json.dumps(self.state).encode())

    def enroll(self, token: str) -> None:
        self.key = Ed25519PrivateKey.generate()
        write_durably(self.root / "key", self.key.private_bytes_raw())
        public_key = self.key.public_key().public_bytes_raw().hex()
        proof = self.key.sign(f"tidegate.enroll.v1\n{token}\n{public_key}".encode()).hex()
        body = {"token": token, "public_key": public_key, "proof": proof}
        self.state = {"versions": {}, "running": {}, "outbox": [], "phase": ""}
        self.save(**json.loads(self.send("/v1/agent/enroll", body)))

    def authorization(self, request: httpx2.Request) -> str:
        now, host_id = int(self.clock().timestamp()), self.state["host_id"]
        if not self.session or time_from(self.session["expires_at"]) <= self.clock() + 3 * MINUTE:
            nonce = secrets.token_hex(16)
            proof = self.key.sign(f"tidegate.session.v2\n{host_id}\n{now}\n{nonce}".encode()).hex()
            body = {"host_id": host_id, "time": now, "nonce": nonce, "proof": proof}
            self.session = json.loads(self.send("/v1/agent/session", body))
        path, _, query = request.url.raw_path.decode().partition("?")
        lines = (request.method, path, query, sha256(request.content).hexdigest(), str(now))
        mac_key = bytes.fromhex(self.session["mac_key"])
        mac = hmac.new(mac_key, "\n".join(lines).encode(), "sha256").hexdigest()
        return f"Tidegate {self.session['session']} {now} {mac}"

    def send(self, path: str, body: Json | None = None, bytes_max: int = BYTES_MAX) -> bytes:
        """Send a GET, or POST a body. Raises: Refused, Untrusted, ConnectionError (repeat the
        step).
        """
        headers = {"Tidegate-Protocol": "2", "Content-Type": "application/json"}
        method, content = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
        request = self.http.build_request(method, path, content=content, headers=headers)
        if path not in ("/v1/agent/enroll", "/v1/agent/session"):
            request.headers["Authorization"] = self.authorization(request)
        read, give_up_at = b"", time.monotonic() + MINUTE.total_seconds()
        try:
            with closing(self.http.send(request, stream=True)) as response:
                for chunk in response.iter_bytes():
                    read += chunk
                    if response.is_success and len(read) > bytes_max:
                        raise Untrusted("the response is too long")
                    if time.monotonic() > give_up_at:
                        raise ConnectionError("the response took too long")
            if response.is_success:
                return read
            refusal = Refused(response.status_code, json.loads(read))
        except (httpx2.TransportError, ValueError, KeyError) as error:
            raise ConnectionError(repr(error)) from error
        if refusal.status == 401:
            self.session = {}  # the next step opens a new session
        if refusal.status in (401, 408, 425, 429) or refusal.status >= 500 or refusal.code in AGAIN:
            raise ConnectionError(str(refusal)) from refusal
        raise refusal

    def beat(self) -> Json:
        body = {"agent_version": "second", "current_closures": self.state["running"]}
        answer, self.beat_at = self.send("/v1/agent/heartbeat", body), self.clock()
        return dict(json.loads(answer))

    def report(self, kind: str, then: str, /, **members: Any) -> None:
        """Store a report in the outbox, together with the phase that it begins."""
        outbox, order = self.state["outbox"], self.state["order"]
        report = {"kind": kind, "rollout_id": order["rollout_id"], "host_id": order["host_id"]}
        report |= {"at": self.clock().isoformat(), "seq": self.state["seq"] + len(outbox) + 1}
        self.save(outbox=[*outbox, report | members], phase=then)

    def flush(self) -> None:
        """Send the reports in the outbox in order, until one has to wait."""
        while self.state["outbox"]:
            first, *later = self.state["outbox"]
            try:
                self.send("/v1/agent/events", {"report": first})
            except ConnectionError:
                return
            except Refused as refusal:
                phase = "soaking" if refusal.code == "early_convergence" else ""
                if refusal.state == "Failed" and first["kind"][:8] not in ("Rollback", "Dispatch"):
                    phase = "reverting"  # a deadline passed at the server
                self.save(outbox=[], phase=phase)
            else:
                phase = "switching" if first["kind"] == "DispatchAck" else self.state["phase"]
                self.save(outbox=later, seq=first["seq"], phase=phase)

    def step(self, wait: int = 0) -> str:
        """Do all that can be done now, and return the phase reached."""
        self.flush()
        if self.state["phase"] in ("", "waiting") and not self.state["outbox"]:
            order = json.loads(self.send(f"/v1/agent/dispatch?wait={wait}") or "{}")
            if order.get("host_id") == self.state["host_id"]:
                order["policy"] = POLICY | order["policy"]
                self.save(order=order, phase="waiting", seq=order.get("last_event_seq", 0))
        phases = ("waiting", self.judge), ("switching", self.switch), ("soaking", self.soak)
        for phase, work in (*phases, ("reverting", self.revert)):
            if self.state["phase"] == phase:
                work(self.state["order"])
                self.flush()
        if self.beat_at is None or self.clock() - self.beat_at >= MINUTE:
            self.beat()
        return str(self.state["phase"])

    def read_manifest(self, channel: str) -> Json:
        """Fetch and verify the manifest of a channel. Raises: Untrusted."""
        body = json.loads(self.send(f"/v1/agent/manifest/{quote(channel, safe='')}"))
        key = bytes.fromhex(self.state["manifest_keys"].get(body["key_id"], ""))
        signed = b"tidegate.manifest.v2\n" + body["payload"].encode()
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(b64decode(body["signature"]), signed)
        except (InvalidSignature, ValueError) as error:
            raise Untrusted("unknown key or wrong signature") from error
        payload: Json = json.loads(body["payload"])
        versions, counted = self.state["versions"], f"{self.state['log_id']} {channel}"
        is_old = payload["version"] < versions.get(counted, 0)
        is_over = time_from(payload["expires_at"]) <= self.clock()
        if is_old or is_over or payload["channel"] != channel:
            raise Untrusted("another channel, an old version, or expired")
        self.save(versions={**versions, counted: payload["version"]})
        return payload

    def judge(self, order: Json) -> None:
        """Acknowledge or reject the order, or wait for another manifest."""
        try:
            manifest = self.read_manifest(order["channel"])
        except (Untrusted, Refused):
            return
        named = [manifest.get(name, {}) for name in ("wanted", "rolling", "last_good", "previous")]
        digests = [n["digest"] for n in named if n.get("release_id") == order["release_id"]]
        target, prior = order["target_closure"], self.state["running"].get(order["channel"], "")
        newer = time_from(manifest["generated_at"]) - time_from(order["enqueued_at"])
        if target in digests:
            self.state["prior"] = prior
            members = {"target_closure": target, "current_closure_at_dispatch": prior}
            self.report("DispatchAck", "answering", **members)
        elif digests or newer >= MINUTE:
            self.report("DispatchReject", "", reason="the manifest names no such artifact")

    def fetch(self, content: str, target: str) -> None:
        """Store the verified files of the target in its directory. Raises: Untrusted, Refused."""
        files = json.loads(self.send(content))["files"]
        check_files(files, target)
        (self.root / target).mkdir(exist_ok=True)
        for file in files:
            data = self.send(f"{content}/blobs/{file['sha256']}", bytes_max=file["bytes"])
            if len(data) != file["bytes"] or sha256(data).hexdigest() != file["sha256"]:
                raise Untrusted(f"the bytes of {file['path']} are not those listed")
            mode = 0o755 if file.get("executable") else 0o644
            write_durably(self.root / target / file["path"], data, mode)

    def run(self, channel: str, closure: str) -> int:
        """Point the channel's link to an artifact, activate it, and return the exit code."""
        partial = self.root / f"{channel}.partial"
        partial.unlink(missing_ok=True)
        partial.symlink_to(self.root / closure)
        partial.replace(self.root / channel)
        self.beat_at = None  # send a heartbeat after each switch
        exit_code = self.activate(self.root / channel)
        if exit_code == 0:
            self.save(running={**self.state["running"], channel: closure})
        return exit_code

    def switch(self, order: Json) -> None:
        target, reason = order["target_closure"], "the activation failed"
        try:
            self.fetch(order["content"], target)
            exit_code = self.run(order["channel"], target)
        except (Untrusted, Refused) as error:
            exit_code, reason = 1, str(error)
        if exit_code == 0:
            self.state.update(soak_from=self.clock().isoformat(), result=None)
            self.report("ActivationCompleted", "soaking", observed_current_closure=target)
        else:
            self.report("ActivationFailed", "reverting", exit_code=exit_code, stderr_tail=reason)

    def soak(self, order: Json) -> None:
        """Run the probe; end the soak when it is over or the probe has failed for too long."""
        now, policy = self.clock(), order["policy"]
        if self.state["result"] is None:
            self.state["result"] = ""
            self.report("ProbeTopologyDeclared", "soaking", probes=[{**PROBE, "kind": "function"}])
        status = "pass" if self.is_healthy(self.root / order["channel"]) else "fail"
        if self.state["result"] != status:
            self.state.update(result=status, result_at=now.isoformat())
            self.report("ProbeResult", "soaking", **PROBE, status=status)
        seconds = (now - time_from(self.state["result_at"])).total_seconds()
        soaked_seconds = (now - time_from(self.state["soak_from"])).total_seconds()
        if status == "fail" and seconds >= policy["sustained_failure_seconds"]:
            names = {
                "failing_probes": [PROBE["probe_name"]],
                "policy_applied": policy["on_failure"],
            }
            self.report("Failed", "reverting", sustained_duration_secs=int(seconds), **names)
        if status == "pass" and soaked_seconds >= policy["soak_seconds"]:
            self.report("Converged", "", current_closure=order["target_closure"])

    def revert(self, order: Json) -> None:
        """Roll back after a failure, if the order's policy asks for it."""
        prior, on_failure = self.state["prior"], order["policy"]["on_failure"]
        if on_failure != "rollback-and-halt" or prior in ("", order["target_closure"]):
            self.save(phase="")
        elif exit_code := self.run(order["channel"], prior):
            self.report("RollbackFailed", "", phase="switch", exit_code=exit_code)
        else:
            self.report("RollbackComplete", "", reverted_to_closure=prior)
