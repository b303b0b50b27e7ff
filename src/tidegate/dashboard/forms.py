"""Forms on a page of their own: a refused form keeps its input and shows the error at the field.

The fields of such forms are texts, so that a value that cannot be parsed is refused on that page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta, structs

from tidegate.dashboard import components, layout as dashboard_layout
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access.second_person import SecondPersonNeeded
from tidegate.errors import TidegateError
from tidegate.kernel.model import Position
from tidegate.web import problems, routing, shapes

TYPED_CHARS_MAX = 2_000
NUMBER_CHARS_MAX = 12

Typed = Annotated[str, Meta(max_length=TYPED_CHARS_MAX)]
Ticked = Annotated[tuple[Typed, ...], Meta(max_length=100)]

_MEMBER = re.compile(r"[a-z_]+")


# ── filling a form ────────────────────────────────────────────────────────────────────────────────


def fill(
    fields: Iterable[components.Field], typed: Mapping[str, Any]
) -> tuple[components.Field, ...]:
    """Fill the fields with what was typed. A password must be typed again."""
    return tuple(_fill(item, typed) for item in fields)


def _fill(item: components.Field, typed: Mapping[str, Any]) -> components.Field:
    found = typed.get(item.name)
    if found is None or item.kind == "password":
        return item
    if item.kind == "many":
        # A selected value that is not an option here stays selected, so that saving the form
        # removes nothing that the user cannot see.
        known = {option.value for option in item.options}
        more = tuple(components.Option(value, value) for value in found if value not in known)
        return structs.replace(item, values=tuple(found), options=(*item.options, *more))
    return structs.replace(item, value=str(found))


def fill_typed(
    form: form_screens.FormPage, request: routing.Request[Any, Any, Any]
) -> form_screens.FormPage:
    """Fill the form with what was typed, and with the version that the page showed."""
    fields = fill(form.fields, structs.asdict(request.body))
    return structs.replace(form, fields=fields, version=request.version)


def mark(
    form: form_screens.FormPage, error: TidegateError, places: Mapping[str, str]
) -> form_screens.FormPage:
    """Put the error next to the field that it is about.

    ``places`` maps an error code, or the name of a member elsewhere, to the field.
    """
    known = {item.name for item in form.fields}
    found: dict[str, str] = {}
    for name, sentence in _sentences(error):
        place = places.get(name, name)
        place = place if place in known else places.get(error.code, "")
        if place in known:
            found[place] = f"{found[place]} {sentence}" if place in found else sentence
    fields = (structs.replace(item, fault=found.get(item.name, "")) for item in form.fields)
    return structs.replace(form, fields=tuple(fields))


def _sentences(error: TidegateError) -> Iterable[tuple[str, str]]:
    """The sentences of an error, each with the member or the error code that it is about."""
    if isinstance(error, problems.InvalidRequest):
        for fault in error.faults:
            yield fault.field.removeprefix("body.").partition("[")[0], _sentence(fault.detail)
        return
    faults = error.facts.get("faults")
    if isinstance(faults, tuple):
        for text in faults:
            member = _MEMBER.match(text)
            yield (member[0] if member else error.code), _sentence(text)
        return
    named = error.facts.get("field")
    yield (str(named) if named else error.code), _sentence(error.detail)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "…")) else f"{text}."


def form_page(
    form: form_screens.FormPage, here: str, *crumbs: components.Link
) -> dashboard_layout.PageView:
    """The page of a form, below the pages that ``crumbs`` link to."""
    return dashboard_layout.PageView(
        template="form.html",
        title=form.title,
        here=here,
        view=form,
        crumbs=(*crumbs, components.Link(form.title)),
        still=True,
    )


def send(
    request: routing.Request[Any, Any, Any],
    layout: dashboard_layout.Layout,
    do: Callable[[], Position],
    *,
    back: str,
    done: str,
    page: Callable[[TidegateError], dashboard_layout.PageView],
) -> routing.Response:
    """Run the command of a form and redirect to ``back``; after an error, show the form with it."""
    try:
        position = do()
    except TidegateError as error:
        return layout.answer(request, page(error), problem=error)
    except SecondPersonNeeded as waits:
        return dashboard_layout.lead_to_request(waits)
    return dashboard_layout.see_other(
        f"{back}?done={done.replace(' ', '+')}&min_position={position}"
    )


# ── reading texts ─────────────────────────────────────────────────────────────────────────────────


class FormReader:
    """Reads the texts of a form and collects the errors, so that all are shown at once."""

    def __init__(self) -> None:
        self._faults: list[shapes.FieldError] = []

    def refuse(self, name: str, detail: str) -> None:
        self._faults.append(shapes.FieldError(name, detail))

    def check(self) -> None:
        """Raise the collected errors. Raises: InvalidRequest: a field could not be read."""
        if self._faults:
            raise problems.InvalidRequest(self._faults)

    def text(self, name: str, found: str, *, most: int = TYPED_CHARS_MAX) -> str:
        """Read a required text."""
        found = found.strip()
        if not found:
            self.refuse(name, "is missing")
        elif len(found) > most:
            self.refuse(name, f"has {len(found)} characters; allowed are {most}")
        return found

    def number(self, name: str, found: str, least: int, most: int) -> int:
        """Read a whole number within bounds."""
        found = found.strip()
        value = int(found) if _is_whole(found) else None
        if value is None or not least <= value <= most:
            what = f"is {found[:80]!r}" if found else "is missing"
            self.refuse(name, f"{what}; allowed is {least:,} to {most:,}")
            return least
        return value

    def optional_number(self, name: str, found: str, least: int, most: int) -> int | None:
        """Read a whole number within bounds; None: the field is empty."""
        return self.number(name, found, least, most) if found.strip() else None

    def minutes(self, name: str, found: str, least: int, most: int) -> int:
        """Read minutes, also decimal ones, as seconds; the bounds are in seconds, too."""
        try:
            count = Decimal(found.strip()) * 60 if len(found) <= NUMBER_CHARS_MAX else Decimal(-1)
        except ArithmeticError:  # not a number, or far out of bounds
            count = Decimal(-1)
        if not (count.is_finite() and least <= count <= most and count == int(count)):
            bounds = f"{to_minutes(least)} to {to_minutes(most)} minutes"
            self.refuse(name, f"is {found.strip()[:80]!r}; allowed is {bounds}")
            return least
        return int(count)

    def moment(self, name: str, found: str) -> datetime:
        """Read a time; without an offset it is in UTC."""
        try:
            moment = datetime.fromisoformat(found.strip())
        except ValueError:
            self.refuse(name, f"is {found.strip()[:80]!r}; write a time such as 2026-12-24T18:00")
            return datetime.max.replace(tzinfo=UTC)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment

    def names(self, found: str) -> tuple[str, ...]:
        """Read names separated by commas or blanks."""
        return tuple(part for part in re.split(r"[\s,]+", found) if part)


def read_moment(name: str, found: str) -> datetime | None:
    """Read a time; without an offset it is in UTC. Empty: None.

    Raises:
        InvalidRequest: this is not a time.
    """
    reader = FormReader()
    moment = reader.moment(name, found) if found.strip() else None
    reader.check()
    return moment


def _is_whole(text: str) -> bool:
    return len(text) <= NUMBER_CHARS_MAX and text.isascii() and text.isdigit()


def to_minutes(seconds: int) -> str:
    """Format seconds as minutes, as ``minutes`` reads them."""
    return f"{seconds / 60:.10g}"
