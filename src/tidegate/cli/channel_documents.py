"""The columns of channel lists and the fields of a channel's card."""

from __future__ import annotations

from typing import Any, Final

from tidegate.cli import output, symbols, waiting

DIGEST_CHARS: Final = len("sha256:") + 12  # of an artifact that is no release


def channel_state(item: output.Item) -> output.StateCell:
    return output.StateCell("held" if item.get("held_at") else "active")


def describe_approval(item: output.Item) -> list[str] | str:
    """Name the approvers, or the use of break-glass and its reviewer."""
    if not item.get("breakGlass"):
        return approvers(item)
    by = item.get("reviewedByName") or item.get("reviewedBy")
    verdict = f"reviewed by {by}" if by else "not reviewed"
    return f"break-glass {item['breakGlass']}, {verdict}"


def approvers(item: output.Item) -> list[str]:
    """The approvers of a promotion on a protected channel, by name or else by id."""
    ids = item.get("approvedBy") or []
    names = item.get("approvedByNames") or [None] * len(ids)
    return [str(name or user_id) for name, user_id in zip(names, ids, strict=False)]


def newest_rollout(item: output.Item) -> output.Cell:
    """The newest rollout: its outcome, or what it does now."""
    if not item.get("newest_rollout_id"):
        return output.NOTHING
    if item.get("newest_outcome"):
        return waiting.outcome_cell({"outcome": item["newest_outcome"]})
    state = str(item.get("newest_state"))
    return output.StateCell(state, "Stopped" if state in ("Reverted", "Failed") else "Rolling out")


def count_actual(item: output.Item) -> str:
    """How many hosts run which release, such as ``web.3 on 29 of 40, web.4 on 11``."""
    actual = item.get("actual")
    if actual is None:
        return output.NOTHING
    hosts = actual["hosts"]
    if not hosts:
        return "no hosts"
    counts = [
        (found["release_id"] or f"{found['digest'][:DIGEST_CHARS]}…", found["hosts"])
        for found in actual.get("releases", ())
    ]
    if actual.get("unknown"):
        counts.append(("not known", actual["unknown"]))
    parts = [f"{name} on {number}" for name, number in counts]
    parts[0] += f" of {output.counted(hosts, 'host')}"
    if actual.get("silent"):
        parts.append(f"{actual['silent']} silent")
    return ", ".join(parts)


def _wanted(found: output.Item) -> str:
    wanted = found.get("wanted")
    if wanted is None:
        return output.text(output.dig(found.get("pin"), "pinnedReleaseId"))
    who = wanted.get("by_name") or wanted["by"]
    said = f"{wanted['release_id']}, {wanted['what']} {output.when(wanted['since'])} by {who}"
    return f"{said}: {wanted['reason']}" if wanted.get("reason") else said


def _evidence(found: output.Item) -> str:
    pin = found.get("pin")
    kind, level = output.dig(pin, "provenance", "kind"), output.dig(pin, "confidence", "level")
    return f"{kind}, {level} confidence" if kind else output.NOTHING


COLUMNS = (
    output.column("CHANNEL", "channel"),
    output.column("PACKAGE", "package"),
    output.Column("STATE", channel_state),
    output.Column("WANTED", lambda item: output.text(item.get("wanted"))),
    output.Column("ACTUAL", count_actual),
    output.Column("NEWEST ROLLOUT", newest_rollout),
    output.column("HOSTS", "selector"),
    output.Column(
        "PROTECTED", lambda item: "yes" if item.get("protection") is not None else output.NOTHING
    ),
)


HISTORY = (
    output.time_column("TIME", "recordedAt"),
    output.column("WHAT", "what"),
    output.column("RELEASE", "releaseId"),
    output.column("BEFORE", "previousReleaseId"),
    output.column("STATUS", "status"),
    output.person_column("BY", "by", name="byName"),
    output.Column("APPROVED BY", lambda item: output.text(describe_approval(item))),
    output.column("EVIDENCE", "provenance", "kind"),
    output.column("WHY", "reason"),
)


def channel_fields(found: Any) -> list[tuple[str, output.Cell]]:
    return [
        ("channel", output.text(found["channel"])),
        ("state", channel_state(found)),
        ("held", _held(found)),
        ("package", output.text(found.get("package"))),
        ("wanted", _wanted(found)),
        ("actual", count_actual(found)),
        ("rollout", output.text(found.get("newest_rollout_id"))),
        ("outcome", newest_rollout(found)),
        ("before", output.text(output.dig(found.get("pin"), "previousReleaseId"))),
        ("digest", output.text(output.dig(found.get("pin"), "digest"))),
        ("evidence", _evidence(found)),
        ("hosts", output.text(found.get("selector"))),
        ("waves", _waves(found)),
        ("after", _edges(found)),
        ("overridden", output.text(found.get("overrides"))),
        ("windows", output.text(found.get("windows") or output.NOTHING)),
        ("protected", _protection(found)),
        ("by itself", _automation(found)),
        ("version", output.text(found.get("version"))),
    ]


def _held(found: output.Item) -> str:
    if not found.get("held_at"):
        return "–"
    who = output.text(found.get("held_by_name") or found.get("held_by"))
    return f"{output.text(found.get('held_reason'))} ({who}, {output.when(found['held_at'])})"


def _protection(found: output.Item) -> str:
    """Describe how many other people must approve, and whether break-glass is allowed."""
    protection = found.get("protection")
    if protection is None:
        return output.NOTHING
    people = protection.get("approvals", 1)
    others = "1 other person" if people == 1 else f"{people} other people"
    allowed = "allowed" if protection.get("break_glass", True) else "forbidden"
    return f"{others}, break-glass {allowed}"


def _edges(found: output.Item) -> str:
    """The channels that this one depends on, how long a release must be there, and what blocks."""
    return output.text([_edge(edge) for edge in found.get("edges") or []])


def _edge(edge: output.Item) -> str:
    soak = edge.get("soak_seconds")
    name = f"{edge['channel']} for {symbols.duration(soak)}" if soak else str(edge["channel"])
    return f"{name} (blocks: {edge['reason']})" if edge["blocks"] else name


def _automation(found: output.Item) -> str:
    """What the channel does automatically, or why it does nothing."""
    findings = found.get("automation") or []
    return output.text([item["sentence"] for item in findings] or output.NOTHING)


def _waves(found: output.Item) -> str:
    waves = output.dig(found, "policy", "waves") or []
    return output.text(
        [wave.get("name") or f"wave-{n}" for n, wave in enumerate(waves, 1)] or "at once"
    )
