"""The folds that compute the rows of access from its facts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from tidegate.domain.access import facts, roles, rows
from tidegate.kernel import folds, model

installations = folds.Fold(
    collection=rows.INSTALLATIONS,
    number=1,
    reads=(facts.InstallationSetUp,),
    ids=lambda fact: (fact.installation,),
    start=lambda id, fact: rows.InstallationRow(fact.user_id, fact.alone),
    step=lambda row, fact, now: replace(row, set_up_at=now),
)


APPROVALS_BARRED: Final = timedelta(hours=24)  # after a reset by another person

UserFact = (
    facts.UserAdded
    | facts.RoleGranted
    | facts.RoleRevoked
    | facts.PasswordChanged
    | facts.UserDisabled
    | facts.UserEnabled
    | facts.UserErased
    | facts.TokenCreated
    | facts.TokenRevoked
    | facts.SignInFailed
    | facts.CredentialsVoided
)


def step_user(row: rows.User, fact: UserFact, now: datetime) -> rows.User:
    match fact:
        case facts.UserAdded():
            return replace(row, added_at=now)
        case facts.RoleGranted(role=role, scope=scope):
            return replace(row, grants=tuple(sorted({*row.grants, roles.Grant(role, scope)})))
        case facts.RoleRevoked(role=role, scope=scope):
            gone = roles.Grant(role, scope)
            return replace(row, grants=tuple(item for item in row.grants if item != gone))
        case facts.PasswordChanged(credential_id=credential_id, by=by):
            changed = replace(row, password_changed_at=now, credential_id=credential_id)
            if by != row.user_id:  # the other person may know it and must not approve with it
                changed = replace(changed, approvals_barred_until=now + APPROVALS_BARRED)
            return _end_credentials(changed)
        case facts.UserDisabled():
            return _end_credentials(replace(row, enabled=False))
        case facts.CredentialsVoided():
            return _end_credentials(row)
        case facts.UserEnabled():
            return replace(row, enabled=True)
        case facts.UserErased():
            return replace(row, enabled=False, erased=True, grants=())
        case facts.TokenCreated():
            return replace(row, tokens=row.tokens + 1)
        case facts.TokenRevoked():
            return replace(row, tokens=row.tokens - 1)
        case facts.SignInFailed(count=count):
            return replace(row, sign_ins_failed=row.sign_ins_failed + count)


def _end_credentials(row: rows.User) -> rows.User:
    return replace(row, tokens=0, credentials_version=row.credentials_version + 1)


users = folds.Fold(
    collection=rows.USERS,
    number=2,
    reads=(
        facts.UserAdded,
        facts.RoleGranted,
        facts.RoleRevoked,
        facts.PasswordChanged,
        facts.UserDisabled,
        facts.UserEnabled,
        facts.UserErased,
        facts.TokenCreated,
        facts.TokenRevoked,
        facts.SignInFailed,
        facts.CredentialsVoided,
    ),
    ids=lambda fact: (fact.user_id,),
    start=lambda id, fact: rows.User(id, fact.by, credential_id=id),
    step=step_user,
)


def step_token(
    row: rows.ApiToken, fact: facts.TokenCreated | facts.TokenRevoked, now: datetime
) -> rows.ApiToken:
    match fact:
        case facts.TokenCreated():
            return replace(row, created_at=now)
        case facts.TokenRevoked():
            return replace(row, revoked_at=now)


api_tokens = folds.Fold(
    collection=rows.API_TOKENS,
    number=1,
    reads=(facts.TokenCreated, facts.TokenRevoked),
    ids=lambda fact: (fact.token_id,),
    start=lambda id, fact: rows.ApiToken(
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


def history_of_user(user_id: str) -> model.Query:
    """The query for all events about a user's access."""
    types = frozenset(fact.__name__ for fact in users.reads)
    return model.Query((model.Clause(types, frozenset({f"user_id:{user_id}"})),))


FOLDS = (installations, users, api_tokens)
