"""The text of a notice: a title, a few sentences, and the command to run next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from tidegate.domain.hosts.probes import failure_text
from tidegate.domain.notifications import events, notices, states
from tidegate.domain.rollouts.states import RolloutState

MINUTE, HOUR, DAY = 60, 3_600, 86_400


def title_of(notice: notices.Notice, actor: str = "") -> str:
    """One line: a symbol, the scope, the event. ``actor``: the name of the requester."""
    if notice.event == "request.made":
        return _of(notice, "?", f"{actor or 'an operator'} asks to {_asks(notice)}")
    return _TITLES[notice.event](notice)


def sentences_of(notice: notices.Notice, actor: str) -> tuple[str, ...]:
    """Sentences about the cause, the effect and the actor, by name. ``actor`` may be empty."""
    found = [*_why(notice), *_effect(notice)]
    if actor and notice.automatic:
        by = f"By {notice.automatic}, which {actor} switched on"
        found.append(f"{by}{_after_colon(notice.reason.removeprefix(f'{notice.automatic}: '))}.")
    elif actor:
        found.append(f"By {actor}{_after_colon(notice.reason)}.")
    return tuple(found)


def verbs_of(notice: notices.Notice) -> tuple[str, ...]:
    """The commands to run next."""
    if notice.rollout_id:
        if notice.severity is states.Severity.INFO:
            return ()
        return (f"tidegate rollout explain {notice.rollout_id}",)
    if notice.event in ("emergency.used", "emergency.unreviewed") and notice.is_about_request:
        return (f"tidegate request review {notice.subject} --accept --reason …",)
    if notice.is_about_request:
        return (f"tidegate request show {notice.subject}",)
    if notice.event == "outbox.dead":
        return (f"tidegate outbox list {notice.subject}",)
    if notice.event == "notify.changed":
        return ("tidegate notify list",)
    if notice.event in ("notify.dead", "target.disabled"):
        return (f"tidegate notify show {notice.subject}",)
    if notice.event == "revision.proposed":
        return (f"tidegate rev show {notice.revision}",)
    if notice.event in ("hosts.silent", "hosts.lost"):
        return ("tidegate host list",)
    return ()


# ── titles ────────────────────────────────────────────────────────────────────────────────────────


def count_of(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration_text(took: timedelta) -> str:
    """A duration in its largest units."""
    seconds = max(0, int(took.total_seconds()))
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < DAY:
        return f"{seconds // HOUR} h {seconds % HOUR // MINUTE} min"
    return f"{seconds // DAY} d {seconds % DAY // HOUR} h"


def _of(notice: notices.Notice, sign: str, text: str) -> str:
    return f"{sign} {notice.channel}: {text}"


def _opened(notice: notices.Notice) -> str:
    hosts = "" if notice.counts is None else f" to {count_of(notice.counts.hosts, 'host')}"
    if notice.automatic and notice.subject:
        return _of(notice, "↩", f"rolls back by itself from {notice.subject} to {notice.release}")
    by_itself = " by itself" if notice.automatic else ""
    return _of(notice, "▶", f"{notice.release} is rolling out{by_itself}{hosts}")


def _halted(notice: notices.Notice) -> str:
    wave = notice.wave
    where = "" if wave is None else f" in wave {wave.number} of {wave.of}"
    return _of(notice, "✘", f"{notice.release} stopped{where}")


def _stopped(notice: notices.Notice) -> str:
    if notice.state == RolloutState.FAILED:
        return _of(notice, "✘", f"{notice.release} stopped, and a host did not roll back")
    return _of(notice, "✘", f"{notice.release} stopped, and every host is back")


def _succeeded(notice: notices.Notice) -> str:
    counts = notice.counts
    hosts = "" if counts is None else f" on {count_of(counts.converged, 'host')}"
    took = "" if notice.opened_at is None else f" ({duration_text(notice.at - notice.opened_at)})"
    return _of(notice, "✔", f"{notice.release} succeeded{hosts}{took}")


def _emergency(notice: notices.Notice) -> str:
    if notice.gate == "approval":
        return _of(notice, "!", f"the approval to {_asks(notice)} was bypassed")
    if notice.gate:
        return _of(notice, "!", f"{notice.release} passes the gate {notice.gate}")
    return _of(notice, "!", f"rolled back to {notice.release} at once")


def _asks(notice: notices.Notice) -> str:
    """What a request is for, without the channel, which is named before it."""
    asks = notice.asks or "do something"
    return asks.replace(f" on {notice.channel}", "", 1)


def _about_request(sign: str, text: str) -> Callable[[notices.Notice], str]:
    return lambda notice: _of(notice, sign, f"the request to {_asks(notice)} {text}")


def _about_release(sign: str, text: str) -> Callable[[notices.Notice], str]:
    return lambda notice: _of(notice, sign, text.format(release=notice.release))


def _about_revision(sign: str, text: str) -> Callable[[notices.Notice], str]:
    return lambda notice: f"{sign} {notice.revision} {text}"


def _about_hosts(sign: str, text: str) -> Callable[[notices.Notice], str]:
    def title(notice: notices.Notice) -> str:
        number = 0 if notice.hosts is None else notice.hosts.count
        hosts = count_of(number, "host")
        return _of(notice, sign, text.format(hosts=hosts, release=notice.release))

    return title


def _about_freeze(sign: str, text: str) -> Callable[[notices.Notice], str]:
    return lambda notice: f"{sign} {notice.channel or 'Several channels'}: {text}"


def _about_subject(text: str, noun: str = "") -> Callable[[notices.Notice], str]:
    def title(notice: notices.Notice) -> str:
        return text.format(subject=notice.subject, number=count_of(notice.count, noun))

    return title


_TITLES: Final[Mapping[str, Callable[[notices.Notice], str]]] = {
    "rollout.opened": _opened,
    "rollout.halted": _halted,
    "rollout.stopped": _stopped,
    "rollout.succeeded": _succeeded,
    "rollout.rolled_back": _about_release("↩", "{release} was rolled back"),
    "rollout.failed": _about_release("✘", "{release} failed"),
    "rollout.aborted": _about_release("■", "{release} was aborted"),
    "rollout.replaced": _about_release("»", "{release} was replaced"),
    "rollout.empty": _about_release("○", "no host ran {release}"),
    "rollout.waiting": _about_release("!", "{release} waits"),
    "rollout.resumed": _about_release("▶", "{release} continues"),
    "emergency.used": _emergency,
    "emergency.unreviewed": lambda notice: _of(
        notice, "!", f"{_asks(notice)}, done with break-glass, was not reviewed for 72 hours"
    ),
    "emergency.reviewed": lambda notice: _of(
        notice, "✔", f"{_asks(notice)}, done with break-glass, was {notice.state or 'reviewed'}"
    ),
    "request.approved": _about_request("✔", "was approved"),
    "request.rejected": _about_request("✘", "was rejected"),
    "request.withdrawn": _about_request("■", "was withdrawn"),
    "request.expired": _about_request("■", "expired"),
    "request.voided": _about_request("■", "is void"),
    "request.executed": _about_request("✔", "was carried out"),
    "rollout.degraded": _about_hosts("!", "{hosts} failed or drifted after {release} ended"),
    "release.quarantined": _about_release("✘", "{release} is quarantined"),
    "release.quarantine_lifted": _about_release("✔", "a quarantine was lifted"),
    "revision.proposed": _about_revision("?", "waits for approval"),
    "revision.approved": _about_revision("✔", "was approved"),
    "revision.rejected": _about_revision("✘", "was rejected"),
    "revision.published": _about_revision("✔", "was published"),
    "hosts.silent": _about_hosts("!", "{hosts} silent"),
    "hosts.heard": _about_release("✔", "every host reports again"),
    "hosts.lost": _about_hosts("✘", "{hosts} silent for 24 hours"),
    "freeze.started": _about_freeze("■", "frozen"),
    "freeze.ended": _about_freeze("▶", "the freeze is over"),
    "channel.held": _about_release("■", "held"),
    "channel.released": _about_release("▶", "the hold is released"),
    "channel.edited": _about_release("✎", "selector or policy changed"),
    "outbox.dead": _about_subject("✘ {subject}: {number} given up", "outbox intent"),
    "notify.dead": _about_subject("✘ {number} to {subject} given up", "message"),
    "notify.changed": lambda notice: f"! the subscription {notice.subject} was {notice.state}",
    "target.disabled": _about_subject("✘ {subject} is disabled: its receiver is gone"),
    events.TEST_EVENT: lambda notice: "✔ This is a test",
}


# ── sentences ─────────────────────────────────────────────────────────────────────────────────────


def _after_colon(reason: str) -> str:
    return f": {reason}" if reason else ""


def _why(notice: notices.Notice) -> list[str]:
    cause = notice.cause
    if notice.event == events.TEST_EVENT:
        return ["Messages of this subscription arrive here."]
    if notice.event == "rollout.waiting":
        return [f"{notice.reason or notice.gate}."]
    if cause is not None:
        return [f"{cause.host} {failure_text(cause.failure, cause.probe, cause.detail)}."]
    if notice.hosts is not None and notice.hosts.some:
        more = notice.hosts.count - len(notice.hosts.some)
        rest = f" and {more:,} more" if more else ""
        return [f"{', '.join(notice.hosts.some)}{rest}."]
    if notice.event == "rollout.replaced" and notice.subject:
        return [f"{notice.subject} replaced it."]
    if not notice.actor and notice.reason:
        return [f"{notice.reason}."]
    return []


def _effect(notice: notices.Notice) -> list[str]:
    counts, found = notice.counts, []
    if notice.event == "rollout.halted" and counts is not None and counts.converged:
        found.append(
            f"{counts.converged:,} of {count_of(counts.hosts, 'host')} run {notice.release}; "
            "they stay on it."
        )
    elif notice.outcome is not None and counts is not None:
        runs = "runs" if counts.converged == 1 else "run"
        hosts = count_of(counts.hosts, "host")
        parts = [f"{counts.converged:,} of {hosts} {runs} {notice.release}"]
        parts += [f"{count_of(counts.tolerated, 'failure')} allowed"] if counts.tolerated else []
        parts += [f"{counts.skipped:,} skipped"] if counts.skipped else []
        parts += [f"{counts.waived:,} waived"] if counts.waived else []
        found.append(f"{' · '.join(parts)}.")
    if notice.quarantined:
        found.append(f"{notice.release} is quarantined on {notice.channel}.")
    return found
