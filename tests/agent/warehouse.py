"""A plain web server beside Tidegate, on loopback, where referenced files lie, or other things."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from threading import Thread
from time import sleep

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Says:
    """What it answers under a path."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    announced: int | None = None  # the content-length, if it is not the truth
    drips: bool = False  # a byte at a time


class Warehouse:
    """Its shelves, and every request that came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.shelves: dict[str, Says | bytes] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent = 0  # bytes of bodies

    def at(self, path: str) -> str:
        return f"{self.url}{path}"

    def find(self, path: str) -> Says:
        found = self.shelves.get(path, Says(b"no such file", 404))
        return Says(found) if isinstance(found, bytes) else found


def batched(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), max(1, size)):
        yield body[start : start + size]


def certificate(place: Path) -> Path:
    """A certificate of 127.0.0.1 that signed itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = place / "certificate.pem"
    path.write_bytes(secret + made.public_bytes(Encoding.PEM))
    return path


@contextmanager
def warehouse(signed: Path | None = None) -> Iterator[Warehouse]:
    """It serves until the end of the block, over TLS if it has a certificate."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            held.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            says = held.find(self.path)
            self.send_response(says.status)
            for name, value in says.headers.items():
                self.send_header(name, value)
            length = len(says.body) if says.announced is None else says.announced
            self.send_header("content-length", str(length))
            self.end_headers()
            for piece in batched(says.body, 1 if says.drips else len(says.body)):
                try:
                    self.wfile.write(piece)
                except OSError:
                    return  # nobody wants more
                held.sent += len(piece)
                sleep(0.02 if says.drips else 0)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    scheme = "http"
    if signed is not None:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    held = Warehouse(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
