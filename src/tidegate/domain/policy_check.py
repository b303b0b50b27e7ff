"""What a policy would do on a channel: faults that refuse it, warnings and notes that do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.channels.policy import (
    FAULTS_MAX,
    PolicyFinding,
    edge_faults,
    policy_faults,
    unknown_hosts,
    wave_names,
)
from tidegate.domain.channels.policy_document import COMPLETED, PolicyRead
from tidegate.domain.channels.rows import Channel
from tidegate.domain.fleet.rows import Budget, ChannelScope, Host
from tidegate.domain.planner import Plan, plan
from tidegate.errors import TidegateError

HOSTS_NAMED_MAX = 5


class PolicyCheck(Struct, frozen=True):
    """Everything that there is to say about a policy before it is used."""

    faults: tuple[PolicyFinding, ...]  # it is refused
    warnings: tuple[PolicyFinding, ...]  # it works otherwise than it reads
    notes: tuple[PolicyFinding, ...]  # what it means


class PolicySite(Struct, frozen=True):
    """The channel that a policy is for, with the fleet around it."""

    channel: Channel
    scopes: tuple[ChannelScope, ...]
    hosts: tuple[Host, ...]
    budgets: tuple[Budget, ...]


def check(read: PolicyRead, site: PolicySite | None) -> PolicyCheck:
    """Check a policy by itself, and on its channel if there is one."""
    name = None if site is None else site.channel.channel
    faults = [*read.faults, *policy_faults(name, read.policy)]
    warnings: list[PolicyFinding] = []
    if site is not None:
        policy, channel = read.policy, site.channel
        faults += edge_faults(site.scopes, channel.channel, channel.package, policy.edges)
        faults += unknown_hosts(policy, site.hosts)
        if not faults:
            try:
                made = plan(replace(channel, policy=policy), site.hosts, site.budgets)
                warnings += _warnings(made)
            except TidegateError as error:
                faults.append(PolicyFinding("", error.detail))
    return PolicyCheck(_once(faults), tuple(warnings), tuple(_notes(read)))


def _once(faults: Iterable[PolicyFinding]) -> tuple[PolicyFinding, ...]:
    return tuple(dict.fromkeys(faults))[:FAULTS_MAX]


def _warnings(made: Plan) -> Iterator[PolicyFinding]:
    places = {name: place for place, name in enumerate(wave_names(made.policy))}
    for wave in made.waves:
        place, hosts = places.get(wave.name), len(wave.hosts)
        if place is not None and wave.converged_min > max(1, hosts):
            path = f"waves[{place}].converged_min"
            takes = f"{hosts} host{'' if hosts == 1 else 's'}"
            yield PolicyFinding(
                path,
                f"{path} is {wave.converged_min}; the wave takes {takes} now: "
                f"it will ask for all {hosts}.",
            )
    for name in made.empty_waves:
        place = places.get(name)
        path = "waves" if place is None else f"waves[{place}]"
        yield PolicyFinding(path, f"Wave {name} takes no host now.")
    if count := len(made.unstaged):
        some = ", ".join(made.unstaged[:HOSTS_NAMED_MAX])
        more = " …" if count > HOSTS_NAMED_MAX else ""
        hosts_get = "1 host gets" if count == 1 else f"{count} hosts get"
        yield PolicyFinding(
            "waves", f"{hosts_get} no order, because no wave takes them: {some}{more}."
        )
    for edge in made.idle_edges:
        yield PolicyFinding(
            "host_edges", f"{edge.after} does not wait for {edge.before}: {edge.reason}."
        )


def _notes(read: PolicyRead) -> Iterator[PolicyFinding]:
    said = {
        COMPLETED[0]: "waves is left out: one host, then 10 %, then the rest.",
        COMPLETED[1]: "offline_grace_seconds is left out: a silent host is skipped after 15 min.",
    }
    for name in read.completed:
        yield PolicyFinding(name, said[name])
    for place, wave in enumerate(read.policy.waves):
        if wave.manual:
            path = f"waves[{place}]"
            who = "every promotion" if place == 0 else "the rollout"
            yield PolicyFinding(path, f"{path} is manual: {who} will wait for rollout continue.")
    if read.policy.auto_promote:
        yield PolicyFinding(
            "auto_promote",
            "auto_promote is on: a release that every edge lets through is promoted by itself.",
        )
    if read.policy.auto_rollback:
        yield PolicyFinding(
            "auto_rollback",
            "auto_rollback is on: if hosts fail, the channel goes back by itself, once for a "
            "release.",
        )
    if not read.policy.waves and COMPLETED[0] not in read.completed:
        yield PolicyFinding("waves", "waves is empty: every host gets a release at once.")
