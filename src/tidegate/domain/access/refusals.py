"""The errors of requests about users, roles and tokens."""

from __future__ import annotations

from datetime import datetime

from tidegate import errors
from tidegate.domain.times import describe_time

SHOWN_CHARS_MAX = 80


class InvalidScope(errors.Invalid):
    """A scope is ``*``, ``repository:<name>`` or ``channel:<name>``."""

    code = "invalid_scope"

    def __init__(self, scope: str) -> None:
        shown = scope[:SHOWN_CHARS_MAX]
        super().__init__(
            f"{shown!r} is no scope; allowed are *, repository:<name> and channel:<name>",
            field="scope",
            found=shown,
        )


class InvalidAccess(errors.Invalid):
    """A field of a request about access is malformed."""

    code = "invalid_access"


class UserNotFound(errors.Formatted, errors.NotFound):
    """There is no user with this id."""

    code = "user_not_found"
    message = "there is no user {user_id}"
    user_id: str


class TokenNotFound(errors.Formatted, errors.NotFound):
    """There is no API token with this id."""

    code = "token_not_found"
    message = "there is no token {token_id}"
    token_id: str


class AlreadySetUp(errors.Conflict):
    """The installation has its first user; an administrator adds others."""

    code = "already_set_up"


class UserExists(errors.Conflict):
    """The user's id or sign-in name is taken."""

    code = "user_exists"


class TokenExists(errors.Formatted, errors.Conflict):
    """The token was created and shown once before; revoke it and create another."""

    code = "token_exists"
    message = "token {token_id} was made before and is not shown again"
    token_id: str


class UserGone(errors.Formatted, errors.Gone):
    """The user was erased and cannot be restored."""

    code = "user_erased"
    message = "{user_id} was erased"
    user_id: str


class UserIsDisabled(errors.Formatted, errors.Refused):
    """The user is disabled; enable it first."""

    code = "user_disabled"
    message = "{user_id} is disabled"
    user_id: str


class OwnAccess(errors.Forbidden):
    """You cannot change your own roles, disable or erase yourself; another person must."""

    code = "own_access"


class NotAdministrator(errors.Forbidden):
    """The caller was not an administrator of this installation at the moment of the commit."""

    code = "not_administrator"


class CredentialsEnded(errors.Formatted, errors.Refused):
    """The session or token ended while its request was being processed."""

    code = "credentials_ended"
    message = "The session or token of this request has ended. Sign in again."


class NotOwner(errors.Forbidden):
    """Only its owner changes a password; only its owner or an administrator changes a token."""

    code = "not_owner"


class ApprovalsBarred(errors.Refused):
    """Another person reset your password less than a day ago; you cannot approve anything yet."""

    code = "approvals_barred"

    def __init__(self, until: datetime) -> None:
        super().__init__(
            "Your password was reset by another person, so you cannot approve before "
            f"{describe_time(until)}. Ask another approver.",
            until=until.isoformat(),
        )


class MissingPermission(errors.Forbidden):
    """None of your roles allows this on this scope; ask an administrator for one that does."""

    code = "missing_permission"
