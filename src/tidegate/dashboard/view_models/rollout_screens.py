"""What the screens of rollouts show, and why a rollout waits."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.dashboard import components


class RolloutLine(Struct, frozen=True, kw_only=True):
    """A rollout in a list, with its bar and a sentence."""

    rollout_id: str
    channel: str
    target_ref: str
    state: components.Chip
    also: tuple[components.Chip, ...]
    opened_at: datetime
    bar: components.Bar
    summary: str
    hosts: int
    settled: int
    failed: int
    is_stopped: bool = False  # a host failed, so no more orders are sent
    wave_name: str = ""
    wave_number: int = 0
    wave_count: int = 0
    waits: str = ""
    opened_by: str = ""
    took_seconds: int | None = None  # from opening to end


class Rollouts(Struct, frozen=True, kw_only=True):
    open: tuple[RolloutLine, ...]
    past: tuple[RolloutLine, ...]
    headings: tuple[components.Heading, ...]
    outcomes: tuple[components.Option, ...]  # filters of the finished ones; hint: the address
    outcome: str = ""
    note: str = ""  # how many are sorted, if not all of them are
    next: str = ""  # the address of the next page


class WaveView(Struct, frozen=True, kw_only=True):
    name: str
    number: int
    phase: str  # done, current, waiting, ended
    hosts: int
    settled: int
    bar: components.Bar
    status: components.Chip
    soak_seconds: int
    failures_max: int
    soaking: int = 0


class GateLine(Struct, frozen=True, kw_only=True):
    gate: str
    passed: bool
    reason: str
    evidence: str = ""
    hosts: int = 0
    sample: tuple[str, ...] = ()  # some of these hosts
    href: str = ""  # lists all of them
    at: datetime | None = None  # since when, if a person closed it


class GatePanel(Struct, frozen=True, kw_only=True):
    """Why a rollout waits: an answer, and the answer of each gate."""

    title: str = "Why is it waiting?"
    icon: str = ""  # empty: the icon of the tone
    verdict: str
    tone: str
    lines: tuple[GateLine, ...] = ()
    at: datetime | None = None  # None: now
    href: str = ""  # the address that loads it again; empty: it comes with the page


class HeldLine(Struct, frozen=True, kw_only=True):
    host_id: str
    gate: str
    wave: str
    reason: str


class HeldPage(Struct, frozen=True, kw_only=True):
    """The hosts that wait at a gate."""

    rollout_id: str
    gate: str  # empty: any gate
    gates: tuple[tuple[str, int], ...]
    hosts: tuple[HeldLine, ...]
    total: int
    start: int
    at: datetime | None
    next: str = ""


class Legend(Struct, frozen=True):
    """A state in the legend of the grid. Its index in the list is the byte of a host."""

    name: str
    chip: components.Chip
    count: int
    place: int = 0  # in the bar of a wave, from the left
    done: bool = False  # hosts in this state count as done


class HostLine(Struct, frozen=True, kw_only=True):
    """A host of the rollout that has a line of its own."""

    host_id: str
    state: components.Chip
    wave: str
    text: str
    at: datetime | None


class RolloutPage(Struct, frozen=True, kw_only=True):
    rollout_id: str
    display_name: str
    channel: str
    target_ref: str
    target_closure: str
    previous_ref: str
    state: components.Chip
    also: tuple[components.Chip, ...]
    opened_at: datetime
    opened_by: str
    opened_reason: str
    on_failure: str
    hosts: int
    settled: int
    waves: tuple[WaveView, ...]
    gates: GatePanel
    legend: tuple[Legend, ...]
    troubled: tuple[HostLine, ...]
    timeline: tuple[components.TimelineEntry, ...]
    verbs: tuple[components.VerbButton, ...]
    bar: components.VerbBar
    attempt: int
    late: int
    plan_digest: str
    current_wave: int
    version: int
