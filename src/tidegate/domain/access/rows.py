"""What stands about access: the installation, its users with their roles, their API tokens.

installations   whether it is set up, and whether one person works alone
users           enabled or not, and what each may do
api_tokens      whose they are, until when they are good
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.access.facts import (
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
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Fold
from tidegate.kernel.model import Clause, Key, Query

INSTALLATION = "main"  # there is one per log

# ── the installation ──────────────────────────────────────────────────────────────────────────────


class InstallationRow(Struct, frozen=True):
    set_up_by: str
    alone: bool
    set_up_at: datetime | None = None


INSTALLATIONS = Collection(
    "installations", InstallationRow, writers=Writers.FOLDED, nature=Nature.DERIVED
)
installations = Fold(
    collection=INSTALLATIONS,
    number=1,
    reads=(InstallationSetUp,),
    ids=lambda fact: (fact.installation,),
    start=lambda id, fact: InstallationRow(fact.user_id, fact.alone),
    step=lambda row, fact, now: replace(row, set_up_at=now),
)

# ── users ─────────────────────────────────────────────────────────────────────────────────────────


class User(Struct, frozen=True, omit_defaults=True):
    user_id: str
    added_by: str
    added_at: datetime | None = None
    enabled: bool = True
    erased: bool = False
    grants: tuple[Grant, ...] = ()  # sorted, distinct
    tokens: int = 0  # not revoked, and not ended by a change of password or by disabling
    credential_id: str = ""  # the row of credentials with the password
    credentials_version: int = 0  # sessions and tokens of a lower version have ended
    password_changed_at: datetime | None = None
    sign_ins_failed: int = 0  # ever


USERS = Collection("users", User, writers=Writers.FOLDED, nature=Nature.DERIVED)

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
        case PasswordChanged(credential_id=credential_id):
            changed = replace(row, password_changed_at=now, credential_id=credential_id)
            return _end_credentials(changed)
        case UserDisabled():
            return _end_credentials(replace(row, enabled=False))
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
    number=1,
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
    ),
    ids=lambda fact: (fact.user_id,),
    start=lambda id, fact: User(id, fact.by, credential_id=id),
    step=step_user,
)

# ── API tokens ────────────────────────────────────────────────────────────────────────────────────


class ApiToken(Struct, frozen=True, omit_defaults=True):
    token_id: str
    user_id: str
    created_by: str
    expires_at: datetime
    created_at: datetime | None = None
    grants: tuple[Grant, ...] | None = None  # None: whatever its owner may
    revoked_at: datetime | None = None
    ancestors: tuple[str, ...] = ()  # the tokens by which it was made, the oldest first
    credentials_version: int = 0  # of its owner, when it was made


API_TOKENS = Collection(
    "api_tokens",
    ApiToken,
    writers=Writers.FOLDED,
    nature=Nature.LOOKUP,
    columns=("user_id",),
    indexes=(Index("by_user", ("user_id",)),),
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


def installation_key() -> Key:
    return Key(INSTALLATIONS.name, INSTALLATION)


def user_key(user_id: str) -> Key:
    return Key(USERS.name, user_id)


def token_key(token_id: str) -> Key:
    return Key(API_TOKENS.name, token_id)


def history_of_user(user_id: str) -> Query:
    """All that happened to a user's access."""
    types = frozenset(fact.__name__ for fact in users.reads)
    return Query((Clause(types, frozenset({f"user_id:{user_id}"})),))


COLLECTIONS = (INSTALLATIONS, USERS, API_TOKENS)
FOLDS = (installations, users, api_tokens)
