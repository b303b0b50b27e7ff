"""Users and their roles."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from tidegate.control.installation import Installation
from tidegate.control.operations.accounts import (
    PASSWORD_CHARS_MAX,
    PASSWORD_CHARS_MIN,
    PersonNames,
    SessionRequired,
    WeakPassword,
    WrongCredentials,
)
from tidegate.control.queries.reads import Found
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.folds import history_of_user, users
from tidegate.domain.access.principals import demand_permission
from tidegate.domain.access.refusals import (
    InvalidScope,
    MissingPermission,
    OwnAccess,
    UserExists,
    UserGone,
    UserNotFound,
)
from tidegate.domain.access.roles import EVERYWHERE, Grant, Role, Verb, check_scope
from tidegate.domain.access.rows import USERS, User, user_key
from tidegate.domain.access.slices import (
    GRANTS_MAX,
    REASON_BYTES_MAX,
    DisableUser,
    EnableUser,
    GrantRole,
    RevokeRole,
    disable_user,
    enable_user,
    grant_role,
    revoke_role,
)
from tidegate.web import paging
from tidegate.web.authentication import set_cookie
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.routing import SIGNED_IN, Request, Response, Route, requires
from tidegate.web.shapes import Listed

LoginName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
PersonName = Annotated[str, Meta(min_length=1, max_length=128)]
Password = Annotated[str, Meta(min_length=PASSWORD_CHARS_MIN, max_length=PASSWORD_CHARS_MAX)]
Scope = Annotated[
    str,
    Meta(max_length=80, pattern=r"^(\*|(repository|channel):[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$"),
]
Plain = Request[Nothing, Nothing, Nothing]


class RoleOn(Input, frozen=True, kw_only=True):
    role: Role
    scope: Scope = "*"

    @property
    def grant(self) -> Grant:
        """Raises: InvalidScope."""
        check_scope(self.scope)
        return Grant(self.role, self.scope)


Roles = Annotated[tuple[RoleOn, ...], Meta(max_length=GRANTS_MAX)]


class NewUser(Input, frozen=True, kw_only=True):
    login: LoginName
    name: PersonName
    password: Password
    roles: Roles = ()


class NewPassword(Input, frozen=True, kw_only=True):
    password: Password
    # The password of today: needed for your own, left out for somebody else's.
    current: Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)] = ""


class PasswordSet(Struct, frozen=True):
    """Every session and token of the user has ended; your own change opens a new session."""

    position: int
    csrf_token: str | None  # of the new session, whose cookie comes with this response


class UserReason(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=REASON_BYTES_MAX // 4)] = ""


class UserPath(Input, frozen=True):
    user_id: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9_]+$")]


class UserShown(Struct, frozen=True):
    user_id: str
    login: str | None  # None: erased
    name: str | None
    enabled: bool
    erased: bool
    grants: tuple[Grant, ...]
    tokens: int
    added_by: str
    added_at: datetime | None
    version: int


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def add(request: Request[Nothing, Nothing, NewUser], installation: Installation) -> Response:
    """Add a user with a first password and roles."""
    body = request.body
    user_id = f"user_{request.mint('user')[:20]}"
    outcome = request.server.accounts.add(
        user_id,
        PersonNames(body.login, body.name),
        body.password,
        tuple(item.grant for item in body.roles),
        request.meta,
        request.once,
    )
    return _left_by(request, installation, user_id, outcome)


def list_users(request: Request[Nothing, Paging, Nothing], installation: Installation) -> Response:
    """All users, by id."""
    after = paging.after(request, installation)
    found = installation.reads.range(USERS, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    shown = [_shown(item, request.server.accounts.called(item.id)) for item in found]
    return Response(paging.list_page(request, installation, shown, last))


def get_user(
    request: Request[UserPath, ReadQuery, Nothing], installation: Installation
) -> Response:
    """One user."""
    found = installation.reads.find(user_key(request.path.user_id), User)
    return _user(request, found, request.path.user_id)


def grant(request: Request[UserPath, Nothing, RoleOn], installation: Installation) -> Response:
    """Give somebody else a role on a scope."""
    command = GrantRole(user_id=request.path.user_id, by=request.by, grant=request.body.grant)
    outcome = installation.run(grant_role, command, meta=request.meta, key=request.once)
    return _left_by(request, installation, request.path.user_id, outcome)


def revoke(request: Request[UserPath, Nothing, RoleOn], installation: Installation) -> Response:
    """Take a role on a scope from somebody else."""
    command = RevokeRole(user_id=request.path.user_id, by=request.by, grant=request.body.grant)
    outcome = installation.run(revoke_role, command, meta=request.meta, key=request.once)
    return _left_by(request, installation, request.path.user_id, outcome)


def disable(
    request: Request[UserPath, Nothing, UserReason], installation: Installation
) -> Response:
    """Shut somebody out, with all their sessions and tokens, until enabled again."""
    command = DisableUser(user_id=request.path.user_id, by=request.by, reason=request.body.reason)
    outcome = installation.run(disable_user, command, meta=request.meta, key=request.once)
    return _left_by(request, installation, request.path.user_id, outcome)


def enable(request: Request[UserPath, Nothing, Nothing], installation: Installation) -> Response:
    """Let somebody in again."""
    command = EnableUser(user_id=request.path.user_id, by=request.by)
    outcome = installation.run(enable_user, command, meta=request.meta, key=request.once)
    return _left_by(request, installation, request.path.user_id, outcome)


def erase(request: Request[UserPath, Nothing, Nothing], installation: Installation) -> Response:
    """Erase a person: name, sign-in and credentials go; the id stays in the history."""
    outcome = request.server.accounts.erase(request.path.user_id, request.meta, request.once)
    return _left_by(request, installation, request.path.user_id, outcome)


def set_password(
    request: Request[UserPath, Nothing, NewPassword], installation: Installation
) -> Response:
    """Change your own password, or, administering, another user's."""
    accounts, user_id = request.server.accounts, request.path.user_id
    if request.principal.narrowed is not None:
        raise MissingPermission("the token that you use is narrowed: it changes no password")
    is_own = user_id == request.by
    if is_own:
        check_own(request, request.body.current)
    else:
        demand_permission(request.principal, (Verb.ADMINISTER,), EVERYWHERE)
    credential_id = request.mint("credential")
    outcome = accounts.change_password(
        user_id, request.body.password, credential_id, request.meta, request.once
    )
    if not is_own:
        return Response(PasswordSet(outcome.position, None), position=outcome.position)
    welcome = accounts.open_session_after(user_id, credential_id)
    return Response(
        PasswordSet(outcome.position, welcome.csrf),
        position=outcome.position,
        cookies=(set_cookie(welcome.cookie, installation.settings),),
    )


def check_own(request: Request[Any, Any, Any], current: str) -> None:
    """That the requester may change their own password: signed in, and knowing the current one.

    Raises:
        SessionRequired, WrongCredentials, RateLimited.
    """
    if not request.principal.session:
        raise SessionRequired("Sign in to change your own password. An API token cannot change it.")
    request.server.sign_ins.take(f"password {request.by}")
    request.server.accounts.check_own_password(request.by, current)


def _left_by(
    request: Request[Any, Any, Any],
    installation: Installation,
    user_id: str,
    outcome: CommandOutcome,
) -> Response:
    found = installation.row_history.row_after(outcome, users, user_id, history_of_user(user_id))
    answer = _user(request, found, user_id)
    answer.position = outcome.position or answer.version or 0
    return answer


def _user(request: Request[Any, Any, Any], found: Found[User] | None, user_id: str) -> Response:
    if found is None:
        raise UserNotFound(user_id)
    shown = _shown(found, request.server.accounts.called(user_id))
    return Response(shown, version=found.version)


def _shown(found: Found[User], called: PersonNames | None) -> UserShown:
    row = found.row
    return UserShown(
        row.user_id,
        None if called is None else called.login,
        None if called is None else called.name,
        row.enabled,
        row.erased,
        row.grants,
        row.tokens,
        row.added_by,
        row.added_at,
        found.version,
    )


_ADMINISTER = requires(Verb.ADMINISTER)
_CHANGES = (UserNotFound, UserGone, OwnAccess, InvalidScope)

ROUTES = (
    Route(
        "POST",
        "/v1/users",
        add,
        _ADMINISTER,
        UserShown,
        status=201,
        errors=(UserExists, WeakPassword, InvalidScope),
    ),
    Route("GET", "/v1/users", list_users, requires(Verb.AUDIT), Listed[UserShown]),
    Route(
        "GET",
        "/v1/users/{user_id}",
        get_user,
        requires(Verb.AUDIT),
        UserShown,
        cached=True,
        errors=(UserNotFound,),
    ),
    Route("POST", "/v1/users/{user_id}/grant", grant, _ADMINISTER, UserShown, errors=_CHANGES),
    Route("POST", "/v1/users/{user_id}/revoke", revoke, _ADMINISTER, UserShown, errors=_CHANGES),
    Route("POST", "/v1/users/{user_id}/disable", disable, _ADMINISTER, UserShown, errors=_CHANGES),
    Route("POST", "/v1/users/{user_id}/enable", enable, _ADMINISTER, UserShown, errors=_CHANGES),
    Route("POST", "/v1/users/{user_id}/erase", erase, _ADMINISTER, UserShown, errors=_CHANGES),
    Route(
        "PUT",
        "/v1/users/{user_id}/password",
        set_password,
        SIGNED_IN,
        PasswordSet,
        errors=(*_CHANGES, WeakPassword, WrongCredentials, SessionRequired),
    ),
)
