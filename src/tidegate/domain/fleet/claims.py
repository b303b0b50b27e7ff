"""Which channel a host belongs to: at most one of each package, whatever its labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.domain.fleet import refusals, rows, selectors
from tidegate.domain.packages import names


def claims(
    scopes: Iterable[rows.ChannelScope], host_id: str, labels: Mapping[str, str]
) -> list[str]:
    """Return the channels that claim a host with these labels, one of each package.

    Raises:
        SelectorOverlap: two channels of one package do; it names both.
    """
    found: dict[str, str] = {}  # package → channel
    for scope in scopes:
        if selectors.parse(scope.selector).matches(labels, host_id):
            package = _short_name(scope.package)
            if package in found:
                raise refusals.SelectorOverlap(host_id, package, found[package], scope.channel)
            found[package] = scope.channel
    return list(found.values())


def _short_name(package: str) -> str:
    """A package without the default repository: ``web`` and ``default/web`` are the same one."""
    return package.removeprefix(f"{names.DEFAULT_REPOSITORY}/")


def check_scope(
    scopes: Iterable[rows.ChannelScope], scope: rows.ChannelScope, hosts: Iterable[rows.Host]
) -> None:
    """Check that a channel may claim what its selector matches, next to the other channels.

    This looks at every host. The caller must pin the fleet's row, which every change of hosts and
    channels steps.

    Raises:
        SelectorOverlap, InvalidSelector.
    """
    rivals = [
        rival
        for rival in scopes
        if _short_name(rival.package) == _short_name(scope.package)
        and rival.channel != scope.channel
    ]
    selector = selectors.parse(scope.selector)
    for host in hosts:
        # A revoked host may return with its labels; a retired one is checked when it returns.
        if host.status != rows.RETIRED and selector.matches(host.labels, host.host_id):
            claims((*rivals, scope), host.host_id, host.labels)


def members(selector: str, hosts: Iterable[rows.Host]) -> list[rows.Host]:
    """List the enrolled hosts that match a selector. Raises: InvalidSelector."""
    parsed = selectors.parse(selector)
    return [
        host
        for host in hosts
        if host.status == rows.ENROLLED and parsed.matches(host.labels, host.host_id)
    ]
