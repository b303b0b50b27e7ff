"""Users, roles, passwords, API tokens and sessions: what people do about access.

Secrets and names are stored in rows that can be erased; facts record that they changed. The row is
written first. Until its fact is committed it gives no access, so a crash in between does no harm.
Erasure works in the opposite order: first the fact, which ends all access, then the rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct, structs

from tidegate import errors, rate_limits
from tidegate.control.operations import accounts as operation_accounts, ids, protection
from tidegate.control.operations.execute import Execute
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, facts, folds, refusals, roles, rows, slices, steps
from tidegate.domain.setup import SetUp, set_up
from tidegate.kernel import model, slices as kernel_slices

NAMES_PER_ADDRESS: Final = 10


class ChangedUser(Struct, frozen=True):
    """The user after an operation, and the log position of the change."""

    user: Found[rows.User]
    position: model.Position
    warnings: tuple[str, ...] = ()  # protected channels that now have too few approvers


class PasswordChange(Struct, frozen=True):
    """The log position of a password change, and the user's new session."""

    position: model.Position
    session: operation_accounts.OpenedSession


class CreatedToken(Struct, frozen=True):
    """A new API token. ``token`` is not stored: show it now."""

    token_id: str
    token: str
    expires_at: datetime
    position: model.Position


class PasswordReset(Struct, frozen=True):
    """A password reset. ``code`` is not stored: show it now."""

    login: str
    code: str
    expires_at: datetime
    position: model.Position


class AddedUser(Struct, frozen=True):
    """A new user, its log position, and the reset with which it gets its first password."""

    user: Found[rows.User]
    position: model.Position
    reset: PasswordReset | None  # None: it has a password, or the code was already shown


class AccessOperations:
    """The verbs of access. ``attempts`` limits how often a client may guess a secret."""

    def __init__(
        self,
        execute: Execute,
        reads: Reads,
        history: RowHistory,
        accounts: operation_accounts.Accounts,
        attempts: rate_limits.Bucket,
        guard: protection.ProtectionGuard,
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._history = history
        self._accounts = accounts
        self._attempts = attempts
        self._guard = guard

    # ── users ──

    def add_user(
        self,
        caller: callers.Caller,
        called: operation_accounts.PersonNames,
        password: str | None,
        grants: tuple[roles.Grant, ...],
    ) -> AddedUser:
        """Add a user with roles. Without a first password, this returns a one-time code with which
        the user chooses one.

        Raises:
            MissingPermission, NotAdministrator, UserExists, WeakPassword, InvalidScope.
            IdempotencyMismatch: the key was used for a user with other names.
        """
        caller.demand(steps.ADD_USER, roles.EVERYWHERE)
        for grant in grants:
            roles.check_scope(grant.scope)
        user_id = f"user_{ids.make_id(caller, steps.ADD_USER, 'user')[:20]}"
        command = slices.AddUser(user_id=user_id, by=caller.id, grants=grants)
        earlier = self._accounts.called(user_id)  # a repeat has the same id
        made = None  # a repeat gets no code: it is shown only once
        if earlier is None:
            made = self._accounts.keep_person(user_id, called, password, caller.meta)
        elif earlier != called:
            raise errors.IdempotencyMismatch(str(caller.commit_key))
        try:
            outcome = self._execute(slices.add_user, command, caller)
        except errors.TidegateError as error:
            if earlier is None and not isinstance(error, errors.Unknown):
                self._accounts.forget_person(user_id, caller.meta)
            raise
        left = self._left_by(user_id, outcome)
        if made is None:
            return AddedUser(left.user, left.position, None)
        reset = PasswordReset(called.login, made.code, made.expires_at, left.position)
        return AddedUser(left.user, left.position, reset)

    def grant(self, caller: callers.Caller, user_id: str, grant: roles.Grant) -> ChangedUser:
        """Give another user a role on a scope. Raises: InvalidScope, and as ``_change``."""
        roles.check_scope(grant.scope)
        command = slices.GrantRole(user_id=user_id, by=caller.id, grant=grant)
        return self._change(steps.GRANT_ROLE, caller, user_id, slices.grant_role, command)

    def revoke(self, caller: callers.Caller, user_id: str, grant: roles.Grant) -> ChangedUser:
        """Take a role on a scope from another user. Raises: InvalidScope, and as ``_change``."""
        roles.check_scope(grant.scope)
        command = slices.RevokeRole(user_id=user_id, by=caller.id, grant=grant)
        return self._change(steps.REVOKE_ROLE, caller, user_id, slices.revoke_role, command)

    def disable(self, caller: callers.Caller, user_id: str, reason: str) -> ChangedUser:
        """End all sessions and tokens of another user, who cannot sign in until enabled.

        Raises: see ``_change``.
        """
        command = slices.DisableUser(user_id=user_id, by=caller.id, reason=reason)
        return self._change(steps.DISABLE_USER, caller, user_id, slices.disable_user, command)

    def enable(self, caller: callers.Caller, user_id: str) -> ChangedUser:
        """Let another user sign in again. Raises: see ``_change``."""
        command = slices.EnableUser(user_id=user_id, by=caller.id)
        return self._change(steps.ENABLE_USER, caller, user_id, slices.enable_user, command)

    def erase(self, caller: callers.Caller, user_id: str) -> ChangedUser:
        """Delete the names and passwords of another user; the id stays in the history.

        Raises: see ``_change``.
        """
        command = slices.EraseUser(user_id=user_id, by=caller.id)
        erased = self._change(steps.ERASE_USER, caller, user_id, slices.erase_user, command)
        self._accounts.forget_person(user_id, caller.meta)
        return erased

    def _change(
        self,
        step: steps.Step,
        caller: callers.Caller,
        user_id: str,
        item: kernel_slices.Slice,
        command: Struct,
    ) -> ChangedUser:
        """Change another user. Warn of protected channels that then have too few approvers.

        Raises:
            MissingPermission, NotAdministrator, UserNotFound, UserGone, OwnAccess.
        """
        caller.demand(step, roles.EVERYWHERE)
        before = self._reads.find(rows.user_key(user_id), rows.User)
        left = self._left_by(user_id, self._execute(item, command, caller))
        warnings = () if before is None else self._guard.list_unapproved(before.row)
        return structs.replace(left, warnings=warnings)

    def _left_by(self, user_id: str, outcome: CommandOutcome) -> ChangedUser:
        found = self._history.row_after(
            outcome, folds.users, user_id, folds.history_of_user(user_id)
        )
        if found is None:
            raise refusals.UserNotFound(user_id)
        return ChangedUser(found, outcome.position or found.version)

    # ── passwords ──

    def set_password(
        self, caller: callers.Caller, user_id: str, password: str, current: str = ""
    ) -> PasswordChange:
        """Change your own password. This requires a session and the ``current`` password.

        All sessions and API tokens end, and a new session is opened.

        Raises:
            NotOwner, MissingPermission, SessionRequired, WrongCredentials, RateLimited,
            WeakPassword, IdempotencyMismatch.
        """
        if caller.principal.narrowed is not None:
            raise refusals.MissingPermission(
                "the token that you use is narrowed: it changes no password"
            )
        if user_id != caller.id:
            raise refusals.NotOwner(
                "Only the user knows and changes their password. To reset it, an administrator"
                " runs: tidegate user reset-password USER"
            )
        if not caller.principal.session:
            raise operation_accounts.SessionRequired(
                "Sign in to change your own password. An API token cannot change it."
            )
        self._attempts.take(f"password {user_id}")
        self._accounts.check_own_password(user_id, current)
        credential_id = ids.make_id(caller, steps.CHANGE_PASSWORD, "credential")
        outcome = self._replace_password(caller, user_id, password, credential_id)
        session = self._accounts.open_session_after(user_id, credential_id)
        return PasswordChange(outcome.position, session)

    def reset_password(self, caller: callers.Caller, user_id: str) -> PasswordReset:
        """End the password, sessions and API tokens of another user, and return a one-time code
        with which they choose a new password. They cannot approve anything for a day.

        Raises:
            MissingPermission, UserNotFound, UserGone, OwnAccess.
        """
        caller.demand(steps.RESET_PASSWORD, roles.EVERYWHERE)
        if user_id == caller.id:
            raise refusals.OwnAccess("You change your own password with the current one.")
        made = self._accounts.keep_reset(caller, user_id)
        # Without the idempotency key: the code is shown once, so a repeat replaces it by a new one.
        command = slices.NotePassword(
            user_id=user_id, by=caller.id, credential_id=made.credential_id
        )
        outcome = self._note_password(command, structs.replace(caller, key=None))
        called = self._accounts.called(user_id)
        login = "" if called is None else called.login
        return PasswordReset(login, made.code, made.expires_at, outcome.position)

    def redeem_reset(self, login: str, code: str, password: str, *, address: str) -> model.Position:
        """Choose a new password with a reset code. ``address`` is the client's.

        Returns the log position of the change.

        Raises:
            RateLimited, WrongResetCode, WeakPassword.
        """
        attempt, elsewhere = f"login {login.casefold()} {address}", f"address {address}"
        self._attempts.take(elsewhere, 1 / NAMES_PER_ADDRESS)
        self._attempts.take(attempt)
        user_id, reset_id = self._accounts.check_reset(login, code)
        self._attempts.give_back(attempt)
        self._attempts.give_back(elsewhere, 1 / NAMES_PER_ADDRESS)
        caller = operation_accounts.caller_of(user_id)
        credential_id = ids.make_id(caller, steps.REDEEM_RESET, "credential")
        self._accounts.keep_password(caller, user_id, password, credential_id)
        command = slices.NotePassword(
            user_id=user_id, by=user_id, credential_id=credential_id, replaces=reset_id
        )
        try:
            return self._note_password(command, caller).position
        except refusals.CredentialsEnded:
            raise operation_accounts.WrongResetCode from None

    def _replace_password(
        self, caller: callers.Caller, user_id: str, password: str, credential_id: str
    ) -> CommandOutcome:
        """Store the new password, make it the valid one, and delete the previous one.

        A repeat of the request has the same ``credential_id``.
        """
        is_new = self._accounts.keep_password(caller, user_id, password, credential_id)
        command = slices.NotePassword(user_id=user_id, by=caller.id, credential_id=credential_id)
        return self._note_password(command, caller, is_new=is_new)

    def _note_password(
        self, command: slices.NotePassword, caller: callers.Caller, *, is_new: bool = True
    ) -> CommandOutcome:
        """Make a stored credential the valid one. If that is refused, delete it if it is new."""
        try:
            outcome = self._execute(slices.note_password, command, caller)
        except errors.TidegateError as error:
            if is_new and not isinstance(error, errors.Unknown):
                self._accounts.forget_password(command.credential_id, caller.meta)
            raise
        for fact in outcome.facts:
            if isinstance(
                fact, facts.PasswordChanged
            ):  # only what this commit replaced: others may
                self._accounts.forget_password(fact.replaces, caller.meta)  # change it meanwhile
        return outcome

    # ── API tokens ──

    def create_token(
        self, caller: callers.Caller, days: int, grants: tuple[roles.Grant, ...] | None = None
    ) -> CreatedToken:
        """Make an API token of your own. ``grants`` narrow it; None: it has all your permissions.

        A token cannot make a token with wider grants, and the new one ends when its parent ends.

        Raises:
            MissingPermission, CredentialsEnded, TokenExists, UserIsDisabled, InvalidScope,
            LimitExceeded.
        """
        for grant in grants or ():
            roles.check_scope(grant.scope)
        principal = caller.principal
        if principal.narrowed is not None:
            grants = principal.narrowed if grants is None else grants
            _demand_within(grants, principal.narrowed)
        token_id = ids.make_id(caller, steps.CREATE_TOKEN, "token")
        token = self._accounts.tokens.keep_token(token_id, caller.meta)
        command = slices.CreateToken(
            user_id=caller.id,
            token_id=token_id,
            days=days,
            grants=grants,
            parent_id=principal.token_id,
            credentials_version=principal.credentials_version,
        )
        # Without the idempotency key: the token is shown once, so a repeat raises TokenExists.
        try:
            outcome = self._execute(slices.create_token, command, structs.replace(caller, key=None))
        except errors.TidegateError as error:
            if not isinstance(error, errors.Unknown):
                self._accounts.tokens.forget_token(token_id, caller.meta)
            raise
        if not self._accounts.tokens.is_kept(token_id, token):
            raise refusals.TokenExists(token_id)  # another copy of the request made it meanwhile
        found = self._reads.demand(
            rows.token_key(token_id), rows.ApiToken, refusals.TokenNotFound(token_id)
        )
        return CreatedToken(token_id, token, found.row.expires_at, outcome.position)

    def revoke_token(self, caller: callers.Caller, token_id: str) -> model.Position:
        """Revoke an API token: your own, or as an administrator another user's.

        Returns the log position of the change.

        Raises:
            TokenNotFound, NotOwner.
        """
        found = self._reads.demand(
            rows.token_key(token_id), rows.ApiToken, refusals.TokenNotFound(token_id)
        )
        principal = caller.principal
        command = slices.RevokeToken(
            user_id=found.row.user_id,
            token_id=token_id,
            by=caller.id,
            through=principal.token_id,
            narrowed=principal.narrowed is not None,
            may_administer=principal.may(roles.Verb.ADMINISTER),
        )
        outcome = self._execute(slices.revoke_token, command, caller)
        return outcome.position or found.version

    # ── the first start and sessions: no one is signed in yet, so there is no caller ──

    def set_up(
        self,
        code: str,
        called: operation_accounts.PersonNames,
        password: str,
        *,
        alone: bool,
        address: str,
    ) -> model.Position:
        """Make the first user, with the one-time code that the server printed.

        ``address`` is the client's. Returns the log position of the change.

        Raises:
            RateLimited, WrongSetupCode, WeakPassword, AlreadySetUp.
        """
        self._attempts.take(f"setup {address}")
        self._accounts.check_setup_code(code)
        user_id = operation_accounts.new_user_id()
        self._accounts.keep_person(user_id, called, password, model.NO_META)
        command = SetUp(user_id=user_id, alone=alone)
        try:
            outcome = self._execute(set_up, command, operation_accounts.caller_of(user_id))
        except errors.TidegateError as error:
            if not isinstance(error, errors.Unknown):
                self._accounts.forget_person(user_id, model.NO_META)
            raise
        self._accounts.end_setup()
        return outcome.position

    def sign_in(
        self, login: str, password: str, *, address: str
    ) -> operation_accounts.OpenedSession:
        """Open a session. ``address`` is the client's.

        Failures are counted per name and address, so that guessing a person's password from
        elsewhere does not lock them out. One address may fail ``NAMES_PER_ADDRESS`` times as often
        over all names.

        Raises:
            RateLimited, WrongCredentials.
        """
        attempt, elsewhere = f"login {login.casefold()} {address}", f"address {address}"
        self._attempts.take(elsewhere, 1 / NAMES_PER_ADDRESS)
        self._attempts.take(attempt)
        user = self._accounts.check_sign_in(login, password)
        self._attempts.give_back(attempt)
        self._attempts.give_back(elsewhere, 1 / NAMES_PER_ADDRESS)
        return self._accounts.open_session(user)

    def sign_out(self, caller: callers.Caller) -> None:
        """Close the caller's session, if there is one."""
        if caller.principal.session:
            self._accounts.close_session(caller.principal.session)


def reset_path(made: PasswordReset) -> str:
    """Return the path of the page for a new password, with name and code filled in."""
    return f"/reset?{urlencode({'login': made.login, 'code': made.code})}"


def _demand_within(grants: tuple[roles.Grant, ...], narrowed: tuple[roles.Grant, ...]) -> None:
    """Check that a narrowed token does not make a wider one. Raises: MissingPermission."""
    for item in grants:
        if item not in narrowed and roles.Grant(item.role) not in narrowed:
            raise refusals.MissingPermission(
                f"the token that you use is narrowed: it is no {item.role} on {item.scope}",
                role=item.role,
                scope=item.scope,
            )
