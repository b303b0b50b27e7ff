"""A rollout whose plan is lost or damaged: the worker reports it and continues with the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.api.serving import Served, serving
from tests.browser.dashboard_fleet import DashboardFleet
from tests.operations.worker_loops import QUICK, until
from tidegate.control import doctor
from tidegate.control.doctor import DoctorVerdict
from tidegate.control.worker import Worker
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.rows import Rollout, rollout_key


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        yield served


def blob_of(server: Served, rollout_id: str) -> Path:
    found = server.installation.reads.find(rollout_key(rollout_id), Rollout)
    assert found is not None
    blobs = Path(server.installation.settings.data) / "blobs"
    (path,) = (path for path in blobs.rglob("?" * 62) if found.row.plan_digest.endswith(path.name))
    return path


@pytest.mark.parametrize(("content", "code"), [(None, "blob_missing"), (b"{}", "blob_damaged")])
def test_one_lost_plan_stops_no_other_rollout_and_is_counted_and_reported(
    server: Served, content: bytes | None, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = DashboardFleet(server)
    for channel in ("web-edge", "web-stable"):
        fleet.channel(channel)
        fleet.enroll(channel, f"{channel}-1", f"{channel}-2")
    fleet.publish("v1", {"index.html": "<h1>hello</h1>\n"})
    lost, well = fleet.promote("web-edge", "web.1"), fleet.promote("web-stable", "web.1")
    path = blob_of(server, lost)
    path.chmod(0o600)
    path.write_bytes(content) if content is not None else path.unlink()
    registry = CollectorRegistry()

    with Worker(fleet.installation, pace=QUICK, registry=registry) as worker:
        until(lambda: len(fleet.records(well, HostState.PENDING)) == 2)
        rounds = worker.loops[0].rounds
        until(lambda: worker.loops[0].rounds > rounds + 3)

    counted = generate_latest(registry).decode()
    assert f'tidegate_dispatch_left_out_total{{code="{code}"}}' in counted
    assert 'rounds_total{loop="orders",outcome="waited"}' not in counted
    lines = [item.message for item in caplog.records if "is skipped" in item.message]
    assert [line.split(" is")[0] for line in lines] == [lost], "once, in any number of passes"
    found = {item.what: item for item in doctor.check_installation(fleet.installation)}
    assert found["rollouts"].verdict is DoctorVerdict.ILL
    assert lost in found["rollouts"].detail
    why = server.everything().get(f"/v1/rollouts/{lost}/explain").json()
    assert why["answer"].startswith(f"the dispatcher leaves the rollout out, {code}: ")


def test_reports_readable_rollouts_as_healthy(server: Served) -> None:
    fleet = DashboardFleet(server)
    fleet.channel("web-stable")
    fleet.enroll("web-stable", "web-1")
    fleet.publish("v1", {"index.html": "<h1>hello</h1>\n"})
    fleet.promote("web-stable", "web.1")

    found = {item.what: item for item in doctor.check_installation(fleet.installation)}

    assert found["rollouts"].verdict is DoctorVerdict.WELL
    assert found["rollouts"].detail == "1 under way, all can be read"
