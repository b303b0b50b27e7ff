"""Alert rules and the Grafana dashboard: they name what exists, fire when they should, and a real
Prometheus detects a halted rollout.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.api.served_fleet import ServedFleet, serve_fleet
from tests.servers.debian import unpacked

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
SECONDS_MAX = 60.0
ANY_ENGINE = {"engines": None, "reason": "metrics come from rows, whatever keeps them"}


@pytest.fixture(scope="module")
def programs() -> Path:
    return unpacked("prometheus") / "usr/bin"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServedFleet]:
    with serve_fleet(tmp_path / "data") as fleet:
        fleet.sail()
        yield fleet


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((OPS / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\btidegate_[a-z_]+", text))


def promtool(programs: Path, *words: str) -> None:
    done = subprocess.run(
        [programs / "promtool", *words], cwd=OPS, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.req("NT-3", **ANY_ENGINE)
def test_each_alert_fires_and_stays_silent(programs: Path) -> None:
    promtool(programs, "check", "rules", "alerts.yml")
    promtool(programs, "test", "rules", "alerts_test.yml")


def test_each_alert_has_a_firing_and_a_silent_case_and_a_page() -> None:
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    cases = yaml.safe_load((OPS / "alerts_test.yml").read_text())["tests"]
    fired, silent = (
        {
            case["alertname"]
            for test in cases
            for case in test["alert_rule_test"]
            if bool(case["exp_alerts"]) is fires
        }
        for fires in (True, False)
    )
    page = (ROOT / "docs/alerts.md").read_text()

    assert sorted(fired) == sorted(silent) == sorted(alerts)
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"
        assert f"\n## {name}\n" in page


@pytest.mark.req("NT-3", **ANY_ENGINE)
def test_names_only_metrics_that_exist(fleet: ServedFleet) -> None:
    text = fleet.viewer.get("/metrics", headers={"accept": "text/plain"}).text
    known = set(re.findall(r"^# TYPE (\S+) ", text, re.M))
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    alerts, board = (OPS / name for name in ("alerts.yml", "grafana-dashboard.json"))

    for path in (alerts, board):
        named = {name.removesuffix("_bucket") for name in metric_names(path.read_text())}
        assert sorted(named - known) == [], path.name
    used = set(re.findall(r"tidegate:[a-z_]+", alerts.read_text()))
    assert used == recorded
    panels = json.loads(board.read_text())["panels"]
    assert all(panel["title"] and panel["description"] for panel in panels)


@contextmanager
def prometheus(programs: Path, folder: Path, target: str, token: str) -> Iterator[str]:
    """Run a Prometheus that scrapes every second, and return its address."""
    (folder / "token").write_text(token)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(OPS / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": "tidegate",
                "authorization": {"credentials_file": str(folder / "token")},
                "static_configs": [{"targets": [target]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [
        str(programs / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def firing(url: str) -> set[tuple[str, str]]:
    try:
        answer = httpx2.get(f"{url}/api/v1/alerts", timeout=5).json()
    except (httpx2.HTTPError, ValueError):
        return set()
    return {
        (alert["labels"]["alertname"], alert["labels"].get("channel", ""))
        for alert in answer["data"]["alerts"]
        if alert["state"] == "firing"
    }


@pytest.mark.req("NT-3", **ANY_ENGINE)
def test_a_real_prometheus_detects_a_halted_rollout(
    fleet: ServedFleet, programs: Path, tmp_path: Path
) -> None:
    url = httpx2.URL(str(fleet.viewer.base_url))
    token = fleet.viewer.headers["authorization"].removeprefix("Bearer ")
    with prometheus(programs, tmp_path, f"{url.host}:{url.port}", token) as asked:
        deadline = time.monotonic() + SECONDS_MAX
        while not _scraped(asked) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert firing(asked) == set()

        fleet.fail("web-01")

        while not (found := firing(asked)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found == {("RolloutHalted", "web-stable")}


def _scraped(url: str) -> bool:
    try:
        asked = {"query": "tidegate:rollout_halted"}
        answer = httpx2.get(f"{url}/api/v1/query", params=asked, timeout=5).json()
    except (httpx2.HTTPError, ValueError):  # it is starting, and answers in plain text
        return False
    return bool(answer["data"]["result"])
