"""Verifies that the rows match the log."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.queries import log_health, log_reader
from tidegate.domain.access.roles import Verb
from tidegate.web import inputs, routing

SHOWN_MAX = 100


class DifferenceShown(Struct, frozen=True):
    """A row that differs from what its facts produce."""

    row: str
    what: str
    wanted: str
    found: str


class Verification(Struct, frozen=True):
    """The result of a replay of the whole log."""

    verified: bool
    position: int
    count: int
    differences: tuple[DifferenceShown, ...]  # at most the first hundred


def verify(
    request: routing.Request[inputs.Nothing, inputs.Nothing, inputs.Nothing],
    log: log_reader.LogReader,
    health: log_health.LogHealth,
) -> routing.Response:
    """Replay the log and compare every derived row, byte for byte."""
    found = health.differences()
    shown = tuple(
        DifferenceShown(item.key, item.what, item.expected, item.found)
        for item in found[:SHOWN_MAX]
    )
    position = log.head()
    return routing.Response(Verification(not found, position, len(found), shown))


ROUTES = (
    routing.Route("GET", "/v1/views/verify", verify, routing.requires(Verb.AUDIT), Verification),
)
