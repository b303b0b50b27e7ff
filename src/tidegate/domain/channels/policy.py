"""Whether a channel's policy can be carried out at all, whatever hosts it will meet."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.fleet.rows import ChannelScope, Host
from tidegate.domain.fleet.selectors import check_host_id, parse
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.kernel.model import at_most

if TYPE_CHECKING:  # channels' slices ask this module, so it may not wait for them
    from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, WaveSpec

WAVES_MAX = 32  # a rollout counts each of them in one row
HOST_EDGES_MAX = 1_000
CHANNEL_EDGES_MAX = 16
WAVE_NAME_CHARS_MAX = 63
SECONDS_MAX = 10 * 366 * 86_400

_TIMES = (
    *("sustained_failure_seconds", "ack_seconds", "activation_seconds", "topology_seconds"),
    *("convergence_seconds", "rollback_seconds", "deferral_seconds", "offline_grace_seconds"),
    *("retention_seconds", "freshness_seconds"),
)


def check_policy(channel: str, policy: ChannelPolicy) -> None:
    """Raises: MalformedPolicy, InvalidSelector, InvalidLabel, LimitExceeded."""
    at_most("waves of a policy", len(policy.waves), WAVES_MAX)
    at_most("host edges of a policy", len(policy.host_edges), HOST_EDGES_MAX)
    at_most("edges of a channel", len(policy.edges), CHANNEL_EDGES_MAX)
    for name in _TIMES:
        _check_seconds(name, getattr(policy, name))
    names = wave_names(policy)
    for name, wave in zip(names, policy.waves, strict=True):
        _check_wave(name, wave)
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise MalformedPolicy(f"two waves are called {twice[0]}", wave=twice[0])
    before = [edge.channel for edge in policy.edges]
    if channel in before:
        raise MalformedPolicy(f"channel {channel} cannot come before itself", channel=channel)
    for named in policy.edges:
        _check_edge(named, before.count(named.channel))
    for edge in policy.host_edges:
        check_host_id(edge.before)
        check_host_id(edge.after)
    edges: dict[str, list[str]] = defaultdict(list)
    for edge in policy.host_edges:
        edges[edge.before].append(edge.after)
    if ring := cycle(edges):
        raise MalformedPolicy(f"hosts wait for each other: {' → '.join(ring)}", hosts=ring)


def check_named(policy: ChannelPolicy, hosts: Iterable[Host]) -> None:
    """That host edges name hosts: of this fleet, in whatever state. No host's row ever goes, so
    what was right once stays right.

    Raises:
        MalformedPolicy.
    """
    if not policy.host_edges:
        return
    known = {host.host_id for host in hosts}
    for edge in policy.host_edges:
        for host_id in (edge.before, edge.after):
            if host_id not in known:
                raise MalformedPolicy(
                    f"{edge.after} waits for {edge.before}, but {host_id} was never a host",
                    host_id=host_id,
                )


def check_edges(
    scopes: Iterable[ChannelScope], channel: str, package: str, edges: Iterable[ChannelEdge]
) -> None:
    """That a channel may wait for these: they exist, none waits for it in turn, and a release of
    its package can succeed there.

    Raises:
        MalformedPolicy.
    """
    known = {scope.channel: scope for scope in scopes}
    before = tuple(edge.channel for edge in edges)
    for edge in edges:
        found = known.get(edge.channel)
        if found is None and edge.channel != channel:
            raise MalformedPolicy(
                f"{channel} waits for {edge.channel}, which is no channel", edge=edge.channel
            )
        if found is None or edge.require == "idle":
            continue
        if release_id_of(found.package, 1) != release_id_of(package, 1):
            raise MalformedPolicy(
                f"{channel} carries {package}, {edge.channel} carries {found.package}: an edge "
                "between packages can only ask for an order; "
                f'write {{"channel": "{edge.channel}", "require": "idle"}}',
                edge=edge.channel,
            )
    if ring := cycle({**{name: scope.edges for name, scope in known.items()}, channel: before}):
        raise MalformedPolicy(f"channels wait for each other: {' → '.join(ring)}", channels=ring)


def wave_names(policy: ChannelPolicy) -> tuple[str, ...]:
    """The waves' names; one without is called by its place in the policy."""
    return tuple(wave.name or f"wave-{place}" for place, wave in enumerate(policy.waves))


def cycle(edges: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Some ring among these edges, its first member again at its end; none: ().

    Takes away what nothing leads to until only rings, and what hangs behind them, are left.
    """
    before: dict[str, set[str]] = {}
    for start, ends in edges.items():
        before.setdefault(start, set())
        for end in ends:
            before.setdefault(end, set()).add(start)
    leads = {start: set(ends) for start, ends in edges.items()}
    free = deque(name for name, starts in before.items() if not starts)
    while free:
        name = free.popleft()
        del before[name]
        for end in leads.get(name, ()):
            before[end].discard(name)
            if not before[end]:
                free.append(end)
    if not before:
        return ()
    walk = [min(before)]
    while walk[-1] not in walk[:-1]:
        walk.append(min(before[walk[-1]]))  # backwards: all that is left has something before it
    ring = walk[walk.index(walk[-1]) :]
    return tuple(reversed(ring))


def _check_wave(name: str, wave: WaveSpec) -> None:
    if len(name) > WAVE_NAME_CHARS_MAX or not name.isprintable():
        raise MalformedPolicy(
            f"a wave's name has at most {WAVE_NAME_CHARS_MAX} printable characters, "
            f"found {name[:WAVE_NAME_CHARS_MAX]!r}"
        )
    parse(wave.selector)
    if wave.percent is not None and wave.count is not None:
        raise MalformedPolicy(f"wave {name} has a percent and a count; allowed is one", wave=name)
    _check_between(f"the percent of wave {name}", wave.percent, 1, 100)
    _check_between(f"the count of wave {name}", wave.count, 1, None)
    _check_between(f"failures_max of wave {name}", wave.failures_max, 0, None)
    _check_between(f"failures_max_percent of wave {name}", wave.failures_max_percent, 0, 100)
    _check_between(f"converged_min of wave {name}", wave.converged_min, 0, None)
    _check_seconds(f"soak_seconds of wave {name}", wave.soak_seconds)


def _check_edge(edge: ChannelEdge, times: int) -> None:
    if times > 1:
        raise MalformedPolicy(f"{edge.channel} is named by two edges", edge=edge.channel)
    what = f"soak_seconds of the edge to {edge.channel}"
    _check_seconds(what, edge.soak_seconds)
    if edge.soak_seconds and edge.require == "idle":
        raise MalformedPolicy(
            f"{what} needs a success to count from; an edge that requires idle has none",
            edge=edge.channel,
        )


def _check_seconds(what: str, seconds: int | None) -> None:
    _check_between(what, seconds, 0, SECONDS_MAX)


def _check_between(what: str, found: int | None, least: int, most: int | None) -> None:
    if found is not None and (found < least or (most is not None and found > most)):
        allowed = f"{least} … {most}" if most is not None else f"{least} or more"
        raise MalformedPolicy(f"{what} is {found}, allowed is {allowed}", found=found)
