"""Set-up of the first account, sign-in and sign-out."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes.users import LoginName, Password, PersonName
from tidegate.config import Settings
from tidegate.control.operations import accounts as operation_accounts, passwords
from tidegate.control.operations.access import AccessOperations
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import refusals, roles, rows, steps
from tidegate.web import authentication, inputs, routing, shapes

Plain = routing.Request[inputs.Nothing, inputs.Nothing, inputs.Nothing]


class Setup(inputs.Input, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=64)]
    login: LoginName
    name: PersonName
    password: Password
    alone: bool  # one person: the default repository needs no approval by another


class Credentials(inputs.Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    password: Annotated[str, Meta(max_length=passwords.PASSWORD_CHARS_MAX)]


class SetupState(Struct, frozen=True):
    set_up: bool
    alone: bool | None


class SignedIn(Struct, frozen=True):
    user_id: str
    csrf_token: str  # send it as X-CSRF-Token with every write of this session


class Me(Struct, frozen=True):
    user_id: str
    login: str | None
    name: str | None
    method: str
    grants: tuple[roles.Grant, ...]
    csrf_token: str | None


def setup_state(request: Plain, reads: Reads) -> routing.Response:
    """Whether the first user exists."""
    found = reads.find(rows.installation_key(), rows.InstallationRow)
    return routing.Response(
        SetupState(found is not None, None if found is None else found.row.alone)
    )


def set_up(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Setup],
    access: AccessOperations,
    settings: Settings,
) -> routing.Response:
    """Create the first user, with the one-time code that the server printed."""
    authentication.check_origin(request.arrived, settings)
    body = request.body
    position = access.set_up(
        body.code,
        operation_accounts.PersonNames(body.login, body.name),
        body.password,
        alone=body.alone,
        address=request.arrived.address,
    )
    return routing.Response(shapes.Written(position), position=position)


def sign_in(
    request: routing.Request[inputs.Nothing, inputs.Nothing, Credentials],
    access: AccessOperations,
    settings: Settings,
) -> routing.Response:
    """Sign in; the session id is a cookie that scripts cannot read."""
    authentication.check_origin(request.arrived, settings)
    session = access.sign_in(
        request.body.login, request.body.password, address=request.arrived.address
    )
    cookie = authentication.set_cookie(session.cookie, settings)
    return routing.Response(SignedIn(session.user_id, session.csrf), cookies=(cookie,))


def sign_out(request: Plain, access: AccessOperations, settings: Settings) -> routing.Response:
    """Sign out of this session."""
    access.sign_out(request.caller)
    return routing.Response(None, cookies=(authentication.set_cookie("", settings),))


def me(request: Plain, accounts: operation_accounts.Accounts) -> routing.Response:
    """Get your own user and permissions."""
    principal = request.principal
    called = accounts.called(principal.id)
    grants = principal.grants if principal.narrowed is None else principal.narrowed
    return routing.Response(
        Me(
            principal.id,
            None if called is None else called.login,
            None if called is None else called.name,
            principal.method,
            grants,
            principal.csrf or None,
        )
    )


ROUTES = (
    routing.Route("GET", "/v1/setup", setup_state, routing.PUBLIC, SetupState, quick=True),
    routing.Route(
        "POST",
        "/v1/setup",
        set_up,
        routing.PUBLIC,
        shapes.Written,
        status=201,
        errors=(refusals.AlreadySetUp, operation_accounts.WrongSetupCode, passwords.WeakPassword),
        body_bytes_max=routing.SIGN_IN_BYTES_MAX,
    ),
    routing.Route(
        "POST",
        "/v1/sessions",
        sign_in,
        routing.PUBLIC,
        SignedIn,
        status=201,
        errors=(operation_accounts.WrongCredentials,),
        body_bytes_max=routing.SIGN_IN_BYTES_MAX,
    ),
    routing.Route(
        "DELETE", "/v1/sessions/current", sign_out, routing.requires_step(steps.SIGN_OUT)
    ),
    routing.Route("GET", "/v1/me", me, routing.SIGNED_IN, Me),
)
