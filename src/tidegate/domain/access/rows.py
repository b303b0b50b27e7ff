"""The rows of access: the installation, its users with their roles, and their API tokens.

installations   whether it is set up, and whether one person works alone
users           whether each is enabled, and its roles
api_tokens      the owner of each, and when it expires
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.access.roles import Grant
from tidegate.kernel import collections as kernel_collections, model

INSTALLATION = "main"  # there is one per log

# ── the installation ──────────────────────────────────────────────────────────────────────────────


class InstallationRow(Struct, frozen=True):
    set_up_by: str
    alone: bool
    set_up_at: datetime | None = None


INSTALLATIONS = kernel_collections.Collection(
    "installations",
    InstallationRow,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)

# ── users ─────────────────────────────────────────────────────────────────────────────────────────


class User(Struct, frozen=True, omit_defaults=True):
    user_id: str
    added_by: str
    added_at: datetime | None = None
    enabled: bool = True
    erased: bool = False
    grants: tuple[Grant, ...] = ()  # sorted, distinct
    tokens: int = 0  # those not revoked, and not ended by a newer ``credentials_version``
    credential_id: str = ""  # the row of credentials with the password
    credentials_version: int = 0  # sessions and tokens of a lower version have ended
    password_changed_at: datetime | None = None
    approvals_barred_until: datetime | None = None  # another person reset the password
    sign_ins_failed: int = 0  # ever


USERS = kernel_collections.Collection(
    "users",
    User,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


# ── API tokens ────────────────────────────────────────────────────────────────────────────────────


class ApiToken(Struct, frozen=True, omit_defaults=True):
    token_id: str
    user_id: str
    created_by: str
    expires_at: datetime
    created_at: datetime | None = None
    grants: tuple[Grant, ...] | None = None  # None: the same as its owner
    revoked_at: datetime | None = None
    ancestors: tuple[str, ...] = ()  # the chain of tokens that created it, the oldest first
    credentials_version: int = 0  # of its owner, when it was created


API_TOKENS = kernel_collections.Collection(
    "api_tokens",
    ApiToken,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.LOOKUP,
    columns=("user_id",),
    indexes=(kernel_collections.Index("by_user", ("user_id",)),),
)


def installation_key() -> model.Key:
    return model.Key(INSTALLATIONS.name, INSTALLATION)


def user_key(user_id: str) -> model.Key:
    return model.Key(USERS.name, user_id)


def token_key(token_id: str) -> model.Key:
    return model.Key(API_TOKENS.name, token_id)


COLLECTIONS = (INSTALLATIONS, USERS, API_TOKENS)
