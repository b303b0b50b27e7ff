"""Principals: authenticated users, tokens and hosts, and their permissions."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.access import refusals, roles as access_roles


class Principal(Struct, frozen=True):
    """A caller's identity and grants: those of the owner, narrowed by the token that was used."""

    id: str  # user_…, host_… or empty
    method: str  # session, token, agent or none
    grants: tuple[access_roles.Grant, ...] = ()
    narrowed: tuple[access_roles.Grant, ...] | None = None
    session: str = ""  # the id of its row, if a cookie authenticated the request
    csrf: str = ""  # the token that forms of this session carry
    token_id: str = ""
    credentials_version: int = 0  # of the user's row, when the request was authenticated
    approvals_barred_until: datetime | None = None  # None: not barred when authenticated

    def may(self, verb: access_roles.Verb, scope: str | None = access_roles.EVERYWHERE) -> bool:
        """Whether the verb is allowed on this scope; None: on any one scope."""
        if not access_roles.allows(self.grants, verb, scope):
            return False
        return self.narrowed is None or access_roles.allows(self.narrowed, verb, scope)


NOBODY: Final = Principal("", "none")


def demand_permission(
    principal: Principal, verbs: tuple[access_roles.Verb, ...], scope: str | None
) -> None:
    """Check that one of the verbs is allowed on this scope; None: on any one scope.

    Raises:
        MissingPermission.
    """
    if not any(principal.may(verb, scope) for verb in verbs):
        raise refusals.MissingPermission(
            describe_missing(principal, verbs, scope),
            verb=" or ".join(verbs),
            scope=scope or "any",
            role=None if principal.narrowed is not None else smallest_role(verbs),
        )


def smallest_role(verbs: tuple[access_roles.Verb, ...]) -> access_roles.Role:
    """The role with the fewest verbs that allows one of these."""
    enough = [role for role, allowed in access_roles.VERBS.items() if not allowed.isdisjoint(verbs)]
    return min(enough, key=lambda role: len(access_roles.VERBS[role]))


def describe_missing(
    principal: Principal, verbs: tuple[access_roles.Verb, ...], scope: str | None
) -> str:
    """Name the role that would allow one of the verbs on this scope, and the principal's roles."""
    enough = (
        str(role) for role, allowed in access_roles.VERBS.items() if not allowed.isdisjoint(verbs)
    )
    where = "" if scope in (None, access_roles.EVERYWHERE) else f" on {scope}"
    is_narrowed = principal.narrowed is not None
    held = principal.narrowed if principal.narrowed is not None else principal.grants
    owner = "Your token has" if is_narrowed else "You have"
    roles = ", ".join(map(describe_grant, held)) or "no role"
    return f"This needs the role {' or '.join(enough)}{where}. {owner} {roles}."


def describe_grant(grant: access_roles.Grant) -> str:
    """A role, with its scope unless it is everywhere."""
    return (
        str(grant.role)
        if grant.scope == access_roles.EVERYWHERE
        else f"{grant.role} on {grant.scope}"
    )
