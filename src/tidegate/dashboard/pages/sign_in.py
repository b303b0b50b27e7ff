"""Sign-in and sign-out, and the set-up of a first start with the printed code."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from tidegate.clock import Clock
from tidegate.config import Settings
from tidegate.control.operations.access import AccessOperations
from tidegate.control.operations.accounts import PersonNames
from tidegate.control.operations.passwords import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, html, layout
from tidegate.dashboard.view_models import form_screens
from tidegate.domain.access import rows, steps
from tidegate.errors import TidegateError
from tidegate.web import authentication, inputs, problems, routing

START: Final = "/"

Password = Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)]


class SignInForm(inputs.Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    password: Password
    next: Annotated[str, Meta(max_length=1_024)] = START


class SetUpForm(inputs.Input, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=64)]
    login: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
    name: Annotated[str, Meta(min_length=1, max_length=128)]
    password: Password
    alone: bool = False


class ResetForm(inputs.Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    code: Annotated[str, Meta(max_length=64)]
    password: Password


class ResetQuery(layout.PageQuery, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)] = ""
    code: Annotated[str, Meta(max_length=64)] = ""


Plain = routing.Request[inputs.Nothing, layout.PageQuery, inputs.Nothing]


def sign_in_page(request: Plain, reads: Reads, clock: Clock) -> routing.Response:
    """Show the sign-in page."""
    if reads.find(rows.installation_key(), rows.InstallationRow) is None:
        return layout.see_other("/setup")
    return _sign_in_page(request, clock, "Sign in", _sign_in(START))


def sign_in(
    request: routing.Request[inputs.Nothing, inputs.Nothing, SignInForm],
    access: AccessOperations,
    clock: Clock,
    settings: Settings,
) -> routing.Response:
    """Sign in."""
    body = request.body
    destination = body.next if _is_ours(body.next) else START
    try:
        authentication.check_origin(request.arrived, settings)
        session = access.sign_in(body.login, body.password, address=request.arrived.address)
    except TidegateError as error:
        if problems.conceal(error) is not error:
            raise  # the application conceals its details
        return _sign_in_page(
            request, clock, "Sign in", _sign_in(destination, body.login, error), error
        )
    return layout.see_other(destination, authentication.set_cookie(session.cookie, settings))


def _is_ours(address: str) -> bool:
    """Whether an address leads to a page of this server: it has no scheme and no host."""
    return (
        address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    )


def sign_out(
    request: routing.Request[inputs.Nothing, inputs.Nothing, inputs.Nothing],
    access: AccessOperations,
    settings: Settings,
) -> routing.Response:
    """Sign out."""
    access.sign_out(request.caller)
    return layout.see_other("/signin", authentication.set_cookie("", settings))


def set_up_page(request: Plain, reads: Reads, clock: Clock) -> routing.Response:
    """Show the set-up page of a first start."""
    if reads.find(rows.installation_key(), rows.InstallationRow) is not None:
        return layout.see_other("/signin")
    return _sign_in_page(request, clock, "First start", _set_up())


def set_up(
    request: routing.Request[inputs.Nothing, inputs.Nothing, SetUpForm],
    access: AccessOperations,
    clock: Clock,
    settings: Settings,
) -> routing.Response:
    """Create the first user, and sign them in."""
    body = request.body
    try:
        authentication.check_origin(request.arrived, settings)
        address = request.arrived.address
        called = PersonNames(body.login, body.name)
        access.set_up(body.code, called, body.password, alone=body.alone, address=address)
        session = access.sign_in(body.login, body.password, address=address)
    except TidegateError as error:
        if problems.conceal(error) is not error:
            raise  # the application conceals its details
        return _sign_in_page(request, clock, "First start", _set_up(body, error), error)
    return layout.see_other(START, authentication.set_cookie(session.cookie, settings))


def reset_page(
    request: routing.Request[inputs.Nothing, ResetQuery, inputs.Nothing], clock: Clock
) -> routing.Response:
    """Show the form for a new password."""
    query = request.query
    return _sign_in_page(request, clock, "New password", _reset(query.login, query.code))


def reset(
    request: routing.Request[inputs.Nothing, inputs.Nothing, ResetForm],
    access: AccessOperations,
    clock: Clock,
    settings: Settings,
) -> routing.Response:
    """Choose a new password with the one-time code of a reset."""
    body = request.body
    try:
        authentication.check_origin(request.arrived, settings)
        address = request.arrived.address
        access.redeem_reset(body.login, body.code, body.password, address=address)
    except TidegateError as error:
        if problems.conceal(error) is not error:
            raise  # the application conceals its details
        view = _reset(body.login, body.code, error)
        return _sign_in_page(request, clock, "New password", view, error)
    return layout.see_other("/signin")


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────


def _sign_in(
    destination: str, login: str = "", error: TidegateError | None = None
) -> form_screens.SignInPage:
    name, password = layout.sign_in_fields()
    fields = (
        components.Field(
            name="login", label=name.label, value=login, required=True, completes="username"
        ),
        password,
        components.Field(name="next", kind="hidden", value=destination),
    )
    return form_screens.SignInPage(
        action="/signin", fields=fields, label="Sign in", fault=_refusal(error)
    )


def _reset(login: str, code: str, error: TidegateError | None = None) -> form_screens.SignInPage:
    fields = (
        components.Field(
            name="login", label="Sign-in name", value=login, required=True, completes="username"
        ),
        components.Field(name="code", label="One-time code", value=code, required=True),
        components.Field(
            name="password",
            label="New password",
            kind="password",
            required=True,
            completes="new-password",
            hint=f"At least {PASSWORD_CHARS_MIN} characters.",
        ),
    )
    return form_screens.SignInPage(
        action="/reset",
        fields=fields,
        label="Set the password",
        fault=_refusal(error),
        note="An administrator reset your password and gave you the code.",
    )


def _set_up(
    body: SetUpForm | None = None, error: TidegateError | None = None
) -> form_screens.SignInPage:
    known = body or SetUpForm(code="", login="x", name="x", password="")
    fields = (
        components.Field(name="code", label="One-time code", required=True, value=known.code),
        components.Field(
            name="login",
            label="Sign-in name",
            required=True,
            value=known.login if body else "",
            completes="username",
        ),
        components.Field(
            name="name",
            label="Your name",
            required=True,
            value=known.name if body else "",
            completes="name",
            hint="It is kept apart from the log, and can be erased.",
        ),
        components.Field(
            name="password",
            label="Password",
            kind="password",
            required=True,
            completes="new-password",
            hint=f"At least {PASSWORD_CHARS_MIN} characters.",
        ),
        components.Field(
            name="alone",
            label="Approval",
            kind="choice",
            value="true" if known.alone else "false",
            options=(
                components.Option("false", "A team", "Another person approves each proposal."),
                components.Option(
                    "true", "I work alone", "Publications say that they are self-approved."
                ),
            ),
        ),
    )
    return form_screens.SignInPage(
        action="/setup",
        fields=fields,
        label="Set up Tidegate",
        fault=_refusal(error),
        note="The server printed a one-time code where it was started.",
    )


def _refusal(error: TidegateError | None) -> components.FormError | None:
    """Why the form was refused: what was wrong, without the general description."""
    if error is None:
        return None
    found = layout.to_form_error(error)
    return components.FormError(found.detail or found.title, "", found.code, found.notes)


def _sign_in_page(
    request: routing.Request[Any, Any, Any],
    clock: Clock,
    title: str,
    view: Struct,
    error: TidegateError | None = None,
) -> routing.Response:
    csrf = request.principal.csrf  # of a user who is signed in and signs in again
    frame = components.Frame(title=title, url="", now=clock(), head=0, csrf=csrf)
    status = 200 if error is None else problems.status_of(type(error))
    return routing.Response(
        html.render("sign_in.html", frame, view), status=status, media=layout.UTF8
    )


ROUTES = (
    layout.page_route("/signin", sign_in_page, routing.PUBLIC),
    replace(
        layout.action_route("/signin", sign_in, routing.PUBLIC),
        body_bytes_max=routing.SIGN_IN_BYTES_MAX,
    ),
    layout.page_route("/setup", set_up_page, routing.PUBLIC),
    replace(
        layout.action_route("/setup", set_up, routing.PUBLIC),
        body_bytes_max=routing.SIGN_IN_BYTES_MAX,
    ),
    layout.page_route("/reset", reset_page, routing.PUBLIC),
    replace(
        layout.action_route("/reset", reset, routing.PUBLIC),
        body_bytes_max=routing.SIGN_IN_BYTES_MAX,
    ),
    layout.step_route("/signout", sign_out, steps.SIGN_OUT),
)
