"""Files by reference on a host: fetched from a real server, verified, never installed in part."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.agent.agent_process import AgentProcess
from tests.agent.file_server import FileResponse, FileServer, certificate, serve_files
from tests.agent.fleet_server import CHANNEL, FleetServer
from tests.agent.single_host import ContentSource, closure_of
from tests.api.people import People
from tests.servers.certificates import trust_of
from tests.servers.process import free_port
from tidegate import bounded_http, public_addresses
from tidegate.agent.config import ChannelSettings
from tidegate.agent.content import provide
from tidegate.agent.drivers import (
    EXIT_UNVERIFIED,
    CommandDriver,
    RunningArtifacts,
    Switched,
    SwitchFailed,
    SwitchRequest,
    SymlinkDriver,
)
from tidegate.agent.errors import ContentMismatch, ReferenceAway, ReferenceRefused, ServerAway
from tidegate.agent.references import FETCH_SECONDS_MAX, HTTP_ALONE, REDIRECTS_MAX, References
from tidegate.domain.content.entries import File
from tidegate.domain.hosts.protocol import ReleaseContent
from tidegate.domain.hosts.states import HostState

BODY = bytes(range(256)) * 1_000  # more than one chunk
FILES = {"app.txt": b"good", "bin/app": BODY}
CLOSURE = closure_of(FILES)
SECONDS_MAX = 60.0


class Referring(ContentSource):
    """A file list of a server in which some files are references."""

    def __init__(self, **uris: str) -> None:
        super().__init__(new=FILES)
        self.uris = {path.replace("__", "/"): uri for path, uri in uris.items()}

    def listing(self, content: str) -> ReleaseContent:
        found = super().listing(content)
        files = tuple(
            File(file.path, file.sha256, file.bytes, self.uris.get(file.path), file.executable)
            for file in found.files
        )
        return ReleaseContent(found.release_id, found.digest, files)

    def body(self, content: str, hashed: str) -> bytes:
        assert hashed != sha256(BODY).hexdigest(), "the server does not have it"
        return super().body(content, hashed)


@pytest.fixture
def store() -> Iterator[FileServer]:
    with serve_files() as held:
        yield held


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "place"
    path.mkdir()
    return path


class Anywhere:
    """An allow-list that contains every host and port."""

    def __contains__(self, name: object) -> bool:
        return True


def fetching_anywhere(
    directories: tuple[Path, ...] = (), seconds: float = FETCH_SECONDS_MAX
) -> References:
    """The servers of these tests are on loopback, which an agent must be allowed to reach."""
    return References(directories, seconds, hosts=Anywhere())


def brought(place: Path, uri: str, fetching: References | None = None) -> Path:
    chosen = fetching_anywhere() if fetching is None else fetching
    return provide(CLOSURE, "/new", place, Referring(bin__app=uri), chosen)


def left(place: Path) -> list[str]:
    """List files of the reference that exist anywhere, complete or partial."""
    return [str(path) for path in place.rglob("app") if path.is_file()]


# ── fetched and verified ──


def test_fetches_a_file_from_where_it_is(place: Path, store: FileServer) -> None:
    store.responses["/app"] = BODY

    found = brought(place, store.at("/app"))

    assert (found / "bin/app").read_bytes() == BODY
    assert (found / "app.txt").read_bytes() == b"good"
    assert found.name == CLOSURE.replace(":", "-")


def test_sends_the_other_server_nothing_of_ours(place: Path, store: FileServer) -> None:
    there = FileResponse(status=302, headers={"location": "/next", "set-cookie": "who=me; Path=/"})
    store.responses |= {"/app": there, "/next": BODY}

    brought(place, store.at("/app"))

    for _, headers in store.asked:
        assert set(headers) <= {"host", "accept", "accept-encoding", "connection", "user-agent"}
        assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (FileResponse(BODY[:-1] + b"!"), "expected"),
        (FileResponse(BODY + b"!"), f"more than {len(BODY)} bytes"),
        (FileResponse(BODY[:-1]), f"{len(BODY) - 1} bytes"),
        (FileResponse(b""), "0 bytes"),
    ],
    ids=["other", "longer", "shorter", "empty"],
)
def test_installs_nothing_but_the_approved_bytes(
    place: Path, store: FileServer, says: FileResponse, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.responses["/app"] = says

    with pytest.raises(ContentMismatch) as refused:
        brought(place, store.at("/app"))

    assert told in caplog.text
    assert told not in refused.value.detail, "reports do not reveal what is at an address"
    assert "bin/app" in refused.value.detail
    assert store.url in refused.value.detail
    assert left(place) == []
    assert not (place / CLOSURE.replace(":", "-")).exists()


def test_reads_no_more_of_an_endless_body_than_was_announced(
    place: Path, store: FileServer
) -> None:
    store.responses["/app"] = FileResponse(BODY * 20, announced=2**40)

    with pytest.raises(ContentMismatch, match="not what the release names"):
        brought(place, store.at("/app"))

    assert left(place) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 204, 206, 300])
def test_gives_up_if_the_other_server_refuses(place: Path, store: FileServer, status: int) -> None:
    store.responses["/app"] = FileResponse(b"", status)

    with pytest.raises(ReferenceRefused, match=str(status)):
        brought(place, store.at("/app"))

    assert left(place) == []


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_tries_again_if_the_other_server_is_unavailable(
    place: Path, store: FileServer, status: int
) -> None:
    store.responses["/app"] = FileResponse(b"", status)
    with pytest.raises(ReferenceAway, match=str(status)):
        brought(place, store.at("/app"))
    assert left(place) == []

    store.responses["/app"] = BODY

    assert (brought(place, store.at("/app")) / "bin/app").read_bytes() == BODY


def test_treats_a_broken_connection_as_unavailable(place: Path, store: FileServer) -> None:
    store.responses["/app"] = FileResponse(BODY[:100_000], announced=len(BODY))

    with pytest.raises(ReferenceAway):
        brought(place, store.at("/app"))
    with pytest.raises(ReferenceAway):
        brought(place, f"http://127.0.0.1:{free_port()}/app")

    assert left(place) == []
    assert issubclass(ReferenceAway, ServerAway), "the loop retries it"


class Dripping:
    """A server that sends a beginning, then one byte at a time until the client hangs up."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._end = Event()
        self.dripped = 0
        self.left = Event()  # set when the client hung up
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        came, _ = self._listening.accept()
        with came:
            try:
                came.recv(65_536)
                came.sendall(self._beginning)
                while not self._end.wait(0.01):
                    came.sendall(b"x")
                    self.dripped += 1
            except OSError:
                self.left.set()

    def close(self) -> None:
        self._end.set()
        with suppress(OSError):  # no client connected, so accept() still waits
            socket.create_connection(self._listening.getsockname()).close()
        self._thread.join()
        self._listening.close()


@pytest.mark.parametrize(
    ("scheme", "beginning"),
    [
        ("https", b"\x16\x03\x03\x40\x00"),  # announces a TLS record of 16 KiB, sends none of it
        ("http", b""),
        ("http", b"HTTP/1.1 200 OK\r\nserver: "),
        ("http", b"HTTP/1.1 302 Found\r\nlocation: /"),
        ("http", b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"),
        ("http", b"HTTP/1.1 503 Later\r\nserver: "),
    ],
    ids=["tls", "status", "head", "redirect", "body", "refusal"],
)
def test_ends_a_dripping_exchange_at_every_stage(
    place: Path, scheme: str, beginning: bytes
) -> None:
    bounded_http.trusted_roots()  # root certificates are read once, which may take long
    for seconds in (1, 4, 16, 64):  # until the server has sent several times
        with closing(Dripping(beginning)) as there:
            with pytest.raises(ReferenceAway, match=f"/app took longer than {seconds} s"):
                brought(
                    place, f"{scheme}://{there.address}/app", fetching_anywhere(seconds=seconds)
                )

            assert there.left.wait(SECONDS_MAX), "it closed the connection"
        assert left(place) == []
        if there.dripped > 1:
            return
    raise AssertionError("a single wait was too long")


def test_all_redirects_share_one_deadline(place: Path, store: FileServer) -> None:
    bounded_http.trusted_roots()
    for seconds in (0.5, 2.5, 12.5):  # until the client has sent its request
        waits = 0.4 * seconds
        store.responses["/round"] = FileResponse(
            status=302, headers={"location": "/round"}, waits=waits
        )
        with pytest.raises(ReferenceAway, match=rf"/round took longer than {seconds} s"):
            brought(place, store.at("/round"), fetching_anywhere(seconds=seconds))
        if store.asked:
            break

    assert 0 < len(store.asked) <= REDIRECTS_MAX, (
        "the deadline passed before it had followed them all"
    )


def test_does_not_fetch_a_complete_file_again(place: Path, store: FileServer) -> None:
    store.responses["/app"] = BODY
    broken = Referring(bin__app=store.at("/app"), z=store.at("/none"))
    broken.releases["/new"] = {**FILES, "z": b"missing"}
    closure = closure_of(broken.releases["/new"])
    with pytest.raises(ReferenceRefused):
        provide(closure, "/new", place, broken, fetching_anywhere())
    store.responses["/none"] = b"missing"

    found = provide(closure, "/new", place, broken, fetching_anywhere())

    assert [path for path, _ in store.asked] == ["/app", "/none", "/none"]
    assert (found / "bin/app").read_bytes() == BODY


def test_shows_no_query_of_an_address(place: Path, store: FileServer) -> None:
    with pytest.raises(ReferenceRefused) as refused:
        brought(place, store.at("/app?signature=hidden"))

    assert store.asked[0][0] == "/app?signature=hidden"
    assert "hidden" not in refused.value.detail


# ── redirects ──


def test_follows_a_few_redirects(place: Path, store: FileServer) -> None:
    store.responses |= {
        f"/{number}": FileResponse(status=307, headers={"location": store.at(f"/{number + 1}")})
        for number in range(REDIRECTS_MAX)
    }
    store.responses[f"/{REDIRECTS_MAX}"] = BODY

    assert (brought(place, store.at("/0")) / "bin/app").read_bytes() == BODY


def test_limits_the_number_of_redirects(place: Path, store: FileServer) -> None:
    store.responses["/round"] = FileResponse(status=302, headers={"location": "/round"})

    with pytest.raises(ReferenceRefused, match="more than"):
        brought(place, store.at("/round"))

    assert len(store.asked) == REDIRECTS_MAX + 1
    assert left(place) == []


@pytest.mark.parametrize("location", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_follows_no_redirect_to_another_scheme(
    place: Path, store: FileServer, location: str
) -> None:
    store.responses["/app"] = FileResponse(status=302, headers={"location": location})

    with pytest.raises(ReferenceRefused, match="not followed"):
        brought(place, store.at("/app"), fetching_anywhere((Path("/etc"),)))

    assert left(place) == []


def test_follows_a_redirect_from_http_to_https_but_not_back(
    tmp_path: Path, place: Path, store: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = certificate(tmp_path)
    monkeypatch.setattr(bounded_http, "trusted_roots", lambda: trust_of(signed))
    with serve_files(signed) as safe:
        safe.responses |= {
            "/app": BODY,
            "/back": FileResponse(status=302, headers={"location": store.at("/plain")}),
        }
        store.responses |= {
            "/up": FileResponse(status=302, headers={"location": safe.at("/app")}),
            "/plain": BODY,
        }

        with pytest.raises(ReferenceRefused, match="not followed"):
            brought(place, safe.at("/back"))
        assert store.asked == []
        found = brought(place, store.at("/up"))

    assert (found / "bin/app").read_bytes() == BODY


def test_refuses_a_server_with_an_untrusted_certificate(tmp_path: Path, place: Path) -> None:
    with serve_files(certificate(tmp_path)) as unknown:
        unknown.responses["/app"] = BODY

        with pytest.raises(ReferenceAway, match="certificate"):
            brought(place, unknown.at("/app"))

        assert unknown.asked == []
    assert left(place) == []


@pytest.mark.parametrize(
    "uri",
    [
        *("ftp://127.0.0.1/app", "gopher:x", "http://", "app"),
        *("http://a..b/app", f"http://{'a' * 64}/app", "file:///a%00b", "file://[/a"),
    ],
)
def test_fetches_from_no_forbidden_address(place: Path, uri: str) -> None:
    with pytest.raises(ReferenceRefused):
        brought(place, uri, References((Path("/etc"),)))


@pytest.mark.parametrize("location", ["http://a..b/app", f"http://{'a' * 64}/app"])
def test_gives_up_a_redirect_to_an_invalid_name(
    place: Path, store: FileServer, location: str
) -> None:
    store.responses["/app"] = FileResponse(status=302, headers={"location": location})

    with pytest.raises(ReferenceRefused, match="no address"):
        brought(place, store.at("/app"))

    assert left(place) == []


# ── file: ──


def test_copies_a_local_file_from_a_directory_that_the_settings_name(
    tmp_path: Path, place: Path
) -> None:
    content_source = tmp_path / "with space"
    content_source.mkdir()
    (content_source / "app").write_bytes(BODY)

    found = brought(place, f"file://{tmp_path}/with%20space/app", References((content_source,)))

    assert (found / "bin/app").read_bytes() == BODY


def test_makes_a_referenced_program_executable(store: FileServer, place: Path) -> None:
    store.responses["/app"] = BODY
    content_source = Referring(bin__app=store.at("/app"))
    content_source.executables = frozenset({"bin/app"})

    closure = closure_of(FILES, content_source.executables)
    found = provide(closure, "/new", place, content_source, fetching_anywhere())

    assert stat.S_IMODE((found / "bin/app").stat().st_mode) == 0o755
    assert stat.S_IMODE((found / "app.txt").stat().st_mode) == 0o644


def test_reads_no_local_file_elsewhere(tmp_path: Path, place: Path) -> None:
    content_source, outside = tmp_path / "shelf", tmp_path / "outside"
    content_source.mkdir()
    outside.write_bytes(BODY)
    (content_source / "link").symlink_to(outside)
    os.mkfifo(content_source / "pipe")
    allowed = References((content_source,))

    for uri, fetching, told in (
        (f"file://{outside}", HTTP_ALONE, "reference_directories"),
        (f"file://{outside}", allowed, "reference_directories"),
        (f"file://{content_source}/link", allowed, "reference_directories"),
        (f"file://{content_source}/../outside", allowed, "the plain one of a file"),
        (f"file://other{content_source}/link", allowed, "the plain one of a file"),
        (f"file://{content_source}/pipe", allowed, "plain file"),
        (f"file://{content_source}", allowed, "plain file"),
        (f"file://{content_source}/none", allowed, "cannot be read"),
    ):
        with pytest.raises(ReferenceRefused, match=told):
            brought(place, uri, fetching)

    assert left(place) == []


# ── drivers ──


def test_keeps_the_running_content_if_a_reference_has_other_bytes(
    tmp_path: Path, store: FileServer
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    content_source = Referring(bin__app=store.at("/app"))
    content_source.releases["/old"] = {"app.txt": b"old"}
    driver = SymlinkDriver(root, content_source, fetching_anywhere())
    old = closure_of(content_source.releases["/old"])
    assert driver.switch(SwitchRequest(old, "", "/old")) == Switched()

    gone = driver.switch(SwitchRequest(CLOSURE, old, "/new"))
    store.responses["/app"] = b"evil"
    evil = driver.switch(SwitchRequest(CLOSURE, old, "/new"))

    assert isinstance(gone, SwitchFailed)
    assert (gone.exit_code, "404" in gone.stderr_tail) == (EXIT_UNVERIFIED, True)
    assert isinstance(evil, SwitchFailed)
    assert (evil.exit_code, "bin/app" in evil.stderr_tail) == (EXIT_UNVERIFIED, True)
    assert driver.current() == old
    assert (root / "current/app.txt").read_bytes() == b"old"

    store.responses["/app"] = BODY
    assert driver.switch(SwitchRequest(CLOSURE, old, "/new")) == Switched()
    assert (root / "current/bin/app").read_bytes() == BODY


def test_passes_a_command_content_with_its_references(tmp_path: Path, store: FileServer) -> None:
    state = tmp_path / "state"
    state.mkdir()
    store.responses["/app"] = BODY
    words = ("/bin/sh", "-c", 'cp "$TIDEGATE_CONTENT/bin/app" "$0"', str(tmp_path / "out"))
    channel = ChannelSettings(driver="command", command=words)
    content_source = Referring(bin__app=store.at("/app"))

    running = RunningArtifacts(state)
    driver = CommandDriver(CHANNEL, channel, state, running, content_source, fetching_anywhere())
    done = driver.switch(SwitchRequest(CLOSURE, "", "/new"))

    assert done == Switched()
    assert (tmp_path / "out").read_bytes() == BODY


# ── whole agents ──


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., tuple[FleetServer, AgentProcess]]]:
    with ExitStack() as stack:

        def made(*texts: str, **settings: Any) -> tuple[FleetServer, AgentProcess]:
            fleet_server = FleetServer(tmp_path, *texts)
            stack.callback(fleet_server.close)
            agent_process = AgentProcess(fleet_server, "web-1")
            text = "".join(f"{name} = {value}\n" for name, value in settings.items())
            file = agent_process.directory / "agent.toml"
            file.write_text(text + file.read_text())
            stack.callback(agent_process.end)
            return fleet_server, agent_process

        yield made


def release(fleet_server: FleetServer, *references: dict[str, Any]) -> None:
    """Publish web.2 with these references: one user pushes it, another approves it."""
    people = People(fleet_server.served)
    people.draft("v2", tasks=[{"type": "edit", "source": "default.web.v1"}])
    pushed = people.author.put(
        "/v1/revisions/default.web.v2/resources",
        json={"files": [{"path": "app.txt", "text": "good two"}, *references]},
        headers=people.seen("default.web.v2"),
    )
    assert pushed.status_code == 200, pushed.text
    people.publish("default.web.v2")


def referring(path: str, uri: str, body: bytes = BODY) -> dict[str, Any]:
    hashed = sha256(body).hexdigest()
    return {"path": path, "uri": uri, "sha256": hashed, "bytes": len(body)}


def test_brings_a_release_with_references_to_a_host(
    start_agent: Callable[..., tuple[FleetServer, AgentProcess]], store: FileServer, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "model").write_bytes(b"weights")
    here = store.at("").removeprefix("http://")
    fleet_server, agent_process = start_agent(
        "good one", reference_directories=f'["{local}"]', reference_hosts=f'["{here}"]'
    )
    store.responses["/app"] = FileResponse(status=302, headers={"location": "/moved"})
    store.responses["/moved"] = FileResponse(b"", 503)
    release(
        fleet_server,
        referring("bin/app", store.at("/app")),
        referring("data/model", f"file://{local}/model", b"weights"),
    )
    agent_process.start()
    rollout_id = fleet_server.promote("web.2")
    fleet_server.reaches(rollout_id, "web-1", HostState.ACTIVATING)
    store.responses["/moved"] = BODY  # the server was down, and the agent waits for it

    record = fleet_server.reaches(rollout_id, "web-1", HostState.CONVERGED)

    current = agent_process.root / "current"
    assert agent_process.text == "good two"
    assert (current / "bin/app").read_bytes() == BODY
    assert (current / "data/model").read_bytes() == b"weights"
    assert record.current_closure == closure_of(
        {"app.txt": b"good two", "bin/app": BODY, "data/model": b"weights"}
    )
    assert fleet_server.installation.health.differences() == []
    for _, headers in store.asked:
        assert not {"authorization", "cookie", "tidegate-protocol"} & set(headers)


def test_fails_a_release_whose_reference_has_other_bytes(
    start_agent: Callable[..., tuple[FleetServer, AgentProcess]], store: FileServer
) -> None:
    fleet_server, agent_process = start_agent("good one")
    store.responses["/app"] = b"evil"
    release(fleet_server, referring("bin/app", store.at("/app")))
    agent_process.start()
    fleet_server.reaches(fleet_server.promote("web.1"), "web-1", HostState.CONVERGED)

    record = fleet_server.reaches(fleet_server.promote("web.2"), "web-1", HostState.REVERTED)

    assert record.current_closure != record.target_closure
    assert agent_process.text == "good one"
    assert left(agent_process.root) == []


# ── which addresses are allowed ──


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
def test_connects_to_loopback_only_if_the_settings_allow_it(
    place: Path, store: FileServer, host: str
) -> None:
    store.responses["/app"] = BODY
    uri = store.at("/app").replace("127.0.0.1", host)

    with pytest.raises(ReferenceRefused, match="reference_hosts"):
        brought(place, uri, HTTP_ALONE)

    assert store.asked == []
    assert left(place) == []


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "192.168.1.1", "169.254.169.254", "[fd00::1]", "[::1]", "100.64.0.1"]
)
def test_connects_to_no_private_address(place: Path, host: str) -> None:
    with pytest.raises(ReferenceRefused, match="reference_hosts"):
        brought(place, f"http://{host}/app", HTTP_ALONE)


def test_connects_to_a_private_address_that_the_settings_allow(
    place: Path, store: FileServer
) -> None:
    store.responses["/app"] = BODY
    name = store.at("").removeprefix("http://")

    found = brought(place, store.at("/app"), References(hosts=frozenset({name})))

    assert (found / "bin/app").read_bytes() == BODY


def test_follows_no_redirect_to_a_private_address(place: Path, store: FileServer) -> None:
    with serve_files() as inside:
        inside.responses["/app"] = BODY
        store.responses["/app"] = FileResponse(status=302, headers={"location": inside.at("/app")})
        name = store.at("").removeprefix("http://")

        with pytest.raises(ReferenceRefused, match="reference_hosts"):
            brought(place, store.at("/app"), References(hosts=frozenset({name})))

        assert inside.asked == []


def test_resolves_a_name_once_and_connects_to_that_address(
    place: Path, store: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second lookup could return another address, so the agent does not make one."""
    store.responses["/app"] = BODY
    answers = [("127.0.0.1",)]
    monkeypatch.setattr(public_addresses, "system_resolve", lambda host, port: answers.pop())
    port = store.at("").rpartition(":")[2]
    name = f"mirror.example:{port}"

    found = brought(place, f"http://{name}/app", References(hosts=frozenset({name})))

    assert (found / "bin/app").read_bytes() == BODY
    assert answers == []


def test_refuses_a_name_if_one_of_its_addresses_is_private(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        public_addresses, "system_resolve", lambda host, port: ("1.1.1.1", "127.0.0.1")
    )

    with pytest.raises(ReferenceRefused, match="reference_hosts"):
        brought(place, "https://mirror.example/app", HTTP_ALONE)
