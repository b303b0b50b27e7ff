"""Users and their roles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, structs

from tidegate.config import Settings
from tidegate.control.operations import (
    access as operation_access,
    accounts as operation_accounts,
    passwords,
)
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import refusals, roles as access_roles, rows, slices, steps
from tidegate.web import authentication, inputs, paging, routing, shapes

LoginName = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
PersonName = Annotated[str, Meta(min_length=1, max_length=128)]
# The operations check passwords and scopes, for the API and for the pages.
Password = Annotated[str, Meta(max_length=passwords.PASSWORD_CHARS_MAX)]
Scope = Annotated[str, Meta(max_length=access_roles.SCOPE_CHARS_MAX)]


class RoleOn(inputs.Input, frozen=True, kw_only=True):
    role: access_roles.Role
    scope: Scope = "*"

    @property
    def grant(self) -> access_roles.Grant:
        return access_roles.Grant(self.role, self.scope)


Roles = Annotated[tuple[RoleOn, ...], Meta(max_length=slices.GRANTS_MAX)]


class NewUser(inputs.Input, frozen=True, kw_only=True):
    login: LoginName
    name: PersonName
    password: Password | None = None  # null: they choose it with a one-time code
    roles: Roles = ()


class NewPassword(inputs.Input, frozen=True, kw_only=True):
    password: Password
    current: Annotated[str, Meta(max_length=passwords.PASSWORD_CHARS_MAX)] = (
        ""  # the current password
    )


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


class RedeemedReset(inputs.Input, frozen=True, kw_only=True):
    login: Annotated[str, Meta(max_length=64)]
    code: Annotated[str, Meta(max_length=64)]
    password: Password


class UserReason(inputs.Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=slices.REASON_BYTES_MAX // 4)] = ""


class UserPath(inputs.Input, frozen=True):
    user_id: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9_]+$")]


class UserShown(Struct, frozen=True):
    user_id: str
    login: str | None  # null: erased
    name: str | None
    enabled: bool
    erased: bool
    grants: tuple[access_roles.Grant, ...]
    tokens: int
    added_by: str
    added_at: datetime | None
    version: int


class ChangedUserShown(UserShown, frozen=True, kw_only=True):
    """A user after a change."""

    warnings: tuple[str, ...]  # protected channels on which too few people may approve now


class AddedUserShown(UserShown, frozen=True, kw_only=True):
    """A new user. Give them the link or the code to choose a password; neither is shown again."""

    code: str | None = None  # null: the user has a password, or this is a repeated request
    link: str | None = None  # a page of this server; without public_url it begins with the path
    code_expires_at: datetime | None = None


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def add(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewUser],
    access: operation_access.AccessOperations,
    accounts: operation_accounts.Accounts,
    settings: Settings,
) -> routing.Response:
    """Add a user with roles. Without a password, the response has a code to choose one with."""
    body = request.body
    added = access.add_user(
        request.caller,
        operation_accounts.PersonNames(body.login, body.name),
        body.password,
        tuple(item.grant for item in body.roles),
    )
    shown, reset = structs.asdict(_shown(added.user, accounts.called(added.user.id))), added.reset
    answer = AddedUserShown(**shown)
    if reset is not None:
        link = settings.public_url + operation_access.reset_path(reset)
        answer = AddedUserShown(
            **shown, code=reset.code, link=link, code_expires_at=reset.expires_at
        )
    return routing.Response(answer, version=added.user.version, position=added.position)


def list_users(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    reads: Reads,
    accounts: operation_accounts.Accounts,
    cursors: paging.Cursors,
) -> routing.Response:
    """List all users, by id."""
    after = cursors.after(request)
    found = reads.range(rows.USERS, after=after, limit=request.query.limit)
    last = found[-1].id if len(found) == request.query.limit else None
    shown = [_shown(item, accounts.called(item.id)) for item in found]
    return routing.Response(cursors.list_page(request, shown, last))


def get_user(
    request: routing.Request[UserPath, inputs.ReadQuery, inputs.Nothing],
    reads: Reads,
    accounts: operation_accounts.Accounts,
) -> routing.Response:
    """Get one user."""
    found = reads.find(rows.user_key(request.path.user_id), rows.User)
    return _user(accounts, found, request.path.user_id)


def grant(
    request: routing.Request[UserPath, inputs.Nothing, RoleOn],
    access: operation_access.AccessOperations,
    accounts: operation_accounts.Accounts,
) -> routing.Response:
    """Grant a role on a scope to another user."""
    user_id, given = request.path.user_id, request.body.grant
    return _show(accounts, access.grant(request.caller, user_id, given))


def revoke(
    request: routing.Request[UserPath, inputs.Nothing, RoleOn],
    access: operation_access.AccessOperations,
    accounts: operation_accounts.Accounts,
) -> routing.Response:
    """Revoke a role on a scope from another user."""
    user_id, taken = request.path.user_id, request.body.grant
    return _show(accounts, access.revoke(request.caller, user_id, taken))


def disable(
    request: routing.Request[UserPath, inputs.Nothing, UserReason],
    access: operation_access.AccessOperations,
    accounts: operation_accounts.Accounts,
) -> routing.Response:
    """Disable a user, with all their sessions and tokens, until enabled again."""
    user_id, reason = request.path.user_id, request.body.reason
    return _show(accounts, access.disable(request.caller, user_id, reason))


def enable(
    request: routing.Request[UserPath, inputs.Nothing, inputs.Nothing],
    access: operation_access.AccessOperations,
    accounts: operation_accounts.Accounts,
) -> routing.Response:
    """Enable a disabled user again."""
    return _show(accounts, access.enable(request.caller, request.path.user_id))


def erase(
    request: routing.Request[UserPath, inputs.Nothing, inputs.Nothing],
    access: operation_access.AccessOperations,
    accounts: operation_accounts.Accounts,
) -> routing.Response:
    """Erase a person: name, sign-in and credentials; the id remains in the history."""
    return _show(accounts, access.erase(request.caller, request.path.user_id))


def set_password(
    request: routing.Request[UserPath, inputs.Nothing, NewPassword],
    access: operation_access.AccessOperations,
    settings: Settings,
) -> routing.Response:
    """Change your own password, in a session and with the current one."""
    body = request.body
    changed = access.set_password(request.caller, request.path.user_id, body.password, body.current)
    position, session = changed.position, changed.session
    return routing.Response(
        PasswordSet(position, session.csrf),
        position=position,
        cookies=(authentication.set_cookie(session.cookie, settings),),
    )


def reset_password(
    request: routing.Request[UserPath, inputs.Nothing, inputs.Nothing],
    access: operation_access.AccessOperations,
    settings: Settings,
) -> routing.Response:
    """End another user's password, sessions and tokens; make a code for a new password."""
    made = access.reset_password(request.caller, request.path.user_id)
    link = settings.public_url + operation_access.reset_path(made)
    shown = ResetShown(made.login, made.code, link, made.expires_at, made.position)
    return routing.Response(shown, position=made.position)


def redeem_reset(
    request: routing.Request[inputs.Nothing, inputs.Nothing, RedeemedReset],
    access: operation_access.AccessOperations,
    settings: Settings,
) -> routing.Response:
    """Choose a new password with the one-time code of a reset."""
    authentication.check_origin(request.arrived, settings)
    body, address = request.body, request.arrived.address
    position = access.redeem_reset(body.login, body.code, body.password, address=address)
    return routing.Response(shapes.Written(position), position=position)


def _show(
    accounts: operation_accounts.Accounts, changed: operation_access.ChangedUser
) -> routing.Response:
    """The user after an operation."""
    found = changed.user
    shown = structs.asdict(_shown(found, accounts.called(found.id)))
    return routing.Response(
        ChangedUserShown(**shown, warnings=changed.warnings),
        version=found.version,
        position=changed.position,
    )


def _user(
    accounts: operation_accounts.Accounts, found: Found[rows.User] | None, user_id: str
) -> routing.Response:
    if found is None:
        raise refusals.UserNotFound(user_id)
    shown = _shown(found, accounts.called(user_id))
    return routing.Response(shown, version=found.version)


def _shown(found: Found[rows.User], called: operation_accounts.PersonNames | None) -> UserShown:
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


_CHANGES = (refusals.UserNotFound, refusals.UserGone, refusals.OwnAccess, refusals.InvalidScope)


def _verb(name: str, handler: Callable[..., routing.Response], step: steps.Step) -> routing.Route:
    path = f"/v1/users/{{user_id}}/{name}"
    return routing.Route(
        "POST", path, handler, routing.requires_step(step), ChangedUserShown, errors=_CHANGES
    )


ROUTES = (
    routing.Route(
        "POST",
        "/v1/users",
        add,
        routing.requires_step(steps.ADD_USER),
        AddedUserShown,
        status=201,
        errors=(refusals.UserExists, passwords.WeakPassword, refusals.InvalidScope),
    ),
    routing.Route(
        "GET",
        "/v1/users",
        list_users,
        routing.requires(access_roles.Verb.AUDIT),
        shapes.Listed[UserShown],
    ),
    routing.Route(
        "GET",
        "/v1/users/{user_id}",
        get_user,
        routing.requires(access_roles.Verb.AUDIT),
        UserShown,
        cached=True,
        errors=(refusals.UserNotFound,),
    ),
    _verb("grant", grant, steps.GRANT_ROLE),
    _verb("revoke", revoke, steps.REVOKE_ROLE),
    _verb("disable", disable, steps.DISABLE_USER),
    _verb("enable", enable, steps.ENABLE_USER),
    _verb("erase", erase, steps.ERASE_USER),
    routing.Route(
        "PUT",
        "/v1/users/{user_id}/password",
        set_password,
        routing.requires_step(steps.CHANGE_PASSWORD),
        PasswordSet,
        errors=(
            refusals.NotOwner,
            passwords.WeakPassword,
            operation_accounts.WrongCredentials,
            operation_accounts.SessionRequired,
        ),
    ),
    routing.Route(
        "POST",
        "/v1/users/{user_id}/reset-password",
        reset_password,
        routing.requires_step(steps.RESET_PASSWORD),
        ResetShown,
        errors=(refusals.UserNotFound, refusals.UserGone, refusals.OwnAccess),
    ),
    routing.Route(
        "POST",
        "/v1/password-resets",
        redeem_reset,
        routing.PUBLIC,
        shapes.Written,
        errors=(operation_accounts.WrongResetCode, passwords.WeakPassword),
        body_bytes_max=routing.SIGN_IN_BYTES_MAX,
    ),
)
