"""The commands of an explanation for one person: their own, and whom to ask for the others."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidegate.control.queries import people
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import principals, roles
from tidegate.domain.gates import whom_to_ask
from tidegate.domain.gates.inputs import Explanation, Remedy, Wait


class RemedyOffers:
    """Offers each person the commands that they may run now."""

    def __init__(self, reads: Reads, names: people.PeopleNames) -> None:
        self._reads = reads
        self._names = names

    def offer(self, found: Explanation, principal: principals.Principal) -> Explanation:
        """Return the explanation with the remedies that the person may use. Sentences that end with
        the command of another remedy lose it.
        """
        _, others = whom_to_ask.split(whom_to_ask.list_all(found), principal)
        waits = tuple(self._offer_in(wait, principal) for wait in found.waits)
        return whom_to_ask.leave_out(replace(found, waits=waits), others)

    def _offer_in(self, wait: Wait, principal: principals.Principal) -> Wait:
        own, others = whom_to_ask.split(wait.remedies, principal)
        ask = tuple(self.describe(remedy, principal) for remedy in others)
        return replace(wait, remedies=own, ask=ask)

    def describe(self, remedy: Remedy, principal: principals.Principal) -> str:
        """Say whom to ask for a remedy that the person may not use."""
        return whom_to_ask.describe(remedy, principal, self._list_names(remedy, principal))

    def _list_names(self, remedy: Remedy, principal: principals.Principal) -> Sequence[str] | None:
        """List who may use the remedy; None: the person may not read all of its scopes."""
        if not all(principal.may(roles.Verb.READ, scope) for scope in remedy.scopes):
            return None
        found = people.list_permitted(self._reads, remedy.needs, remedy.scopes)
        names = (self._names.find_name(user_id) or user_id for user_id in found)
        return sorted(names, key=str.casefold)
