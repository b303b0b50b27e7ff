"""What every screen is put together from: chips, bars, verbs with their dialogs, the frame around.

All of it is frozen data; the templates turn it into HTML and decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct


class Chip(Struct, frozen=True):
    """A state: a glyph, a tone and a word, never colour alone."""

    icon: str
    tone: str
    word: str
    title: str = ""


class BarPart(Struct, frozen=True):
    """A stretch of a bar, in percent of its length."""

    tone: str
    word: str
    count: int
    x: float
    width: float


class Bar(Struct, frozen=True):
    """A bar of parts; cuts are where one wave ends and the next begins."""

    parts: tuple[BarPart, ...] = ()
    cuts: tuple[float, ...] = ()


class Option(Struct, frozen=True):
    value: str
    label: str
    hint: str = ""


class Field(Struct, frozen=True, kw_only=True):
    """One thing that a form asks for."""

    name: str
    label: str = ""
    kind: str = "text"  # text, long, choice, select, hidden, password, number
    value: str = ""
    hint: str = ""
    placeholder: str = ""
    required: bool = False
    completes: str = ""
    options: tuple[Option, ...] = ()


class VerbButton(Struct, frozen=True, kw_only=True):
    """Something that can be done here. ``why`` is why it cannot be done now; empty: it can."""

    id: str
    label: str
    icon: str
    action: str
    title: str
    text: str = ""
    fields: tuple[Field, ...] = ()
    version: int | None = None  # of what is shown: the form says that it was seen
    why: str = ""
    danger: bool = False
    first: bool = False


class TimelineEntry(Struct, frozen=True):
    """An event in words; what was only played has no time."""

    icon: str
    tone: str
    title: str
    sub: str
    at: datetime | None
    position: int


class Link(Struct, frozen=True):
    """Where one is or can go."""

    label: str
    href: str = ""


class NavItem(Struct, frozen=True):
    label: str
    href: str
    icon: str
    key: str
    here: bool = False


class FormError(Struct, frozen=True):
    """Why what was asked for did not happen."""

    title: str
    detail: str
    code: str
    notes: tuple[str, ...] = ()


class Frame(Struct, frozen=True, kw_only=True):
    """What surrounds a screen."""

    title: str
    url: str
    now: datetime
    head: int
    nav: tuple[tuple[str, tuple[NavItem, ...]], ...] = ()
    crumbs: tuple[Link, ...] = ()
    user: str = ""
    user_id: str = ""
    roles: str = ""
    csrf: str = ""
    form_key: str = ""  # of this rendering: a form that is sent twice is done once
    stream: str = ""  # where the page listens for changes; empty: it stays as it is
    verbs: tuple[VerbButton, ...] = ()
    problem: FormError | None = None
    done: str = ""


NAV = (
    (
        "Watch",
        (
            NavItem("Overview", "/", "overview", "o"),
            NavItem("Rollouts", "/rollouts", "rollouts", "r"),
            NavItem("Hosts", "/hosts", "hosts", "h"),
            NavItem("Events", "/events", "events", "e"),
        ),
    ),
    (
        "Decide",
        (
            NavItem("Releases", "/releases", "releases", "a"),
            NavItem("Channels", "/channels", "channels", "c"),
            NavItem("Plan", "/plan", "plan", "p"),
        ),
    ),
    (
        "System",
        (
            NavItem("Outbox", "/outbox", "outbox", "x"),
            NavItem("Settings", "/settings", "settings", "s"),
        ),
    ),
)


def navigation(here: str) -> tuple[tuple[str, tuple[NavItem, ...]], ...]:
    """The rail, with the screen marked that one is on."""
    return tuple(
        (
            group,
            tuple(
                NavItem(item.label, item.href, item.icon, item.key, item.href == here)
                for item in items
            ),
        )
        for group, items in NAV
    )


def bar(*waves: Sequence[tuple[str, str, int]], of: Sequence[int]) -> Bar:
    """Waves side by side, each as long as it has hosts; what is left of a wave stays blank.

    A wave is a sequence of (tone, word, count); ``of`` says how many hosts each has.
    """
    whole = sum(of) or 1
    parts: list[BarPart] = []
    cuts: list[float] = []
    start = 0
    for wave, hosts in zip(waves, of, strict=True):
        if start:
            cuts.append(round(start * 100 / whole, 3))
        reached = start
        for tone, word, count in wave:
            if count:
                parts.append(
                    BarPart(
                        tone,
                        word,
                        count,
                        round(reached * 100 / whole, 3),
                        round(count * 100 / whole, 3),
                    )
                )
                reached += count
        start += hosts
    return Bar(tuple(parts), tuple(cuts))
