"""The parts of every screen: chips, bars, verbs with their dialogs, and the frame.

All of them are frozen data. The templates render them and decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlencode

from msgspec import Struct, structs


class Chip(Struct, frozen=True):
    """A state: a glyph, a tone and a word, never color alone."""

    icon: str
    tone: str
    word: str
    title: str = ""


class BarPart(Struct, frozen=True):
    """A part of a bar, in percent of its length."""

    tone: str
    word: str
    count: int
    x: float
    width: float


class Bar(Struct, frozen=True):
    """A bar of parts; cuts are the borders between waves."""

    parts: tuple[BarPart, ...] = ()
    cuts: tuple[float, ...] = ()


class Option(Struct, frozen=True):
    value: str
    label: str
    hint: str = ""


class Field(Struct, frozen=True, kw_only=True):
    """One field of a form."""

    name: str
    label: str = ""
    kind: str = "text"  # text, long, code, choice, many, select, hidden, password, number, …
    value: str = ""
    values: tuple[str, ...] = ()  # the options that are selected, if the kind is many
    hint: str = ""
    placeholder: str = ""
    required: bool = False
    completes: str = ""
    options: tuple[Option, ...] = ()
    fault: str = ""  # why the value was refused


class VerbButton(Struct, frozen=True, kw_only=True):
    """An action. ``why`` is why it cannot be used now; empty: it can."""

    id: str
    label: str
    icon: str
    action: str
    title: str
    text: str = ""
    fields: tuple[Field, ...] = ()
    version: int | None = None  # of what is shown; the form sends it
    why: str = ""
    danger: bool = False
    first: bool = False
    asks: str = ""  # says that this makes a request, which another person must approve


class LinkButton(Struct, frozen=True, kw_only=True):
    """A link to a form. ``why`` is why it cannot be opened; empty: it can."""

    id: str
    label: str
    icon: str
    href: str
    why: str = ""
    first: bool = False


class VerbBar(Struct, frozen=True):
    """The verbs of a page: those that make sense now as buttons, the others in *More*."""

    now: tuple[VerbButton, ...] = ()
    more: tuple[VerbButton, ...] = ()


def arrange(verbs: Sequence[VerbButton], sensible: Sequence[str]) -> VerbBar:
    """Put the sensible verbs first, in their order, then others that can be used."""
    by_id = {verb.id: verb for verb in verbs}
    now = [by_id[name] for name in sensible if name in by_id and not by_id[name].why]
    rest = [verb for verb in verbs if verb not in now]
    return VerbBar(tuple(now), tuple(sorted(rest, key=lambda verb: bool(verb.why))))


class TimelineEntry(Struct, frozen=True):
    """An event in words; a simulated one has no time."""

    icon: str
    tone: str
    title: str
    sub: str
    at: datetime | None
    position: int


class Link(Struct, frozen=True):
    """A link; without an address, only a text."""

    label: str
    href: str = ""


class Heading(Struct, frozen=True, kw_only=True):
    """The heading of a column. With an address, it sorts by the column."""

    label: str
    href: str = ""
    sorted: str = ""  # ascending, descending or none, as in `aria-sort`
    classes: str = ""


class NavItem(Struct, frozen=True):
    """A screen in the navigation. A phone shows some at the bottom, and the others in *More*."""

    label: str
    href: str
    icon: str
    key: str
    in_bar: bool = False
    here: bool = False


class FormError(Struct, frozen=True):
    """Why a request failed."""

    title: str
    detail: str
    code: str
    notes: tuple[str, ...] = ()


class Frame(Struct, frozen=True, kw_only=True):
    """The frame around a screen."""

    title: str
    url: str
    now: datetime
    head: int
    address: str = ""  # of a page that answers a form; a reload shows it without the answer
    nav: tuple[tuple[str, tuple[NavItem, ...]], ...] = ()
    crumbs: tuple[Link, ...] = ()
    user: str = ""
    user_id: str = ""
    roles: str = ""
    csrf: str = ""
    form_key: str = ""  # of this rendering, so that a form that is sent twice takes effect once
    stream: str = ""  # the address of the page's stream; empty: the page does not change
    redraws: bool = True  # whether the page reloads itself when something changed
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
    """The address of a page with the non-empty members of a query."""
    given = {name: value for name, value in pairs.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def navigation(here: str) -> tuple[tuple[str, tuple[NavItem, ...]], ...]:
    """The navigation, with the current screen marked."""
    return tuple(
        (group, tuple(structs.replace(item, here=item.href == here) for item in items))
        for group, items in NAV
    )


def bar(*waves: Sequence[tuple[str, str, int]], of: Sequence[int]) -> Bar:
    """Draw waves side by side, each as long as its number of hosts; the rest of a wave is blank.

    A wave is a sequence of (tone, word, count); ``of`` has the number of hosts of each.
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
