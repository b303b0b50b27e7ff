"""The commands on access. Each checks inside the commit, on the caller's own row, that the caller
is an administrator.

Users cannot change their own roles. So the last administrator cannot disappear: the caller who
revokes the role of another still has it, and if two revoke each other's role at once, the second
commit is decided again and refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from tidegate.domain.access import facts, refusals, roles, rows as access_rows
from tidegate.kernel import model, slices

TOKEN_ANCESTORS_MAX = 4  # tokens may create tokens; each request reads the whole chain
GRANTS_MAX = 64  # of a user or token
TOKENS_MAX = 100  # of a user, not revoked
TOKEN_DAYS_MAX = 90
REASON_BYTES_MAX = 1_024

_USER_ID = re.compile(r"user_[a-z0-9]{8,40}")
_TOKEN_ID = re.compile(r"[a-z0-9]{8,40}")


class AddUser(Struct, frozen=True, kw_only=True):
    user_id: str
    by: str
    grants: tuple[roles.Grant, ...] = ()


class GrantRole(Struct, frozen=True, kw_only=True):
    user_id: str
    by: str
    grant: roles.Grant


class RevokeRole(Struct, frozen=True, kw_only=True):
    user_id: str
    by: str
    grant: roles.Grant


class DisableUser(Struct, frozen=True, kw_only=True):
    user_id: str
    by: str
    reason: str = ""


class EnableUser(Struct, frozen=True, kw_only=True):
    user_id: str
    by: str


class EraseUser(Struct, frozen=True, kw_only=True):
    user_id: str
    by: str


class NotePassword(Struct, frozen=True, kw_only=True):
    """Make the password whose hash is in the row ``credential_id`` the user's password.

    The row has been written before.
    """

    user_id: str
    by: str
    credential_id: str
    replaces: str | None = None  # only if this is the current one; None: any


class NoteFailedSignIns(Struct, frozen=True, kw_only=True):
    user_id: str
    count: int


class VoidCredentials(Struct, frozen=True, kw_only=True):
    """End the sessions and tokens of a user after a backup was restored. No request does this."""

    user_id: str
    by: str


class CreateToken(Struct, frozen=True, kw_only=True):
    """Create a token for the caller.

    ``grants`` narrow the permissions of its owner; None: the same permissions. ``parent_id`` is the
    token that authenticated the request, if one did. ``credentials_version`` is that of the owner's
    row when the request was authenticated; None: no session or token authenticated it.
    """

    user_id: str
    token_id: str
    days: int
    grants: tuple[roles.Grant, ...] | None = None
    parent_id: str = ""
    credentials_version: int | None = None


class RevokeToken(Struct, frozen=True, kw_only=True):
    """Revoke a token. ``through`` is the token that authenticated the request, if one did.

    A narrowed token may revoke only itself and the tokens that it created. So the command carries
    whether ``through`` is ``narrowed`` and whether it ``may_administer``.
    """

    user_id: str  # whose it is
    token_id: str
    by: str
    through: str = ""
    narrowed: bool = False
    may_administer: bool = True


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────


def decide_addition(
    rows: tuple[access_rows.User | None, access_rows.User | None], command: AddUser, now: datetime
) -> Sequence[Struct]:
    """Raises: NotAdministrator, UserExists, InvalidAccess, InvalidScope, LimitExceeded."""
    user, asker = rows
    _demand_administrator(asker)
    check_user_id(command.user_id)
    _check_grants(command.grants)
    if user is not None:
        raise refusals.UserExists(f"{command.user_id} exists", user_id=command.user_id)
    granted = (
        facts.RoleGranted(command.user_id, item.role, item.scope, command.by)
        for item in dict.fromkeys(command.grants)
    )
    return (facts.UserAdded(command.user_id, command.by), *granted)


def decide_grant(
    rows: tuple[access_rows.User | None, access_rows.User | None], command: GrantRole, now: datetime
) -> Sequence[Struct]:
    user = _other(rows, command)
    _check_grants((command.grant,))
    if command.grant in user.grants:
        return ()
    model.at_most("roles of a user", len(user.grants) + 1, GRANTS_MAX)
    return (facts.RoleGranted(user.user_id, command.grant.role, command.grant.scope, command.by),)


def decide_revocation(
    rows: tuple[access_rows.User | None, access_rows.User | None],
    command: RevokeRole,
    now: datetime,
) -> Sequence[Struct]:
    user = _other(rows, command)
    if command.grant not in user.grants:
        return ()
    return (facts.RoleRevoked(user.user_id, command.grant.role, command.grant.scope, command.by),)


def decide_disabling(
    rows: tuple[access_rows.User | None, access_rows.User | None],
    command: DisableUser,
    now: datetime,
) -> Sequence[Struct]:
    user = _other(rows, command)
    model.at_most(
        "bytes of a reason", len(command.reason.encode(errors="replace")), REASON_BYTES_MAX
    )
    return (facts.UserDisabled(user.user_id, command.by, command.reason),) if user.enabled else ()


def decide_enabling(
    rows: tuple[access_rows.User | None, access_rows.User | None],
    command: EnableUser,
    now: datetime,
) -> Sequence[Struct]:
    user = _other(rows, command)
    return () if user.enabled else (facts.UserEnabled(user.user_id, command.by),)


def decide_erasure(
    rows: tuple[access_rows.User | None, access_rows.User | None], command: EraseUser, now: datetime
) -> Sequence[Struct]:
    user, asker = rows
    _demand_administrator(asker)
    if user is None:
        raise refusals.UserNotFound(command.user_id)
    if user.erased:
        return ()  # a repeat, because the rows without history may not all be deleted yet
    _other(rows, command)
    return (facts.UserErased(user.user_id, command.by),)


def decide_password(
    rows: tuple[access_rows.User | None, access_rows.User | None],
    command: NotePassword,
    now: datetime,
) -> Sequence[Struct]:
    user, asker = rows
    if command.by != command.user_id:
        _demand_administrator(asker)
    found = _standing(user, command.user_id)
    user_id, replaces = found.user_id, found.credential_id
    if command.replaces not in (None, replaces):
        raise refusals.CredentialsEnded
    return (facts.PasswordChanged(user_id, command.by, command.credential_id, replaces),)


def decide_failed_sign_ins(
    rows: tuple[access_rows.User | None], command: NoteFailedSignIns, now: datetime
) -> Sequence[Struct]:
    (user,) = rows
    if user is None or user.erased or command.count < 1:
        return ()
    return (facts.SignInFailed(user.user_id, command.count),)


def decide_voiding(
    rows: tuple[access_rows.User | None], command: VoidCredentials, now: datetime
) -> Sequence[Struct]:
    """Raises: UserNotFound."""
    (user,) = rows
    if user is None:
        raise refusals.UserNotFound(command.user_id)
    return () if user.erased else (facts.CredentialsVoided(user.user_id, command.by),)


def decide_token(
    rows: tuple[access_rows.User | None, access_rows.ApiToken | None, access_rows.ApiToken | None],
    command: CreateToken,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: UserNotFound, UserIsDisabled, CredentialsEnded, InvalidAccess, InvalidScope,
    LimitExceeded.

    A token that another token created ends with it, so it does not outlast it either.
    """
    owner, token, parent = rows
    if not _TOKEN_ID.fullmatch(command.token_id) or token is not None:
        raise refusals.InvalidAccess(
            "a token's id is new, of 8 to 40 of a-z and 0-9", field="token_id"
        )
    if not 1 <= command.days <= TOKEN_DAYS_MAX:
        raise refusals.InvalidAccess(
            f"a token is good for 1 to {TOKEN_DAYS_MAX} days, found {command.days}", field="days"
        )
    user = _standing(owner, command.user_id)
    if not user.enabled:
        raise refusals.UserIsDisabled(user.user_id)
    if command.credentials_version not in (None, user.credentials_version):
        raise refusals.CredentialsEnded
    if command.grants is not None:
        _check_grants(command.grants)
    model.at_most("tokens of a user", user.tokens + 1, TOKENS_MAX)
    expires_at = now + timedelta(days=command.days)
    ancestors: tuple[str, ...] = ()
    if command.parent_id:
        if parent is None or not is_current(parent, user, now):
            raise refusals.CredentialsEnded
        ancestors = (*parent.ancestors, parent.token_id)
        model.at_most("tokens that a token was made by", len(ancestors), TOKEN_ANCESTORS_MAX)
        expires_at = min(expires_at, parent.expires_at)
    return (
        facts.TokenCreated(
            user.user_id,
            command.token_id,
            user.user_id,
            expires_at,
            command.grants,
            ancestors,
            user.credentials_version,
        ),
    )


def decide_token_revocation(
    rows: tuple[access_rows.ApiToken | None, access_rows.User | None, access_rows.User | None],
    command: RevokeToken,
    now: datetime,
) -> Sequence[Struct]:
    """Raises: TokenNotFound, NotOwner."""
    token, owner, asker = rows
    if token is None or owner is None or token.user_id != command.user_id:
        raise refusals.TokenNotFound(command.token_id)
    is_own = command.by == token.user_id
    if not (is_own or (command.may_administer and _administers(asker))):
        raise refusals.NotOwner(
            f"Token {command.token_id} belongs to another user", token_id=token.token_id
        )
    of_itself = command.through in (token.token_id, *token.ancestors)
    if is_own and command.narrowed and not of_itself:
        raise refusals.NotOwner(
            f"The token that you use is narrowed. It revokes itself and tokens made with it, "
            f"and {command.token_id} is neither",
            token_id=token.token_id,
        )
    if token.revoked_at is not None or token.credentials_version != owner.credentials_version:
        return ()
    return (facts.TokenRevoked(token.user_id, token.token_id, command.by),)


def is_current(token: access_rows.ApiToken, owner: access_rows.User, now: datetime) -> bool:
    """Whether the token itself is valid. The caller must check its ancestors, too."""
    return (
        owner.enabled
        and token.revoked_at is None
        and token.expires_at > now
        and token.credentials_version == owner.credentials_version
    )


# ── checks ────────────────────────────────────────────────────────────────────────────────────────


def _other(
    rows: tuple[access_rows.User | None, access_rows.User | None], command: Any
) -> access_rows.User:
    """Return the user to change, if the caller is another user and an administrator.

    Raises:
        NotAdministrator, UserNotFound, UserGone, OwnAccess.
    """
    user, asker = rows
    _demand_administrator(asker)
    found = _standing(user, command.user_id)
    if command.by == command.user_id:
        raise refusals.OwnAccess(
            f"{command.by} cannot change their own access; another person must",
            user_id=command.user_id,
        )
    return found


def _standing(user: access_rows.User | None, user_id: str) -> access_rows.User:
    if user is None:
        raise refusals.UserNotFound(user_id)
    if user.erased:
        raise refusals.UserGone(user_id)
    return user


def _administers(asker: access_rows.User | None) -> bool:
    if asker is None or not asker.enabled:
        return False
    return roles.allows(asker.grants, roles.Verb.ADMINISTER, roles.EVERYWHERE)


def _demand_administrator(asker: access_rows.User | None) -> None:
    if not _administers(asker):
        raise refusals.NotAdministrator("only a security-admin of * changes users and roles")


def check_user_id(user_id: str) -> None:
    if not _USER_ID.fullmatch(user_id):
        raise refusals.InvalidAccess(f"a user id is {_USER_ID.pattern}", field="user_id")


def _check_grants(grants: Sequence[roles.Grant]) -> None:
    model.at_most("roles of a request", len(grants), GRANTS_MAX)
    for grant in grants:
        roles.check_scope(grant.scope)


# ── slices ────────────────────────────────────────────────────────────────────────────────────────


def _both(command: Any) -> tuple[model.Key, ...]:
    """The rows of the user and the caller, which may be the same."""
    return access_rows.user_key(command.user_id), access_rows.user_key(command.by)


add_user = slices.Slice(
    name="add-user",
    command=AddUser,
    writes=(facts.UserAdded, facts.RoleGranted),
    rows=_both,
    decide=decide_addition,
)
grant_role = slices.Slice(
    name="grant-role",
    command=GrantRole,
    writes=(facts.RoleGranted,),
    rows=_both,
    decide=decide_grant,
)
revoke_role = slices.Slice(
    name="revoke-role",
    command=RevokeRole,
    writes=(facts.RoleRevoked,),
    rows=_both,
    decide=decide_revocation,
)
disable_user = slices.Slice(
    name="disable-user",
    command=DisableUser,
    writes=(facts.UserDisabled,),
    rows=_both,
    decide=decide_disabling,
)
enable_user = slices.Slice(
    name="enable-user",
    command=EnableUser,
    writes=(facts.UserEnabled,),
    rows=_both,
    decide=decide_enabling,
)
erase_user = slices.Slice(
    name="erase-user",
    command=EraseUser,
    writes=(facts.UserErased,),
    rows=_both,
    decide=decide_erasure,
)
note_password = slices.Slice(
    name="note-password",
    command=NotePassword,
    writes=(facts.PasswordChanged,),
    rows=_both,
    decide=decide_password,
)
note_failed_sign_ins = slices.Slice(
    name="note-failed-sign-ins",
    command=NoteFailedSignIns,
    writes=(facts.SignInFailed,),
    rows=lambda command: (access_rows.user_key(command.user_id),),
    decide=decide_failed_sign_ins,
)
void_credentials = slices.Slice(
    name="void-credentials",
    command=VoidCredentials,
    writes=(facts.CredentialsVoided,),
    rows=lambda command: (access_rows.user_key(command.user_id),),
    decide=decide_voiding,
)
create_token = slices.Slice(
    name="create-token",
    command=CreateToken,
    writes=(facts.TokenCreated,),
    rows=lambda command: (
        access_rows.user_key(command.user_id),
        access_rows.token_key(command.token_id),
        access_rows.token_key(command.parent_id or command.token_id),
    ),
    decide=decide_token,
)
revoke_token = slices.Slice(
    name="revoke-token",
    command=RevokeToken,
    writes=(facts.TokenRevoked,),
    rows=lambda command: (
        access_rows.token_key(command.token_id),
        access_rows.user_key(command.user_id),
        access_rows.user_key(command.by),
    ),
    decide=decide_token_revocation,
)

SLICES = (
    add_user,
    grant_role,
    revoke_role,
    disable_user,
    enable_user,
    erase_user,
    note_password,
    note_failed_sign_ins,
    void_credentials,
    create_token,
    revoke_token,
)
