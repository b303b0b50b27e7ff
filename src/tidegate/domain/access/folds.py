"""How the facts about access become its rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from tidegate.domain.access.facts import (
    CredentialsVoided,
    InstallationSetUp,
    PasswordChanged,
    RoleGranted,
    RoleRevoked,
    SignInFailed,
    TokenCreated,
    TokenRevoked,
    UserAdded,
    UserDisabled,
    UserEnabled,
    UserErased,
)
from tidegate.domain.access.roles import Grant
from tidegate.domain.access.rows import (
    API_TOKENS,
    INSTALLATIONS,
    USERS,
    ApiToken,
    InstallationRow,
    User,
)
from tidegate.kernel.folds import Fold
from tidegate.kernel.model import Clause, Query

installations = Fold(
    collection=INSTALLATIONS,
    number=1,
    reads=(InstallationSetUp,),
    ids=lambda fact: (fact.installation,),
    start=lambda id, fact: InstallationRow(fact.user_id, fact.alone),
    step=lambda row, fact, now: replace(row, set_up_at=now),
)


APPROVALS_BARRED: Final = timedelta(hours=24)  # after a reset by another person

UserFact = (
    UserAdded
    | RoleGranted
    | RoleRevoked
    | PasswordChanged
    | UserDisabled
    | UserEnabled
    | UserErased
    | TokenCreated
    | TokenRevoked
    | SignInFailed
    | CredentialsVoided
)


def step_user(row: User, fact: UserFact, now: datetime) -> User:
    match fact:
        case UserAdded():
            return replace(row, added_at=now)
        case RoleGranted(role=role, scope=scope):
            return replace(row, grants=tuple(sorted({*row.grants, Grant(role, scope)})))
        case RoleRevoked(role=role, scope=scope):
            gone = Grant(role, scope)
            return replace(row, grants=tuple(item for item in row.grants if item != gone))
        case PasswordChanged(credential_id=credential_id, by=by):
            changed = replace(row, password_changed_at=now, credential_id=credential_id)
            if by != row.user_id:  # who reset it knows it, and must not approve with it
                changed = replace(changed, approvals_barred_until=now + APPROVALS_BARRED)
            return _end_credentials(changed)
        case UserDisabled():
            return _end_credentials(replace(row, enabled=False))
        case CredentialsVoided():
            return _end_credentials(row)
        case UserEnabled():
            return replace(row, enabled=True)
        case UserErased():
            return replace(row, enabled=False, erased=True, grants=())
        case TokenCreated():
            return replace(row, tokens=row.tokens + 1)
        case TokenRevoked():
            return replace(row, tokens=row.tokens - 1)
        case SignInFailed(count=count):
            return replace(row, sign_ins_failed=row.sign_ins_failed + count)


def _end_credentials(row: User) -> User:
    return replace(row, tokens=0, credentials_version=row.credentials_version + 1)


users = Fold(
    collection=USERS,
    number=2,
    reads=(
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
    ),
    ids=lambda fact: (fact.user_id,),
    start=lambda id, fact: User(id, fact.by, credential_id=id),
    step=step_user,
)


def step_token(row: ApiToken, fact: TokenCreated | TokenRevoked, now: datetime) -> ApiToken:
    match fact:
        case TokenCreated():
            return replace(row, created_at=now)
        case TokenRevoked():
            return replace(row, revoked_at=now)


api_tokens = Fold(
    collection=API_TOKENS,
    number=1,
    reads=(TokenCreated, TokenRevoked),
    ids=lambda fact: (fact.token_id,),
    start=lambda id, fact: ApiToken(
        id,
        fact.user_id,
        fact.by,
        fact.expires_at,
        grants=fact.grants,
        ancestors=fact.ancestors,
        credentials_version=fact.credentials_version,
    ),
    step=step_token,
)


def history_of_user(user_id: str) -> Query:
    """All that happened to a user's access."""
    types = frozenset(fact.__name__ for fact in users.reads)
    return Query((Clause(types, frozenset({f"user_id:{user_id}"})),))


FOLDS = (installations, users, api_tokens)
