"""Show names of users. The API gives all names to auditors, and every user their own.
Without a name, the id is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidegate.cli import exit_codes, output, paths, symbols

if TYPE_CHECKING:
    from tidegate.cli.client import ApiClient

ASKED_MAX: Final = 50  # for one table
AUDITORS: Final = frozenset({"auditor", "security-admin"})
USER: Final = "user_"
HOST: Final = "host_"  # in the actor of an event


class UserNames:
    """Names by user id, each requested once."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}
        self._audits: bool | None = None  # None: not known yet

    def named(
        self, items: Sequence[output.Item], columns: Sequence[output.Column]
    ) -> list[output.Column]:
        """The columns, with names instead of ids where they are known."""
        ids = {str(column.cell(item)) for column in columns if column.is_person for item in items}
        self._ask(sorted(user_id for user_id in ids if user_id.startswith(USER)))
        return [self._of(column) if column.is_person else column for column in columns]

    def name_of(self, actor: str) -> str:
        """The name of a user or a host, where it is known; else what was given."""
        if actor.startswith(USER):
            self._ask([actor])
        return self._names.get(actor, actor.removeprefix(HOST))

    def _of(self, column: output.Column) -> output.Column:
        def called(item: output.Item) -> str:
            user_id = str(column.cell(item))
            return self._names.get(user_id, user_id)

        return output.Column(column.title, called)

    def _ask(self, ids: Iterable[str]) -> None:
        wanted = [user_id for user_id in ids if user_id not in self._names][:ASKED_MAX]
        try:
            if wanted and self._audits is None:
                me = self._client.get(paths.at("me")).json()
                roles = {grant["role"] for grant in me["grants"] if grant["scope"] == "*"}
                self._audits = bool(roles & AUDITORS)
                self._keep(me["user_id"], me["name"])
            for user_id in wanted if self._audits else ():
                if user_id not in self._names:
                    self._keep(user_id, self._client.get(paths.at("users", user_id)).json()["name"])
        except exit_codes.CommandExit:
            self._audits = False  # a table with ids is better than none

    def _keep(self, user_id: str, name: str | None) -> None:
        self._names[user_id] = symbols.clean(name) if name else user_id
