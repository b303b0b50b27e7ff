"""A full or failing disk: requests get an error, /readyz fails, and the server stops writing.

A server never writes again after a failed flush.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.people import NAME, People
from tests.api.serving import Served
from tests.servers.process import free_port

SECONDS_MAX = 60.0
FILES = {"files": [{"path": "index.html", "text": "one"}]}
# A server whose next flush of the log fails after SIGUSR1.
SERVER = """
import signal, sys
from tests.contract.failing_files import FailingFiles
files = FailingFiles()
signal.signal(signal.SIGUSR1, lambda *_: setattr(files, "failing_syncs", 1))
from tidegate.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failed_blob_write_gets_507_and_makes_the_server_not_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    people = People(served)
    people.draft()
    is_failing = True
    mkstemp = tempfile.mkstemp

    def failing(**named: Any) -> tuple[int, str]:
        if is_failing:
            raise OSError(fault, os.strerror(fault), "/secret/place")
        return mkstemp(**named)

    monkeypatch.setattr(tempfile, "mkstemp", failing)
    path, seen = f"/v1/revisions/{NAME}/resources", people.seen(NAME)
    refused = people.author.put(path, json=FILES, headers=seen)
    red = served.client().get("/readyz")
    is_failing = False
    green = served.client().get("/readyz")
    done = people.author.put(path, json=FILES, headers=seen)

    assert (refused.status_code, refused.json()["code"]) == (507, "insufficient_storage")
    assert os.strerror(fault) in refused.json()["detail"]
    assert red.status_code == 503
    assert [item["name"] for item in red.json()["checks"] if not item["ok"]] == ["blobs"]
    assert "/secret/place" not in red.text
    assert (green.status_code, done.status_code) == (200, 200)


def test_a_server_ends_with_75_after_a_flush_that_failed(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", SERVER, "serve", "--data", str(data), "--port", str(port)]
    with (tmp_path / "stderr").open("wb") as errors:
        process = subprocess.Popen([*command, "--worker", "false"], stderr=errors)
    try:
        wait_until_alive(url, process)
        said = (tmp_path / "stderr").read_text()
        code = re.search(r"one-time code (\S+)", said)
        assert code
        process.send_signal(signal.SIGUSR1)
        httpx2.get(f"{url}/livez", timeout=SECONDS_MAX)  # lets the signal handler run

        person = {"login": "ada", "name": "Ada", "password": "a long password", "alone": True}
        answer = httpx2.post(
            f"{url}/v1/setup", json={**person, "code": code[1]}, timeout=SECONDS_MAX
        )

        assert answer.status_code == 503
        assert process.wait(SECONDS_MAX) == 75
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
    last = (tmp_path / "stderr").read_text().strip().splitlines()[-1]
    assert last.startswith("writer_closed: a flush of the log failed")
    assert "the disk went away" in last or "disk I/O error" in last


def wait_until_alive(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None
        try:
            httpx2.get(f"{url}/livez")
        except httpx2.TransportError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server did not start")
