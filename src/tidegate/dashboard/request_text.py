"""Requests on protected channels in words: what each asks for, and what would change."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tidegate import decoders
from tidegate.dashboard.html import seconds, short
from tidegate.domain.access import steps
from tidegate.domain.channels.facts import ChannelPolicy, ChannelProtection
from tidegate.domain.channels.policy_document import changes
from tidegate.domain.channels.rows import Channel
from tidegate.domain.requests.rows import ChannelRequest

CHANGES_MAX = 40  # members of a policy that are shown

decoders.build(ChannelPolicy)
decoders.build(ChannelProtection)


class RequestSentence(Struct, frozen=True):
    """One thing that a request changes. One that goes past a safeguard warns."""

    text: str
    warns: bool = False


def title_of(row: ChannelRequest) -> str:
    """What a request asks for, in a few words."""
    said, channel = row.command, row.channel
    match row.kind:
        case steps.PROMOTE.name if said.get("refresh"):
            return f"Confirm {said['release_id']} on {channel}"
        case steps.PROMOTE.name:
            return f"Promote {said['release_id']} on {channel}"
        case steps.ROLL_BACK.name:
            to = f" to {said['to']}" if said.get("to") else ""
            return f"Roll {channel} back{to}{' now' if said.get('now') else ''}"
        case steps.EDIT_CHANNEL.name:
            return f"Edit {channel}"
        case steps.PROTECT_CHANNEL.name:
            verb = "Unprotect" if said.get("protection") is None else "Protect less:"
            return f"{verb} {channel}"
        case steps.LIFT_QUARANTINE.name:
            return f"Lift a quarantine on {channel}"
        case steps.RETRY_ROLLOUT.name:
            return f"Retry {said['rollout_id']}"
        case steps.CLEAR_ROLLOUT.name:
            return f"Clear {said['rollout_id']}"
        case steps.OVERRIDE_GATE.name:
            return f"Let {said['rollout_id']} pass the gate {said['gate']}"
        case steps.SKIP_WAVE.name:
            return f"Skip wave {said['wave']} of {said['rollout_id']}"
        case steps.PROMOTE_ALL.name:
            return f"Let every wave of {said['rollout_id']} go now"
    return f"{row.kind} on {channel}"


def describe(
    row: ChannelRequest, channel: Channel | None, pinned: str
) -> tuple[RequestSentence, ...]:
    """What would change, against the channel as it is now. ``pinned``: its release; may be none."""
    said = row.command
    match row.kind:
        case steps.PROMOTE.name:
            return tuple(_promotion(said, pinned))
        case steps.ROLL_BACK.name:
            return tuple(_rollback(said, pinned))
        case steps.EDIT_CHANNEL.name:
            return tuple(_edit(said, channel))
        case steps.PROTECT_CHANNEL.name:
            return tuple(_protection(said, channel))
        case steps.LIFT_QUARANTINE.name:
            content = short(str(said.get("closure_hash", "")))
            return (RequestSentence(f"Content {content} may be sent to hosts again.", warns=True),)
    return tuple(_rollout(row.kind, said))


def _promotion(said: dict[str, Any], pinned: str) -> list[RequestSentence]:
    release = said["release_id"]
    if said.get("refresh"):
        return [RequestSentence(f"{release} stays, with new evidence. No rollout opens.")]
    found = [RequestSentence(f"{pinned or 'no release yet'} → {release}")]
    if said.get("start_at"):
        found.append(RequestSentence(f"No order goes out before {said['start_at']}."))
    if said.get("overrides"):
        gates = ", ".join(said["overrides"])
        found.append(RequestSentence(f"It passes these gates, whatever they say: {gates}.", True))
    return found


def _rollback(said: dict[str, Any], pinned: str) -> list[RequestSentence]:
    to = said.get("to") or "the release that succeeded before it"
    found = [RequestSentence(f"{pinned or 'no release yet'} → {to}")]
    if said.get("now"):
        found.append(
            RequestSentence("All hosts at once, in spite of freezes, holds and windows.", True)
        )
    if said.get("ignore_budgets"):
        found.append(RequestSentence("Budgets are ignored.", True))
    if said.get("lift_quarantine"):
        found.append(RequestSentence(f"The quarantine of {to} is lifted.", True))
    return found


def _edit(said: dict[str, Any], channel: Channel | None) -> list[RequestSentence]:
    found: list[RequestSentence] = []
    if said.get("selector") is not None:
        before = "" if channel is None else f"{channel.selector} → "
        found.append(RequestSentence(f"hosts: {before}{said['selector']}"))
    if said.get("policy") is not None:
        after = decoders.convert(said["policy"], ChannelPolicy)
        before_policy = ChannelPolicy() if channel is None else channel.policy
        compared = changes(before_policy, after)
        found += [
            RequestSentence(f"{item.path}: {to_json(item.before)} → {to_json(item.after)}")
            for item in compared[:CHANGES_MAX]
        ]
        if len(compared) > CHANGES_MAX:
            found.append(RequestSentence(f"and {len(compared) - CHANGES_MAX} more members"))
    return found or [RequestSentence("Nothing differs from the channel as it is now.")]


def _protection(said: dict[str, Any], channel: Channel | None) -> list[RequestSentence]:
    if said.get("protection") is None:
        return [RequestSentence("One person may do everything on the channel again.", True)]
    after = decoders.convert(said["protection"], ChannelProtection)
    return [RequestSentence(describe_protection(after), True)]


def _rollout(kind: str, said: dict[str, Any]) -> list[RequestSentence]:
    hosts = ", ".join(said.get("host_ids", ()))
    match kind, said.get("mode"):
        case (steps.OVERRIDE_GATE.name, _):
            text = f"The rollout passes the gate {said['gate']} to its end, whatever it says."
        case (steps.SKIP_WAVE.name, _):
            text = f"Hosts of wave {said['wave']} that have no order get none of this rollout."
        case (steps.PROMOTE_ALL.name, _):
            text = "Every host gets its order without waiting for the waves before."
        case (_, "waive"):
            text = f"The rollout continues without {hosts}."
        case _:
            text = f"The quarantine is lifted, and {hosts or 'all failed hosts'} try again."
    return [RequestSentence(text, True)]


def describe_protection(protection: ChannelProtection) -> str:
    """How a channel is protected, in a sentence."""
    count = protection.approvals
    glass = "allowed" if protection.break_glass else "not allowed"
    return (
        f"{count} other {'person approves' if count == 1 else 'people approve'} a request within "
        f"{seconds(protection.request_seconds)}; break-glass is {glass}."
    )


def to_json(value: Any) -> str:
    """A member of a policy as people write it."""
    return "none" if value is None else msgspec.json.encode(value).decode()
