"""The columns of channel lists and the fields of a channel's card."""

from __future__ import annotations

from typing import Any

from tidegate.cli import output


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


COLUMNS = (
    output.column("CHANNEL", "channel"),
    output.column("PACKAGE", "package"),
    output.Column("STATE", channel_state),
    output.Column("ROLLOUT", lambda item: output.text(item.get("newest_rollout_id"))),
    output.state_column("IS", "newest_state"),
    output.column("HOSTS", "selector"),
    output.Column(
        "PROTECTED", lambda item: "yes" if item.get("protection") is not None else output.NOTHING
    ),
    output.column("VERSION", "version"),
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
    release = found.get("pin")
    newest = found.get("newest_state")
    return [
        ("channel", output.text(found["channel"])),
        ("state", channel_state(found)),
        ("held", _held(found)),
        ("package", output.text(found.get("package"))),
        ("release", output.text(output.dig(release, "pinnedReleaseId"))),
        ("before", output.text(output.dig(release, "previousReleaseId"))),
        ("digest", output.text(output.dig(release, "digest"))),
        ("confidence", output.text(output.dig(release, "confidence", "level"))),
        ("evidence", output.text(output.dig(release, "provenance", "kind"))),
        ("hosts", output.text(found.get("selector"))),
        ("rollout", output.text(found.get("newest_rollout_id"))),
        ("is", output.StateCell(newest) if newest else output.NOTHING),
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
    """The channels that this one depends on, with the reason of each that blocks it."""
    edges = found.get("edges") or []
    channels = [
        f"{edge['channel']} (blocks: {edge['reason']})" if edge["blocks"] else edge["channel"]
        for edge in edges
    ]
    return output.text(channels)


def _automation(found: output.Item) -> str:
    """What the channel does automatically, or why it does nothing."""
    findings = found.get("automation") or []
    return output.text([item["sentence"] for item in findings] or output.NOTHING)


def _waves(found: output.Item) -> str:
    waves = output.dig(found, "policy", "waves") or []
    return output.text(
        [wave.get("name") or f"wave-{n}" for n, wave in enumerate(waves, 1)] or "at once"
    )
