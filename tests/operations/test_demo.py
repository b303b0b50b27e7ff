"""The demo as a new user starts it: its link, its dashboard, its story, its end."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2

from tests.operations.processes import SECONDS_MAX, Process, opened, run
from tests.servers.process import free_port
from tidegate.domain.channels.rows import CHANNELS, QUARANTINE
from tidegate.domain.fleet.rows import HOSTS, LIVENESS
from tidegate.domain.outbox.rows import DELIVERIES
from tidegate.domain.outbox.states import IntentState
from tidegate.domain.rollouts.rows import Rollout, rollout_key

ROWS_MAX = 1_000


def test_one_link_opens_a_dashboard_with_the_story(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    words = ["demo", "--data", str(data), "--port", str(port), "--speed", "600"]
    with Process(words, tmp_path / "said") as demo, httpx2.Client(timeout=SECONDS_MAX) as visitor:
        link = demo.says(r"sign in:\s+(http://\S+)")[1]
        assert link.startswith(f"http://127.0.0.1:{port}/demo/")
        demo.says("web-stable@web.1 opened")
        base = link.split("/demo/")[0]
        entered = visitor.get(link)
        assert entered.status_code == 200, entered.text
        page = visitor.get(f"{base}/")
        assert page.status_code == 200
        assert "web-stable" in page.text
        assert httpx2.get(link, timeout=SECONDS_MAX).headers["location"] == "/signin", (
            "it works once"
        )

        demo.says("api-stable@api.1 succeeded")
        demo.says("api-stable@api.2 stopped: hosts failed and rolled back")
        demo.says("the receiver of webhooks is back")
        demo.says("api-stable@api.3 opened")
        assert demo.stop(signal.SIGINT) == 0, demo.said()
        assert "the demo is over" in demo.said()

    with opened(data) as installation:
        assert len(installation.reads.range(HOSTS, limit=ROWS_MAX)) == 300
        assert len(installation.reads.range(CHANNELS, limit=ROWS_MAX)) == 3
        heard = installation.reads.range(LIVENESS, limit=ROWS_MAX)
        assert any(row.row.current_closures for row in heard), "hosts report what they run"
        (quarantined,) = installation.reads.range(QUARANTINE, limit=ROWS_MAX)
        assert quarantined.row.channel == "api-stable"
        good = installation.reads.find(rollout_key("api-stable@api.1"), Rollout)
        assert good is not None
        assert good.row.terminal_at is not None
        states = {row.row.state for row in installation.reads.range(DELIVERIES, limit=ROWS_MAX)}
        assert IntentState.DONE in states
        assert IntentState.DEAD not in states
        assert installation.health.differences() == []


def test_starts_empty_on_request(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")

    ran = run("demo", "--data", str(tmp_path))

    assert ran.returncode == 2
    assert "is not empty" in ran.stderr
    assert (tmp_path / "mine").read_text() == "kept"
