"""What the screens of forms, of signing in and of errors show."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.control.queries.request_changes import RequestChange
from tidegate.dashboard import components
from tidegate.dashboard.view_models import plan_screens


class OpeningLine(Struct, frozen=True, kw_only=True):
    """An occurrence of a window, drawn on an axis that begins now, in percent of its length."""

    starts: str  # as people in its zone say it
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
    asks: str = ""  # that it makes a request
    version: int | None = None
    found: str = ""  # what a check said, in a few words
    findings: tuple[plan_screens.PlanFinding, ...] = ()
    changes: tuple[RequestChange, ...] = ()
    openings: tuple[OpeningLine, ...] = ()
    members: tuple[components.Option, ...] = ()  # what can be written: name, default, meaning


class SignInPage(Struct, frozen=True, kw_only=True):
    """Sign in, or the set-up of a first start."""

    action: str
    fields: tuple[components.Field, ...]
    label: str
    next: str = ""
    fault: components.FormError | None = None
    note: str = ""


class ErrorPage(Struct, frozen=True, kw_only=True):
    """A page that is not there or must not be seen, or what was looked for."""

    title: str
    text: str
    icon: str
    command: str = ""
    code: str = ""
    request: str = ""  # its id, where only our log knows what happened
    links: tuple[components.Option, ...] = ()
