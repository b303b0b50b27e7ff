"""What the screens of forms, sign-in and errors show."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.control.queries.request_changes import RequestChange
from tidegate.dashboard import components
from tidegate.dashboard.view_models import plan_screens


class OpeningLine(Struct, frozen=True, kw_only=True):
    """An occurrence of a window, drawn on an axis that begins now, in percent of its length."""

    starts: str  # as people in its zone write it
    ends: str
    at: datetime
    lasts: str
    tone: str
    x: float
    width: float


class FormPage(Struct, frozen=True, kw_only=True):
    """A form on a page of its own."""

    title: str
    action: str
    fields: tuple[components.Field, ...]
    # What the form can do. The hint of each is an icon, and the first one is the main one.
    submits: tuple[components.Option, ...]
    back: str
    text: str = ""
    asks: str = ""  # a note that it makes a request
    version: int | None = None
    found: str = ""  # the result of a check, in a few words
    findings: tuple[plan_screens.PlanFinding, ...] = ()
    changes: tuple[RequestChange, ...] = ()
    openings: tuple[OpeningLine, ...] = ()
    # The members that can be written: name, default, meaning.
    members: tuple[components.Option, ...] = ()


class SignInPage(Struct, frozen=True, kw_only=True):
    """The sign-in form, or the set-up form of a first start."""

    action: str
    fields: tuple[components.Field, ...]
    label: str
    next: str = ""
    fault: components.FormError | None = None
    note: str = ""


class ErrorPage(Struct, frozen=True, kw_only=True):
    """An error page, or a list of search results."""

    title: str
    text: str
    icon: str
    command: str = ""
    code: str = ""
    request: str = ""  # the request id, if only our log has the cause
    links: tuple[components.Option, ...] = ()
