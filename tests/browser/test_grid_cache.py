"""A cached grid equals a newly read one, whatever happened in between."""

from __future__ import annotations

from collections.abc import Callable
from zlib import decompress

import pytest

from tests.browser.actions import cookies
from tests.browser.dashboard_fleet import PEOPLE, DashboardFleet
from tidegate.dashboard import grid_cache
from tidegate.dashboard.grid_cache import EncodedGrid, Grid, GridCache
from tidegate.dashboard.pages import overview
from tidegate.dashboard.state_labels import GRID_CODES
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.states import Clearance

HOSTS = tuple(f"web-{number:02}" for number in range(6))


def under_way(fleet: DashboardFleet) -> str:
    """A rollout of two waves, of which the first has its orders."""
    fleet.publish("v1", {"run": "exec web\n"})
    waves = (WaveSpec(name="canary", count=3), WaveSpec(name="rest"))
    fleet.channel("stable", waves=waves, sustained_failure_seconds=0)
    fleet.enroll("stable", *HOSTS)
    return fleet.promote("stable", "web.1")


def anew(fleet: DashboardFleet, rollout_id: str) -> EncodedGrid:
    return new_cache(fleet).read_grid(rollout_id, fleet.installation.log.head())


def new_cache(fleet: DashboardFleet) -> GridCache:
    here = fleet.installation
    return GridCache(here.fleet_reader, here.reads, here.log)


def cache_of(fleet: DashboardFleet) -> GridCache:
    return fleet.served.application.parts[GridCache]


def kept(fleet: DashboardFleet, rollout_id: str) -> EncodedGrid:
    return cache_of(fleet).read_grid(rollout_id, 0)


def story(fleet: DashboardFleet, rollout_id: str) -> list[Callable[[], object]]:
    """Steps after each of which another host is in another state."""

    def refused_probe() -> None:
        second = fleet.records(rollout_id)[1].host_id
        fleet.activate(rollout_id, second)
        fleet.fail(rollout_id, second)

    def cleared() -> None:
        grace = PEOPLE["approver"][0]
        second = fleet.records(rollout_id)[1].host_id
        command = ClearRollout(
            rollout_id=rollout_id,
            operator=grace,
            reason="known",
            mode=Clearance.WAIVE,
            host_ids=(second,),
        )
        fleet.execute(clear_rollout, command, grace)

    def first() -> str:
        return fleet.records(rollout_id)[0].host_id

    return [
        fleet.dispatch,
        lambda: fleet.activate(rollout_id, first()),
        lambda: fleet.converge(rollout_id, first()),
        refused_probe,
        cleared,
        fleet.dispatch,
    ]


def test_updates_a_cached_grid_to_the_current_records(fleet: DashboardFleet) -> None:
    rollout_id = under_way(fleet)
    seen = [kept(fleet, rollout_id)]

    for step in story(fleet, rollout_id):
        step()
        assert kept(fleet, rollout_id) == anew(fleet, rollout_id)
        seen.append(kept(fleet, rollout_id))

    assert seen[0].content == bytes([GRID_CODES["unordered"]]) * len(HOSTS)
    codes = {byte for drawn in seen for byte in drawn.content}
    states = (HostState.PENDING, HostState.SOAKING, HostState.CONVERGED, HostState.REVERTED)
    assert codes >= {GRID_CODES["unordered"], GRID_CODES["left"], *map(GRID_CODES.get, states)}
    assert any(drawn.soak_due is not None for drawn in seen)


def test_reads_the_records_again_after_too_many_events(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_cache, "BEHIND_MAX", 2)
    rollout_id = under_way(fleet)
    kept(fleet, rollout_id)

    fleet.dispatch()
    fleet.activate(rollout_id, fleet.records(rollout_id)[0].host_id)

    assert kept(fleet, rollout_id) == anew(fleet, rollout_id)


def test_reads_the_records_of_open_rollouts_ahead_of_requests(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout_id = under_way(fleet)
    fleet.dispatch()
    expected = anew(fleet, rollout_id)
    cache_of(fleet).warm_up()

    def read_again(*_: object) -> None:
        raise AssertionError("the records were read before")

    monkeypatch.setattr(Grid, "fill", read_again)
    assert kept(fleet, rollout_id) == expected


def test_caches_a_limited_number_of_grids(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_cache, "GRIDS_MAX", 1)
    rollout_id = under_way(fleet)
    fleet.channel("other", waves=())
    fleet.enroll("other", "other-00")
    other = fleet.promote("other", "web.1")
    mine = new_cache(fleet)

    for _ in range(2):
        assert mine.read_grid(rollout_id, 0) == anew(fleet, rollout_id)
        assert mine.read_grid(other, 0) == anew(fleet, other)


def test_compresses_a_large_grid_if_the_client_accepts_it(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_cache, "PACKED_FROM", len(HOSTS))
    rollout_id = under_way(fleet)
    client = cookies(fleet, "viewer")
    path = f"/rollouts/{rollout_id}/grid"

    with client.stream("GET", path, headers={"accept-encoding": "deflate"}) as answer:
        packed = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "deflate"
    plain = client.get(path, headers={"accept-encoding": "identity"})

    assert decompress(packed) == plain.content == kept(fleet, rollout_id).content
    assert "content-encoding" not in plain.headers


def test_names_all_failed_hosts_of_a_large_rollout(
    fleet: DashboardFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "RECORDS_MAX", 1)
    rollout_id = under_way(fleet)
    fleet.dispatch()
    last = fleet.records(rollout_id)[-1].host_id
    fleet.activate(rollout_id, last)
    fleet.fail(rollout_id, last, "answered 503")
    client = cookies(fleet, "viewer")

    for path in ("/", f"/rollouts/{rollout_id}"):
        text = client.get(path).text
        assert f'href="/hosts/{last}"' in text
        assert "probe http: answered 503" in text
