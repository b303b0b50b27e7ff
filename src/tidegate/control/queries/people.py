"""People: their current permissions, and their names in sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from tidegate.control.queries.reads import Reads
from tidegate.domain.access import principals, roles, rows
from tidegate.domain.gates.inputs import Explanation

Principals = Callable[[str], principals.Principal]
NameOf = Callable[[str], str | None]  # the current name of a user; None: erased, or no user

_USER_ID: Final = re.compile(r"\buser_[0-9a-f]{20}\b")


def principal_of(reads: Reads) -> Principals:
    """Find a person by id, with their current permissions; a disabled user has none."""

    def find(user_id: str) -> principals.Principal:
        user = reads.find(rows.user_key(user_id), rows.User)
        grants = () if user is None or not user.row.enabled else user.row.grants
        return principals.Principal(user_id, "request", grants)

    return find


def list_permitted(
    reads: Reads, verbs: Sequence[roles.Verb], scopes: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids of users who have one of these permissions on each of the scopes."""
    users: list[rows.User] = [item.row for item in reads.iterate(rows.USERS)]
    return tuple(
        user.user_id
        for user in users
        if user.enabled
        and not user.erased
        and all(any(roles.allows(user.grants, verb, on) for verb in verbs) for on in scopes)
    )


class PeopleNames:
    """Replaces the ids of people in sentences by their names.

    The rules that write the sentences know only ids, because names can be erased and are not in the
    log.
    """

    def __init__(self, name_of: NameOf) -> None:
        self._name_of = name_of

    def find_name(self, user_id: str | None) -> str | None:
        """Return the current name of a user; None: erased, or no user."""
        return self._name_of(user_id) if user_id else None

    def name_in(self, sentence: str) -> str:
        """Replace ids by names. An id without a name stays, so that one can search for it."""
        return _USER_ID.sub(lambda found: self._name_of(found[0]) or found[0], sentence)

    def name_in_explanation(self, found: Explanation) -> Explanation:
        """Replace ids by names in the reasons of gates."""
        return replace(
            found,
            answer=self.name_in(found.answer),
            verdicts=tuple(
                replace(item, reason=self.name_in(item.reason)) for item in found.verdicts
            ),
            waits=tuple(
                replace(item, sentence=self.name_in(item.sentence)) for item in found.waits
            ),
        )
