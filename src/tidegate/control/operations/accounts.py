"""People at the door: the setup code, passwords, sessions, API tokens, and how a name is erased.

Secrets and names are kept rows; that something happened to them is a fact. The kept row is written
first: without its fact it opens nothing, so a crash in between leaves nothing half open. What is
erased goes the other way round: first the fact, which closes every door, then the rows.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets as randomness
from datetime import datetime, timedelta
from hashlib import scrypt
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct
from msgspec.structs import replace

from tidegate import decoders
from tidegate.control.installation import Installation
from tidegate.control.queries.reads import Found
from tidegate.control.runtime import CommandOutcome
from tidegate.control.secrets import hash_secret
from tidegate.domain.access.erasable_rows import (
    CREDENTIALS,
    LOGINS,
    PEOPLE,
    SESSION_IDLE,
    SESSION_LIFE,
    SESSIONS,
    TOKEN_SECRETS,
    Credential,
    Login,
    Person,
    Session,
    TokenSecret,
)
from tidegate.domain.access.facts import PasswordChanged
from tidegate.domain.access.refusals import TokenExists, UserExists
from tidegate.domain.access.roles import Grant
from tidegate.domain.access.rows import (
    ApiToken,
    InstallationRow,
    User,
    installation_key,
    token_key,
    user_key,
)
from tidegate.domain.access.slices import (
    AddUser,
    CreateToken,
    EraseUser,
    NoteFailedSignIns,
    NotePassword,
    add_user,
    create_token,
    erase_user,
    is_current,
    note_failed_sign_ins,
    note_password,
)
from tidegate.domain.setup import SetUp, set_up
from tidegate.errors import (
    ConditionFailed,
    Forbidden,
    IdempotencyMismatch,
    Invalid,
    TidegateError,
    Unknown,
)
from tidegate.kernel.model import NO_META, Key, Meta
from tidegate.kernel.records.actions import CreateRow

PASSWORD_CHARS_MIN = 10
PASSWORD_CHARS_MAX = 256
SETUP_CODE_LIFE: Final = timedelta(minutes=15)
SEEN_EVERY: Final = timedelta(minutes=1)  # how often a session's row is written
FAILURES_TOLD_EVERY: Final = timedelta(minutes=1)  # per user: many failures are one fact
FAILING_USERS_MAX = 10_000
CREDENTIALS_PAGE = 100
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 1
TOKEN_PREFIX = "tg"


class WrongCredentials(Forbidden):
    """The name or the password is wrong, or the user is disabled; which of them is not told."""

    code = "wrong_credentials"


class SessionRequired(Forbidden):
    """You change your own password in a session, with the current password: sign in first."""

    code = "session_required"


class WrongSetupCode(Forbidden):
    """The setup code is another one, was used, or is too old; a restart prints a new one."""

    code = "wrong_setup_code"


class WeakPassword(Invalid):
    """A password has 10 to 256 characters and is not the sign-in name."""

    code = "weak_password"


class PersonNames(Struct, frozen=True):
    """How a person is called; sealed where it is stored."""

    login: str
    name: str


_called = decoders.build(PersonNames)


class OpenedSession(Struct, frozen=True):
    """A session that was just opened: what the cookie holds, and what forms send back."""

    user_id: str
    cookie: str
    csrf: str


class AuthenticatedUser(Struct, frozen=True):
    """Somebody who proved who they are."""

    user: User
    session: str = ""
    csrf: str = ""
    token: ApiToken | None = None


class Accounts:
    """The doors of one installation."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._setup: tuple[str, datetime] | None = None
        self._failures: dict[str, tuple[int, datetime]] = {}
        self._lock = Lock()
        self._cipher = AESGCM(installation.secrets.key("names"))
        self._stand_in = stretch_password(randomness.token_hex(16))  # for names that nobody has

    # ── first start ──

    @property
    def is_set_up(self) -> bool:
        return self._installation.reads.find(installation_key(), InstallationRow) is not None

    def open_setup(self) -> str | None:
        """A one-time code for the first user, also in a file that only its owner reads; None:
        there are users already.
        """
        if self.is_set_up:
            return None
        code = "-".join(randomness.token_hex(2) for _ in range(4))
        with self._lock:
            self._setup = hash_secret(code), self._installation.clock()
        handle = os.open(self._code_file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(code + "\n")
        return code

    def set_up(
        self, code: str, called: PersonNames, password: str, *, alone: bool
    ) -> CommandOutcome:
        """The first user. Raises: WrongSetupCode, WeakPassword, AlreadySetUp."""
        now = self._installation.clock()
        with self._lock:
            expected, since = self._setup or ("", now)
        fits = hmac.compare_digest(expected, hash_secret(code.strip()))
        if not fits or now - since > SETUP_CODE_LIFE:
            raise WrongSetupCode("the setup code is not the one that this server printed")
        user_id = new_user_id()
        self._keep(user_id, called, password, NO_META)
        try:
            outcome = self._installation.run(
                set_up, SetUp(user_id=user_id, alone=alone), meta=Meta(actor=user_id)
            )
        except TidegateError as error:
            if not isinstance(error, Unknown):
                self._forget(user_id, NO_META)
            raise
        with self._lock:
            self._setup = None
        self._code_file.unlink(missing_ok=True)
        return outcome

    @property
    def _code_file(self) -> Path:
        return Path(self._installation.settings.data) / "setup-code"

    # ── users ──

    def add(
        self,
        user_id: str,
        called: PersonNames,
        password: str,
        grants: tuple[Grant, ...],
        meta: Meta,
        key: str | None,
    ) -> CommandOutcome:
        """A user with a name and a password. Raises: UserExists, WeakPassword."""
        command = AddUser(user_id=user_id, by=meta.actor, grants=grants)
        earlier = self.called(user_id)  # its id comes from the key: a repeat finds itself
        if earlier is None:
            self._keep(user_id, called, password, meta)
        elif earlier != called:
            raise IdempotencyMismatch(str(key))
        try:
            return self._installation.run(add_user, command, meta=meta, key=key)
        except TidegateError as error:
            if earlier is None and not isinstance(error, Unknown):
                self._forget(user_id, meta)
            raise

    def erase(self, user_id: str, meta: Meta, key: str | None) -> CommandOutcome:
        """No byte of the person is left; the id stays in the history."""
        command = EraseUser(user_id=user_id, by=meta.actor)
        outcome = self._installation.run(erase_user, command, meta=meta, key=key)
        self._forget(user_id, meta)
        return outcome

    def check_own_password(self, user_id: str, password: str) -> None:
        """That a signed-in user knows the password of today. Raises: WrongCredentials."""
        _, expected = self._user_and_password(user_id)
        if not is_password(password, expected):
            self._note_failure(user_id)
            raise WrongCredentials("the current password is wrong", field="current")

    def change_password(
        self, user_id: str, password: str, credential_id: str, meta: Meta, key: str | None
    ) -> CommandOutcome:
        """Set a password and end all sessions and API tokens of its user.

        ``credential_id`` names the new row of credentials, and is the same when a request repeats.

        Raises:
            WeakPassword, NotAdministrator, UserNotFound, UserGone.
        """
        called = self.called(user_id)
        check_password(password, "" if called is None else called.login)
        records = self._installation.records(meta)
        earlier = self._installation.reads.find(Key(CREDENTIALS.name, credential_id), Credential)
        if earlier is None:
            kept = Credential(user_id, stretch_password(password))
            records.create(CREDENTIALS.name, credential_id, kept)
        elif not is_password(password, earlier.row.scrypt):
            raise IdempotencyMismatch(str(key))
        command = NotePassword(user_id=user_id, by=meta.actor, credential_id=credential_id)
        try:
            outcome = self._installation.run(note_password, command, meta=meta, key=key)
        except TidegateError as error:
            if earlier is None and not isinstance(error, Unknown):
                records.delete(CREDENTIALS.name, credential_id)
            raise
        for fact in outcome.facts:
            if isinstance(fact, PasswordChanged):  # only what this commit replaced: others may
                records.delete(CREDENTIALS.name, fact.replaces)  # change it at the same time
        return outcome

    def called(self, user_id: str) -> PersonNames | None:
        """How a user is called; None: erased, or nobody."""
        found = self._installation.reads.find(Key(PEOPLE.name, user_id), Person)
        return None if found is None else self._unsealed(found.row)

    def _keep(self, user_id: str, called: PersonNames, password: str, meta: Meta) -> None:
        """Name, sign-in and password of somebody who is about to be a user."""
        check_password(password, called.login)
        login = self._login(called.login)
        try:
            self._installation.records(meta).transaction(
                CreateRow(LOGINS.name, login, Login(user_id)),
                CreateRow(
                    PEOPLE.name, user_id, Person(user_id, self._sealed(user_id, called), login)
                ),
                CreateRow(
                    CREDENTIALS.name, user_id, Credential(user_id, stretch_password(password))
                ),
            )
        except ConditionFailed:
            raise UserExists("the sign-in name is taken", field="login") from None

    def _forget(self, user_id: str, meta: Meta) -> None:
        records = self._installation.records(meta)
        person = records.find(PEOPLE.name, user_id)
        if person is not None:
            records.delete(LOGINS.name, person.value.login)
            records.delete(PEOPLE.name, user_id)
        self._forget_credentials(user_id, meta)

    def _forget_credentials(self, user_id: str, meta: Meta) -> None:
        """Delete every password that a user had, also those that a crash left."""
        records = self._installation.records(meta)
        while True:
            found = self._installation.reads.range(
                CREDENTIALS, index="by_user", of=(user_id,), limit=CREDENTIALS_PAGE
            )
            for item in found:
                records.delete(CREDENTIALS.name, item.id)
            if len(found) < CREDENTIALS_PAGE:
                return

    def _login(self, login: str) -> str:
        folded = login.casefold().encode()
        return self._installation.secrets.mac("logins", folded).hex()

    def _sealed(self, user_id: str, called: PersonNames) -> str:
        nonce = randomness.token_bytes(12)
        text = msgspec.json.encode(called)
        return base64.b64encode(
            nonce + self._cipher.encrypt(nonce, text, user_id.encode())
        ).decode()

    def _unsealed(self, person: Person) -> PersonNames:
        sealed = base64.b64decode(person.sealed)
        text = self._cipher.decrypt(sealed[:12], sealed[12:], person.user_id.encode())
        return _called.decode(text)

    # ── sessions ──

    def sign_in(self, login: str, password: str) -> OpenedSession:
        """A new session. Raises: WrongCredentials."""
        found = self._installation.reads.find(Key(LOGINS.name, self._login(login)), Login)
        user_id = "nobody" if found is None else found.row.user_id
        user, expected = self._user_and_password(user_id)
        if not is_password(password, expected) or user is None or not user.enabled:
            if user is not None:
                self._note_failure(user_id)
            raise WrongCredentials("the sign-in name or the password is wrong")
        return self._open_session(user)

    def open_session_after(self, user_id: str, credential_id: str) -> OpenedSession:
        """A new session of a user who just changed their password to this one.

        Raises:
            WrongCredentials: the password was changed again, or the user was disabled.
        """
        user = self._user(user_id)
        if user is None or user.credential_id != credential_id:
            raise WrongCredentials("your password was changed again; sign in")
        return self._open_session(user)

    def _open_session(self, user: User) -> OpenedSession:
        cookie = randomness.token_urlsafe(32)
        now = self._installation.clock()
        records = self._installation.records(Meta(actor=user.user_id))
        session = Session(user.user_id, now, now, user.credentials_version)
        records.create(SESSIONS.name, hash_secret(cookie), session)
        return OpenedSession(user.user_id, cookie, self._csrf(cookie))

    def _user_and_password(self, user_id: str) -> tuple[User | None, str]:
        """A user and the password that counts now. For an unknown user it is a stand-in that no
        password fits, so that the check takes as long.
        """
        user = self._installation.reads.find(user_key(user_id), User)
        if user is None:
            return None, self._stand_in
        credential = self._installation.reads.find(
            Key(CREDENTIALS.name, user.row.credential_id), Credential
        )
        return user.row, self._stand_in if credential is None else credential.row.scrypt

    def session(self, cookie: str) -> AuthenticatedUser | None:
        """Who has this cookie, if its session is neither idle too long nor too old."""
        found = self._installation.reads.find(Key(SESSIONS.name, hash_secret(cookie)), Session)
        if found is None:
            return None
        user = self._user(found.row.user_id)
        if user is None or not self._is_open(found.row, user):
            return None
        now = self._installation.clock()
        if now - found.row.seen_at > SEEN_EVERY:
            self._see(found, now)
        return AuthenticatedUser(user, session=found.id, csrf=self._csrf(cookie))

    def _see(self, found: Found[Session], now: datetime) -> None:
        seen = replace(found.row, seen_at=now)
        try:
            self._installation.records(NO_META).put(
                SESSIONS.name, found.id, seen, expect=found.version
            )
        except ConditionFailed:
            return  # signed out, or seen by another request, at this moment

    def is_still_authenticated(self, user_id: str, session: str, token_id: str) -> User | None:
        """The user, if the session or token by which they came is good at this moment."""
        user = self._user(user_id)
        if user is None:
            return None
        if token_id:
            token = self._installation.reads.find(token_key(token_id), ApiToken)
            return user if token is not None and self.is_token_valid(token.row, user) else None
        found = self._installation.reads.find(Key(SESSIONS.name, session), Session)
        if found is None or not self._is_open(found.row, user):
            return None
        return user

    def _is_open(self, session: Session, user: User) -> bool:
        now = self._installation.clock()
        return (
            session.credentials_version == user.credentials_version
            and now - session.seen_at <= SESSION_IDLE
            and now - session.created_at <= SESSION_LIFE
        )

    def sign_out(self, session: str) -> None:
        self._installation.records(NO_META).delete(SESSIONS.name, session)

    def _csrf(self, cookie: str) -> str:
        return self._installation.secrets.mac("csrf", cookie.encode()).hex()

    def _note_failure(self, user_id: str) -> None:
        """At most one fact per user and minute, with how many there were."""
        now = self._installation.clock()
        with self._lock:
            count, told_at = self._failures.get(user_id, (0, now - 2 * FAILURES_TOLD_EVERY))
            count += 1
            due = now - told_at > FAILURES_TOLD_EVERY
            if len(self._failures) >= FAILING_USERS_MAX:
                self._failures.clear()
            self._failures[user_id] = (0, now) if due else (count, told_at)
        if due:
            command = NoteFailedSignIns(user_id=user_id, count=count)
            self._installation.run(note_failed_sign_ins, command, meta=Meta(actor=user_id))

    # ── API tokens ──

    def create_token(
        self,
        token_id: str,
        days: int,
        grants: tuple[Grant, ...] | None,
        meta: Meta,
        *,
        parent_id: str = "",
        credentials_version: int | None = None,
    ) -> tuple[str, CommandOutcome]:
        """The token, shown this once, and where the log says that it exists.

        ``parent_id`` is the token that asks for it, if one does: the new one ends with it.
        ``credentials_version`` is the one that the request was authenticated under.

        Raises:
            CredentialsEnded, TokenExists, UserIsDisabled, LimitExceeded.
        """
        secret = randomness.token_urlsafe(32)
        records = self._installation.records(meta)
        kept = TokenSecret(token_id, hash_secret(secret))
        try:
            records.create(TOKEN_SECRETS.name, token_id, kept)
        except ConditionFailed:
            raise TokenExists(token_id) from None
        command = CreateToken(
            user_id=meta.actor,
            token_id=token_id,
            days=days,
            grants=grants,
            parent_id=parent_id,
            credentials_version=credentials_version,
        )
        outcome = self._installation.run(create_token, command, meta=meta)
        return f"{TOKEN_PREFIX}_{token_id}_{secret}", outcome

    def token(self, text: str) -> AuthenticatedUser | None:
        """Whose API token this is, if it is good at this moment."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        if prefix != TOKEN_PREFIX or not token_id or len(text) > 256 or not text.isascii():
            return None
        if not text.isprintable():
            return None
        token, kept = self._installation.reads.find_all(
            (token_key(token_id), ApiToken), (Key(TOKEN_SECRETS.name, token_id), TokenSecret)
        )
        if token is None or kept is None:
            return None
        if not hmac.compare_digest(kept.row.sha256, hash_secret(secret)):
            return None
        row: ApiToken = token.row
        user = self._user(row.user_id)
        return (
            AuthenticatedUser(user, token=row) if user and self.is_token_valid(row, user) else None
        )

    def is_token_valid(self, token: ApiToken, owner: User) -> bool:
        """Whether a token opens anything: it is current, and so is every token it came from."""
        if not is_current(token, owner, self._installation.clock()):
            return False
        wanted = [(token_key(id), ApiToken) for id in token.ancestors]
        ancestors = self._installation.reads.find_all(*wanted) if wanted else ()
        return all(item is not None and item.row.revoked_at is None for item in ancestors)

    def _user(self, user_id: str) -> User | None:
        found = self._installation.reads.find(user_key(user_id), User)
        return found.row if found is not None and found.row.enabled else None


def new_user_id() -> str:
    return f"user_{randomness.token_hex(10)}"


def check_password(password: str, login: str) -> None:
    """Raises: WeakPassword."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        raise WeakPassword(
            f"a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters, "
            f"found {len(password)}",
            field="password",
        )
    if password.casefold() == login.casefold():
        raise WeakPassword("the password is the sign-in name", field="password")


def stretch_password(password: str) -> str:
    """A password as it is kept."""
    salt, costs = randomness.token_bytes(16), (SCRYPT_N, SCRYPT_R, SCRYPT_P)
    found = _scrypt(password, salt, *costs)
    return "$".join([*map(str, costs), salt.hex(), found.hex()])


def is_password(password: str, kept: str) -> bool:
    """By the costs that it was kept with: those of today may be higher."""
    *costs, salt, expected = kept.split("$")
    found = _scrypt(password, bytes.fromhex(salt), *map(int, costs))
    return hmac.compare_digest(found.hex(), expected)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = password.encode(errors="surrogatepass")
    return scrypt(text, salt=salt, n=n, r=r, p=p, dklen=32)
