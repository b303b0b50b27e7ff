"""A proxy in front of PostgreSQL that can cut a connection or lose an answer."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

SENT = b"INSERT INTO log_head"  # sent only in the second round trip of a session's first use


IDLE = b"Z\x00\x00\x00\x05I"  # the end of an answer after which no transaction is open


SECONDS_MAX = 60.0


class PostgresProxy:
    """A proxy on a Unix socket of its own. ``cut`` names when it breaks, which happens once."""

    def __init__(self, home: Path, server: Path) -> None:
        self.url = f"postgresql://postgres@/postgres?host={quote(str(home), safe='')}&port=5432"
        self.cut = ""  # "before" or "after" the server received the second round trip
        self.refusing = False
        self.is_cut_for_good = False  # it refuses connections after the cut
        self._committed = Event()
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home / ".s.PGSQL.5432"))
        self._listener.listen(64)
        self._open = True
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._open = False
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            thread = Thread(target=self._carry, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(str(self._server))
            back = Thread(target=self._carry_back, args=(server, client))
            back.start()
            try:
                while heard := client.recv(1 << 16):
                    cut = self.cut if SENT in heard else ""
                    if cut == "before":
                        break
                    server.sendall(heard)
                    if cut == "after":
                        self._committed.wait(SECONDS_MAX)  # the answer is withheld
                        self.refusing = self.is_cut_for_good
                        break
            finally:
                for end in (client, server):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                back.join()

    def _carry_back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while heard := server.recv(1 << 16):
                if self.cut == "after" and b"INSERT" in heard:
                    while not heard.endswith(IDLE):
                        heard += server.recv(1 << 16)
                    self._committed.set()
                    continue
                client.sendall(heard)


@contextmanager
def serve_proxy(postgres_url: str) -> Iterator[PostgresProxy]:
    """Run a proxy to that server for the length of the block."""
    where = conninfo_to_dict(postgres_url)
    socket_file = Path(str(where["host"])) / f".s.PGSQL.{where.get('port', 5432)}"
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-wire-") as name,
        closing(PostgresProxy(Path(name), socket_file)) as made,
    ):
        yield made
