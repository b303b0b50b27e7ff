"""The buttons of a channel: which can be used now, why the others cannot, what can be promoted."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from tidegate.control.queries.ladder import Ladder
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import components, layout, protected_verbs
from tidegate.dashboard.view_models import channel_screens
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.channels import facts, rows as channel_rows, slices
from tidegate.domain.packages import rows as package_rows, states
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.releases import from_packages, rows as release_rows
from tidegate.domain.rollouts.states import OPEN
from tidegate.errors import Refused
from tidegate.web.routing import Request

RELEASES_MAX = 200

Asked = Request[Any, Any, Any]


def verbs_of(
    request: Asked,
    reads: Reads,
    row: channel_rows.Channel,
    pin: Found[release_rows.Actual] | None,
    kept: tuple[channel_screens.Quarantine, ...],
    ladder: Ladder,
) -> tuple[components.VerbButton, ...]:
    """Every verb of the channel, each with a reason if it cannot be used now."""
    name = row.channel
    caller = request.caller
    ask = partial(protected_verbs.ask_second_person, caller=caller, channel=row)
    return (
        roll_back(ladder, pin, _why_not(caller, steps.ROLL_BACK, name)),
        ask(_roll_back_now(ladder, pin, _why_not(caller, steps.ROLL_BACK_NOW, name))),
        ask(_promote(reads, row, pin, _why_not(caller, steps.PROMOTE, name))),
        ask(_refresh(row, pin, _why_not(caller, steps.PROMOTE, name))),
        protected_verbs.warn_of_end(
            _hold(row, _why_not(caller, steps.HOLD_CHANNEL, name)), row, "hold"
        ),
        ask(_unhold(row, _why_not(caller, steps.UNHOLD_CHANNEL, name)), whole=False),
        ask(_lift(name, kept, _why_not(caller, steps.LIFT_QUARANTINE, name))),
        _protect(row, _why_not(caller, steps.PROTECT_CHANNEL, name)),
        ask(_unprotect(row, _why_not(caller, steps.PROTECT_CHANNEL, name))),
        ask(_delete(row, _why_not(caller, steps.DELETE_CHANNEL, name))),
    )


def _hold(row: channel_rows.Channel, why: str) -> components.VerbButton:
    return components.VerbButton(
        id="hold",
        label="Hold",
        icon="lock",
        action=f"/channels/{row.channel}/hold",
        title=f"Hold {row.channel}?",
        text="Nothing can be promoted to it and no order is sent until the hold is released.",
        fields=(layout.REASON,),
        why=why or ("" if row.held_at is None else "It is held already."),
    )


def _delete(row: channel_rows.Channel, why: str) -> components.VerbButton:
    return components.VerbButton(
        id="delete",
        label="Delete",
        icon="trash",
        action=f"/channels/{row.channel}/delete",
        title=f"Delete the channel {row.channel}?",
        text="Its hosts keep what they run and get no more orders from it. The log keeps its "
        "history. A channel that others wait for, or with an open rollout, is not deleted.",
        fields=(layout.REASON,),
        why=why or ("A rollout of it is open." if row.newest_state in OPEN else ""),
        danger=True,
    )


def _unhold(row: channel_rows.Channel, why: str) -> components.VerbButton:
    return components.VerbButton(
        id="unhold",
        label="Release hold",
        icon="play",
        action=f"/channels/{row.channel}/unhold",
        title=f"Release the hold on {row.channel}?",
        fields=(layout.REASON,),
        why=why or ("It is not held." if row.held_at is None else ""),
    )


def _lift(
    name: str, kept: tuple[channel_screens.Quarantine, ...], why: str
) -> components.VerbButton:
    return components.VerbButton(
        id="lift",
        label="Lift quarantine",
        icon="ban",
        action=f"/channels/{name}/lift",
        title="Lift a quarantine?",
        text="The release may be dispatched on this channel again.",
        fields=(
            components.Field(
                name="closure_hash",
                label="Release content",
                kind="select",
                options=tuple(
                    components.Option(item.closure_hash, f"{item.release} · {item.reason}")
                    for item in kept
                ),
            ),
            layout.REASON,
        ),
        why=why or ("" if kept else "Nothing is quarantined on it."),
    )


def _protect(row: channel_rows.Channel, why: str) -> components.VerbButton:
    now = row.protection or facts.ChannelProtection()
    return components.VerbButton(
        id="protect",
        label="Protect" if row.protection is None else "Change protection",
        icon="shield",
        action=f"/channels/{row.channel}/protect",
        title=f"Ask for a second person on {row.channel}?",
        text="What moves the channel forward, loosens it or bypasses something becomes a request. "
        "Stopping and going back still take one person."
        + (" To ask for less than now is a request itself." if row.protection else ""),
        fields=(
            components.Field(
                name="approvals",
                label="Other people who must approve",
                kind="number",
                value=str(now.approvals),
                required=True,
                hint=f"1 to {slices.APPROVALS_MAX}.",
            ),
            components.Field(
                name="hours",
                label="Hours until a request expires",
                kind="number",
                value=str(max(1, now.request_seconds // 3_600)),
                required=True,
            ),
            components.Field(
                name="emergency",
                label="Break-glass",
                kind="choice",
                value="true" if now.break_glass else "false",
                options=(
                    components.Option(
                        "true", "Allow break-glass", "On-call acts alone, reviewed later."
                    ),
                    components.Option("false", "No break-glass", "Nobody acts alone."),
                ),
            ),
            layout.REASON,
        ),
        why=why,
    )


def _unprotect(row: channel_rows.Channel, why: str) -> components.VerbButton:
    return components.VerbButton(
        id="unprotect",
        label="Unprotect",
        icon="shield",
        action=f"/channels/{row.channel}/unprotect",
        title=f"Let one person do everything on {row.channel} again?",
        fields=(layout.REASON,),
        why=why or ("" if row.protection else "It is not protected."),
        danger=True,
    )


def sensible_verbs(row: channel_rows.Channel) -> tuple[str, ...]:
    """The ids of the verbs that make sense on the channel now, the likeliest first."""
    return ("unhold", "rollback") if row.held_at is not None else ("rollback", "promote")


def _why_not(caller: callers.Caller, step: steps.Step, name: str) -> str:
    """Why the caller may not take the step on the channel; empty: they may."""
    return caller.why_not(step, scopes.channel_scope(name))


def _promote(
    reads: Reads, row: channel_rows.Channel, pin: Found[release_rows.Actual] | None, why: str
) -> components.VerbButton:
    offered = list_publishable(reads, row.package)
    why = why or ("" if row.held_at is None else "The channel is held.")
    why = why or ("" if offered else f"No revision of {row.package} is published yet.")
    fields: tuple[components.Field, ...] = (
        components.Field(name="release", label="Release", kind="select", options=offered),
        components.Field(
            name="display_name", label="Call it", placeholder="Optional: a name for people"
        ),
        components.Field(
            name="start_at",
            label="Start at, UTC",
            kind="datetime-local",
            hint="Optional. No order is sent before. Empty: at once.",
        ),
        components.Field(
            name="reason", label="Reason", kind="long", placeholder="Optional: why, for the log"
        ),
    )
    return components.VerbButton(
        id="promote",
        label="Promote",
        icon="arrow",
        action=f"/channels/{row.channel}/promote",
        title=f"Promote to {row.channel}",
        text="The channel is pinned to it and its rollout opens, in one commit."
        + (f" It replaces {row.newest_rollout_id}." if row.newest_state in OPEN else ""),
        fields=fields,
        version=None if pin is None else pin.version,
        why=why,
        first=True,
    )


def roll_back(
    ladder: Ladder, pin: Found[release_rows.Actual] | None, why: str, *, now: bool = False
) -> components.VerbButton:
    """The rollback button. It names the release; the form offers the others."""
    name, wanted = ladder.channel, ladder.wanted or ""
    refusal = ""
    rung = None
    try:
        rung = ladder.choose(now=now)
    except Refused as error:
        refusal = error.detail
    others = [
        item.rung
        for item in ladder.rungs
        if item.rung is rung or item.rung.release_id not in (wanted, *ladder.quarantined)
    ]
    options = sorted(others, key=lambda item: item is not rung)
    text = (
        ""
        if rung is None
        else (
            f"{name} goes back from {wanted} to {rung.release_id}, which succeeded there on "
            f"{rung.succeeded_at:%d %b %Y} ({rung.hosts:,} host{'' if rung.hosts == 1 else 's'}). "
            f"A host that fails on {rung.release_id} does not return to {wanted}."
        )
    )
    if rung is not None and rung.release_id == wanted:
        text = f"The rollback of {name} to {wanted}, which is under way, reaches all hosts now."
    return components.VerbButton(
        id="rollback",
        label="Roll back" if rung is None else f"Roll back to {rung.release_id}",
        icon="undo",
        action=f"/channels/{name}/rollback",
        title=f"Roll {name} back?",
        text=text,
        fields=(
            components.Field(
                name="to",
                label="Go back to",
                kind="select",
                options=tuple(
                    components.Option(
                        item.release_id, f"{item.release_id} · {item.succeeded_at:%d %b %Y}"
                    )
                    for item in options
                ),
            ),
            layout.REASON,
        ),
        version=None if pin is None else pin.version,
        why=why or refusal,
        danger=True,
    )


def _roll_back_now(
    ladder: Ladder, pin: Found[release_rows.Actual] | None, why: str
) -> components.VerbButton:
    plain = roll_back(ladder, pin, why, now=True)
    (to, reason) = plain.fields
    return replace(
        plain,
        id="rollback-now",
        label="Roll back now",
        title=f"Roll {ladder.channel} back on all hosts at once?",
        text=f"{plain.text} All hosts go at once, without waves and soaks, in spite of freezes, "
        "holds and windows. Budgets are kept. A host that fails does not stop the others.",
        fields=(to, reason, components.Field(name="now", kind="hidden", value="yes")),
    )


def _refresh(
    row: channel_rows.Channel, pin: Found[release_rows.Actual] | None, why: str
) -> components.VerbButton:
    pinned = "" if pin is None else pin.row.pinned_release_id
    return components.VerbButton(
        id="refresh",
        label="Refresh evidence",
        icon="retry",
        action=f"/channels/{row.channel}/promote",
        title=f"Confirm {pinned or 'the release'} on {row.channel}?",
        text="The channel stays pinned to it, with new evidence. No rollout opens.",
        fields=(
            components.Field(name="release", kind="hidden", value=pinned),
            components.Field(name="refresh", kind="hidden", value="yes"),
            components.Field(name="reason", label="Reason", kind="long", placeholder="Optional"),
        ),
        version=None if pin is None else pin.version,
        why=why or ("" if pinned else "Nothing is pinned yet."),
    )


def list_publishable(reads: Reads, package: str) -> tuple[components.Option, ...]:
    """List the releases of a package that may be pinned, newest first.

    A channel may name a package of the default repository by its path only, as its releases do.
    """
    names = dict.fromkeys((package, f"{DEFAULT_REPOSITORY}/{package}"))
    published = [
        item.row
        for name in names
        for item in reads.range(
            package_rows.REVISIONS, index="by_package", of=(name,), limit=RELEASES_MAX
        )
        if item.row.lifecycle in states.PUBLISHED_STATES and item.row.deletion_timestamp is None
    ]
    return tuple(
        components.Option(release, release)
        for row in sorted(published, key=lambda row: row.number, reverse=True)
        if (release := from_packages.release_id_of(row.package, row.number))
    )
