"""Create and delete join tokens."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.control.fleet.enrollment import Enrollment
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.fleet import joins
from tidegate.kernel.model import Position

NAME_CHARS = 12


class MadeJoinToken(Struct, frozen=True):
    """A new join token; its text is shown only once."""

    join_id: str
    token: str
    labels: dict[str, str]
    limit: int
    until: datetime


class JoinTokenOperations:
    """The verbs of a join token. Raises: MissingPermission."""

    def __init__(self, execute: Execute, enrollment: Enrollment) -> None:
        self._execute = execute
        self._enrollment = enrollment

    def create(
        self, caller: callers.Caller, labels: dict[str, str], limit: int, until: datetime
    ) -> tuple[MadeJoinToken, Position]:
        """Make a token that enrolls up to ``limit`` new hosts until it expires.

        Raises:
            InvalidLabel, InvalidInput, IdempotencyMismatch.
        """
        caller.demand(steps.CREATE_JOIN_TOKEN, roles.EVERYWHERE)
        join_id = f"join-{make_id(caller, steps.CREATE_JOIN_TOKEN, 'join')[:NAME_CHARS]}"
        command = joins.CreateJoinToken(
            join_id=join_id, labels=labels, limit=limit, until=until, operator=caller.id
        )
        position = self._execute(joins.create_join_token, command, caller).position
        token = self._enrollment.join_token(join_id)
        return MadeJoinToken(join_id, token, labels, limit, until), position

    def delete(self, caller: callers.Caller, join_id: str) -> Position:
        """Delete a token, so that it enrolls no more hosts. Hosts that used it stay enrolled.

        Raises:
            JoinTokenNotFound.
        """
        caller.demand(steps.DELETE_JOIN_TOKEN, roles.EVERYWHERE)
        command = joins.DeleteJoinToken(join_id=join_id, operator=caller.id)
        return self._execute(joins.delete_join_token, command, caller).position
