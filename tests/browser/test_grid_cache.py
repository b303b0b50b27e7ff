"""A grid that was kept says the same as one that is read anew, whatever happened in between."""

from __future__ import annotations

from collections.abc import Callable
from zlib import decompress

import pytest

from tests.browser.actions import cookies
from tests.browser.dashboard_fleet import PEOPLE, Quay
from tidegate.dashboard import grid_cache
from tidegate.dashboard.grid_cache import EncodedGrid, Grid, GridCache, grids_of, warm_up
from tidegate.dashboard.pages import overview
from tidegate.dashboard.state_labels import GRID_CODES
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts.clearance import ClearRollout, clear_rollout
from tidegate.domain.rollouts.states import Clearance

HOSTS = tuple(f"web-{number:02}" for number in range(6))


def under_way(quay: Quay) -> str:
    """A rollout of two waves, of which the first has its orders."""
    quay.publish("v1", {"run": "exec web\n"})
    waves = (WaveSpec(name="canary", count=3), WaveSpec(name="rest"))
    quay.channel("stable", waves=waves, sustained_failure_seconds=0)
    quay.enroll("stable", *HOSTS)
    return quay.promote("stable", "web.1")


def anew(quay: Quay, rollout_id: str) -> EncodedGrid:
    return GridCache().look(quay.installation, rollout_id, quay.installation.head())


def kept(quay: Quay, rollout_id: str) -> EncodedGrid:
    return grids_of(quay.installation).look(quay.installation, rollout_id, 0)


def story(quay: Quay, rollout_id: str) -> list[Callable[[], object]]:
    """What happens to its hosts, step by step: each ends in another state."""

    def refused_probe() -> None:
        second = quay.records(rollout_id)[1].host_id
        quay.activate(rollout_id, second)
        quay.fail(rollout_id, second)

    def cleared() -> None:
        grace = PEOPLE["approver"][0]
        second = quay.records(rollout_id)[1].host_id
        command = ClearRollout(
            rollout_id=rollout_id,
            operator=grace,
            reason="known",
            mode=Clearance.WAIVE,
            host_ids=(second,),
        )
        quay.execute(clear_rollout, command, grace)

    def first() -> str:
        return quay.records(rollout_id)[0].host_id

    return [
        quay.dispatch,
        lambda: quay.activate(rollout_id, first()),
        lambda: quay.converge(rollout_id, first()),
        refused_probe,
        cleared,
        quay.dispatch,
    ]


def test_brings_a_kept_grid_to_where_the_records_are(quay: Quay) -> None:
    rollout_id = under_way(quay)
    seen = [kept(quay, rollout_id)]

    for step in story(quay, rollout_id):
        step()
        assert kept(quay, rollout_id) == anew(quay, rollout_id)
        seen.append(kept(quay, rollout_id))

    assert seen[0].content == bytes([GRID_CODES["unordered"]]) * len(HOSTS)
    codes = {byte for drawn in seen for byte in drawn.content}
    states = (HostState.PENDING, HostState.SOAKING, HostState.CONVERGED, HostState.REVERTED)
    assert codes >= {GRID_CODES["unordered"], GRID_CODES["left"], *map(GRID_CODES.get, states)}
    assert any(drawn.soak_due is not None for drawn in seen)


def test_reads_the_records_again_where_too_much_has_happened(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_cache, "BEHIND_MAX", 2)
    rollout_id = under_way(quay)
    kept(quay, rollout_id)

    quay.dispatch()
    quay.activate(rollout_id, quay.records(rollout_id)[0].host_id)

    assert kept(quay, rollout_id) == anew(quay, rollout_id)


def test_reads_the_records_of_what_is_open_before_anybody_asks(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout_id = under_way(quay)
    quay.dispatch()
    expected = anew(quay, rollout_id)
    warm_up(quay.installation)

    def read_again(*_: object) -> None:
        raise AssertionError("the records were read before")

    monkeypatch.setattr(Grid, "fill", read_again)
    assert kept(quay, rollout_id) == expected


def test_keeps_no_more_grids_than_it_says(quay: Quay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_cache, "GRIDS_MAX", 1)
    rollout_id = under_way(quay)
    quay.channel("other", waves=())
    quay.enroll("other", "other-00")
    other = quay.promote("other", "web.1")
    mine = GridCache()

    for _ in range(2):
        assert mine.look(quay.installation, rollout_id, 0) == anew(quay, rollout_id)
        assert mine.look(quay.installation, other, 0) == anew(quay, other)


def test_sends_a_large_grid_packed_to_who_can_unpack_it(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_cache, "PACKED_FROM", len(HOSTS))
    rollout_id = under_way(quay)
    client = cookies(quay, "viewer")
    path = f"/rollouts/{rollout_id}/grid"

    with client.stream("GET", path, headers={"accept-encoding": "deflate"}) as answer:
        packed = b"".join(answer.iter_raw())
        assert answer.headers["content-encoding"] == "deflate"
    plain = client.get(path, headers={"accept-encoding": "identity"})

    assert decompress(packed) == plain.content == kept(quay, rollout_id).content
    assert "content-encoding" not in plain.headers


def test_names_failed_hosts_of_a_large_rollout_wherever_they_are(
    quay: Quay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "RECORDS_MAX", 1)
    rollout_id = under_way(quay)
    quay.dispatch()
    last = quay.records(rollout_id)[-1].host_id
    quay.activate(rollout_id, last)
    quay.fail(rollout_id, last, "answered 503")
    client = cookies(quay, "viewer")

    for path in ("/", f"/rollouts/{rollout_id}"):
        text = client.get(path).text
        assert f'href="/hosts/{last}"' in text
        assert "probe http: answered 503" in text
