"""The servers of the tests start once, say clearly what is wrong, and never outlive their run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.servers import dynamodb, node, npm, postgres, shared
from tests.servers.process import RUN_VARIABLE, ServerUnavailable, free_port, until

ROOT = Path(__file__).parents[1]
ASKS_AND_DIES = """
import os, signal
from tests.servers import process, shared

with shared.run():
    print(os.environ[process.RUN_VARIABLE], shared.url("postgres"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_process_of_a_run_gets_the_same_server(postgres_url: str, dynamodb_url: str) -> None:
    assert shared.url("postgres") == postgres_url
    assert shared.url("dynamodb") == dynamodb_url
    with psycopg.connect(shared.url("postgres")) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_keeps_fsync_on_when_the_server_must_be_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(postgres.URL_VARIABLE, raising=False)

    with postgres.running(durable=True) as url, psycopg.connect(url) as db:
        assert db.execute("SHOW fsync").fetchone() == ("on",)


def test_stops_a_server_whose_run_was_killed() -> None:
    environment = {k: v for k, v in os.environ.items() if k != RUN_VARIABLE}
    environment.pop(postgres.URL_VARIABLE, None)
    killed = subprocess.run(
        [sys.executable, "-c", ASKS_AND_DIES],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )

    run, url = killed.stdout.split()

    assert until(lambda: not Path(run).exists(), seconds_max=60)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_returns_no_port_twice() -> None:
    ports = [free_port() for _ in range(50)]

    assert len(set(ports)) == len(ports)


def test_uses_a_server_whose_url_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.URL_VARIABLE, "postgresql://elsewhere/db")
    monkeypatch.setenv(dynamodb.URL_VARIABLE, "http://127.0.0.1:1")

    assert shared.url("postgres") == "postgresql://elsewhere/db"
    with dynamodb.running() as url:
        assert url == "http://127.0.0.1:1"


def test_refuses_a_package_whose_bytes_are_not_the_pinned_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npm, "TOOLS", tmp_path)
    archive = tmp_path / "other.tgz"
    archive.write_bytes(b"other")
    monkeypatch.setattr(npm, "_download", lambda package, folder: archive)

    with pytest.raises(ServerUnavailable, match="pinned is"):
        npm.fetched(replace(dynamodb.DYNOXIDE, version="9"))
    assert list((tmp_path / "npm").glob("dynoxide*")) == []


def test_a_missing_node_package_fails_instead_of_skipping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(package: npm.Package, folder: Path) -> Path:
        raise ServerUnavailable(f"no way to {package.name}")

    monkeypatch.setattr(npm, "TOOLS", tmp_path)
    monkeypatch.setattr(npm, "_download", away)

    with pytest.raises(ServerUnavailable, match="no way to standardwebhooks"):
        node.install(node.STANDARD_WEBHOOKS, tmp_path)


def test_explains_what_to_do_without_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(postgres.URL_VARIABLE, raising=False)
    monkeypatch.setattr(postgres, "_places", lambda: [tmp_path])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ServerUnavailable, match=postgres.URL_VARIABLE), postgres.running():
        pass


def test_runs_the_binaries_of_the_wheel_when_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(postgres.URL_VARIABLE, raising=False)
    monkeypatch.setattr(postgres, "_places", list)

    with postgres.running() as url, psycopg.connect(url) as db:
        assert db.info.server_version >= postgres.MAJOR_MIN * 10_000
