"""PostgreSQL that is killed, fails over, ends sessions, and has a bad connection.

    clients ─▶ wire (delays, drops before and after the response) ─▶ primary ─▶ synchronous standby

Three kinds of trial in turn: kills of the whole server, a failover to the standby, and a wire that
drops connections while backends are terminated. In each, clients race, and the responses that they
got are checked against the final log.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from threading import Lock, Thread
from urllib.parse import quote

import psycopg

from bench.faults.racing import Race, judge, racing
from bench.trials import Findings, Trial
from tests.differential.world import SCHEMA
from tests.servers import postgres as server
from tests.servers.process import until
from tidegate.engines.postgres import PostgresStore
from tidegate.kernel.store import Store

CLIENTS = 4
KILLS = {"smoke": 1, "ci": 5, "full": 5, "long": 5}
COMMITS_BETWEEN = 25
SECONDS_MAX = 60.0
DROPS = {"smoke": 10, "ci": 40, "full": 80, "long": 80}
SOCKET = f".s.PGSQL.{server.PORT}"
PAUSE_SECONDS = 0.01  # for each client, so that a history stays short enough to be checked


class Cluster:
    """A PostgreSQL with fsync on, which can be killed and started again."""

    def __init__(self, home: Path, data: Path | None = None) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        self.owner = server._unprivileged(home)
        self.binaries = server._binaries(home, self.owner)
        self.data = data or home / "cluster"
        if data is None:
            server._make(self.data, self.binaries, self.owner)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.home), safe='')}&port=5432"

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home),
            "port": str(server.PORT),
            "max_connections": "60",
            "wal_level": "replica",
            "hot_standby": "on",
        }
        words: list[str | Path] = [self.binaries / "postgres", "-D", self.data]
        words += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.home / "log").open("ab") as said:
            self.process = subprocess.Popen(
                words, stdout=said, stderr=said, cwd=self.home, **self.owner
            )
        if not until(self.accepts, seconds_max=SECONDS_MAX):
            raise AssertionError((self.home / "log").read_text()[-2_000:])

    def accepts(self) -> bool:
        with suppress(psycopg.Error), psycopg.connect(self.url, connect_timeout=2):
            return True
        return False

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as session:
            session.execute(statement.encode())

    def kill(self) -> None:
        """Kill all of its processes at once."""
        assert self.process is not None
        children = _children(self.process.pid)
        for pid in (self.process.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        until(lambda: not any(map(_is_alive, children)), seconds_max=SECONDS_MAX)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def standby(self, home: Path) -> Cluster:
        """Start a synchronous standby of this server."""
        home.mkdir()
        server._unprivileged(home)
        copy = home / "cluster"
        words: list[str | Path] = [self.binaries / "pg_basebackup", "-h", self.home]
        words += [
            "-p",
            str(server.PORT),
            "-U",
            "postgres",
            "-D",
            copy,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
        ]
        subprocess.run(words, check=True, cwd=home, capture_output=True, **self.owner)
        made = Cluster(home, copy)
        made.start()
        self.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.run("SELECT pg_reload_conf()")
        assert until(self._is_followed, seconds_max=SECONDS_MAX), "the standby does not follow"
        return made

    def _is_followed(self) -> bool:
        with psycopg.connect(self.url) as session:
            found = session.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
        return found == [("sync",)]


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class BadWire:
    """A proxy on a Unix socket. It may delay every chunk of data. A requested drop hits the next
    chunk of some connection, before or after the chunk is passed on.
    """

    def __init__(self, home: Path, target: Path, random: Random) -> None:
        self.url = f"postgresql://postgres@/postgres?host={quote(str(home), safe='')}&port=5432"
        self.target = target
        self.lateness = 0.0  # seconds at most
        self._drops: list[str] = []
        self._random, self._lock = random, Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home / SOCKET))
        self._listener.listen(64)
        Thread(target=self._accept, daemon=True).start()

    def drop(self, when: str) -> None:
        """Break a connection: "question" before the server gets the chunk, "answer" after it."""
        with self._lock:
            self._drops.append(when)

    def left(self) -> int:
        return len(self._drops)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        upstream = socket.socket(socket.AF_UNIX)
        try:
            upstream.connect(str(self.target))
        except OSError:
            client.close()
            return
        pump = (upstream, client, "answer")
        Thread(target=self._pump, args=pump, daemon=True).start()
        self._pump(client, upstream, "question")

    def _pump(self, source: socket.socket, sink: socket.socket, kind: str) -> None:
        with suppress(OSError):
            while heard := source.recv(1 << 16):
                with self._lock:
                    late = self._random.random() * self.lateness
                    is_dropped = bool(self._drops) and self._drops[0] == kind
                    if is_dropped:
                        self._drops.pop(0)
                time.sleep(late)
                if is_dropped:
                    break
                sink.sendall(heard)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-")))
        home.chmod(0o755)
        cluster = Cluster(home / "primary")
        cluster.start()
        clusters = [cluster]
        stack.callback(_end, clusters)
        (home / "wire").mkdir()
        wire = BadWire(home / "wire", cluster.home / SOCKET, random)
        stack.callback(wire.close)
        PostgresStore(cluster.url, SCHEMA, namespace="bench").close()

        def connect() -> Store:
            return PostgresStore(wire.url, SCHEMA, namespace="bench")

        with racing(connect, random, CLIENTS, PAUSE_SECONDS) as race:
            match trial.number % 3:
                case 0:
                    _kill(race, cluster, KILLS[trial.mode], random, findings)
                case 1:
                    clusters.append(_fail_over(race, cluster, wire, home, random, findings))
                case _:
                    _drop(race, cluster, wire, DROPS[trial.mode], random, findings)
        findings.counts["told that it is away"] += race.away
        judge(race.history(lambda: _direct(clusters[-1])), findings, one_order=True)
    return findings


def _direct(cluster: Cluster) -> Store:
    return PostgresStore(cluster.url, SCHEMA, namespace="bench")


def _end(clusters: list[Cluster]) -> None:
    for cluster in clusters:
        if cluster.process is not None and cluster.process.poll() is None:
            cluster.kill()


def _go_on(race: Race, findings: Findings, what: str) -> None:
    if not race.wait_for(COMMITS_BETWEEN, SECONDS_MAX):
        findings.failures.append(f"no commits {what}")


def _kill(race: Race, cluster: Cluster, kills: int, random: Random, findings: Findings) -> None:
    for number in range(kills):
        _go_on(race, findings, f"after kill {number}")
        time.sleep(random.random() * 0.2)
        cluster.kill()
        findings.counts["kills"] += 1
        cluster.start()
    _go_on(race, findings, "after the last kill")


def _fail_over(
    race: Race, cluster: Cluster, wire: BadWire, home: Path, random: Random, findings: Findings
) -> Cluster:
    standby = cluster.standby(home / "standby")
    _go_on(race, findings, "with a standby")
    time.sleep(random.random() * 0.2)
    cluster.kill()
    standby.run("SELECT pg_promote()")
    wire.target = standby.home / SOCKET
    findings.counts["failovers"] += 1
    _go_on(race, findings, "after the failover")
    return standby


def _drop(
    race: Race, cluster: Cluster, wire: BadWire, drops: int, random: Random, findings: Findings
) -> None:
    wire.lateness = 0.004
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    for number in range(drops):
        if number % 5 == 4:
            cluster.run(f"{others} AND backend_type = 'client backend'")
            findings.counts["times that all backends were terminated"] += 1
        else:
            wire.drop(random.choice(("question", "answer", "answer")))
            findings.counts["drops"] += 1
        race.wait_for(random.randint(1, 4), SECONDS_MAX)
    wire.lateness = 0.0
    _go_on(race, findings, "after the last drop")
