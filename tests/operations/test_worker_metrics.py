"""A worker that runs by itself serves its metrics on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.servers.process import free_port

SECONDS_MAX = 60.0


def start(data: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tidegate", "worker", "--data", str(data)]
    return subprocess.Popen([*command, "--worker-metrics-port", str(port)], stderr=subprocess.PIPE)


def test_a_worker_serves_its_metrics(tmp_path: Path) -> None:
    port = free_port()
    worker = start(tmp_path / "data", port)
    try:
        text = wait_for(f"http://127.0.0.1:{port}/metrics", "tidegate_worker_rounds_total{")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(SECONDS_MAX) == 0
    finally:
        worker.kill()
        worker.communicate()

    assert 'loop="orders"' in text
    assert "tidegate_manifest_age_seconds" in text


def test_a_port_in_use_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = start(tmp_path / "data", port)
        _, said = worker.communicate(timeout=SECONDS_MAX)

    assert worker.returncode == 6
    assert f"port {port} on 127.0.0.1" in said.decode()
    assert "worker_metrics_port" in said.decode()


def wait_for(url: str, text: str) -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            found: str = httpx2.get(url, timeout=SECONDS_MAX).text
        except httpx2.TransportError:
            found = ""
        if text in found:
            return found
        time.sleep(0.05)
    pytest.fail(f"{url} never had {text}")
