"""The agent's HTTP client: enrollment, sessions, and responses from the server and from others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.agent.single_host import T0
from tests.api.serving import ADMIN, Served, serving
from tidegate.agent import identity
from tidegate.agent.client import AgentClient
from tidegate.agent.errors import InvalidAgentSetting, RefusedByServer, ServerAway, StateHeld
from tidegate.clock import ManualClock
from tidegate.kernel.model import Meta

HOST = "web-1"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data", clock=ManualClock(T0)) as server:
        yield server


@pytest.fixture
def client(served: Served, tmp_path: Path) -> Iterator[AgentClient]:
    """An enrolled client on the server's clock."""
    state = tmp_path / "agent"
    state.mkdir(mode=0o700)
    client = AgentClient(served.url, identity.load_or_create_key(state), served.installation.clock)
    made = served.installation.enrollment.make_token("t1", HOST, None, Meta(actor=ADMIN))
    identity.save_enrollment(state, client.enroll(made.token))
    yield client
    client.close()


def clock_of(served: Served) -> ManualClock:
    assert isinstance(served.installation.clock, ManualClock)
    return served.installation.clock


def test_enrolls_with_a_key_that_was_made_on_the_host(client: AgentClient, tmp_path: Path) -> None:
    state = tmp_path / "agent"

    known = identity.load_enrollment(state)

    assert known is not None
    assert known.host_id == HOST
    assert known.manifest_keys
    assert identity.load_or_create_key(state).public == identity.load_or_create_key(state).public
    assert client.heartbeat("1", {}).last_accepted_seq == {}


def test_renews_its_session_before_it_expires(client: AgentClient, served: Served) -> None:
    client.heartbeat("1", {})
    first = client._session
    clock_of(served).advance(timedelta(minutes=11))
    client.heartbeat("1", {})
    assert client._session is first

    clock_of(served).advance(timedelta(minutes=2))
    client.heartbeat("1", {})

    assert client._session is not first


def test_opens_a_new_session_when_the_server_has_ended_it(
    client: AgentClient, served: Served
) -> None:
    client.heartbeat("1", {})
    slow = ManualClock(clock_of(served)())
    client._clock = slow  # the agent's clock does not move, so it learns of the end from the server
    clock_of(served).advance(timedelta(minutes=16))

    with pytest.raises(RefusedByServer) as refused:
        client.heartbeat("1", {})
    assert refused.value.problem_code == "agent_clock_skew"
    slow.advance(timedelta(minutes=16))

    assert client.heartbeat("1", {}).received_at == clock_of(served)()


def test_reports_that_its_key_was_revoked(client: AgentClient, served: Served) -> None:
    client.heartbeat("1", {})
    answer = served.everything().post(
        f"/v1/hosts/{HOST}/revoke",
        json={"reason": "stolen"},
        headers={"if-match": served.everything().get(f"/v1/hosts/{HOST}").headers["etag"]},
    )
    assert answer.status_code == 200, answer.text

    with pytest.raises(RefusedByServer) as refused:
        client.heartbeat("1", {})

    assert refused.value.status in (401, 403)


def test_uses_a_token_once(client: AgentClient, served: Served, tmp_path: Path) -> None:
    made = served.installation.enrollment.make_token("t2", "web-2", None, Meta(actor=ADMIN))
    other = AgentClient(
        served.url, identity.load_or_create_key(tmp_path), served.installation.clock
    )
    other.enroll(made.token)

    with pytest.raises(RefusedByServer, match="token_replayed"):
        other.enroll(made.token)
    other.close()


def test_reports_a_server_that_is_not_there(tmp_path: Path) -> None:
    client = AgentClient(
        "http://127.0.0.1:1", identity.load_or_create_key(tmp_path), lambda: T0, HOST
    )

    with pytest.raises(ServerAway):
        client.dispatch(1)
    client.close()


@pytest.fixture(params=[200, 204, 302, 400, 404, 409, 429, 500, 503])
def page(request: pytest.FixtureRequest) -> Iterator[str]:
    """A foreign server that answers with a page of this status."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(request.param)
            self.end_headers()
            if request.param != 204:
                self.wfile.write(b"<h1>our proxy says</h1>")

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_does_not_take_a_page_of_a_proxy_for_a_response_of_the_server(
    page: str, tmp_path: Path
) -> None:
    """Otherwise a proxy's 404 would make the agent drop its reports."""
    client = AgentClient(page, identity.load_or_create_key(tmp_path), lambda: T0, HOST)

    with pytest.raises(ServerAway):
        client.report([])
    client.close()


# ── the state directory ──


def test_only_the_owner_can_read_the_state(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    with (
        pytest.raises(InvalidAgentSetting, match="chmod 700"),
        identity.lock_state_directory(tmp_path),
    ):
        pass


def test_locks_the_state_directory(tmp_path: Path) -> None:
    state = tmp_path / "new" / "state"
    with (
        identity.lock_state_directory(state),
        pytest.raises(StateHeld),
        identity.lock_state_directory(state),
    ):
        pass

    with identity.lock_state_directory(state):
        pass
