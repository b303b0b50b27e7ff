"""Probes against real servers, ports and programs, and probe files with errors."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tidegate.agent.errors import InvalidProbes
from tidegate.agent.probes import PASSED, ExecProbe, HttpProbe, TcpProbe, load, run_probe
from tidegate.domain.hosts.states import ProbeMode, ProbeStatus

GOOD = """
[[probes]]
name = "front"
kind = "http"
url = "http://127.0.0.1:1/health"
expect_status = 204
interval_seconds = 5

[[probes]]
name = "port"
kind = "tcp"
host = "127.0.0.1"
port = 80
mode = "observe"

[[probes]]
name = "self-test"
kind = "exec"
command = ["/bin/true"]
mode = "disabled"
"""


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(5)
            return
        self.send_response(503 if self.path == "/broken" else 200)
        self.end_headers()
        self.wfile.write(b"all is well here")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def http(port: int, path: str = "/", **more: object) -> HttpProbe:
    seconds = {"timeout_seconds": 60.0, **more}
    return HttpProbe(name="front", url=f"http://127.0.0.1:{port}{path}", **seconds)  # type: ignore[arg-type]


def test_reads_every_kind_and_mode(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    file.write_text(GOOD)

    front, tcp, program = load(str(file))

    assert isinstance(front, HttpProbe)
    assert (front.expect_status, front.mode) == (204, ProbeMode.ENFORCE)
    assert isinstance(tcp, TcpProbe)
    assert tcp.mode is ProbeMode.OBSERVE
    assert isinstance(program, ExecProbe)
    assert program.mode is ProbeMode.DISABLED


def test_reads_json_as_well(tmp_path: Path) -> None:
    file = tmp_path / "probes.json"
    file.write_text('{"probes": [{"name": "p", "kind": "tcp", "host": "::1", "port": 1}]}')

    assert load(str(file)) == (TcpProbe(name="p", host="::1", port=1),)


def test_an_empty_path_means_no_probes() -> None:
    assert load("") == ()


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("", "missing required field `probes`"),
        ("probes = 3", "Expected `array`"),
        ("[[probes]]\nname = ", "Invalid"),
        ('[[probes]]\nname = "x"\nkind = "ping"', "ping"),
        ('[[probes]]\nname = "x"\nkind = "http"', "url"),
        ('[[probes]]\nname = "x"\nkind = "tcp"\nhost = "h"\nport = 0', "port"),
        ('[[probes]]\nname = "x"\nkind = "exec"\ncommand = []', "command"),
        ('[[probes]]\nname = "x"\nkind = "exec"\ncommand = ["a"]\nmode = "maybe"', "mode"),
        (
            '[[probes]]\nname = "x"\nkind = "exec"\ncommand = ["a"]\ninterval_seconds = 0',
            "interval",
        ),
        ('[[probes]]\nname = "x"\nkind = "exec"\ncommand = ["a"]\nintervall = 3', "intervall"),
        ('[[probes]]\nname = "x"\nkind = "exec"\ncommand = ["a"]\n' * 2, "twice"),
    ],
)
def test_refuses_a_file_with_any_error(tmp_path: Path, found: str, told: str) -> None:
    file = tmp_path / "probes.toml"
    file.write_text(found)

    with pytest.raises(InvalidProbes, match=told):
        load(str(file))


def test_refuses_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidProbes, match="cannot be read"):
        load(str(tmp_path / "none.toml"))


def test_probes_a_server(port: int) -> None:
    assert run_probe(http(port)) == PASSED
    assert run_probe(http(port, body_contains="is well")) == PASSED


@pytest.mark.parametrize(
    ("path", "more", "reason"),
    [
        ("/broken", {}, "status 503, expected 200"),
        ("/", {"expect_status": 204}, "status 200, expected 204"),
        ("/", {"body_contains": "all is lost"}, "does not contain 'all is lost'"),
        ("/slow", {"timeout_seconds": 0.3}, "ReadTimeout"),
    ],
)
def test_reports_the_response_of_a_server(
    port: int, path: str, more: dict[str, object], reason: str
) -> None:
    result = run_probe(http(port, path, **more))

    assert result.status is ProbeStatus.FAIL
    assert result.reason is not None
    assert reason in result.reason


def test_probes_a_port(port: int) -> None:
    assert (
        run_probe(TcpProbe(name="p", host="127.0.0.1", port=port, timeout_seconds=60.0)) == PASSED
    )
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = run_probe(TcpProbe(name="p", host="127.0.0.1", port=closed.getsockname()[1]))
    assert refused.status is ProbeStatus.FAIL


def test_probes_with_a_program() -> None:
    python = sys.executable

    def program(script: str, code: int = 0) -> ExecProbe:
        command = (python, "-c", script)
        return ExecProbe(name="p", command=command, expect_exit_code=code, timeout_seconds=60.0)

    assert run_probe(program("pass")) == PASSED
    assert run_probe(program("raise SystemExit(3)", 3)) == PASSED
    assert run_probe(program("raise SystemExit(3)")).reason == "exit code 3, expected 0"

    broken = run_probe(program("raise SystemExit('no disk' * 500)"))

    assert broken.status is ProbeStatus.FAIL
    assert broken.reason is not None
    assert broken.reason.startswith("exit code 1, expected 0")
    assert "no disk" in broken.reason
    assert len(broken.reason.encode()) <= 512


def test_fails_a_program_that_hangs_or_does_not_exist() -> None:
    hangs = ExecProbe(
        name="p",
        command=(sys.executable, "-c", "input() or exec('while 1: pass')"),
        timeout_seconds=0.5,
    )
    spins = ExecProbe(name="p", command=("/bin/sleep", "60"), timeout_seconds=0.5)
    missing = ExecProbe(name="p", command=("/nonexistent/program",))

    assert run_probe(hangs).status is ProbeStatus.FAIL
    assert run_probe(spins).reason == "killed after 0.5 s"
    assert run_probe(missing).status is ProbeStatus.FAIL
