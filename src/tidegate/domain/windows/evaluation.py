"""Whether the windows of a host are open, until when, and when they open next.

    open(host, t) = no deny window that covers the host lasts at t,
                    and an allow window that covers it lasts at t, or none covers it

A window covers a host if its channels, its repositories and its selector all match. A pass makes
one ``WindowView``. It judges each host by the values of the labels that the windows use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tidegate.domain.fleet.selectors import HOST, parse
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.windows import facts, occurrences
from tidegate.domain.windows.zones import is_zone

STEPS_MAX = 4_096  # boundaries that one search for an opening visits


class HostWindow(NamedTuple):
    """A window that covers a host, in that host's zone."""

    window: facts.WindowSpec
    zone: str | None  # None: the host has no valid label, and the window no default


class WindowVerdict(NamedTuple):
    """Whether the windows of a host are open at one moment."""

    is_open: bool
    until: datetime | None = None  # open: when it closes; shut: when it opens. None: never, or
    # not within HORIZON
    by: HostWindow | None = None  # shut: the window that keeps it shut
    closes_at: datetime | None = None  # shut because the host would not finish in time


OPEN: Final = WindowVerdict(True)


# ── windows that cover a host ─────────────────────────────────────────────────────────────────────


def repository_of(package: str) -> str:
    """Return the repository of a channel's package: ``blueprints`` of ``blueprints/web``."""
    repository, mark, _ = package.partition("/")
    return repository if mark else DEFAULT_REPOSITORY


def covers_channel(window: facts.WindowSpec, channel: str, package: str) -> bool:
    """Whether the window covers this channel: at least those of its hosts that match the
    selector.
    """
    if window.channels and channel not in window.channels:
        return False
    return not window.repositories or repository_of(package) in window.repositories


def zone_of(window: facts.WindowSpec, labels: Mapping[str, str]) -> str | None:
    """Return the time zone of the window for a host with these labels; None: there is none."""
    if not window.zone.startswith(facts.LABEL):
        return window.zone
    named = labels.get(window.zone.removeprefix(facts.LABEL))
    return named if named is not None and is_zone(named) else window.zone_default


def list_windows(
    windows: Iterable[facts.WindowSpec], labels: Mapping[str, str], host_id: str
) -> tuple[HostWindow, ...]:
    """Return the windows of a channel that cover this host."""
    return tuple(
        HostWindow(window, zone_of(window, labels))
        for window in windows
        if parse(window.hosts).matches(labels, host_id)
    )


def loosens_host(before: Sequence[HostWindow], after: Sequence[HostWindow]) -> bool:
    """Whether a host may get orders at other times if these windows cover it after a change of its
    labels.
    """
    allows_before, denies_before = _by_kind(before)
    allows_after, denies_after = _by_kind(after)
    if any(item not in denies_after for item in denies_before):
        return True
    if not allows_before:
        return False
    return not allows_after or any(item not in allows_before for item in allows_after)


# ── one window ────────────────────────────────────────────────────────────────────────────────────


def lasts(found: HostWindow, at: datetime) -> bool:
    """Whether an occurrence lasts at this time.

    Without a zone a deny window always lasts, and an allow window never does.
    """
    if found.zone is None:
        return found.window.kind is facts.WindowKind.DENY
    return occurrences.last_start(found.window, found.zone, at) is not None


def _end_of_stretch(found: HostWindow, at: datetime) -> datetime | None:
    return None if found.zone is None else occurrences.end_of_stretch(found.window, found.zone, at)


def _next_start(found: HostWindow, after: datetime) -> datetime | None:
    return None if found.zone is None else occurrences.next_start(found.window, found.zone, after)


def next_occurrences(
    window: facts.WindowSpec, zone: str, at: datetime, count: int
) -> tuple[tuple[datetime, datetime], ...]:
    """Return the occurrences, start and end, that last at this time or begin later."""
    duration = timedelta(seconds=window.duration_seconds)
    found: list[tuple[datetime, datetime]] = []
    for start in occurrences.starts_between(window, zone, at - duration, at + occurrences.HORIZON):
        if len(found) == count:
            break
        if start + duration > at:
            found.append((start, start + duration))
    return tuple(found)


# ── all windows of a host ─────────────────────────────────────────────────────────────────────────


def judge(
    found: Sequence[HostWindow], at: datetime, need: timedelta | None = None
) -> WindowVerdict:
    """Judge the windows of a host. ``need``: how long they must stay open."""
    if not found:
        return OPEN
    allows, denies = _by_kind(found)
    by = _find_shut_window(allows, denies, at)
    if by is not None:
        return WindowVerdict(False, _next_opening(allows, denies, at, need), by)
    closes = _find_closing(allows, denies, at)
    if need is None or closes is None or at + need <= closes:
        return WindowVerdict(True, closes)
    by = _find_closing_window(allows, denies, closes)
    return WindowVerdict(False, _next_opening(allows, denies, closes, need), by, closes)


def _by_kind(found: Sequence[HostWindow]) -> tuple[list[HostWindow], list[HostWindow]]:
    allows = [item for item in found if item.window.kind is facts.WindowKind.ALLOW]
    return allows, [item for item in found if item.window.kind is facts.WindowKind.DENY]


def _find_shut_window(
    allows: Sequence[HostWindow], denies: Sequence[HostWindow], at: datetime
) -> HostWindow | None:
    """Return the window to name: a deny window that lasts, or else the allow window that opens
    first.
    """
    for item in denies:
        if lasts(item, at):
            return item
    if not allows or any(lasts(item, at) for item in allows):
        return None
    opens = [
        (start, place) for place, item in enumerate(allows) if (start := _next_start(item, at))
    ]
    return allows[min(opens)[1]] if opens else allows[0]


def _find_closing(
    allows: Sequence[HostWindow], denies: Sequence[HostWindow], at: datetime
) -> datetime | None:
    """Return when open windows close; None: not within HORIZON.

    They close at the end of the merged allow stretch, or when a deny window begins.
    """
    starts = [start for item in denies if (start := _next_start(item, at)) is not None]
    end = _end_of_allows(allows, at)
    return min((time for time in (end, *starts) if time is not None), default=None)


def _end_of_allows(allows: Sequence[HostWindow], at: datetime) -> datetime | None:
    """Return the end of the stretch that the allow windows cover together."""
    end = at
    for _ in range(STEPS_MAX):
        lasting = [item for item in allows if lasts(item, end)]
        if not lasting:
            return end if allows else None
        ends = [_end_of_stretch(item, end) for item in lasting]
        if any(found is None for found in ends) or end > at + occurrences.HORIZON:
            return None
        end = max(found for found in ends if found is not None)
    return None


def _find_closing_window(
    allows: Sequence[HostWindow], denies: Sequence[HostWindow], closes: datetime
) -> HostWindow:
    """Return the window that closes: a deny window that begins, or an allow window that ends."""
    for item in denies:
        if lasts(item, closes):
            return item
    just_before = closes - timedelta(microseconds=1)
    return next(item for item in allows if lasts(item, just_before))


def _next_opening(
    allows: Sequence[HostWindow],
    denies: Sequence[HostWindow],
    after: datetime,
    need: timedelta | None,
) -> datetime | None:
    """Return the first time from here at which a host may start; None: not within HORIZON."""
    at = after
    for _ in range(STEPS_MAX):
        if at > after + occurrences.HORIZON:
            return None
        denying = next((item for item in denies if lasts(item, at)), None)
        if denying is not None:
            moved = _end_of_stretch(denying, at)
        elif allows and not any(lasts(item, at) for item in allows):
            moved = min((s for item in allows if (s := _next_start(item, at))), default=None)
        else:
            closes = _find_closing(allows, denies, at) if need is not None else None
            if need is None or closes is None or at + need <= closes:
                return at
            moved = closes
        if moved is None:
            return None
        at = moved
    return None


class WindowView:
    """The windows of one channel at one moment, to judge host by host.

    Hosts that share the labels that the windows use share a verdict, which is computed once. A
    selector on ``host`` makes each host a class of its own.
    """

    __slots__ = ("_answers", "_at", "_keys", "_windows")

    def __init__(
        self, windows: Iterable[facts.WindowSpec], channel: str, package: str, at: datetime
    ) -> None:
        covering = [window for window in windows if covers_channel(window, channel, package)]
        self._windows = tuple(sorted(covering, key=lambda window: window.window_id))
        self._at = at
        keys = {term.key for window in self._windows for term in parse(window.hosts).terms}
        zones = {window.zone for window in self._windows if window.zone.startswith(facts.LABEL)}
        self._keys = tuple(sorted(keys | {zone.removeprefix(facts.LABEL) for zone in zones}))
        self._answers: dict[tuple[object, ...], WindowVerdict] = {}

    def __bool__(self) -> bool:
        """Whether any window covers the channel."""
        return bool(self._windows)

    @property
    def windows(self) -> tuple[facts.WindowSpec, ...]:
        return self._windows

    def of_host(self, host_id: str, labels: Mapping[str, str]) -> tuple[HostWindow, ...]:
        return list_windows(self._windows, labels, host_id)

    def judge(
        self, host_id: str, labels: Mapping[str, str], need: timedelta | None = None
    ) -> WindowVerdict:
        """Judge the windows of this host."""
        if not self._windows:
            return OPEN
        key = (need, *[host_id if name == HOST else labels.get(name) for name in self._keys])
        known = self._answers.get(key)
        if known is None:
            known = judge(self.of_host(host_id, labels), self._at, need)
            self._answers[key] = known
        return known
