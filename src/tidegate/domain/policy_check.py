"""Check what a policy would do on a channel. Faults refuse it; warnings and notes do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct, structs

from tidegate.domain.channels import policy as channel_policy, policy_document, rows
from tidegate.domain.fleet import claims, rows as fleet_rows
from tidegate.domain.planner import Plan, plan
from tidegate.domain.windows import demands, evaluation, facts as window_facts, sentences
from tidegate.errors import TidegateError

HOSTS_NAMED_MAX = 5


class PolicyCheck(Struct, frozen=True):
    """All findings about a policy."""

    faults: tuple[channel_policy.PolicyFinding, ...]  # why it is refused
    warnings: tuple[channel_policy.PolicyFinding, ...]  # where it works differently than it reads
    notes: tuple[channel_policy.PolicyFinding, ...]  # what it means


class PolicySite(Struct, frozen=True):
    """The channel that a policy is for, with the fleet."""

    channel: rows.Channel
    scopes: tuple[fleet_rows.ChannelScope, ...]
    hosts: tuple[fleet_rows.Host, ...]
    budgets: tuple[fleet_rows.Budget, ...]
    windows: tuple[window_facts.WindowSpec, ...] = ()
    at: datetime | None = None  # now; None: windows are not looked at


def check(read: policy_document.PolicyRead, site: PolicySite | None) -> PolicyCheck:
    """Check a policy by itself, and on its channel if one is given."""
    name = None if site is None else site.channel.channel
    faults = [*read.faults, *channel_policy.policy_faults(name, read.policy)]
    warnings: list[channel_policy.PolicyFinding] = []
    if site is not None:
        policy, channel = read.policy, site.channel
        faults += channel_policy.edge_faults(
            site.scopes, channel.channel, channel.package, policy.edges
        )
        faults += channel_policy.unknown_hosts(policy, site.hosts)
        faults += _overlap(site)
        if not faults:
            try:
                made = plan(structs.replace(channel, policy=policy), site.hosts, site.budgets)
                warnings += [*_warnings(made), *_window_warnings(made, site)]
            except TidegateError as error:
                faults.append(channel_policy.PolicyFinding("", error.detail))
    return PolicyCheck(_once(faults), tuple(warnings), tuple(_notes(read)))


def _overlap(site: PolicySite) -> Iterator[channel_policy.PolicyFinding]:
    """Find hosts that would be in two channels of one package."""
    own = fleet_rows.ChannelScope(site.channel.channel, site.channel.package, site.channel.selector)
    try:
        claims.check_scope(site.scopes, own, site.hosts)
    except TidegateError as error:
        yield channel_policy.PolicyFinding("", error.detail)


def _once(
    faults: Iterable[channel_policy.PolicyFinding],
) -> tuple[channel_policy.PolicyFinding, ...]:
    return tuple(dict.fromkeys(faults))[: channel_policy.FAULTS_MAX]


def _warnings(made: Plan) -> Iterator[channel_policy.PolicyFinding]:
    places = {name: place for place, name in enumerate(channel_policy.wave_names(made.policy))}
    for wave in made.waves:
        place, hosts = places.get(wave.name), len(wave.hosts)
        if place is not None and wave.converged_min > max(1, hosts):
            path = f"waves[{place}].converged_min"
            takes = f"{hosts} host{'' if hosts == 1 else 's'}"
            yield channel_policy.PolicyFinding(
                path,
                f"{path} is {wave.converged_min}; the wave takes {takes} now: "
                f"it will ask for all {hosts}.",
            )
    for name in made.empty_waves:
        place = places.get(name)
        path = "waves" if place is None else f"waves[{place}]"
        yield channel_policy.PolicyFinding(path, f"Wave {name} takes no host now.")
    if count := len(made.unstaged):
        some = ", ".join(made.unstaged[:HOSTS_NAMED_MAX])
        more = " …" if count > HOSTS_NAMED_MAX else ""
        hosts_get = "1 host gets" if count == 1 else f"{count} hosts get"
        yield channel_policy.PolicyFinding(
            "waves", f"{hosts_get} no order, because no wave takes them: {some}{more}."
        )
    for edge in made.idle_edges:
        yield channel_policy.PolicyFinding(
            "host_edges", f"{edge.after} does not wait for {edge.before}: {edge.reason}."
        )


def _window_warnings(made: Plan, site: PolicySite) -> Iterator[channel_policy.PolicyFinding]:
    """Find waves with a host for which no opening of its windows is long enough."""
    if site.at is None or not made.policy.must_fit:
        return
    view = evaluation.WindowView(site.windows, made.channel, made.package, site.at)
    labels = {host.host_id: host.labels for host in site.hosts}
    for number, wave in enumerate(made.waves):
        need = demands.need_of(made.host_policy(number))
        assert need is not None, "the policy says must_fit"
        for host_id in wave.hosts:
            verdict = view.judge(host_id, labels[host_id], need)
            if verdict.is_open or verdict.until is not None or verdict.by is None:
                continue
            window = verdict.by.window
            opens = sentences.span_text(timedelta(seconds=window.duration_seconds))
            is_allow = window.kind is window_facts.WindowKind.ALLOW
            what = f"is open for {opens}" if is_allow else "leaves no time that is long enough"
            yield channel_policy.PolicyFinding(
                "must_fit",
                f"must_fit: wave {wave.name} needs {sentences.span_text(need)}, window "
                f"{window.window_id} {what}: no order would ever go out.",
            )
            break


def _notes(read: policy_document.PolicyRead) -> Iterator[channel_policy.PolicyFinding]:
    messages = {
        "waves": "waves is left out: one host, then 10 %, then the rest.",
        "offline_grace_seconds": "offline_grace_seconds is left out: a silent host is skipped "
        "after 15 min.",
    }
    for name in read.completed:
        yield channel_policy.PolicyFinding(name, messages[name])
    for place, wave in enumerate(read.policy.waves):
        if wave.manual:
            path = f"waves[{place}]"
            who = "every promotion" if place == 0 else "the rollout"
            yield channel_policy.PolicyFinding(
                path, f"{path} is manual: {who} will wait for rollout continue."
            )
    if read.policy.auto_promote:
        yield channel_policy.PolicyFinding(
            "auto_promote",
            "auto_promote is on: a release that every edge lets through is promoted by itself.",
        )
    if read.policy.auto_rollback:
        yield channel_policy.PolicyFinding(
            "auto_rollback",
            "auto_rollback is on: if hosts fail, the channel goes back by itself, once for a "
            "release.",
        )
    if not read.policy.waves and "waves" not in read.completed:
        yield channel_policy.PolicyFinding(
            "waves", "waves is empty: every host gets a release at once."
        )
