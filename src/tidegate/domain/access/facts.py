"""The facts about access. They name users by id and contain no secret, hash or name."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct

from tidegate.domain.access.roles import Grant, Role
from tidegate.kernel import tags, vocabulary

UserId = Annotated[str, tags.Partition()]
TokenId = Annotated[str, tags.Tag()]


class InstallationSetUp(Struct, frozen=True):
    """The first user was created with the setup code."""

    installation: Annotated[str, tags.Partition()]
    user_id: Annotated[str, tags.Untagged()]
    alone: bool  # one person: the default repository needs no approval by another


class UserAdded(Struct, frozen=True):
    user_id: UserId
    by: str


class RoleGranted(Struct, frozen=True):
    user_id: UserId
    role: Role
    scope: str
    by: str


class RoleRevoked(Struct, frozen=True):
    user_id: UserId
    role: Role
    scope: str
    by: str


class PasswordChanged(Struct, frozen=True):
    """The password is now the one in this row of ``credentials``. Sessions and tokens end."""

    user_id: UserId
    by: str
    credential_id: Annotated[str, tags.Untagged()]
    replaces: str  # the row with the old password, which is deleted


class UserDisabled(Struct, frozen=True):
    """The user cannot sign in. Sessions and tokens end, and enabling does not revive them."""

    user_id: UserId
    by: str
    reason: str = ""


class UserEnabled(Struct, frozen=True):
    user_id: UserId
    by: str


class UserErased(Struct, frozen=True):
    """The person's name, sign-in name and credentials were erased. The id stays in the history."""

    user_id: UserId
    by: str


class TokenCreated(Struct, frozen=True, omit_defaults=True):
    """An API token of a user. Without grants of its own it may do what its owner may do.

    It ends with the credentials that created it: with any of its ``ancestors``, the chain of tokens
    that created it, and when the owner's ``credentials_version`` grows.
    """

    user_id: UserId
    token_id: TokenId
    by: str
    expires_at: datetime
    grants: tuple[Grant, ...] | None = None
    ancestors: tuple[str, ...] = ()
    credentials_version: int = 0


class TokenRevoked(Struct, frozen=True):
    user_id: UserId
    token_id: TokenId
    by: str


class CredentialsVoided(Struct, frozen=True):
    """A backup was restored, so the user's sessions and tokens end. The password stays."""

    user_id: UserId
    by: str


class SignInFailed(Struct, frozen=True):
    """The number of sign-ins of a user that failed since the last such fact."""

    user_id: UserId
    count: int


FACTS = vocabulary.facts(
    "security",
    InstallationSetUp,
    UserAdded,
    RoleGranted,
    RoleRevoked,
    PasswordChanged,
    UserDisabled,
    UserEnabled,
    UserErased,
    TokenCreated,
    TokenRevoked,
    SignInFailed,
    CredentialsVoided,
)
