"""What holds a host back by its labels: its channels, their windows, and budgets."""

from __future__ import annotations

from tidegate.control.queries.reads import Reads
from tidegate.domain.fleet import rows, selectors
from tidegate.domain.windows import evaluation, slices as window_slices
from tidegate.domain.windows.rows import WINDOWS


def list_loosened(reads: Reads, host_id: str, labels: dict[str, str]) -> tuple[str, ...]:
    """List the channels of a host that it would leave if operators gave it these labels, or where a
    window or a budget would hold it less.

    The labels that come from the host itself do not change.
    """
    host, fleet = reads.find_all(
        (rows.host_key(host_id), rows.Host), (rows.fleet_key(), rows.Fleet)
    )
    if host is None or fleet is None:
        return ()
    before = host.row.labels
    after = {**labels, **selectors.split_labels(before)[1]}
    if after == before:
        return ()
    windows = [
        window_slices.spec_of(item.row)
        for item in reads.range(WINDOWS, limit=window_slices.WINDOWS_MAX)
    ]
    budgets = [
        selectors.parse(item.row.selector)
        for item in reads.iterate(rows.BUDGETS)
        if not item.row.removed
    ]
    leaves_budget = any(
        budget.matches(before, host_id) and not budget.matches(after, host_id) for budget in budgets
    )

    def is_loosened(scope: rows.ChannelScope) -> bool:
        selector = selectors.parse(scope.selector)
        if not selector.matches(before, host_id):
            return False
        if leaves_budget or not selector.matches(after, host_id):
            return True
        covering = [
            window
            for window in windows
            if evaluation.covers_channel(window, scope.channel, scope.package)
        ]
        return evaluation.loosens_host(
            evaluation.list_windows(covering, before, host_id),
            evaluation.list_windows(covering, after, host_id),
        )

    return tuple(scope.channel for scope in fleet.row.channels if is_loosened(scope))
