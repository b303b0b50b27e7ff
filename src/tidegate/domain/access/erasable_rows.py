"""Rows about access that have no history: they can be erased, and then nothing is left of them.

    people        how a user is called, sealed; found by user id
    logins        a sign-in name's user; the id is a keyed hash of the name
    credentials   a password, stretched by scrypt, or the SHA-256 of a reset's code; it counts
                  while its user's row names it
    token_secrets the SHA-256 of an API token's secret
    sessions      a signed-in browser; the id is the SHA-256 of what its cookie holds
    log_ids       which log this is: blobs carry it too

Names are sealed with the installation's secret, which lies outside the database: so no page, no
write-ahead log and no backup of the database ever holds a byte of one.
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
    """A password, or the one-time code of a reset, with which its user chooses a password."""

    user_id: str
    scrypt: str  # n$r$p$salt$hash; empty: no password fits
    reset_sha256: str = ""
    expires_at: datetime | None = None  # of a reset


class TokenSecret(Struct, frozen=True):
    token_id: str
    sha256: str


class Session(Struct, frozen=True):
    user_id: str
    created_at: datetime
    seen_at: datetime
    credentials_version: int  # of its user, when it was opened


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


SESSION_IDLE: Final = timedelta(minutes=30)


SESSION_LIFE: Final = timedelta(hours=12)
