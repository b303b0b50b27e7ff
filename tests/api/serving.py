"""A real server in a thread, on a free loopback port, and clients of every kind for it."""

from __future__ import annotations

import asyncio
import atexit
import os
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from shutil import copy, rmtree
from tempfile import mkdtemp
from threading import Thread
from typing import Any
from unittest.mock import patch

import httpx2
import uvicorn.server

from tidegate.api.agents.fast_path.protocol import FastConnection
from tidegate.api.routes import ROUTES
from tidegate.clock import Clock, system_clock
from tidegate.commands.application import make_application
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.operations import accounts, passwords
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.slices import AddUser, CreateToken, add_user, create_token
from tidegate.domain.setup import SetUp, set_up
from tidegate.kernel.model import Meta
from tidegate.main import make_server, open_installation
from tidegate.web.application import Application
from tidegate.web.authentication import AgentProof
from tidegate.web.connections import Connection
from tidegate.web.routing import Route

ADMIN = "user_admin0000"
START_SECONDS_MAX = 60.0
SECRET_CHARS_MIN = 32  # a shorter text may occur anywhere by chance
SECONDS_MAX = 60.0  # to wait for a response on a busy machine
NAP_SHARE = 10
# All URLs are http. Reading the trusted roots takes 0.1 s, and even an empty context some ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class QuickNaps:
    """asyncio for uvicorn, with shorter sleeps: uvicorn sleeps twice for 0.1 s as it stops."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / NAP_SHARE)


vars(uvicorn.server)["asyncio"] = QuickNaps()


class Served:
    """A running server: its address, its installation, tokens and clients."""

    def __init__(self, url: str, application: Application, installation: Installation) -> None:
        self.url = url
        self.application = application
        self.installation = installation
        self._clients: list[httpx2.Client] = []
        self._tokens: dict[tuple[Grant, ...], str] = {}
        self._count = 0

    def skip_names(self, count: int = 1_000) -> None:
        """Skip names of users and tokens that already exist in this data."""
        self._count += count

    def user(self, *grants: Grant) -> str:
        """Add a user with these roles, as the administrator."""
        self._count += 1
        user_id = f"user_{self._count:010d}"
        command = AddUser(user_id=user_id, by=ADMIN, grants=grants)
        self.installation.execute.run(add_user, command, meta=Meta(actor=ADMIN))
        return user_id

    def token(self, user_id: str, grants: tuple[Grant, ...] | None = None) -> str:
        """Make a token of this user, narrowed to the grants if there are any."""
        self._count += 1
        return self.make_token(f"token{self._count:08d}", user_id, grants=grants)

    def make_token(
        self,
        token_id: str,
        user_id: str,
        days: int = 30,
        grants: tuple[Grant, ...] | None = None,
    ) -> str:
        """Make a token of this user with this id."""
        meta = Meta(actor=user_id)
        token = self.installation.accounts.tokens.keep_token(token_id, meta)
        command = CreateToken(user_id=user_id, token_id=token_id, days=days, grants=grants)
        self.installation.execute.run(create_token, command, meta=meta)
        return token

    def add_person(
        self, user_id: str, called: accounts.PersonNames, password: str, *grants: Grant
    ) -> None:
        """Add a user with names and a password under this id, as the administrator."""
        meta = Meta(actor=ADMIN)
        self.installation.accounts.keep_person(user_id, called, password, meta)
        command = AddUser(user_id=user_id, by=ADMIN, grants=grants)
        self.installation.execute.run(add_user, command, meta=meta)

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """A client with this token; None: without credentials."""
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        client = httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=SECONDS_MAX,
            verify=NO_TLS,
        )
        self._clients.append(client)
        return client

    def as_role(self, *roles: Role | Grant) -> httpx2.Client:
        """A client of a new user with these roles, on all scopes unless a grant says otherwise."""
        grants = tuple(item if isinstance(item, Grant) else Grant(item) for item in roles)
        return self.client(self.token(self.user(*grants)))

    @cached_property
    def admin(self) -> httpx2.Client:
        """A client of the first user, who has the administrator role only."""
        return self.client(self.token(ADMIN))

    def everything(self) -> httpx2.Client:
        """A client that may do everything."""
        return self.as_role(*Role)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def serving(
    data: Path,
    *,
    routes: Sequence[Route] = ROUTES,
    is_set_up: bool = True,
    alone: bool = False,
    clock: Clock = system_clock,
    agents: AgentProof | None = None,
    protocol: type[Connection] = FastConnection,
    **settings: Any,
) -> Iterator[Served]:
    """Serve an installation in this directory until the block ends.

    Rate limits are too high to matter unless they are set.
    """
    chosen: dict[str, Any] = {
        "reads_per_second": 100_000,
        "writes_per_second": 100_000,
        "agent_requests_per_second": 100_000,
        "sign_ins_per_minute": 100_000,
        "port": 0,
        "fast_path": os.environ.get("TIDEGATE_TEST_FAST_PATH", "on") == "on",
        **settings,
    }
    if not data.exists() and "store" not in chosen:
        copied(_laid_out(), data)  # creating the tables takes most of a start
    data.mkdir(mode=0o700, exist_ok=True)
    data.chmod(0o700)
    installation = open_installation(Settings(data=str(data), **chosen), clock)
    if is_set_up:
        command = SetUp(user_id=ADMIN, alone=alone)
        installation.execute.run(set_up, command, meta=Meta(actor=ADMIN))
    with patch.object(passwords, "SCRYPT_N", 2):  # for the dummy hash of unknown names
        application = make_application(installation, routes=routes, agents=agents)
    server = make_server(application, installation.settings, protocol)
    thread = Thread(target=server.run, name="served")
    thread.start()
    served: Served | None = None
    try:
        port = _port(server, thread)
        served = Served(f"http://127.0.0.1:{port}", application, installation)
        yield served
    finally:
        if served is not None:
            served.close()
        server.should_exit = True
        thread.join()
        application.close()
        installation.close()


def secret_of(token: str) -> str:
    """The last part of ``<prefix>_<id>_<secret>``, which may contain underscores."""
    secret = token.split("_", 2)[2]
    assert len(secret) >= SECRET_CHARS_MIN, token
    return secret


def copied(source: Path, target: Path) -> None:
    """Copy a data directory, quickly: most of it are empty directories."""
    target.mkdir(parents=True)
    for place, directories, names in os.walk(source):
        made = f"{target}{place.removeprefix(str(source))}"
        for name in directories:
            os.mkdir(f"{made}/{name}")
        for name in names:
            copy(f"{place}/{name}", f"{made}/{name}")


@cache
def _laid_out() -> Path:
    """A data directory with all tables and no events."""
    place = Path(mkdtemp(prefix="tidegate-api-"))
    atexit.register(rmtree, place, ignore_errors=True)
    place.chmod(0o700)
    open_installation(Settings(data=str(place))).close()
    return place


def _port(server: Any, thread: Thread) -> int:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port
