"""Users, roles and tokens as rules: given rows, when a command, then facts or a refusal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.package_log import direct
from tidegate.clock import ManualClock
from tidegate.control.runtime import Control
from tidegate.domain import setup
from tidegate.domain.access import declarations as access
from tidegate.domain.access.facts import (
    InstallationSetUp,
    RoleGranted,
    RoleRevoked,
    TokenCreated,
    UserAdded,
    UserErased,
)
from tidegate.domain.access.refusals import (
    AlreadySetUp,
    CredentialsEnded,
    InvalidAccess,
    InvalidScope,
    NotAdministrator,
    NotOwner,
    OwnAccess,
    TokenNotFound,
    UserExists,
    UserGone,
    UserIsDisabled,
    UserNotFound,
)
from tidegate.domain.access.roles import VERBS, Grant, Role, Verb, allows, check_scope
from tidegate.domain.access.rows import ApiToken, User, token_key, user_key
from tidegate.domain.access.slices import (
    AddUser,
    CreateToken,
    DisableUser,
    EnableUser,
    EraseUser,
    GrantRole,
    NoteFailedSignIns,
    NotePassword,
    RevokeRole,
    RevokeToken,
)
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.packages.facts import RepositoryCreated
from tidegate.domain.setup import SetUp
from tidegate.engines.memory import MemoryStore
from tidegate.errors import LimitExceeded
from tidegate.kernel import codec
from tidegate.kernel.model import ALL, Key
from tidegate.kernel.replay import differences

T0 = datetime(2026, 1, 27, 10, 0, tzinfo=UTC)
ADMIN, OTHER = "user_admin0000", "user_other0000"
SLICES = {item.command: item for item in (*access.SLICES, *setup.SLICES)}


class AccessLog:
    """An installation whose administrator was just set up."""

    def __init__(self, *, alone: bool = False) -> None:
        self.store = MemoryStore(SCHEMA)
        self.clock = ManualClock(T0)
        self.control = Control(self.store, FOLDS, direct(self.store), clock=self.clock)
        self.do(SetUp(user_id=ADMIN, alone=alone))

    def do(self, command: Struct) -> tuple[Struct, ...]:
        return self.control.execute(SLICES[type(command)], command).facts

    def row(self, key: Key, model: type[Any]) -> Any:
        (record,) = self.store.get(key)
        return None if record is None else codec.decode(record.data, model)

    def user(self, user_id: str) -> User:
        found: User = self.row(user_key(user_id), User)
        return found

    def add(self, user_id: str = OTHER, *grants: Grant) -> None:
        self.do(AddUser(user_id=user_id, by=ADMIN, grants=grants))


@pytest.fixture
def access_log() -> AccessLog:
    return AccessLog()


# ── roles ─────────────────────────────────────────────────────────────────────────────────────────


def test_administrators_have_no_permission_on_releases() -> None:
    verbs = VERBS[Role.SECURITY_ADMIN]

    assert not verbs & {Verb.AUTHOR, Verb.APPROVE, Verb.RELEASE, Verb.OPERATE}


def test_every_role_may_read() -> None:
    assert all(Verb.READ in verbs for verbs in VERBS.values())
    assert set(VERBS) == set(Role)


@given(
    st.frozensets(st.sampled_from(Role), max_size=4),
    st.sampled_from(Verb),
    st.sampled_from(["*", "repository:a", "repository:b", "channel:a"]),
    st.sampled_from(["*", "repository:a", "repository:b", "channel:a"]),
)
def test_a_scope_is_covered_by_itself_or_by_the_whole(
    roles: frozenset[Role], verb: Verb, granted: str, asked: str
) -> None:
    grants = [Grant(role, granted) for role in roles]

    expected = granted in ("*", asked) and any(verb in VERBS[role] for role in roles)
    assert allows(grants, verb, asked) is expected
    assert allows(grants, verb, None) is any(verb in VERBS[role] for role in roles)


@pytest.mark.parametrize("scope", ["*", "repository:a", "channel:web-stable", "repository:a1"])
def test_accepts_scopes_without_trailing_text(scope: str) -> None:
    check_scope(scope)

    for more in ("\n", " ", "*", ":"):
        with pytest.raises(InvalidScope):
            check_scope(scope + more)


@pytest.mark.parametrize(
    "scope", ["", "**", "repository:", "repository:*", "host:a", "channel:A", "repository:a\n", "a"]
)
def test_refuses_malformed_scopes(scope: str) -> None:
    with pytest.raises(InvalidScope):
        check_scope(scope)


# ── setting up ────────────────────────────────────────────────────────────────────────────────────


def test_sets_up_a_team_with_an_administrator_and_one_approval() -> None:
    access_log = AccessLog()

    facts = [FOLDS.vocabulary.value(event) for event in access_log.store.read(ALL).events]

    assert facts == [
        InstallationSetUp("main", ADMIN, False),
        UserAdded(ADMIN, ADMIN),
        RoleGranted(ADMIN, Role.SECURITY_ADMIN, "*", ADMIN),
        RoleGranted(ADMIN, Role.ON_CALL, "*", ADMIN),
        RepositoryCreated("default", 1, False, False, ADMIN),
    ]


def test_sets_up_one_person_with_every_role_and_no_approval() -> None:
    access_log = AccessLog(alone=True)

    assert {grant.role for grant in access_log.user(ADMIN).grants} == set(Role)
    last = [FOLDS.vocabulary.value(event) for event in access_log.store.read(ALL).events][-1]
    assert last == RepositoryCreated("default", 0, False, False, ADMIN)


def test_allows_setup_only_once(access_log: AccessLog) -> None:
    with pytest.raises(AlreadySetUp):
        access_log.do(SetUp(user_id=OTHER, alone=True))


# ── users ─────────────────────────────────────────────────────────────────────────────────────────


def test_only_administrators_may_add_users(access_log: AccessLog) -> None:
    access_log.add(OTHER, Grant(Role.VIEWER), Grant(Role.VIEWER))

    assert access_log.user(OTHER).grants == (Grant(Role.VIEWER),)
    with pytest.raises(NotAdministrator):
        access_log.do(AddUser(user_id="user_third0000", by=OTHER))
    with pytest.raises(NotAdministrator):
        access_log.do(AddUser(user_id="user_third0000", by="user_nobody000"))
    with pytest.raises(UserExists):
        access_log.add(OTHER)
    with pytest.raises(InvalidAccess):
        access_log.add("The author")


@pytest.mark.parametrize("command", [GrantRole, RevokeRole])
def test_nobody_may_change_their_own_roles(access_log: AccessLog, command: type[Any]) -> None:
    with pytest.raises(OwnAccess):
        access_log.do(command(user_id=ADMIN, by=ADMIN, grant=Grant(Role.AUTHOR)))
    with pytest.raises(UserNotFound):
        access_log.do(command(user_id="user_nobody000", by=ADMIN, grant=Grant(Role.AUTHOR)))


def test_grants_and_revokes_a_role_once(access_log: AccessLog) -> None:
    access_log.add()
    viewer = Grant(Role.VIEWER, "repository:web")
    given_ = GrantRole(user_id=OTHER, by=ADMIN, grant=viewer)
    taken = RevokeRole(user_id=OTHER, by=ADMIN, grant=viewer)

    assert access_log.do(given_) == (RoleGranted(OTHER, Role.VIEWER, "repository:web", ADMIN),)
    assert access_log.do(given_) == ()
    assert access_log.do(taken) == (RoleRevoked(OTHER, Role.VIEWER, "repository:web", ADMIN),)
    assert access_log.do(taken) == ()
    assert access_log.user(OTHER).grants == ()


def test_keeps_the_last_administrator() -> None:
    """Two administrators remove the role from each other: the second is no longer one."""
    access_log = AccessLog()
    admin = Grant(Role.SECURITY_ADMIN)
    access_log.add(OTHER, admin)

    access_log.do(RevokeRole(user_id=ADMIN, by=OTHER, grant=admin))

    with pytest.raises(NotAdministrator):
        access_log.do(RevokeRole(user_id=OTHER, by=ADMIN, grant=admin))
    with pytest.raises(OwnAccess):
        access_log.do(RevokeRole(user_id=OTHER, by=OTHER, grant=admin))
    with pytest.raises(OwnAccess):
        access_log.do(DisableUser(user_id=OTHER, by=OTHER))


def test_an_administrator_of_a_part_does_not_count_as_one_of_the_whole(
    access_log: AccessLog,
) -> None:
    access_log.add(OTHER, Grant(Role.SECURITY_ADMIN, "repository:web"))

    with pytest.raises(NotAdministrator):
        access_log.do(AddUser(user_id="user_third0000", by=OTHER))


def test_disables_and_enables_a_user(access_log: AccessLog) -> None:
    access_log.add(OTHER, Grant(Role.SECURITY_ADMIN))

    access_log.do(DisableUser(user_id=OTHER, by=ADMIN, reason="left"))

    assert access_log.user(OTHER).enabled is False
    assert access_log.do(DisableUser(user_id=OTHER, by=ADMIN)) == ()
    with pytest.raises(NotAdministrator):
        access_log.do(AddUser(user_id="user_third0000", by=OTHER))
    with pytest.raises(UserIsDisabled):
        access_log.do(CreateToken(user_id=OTHER, token_id="token00000001", days=1))
    access_log.do(EnableUser(user_id=OTHER, by=ADMIN))
    assert access_log.user(OTHER).enabled is True


def test_an_erased_user_cannot_be_restored(access_log: AccessLog) -> None:
    access_log.add(OTHER, Grant(Role.VIEWER))

    assert access_log.do(EraseUser(user_id=OTHER, by=ADMIN)) == (UserErased(OTHER, ADMIN),)

    row = access_log.user(OTHER)
    assert (row.erased, row.enabled, row.grants) == (True, False, ())
    assert access_log.do(EraseUser(user_id=OTHER, by=ADMIN)) == (), "asked again"
    with pytest.raises(UserGone):
        access_log.do(EnableUser(user_id=OTHER, by=ADMIN))
    with pytest.raises(UserGone):
        access_log.do(NotePassword(user_id=OTHER, by=OTHER, credential_id="c1"))


def test_records_password_changes_and_failed_sign_ins(access_log: AccessLog) -> None:
    access_log.add()

    access_log.do(NotePassword(user_id=OTHER, by=OTHER, credential_id="c1"))
    access_log.do(NotePassword(user_id=OTHER, by=ADMIN, credential_id="c2"))
    access_log.do(NoteFailedSignIns(user_id=OTHER, count=3))

    row = access_log.user(OTHER)
    assert (row.sign_ins_failed, row.credential_id, row.credentials_version) == (3, "c2", 2)
    assert access_log.do(NoteFailedSignIns(user_id="user_nobody000", count=3)) == ()
    with pytest.raises(NotAdministrator):
        access_log.do(NotePassword(user_id=ADMIN, by=OTHER, credential_id="c3"))


def test_creates_no_token_for_credentials_that_ended_meanwhile(access_log: AccessLog) -> None:
    access_log.add()
    asked = CreateToken(user_id=OTHER, token_id="token00000009", days=1, credentials_version=0)

    access_log.do(NotePassword(user_id=OTHER, by=ADMIN, credential_id="c1"))

    with pytest.raises(CredentialsEnded):
        access_log.do(asked)
    assert access_log.do(replace(asked, credentials_version=1))


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────


def test_creates_tokens_that_expire(access_log: AccessLog) -> None:
    (fact,) = access_log.do(CreateToken(user_id=ADMIN, token_id="token00000001", days=90))

    assert fact == TokenCreated(ADMIN, "token00000001", ADMIN, T0 + timedelta(days=90))
    for days in (0, 91, -1):
        with pytest.raises(InvalidAccess):
            access_log.do(CreateToken(user_id=ADMIN, token_id="token00000002", days=days))
    with pytest.raises(InvalidAccess):
        access_log.do(CreateToken(user_id=ADMIN, token_id="token00000001", days=1))


def test_limits_the_tokens_of_a_user(access_log: AccessLog) -> None:
    for number in range(100):
        access_log.do(CreateToken(user_id=ADMIN, token_id=f"token{number:08}", days=1))

    with pytest.raises(LimitExceeded):
        access_log.do(CreateToken(user_id=ADMIN, token_id="onetoomany", days=1))
    access_log.do(RevokeToken(user_id=ADMIN, token_id="token00000000", by=ADMIN))
    access_log.do(CreateToken(user_id=ADMIN, token_id="onemore00", days=1))


def test_owner_and_administrators_may_revoke_a_token(access_log: AccessLog) -> None:
    access_log.add()
    access_log.add("user_third0000")
    access_log.do(CreateToken(user_id=OTHER, token_id="token00000001", days=1))
    revoke = RevokeToken(user_id=OTHER, token_id="token00000001", by="user_third0000")

    with pytest.raises(NotOwner):
        access_log.do(revoke)
    with pytest.raises(TokenNotFound):
        access_log.do(RevokeToken(user_id=OTHER, token_id="nothing000", by=OTHER))
    access_log.do(RevokeToken(user_id=OTHER, token_id="token00000001", by=ADMIN))

    token: ApiToken = access_log.row(token_key("token00000001"), ApiToken)
    assert token.revoked_at == T0
    assert access_log.do(RevokeToken(user_id=OTHER, token_id="token00000001", by=OTHER)) == ()


def test_replay_gives_the_same_rows() -> None:
    access_log = AccessLog()
    access_log.add(OTHER, *(Grant(role, "repository:web") for role in Role))
    access_log.do(CreateToken(user_id=OTHER, token_id="token00000001", days=1))
    access_log.do(RevokeToken(user_id=OTHER, token_id="token00000001", by=OTHER))
    access_log.do(DisableUser(user_id=OTHER, by=ADMIN))
    access_log.do(EraseUser(user_id=OTHER, by=ADMIN))

    assert differences(access_log.store, FOLDS) == []
