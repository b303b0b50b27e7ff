"""The door: signing in and out, and the set-up of a first start with the code that was printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from tidegate.api import problems
from tidegate.api.auth import check_origin, set_cookie
from tidegate.api.dashboard.pages import (
    UTF8,
    PageQuery,
    does,
    fault_of,
    see_other,
    shows,
    sign_in_fields,
)
from tidegate.api.dashboard.parts import Field, Frame, Option
from tidegate.api.dashboard.rendering import render
from tidegate.api.dashboard.views import Door
from tidegate.api.routing import PUBLIC, SIGN_IN_BYTES_MAX, SIGNED_IN, Answer, Request
from tidegate.control.installation import Installation
from tidegate.control.operations.accounts import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN, PersonNames
from tidegate.domain.access.rows import InstallationRow, installation_key
from tidegate.errors import TidegateError
from tidegate.wire import Input, Nothing

START: Final = "/"

Line = Annotated[str, Meta(max_length=128)]
Password = Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)]


class Credentials(Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    password: Password
    next: Annotated[str, Meta(max_length=1_024)] = START


class Setup(Input, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=64)]
    login: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    password: Password
    alone: bool = False


Plain = Request[Nothing, PageQuery, Nothing]


def sign_in_page(request: Plain, installation: Installation) -> Answer:
    """Who are you?"""
    if installation.find(installation_key(), InstallationRow) is None:
        return see_other("/setup")
    return _door(request, installation, "Sign in", _sign_in(START))


def sign_in(request: Request[Nothing, Nothing, Credentials], installation: Installation) -> Answer:
    """Open a session."""
    body = request.body
    onwards = body.next if _is_ours(body.next) else START
    try:
        check_origin(request.arrived, installation.settings)
        request.server.sign_ins.take(f"address {request.arrived.address}")
        request.server.sign_ins.take(f"login {body.login.casefold()}")
        welcome = request.server.accounts.sign_in(body.login, body.password)
    except TidegateError as error:
        return _door(request, installation, "Sign in", _sign_in(onwards, body.login, error), error)
    return see_other(onwards, set_cookie(welcome.cookie, installation.settings))


def _is_ours(address: str) -> bool:
    """Whether it leads to a page of this server: no scheme, no host, no way around that."""
    return (
        address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    )


def sign_out(request: Request[Nothing, Nothing, Nothing], installation: Installation) -> Answer:
    """Close this session."""
    if request.principal.session:
        request.server.accounts.sign_out(request.principal.session)
    return see_other("/signin", set_cookie("", installation.settings))


def set_up_page(request: Plain, installation: Installation) -> Answer:
    """The first start."""
    if installation.find(installation_key(), InstallationRow) is not None:
        return see_other("/signin")
    return _door(request, installation, "First start", _set_up())


def set_up(request: Request[Nothing, Nothing, Setup], installation: Installation) -> Answer:
    """Make the first user, and sign them in."""
    body = request.body
    try:
        check_origin(request.arrived, installation.settings)
        request.server.sign_ins.take(f"setup {request.arrived.address}")
        accounts = request.server.accounts
        called = PersonNames(body.login, body.name)
        accounts.set_up(body.code.strip(), called, body.password, alone=body.alone)
        installation.nudge()
        welcome = accounts.sign_in(body.login, body.password)
    except TidegateError as error:
        return _door(request, installation, "First start", _set_up(body, error), error)
    return see_other(START, set_cookie(welcome.cookie, installation.settings))


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────


def _sign_in(onwards: str, login: str = "", error: TidegateError | None = None) -> Door:
    name, password = sign_in_fields()
    fields = (
        Field(name="login", label=name.label, value=login, required=True, completes="username"),
        password,
        Field(name="next", kind="hidden", value=onwards),
    )
    fault = None if error is None else fault_of(error)
    return Door(action="/signin", fields=fields, label="Sign in", fault=fault)


def _set_up(body: Setup | None = None, error: TidegateError | None = None) -> Door:
    known = body or Setup(code="", login="x", name="x", password="")
    fields = (
        Field(name="code", label="One-time code", required=True, value=known.code),
        Field(
            name="login",
            label="Sign-in name",
            required=True,
            value=known.login if body else "",
            completes="username",
        ),
        Field(
            name="name",
            label="Your name",
            required=True,
            value=known.name if body else "",
            completes="name",
            hint="It is kept apart from the log, and can be erased.",
        ),
        Field(
            name="password",
            label="Password",
            kind="password",
            required=True,
            completes="new-password",
            hint=f"At least {PASSWORD_CHARS_MIN} characters.",
        ),
        Field(
            name="alone",
            label="Approval",
            kind="choice",
            value="true" if known.alone else "false",
            options=(
                Option("false", "A team", "Another person approves what somebody proposes."),
                Option("true", "I work alone", "Publications say that they are self-approved."),
            ),
        ),
    )
    return Door(
        action="/setup",
        fields=fields,
        label="Set up Tidegate",
        fault=None if error is None else fault_of(error),
        note="The server printed a one-time code where it was started.",
    )


def _door(
    request: Request[Any, Any, Any],
    installation: Installation,
    title: str,
    view: Struct,
    error: TidegateError | None = None,
) -> Answer:
    csrf = request.principal.csrf  # of somebody who is signed in, and signs in once more
    frame = Frame(title=title, url="", now=installation.clock(), head=0, csrf=csrf)
    status = 200 if error is None else problems.status_of(type(error))
    return Answer(render("door.html", frame, view), status=status, media=UTF8)


ROUTES = (
    shows("/signin", sign_in_page, PUBLIC),
    replace(does("/signin", sign_in, PUBLIC), body_bytes_max=SIGN_IN_BYTES_MAX),
    shows("/setup", set_up_page, PUBLIC),
    replace(does("/setup", set_up, PUBLIC), body_bytes_max=SIGN_IN_BYTES_MAX),
    does("/signout", sign_out, SIGNED_IN),
)
