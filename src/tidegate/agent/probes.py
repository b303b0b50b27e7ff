"""Probes: health checks, declared in a file. An error while one runs counts as a failure.

    [[probes]]
    name = "front"
    kind = "http"                      # or tcp: host, port; exec: command
    url = "http://127.0.0.1:8080/health"
    interval_seconds = 30
    mode = "enforce"                   # or observe, disabled

If the file is set but cannot be read, nothing is activated.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import httpx2
import msgspec

from tidegate import decoders
from tidegate.agent import drivers, errors
from tidegate.domain.hosts import facts, states
from tidegate.domain.hosts.probes import PROBE_NAME_BYTES_MAX, PROBES_MAX

FILE_BYTES_MAX: Final = 256 * 1024
BODY_BYTES_MAX: Final = 256 * 1024
INTERVAL_SECONDS: Final = 30.0

Interval = Annotated[float, msgspec.Meta(ge=1, le=3_600)]
Timeout = Annotated[float, msgspec.Meta(gt=0, le=300)]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=PROBE_NAME_BYTES_MAX, pattern=r"^[\w.-]+$")
]


class ProbeSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"
):
    """The settings of every probe."""

    name: Name
    mode: states.ProbeMode = states.ProbeMode.ENFORCE
    interval_seconds: Interval = INTERVAL_SECONDS


class HttpProbe(ProbeSettings, frozen=True, kw_only=True, tag="http"):
    url: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/\s]+")]
    expect_status: Annotated[int, msgspec.Meta(ge=100, le=599)] = 200
    body_contains: str = ""
    timeout_seconds: Timeout = 3.0


class TcpProbe(ProbeSettings, frozen=True, kw_only=True, tag="tcp"):
    host: Annotated[str, msgspec.Meta(min_length=1)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    timeout_seconds: Timeout = 3.0


class ExecProbe(ProbeSettings, frozen=True, kw_only=True, tag="exec"):
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    expect_exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    timeout_seconds: Timeout = 10.0


Probe = HttpProbe | TcpProbe | ExecProbe


class ProbeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The result of a probe."""

    status: states.ProbeStatus
    reason: str | None = None


PASSED: Final = ProbeOutcome(states.ProbeStatus.PASS)


def probe_failure(reason: str) -> ProbeOutcome:
    """A failure with its reason, shortened to the limit."""
    data = reason.encode(errors="replace")[: drivers.REASON_BYTES]
    return ProbeOutcome(states.ProbeStatus.FAIL, data.decode(errors="ignore").replace("\0", ""))


decoders.build(ProbeFile)


def load(path: str) -> tuple[Probe, ...]:
    """Load the probes of a file; an empty path means no probes.

    Raises:
        InvalidProbes: the file is missing or invalid.
    """
    if not path:
        return ()
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise errors.InvalidProbes(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise errors.InvalidProbes(f"{path} has more than {FILE_BYTES_MAX} bytes")
    try:
        found = decoders.convert(_decode(file, content), ProbeFile).probes
    except (msgspec.MsgspecError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise errors.InvalidProbes(f"{path}: {error}") from None
    names = [probe.name for probe in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise errors.InvalidProbes(f"{path}: probe {twice[0]!r} is declared twice")
    if len(found) > PROBES_MAX:
        raise errors.InvalidProbes(f"{path}: {len(found)} probes, allowed are {PROBES_MAX}")
    return found


def _decode(file: Path, content: bytes) -> Any:
    if file.suffix == ".json":
        return msgspec.json.decode(content)
    return tomllib.loads(content.decode())


def to_declaration(probe: Probe) -> facts.ProbeDeclared:
    kind = type(probe).__struct_config__.tag
    return facts.ProbeDeclared(probe.name, str(kind), probe.mode)


def run_probe(probe: Probe) -> ProbeOutcome:
    """Run a probe once, within its timeout."""
    try:
        match probe:
            case HttpProbe():
                return _http(probe)
            case TcpProbe():
                return _tcp(probe)
            case ExecProbe():
                return _exec(probe)
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        return probe_failure(f"{type(error).__name__}: {error}")


def _http(probe: HttpProbe) -> ProbeOutcome:
    deadline = time.monotonic() + probe.timeout_seconds
    body = b""
    with (
        httpx2.Client(timeout=probe.timeout_seconds, trust_env=False) as client,
        client.stream("GET", probe.url) as answer,
    ):
        if answer.status_code != probe.expect_status:
            return probe_failure(f"status {answer.status_code}, expected {probe.expect_status}")
        if not probe.body_contains:
            return PASSED
        for chunk in answer.iter_bytes():
            body += chunk
            if probe.body_contains.encode() in body:
                return PASSED
            if len(body) > BODY_BYTES_MAX:
                break
            if time.monotonic() > deadline:
                return probe_failure(f"no answer within {probe.timeout_seconds:g} s")
    return probe_failure(f"the body does not contain {probe.body_contains[:200]!r}")


def _tcp(probe: TcpProbe) -> ProbeOutcome:
    with socket.create_connection((probe.host, probe.port), probe.timeout_seconds):
        return PASSED


def _exec(probe: ExecProbe) -> ProbeOutcome:
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            probe.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=drivers.environment(),
            start_new_session=True,
        )
        try:
            code = child.wait(probe.timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return probe_failure(f"killed after {probe.timeout_seconds:g} s")
        if code == probe.expect_exit_code:
            return PASSED
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - drivers.REASON_BYTES))
        output = stderr.read().decode(errors="ignore").strip()
    reason = f"exit code {code}, expected {probe.expect_exit_code}"
    return probe_failure(f"{reason}: {output}" if output else reason)
