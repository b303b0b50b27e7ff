"""Texts about a window that is shut: which one, until when, in which time zone."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidegate.domain.windows import evaluation, facts, occurrences, zones


def span_text(span: timedelta) -> str:
    """Format a duration with its largest unit and the next smaller one: 3 h 10 min, 10 h."""
    left = int(span.total_seconds())
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if parts and (not count or len(parts) == 2):
            break
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"


def local_text(at: datetime, zone: str | None) -> str:
    """Format a local time: Tue 17 Nov 02:00 CET. A zone without letters becomes an offset."""
    local = at.astimezone(zones.find_zone(zone or "UTC"))
    name = local.tzname() or ""
    shown = name if name[:1].isalpha() else f"UTC{local:%z}"
    return f"{local:%a} {local.day} {local:%b} {local:%H:%M} {shown}"


def shut_text(
    verdict: evaluation.WindowVerdict,
    at: datetime,
    channel: str,
    host_id: str,
    *,
    scope: str = "",
    need: timedelta | None = None,
    reason: str = "",
) -> str:
    """Say why a host gets no order now. ``scope``: how many hosts this is about; else one host."""
    by = verdict.by
    assert by is not None, "the windows are open"
    window = by.window
    name = window.window_id
    if verdict.closes_at is not None and need is not None:
        left = span_text(verdict.closes_at - at)
        again = _describe_opening(verdict, at, by)
        closes = "closes" if window.kind is facts.WindowKind.ALLOW else "begins"
        kind = "Window" if window.kind is facts.WindowKind.ALLOW else "Deny window"
        return f"{kind} {name} {closes} in {left}, {host_id} needs up to {span_text(need)}{again}"
    if by.zone is None:
        label = window.zone.removeprefix(facts.LABEL)
        held = "holds" if window.kind is facts.WindowKind.DENY else "is closed for"
        kind = "Deny window" if window.kind is facts.WindowKind.DENY else "Window"
        return f"{kind} {name} {held} {host_id}, which has no valid label {label}"
    whose = "" if scope else _describe_zone(by)
    if window.kind is facts.WindowKind.DENY:
        why = f": {reason}" if reason else ""
        end = _describe_deny_end(verdict, at, by)
        return f"Deny window {name} holds {channel}{scope}{end}{whose}{why}"
    if verdict.until is None:
        return f"Window {name} {_describe_never(window, at, by.zone)}{whose}"
    opens = f"{local_text(verdict.until, by.zone)} (in {span_text(verdict.until - at)})"
    length = span_text(timedelta(seconds=window.duration_seconds))
    return f"Window {name} is closed{scope}; it opens {opens} for {length}{whose}"


def _describe_zone(by: evaluation.HostWindow) -> str:
    if not by.window.zone.startswith(facts.LABEL):
        return ""
    return f" ({by.zone}, label {by.window.zone.removeprefix(facts.LABEL)})"


def _describe_deny_end(
    verdict: evaluation.WindowVerdict, at: datetime, by: evaluation.HostWindow
) -> str:
    assert by.zone is not None
    end = occurrences.end_of_stretch(by.window, by.zone, at)
    if end is None:
        return f" for at least {occurrences.HORIZON.days} days"
    then = ""
    if verdict.until is not None and verdict.until > end:
        then = f", and other windows until {local_text(verdict.until, by.zone)}"
    return f" until {local_text(end, by.zone)}{then}"


def _describe_opening(
    verdict: evaluation.WindowVerdict, at: datetime, by: evaluation.HostWindow
) -> str:
    if verdict.until is None:
        return f"; no opening in the next {occurrences.HORIZON.days} days is long enough"
    return f"; the next opening that is long enough is {local_text(verdict.until, by.zone)}"


def _describe_never(window: facts.WindowSpec, at: datetime, zone: str) -> str:
    """Say why no opening was found: the last one is over, or the next one is too far away."""
    rule = occurrences.rule_of(window)
    last = (
        occurrences.to_utc(occurrences.read_start(window.start), zone)
        if rule is None
        else rule.until
    )
    if last is not None and last < at + occurrences.HORIZON:
        return "never opens again"
    return f"does not open in the next {occurrences.HORIZON.days} days"
