"""What hosts under way wait for, grouped by what they are doing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tidegate.domain.access import steps
from tidegate.domain.gates import context, dispatch_pass, inputs, remedies
from tidegate.domain.hosts.states import HostState
from tidegate.domain.rollouts import progress, states, tallies
from tidegate.domain.times import describe_time

SOME_MAX = 5  # hosts named by a wait
ENDED_BADLY: Final = frozenset({HostState.FAILED, HostState.REVERTED})


class HostActivity(NamedTuple):
    """What one host under way is doing."""

    code: str
    text: str  # follows the host's name
    until: datetime | None = None
    remedies: tuple[inputs.Remedy, ...] = ()
    by_person: bool = False


def wait_of_host(state: inputs.FleetState, rollout_id: str, host_id: str) -> inputs.Wait | None:
    """Return what a host with a record waits for; None: it is done, or waits at a gate."""
    look = context.GateContext(state, state.sight(rollout_id))
    found = look.rollout.standings.get(host_id)
    doing = None if found is None else find_activity(look, found.row)
    return None if found is None or doing is None else to_wait(look, doing, [found.row])


def is_rolling_back(row: inputs.HostStanding) -> bool:
    return row.state is HostState.FAILED and row.due_at is not None


def list_host_waits(look: context.GateContext) -> Iterator[inputs.Wait]:
    """Group the hosts that have a record and are not done by what they are doing."""
    groups: dict[str, tuple[HostActivity, list[inputs.HostStanding]]] = {}
    for seen in sorted(
        look.rollout.standings.values(), key=lambda seen: not _is_silent(look, seen)
    ):
        doing = find_activity(look, seen.row)
        if doing is not None:
            groups.setdefault(doing.code, (doing, []))[1].append(seen.row)
    for doing, rows in groups.values():
        yield to_wait(look, doing, rows)


def _is_silent(look: context.GateContext, seen: inputs.Versioned[inputs.HostStanding]) -> bool:
    """Whether the host is silent. Such a host is named first: the commands name it."""
    host = look.state.hosts.get(seen.row.host_id)
    return host is not None and host.row.silent_since is not None


def to_wait(
    look: context.GateContext, doing: HostActivity, rows: list[inputs.HostStanding]
) -> inputs.Wait:
    names = tuple(row.host_id for row in rows[:SOME_MAX])
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    untils = [row.due_at for row in rows if row.due_at is not None]
    until = doing.until if len(rows) == 1 or not untils else max(untils)
    started = [row.dispatched_at for row in rows if row.dispatched_at is not None]
    ends = inputs.WaitEnds.WHEN if until is None else inputs.WaitEnds.BY_ITSELF
    return inputs.Wait(
        code=doing.code,
        sentence=f"{names[0]}{more} {doing.text}",
        hosts=len(rows),
        some=names,
        since=min(started, default=look.tally.opened_at),
        until=until,
        ends=inputs.WaitEnds.NEVER if doing.by_person else ends,
        evidence=look.cite_record(names[0]),
        remedies=doing.remedies,
    )


def find_activity(look: context.GateContext, row: inputs.HostStanding) -> HostActivity | None:
    """Return what the host does, and until when; None: it is done, or waits for an order."""
    if row.left is not None:
        return None
    # No wave waits for a late host, so it is not skipped before it fails.
    skip: tuple[inputs.Remedy, ...] = ()
    if not row.late:
        skip = (remedies.skip(look.tally.rollout_id, row.host_id),)
    by = "" if row.due_at is None else f" by {describe_time(row.due_at)}"
    host = look.state.hosts.get(row.host_id)
    silent = None if host is None else host.row.silent_since
    heard = silent or look.rollout.heard.get(row.host_id)
    last_report = "" if heard is None else f"; it last reported at {describe_time(heard)}"
    match row.state:
        case HostState.PENDING if row.cancelled_at is None:
            skipped, at = ("", None) if row.late else describe_silence(look, row.host_id)
            again = skipped or f"; it is handed out again{by}"
            until = at if skipped else row.due_at
            text = f"has its order and has not taken it{last_report}{again}"
            off = remedies.skip(look.tally.rollout_id, row.host_id, "if the host is switched off")
            return HostActivity("pending", text, until, () if row.late else (off,))
        case HostState.ACTIVATING:
            text = f"is switching; it fails{by} if it does not report{last_report}"
            return HostActivity("activating", text, row.due_at)
        case HostState.SOAKING:
            return _describe_soak(look, row, by)
        case HostState.DEFERRED if row.host_id in look.state.rebooted:
            text = "was rebooted and waits for its order or for a slot of a budget"
            return HostActivity("rebooted", text, row.due_at)
        case HostState.DEFERRED:
            text = f"takes the release with its next reboot; it fails{by}"
            return HostActivity("deferred", text, row.due_at, skip)
        case HostState.FAILED if row.due_at is not None:
            text = f"{_describe_failure(look, row)} rolls back{by}"
            return HostActivity("rolling-back", text, row.due_at)
        case HostState.FAILED | HostState.REVERTED:
            return _find_failure(look, row)
        case _:
            return None


def _describe_soak(look: context.GateContext, row: inputs.HostStanding, by: str) -> HostActivity:
    if row.topology_declared_at is None:
        text = f"runs the release; its probes must be declared{by}"
        return HostActivity("undeclared", text, row.due_at)
    failing = [seen.row for seen in look.rollout.failures if seen.row.host_id == row.host_id]
    probes = "".join(f"; probe {item.probe_name} fails" for item in failing)
    if row.soak_due_at is not None and look.state.at < row.soak_due_at:
        text = f"soaks until {describe_time(row.soak_due_at)}{probes}"
        return HostActivity("soaking", text, row.soak_due_at)
    return HostActivity("soaked", f"has soaked; its report is awaited{by}{probes}", row.due_at)


def _describe_failure(look: context.GateContext, row: inputs.HostStanding) -> str:
    """Describe the failure, so that the next words can say what the host did then."""
    cause = look.rollout.causes.get(row.host_id) or f"failed ({row.failure or 'unknown'})"
    what, colon, why = cause.partition(": ")
    return f"{what} ({why}), and" if colon else f"{cause} and"


def _find_failure(look: context.GateContext, row: inputs.HostStanding) -> HostActivity | None:
    tally = look.tally
    if tally.state not in states.OPEN:
        return None  # the rollout is over; failed late hosts have their own wait
    reverted = row.state is HostState.REVERTED
    text = f"{_describe_failure(look, row)} {'rolled back' if reverted else 'stays as it is'}"
    code = "reverted" if reverted else "failed"
    if tally.halted_at is None and not row.late and not tallies.may_go(tally, row.host_id):
        return HostActivity(code, f"{text}; only {', '.join(tally.retried)} may be tried again now")
    if tally.halted_at is None and row.attempt < tally.attempt:
        return HostActivity(code, f"{text}; it is tried again")
    retry = f"tidegate rollout retry {tally.rollout_id} {row.host_id} --reason …"
    commands: tuple[inputs.Remedy, ...] = (
        inputs.make_remedy(
            steps.RETRY_ROLLOUT, tally.channel, retry, "to try only this host again"
        ),
        remedies.waive(tally.rollout_id, row.host_id),
    )
    if row.late:
        commands = (remedies.skip(tally.rollout_id, row.host_id),)
    return HostActivity(code, text, None, commands, by_person=True)


def describe_silence(look: context.GateContext, host_id: str) -> tuple[str, datetime | None]:
    """Say when a silent host will be skipped, or why it will not."""
    host = look.state.hosts.get(host_id)
    since = None if host is None else host.row.silent_since
    grace = look.rollout.chart.plan.policy.offline_grace_seconds
    number = look.rollout.chart.waves.get(host_id)
    if since is None:
        return "", None
    if grace is None:
        return "; the policy waits for silent hosts", None
    if number is None or not dispatch_pass.can_spare_silent(look.state, look.rollout, number):
        name = "its wave" if number is None else f"wave {progress.name_wave(look.tally, number)}"
        return f"; it is not skipped: {name} needs it", None
    until = max(since + timedelta(seconds=grace), look.state.at)
    return f"; it is skipped at {describe_time(until)}", until
