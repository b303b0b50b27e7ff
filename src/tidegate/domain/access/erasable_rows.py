"""Rows about access that have no history, so that erasing them removes them completely.

    people        a user's encrypted name and sign-in name, by user id
    logins        the user of a sign-in name; the id is a keyed hash of the name
    credentials   a password, hashed by scrypt, or the SHA-256 of a reset code; it is valid
                  while its user's row names it
    token_secrets the SHA-256 of an API token's secret
    sessions      a signed-in browser; the id is the SHA-256 of its cookie's value

Names are encrypted with the installation's secret, which is stored outside the database. So no
page, write-ahead log or backup of the database contains a name in plain text.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from tidegate.kernel.collections import Collection, Index, Nature


class Person(Struct, frozen=True):
    user_id: str
    sealed: str  # {login, name}, encrypted: control/secrets.py
    login: str  # the id of its row in logins


class Login(Struct, frozen=True):
    user_id: str


class Credential(Struct, frozen=True):
    """A password, or the one-time code with which a user chooses a new password."""

    user_id: str
    scrypt: str  # n$r$p$salt$hash; empty: no password is accepted
    reset_sha256: str = ""
    expires_at: datetime | None = None  # of a reset


class TokenSecret(Struct, frozen=True):
    token_id: str
    sha256: str


class Session(Struct, frozen=True):
    user_id: str
    created_at: datetime
    seen_at: datetime
    credentials_version: int  # of its user, when the session began


PEOPLE = Collection("people", Person)
LOGINS = Collection("logins", Login)
CREDENTIALS = Collection(
    "credentials",
    Credential,
    columns=("user_id",),
    indexes=(Index("by_user", ("user_id",)),),
)
TOKEN_SECRETS = Collection("token_secrets", TokenSecret, nature=Nature.LOOKUP)
SESSIONS = Collection(
    "sessions",
    Session,
    nature=Nature.LOOKUP,
    columns=("user_id",),
)

COLLECTIONS = (PEOPLE, LOGINS, CREDENTIALS, TOKEN_SECRETS, SESSIONS)


SESSION_IDLE: Final = timedelta(minutes=30)  # a session that is not used for so long ends
SESSION_LIFE: Final = timedelta(hours=12)  # after which a session ends in any case
