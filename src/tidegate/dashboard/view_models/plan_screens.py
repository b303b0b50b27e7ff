"""What the screen of a plan shows, with its findings and its simulation."""

from __future__ import annotations

from msgspec import Struct

from tidegate.dashboard import components


class PlanWaveLine(Struct, frozen=True, kw_only=True):
    number: int
    name: str
    hosts: int
    soak: str
    failures_max: int
    sample: tuple[str, ...]
    bar: components.Bar


class PlanFinding(Struct, frozen=True, kw_only=True):
    chip: components.Chip
    text: str


class PlanPage(Struct, frozen=True, kw_only=True):
    channels: tuple[components.Option, ...]
    channel: str
    releases: tuple[components.Option, ...]
    release: str
    luck: str
    lucks: tuple[components.Option, ...]
    failing: str
    seed: int
    start_at: str
    history: str  # how hosts did in the last rollouts
    waves: tuple[PlanWaveLine, ...]
    unstaged: int
    hosts: int
    findings: tuple[PlanFinding, ...]
    forecast: str = ""  # the address of the first run; empty: no simulation was requested
    no_simulation: str = ""  # why no simulation is possible here
    why: str = ""  # why there is no plan


class AxisTick(Struct, frozen=True):
    """A round time on the axis, in percent of its length."""

    x: float
    label: str


class RunMark(Struct, frozen=True):
    """An event of one run."""

    x: float
    tone: str
    title: str


class WaveLane(Struct, frozen=True, kw_only=True):
    """A wave on the time axis: when it usually begins and ends, and how much longer at worst."""

    number: int
    name: str
    hosts: int
    tone: str
    x: float
    width: float
    worst: float
    marks: tuple[RunMark, ...]
    ended: int  # runs
    stopped: int  # runs
    after: str  # empty: no run ends it
    after_worst: str
    failed: int
    failed_worst: int


class HeldSpan(Struct, frozen=True):
    """A time in which hosts get no order."""

    x: float
    width: float
    title: str


class HeldLane(Struct, frozen=True, kw_only=True):
    """What holds hosts for a known time, on the time axis."""

    by: str  # start, freeze or window
    name: str
    hosts: int
    until: str  # empty: there are several spans
    spans: tuple[HeldSpan, ...]


class OutcomeCount(Struct, frozen=True, kw_only=True):
    chip: components.Chip
    runs: int


class SimulationPart(Struct, frozen=True, kw_only=True):
    """The result of the runs so far, with simulated hosts and the real state machines."""

    wanted: int
    runs: int = 0
    next: str = ""  # the address of the next run; empty: all are done
    hosts: int = 0
    stands_for: int = 1
    seed: int = 0
    lanes: tuple[WaveLane, ...] = ()
    held: tuple[HeldLane, ...] = ()
    waits: str = ""  # how long no host may start
    ticks: tuple[AxisTick, ...] = ()
    ends: tuple[OutcomeCount, ...] = ()
    ends_bar: components.Bar = components.Bar()
    stops: tuple[tuple[str, int], ...] = ()
    failed: int = 0
    failed_worst: int = 0
    lasts: str = ""
    lasts_worst: str = ""
    timeline: tuple[components.TimelineEntry, ...] = ()
    timeline_more: int = 0
    fault: str = ""  # why nothing was simulated
