"""Maintenance windows on every engine: they open and close by time, for each host in its zone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any

import pytest

from tests.contract.in_process_fleet import OLD, InProcessFleet
from tests.domain.registry import digest_of
from tidegate.control.fleet.order_queue import NOTHING
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.channels.folds import WINDOWS_MAX
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.channels.stops import ChannelStops, own_stops_key, stops_keys
from tidegate.domain.composition import FOLDS
from tidegate.domain.fleet.slices import LabelHost, label_host
from tidegate.domain.hosts import agent_side
from tidegate.domain.hosts.facts import DispatchAck
from tidegate.domain.hosts.states import HostState, ProbeStatus
from tidegate.domain.rollouts.rows import RolloutGates, gates_key
from tidegate.domain.rollouts.slices import OverrideGate, override_gate
from tidegate.domain.rollouts.states import OverridableGate
from tidegate.domain.windows.checks import WINDOW_CHANNELS_MAX
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.occurrences import START_FORM
from tidegate.domain.windows.refusals import WindowClosed, WindowExists, WindowNotFound
from tidegate.domain.windows.rows import Window, WindowNames, window_key, window_names_key
from tidegate.domain.windows.slices import (
    WINDOWS_MAX as INSTALLATION_MAX,
    CreateWindow,
    DeleteWindow,
    EditWindow,
    create_window,
    delete_window,
    edit_window,
)
from tidegate.domain.windows.zones import find_zone
from tidegate.errors import LimitExceeded, StaleVersion
from tidegate.kernel.replay import differences

pytestmark = pytest.mark.in_turn

ROLLOUT = "edge@web.1"
TARGET = digest_of("web.1")
HOUR = 3_600


def spec(fleet: InProcessFleet, opens_in: float = 0, **members: Any) -> WindowSpec:
    """Describe a daily window of two hours; the next one opens in this many seconds."""
    start = fleet.clock() + timedelta(seconds=opens_in)
    usual: dict[str, Any] = {
        "window_id": "nightly",
        "kind": WindowKind.ALLOW,
        "start": f"{start:{START_FORM}}",
        "rule": "FREQ=DAILY",
        "duration_seconds": 2 * HOUR,
        "channels": ("edge",),
    }
    return WindowSpec(**{**usual, **members})


def create(fleet: InProcessFleet, window: WindowSpec) -> None:
    fleet.execute(create_window, CreateWindow(window=window, operator="user_1", reason="quiet"))


def edit(fleet: InProcessFleet, window: WindowSpec, version: int | None = None) -> None:
    command = EditWindow(window=window, operator="user_1", reason="quiet", expected_version=version)
    fleet.execute(edit_window, command)


def promoted(fleet: InProcessFleet, *hosts: str, **labels: str) -> None:
    fleet.create("edge")
    fleet.enroll(*hosts, channel="edge", **labels)
    fleet.offer("web.1")
    assert fleet.promote("edge", "web.1") == ROLLOUT


def acknowledge(fleet: InProcessFleet, host_id: str) -> None:
    fleet.say(DispatchAck, ROLLOUT, host_id, target_closure=TARGET, current_closure_at_dispatch=OLD)


def to_minute(fleet: InProcessFleet) -> datetime:
    """Advance to a whole minute, because windows are written in minutes."""
    now = fleet.clock()
    fleet.wait((60 - now.second - now.microsecond / 1_000_000) % 60)
    return fleet.clock()


@pytest.mark.req("OP-15")
def test_orders_wait_for_the_window_and_go_out_when_it_opens(fleet: InProcessFleet) -> None:
    to_minute(fleet)
    promoted(fleet, "h1")
    create(fleet, spec(fleet, opens_in=HOUR))

    assert fleet.dispatch().ordered == 0
    fleet.wait(HOUR - 1)
    assert fleet.dispatch().ordered == 0
    blocked = fleet.row(gates_key(ROLLOUT), RolloutGates).blocked
    fleet.wait(1)

    assert [item.gate for item in blocked] == ["window"]
    assert fleet.dispatch().ordered == 1
    fleet.reach(ROLLOUT, "h1")
    assert differences(fleet.store, FOLDS) == []


def test_an_order_not_acknowledged_when_the_window_closed_is_cancelled(
    fleet: InProcessFleet,
) -> None:
    to_minute(fleet)
    promoted(fleet, "h1")
    create(fleet, spec(fleet))
    assert fleet.dispatch().ordered == 1
    fleet.wait(2 * HOUR - 1)
    assert fleet.control_plane.deliveries.poll("h1") is not None
    fleet.wait(1)

    with pytest.raises(WindowClosed) as refused:
        acknowledge(fleet, "h1")
    handed = fleet.control_plane.deliveries.hand_out("h1")
    taken = fleet.dispatch(thorough=True).cancelled

    assert refused.value.code not in agent_side.WAITS, "a waiting agent polls no more"
    opens = fleet.clock() + timedelta(hours=22)
    assert refused.value.facts["until"] == opens.isoformat()
    assert handed == NOTHING
    assert taken == 1
    assert not fleet.host(ROLLOUT, "h1").busy
    fleet.wait(22 * HOUR)
    assert fleet.dispatch().ordered == 1
    assert fleet.host(ROLLOUT, "h1").attempt == 2
    fleet.reach(ROLLOUT, "h1")


@pytest.mark.req("OP-15")
def test_a_switch_continues_when_the_window_closes(fleet: InProcessFleet) -> None:
    to_minute(fleet)
    promoted(fleet, "h1")
    create(fleet, spec(fleet))
    fleet.dispatch()
    fleet.ack("h1")
    fleet.wait(2 * HOUR)

    fleet.dispatch(thorough=True)
    fleet.activate(ROLLOUT, "h1")

    assert fleet.host(ROLLOUT, "h1").state is HostState.SOAKING


@pytest.mark.req("OP-15")
def test_each_host_follows_the_clock_of_its_own_zone(fleet: InProcessFleet) -> None:
    """Etc/GMT-1 is an hour ahead of UTC: its window opens an hour earlier."""
    to_minute(fleet)
    fleet.create("edge")
    fleet.enroll("h1", channel="edge", tz="Etc/GMT+0")
    fleet.enroll("h2", channel="edge", tz="Etc/GMT-1")
    fleet.offer("web.1")
    fleet.promote("edge", "web.1")
    create(fleet, spec(fleet, opens_in=HOUR, zone="label:tz"))

    assert fleet.dispatch().ordered == 1
    assert fleet.host(ROLLOUT, "h2").state is HostState.PENDING
    fleet.wait(HOUR)
    assert fleet.dispatch().ordered == 1
    fleet.ack("h1", "h2")


def test_a_label_that_closes_the_window_wins_over_the_acknowledgement(
    fleet: InProcessFleet,
) -> None:
    to_minute(fleet)
    promoted(fleet, "h1", tz="UTC")
    create(fleet, spec(fleet, zone="label:tz"))
    assert fleet.dispatch().ordered == 1

    fleet.execute(
        label_host,
        LabelHost(
            host_id="h1",
            labels={"channel": "edge"},
            operator="user_1",
        ),
    )

    with pytest.raises(WindowClosed) as refused:
        acknowledge(fleet, "h1")
    assert refused.value.detail == ("Window nightly is closed for h1, which has no valid label tz")


def test_must_fit_is_checked_at_the_acknowledgement_too(fleet: InProcessFleet) -> None:
    """Two hours, activation 10 min, soak 30 min: the last acknowledgement is after 1 h 20 min."""
    to_minute(fleet)
    fleet.create("edge", WaveSpec(soak_seconds=1_800), must_fit=True)
    fleet.enroll("h1", "h2", channel="edge")
    fleet.offer("web.1")
    fleet.promote("edge", "web.1")
    create(fleet, spec(fleet))
    assert fleet.dispatch().ordered == 2
    fleet.wait(80 * 60)

    acknowledge(fleet, "h1")
    fleet.wait(1)
    with pytest.raises(WindowClosed) as refused:
        acknowledge(fleet, "h2")

    assert refused.value.detail.startswith(
        "Window nightly closes in 39 min 59 s, h2 needs up to 40 min"
    )


def test_an_override_passes_windows_for_one_rollout(fleet: InProcessFleet) -> None:
    to_minute(fleet)
    promoted(fleet, "h1")
    create(fleet, spec(fleet, opens_in=HOUR))
    assert fleet.dispatch().ordered == 0

    command = OverrideGate(
        rollout_id=ROLLOUT, gate=OverridableGate.WINDOW, operator="user_1", reason="it burns"
    )
    fleet.execute(override_gate, command)

    assert fleet.dispatch().ordered == 1
    assert fleet.dispatch(thorough=True).cancelled == 0
    fleet.reach(ROLLOUT, "h1")


# ── edits ─────────────────────────────────────────────────────────────────────────────────────────


def windows_of(fleet: InProcessFleet, channel: str) -> list[str]:
    rows = [record for record in fleet.store.get(*stops_keys(channel)) if record is not None]
    found = [fleet.row(record.key, ChannelStops) for record in rows]
    return [window.window_id for row in found for window in row.windows]


def test_an_edit_moves_the_window_between_one_channel_and_all(fleet: InProcessFleet) -> None:
    names = tuple(f"c{number}" for number in range(WINDOW_CHANNELS_MAX))
    for name in ("edge", "core", *names):
        fleet.create(name)
    create(fleet, spec(fleet))

    seen = []
    for channels in (("core",), (), names, ("edge", "core")):
        edit(fleet, spec(fleet, channels=channels))
        seen.append([name for name in ("edge", "core", "c0") if windows_of(fleet, name)])

    assert seen == [["core"], ["edge", "core", "c0"], ["c0"], ["edge", "core"]]
    assert fleet.row(window_key("nightly"), Window).channels == ("edge", "core")
    command = DeleteWindow(window_id="nightly", operator="user_1", reason="over")
    fleet.execute(delete_window, command)
    assert [windows_of(fleet, name) for name in ("edge", "core")] == [[], []]
    assert fleet.store.get(window_key("nightly")) == (None,)
    assert differences(fleet.store, FOLDS) == []


def test_reports_what_prevents_a_window(fleet: InProcessFleet) -> None:
    fleet.create("edge")
    window = spec(fleet)
    create(fleet, window)
    create(fleet, window)  # it is there already

    with pytest.raises(WindowExists):
        create(fleet, spec(fleet, duration_seconds=HOUR))
    with pytest.raises(ChannelNotFound):
        create(fleet, spec(fleet, window_id="other", channels=("nowhere",)))
    with pytest.raises(WindowNotFound):
        edit(fleet, spec(fleet, window_id="other"))
    with pytest.raises(StaleVersion):
        edit(fleet, spec(fleet, duration_seconds=HOUR), version=1)
    assert fleet.types().count("WindowSet") == 1


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_limits_how_many_windows_cover_a_channel(engine: str, fleet: InProcessFleet) -> None:
    fleet.create("edge")
    for number in range(WINDOWS_MAX):
        create(fleet, spec(fleet, window_id=f"own-{number}"))
        create(fleet, spec(fleet, window_id=f"all-{number}", channels=()))

    for channels in (("edge",), ()):
        with pytest.raises(LimitExceeded):
            create(fleet, spec(fleet, window_id="more", channels=channels))
    assert len(windows_of(fleet, "edge")) == 2 * WINDOWS_MAX
    assert fleet.row(own_stops_key("edge"), ChannelStops).package


def fill_with_windows(fleet: InProcessFleet, count: int) -> None:
    """Create this many windows, each of one channel."""
    for place in range(-(-count // WINDOWS_MAX)):
        fleet.create(f"c{place}")
    for number in range(count):
        named = (f"c{number // WINDOWS_MAX}",)
        create(fleet, spec(fleet, window_id=f"w-{number}", channels=named))


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_limits_how_many_windows_exist(engine: str, fleet: InProcessFleet) -> None:
    fill_with_windows(fleet, INSTALLATION_MAX)
    fleet.create("more")
    one_more = spec(fleet, window_id="more", channels=("more",))

    with pytest.raises(LimitExceeded, match="there are 64 maintenance windows already"):
        create(fleet, one_more)
    fleet.execute(
        delete_window, DeleteWindow(window_id="w-3", operator="user_1", reason="not needed")
    )
    create(fleet, one_more)
    edit(fleet, spec(fleet, window_id="more", channels=("more",), duration_seconds=HOUR))

    assert len(fleet.row(window_names_key(), WindowNames).window_ids) == INSTALLATION_MAX


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_two_windows_created_at_once_do_not_both_take_the_last_place(
    engine: str, fleet: InProcessFleet
) -> None:
    fill_with_windows(fleet, INSTALLATION_MAX - 1)
    for name in ("left", "right"):
        fleet.create(name)
    barrier = Barrier(2)

    def try_one(name: str) -> bool:
        made = spec(fleet, window_id=name, channels=(name,))
        barrier.wait()
        try:
            create(fleet, made)
        except LimitExceeded:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(try_one, ("left", "right")))

    assert sorted(done) == [False, True]


# ── the nights in which clocks change ─────────────────────────────────────────────────────────────


def wait_until(fleet: InProcessFleet, text: str, *, before: int = 0) -> None:
    """Wait until this many seconds before the time."""
    wanted = datetime.fromisoformat(text).replace(tzinfo=UTC) - timedelta(seconds=before)
    fleet.wait((wanted - fleet.clock()).total_seconds())


@pytest.mark.req("OP-15")
@pytest.mark.parametrize(
    ("opens", "closes"),
    [
        ("2026-10-25T00:00", "2026-10-25T02:00"),  # 02:00 comes twice, the first counts
        ("2027-03-27T01:00", "2027-03-27T03:00"),  # the night before
        ("2027-03-28T01:00", "2027-03-28T03:00"),  # 02:00 does not exist: 03:00 to 05:00
        ("2027-03-29T00:00", "2027-03-29T02:00"),  # the night after, by summer time
    ],
)
def test_a_rollout_waits_for_a_night_in_berlin_and_stops_at_its_end(
    fleet: InProcessFleet, opens: str, closes: str
) -> None:
    """The first wave starts when the window opens; the second waits for the next night."""
    fleet.create("edge", WaveSpec(count=1, soak_seconds=7_000), WaveSpec())
    fleet.enroll("h1", "h2", channel="edge", tz="Europe/Berlin")
    fleet.offer("web.1")
    wait_until(fleet, opens, before=10_800)
    create(fleet, spec(fleet, zone="label:tz", start="2026-05-01T02:00"))
    fleet.promote("edge", "web.1")

    for seconds in (10_799, 1):
        assert fleet.dispatch(thorough=True).ordered == 0
        fleet.wait(seconds)
    assert fleet.dispatch(thorough=True).ordered == 1
    fleet.ack("h1")
    fleet.activate(ROLLOUT, "h1")
    wait_until(fleet, closes, before=1)
    fleet.probe(ROLLOUT, "h1", ProbeStatus.PASS)
    fleet.converge(ROLLOUT, "h1")
    assert fleet.dispatch(thorough=True).ordered == 1, "the last second of the night"
    fleet.wait(1)
    with pytest.raises(WindowClosed) as refused:
        acknowledge(fleet, "h2")
    assert fleet.dispatch(thorough=True).cancelled == 1
    again = datetime.fromisoformat(str(refused.value.facts["until"]))
    fleet.wait((again - fleet.clock()).total_seconds())

    assert again.astimezone(find_zone("Europe/Berlin")).strftime("%H:%M") in ("02:00", "03:00")
    assert fleet.dispatch(thorough=True).ordered == 1
    fleet.reach(ROLLOUT, "h2")
    assert fleet.tally(ROLLOUT).outcome == "succeeded"
    assert differences(fleet.store, FOLDS) == []
