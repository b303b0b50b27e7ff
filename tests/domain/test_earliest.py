"""When each wave of a plan could start, given the current maintenance windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.domain.gate_inputs import T0, channel, fleet, host
from tidegate.domain.channels.facts import WaveSpec
from tidegate.domain.gates.earliest import EarliestStart, list_earliest_starts
from tidegate.domain.planner import plan
from tidegate.domain.windows.facts import WindowKind
from tidegate.domain.windows.rows import Window

HOUR = timedelta(hours=1)


def nightly(**members: Any) -> Window:
    """From 09:00 to 11:00 UTC; it is 08:00."""
    usual: dict[str, Any] = {
        "window_id": "nightly",
        "kind": WindowKind.ALLOW,
        "start": "2026-05-01T09:00",
        "rule": "FREQ=DAILY",
        "duration_seconds": 7_200,
        "reason": "quiet",
        "operator": "user_op",
        "set_at": T0,
    }
    return Window(**{**usual, **members})


def found(waves: tuple[WaveSpec, ...], *windows: Window, **policy: Any) -> list[EarliestStart]:
    hosts = fleet(3)
    labels = {item.host_id: item.labels for item in hosts}
    made = plan(channel(*waves, **policy), hosts, ())
    return list(list_earliest_starts(made, labels, windows, T0))


def test_starts_at_once_without_a_window() -> None:
    starts = found((WaveSpec(count=1, soak_seconds=60), WaveSpec()))

    assert [item.at for item in starts] == [T0, T0 + timedelta(seconds=60)]
    assert [item.sentence for item in starts] == ["", ""]


def test_waits_for_the_window_and_for_the_next_night_after_a_long_soak() -> None:
    starts = found((WaveSpec(name="canary", count=1, soak_seconds=7_200), WaveSpec()), nightly())

    assert [item.at for item in starts] == [T0 + HOUR, T0 + 25 * HOUR]
    assert starts[0] == EarliestStart(
        wave="canary",
        at=T0 + HOUR,
        held=1,
        sentence="Window nightly is closed for 1 of 1 hosts; "
        "it opens Mon 4 May 09:00 UTC (in 1 h) for 2 h",
    )


def test_a_wave_starts_with_its_first_host_that_may_start() -> None:
    hosts = [host("a", tz="UTC"), host("b", tz="Etc/GMT-1")]
    made = plan(channel(), hosts, ())
    labels = {item.host_id: item.labels for item in hosts}

    (start,) = list_earliest_starts(made, labels, [nightly(zone="label:tz")], T0)

    assert (start.at, start.held) == (T0, 1), "in b's zone it is 09:00"


def test_reports_that_a_wave_never_starts_and_gives_no_time_for_later_ones() -> None:
    over = found((WaveSpec(count=1), WaveSpec()), nightly(rule=""))
    late = found((WaveSpec(count=1, soak_seconds=7_200), WaveSpec()), nightly(), must_fit=True)

    assert [(item.at, item.sentence) for item in over] == [
        (None, "Window nightly never opens again")
    ]
    assert [item.at for item in late] == [None], "two hours, and 2 h 10 min are needed"
