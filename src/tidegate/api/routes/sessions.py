"""The first start of all, sign-in and sign-out."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes.users import LoginName, Password, PersonName
from tidegate.config import Settings
from tidegate.control.operations.access import AccessOperations
from tidegate.control.operations.accounts import (
    PASSWORD_CHARS_MAX,
    Accounts,
    PersonNames,
    WeakPassword,
    WrongCredentials,
    WrongSetupCode,
)
from tidegate.control.queries.reads import Reads
from tidegate.domain.access.refusals import AlreadySetUp
from tidegate.domain.access.roles import Grant
from tidegate.domain.access.rows import InstallationRow, installation_key
from tidegate.domain.access.steps import SIGN_OUT
from tidegate.web.authentication import check_origin, set_cookie
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import (
    PUBLIC,
    SIGN_IN_BYTES_MAX,
    SIGNED_IN,
    Request,
    Response,
    Route,
    requires_step,
)
from tidegate.web.shapes import Written

Plain = Request[Nothing, Nothing, Nothing]


class Setup(Input, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=64)]
    login: LoginName
    name: PersonName
    password: Password
    alone: bool  # one person: the default repository asks for nobody else's approval


class Credentials(Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    password: Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)]


class SetupState(Struct, frozen=True):
    set_up: bool
    alone: bool | None


class SignedIn(Struct, frozen=True):
    user_id: str
    csrf_token: str  # sent back as X-CSRF-Token with every write of this session


class Me(Struct, frozen=True):
    user_id: str
    login: str | None
    name: str | None
    method: str
    grants: tuple[Grant, ...]
    csrf_token: str | None


def setup_state(request: Plain, reads: Reads) -> Response:
    """Whether the installation has its first user."""
    found = reads.find(installation_key(), InstallationRow)
    return Response(SetupState(found is not None, None if found is None else found.row.alone))


def set_up(
    request: Request[Nothing, Nothing, Setup], access: AccessOperations, settings: Settings
) -> Response:
    """Make the first user, with the one-time code that the server printed."""
    check_origin(request.arrived, settings)
    body = request.body
    position = access.set_up(
        body.code,
        PersonNames(body.login, body.name),
        body.password,
        alone=body.alone,
        address=request.arrived.address,
    )
    return Response(Written(position), position=position)


def sign_in(
    request: Request[Nothing, Nothing, Credentials], access: AccessOperations, settings: Settings
) -> Response:
    """Open a session: its id comes as a cookie that scripts cannot read."""
    check_origin(request.arrived, settings)
    session = access.sign_in(
        request.body.login, request.body.password, address=request.arrived.address
    )
    cookie = set_cookie(session.cookie, settings)
    return Response(SignedIn(session.user_id, session.csrf), cookies=(cookie,))


def sign_out(request: Plain, access: AccessOperations, settings: Settings) -> Response:
    """Close this session."""
    access.sign_out(request.caller)
    return Response(None, cookies=(set_cookie("", settings),))


def me(request: Plain, accounts: Accounts) -> Response:
    """Who you are here, and what you may."""
    principal = request.principal
    called = accounts.called(principal.id)
    grants = principal.grants if principal.narrowed is None else principal.narrowed
    return Response(
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
    Route("GET", "/v1/setup", setup_state, PUBLIC, SetupState, quick=True),
    Route(
        "POST",
        "/v1/setup",
        set_up,
        PUBLIC,
        Written,
        status=201,
        errors=(AlreadySetUp, WrongSetupCode, WeakPassword),
        body_bytes_max=SIGN_IN_BYTES_MAX,
    ),
    Route(
        "POST",
        "/v1/sessions",
        sign_in,
        PUBLIC,
        SignedIn,
        status=201,
        errors=(WrongCredentials,),
        body_bytes_max=SIGN_IN_BYTES_MAX,
    ),
    Route("DELETE", "/v1/sessions/current", sign_out, requires_step(SIGN_OUT)),
    Route("GET", "/v1/me", me, SIGNED_IN, Me),
)
