"""What probes report after an activation, and what follows from it.

Only enforced probes count: they must pass before the host converges. They fail the host if they
fail for long enough without a pass in between.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from tidegate.domain.hosts import facts, refusals, rows, states
from tidegate.errors import InvalidInput
from tidegate.kernel.model import at_most, check_text

PROBES_MAX = 32  # of one host: one commit holds its rows of open failures
PROBE_NAME_BYTES_MAX = 64


def declare(record: rows.HostRecord, event: facts.ProbeTopologyDeclared) -> rows.HostRecord:
    """Declare the probes of this activation: once, and before any result.

    Raises:
        HostInvariant: they were already declared. InvalidInput, LimitExceeded: names, number.
    """
    if record.topology_declared_at is not None:
        raise refusals.HostInvariant(
            record.state, "the topology of this activation is declared already"
        )
    at_most("probes of a host", len(event.probes), PROBES_MAX)
    probes: dict[str, rows.Probe] = {}
    for declared in event.probes:
        check_text("a probe's name", declared.probe_name, PROBE_NAME_BYTES_MAX)
        if declared.probe_name in probes:
            raise InvalidInput(f"probe {declared.probe_name!r} is declared twice", field="probes")
        probes[declared.probe_name] = rows.Probe(declared.mode, declared.kind)
    return replace(record, topology_declared_at=event.at, probes=probes)


def _find_declared(
    record: rows.HostRecord,
    event: facts.ProbeObservedFirst | facts.ProbeResult | facts.ProbeFailureFirst,
) -> rows.Probe:
    probe = record.probes.get(event.probe_name)
    if probe is None:
        raise refusals.UndeclaredProbe(record.state, event.probe_name, "is not declared")
    if probe.mode is states.ProbeMode.DISABLED:
        raise refusals.UndeclaredProbe(record.state, event.probe_name, "is disabled")
    if probe.mode is not event.mode:
        detail = f"is declared as {probe.mode}, not {event.mode}"
        raise refusals.UndeclaredProbe(record.state, event.probe_name, detail)
    completed = record.activation_completed_at
    if completed is not None and event.at < completed:
        raise refusals.HostInvariant(
            record.state,
            f"probe {event.probe_name!r} was observed at {event.at.isoformat()}, "
            f"before the activation at {completed.isoformat()}",
        )
    return probe


def first_observed(record: rows.HostRecord, event: facts.ProbeObservedFirst) -> rows.HostRecord:
    """Raises: UndeclaredProbe, HostInvariant."""
    _find_declared(record, event)
    return replace(record, probe_observed_first_at=record.probe_observed_first_at or event.at)


def first_failed(record: rows.HostRecord, event: facts.ProbeFailureFirst) -> rows.HostRecord:
    """Return when the first enforced probe failed, for the record. Raises: UndeclaredProbe, …"""
    if _find_declared(record, event).mode is not states.ProbeMode.ENFORCE:
        return record
    return replace(record, probe_failure_first_at=record.probe_failure_first_at or event.at)


def observe(record: rows.HostRecord, event: facts.ProbeResult) -> rows.HostRecord:
    """Raises: UndeclaredProbe, HostInvariant."""
    probe = _find_declared(record, event)
    passed = event.status is states.ProbeStatus.PASS
    since = None
    if not passed and probe.mode is states.ProbeMode.ENFORCE:
        since = probe.failing_since or event.at
    observed = replace(
        probe,
        status=event.status,
        last_observed_at=event.at,
        last_pass_at=event.at if passed else probe.last_pass_at,
        failing_since=since,
        failure_reason=None if passed else event.failure_reason,
    )
    return replace(record, probes={**record.probes, event.probe_name: observed})


def missing_for_convergence(record: rows.HostRecord, at: datetime) -> tuple[str, ...]:
    """Say what keeps the host from converging at this time; nothing: it may converge."""
    missing = []
    due, completed = record.soak_due_at, record.activation_completed_at
    if due is None or completed is None or at < due:
        missing.append("the soak is over at " + ("no time" if due is None else due.isoformat()))
    if record.topology_declared_at is None:
        missing.append("no probe topology since the activation")
    for name, probe in sorted(record.probes.items()):
        if probe.mode is not states.ProbeMode.ENFORCE:
            continue
        passed = probe.last_pass_at
        fresh = passed is not None and completed is not None and passed >= completed
        if probe.status is not states.ProbeStatus.PASS or not fresh:
            missing.append(f"no pass of probe {name}")
    return tuple(missing)


def list_sustained(record: rows.HostRecord, at: datetime) -> tuple[str, ...]:
    """List the enforced probes that have failed for so long that the host fails."""
    return tuple(name for name in sorted(record.probes) if _is_sustained(record, name, at))


def why_unsustained(record: rows.HostRecord, named: tuple[str, ...], at: datetime) -> str | None:
    """Say why these probes do not fail the host at this time; None: they do."""
    if not named:
        return "no failing probe is named"
    wrong = sorted({name for name in named if not _is_sustained(record, name, at)})
    if not wrong:
        return None
    seconds = record.policy.sustained_failure_seconds
    return f"not enforced, or not failing for {seconds} s: {', '.join(wrong)}"


def _is_sustained(record: rows.HostRecord, name: str, at: datetime) -> bool:
    probe = record.probes.get(name)
    if probe is None or probe.mode is not states.ProbeMode.ENFORCE or probe.failing_since is None:
        return False
    return at - probe.failing_since >= timedelta(seconds=record.policy.sustained_failure_seconds)


def open_failures(record: rows.HostRecord) -> tuple[str, ...]:
    """Return the enforced probes that fail now: those that may have a row in ``probe_failures``."""
    if not record.probes or record.state not in (states.HostState.SOAKING, states.HostState.FAILED):
        return ()
    return tuple(name for name, p in sorted(record.probes.items()) if p.failing_since is not None)


# ── descriptions ──────────────────────────────────────────────────────────────────────────────────


def failed_probe(record: rows.HostRecord) -> tuple[str, str]:
    """Return the first failed probe by name, and its message; empty if none failed."""
    failing = (
        (name, probe.failure_reason or "")
        for name, probe in sorted(record.probes.items())
        if probe.status is states.ProbeStatus.FAIL
    )
    return next(failing, ("", ""))


def failure_text(failure: str, probe: str, detail: str) -> str:
    """Say why a host failed, to follow its name: failed its probe http: exit code 1, expected 0."""
    failed = f"failed its probe {probe}" if probe else "failed"
    if not probe and failure:
        failed = f"failed ({failure})"
    return f"{failed}: {detail}" if detail else failed
