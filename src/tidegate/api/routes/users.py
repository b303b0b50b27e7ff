"""Users and their roles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from tidegate.config import Settings
from tidegate.control.operations.access import AccessOperations, ChangedUser, reset_path
from tidegate.control.operations.accounts import (
    PASSWORD_CHARS_MAX,
    Accounts,
    PersonNames,
    SessionRequired,
    WeakPassword,
    WrongCredentials,
    WrongResetCode,
)
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import steps
from tidegate.domain.access.refusals import (
    InvalidScope,
    NotOwner,
    OwnAccess,
    UserExists,
    UserGone,
    UserNotFound,
)
from tidegate.domain.access.roles import SCOPE_CHARS_MAX, Grant, Role, Verb
from tidegate.domain.access.rows import USERS, User, user_key
from tidegate.domain.access.slices import GRANTS_MAX, REASON_BYTES_MAX
from tidegate.web.authentication import check_origin, set_cookie
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import (
    PUBLIC,
    SIGN_IN_BYTES_MAX,
    Request,
    Response,
    Route,
    requires,
    requires_step,
)
from tidegate.web.shapes import Listed, Written

LoginName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
PersonName = Annotated[str, Meta(min_length=1, max_length=128)]
# What a password and a scope must be is for the operations to say, as on the pages.
Password = Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)]
Scope = Annotated[str, Meta(max_length=SCOPE_CHARS_MAX)]
Plain = Request[Nothing, Nothing, Nothing]


class RoleOn(Input, frozen=True, kw_only=True):
    role: Role
    scope: Scope = "*"

    @property
    def grant(self) -> Grant:
        return Grant(self.role, self.scope)


Roles = Annotated[tuple[RoleOn, ...], Meta(max_length=GRANTS_MAX)]


class NewUser(Input, frozen=True, kw_only=True):
    login: LoginName
    name: PersonName
    password: Password | None = None  # None: they choose it with a one-time code
    roles: Roles = ()


class NewPassword(Input, frozen=True, kw_only=True):
    password: Password
    current: Annotated[str, Meta(max_length=PASSWORD_CHARS_MAX)] = ""  # the password of today


class PasswordSet(Struct, frozen=True):
    """All your sessions and tokens have ended, and a new session is open."""

    position: int
    csrf_token: str  # of the new session, whose cookie comes with this response


class ResetShown(Struct, frozen=True):
    """Give the link or the code to the user. Neither is shown again."""

    login: str
    code: str
    link: str  # a page of this server; without public_url it begins with the path
    expires_at: datetime
    position: int


class RedeemedReset(Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    code: Annotated[str, Meta(max_length=64)]
    password: Password


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


class AddedUserShown(UserShown, frozen=True, kw_only=True):
    """A new user. Give them the link or the code to choose a password; neither is shown again."""

    code: str | None = None  # None: the user has a password, or this answers a repeat
    link: str | None = None  # a page of this server; without public_url it begins with the path
    code_expires_at: datetime | None = None


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def add(
    request: Request[Nothing, Nothing, NewUser],
    access: AccessOperations,
    accounts: Accounts,
    settings: Settings,
) -> Response:
    """Add a user with roles. Without a password, the response has a code to choose one with."""
    body = request.body
    added = access.add_user(
        request.caller,
        PersonNames(body.login, body.name),
        body.password,
        tuple(item.grant for item in body.roles),
    )
    shown, reset = asdict(_shown(added.user, accounts.called(added.user.id))), added.reset
    answer = AddedUserShown(**shown)
    if reset is not None:
        link = settings.public_url + reset_path(reset)
        answer = AddedUserShown(
            **shown, code=reset.code, link=link, code_expires_at=reset.expires_at
        )
    return Response(answer, version=added.user.version, position=added.position)


def list_users(
    request: Request[Nothing, Paging, Nothing], reads: Reads, accounts: Accounts, cursors: Cursors
) -> Response:
    """All users, by id."""
    after = cursors.after(request)
    found = reads.range(USERS, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    shown = [_shown(item, accounts.called(item.id)) for item in found]
    return Response(cursors.list_page(request, shown, last))


def get_user(
    request: Request[UserPath, ReadQuery, Nothing], reads: Reads, accounts: Accounts
) -> Response:
    """One user."""
    found = reads.find(user_key(request.path.user_id), User)
    return _user(accounts, found, request.path.user_id)


def grant(
    request: Request[UserPath, Nothing, RoleOn], access: AccessOperations, accounts: Accounts
) -> Response:
    """Give another user a role on a scope."""
    user_id, given = request.path.user_id, request.body.grant
    return _show(accounts, access.grant(request.caller, user_id, given))


def revoke(
    request: Request[UserPath, Nothing, RoleOn], access: AccessOperations, accounts: Accounts
) -> Response:
    """Take a role on a scope from another user."""
    user_id, taken = request.path.user_id, request.body.grant
    return _show(accounts, access.revoke(request.caller, user_id, taken))


def disable(
    request: Request[UserPath, Nothing, UserReason], access: AccessOperations, accounts: Accounts
) -> Response:
    """Disable a user, with all their sessions and tokens, until enabled again."""
    user_id, reason = request.path.user_id, request.body.reason
    return _show(accounts, access.disable(request.caller, user_id, reason))


def enable(
    request: Request[UserPath, Nothing, Nothing], access: AccessOperations, accounts: Accounts
) -> Response:
    """Enable a disabled user again."""
    return _show(accounts, access.enable(request.caller, request.path.user_id))


def erase(
    request: Request[UserPath, Nothing, Nothing], access: AccessOperations, accounts: Accounts
) -> Response:
    """Erase a person: name, sign-in and credentials go; the id stays in the history."""
    return _show(accounts, access.erase(request.caller, request.path.user_id))


def set_password(
    request: Request[UserPath, Nothing, NewPassword], access: AccessOperations, settings: Settings
) -> Response:
    """Change your own password, in a session and with the current one."""
    body = request.body
    changed = access.set_password(request.caller, request.path.user_id, body.password, body.current)
    position, session = changed.position, changed.session
    return Response(
        PasswordSet(position, session.csrf),
        position=position,
        cookies=(set_cookie(session.cookie, settings),),
    )


def reset_password(
    request: Request[UserPath, Nothing, Nothing], access: AccessOperations, settings: Settings
) -> Response:
    """End another user's password, sessions and tokens; make a code for a new password."""
    made = access.reset_password(request.caller, request.path.user_id)
    link = settings.public_url + reset_path(made)
    shown = ResetShown(made.login, made.code, link, made.expires_at, made.position)
    return Response(shown, position=made.position)


def redeem_reset(
    request: Request[Nothing, Nothing, RedeemedReset], access: AccessOperations, settings: Settings
) -> Response:
    """Choose a new password with the one-time code of a reset."""
    check_origin(request.arrived, settings)
    body, address = request.body, request.arrived.address
    position = access.redeem_reset(body.login, body.code, body.password, address=address)
    return Response(Written(position), position=position)


def _show(accounts: Accounts, changed: ChangedUser) -> Response:
    """A user as an operation left it."""
    response = _user(accounts, changed.user, changed.user.id)
    response.position = changed.position
    return response


def _user(accounts: Accounts, found: Found[User] | None, user_id: str) -> Response:
    if found is None:
        raise UserNotFound(user_id)
    shown = _shown(found, accounts.called(user_id))
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


_CHANGES = (UserNotFound, UserGone, OwnAccess, InvalidScope)


def _verb(name: str, handler: Callable[..., Response], step: steps.Step) -> Route:
    path = f"/v1/users/{{user_id}}/{name}"
    return Route("POST", path, handler, requires_step(step), UserShown, errors=_CHANGES)


ROUTES = (
    Route(
        "POST",
        "/v1/users",
        add,
        requires_step(steps.ADD_USER),
        AddedUserShown,
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
    _verb("grant", grant, steps.GRANT_ROLE),
    _verb("revoke", revoke, steps.REVOKE_ROLE),
    _verb("disable", disable, steps.DISABLE_USER),
    _verb("enable", enable, steps.ENABLE_USER),
    _verb("erase", erase, steps.ERASE_USER),
    Route(
        "PUT",
        "/v1/users/{user_id}/password",
        set_password,
        requires_step(steps.CHANGE_PASSWORD),
        PasswordSet,
        errors=(NotOwner, WeakPassword, WrongCredentials, SessionRequired),
    ),
    Route(
        "POST",
        "/v1/users/{user_id}/reset-password",
        reset_password,
        requires_step(steps.RESET_PASSWORD),
        ResetShown,
        errors=(UserNotFound, UserGone, OwnAccess),
    ),
    Route(
        "POST",
        "/v1/password-resets",
        redeem_reset,
        PUBLIC,
        Written,
        errors=(WrongResetCode, WeakPassword),
        body_bytes_max=SIGN_IN_BYTES_MAX,
    ),
)
