"""What every screen is put together from: chips, bars, verbs with their dialogs, the frame around.

All of it is frozen data; the templates turn it into HTML and decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlencode

from msgspec import Struct, structs


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
    kind: str = "text"  # text, long, code, choice, many, select, hidden, password, number, …
    value: str = ""
    values: tuple[str, ...] = ()  # of many: those that are chosen
    hint: str = ""
    placeholder: str = ""
    required: bool = False
    completes: str = ""
    options: tuple[Option, ...] = ()
    fault: str = ""  # why what was given for it was refused


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
    asks: str = ""  # that it makes a request, which another person must approve


class LinkButton(Struct, frozen=True, kw_only=True):
    """A form on another page. ``why`` is why one cannot go there; empty: one can."""

    id: str
    label: str
    icon: str
    href: str
    why: str = ""
    first: bool = False


class VerbBar(Struct, frozen=True):
    """The verbs of a page: those that make sense now as buttons, the others behind *More*."""

    now: tuple[VerbButton, ...] = ()
    more: tuple[VerbButton, ...] = ()


def arrange(verbs: Sequence[VerbButton], sensible: Sequence[str]) -> VerbBar:
    """Put the sensible verbs first, in their order; of the others, those that can be used first."""
    by_id = {verb.id: verb for verb in verbs}
    now = [by_id[name] for name in sensible if name in by_id and not by_id[name].why]
    rest = [verb for verb in verbs if verb not in now]
    return VerbBar(tuple(now), tuple(sorted(rest, key=lambda verb: bool(verb.why))))


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


class Heading(Struct, frozen=True, kw_only=True):
    """The heading of a column. One with an address sorts by it."""

    label: str
    href: str = ""
    sorted: str = ""  # ascending, descending or none, as `aria-sort` has it
    classes: str = ""


class NavItem(Struct, frozen=True):
    """A screen in the rail. On a phone the bar at the bottom has some, *More* has the others."""

    label: str
    href: str
    icon: str
    key: str
    in_bar: bool = False
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
    redraws: bool = True  # it asks for itself again when something changed
    verbs: tuple[VerbButton, ...] = ()
    problem: FormError | None = None
    done: str = ""


NAV = (
    (
        "Watch",
        (
            NavItem("Overview", "/", "overview", "o", in_bar=True),
            NavItem("Rollouts", "/rollouts", "rollouts", "r", in_bar=True),
            NavItem("Hosts", "/hosts", "hosts", "h"),
            NavItem("Events", "/events", "events", "e"),
        ),
    ),
    (
        "Decide",
        (
            NavItem("Releases", "/releases", "releases", "a"),
            NavItem("Approvals", "/approvals", "shield", "v", in_bar=True),
            NavItem("Channels", "/channels", "channels", "c", in_bar=True),
            NavItem("Plan", "/plan", "plan", "p"),
            NavItem("Maintenance", "/maintenance", "snow", "m"),
        ),
    ),
    (
        "System",
        (
            NavItem("Outbox", "/outbox", "outbox", "x"),
            NavItem("Notifications", "/notifications", "bell", "n"),
            NavItem("Settings", "/settings", "settings", "s"),
        ),
    ),
)


def address(path: str, **pairs: str) -> str:
    """A link to a page with those members of the query that say something."""
    said = {name: value for name, value in pairs.items() if value}
    return f"{path}?{urlencode(said)}" if said else path


def navigation(here: str) -> tuple[tuple[str, tuple[NavItem, ...]], ...]:
    """The rail, with the screen marked that one is on."""
    return tuple(
        (group, tuple(structs.replace(item, here=item.href == here) for item in items))
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
