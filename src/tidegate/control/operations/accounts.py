"""Identify people: names, passwords, sessions, API tokens and the setup code.

Secrets and names are stored in rows that can be erased. Facts record what happened to them; the
verbs in ``access`` commit these facts.
"""

from __future__ import annotations

import hmac
import os
import secrets as randomness
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from tidegate import decoders, errors
from tidegate.clock import Clock
from tidegate.control.operations import api_tokens, passwords
from tidegate.control.operations.execute import Execute
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.secrets import Secrets, hash_secret
from tidegate.domain.access import callers, erasable_rows, principals, refusals, rows, slices
from tidegate.kernel.model import NO_META, Key, Meta
from tidegate.kernel.records.actions import CreateRow
from tidegate.kernel.records.records import Records

SETUP_CODE_LIFE: Final = timedelta(minutes=15)
RESET_LIFE: Final = timedelta(hours=24)
RESET_CODE_GROUPS = 5  # of 16 bits
SEEN_EVERY: Final = timedelta(minutes=1)  # a session's row is written at most so often
FAILURES_RECORDED_EVERY: Final = timedelta(
    minutes=1
)  # per user: failures in between go into one fact
FAILING_USERS_MAX = 10_000
CREDENTIALS_PAGE = 100


class WrongCredentials(errors.Forbidden):
    """The name or the password is wrong, or the user is disabled. The answer does not say which."""

    code = "wrong_credentials"


class SessionRequired(errors.Forbidden):
    """Sign in first: to change your own password takes a session and the current password."""

    code = "session_required"


class WrongSetupCode(errors.Forbidden):
    """The setup code is wrong, was used, or is too old; a restart prints a new one."""

    code = "wrong_setup_code"


class WrongResetCode(errors.Forbidden):
    """The sign-in name or the reset code is wrong, or the code was used or is too old."""

    code = "wrong_reset_code"

    def __init__(self) -> None:
        super().__init__(
            "The name or the code is wrong, or the code was used or is older than"
            f" {RESET_LIFE // timedelta(hours=1)} hours."
        )


class PersonNames(msgspec.Struct, frozen=True):
    """A person's sign-in name and display name; encrypted where they are stored."""

    login: str
    name: str


_names_decoder = decoders.build(PersonNames)


class OpenedSession(msgspec.Struct, frozen=True):
    """A new session: the value of its cookie, and the CSRF token that forms send back."""

    user_id: str
    cookie: str
    csrf: str


class ResetCode(msgspec.Struct, frozen=True):
    """The one-time code of a password reset; the code itself is not stored."""

    credential_id: str
    code: str
    expires_at: datetime


class AuthenticatedUser(msgspec.Struct, frozen=True):
    """A user who authenticated with a session or a token."""

    user: rows.User
    session: str = ""
    csrf: str = ""
    token: rows.ApiToken | None = None


class Accounts:
    """The people of one installation and their credentials."""

    def __init__(
        self,
        execute: Execute,
        reads: Reads,
        records: Callable[[Meta], Records],
        secrets: Secrets,
        clock: Clock,
        code_file: Path,
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._records = records
        self._secrets = secrets
        self._clock = clock
        self._code_file = code_file
        self._setup: tuple[str, datetime] | None = None
        self._failures: dict[str, tuple[int, datetime]] = {}
        self._lock = Lock()
        self.tokens = api_tokens.ApiTokens(reads, records, clock)

    # ── first start ──

    @property
    def is_set_up(self) -> bool:
        return self._reads.find(rows.installation_key(), rows.InstallationRow) is not None

    def open_setup(self) -> str | None:
        """Make a one-time code for the first user, and write it to a file that only its owner can
        read.

        None: the installation already has users.
        """
        if self.is_set_up:
            return None
        code = _make_code(4)
        with self._lock:
            self._setup = hash_secret(code), self._clock()
        handle = os.open(self._code_file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(code + "\n")
        return code

    def check_setup_code(self, code: str) -> None:
        """Raises: WrongSetupCode."""
        now = self._clock()
        with self._lock:
            expected, since = self._setup or ("", now)
        fits = hmac.compare_digest(expected, hash_secret(code.strip()))
        if not fits or now - since > SETUP_CODE_LIFE:
            raise WrongSetupCode("the setup code is not the one that this server printed")

    def end_setup(self) -> None:
        """Delete the setup code, because the first user exists."""
        with self._lock:
            self._setup = None
        self._code_file.unlink(missing_ok=True)

    # ── people ──

    def called(self, user_id: str) -> PersonNames | None:
        """Return the names of a user; None: erased or unknown."""
        found = self._reads.find(Key(erasable_rows.PEOPLE.name, user_id), erasable_rows.Person)
        return None if found is None else self._unsealed(found.row)

    def name_of(self, user_id: str) -> str | None:
        """Return the current display name of a user; None: erased or unknown."""
        called = self.called(user_id)
        return None if called is None else called.name

    def keep_person(
        self, user_id: str, called: PersonNames, password: str | None, meta: Meta
    ) -> ResetCode | None:
        """Store the names and the password of a person who is about to become a user.

        Without a password, return a one-time code with which they choose one.

        Raises:
            UserExists, WeakPassword.
        """
        made = None
        if password is None:
            made = ResetCode(user_id, _make_code(RESET_CODE_GROUPS), self._clock() + RESET_LIFE)
            credential = erasable_rows.Credential(
                user_id, "", hash_secret(made.code), made.expires_at
            )
        else:
            passwords.check_password(password, called.login)
            credential = erasable_rows.Credential(user_id, passwords.stretch_password(password))
        login = self._login(called.login)
        try:
            self._records(meta).transaction(
                CreateRow(erasable_rows.LOGINS.name, login, erasable_rows.Login(user_id)),
                CreateRow(
                    erasable_rows.PEOPLE.name,
                    user_id,
                    erasable_rows.Person(user_id, self._sealed(user_id, called), login),
                ),
                CreateRow(erasable_rows.CREDENTIALS.name, user_id, credential),
            )
        except errors.ConditionFailed:
            raise refusals.UserExists("the sign-in name is taken", field="login") from None
        return made

    def forget_person(self, user_id: str, meta: Meta) -> None:
        """Delete the names and all passwords of a user, including those left over by a crash."""
        records = self._records(meta)
        person = records.find(erasable_rows.PEOPLE.name, user_id)
        if person is not None:
            records.delete(erasable_rows.LOGINS.name, person.value.login)
            records.delete(erasable_rows.PEOPLE.name, user_id)
        while True:
            found = self._reads.range(
                erasable_rows.CREDENTIALS, index="by_user", of=(user_id,), limit=CREDENTIALS_PAGE
            )
            for item in found:
                records.delete(erasable_rows.CREDENTIALS.name, item.id)
            if len(found) < CREDENTIALS_PAGE:
                return

    def keep_password(
        self, caller: callers.Caller, user_id: str, password: str, credential_id: str
    ) -> bool:
        """Store a password that is not valid yet; False: it was already stored.

        Raises:
            WeakPassword.
                IdempotencyMismatch: another password was stored under this id.
        """
        called = self.called(user_id)
        passwords.check_password(password, "" if called is None else called.login)
        earlier = self._reads.find(
            Key(erasable_rows.CREDENTIALS.name, credential_id), erasable_rows.Credential
        )
        if earlier is None:
            kept = erasable_rows.Credential(user_id, passwords.stretch_password(password))
            self._records(caller.meta).create(erasable_rows.CREDENTIALS.name, credential_id, kept)
        elif not passwords.is_password(password, earlier.row.scrypt):
            raise errors.IdempotencyMismatch(str(caller.commit_key))
        return earlier is None

    def keep_reset(self, caller: callers.Caller, user_id: str) -> ResetCode:
        """Store a one-time code for a new password; it is not valid yet."""
        credential_id, code = randomness.token_hex(13), _make_code(RESET_CODE_GROUPS)
        expires_at = self._clock() + RESET_LIFE
        kept = erasable_rows.Credential(user_id, "", hash_secret(code), expires_at)
        self._records(caller.meta).create(erasable_rows.CREDENTIALS.name, credential_id, kept)
        return ResetCode(credential_id, code, expires_at)

    def check_reset(self, login: str, code: str) -> tuple[str, str]:
        """Return the ids of the user and of the credential that this reset code belongs to.

        Raises:
            WrongResetCode.
        """
        found = self._reads.find(
            Key(erasable_rows.LOGINS.name, self._login(login)), erasable_rows.Login
        )
        user = None if found is None else self._user(found.row.user_id)
        if user is None:
            raise WrongResetCode
        kept = self._reads.find(
            Key(erasable_rows.CREDENTIALS.name, user.credential_id), erasable_rows.Credential
        )
        if kept is None or kept.row.expires_at is None or self._clock() > kept.row.expires_at:
            raise WrongResetCode
        if not hmac.compare_digest(kept.row.reset_sha256, hash_secret(code.strip())):
            raise WrongResetCode
        return user.user_id, user.credential_id

    def forget_password(self, credential_id: str, meta: Meta) -> None:
        self._records(meta).delete(erasable_rows.CREDENTIALS.name, credential_id)

    def check_own_password(self, user_id: str, password: str) -> None:
        """Check that a signed-in user knows their current password. Raises: WrongCredentials."""
        _, expected = self._user_and_password(user_id)
        if not passwords.is_password(password, expected):
            self._note_failure(user_id)
            raise WrongCredentials("the current password is wrong", field="current")

    def check_sign_in(self, login: str, password: str) -> rows.User:
        """Return the user with this sign-in name and password. Raises: WrongCredentials."""
        found = self._reads.find(
            Key(erasable_rows.LOGINS.name, self._login(login)), erasable_rows.Login
        )
        user_id = "nobody" if found is None else found.row.user_id
        user, expected = self._user_and_password(user_id)
        if not passwords.is_password(password, expected) or user is None or not user.enabled:
            if user is not None:
                self._note_failure(user_id)
            raise WrongCredentials("the sign-in name or the password is wrong")
        if not expected.startswith(passwords.cost_prefix()):
            self._stretch_again(user, password, expected)
        return user

    def _stretch_again(self, user: rows.User, password: str, kept: str) -> None:
        """Store a password again with the current scrypt cost; it was stored with another one."""
        found = self._reads.find(
            Key(erasable_rows.CREDENTIALS.name, user.credential_id), erasable_rows.Credential
        )
        if found is None or found.row.scrypt != kept:
            return  # changed meanwhile
        stretched = erasable_rows.Credential(user.user_id, passwords.stretch_password(password))
        records = self._records(Meta(actor=user.user_id))
        with suppress(errors.ConditionFailed):  # changed meanwhile, perhaps by another sign-in
            records.put(
                erasable_rows.CREDENTIALS.name, user.credential_id, stretched, expect=found.version
            )

    def _login(self, login: str) -> str:
        folded = login.casefold().encode()
        return self._secrets.mac("logins", folded).hex()

    def _sealed(self, user_id: str, called: PersonNames) -> str:
        return self._secrets.seal("names", user_id, msgspec.json.encode(called))

    def _unsealed(self, person: erasable_rows.Person) -> PersonNames:
        return _names_decoder.decode(self._secrets.unseal("names", person.user_id, person.sealed))

    # ── sessions ──

    def open_session(self, user: rows.User) -> OpenedSession:
        cookie = randomness.token_urlsafe(32)
        now = self._clock()
        session = erasable_rows.Session(user.user_id, now, now, user.credentials_version)
        self._records(Meta(actor=user.user_id)).create(
            erasable_rows.SESSIONS.name, hash_secret(cookie), session
        )
        return OpenedSession(user.user_id, cookie, self._csrf(cookie))

    def open_session_after(self, user_id: str, credential_id: str) -> OpenedSession:
        """Open a session for a user whose password was just changed to this credential.

        Raises:
            WrongCredentials: the password was changed again, or the user was disabled.
        """
        user = self._user(user_id)
        if user is None or user.credential_id != credential_id:
            raise WrongCredentials("your password was changed again; sign in")
        return self.open_session(user)

    def close_session(self, session: str) -> None:
        self._records(NO_META).delete(erasable_rows.SESSIONS.name, session)

    def _user_and_password(self, user_id: str) -> tuple[rows.User | None, str]:
        """Return a user and their stored password. For an unknown user, return one that no password
        matches, so that the check takes the same time.
        """
        user = self._reads.find(rows.user_key(user_id), rows.User)
        if user is None:
            return None, passwords.stand_in()
        credential = self._reads.find(
            Key(erasable_rows.CREDENTIALS.name, user.row.credential_id), erasable_rows.Credential
        )
        return user.row, (
            credential.row.scrypt if credential is not None else ""
        ) or passwords.stand_in()

    def session(self, cookie: str) -> AuthenticatedUser | None:
        """Return the user of this cookie, unless its session is idle for too long or too old."""
        found = self._reads.find(
            Key(erasable_rows.SESSIONS.name, hash_secret(cookie)), erasable_rows.Session
        )
        if found is None:
            return None
        user = self._user(found.row.user_id)
        if user is None or not self._is_open(found.row, user):
            return None
        now = self._clock()
        if now - found.row.seen_at > SEEN_EVERY:
            self._see(found, now)
        return AuthenticatedUser(user, session=found.id, csrf=self._csrf(cookie))

    def principal_of_session(self, cookie: str) -> principals.Principal | None:
        """Return the principal for a session's cookie; None: not valid."""
        found = self.session(cookie)
        return None if found is None else self._principal(found)

    def principal_of_token(self, text: str) -> principals.Principal | None:
        """Return the principal for an API token; None: not valid."""
        found = self.token(text)
        return None if found is None else self._principal(found)

    def _principal(self, found: AuthenticatedUser) -> principals.Principal:
        """Return the principal for a user and the session or token that they used."""
        user, token = found.user, found.token
        return principals.Principal(
            user.user_id,
            "session" if token is None else "token",
            user.grants,
            None if token is None else token.grants,
            found.session,
            found.csrf,
            "" if token is None else token.token_id,
            user.credentials_version,
            self.approvals_barred_until(user),
        )

    def _see(self, found: Found[erasable_rows.Session], now: datetime) -> None:
        seen = msgspec.structs.replace(found.row, seen_at=now)
        try:
            self._records(NO_META).put(
                erasable_rows.SESSIONS.name, found.id, seen, expect=found.version
            )
        except errors.ConditionFailed:
            return  # signed out, or written by another request meanwhile

    def is_still_authenticated(self, user_id: str, session: str, token_id: str) -> rows.User | None:
        """Return the user if the session or token that they used is still valid; else None."""
        user = self._user(user_id)
        if user is None:
            return None
        if token_id:
            token = self._reads.find(rows.token_key(token_id), rows.ApiToken)
            return (
                user if token is not None and self.tokens.is_token_valid(token.row, user) else None
            )
        found = self._reads.find(Key(erasable_rows.SESSIONS.name, session), erasable_rows.Session)
        if found is None or not self._is_open(found.row, user):
            return None
        return user

    def _is_open(self, session: erasable_rows.Session, user: rows.User) -> bool:
        now = self._clock()
        return (
            session.credentials_version == user.credentials_version
            and now - session.seen_at <= erasable_rows.SESSION_IDLE
            and now - session.created_at <= erasable_rows.SESSION_LIFE
        )

    def _csrf(self, cookie: str) -> str:
        return self._secrets.mac("csrf", cookie.encode()).hex()

    def _note_failure(self, user_id: str) -> None:
        """Count a failed sign-in; record the count at most once per user and minute."""
        now = self._clock()
        with self._lock:
            count, recorded_at = self._failures.get(user_id, (0, now - 2 * FAILURES_RECORDED_EVERY))
            count += 1
            due = now - recorded_at > FAILURES_RECORDED_EVERY
            if len(self._failures) >= FAILING_USERS_MAX:
                self._failures.clear()
            self._failures[user_id] = (0, now) if due else (count, recorded_at)
        if due:
            command = slices.NoteFailedSignIns(user_id=user_id, count=count)
            self._execute(slices.note_failed_sign_ins, command, caller_of(user_id))

    def approvals_barred_until(self, user: rows.User) -> datetime | None:
        """Until when the user cannot approve, because another person reset their password."""
        until = user.approvals_barred_until
        return until if until is not None and until > self._clock() else None

    def token(self, text: str) -> AuthenticatedUser | None:
        """Return the user of this API token, if it is valid; else None."""
        row = self.tokens.find_token(text)
        if row is None:
            return None
        user = self._user(row.user_id)
        return (
            AuthenticatedUser(user, token=row)
            if user and self.tokens.is_token_valid(row, user)
            else None
        )

    def _user(self, user_id: str) -> rows.User | None:
        found = self._reads.find(rows.user_key(user_id), rows.User)
        return found.row if found is not None and found.row.enabled else None


def _make_code(groups: int) -> str:
    """Make a code in groups that are easy to read aloud."""
    return "-".join(randomness.token_hex(2) for _ in range(groups))


def new_user_id() -> str:
    return f"user_{randomness.token_hex(10)}"


def caller_of(user_id: str) -> callers.Caller:
    """Return a caller for commands that follow from this user's sign-in or failed sign-in."""
    return callers.Caller(principal=principals.Principal(user_id, "none"))
