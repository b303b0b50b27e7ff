"""Whether a channel's policy can work at all, whatever hosts it will apply to.

All faults are found at once, each with its path, such as ``waves[1].percent``.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.fleet import rows, selectors
from tidegate.domain.releases import from_packages, slices
from tidegate.errors import TidegateError

if TYPE_CHECKING:  # the slices of channels import this module, so it cannot import them
    from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, WaveSpec

WAVES_MAX = 32  # a rollout counts each of them in one row
HOST_EDGES_MAX = 1_000
CHANNEL_EDGES_MAX = 16
WAVE_NAME_CHARS_MAX = 63
SECONDS_MAX = 10 * 366 * 86_400
FAULTS_MAX = 50  # reported for one policy

_TIMES = (
    *("sustained_failure_seconds", "ack_seconds", "activation_seconds", "topology_seconds"),
    *("convergence_seconds", "rollback_seconds", "deferral_seconds", "offline_grace_seconds"),
    *("retention_seconds", "freshness_seconds"),
)


class PolicyFinding(Struct, frozen=True):
    """Something about a policy that a person should know, and its path."""

    path: str
    sentence: str


def check_policy(channel: str, policy: ChannelPolicy) -> None:
    """Raises: MalformedPolicy: it names every fault."""
    refuse(policy_faults(channel, policy))


def refuse(faults: Iterable[PolicyFinding]) -> None:
    """Raises: MalformedPolicy: there are faults; it names all of them."""
    sentences = tuple(fault.sentence for fault in islice(faults, FAULTS_MAX))
    if sentences:
        raise MalformedPolicy(" ".join(sentences), faults=sentences)


def policy_faults(channel: str | None, policy: ChannelPolicy) -> Iterator[PolicyFinding]:
    """Return the faults of a policy by itself; None: of a channel that is not known yet."""
    for name in _TIMES:
        yield from _check_range(name, getattr(policy, name), 0, SECONDS_MAX)
    yield from _check_count("waves", len(policy.waves), WAVES_MAX)
    for place, wave in enumerate(policy.waves):
        yield from _wave_faults(f"waves[{place}]", wave)
    yield from _check_names(wave_names(policy))
    yield from _check_count("edges", len(policy.edges), CHANNEL_EDGES_MAX)
    before = [edge.channel for edge in policy.edges]
    for place, edge in enumerate(policy.edges):
        yield from _edge_faults(f"edges[{place}]", edge, before.index(edge.channel) < place)
        if edge.channel == channel:
            yield PolicyFinding(f"edges[{place}]", f"Channel {channel} can't wait for itself.")
    if policy.auto_promote and not any(edge.require == "succeeded" for edge in policy.edges):
        yield PolicyFinding("auto_promote", "auto_promote needs an edge that asks for success.")
    yield from _host_edge_faults(policy)
    yield from _check_with("operations", slices.check_operations, policy.operations)


def _host_edge_faults(policy: ChannelPolicy) -> Iterator[PolicyFinding]:
    yield from _check_count("host_edges", len(policy.host_edges), HOST_EDGES_MAX)
    edges: dict[str, list[str]] = defaultdict(list)
    for place, edge in enumerate(policy.host_edges):
        edges[edge.before].append(edge.after)
        for name, host_id in (("before", edge.before), ("after", edge.after)):
            yield from _check_with(f"host_edges[{place}].{name}", selectors.check_host_id, host_id)
    if ring := cycle(edges):
        yield PolicyFinding("host_edges", f"Hosts wait for each other: {' → '.join(ring)}.")


def check_named(policy: ChannelPolicy, hosts: Iterable[rows.Host]) -> None:
    """Check that host edges name hosts of this fleet, in any state.

    Rows of hosts are never deleted, so a correct name stays correct.

    Raises:
        MalformedPolicy.
    """
    refuse(unknown_hosts(policy, hosts))


def unknown_hosts(policy: ChannelPolicy, hosts: Iterable[rows.Host]) -> Iterator[PolicyFinding]:
    """Return the host edges that name a host that never existed."""
    if not policy.host_edges:
        return
    known = {host.host_id for host in hosts}
    for place, edge in enumerate(policy.host_edges):
        for host_id in (edge.before, edge.after):
            if host_id not in known:
                yield PolicyFinding(
                    f"host_edges[{place}]",
                    f"{edge.after} waits for {edge.before}, but {host_id} was never a host.",
                )


def check_edges(
    scopes: Iterable[rows.ChannelScope], channel: str, package: str, edges: Iterable[ChannelEdge]
) -> None:
    """Check that a channel may wait for these channels.

    They must exist, must not wait for it in turn, and a release of its package must be able to
    succeed there.

    Raises:
        MalformedPolicy.
    """
    refuse(edge_faults(scopes, channel, package, edges))


def edge_faults(
    scopes: Iterable[rows.ChannelScope], channel: str, package: str, edges: Iterable[ChannelEdge]
) -> Iterator[PolicyFinding]:
    """Return the edges that are impossible next to the edges of other channels."""
    known = {scope.channel: scope for scope in scopes}
    before = []
    for place, edge in enumerate(edges):
        before.append(edge.channel)
        found = known.get(edge.channel)
        if found is None and edge.channel != channel:
            yield PolicyFinding(
                f"edges[{place}]", f"{channel} waits for {edge.channel}, which does not exist."
            )
        if found is None or edge.require == "idle":
            continue
        if from_packages.release_id_of(found.package, 1) != from_packages.release_id_of(package, 1):
            yield PolicyFinding(
                f"edges[{place}]",
                f"{channel} carries {package}, {edge.channel} carries {found.package}: an edge "
                "between packages can only ask for an order; "
                f'write {{"channel": "{edge.channel}", "require": "idle"}}.',
            )
    if ring := cycle({**{name: scope.edges for name, scope in known.items()}, channel: before}):
        yield PolicyFinding("edges", f"Channels wait for each other: {' → '.join(ring)}.")


def wave_names(policy: ChannelPolicy) -> tuple[str, ...]:
    """Return the waves' names; a wave without one is named by its position."""
    return tuple(wave.name or default_wave_name(place) for place, wave in enumerate(policy.waves))


def default_wave_name(place: int) -> str:
    """Return the name of a wave without one, counted from 1."""
    return f"wave-{place + 1}"


def cycle(edges: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return some cycle among these edges, with its first member repeated at its end; none: ().

    It removes what nothing leads to, until only cycles and what follows them are left.
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
        walk.append(min(before[walk[-1]]))  # backwards: each remaining one has a predecessor
    ring = walk[walk.index(walk[-1]) :]
    return tuple(reversed(ring))


def _wave_faults(path: str, wave: WaveSpec) -> Iterator[PolicyFinding]:
    if len(wave.name) > WAVE_NAME_CHARS_MAX or not wave.name.isprintable():
        yield PolicyFinding(
            f"{path}.name",
            f"{path}.name is {wave.name[:WAVE_NAME_CHARS_MAX]!r}; "
            f"allowed are at most {WAVE_NAME_CHARS_MAX} printable characters.",
        )
    yield from _check_with(f"{path}.selector", selectors.parse, wave.selector)
    if wave.percent is not None and wave.count is not None:
        yield PolicyFinding(path, f"{path} has percent and count; use one.")
    yield from _check_range(f"{path}.percent", wave.percent, 1, 100)
    yield from _check_range(f"{path}.count", wave.count, 1, None)
    yield from _check_range(f"{path}.failures_max", wave.failures_max, 0, None)
    yield from _check_range(f"{path}.failures_max_percent", wave.failures_max_percent, 0, 100)
    yield from _check_range(f"{path}.converged_min", wave.converged_min, 0, None)
    yield from _check_range(f"{path}.success_percent", wave.success_percent, 1, 100)
    yield from _check_range(f"{path}.soak_seconds", wave.soak_seconds, 0, SECONDS_MAX)
    yield from _check_range(f"{path}.delay_seconds", wave.delay_seconds, 0, SECONDS_MAX)


def _check_names(names: tuple[str, ...]) -> Iterator[PolicyFinding]:
    for place, name in enumerate(names):
        if (first := names.index(name)) < place:
            yield PolicyFinding(
                f"waves[{place}].name", f"waves[{first}] and waves[{place}] are both called {name}."
            )


def _edge_faults(path: str, edge: ChannelEdge, is_repeated: bool) -> Iterator[PolicyFinding]:
    if is_repeated:
        yield PolicyFinding(path, f"{path} names {edge.channel} a second time.")
    yield from _check_range(f"{path}.soak_seconds", edge.soak_seconds, 0, SECONDS_MAX)
    if edge.soak_seconds and edge.require == "idle":
        yield PolicyFinding(
            f"{path}.soak_seconds",
            f"{path} requires idle, which has no success that soak_seconds could count from; "
            "leave soak_seconds out.",
        )


def _check_range(
    path: str, found: int | None, least: int, most: int | None
) -> Iterator[PolicyFinding]:
    if found is not None and (found < least or (most is not None and found > most)):
        allowed = f"{least} to {most}" if most is not None else f"{least} or more"
        yield PolicyFinding(path, f"{path} is {found}; allowed is {allowed}.")


def _check_count(path: str, found: int, allowed: int) -> Iterator[PolicyFinding]:
    if found > allowed:
        yield PolicyFinding(path, f"{path} has {found} entries; allowed are {allowed}.")


def _check_with(path: str, check: Callable[..., Any], *given: Any) -> Iterator[PolicyFinding]:
    """Turn a refusal of another part of the domain into a fault of the policy."""
    try:
        check(*given)
    except TidegateError as error:
        yield PolicyFinding(path, f"{path}: {error.detail.rstrip('.')}.")
