"""Whether a host may get or use an order now, judged by the rows that an order pins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tidegate.domain.channels.stops import ChannelStops, windows_over
from tidegate.domain.fleet.rows import Host
from tidegate.domain.hosts.states import HostPolicy
from tidegate.domain.windows import evaluation, refusals, sentences


def need_of(policy: HostPolicy) -> timedelta | None:
    """Return how long a host may take to converge; None: it need not fit into a window."""
    if not policy.must_fit:
        return None
    return timedelta(seconds=policy.activation_seconds + policy.soak_seconds)


def judge_stops(
    channel: str,
    stops: Sequence[ChannelStops | None],
    host: Host | None,
    policy: HostPolicy,
    now: datetime,
) -> evaluation.WindowVerdict | None:
    """Judge the windows in these rows for the host; None: none covers the channel."""
    package = next((row.package for row in stops if row is not None and row.package), "")
    windows = [
        item for item in windows_over(stops) if evaluation.covers_channel(item, channel, package)
    ]
    if not windows:
        return None
    host_id, labels = ("", {}) if host is None else (host.host_id, host.labels)
    windows.sort(key=lambda item: item.window_id)
    return evaluation.judge(evaluation.list_windows(windows, labels, host_id), now, need_of(policy))


def demand_window(
    channel: str,
    stops: Sequence[ChannelStops | None],
    host: Host | None,
    policy: HostPolicy,
    now: datetime,
) -> None:
    """Raises: WindowClosed."""
    verdict = judge_stops(channel, stops, host, policy, now)
    if verdict is None or verdict.is_open:
        return
    assert verdict.by is not None
    host_id = "" if host is None else host.host_id
    detail = sentences.shut_text(verdict, now, channel, host_id, need=need_of(policy))
    raise refusals.WindowClosed(
        channel, host_id, verdict.by.window.window_id, detail, verdict.until
    )
