"""Every write and sync of a scenario fails in turn: nothing acknowledged is lost, no 500 is sent.

A real server runs with a preloaded library, which lets N calls succeed and fails the next one, or
all later ones. N grows from 0 until the scenario needs no more calls. While calls fail, a request
gets 503 or 507. When calls succeed again, the same request with the same key succeeds. A server
that ends instead, and says why, is started again.
"""

from __future__ import annotations

import errno
import mmap
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from bench.faults import preload, workload
from bench.faults.http_load import HttpClient, wait_until
from bench.faults.server import DoesNotStart, ServerProcess, prepare
from bench.trials import Findings, Trial

POINTS_MAX = 2_000
FAILURES_MAX = 5  # after which no more points are tried
AGAIN_SECONDS_MAX = 20.0
FOR_EVER = 1 << 40
REFUSALS = (503, 507)
SMOKE_EVERY = 8  # points that the smallest mode skips between two


@dataclass(frozen=True)
class FaultKind:
    """What fails, and for how many calls."""

    name: str
    error: int
    failing: int


KINDS = (
    FaultKind("one call fails with EIO", errno.EIO, 1),
    FaultKind("one call fails with ENOSPC", errno.ENOSPC, 1),
    FaultKind("all calls fail with ENOSPC", errno.ENOSPC, FOR_EVER),
    FaultKind("all calls fail with EIO", errno.EIO, FOR_EVER),
)

Request = tuple[str, str, Any]  # method, path, body
Scenario = Callable[[str], Iterator[Request]]


def _repository(name: str) -> Iterator[Request]:
    yield "POST", "/v1/repositories", {"name": name}


def _draft(name: str) -> Iterator[Request]:
    files = [{"path": "a", "text": f"of {name}"}, {"path": "b", "text": "x" * 5_000}]
    body = {"repository": "default", "packageName": "io", "workspaceName": name, "files": files}
    yield "POST", "/v1/revisions", body


def _channel(name: str) -> Iterator[Request]:
    yield "POST", "/v1/channels", {"channel": name, "package": "io", "selector": f"c={name}"}
    yield "POST", f"/v1/channels/{name}/hold", {"reason": "a fault"}


def _host(name: str) -> Iterator[Request]:
    yield "POST", "/v1/hosts/enroll", {"host_id": name}


def _token(name: str) -> Iterator[Request]:
    yield "POST", "/v1/tokens", {"days": 3}


def _budget(name: str) -> Iterator[Request]:
    yield "PUT", f"/v1/budgets/{name}", {"selector": f"c={name}", "max_in_flight": 1}
    yield "PUT", f"/v1/budgets/{name}", {"selector": f"c={name}", "max_in_flight": 2}


SCENARIOS: tuple[Scenario, ...] = (_draft, _repository, _channel, _host, _token, _budget)


class FaultControl:
    """The numbers that the library reads."""

    _FORM = struct.Struct("=qqqq")

    def __init__(self, path: Path) -> None:
        path.write_bytes(self._FORM.pack(-1, 0, 0, 0))
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), self._FORM.size)

    def arm(self, passing: int, kind: FaultKind) -> None:
        # Write the count last: the library reads it first.
        self._map[8:32] = struct.pack("=qqq", kind.error, kind.failing, 0)
        self._map[0:8] = struct.pack("=q", passing)

    def disarm(self) -> bool:
        """Let all calls succeed; return whether one has failed."""
        passing, _, failing, _ = self._FORM.unpack(self._map[:])
        failed = passing == 0 and failing not in (1, FOR_EVER)
        self._map[0:8] = struct.pack("=q", -1)
        return failed

    def seen(self) -> int:
        return int(self._FORM.unpack(self._map[:])[3])

    def close(self) -> None:
        self._map.close()
        self._file.close()


@dataclass
class _Run:
    """One server, restarted whenever it ends, and the scenario on it."""

    data: Path
    token: str
    control: FaultControl
    environ: dict[str, str]
    findings: Findings
    server: ServerProcess | None = None
    http: HttpClient | None = None
    acknowledged: list[str] = field(default_factory=list)

    def ensure(self) -> HttpClient:
        """Start the server if it does not run; return a client. Raises: DoesNotStart."""
        if self.server is None or self.server.process.poll() is not None:
            if self.server is not None:
                self.findings.counts["servers that ended"] += 1
            self.server = ServerProcess(self.data, "--worker", "false", environ=self.environ)
            self.server.wait()
            self.http = HttpClient(self.server.port, self.token)
        assert self.http is not None
        return self.http

    def call(self, request: Request, key: str) -> tuple[int, bytes]:
        """The status and the body; status 0 if there is no response."""
        method, path, body = request
        try:
            return self.ensure().call(method, path, body, key)
        except (OSError, HTTPException):
            return 0, b""

    def point(self, scenario: Scenario, kind: FaultKind, passing: int, name: str) -> bool:
        """Run the scenario; False if it completed without a failed call."""
        self.ensure()
        where = f"{scenario.__name__[1:]}, {kind.name} after {passing}"
        failed = False
        for step, request in enumerate(scenario(name)):
            self.control.arm(passing, kind)
            status, said = self.call(request, f"{name}.{step}")
            reads = self.call(("GET", "/v1/repositories/default", None), "")[0]
            failed = self.control.disarm() or failed
            self.findings.counts[f"answers of {status}"] += 1
            if status and status not in (200, 201, *REFUSALS):
                self.findings.failures.append(f"{where}: {status} {said[:300]!r}")
            if reads not in (0, 200, *REFUSALS):
                self.findings.failures.append(f"{where}: a read gets {reads}")
            self._again(request, f"{name}.{step}", where, status, said)
        self.findings.counts["points"] += failed
        return failed

    def _again(self, request: Request, key: str, where: str, status: int, said: bytes) -> None:
        """Check that without the fault the same request with the same key succeeds, now or soon.

        ``status`` and ``said`` are its first response.
        """
        was_done = status in (200, 201)
        may_be_done = was_done or status == 0 or b'"outcome_unknown"' in said
        answer: tuple[int, bytes] = (0, b"")

        def is_done() -> bool:
            nonlocal answer
            answer = self.call(request, key)
            # A token is shown once: a repeated request gets `token_exists`, also after a first
            # request that had no response or an unknown outcome.
            told = may_be_done and answer[0] == 409 and b'"token_exists"' in answer[1]
            return told or answer[0] in (200, 201)

        if not wait_until(is_done, AGAIN_SECONDS_MAX):
            fault = "acknowledged and lost" if was_done else "not done when the fault is over"
            first = f"first {status} {said[:200]!r}, then {answer[0]} {answer[1][:300]!r}"
            self.findings.failures.append(f"{where}: {fault}: {first}")


def run(trial: Trial) -> Findings:
    """Run one scenario with one kind of fault, at every point."""
    findings = Findings()
    scenario = SCENARIOS[trial.number // len(KINDS) % len(SCENARIOS)]
    kind = KINDS[trial.number % len(KINDS)]
    with tempfile.TemporaryDirectory(prefix="io-") as home:
        data = Path(home) / "data"
        token = prepare(data)
        with closing(FaultControl(Path(home) / "control")) as control:
            environ = {
                "LD_PRELOAD": str(preload.library("failing")),
                "FAULT_CONTROL": str(Path(home) / "control"),
                "FAULT_UNDER": str(data),
            }
            run = _Run(data, token, control, environ, findings)
            try:
                _sweep(run, scenario, kind, SMOKE_EVERY if trial.mode == "smoke" else 1)
            except DoesNotStart as error:
                findings.failures.append(f"after a fault of {kind.name}: {error}")
            finally:
                if run.server is not None:
                    run.server.stop()
        with suppress(KeyError), closing(workload.opened(data)) as installation:
            findings.failures += workload.differences_of(installation)[:3]
    return findings


def _sweep(run: _Run, scenario: Scenario, kind: FaultKind, every: int) -> None:
    for passing in range(0, POINTS_MAX, every):
        if not run.point(scenario, kind, passing, f"n{passing}"):
            return
        if len(run.findings.failures) >= FAILURES_MAX:
            return
    run.findings.failures.append(f"the scenario needs more than {POINTS_MAX} calls")
