"""Verbs on a protected channel: their forms say that they make a request, or allow break-glass."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidegate.dashboard.components import Field, VerbButton
from tidegate.dashboard.html import seconds
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.channels import facts, rows
from tidegate.web.decoding import BREAK_GLASS_FIELD


def ask_second_person(
    button: VerbButton, caller: callers.Caller, channel: rows.Channel, *, whole: bool = True
) -> VerbButton:
    """Adapt a verb to a protected channel. ``whole``: any input of the form needs a request."""
    if channel.protection is None:
        return button
    return replace(
        button,
        asks=describe_asking(channel) if whole else describe_asking(channel, " This may make"),
        fields=(*button.fields, *break_glass_fields(caller, channel)),
    )


def ask_if_protected(
    button: VerbButton,
    caller: callers.Caller,
    protected: Sequence[rows.Channel],
    *,
    whole: bool = True,
) -> VerbButton:
    """Adapt a verb to several channels. ``protected`` has the protected ones, strictest first."""
    return ask_second_person(button, caller, protected[0], whole=whole) if protected else button


def warn_of_end(button: VerbButton, channel: rows.Channel, what: str) -> VerbButton:
    """Warn that a stop takes one person, but ending it may take two."""
    if channel.protection is None:
        return button
    return replace(button, asks=f"{channel.channel} is protected. {describe_end(what)}")


def describe_end(what: str) -> str:
    """Who may end a stop of a protected channel."""
    return (
        f"You can end your own {what} alone. For other people that makes a request, which another "
        "person must approve."
    )


def describe_asking(channel: rows.Channel, lead: str = " This makes") -> str:
    """Say that a form makes a request, and who approves. Empty: the channel is not protected."""
    if channel.protection is None:
        return ""
    count = channel.protection.approvals
    people = "another person" if count == 1 else f"{count} other people"
    return f"{channel.channel} is protected.{lead} a request, which {people} must approve."


def break_glass_fields(caller: callers.Caller, channel: rows.Channel) -> tuple[Field, ...]:
    """The fields of break-glass, for people who may use it."""
    protection = channel.protection
    if protection is None or not protection.break_glass:
        return ()
    if not caller.may(steps.BREAK_GLASS, scopes.channel_scope(channel.channel)):
        return ()
    return (
        Field(
            name=BREAK_GLASS_FIELD,
            label="Emergency: do it at once, because",
            placeholder="Empty: make a request",
            hint="It is carried out without an approval, announced as an emergency, and reviewed "
            "by another person.",
        ),
    )


def describe_protection(protection: facts.ChannelProtection) -> str:
    """How a channel is protected, in a sentence."""
    count = protection.approvals
    glass = "allowed" if protection.break_glass else "not allowed"
    return (
        f"{count} other {'person approves' if count == 1 else 'people approve'} a request within "
        f"{seconds(protection.request_seconds)}; break-glass is {glass}."
    )
