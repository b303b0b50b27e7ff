"""Permissions and roles: a permission is a verb on a scope, a role is a set of verbs.

    role               verbs
    viewer             read
    author             read, author, report
    reporter           read, report
    approver           read, approve
    release-manager    read, release
    fleet-operator     read, operate
    on-call            read, operate, emergency
    auditor            read, audit
    security-admin     read, audit, administer

A grant gives a user a role on a scope. A scope is ``*``, ``repository:<name>`` or
``channel:<name>``; ``*`` covers all others. Everything that no grant covers is denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.access.refusals import InvalidScope

EVERYWHERE: Final = "*"
SCOPE_CHARS_MAX = 128

_SCOPE = re.compile(r"\*|(repository|channel):[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Verb(StrEnum):
    """The actions that permissions distinguish."""

    READ = "read"
    """Read everything on the scope."""
    AUTHOR = "author"
    """Draft, change and propose package revisions."""
    REPORT = "report"
    """Record results of checks on package revisions."""
    APPROVE = "approve"
    """Approve or reject what others propose."""
    RELEASE = "release"
    """Pin releases, create and edit channels, promote and roll back."""
    OPERATE = "operate"
    """Pause, resume and abort rollouts; manage hosts, budgets, freezes, quarantine and the
    outbox.
    """
    EMERGENCY = "emergency"
    """Override what holds a rollout back, and roll a channel back at once."""
    AUDIT = "audit"
    """Read users and verify the derived views against the log."""
    ADMINISTER = "administer"
    """Manage users, roles and repositories; delete and import packages."""


class Role(StrEnum):
    """The roles that a user may have. A user may have several."""

    VIEWER = "viewer"
    """Reads, and changes nothing."""
    AUTHOR = "author"
    """Writes package revisions and proposes them."""
    REPORTER = "reporter"
    """Records results of checks, such as tests: for CI, which need not edit content."""
    APPROVER = "approver"
    """Reviews the proposals of others, and proposed deletions."""
    RELEASE_MANAGER = "release-manager"
    """Decides which release a channel gets."""
    FLEET_OPERATOR = "fleet-operator"
    """Runs the fleet: hosts, rollouts and what stops them."""
    ON_CALL = "on-call"
    """Does what a fleet operator does, and in an emergency overrides what holds rollouts back."""
    AUDITOR = "auditor"
    """Checks users and the log, and changes nothing."""
    SECURITY_ADMIN = "security-admin"
    """Manages users, their roles, and repositories."""


VERBS: Final[Mapping[Role, frozenset[Verb]]] = MappingProxyType(
    {
        Role.VIEWER: frozenset({Verb.READ}),
        Role.AUTHOR: frozenset({Verb.READ, Verb.AUTHOR, Verb.REPORT}),
        Role.REPORTER: frozenset({Verb.READ, Verb.REPORT}),
        Role.APPROVER: frozenset({Verb.READ, Verb.APPROVE}),
        Role.RELEASE_MANAGER: frozenset({Verb.READ, Verb.RELEASE}),
        Role.FLEET_OPERATOR: frozenset({Verb.READ, Verb.OPERATE}),
        Role.ON_CALL: frozenset({Verb.READ, Verb.OPERATE, Verb.EMERGENCY}),
        Role.AUDITOR: frozenset({Verb.READ, Verb.AUDIT}),
        Role.SECURITY_ADMIN: frozenset({Verb.READ, Verb.AUDIT, Verb.ADMINISTER}),
    }
)


class Grant(Struct, frozen=True, order=True):
    """A role on a scope."""

    role: Role
    scope: str = EVERYWHERE


def check_scope(scope: str) -> None:
    """Raises: InvalidScope."""
    if len(scope) > SCOPE_CHARS_MAX or not _SCOPE.fullmatch(scope):
        raise InvalidScope(scope)


def allows(grants: Iterable[Grant], verb: Verb, scope: str | None) -> bool:
    """Whether some grant covers the verb on this scope; None: on any scope."""
    return any(
        verb in VERBS[grant.role] and (scope is None or grant.scope in (EVERYWHERE, scope))
        for grant in grants
    )
