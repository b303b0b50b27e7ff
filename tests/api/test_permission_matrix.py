"""Routes × roles × scoped grants, checked against a table that is written by hand.

``permission_table.txt`` has a row per route: who may, and on which scope. It is not generated from
the code: a permission that changes by accident differs from its row. Which lifecycle step decides
about the routes of a revision is in ``test_permissions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.api.sample_requests import send
from tests.api.served_fleet import ServedFleet, serve_fleet
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.roles import EVERYWHERE, VERBS, Grant, Role, Verb
from tidegate.web.routing import PublicAccess, Requires, Route

TABLE = Path(__file__).with_name("permission_table.txt")
BY_NAME = {f"{route.method} {route.path}": route for route in (*ROUTES, *PAGES)}
# A scope of each kind that the sample requests use.
SCOPES = {"repository": "repository:default", "channel": "channel:web-stable"}
OTHERS = {
    "repository": ("repository:elsewhere", "channel:default"),
    "channel": ("channel:elsewhere", "repository:web-stable"),
    "everywhere": tuple(SCOPES.values()),
}


class Row(NamedTuple):
    """A row of the table: ``who`` are verbs, or public, signed in, agent."""

    route: str
    who: str
    where: str = ""

    @property
    def verbs(self) -> set[str]:
        return set(self.who.split(" or "))

    @property
    def roles(self) -> tuple[Role, ...]:
        """Those with one of the verbs."""
        return tuple(role for role in Role if {str(verb) for verb in VERBS[role]} & self.verbs)


def read_table() -> dict[str, Row]:
    rows = [
        Row(*(part.strip() for part in line.split("|"))) for line in TABLE.read_text().splitlines()
    ]
    assert len({row.route for row in rows}) == len(rows), "a route has two rows"
    return {row.route: row for row in rows}


ROWS = read_table()
GRANTED = [row.route for row in ROWS.values() if row.where]


def declared(route: Route) -> str:
    permission = route.permission
    if isinstance(permission, Requires):
        return " or ".join(permission.verbs)
    return permission.value


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    missing = [f"{name} | {declared(route)} | …" for name, route in BY_NAME.items()]
    missing = [line for line in missing if line.partition(" | ")[0] not in ROWS]
    left = sorted(ROWS.keys() - BY_NAME.keys())

    assert (missing, left) == ([], []), f"write the missing rows into {TABLE.name}"


def test_a_row_equals_what_its_route_declares() -> None:
    found = {name: declared(route) for name, route in BY_NAME.items()}
    wanted = {row.route: row.who for row in ROWS.values() if row.route in BY_NAME}

    assert found == wanted
    kinds = {"everywhere", "somewhere", "repository", "channel"}
    words = {str(verb) for verb in Verb} | {access.value for access in PublicAccess}
    for row in ROWS.values():
        assert row.verbs <= words, row
        assert (row.where in kinds) == (row.verbs <= {str(verb) for verb in Verb}), row


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    data = tmp_path_factory.mktemp("matrix") / "data"
    with serve_fleet(data, (*ROUTES, *PAGES)) as fleet:
        fleet.sail()
        yield fleet


class Senders:
    """Clients with these roles on this scope, made once."""

    def __init__(self, fleet: ServedFleet) -> None:
        self._fleet = fleet
        self.of = cache(self._make)

    def _make(self, roles: tuple[Role, ...], scope: str) -> httpx2.Client:
        grants = [Grant(role, scope) for role in roles]
        if scope == SCOPES["channel"]:  # a channel needs a package that the client may read
            grants.append(Grant(Role.VIEWER, SCOPES["repository"]))
        return self._fleet.served.as_role(*grants)


@pytest.fixture(scope="module")
def senders(fleet: ServedFleet) -> Senders:
    return Senders(fleet)


def is_refused(answer: httpx2.Response) -> bool:
    if answer.status_code != 403:
        return False
    if answer.headers["content-type"] == "application/problem+json":
        return bool(answer.json()["code"] == "missing_permission")
    return "missing_permission" in answer.text


@pytest.mark.parametrize("name", GRANTED)
def test_a_route_requires_its_verb_on_its_scope(
    fleet: ServedFleet, senders: Senders, name: str
) -> None:
    row, route = ROWS[name], BY_NAME[name]
    others = tuple(role for role in Role if role not in row.roles)

    # Refused: every role on other scopes, and on all scopes every role without the verb.
    without = {(tuple(Role), scope) for scope in OTHERS.get(row.where, ())}
    if others:
        without |= {(others, EVERYWHERE)}
    refused = [(scope, senders.of(roles, scope)) for roles, scope in without]
    head = fleet.installation.log.head()
    for scope, client in refused:
        answer = send(client, route)
        assert is_refused(answer), (scope, answer.status_code, answer.text[-300:])
    assert fleet.installation.log.head() == head, "a refused request changed something"

    # Allowed: each role with the verb, on the scope and on all scopes.
    for role in row.roles:
        for scope in {SCOPES.get(row.where, EVERYWHERE), EVERYWHERE}:
            answer = send(senders.of((role,), scope), route)
            assert not is_refused(answer), (role, scope, answer.text[-300:])
