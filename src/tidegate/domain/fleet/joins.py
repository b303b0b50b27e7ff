"""Join tokens: one token enrolls many new hosts, with labels, a limit and an end.

    join_tokens   made by an operator, with a count of its uses. The secret half is derived

A join token never takes an existing name: a known host enrolls again only with a token that was
made for its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, structs

from tidegate.domain.fleet import credentials, facts, refusals, rows as fleet_rows, slices
from tidegate.domain.fleet.selectors import check_labels
from tidegate.domain.times import describe_time
from tidegate.errors import IdempotencyMismatch, InvalidInput
from tidegate.kernel import collections as kernel_collections, model, slices as kernel_slices

JOIN_HOSTS_MAX: Final = 10_000
JOIN_LIFE_MAX: Final = timedelta(days=90)

_JOIN_ID = re.compile(r"[a-z0-9-]{1,64}")


class JoinToken(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A join token, and how many hosts it enrolled."""

    join_id: str
    operator: str
    created_at: datetime
    until: datetime
    limit: int
    labels: dict[str, str] = {}
    enrolled: int = 0


JOIN_TOKENS = kernel_collections.Collection(
    "join_tokens",
    JoinToken,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("join_id", "until"),
)
COLLECTIONS = (JOIN_TOKENS,)


def join_key(join_id: str) -> model.Key:
    return model.Key(JOIN_TOKENS.name, join_id)


class CreateJoinToken(Struct, frozen=True, kw_only=True):
    join_id: str
    labels: dict[str, str]
    limit: int
    until: datetime
    operator: str


class DeleteJoinToken(Struct, frozen=True, kw_only=True):
    join_id: str
    operator: str


class JoinHost(Struct, frozen=True, kw_only=True):
    """Enroll a new host by this key, with a join token whose secret half was correct."""

    join_id: str
    host_id: str
    public_key: str


def decide_create(
    rows: tuple[JoinToken | None], command: CreateJoinToken, now: datetime
) -> Sequence[Struct]:
    """Raises: InvalidLabel, InvalidInput, IdempotencyMismatch."""
    check_labels(command.labels)
    if not 1 <= command.limit <= JOIN_HOSTS_MAX:
        raise InvalidInput(
            f"limit is {command.limit}, allowed is 1 … {JOIN_HOSTS_MAX}", field="limit"
        )
    found = rows[0]
    if found is not None:  # a repeat of the request
        asked = (command.labels, command.limit, command.until, command.operator)
        if (found.labels, found.limit, found.until, found.operator) != asked:
            raise IdempotencyMismatch(command.join_id)
        return ()
    if not now < command.until <= now + JOIN_LIFE_MAX:
        raise InvalidInput(
            f"until is {describe_time(command.until)}, allowed is a time within the next "
            f"{JOIN_LIFE_MAX.days} days",
            field="until",
        )
    return (
        facts.JoinTokenCreated(
            join_id=command.join_id,
            at=now,
            operator=command.operator,
            labels=command.labels,
            limit=command.limit,
            until=command.until,
        ),
    )


def decide_delete(
    rows: tuple[JoinToken | None], command: DeleteJoinToken, now: datetime
) -> Sequence[Struct]:
    """Raises: JoinTokenNotFound."""
    if rows[0] is None:
        raise refusals.JoinTokenNotFound(command.join_id)
    return (facts.JoinTokenDeleted(join_id=command.join_id, at=now, operator=command.operator),)


def rows_of_join(command: JoinHost) -> tuple[model.Key, ...]:
    """Raises: InvalidInput."""
    if not _JOIN_ID.fullmatch(command.join_id):
        raise InvalidInput("no join token looks like this", field="token")
    return (
        fleet_rows.host_key(command.host_id),
        fleet_rows.fleet_key(),
        join_key(command.join_id),
        credentials.revocation_key(command.public_key),
    )


def decide_join(
    rows: tuple[
        fleet_rows.Host | None,
        fleet_rows.Fleet | None,
        JoinToken | None,
        credentials.Revocation | None,
    ],
    command: JoinHost,
    now: datetime,
) -> Sequence[Struct]:
    """Enroll the host by its key and count it. A repeat with the same key changes nothing: the
    agent may have missed the answer.

    Raises:
        TokenRefused, HostExists, KeyRevoked, InvalidLabel, InvalidInput, SelectorOverlap.
    """
    host, fleet, token, revoked = rows
    if token is None:
        raise refusals.TokenRefused("the join token is unknown or was deleted")
    if host is not None:
        if host.status == fleet_rows.ENROLLED and host.public_key == command.public_key:
            return ()
        raise refusals.HostExists(command.host_id)
    if now >= token.until:
        raise refusals.TokenRefused(f"the join token expired at {describe_time(token.until)}")
    if token.enrolled >= token.limit:
        raise refusals.TokenRefused(f"the join token has enrolled all of its {token.limit} hosts")
    if revoked is not None:
        raise refusals.KeyRevoked(command.host_id)
    enroll = slices.EnrollHost(
        host_id=command.host_id,
        public_key=command.public_key,
        labels=token.labels,
        operator=token.operator,
    )
    return [
        structs.replace(fact, join_id=command.join_id)
        for fact in slices.decide_enroll((None, fleet), enroll, now)
        if isinstance(fact, facts.HostEnrolled)
    ]


def _rows_of_token(command: CreateJoinToken | DeleteJoinToken) -> tuple[model.Key, ...]:
    return (join_key(command.join_id),)


create_join_token = kernel_slices.Slice(
    name="create-join-token",
    command=CreateJoinToken,
    writes=(facts.JoinTokenCreated,),
    rows=_rows_of_token,
    decide=decide_create,
)
delete_join_token = kernel_slices.Slice(
    name="delete-join-token",
    command=DeleteJoinToken,
    writes=(facts.JoinTokenDeleted,),
    rows=_rows_of_token,
    decide=decide_delete,
)
join_host = kernel_slices.Slice(
    name="join-host",
    command=JoinHost,
    writes=(facts.HostEnrolled,),
    rows=rows_of_join,
    decide=decide_join,
)
SLICES = (create_join_token, delete_join_token, join_host)
