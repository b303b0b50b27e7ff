"""The agent's threads against a server that answers as the test decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.agent.fleet_server import until
from tests.agent.journal_lines import acknowledged, started, twin
from tests.agent.single_host import CHANNEL, HOST
from tidegate.agent import identity
from tidegate.agent.client import AgentClient
from tidegate.agent.config import AgentSettings, ChannelSettings
from tidegate.agent.drivers import build_drivers
from tidegate.agent.journal import Journal, TwinLine
from tidegate.agent.loop import AgentLoop, BackOff
from tidegate.clock import system_clock
from tidegate.domain.hosts.protocol import EnrollmentAnswer
from tidegate.domain.hosts.states import HostState

Answer = tuple[int, Any]
Reports = list[dict[str, Any]]
OTHER = "api@api.1"


class Stub(ThreadingHTTPServer):
    """Opens sessions, has no orders, and lets the test answer reports."""

    def __init__(self, answer: Callable[[Reports], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Speaker)
        self.daemon_threads = True
        self.answer = answer
        self.batches: list[Reports] = []
        self.beats: list[dict[str, Any]] = []


class Speaker(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        self._say(204, None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        now = system_clock()
        match self.path:
            case "/v1/agent/session":
                ends = (now + timedelta(minutes=15)).isoformat()
                opened = {"session": "s", "mac_key": "00" * 32, "expires_at": ends}
                self._say(200, {**opened, "server_time": now.isoformat()})
            case "/v1/agent/heartbeat":
                self.server.beats.append(body)
                self._say(200, {"received_at": now.isoformat(), "last_accepted_seq": {}})
            case _:
                self.server.batches.append(body["reports"])
                self._say(*self.server.answer(body["reports"]))

    def _say(self, status: int, body: Any) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


def taken(reports: Reports) -> Answer:
    return 200, {"answers": [_answered(report) for report in reports]}


def _answered(report: dict[str, Any], status: int = 200, **more: Any) -> dict[str, Any]:
    return {"rollout_id": report["rollout_id"], "seq": report["seq"], "status": status, **more}


def problem(status: int, code: str) -> Answer:
    return status, {"code": code, "detail": "no", "status": status}


@contextmanager
def running(
    tmp_path: Path, journal: Journal, answer: Callable[[Reports], Answer]
) -> Iterator[Stub]:
    """Run an agent with this journal; yields the server that it talks to."""
    stub = Stub(answer)
    serving = Thread(target=stub.serve_forever)
    serving.start()
    settings = AgentSettings(
        server=f"http://127.0.0.1:{stub.server_port}",
        state=str(tmp_path),
        channels={CHANNEL: ChannelSettings(driver="fake")},
        tick_seconds=0.05,
        heartbeat_seconds=0.1,
        back_off_seconds_max=0.1,
    )
    client = AgentClient(settings.server, identity.load_or_create_key(tmp_path), system_clock, HOST)
    loop = AgentLoop(
        settings,
        EnrollmentAnswer(HOST, "log", {}),
        client,
        journal,
        build_drivers(settings, client),
        system_clock,
        "1",
    )
    working = Thread(target=loop.run)
    working.start()
    try:
        yield stub
    finally:
        loop.stop()
        working.join()
        stub.shutdown()
        serving.join()
        stub.server_close()
        client.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with waiting reports of two rollouts."""
    journal = Journal(tmp_path)
    for rollout_id in (OTHER, twin().rollout_id):
        first = acknowledged(twin(rollout_id))
        journal.append(TwinLine(twin(rollout_id), "/x"), first, started(first.after))
    yield journal
    journal.close()


def test_sends_waiting_reports_in_order_and_once(tmp_path: Path, journal: Journal) -> None:
    with running(tmp_path, journal, taken) as stub:
        until(lambda: stub.beats, "a heartbeat, which waits for reports")
        sent = [(r["rollout_id"], r["seq"]) for r in stub.batches[0]]

    own = twin().rollout_id
    assert sent == [(OTHER, 1), (OTHER, 2), (own, 1), (own, 2)]
    again = [(r["rollout_id"], r["seq"]) for batch in stub.batches[1:] for r in batch]
    assert not set(sent) & set(again)


def test_d22_finds_the_one_report_that_makes_a_batch_fail(tmp_path: Path, journal: Journal) -> None:
    """The agent splits a batch that is refused as a whole, and drops only the report at fault."""

    def grumpy(reports: Reports) -> Answer:
        if any(report["rollout_id"] == OTHER for report in reports):
            return problem(400, "invalid_request")
        return taken(reports)

    with running(tmp_path, journal, grumpy):
        until(lambda: not journal.entries, "the journal is empty")

    assert OTHER not in journal.twins
    assert twin().rollout_id in journal.twins


def test_d22_drops_one_rollout_and_confirms_the_other(tmp_path: Path, journal: Journal) -> None:
    def refuses(reports: Reports) -> Answer:
        answers = [
            _answered(report, 410, code="rollout_pruned", detail="gone")
            if report["rollout_id"] == OTHER
            else _answered(report)
            for report in reports
        ]
        return 200, {"answers": answers}

    with running(tmp_path, journal, refuses) as stub:
        until(lambda: not journal.entries, "the journal is empty")

    assert OTHER not in journal.twins
    assert len(stub.batches[0]) == 4


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "store_unavailable"), (429, "rate_limited"), (401, "key_refused"), (404, "not_found")],
)
def test_keeps_everything_while_the_server_is_unavailable(
    tmp_path: Path,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
    status: int,
    code: str,
) -> None:
    before = journal.entries

    with running(tmp_path, journal, lambda _: problem(status, code)) as stub:
        until(lambda: len(stub.batches) >= 3, "it sends it again")

    assert journal.entries == before
    why = "the server refuses this host, " if status in (401, 404) else "the server is away, "
    assert any(line.startswith(why) and code in line for line in caplog.messages), caplog.messages


def test_waits_for_a_paused_rollout_while_another_one_continues(
    tmp_path: Path, journal: Journal
) -> None:
    def paused(reports: Reports) -> Answer:
        answers = [
            _answered(report, 409, code="rollout_paused", detail="later", state="Pending")
            if report["rollout_id"] == OTHER
            else _answered(report)
            for report in reports
        ]
        return 200, {"answers": answers}

    def is_through() -> bool:
        waiting = {entry.event.rollout_id for entry in journal.entries}
        own = journal.twins[twin().rollout_id]
        return own.state is HostState.CONVERGED and waiting == {OTHER}

    with running(tmp_path, journal, paused):
        until(is_through, "the other one converges and reports it")

    assert [entry.event.seq for entry in journal.entries] == [1, 2]


def test_waits_longer_each_time_up_to_a_limit() -> None:
    back_off = BackOff(8.0)

    waits = [back_off.failed() for _ in range(20)]

    assert 0.5 <= waits[0] <= 1.0
    assert all(4.0 <= wait <= 8.0 for wait in waits[4:])
    assert len(set(waits)) > 15, "agents do not return all at once"
    back_off.worked()
    assert back_off.failed() <= 1.0
