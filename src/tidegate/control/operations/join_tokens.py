"""What an operator does to a join token: create and delete it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.control.fleet.enrollment import Enrollment
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE
from tidegate.domain.access.steps import CREATE_JOIN_TOKEN, DELETE_JOIN_TOKEN
from tidegate.domain.fleet.joins import (
    CreateJoinToken,
    DeleteJoinToken,
    create_join_token,
    delete_join_token,
)
from tidegate.kernel.model import Position

NAME_CHARS = 12


class MadeJoinToken(Struct, frozen=True):
    """A join token, shown this once."""

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
        self, caller: Caller, labels: dict[str, str], limit: int, until: datetime
    ) -> tuple[MadeJoinToken, Position]:
        """Make a token that enrolls up to ``limit`` new hosts until its end.

        Raises:
            InvalidLabel, InvalidInput, IdempotencyMismatch.
        """
        caller.demand(CREATE_JOIN_TOKEN, EVERYWHERE)
        join_id = f"join-{make_id(caller, CREATE_JOIN_TOKEN, 'join')[:NAME_CHARS]}"
        command = CreateJoinToken(
            join_id=join_id, labels=labels, limit=limit, until=until, operator=caller.id
        )
        position = self._execute(create_join_token, command, caller).position
        token = self._enrollment.join_token(join_id)
        return MadeJoinToken(join_id, token, labels, limit, until), position

    def delete(self, caller: Caller, join_id: str) -> Position:
        """Let a token enroll no more hosts. Those that it enrolled stay.

        Raises:
            JoinTokenNotFound.
        """
        caller.demand(DELETE_JOIN_TOKEN, EVERYWHERE)
        command = DeleteJoinToken(join_id=join_id, operator=caller.id)
        return self._execute(delete_join_token, command, caller).position
