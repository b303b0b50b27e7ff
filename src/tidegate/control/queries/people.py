"""People for whom something is done: who they are, and what they may do now."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.control.queries.reads import Reads
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.rows import User, user_key

Principals = Callable[[str], Principal]


def principal_of(reads: Reads) -> Principals:
    """Find a person by id, with the permissions of this moment; a disabled one has none."""

    def find(user_id: str) -> Principal:
        user = reads.find(user_key(user_id), User)
        grants = () if user is None or not user.row.enabled else user.row.grants
        return Principal(user_id, "request", grants)

    return find
