"""How a host proves its identity: one-time tokens, used ones, and revoked keys.

    enrollment_tokens   made by an operator for one host; its secret half is derived, not stored.
                        One that replaces a key is for a host that was re-imaged or retired
    token_replay        used tokens: each works once, in the commit that enrolls the host
    cert_revocations    revoked keys, by the key itself

All are security look-ups without history. A row is dropped when it can no longer be abused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct, structs

from tidegate.domain.fleet import facts as fleet_facts, refusals, rows as fleet_rows, slices
from tidegate.domain.times import describe_time
from tidegate.errors import InvalidInput
from tidegate.kernel import collections, model, slices as kernel_slices

TOKEN_LIFE: Final = timedelta(hours=24)
ENROLLED_AGAIN: Final = "the host enrolled again with a new key"
KEPT: Final = timedelta(days=30)  # how long a used token or a revoked key is stored

_TOKEN_ID = re.compile(r"[a-z0-9]{1,64}")


class EnrollmentToken(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A token that no host has used yet."""

    token_id: str
    host_id: str
    operator: str
    expires_at: datetime
    labels: dict[str, str] | None = None  # None: the host keeps its labels
    replaces: str = ""  # the key of a known host, which is revoked on use
    was_retired: bool = False  # whether the host was retired when the token was made
    reason: str = ""  # why the key is replaced


class UsedToken(Struct, frozen=True):
    """A token that was used."""

    token_id: str
    host_id: str
    first_seen: datetime


class Revocation(Struct, frozen=True):
    """A key that is no longer accepted."""

    public_key: str
    host_id: str
    revoked_at: datetime
    revoked_by: str
    reason: str


ENROLLMENT_TOKENS = collections.Collection(
    "enrollment_tokens",
    EnrollmentToken,
    nature=collections.Nature.LOOKUP,
    columns=("host_id", "expires_at"),
)
TOKEN_REPLAY = collections.Collection(
    "token_replay", UsedToken, nature=collections.Nature.LOOKUP, columns=("host_id", "first_seen")
)
CERT_REVOCATIONS = collections.Collection(
    "cert_revocations",
    Revocation,
    nature=collections.Nature.LOOKUP,
    columns=("host_id", "revoked_at"),
)


def token_key(token_id: str) -> model.Key:
    return model.Key(ENROLLMENT_TOKENS.name, token_id)


def replay_key(token_id: str) -> model.Key:
    return model.Key(TOKEN_REPLAY.name, token_id)


def revocation_key(public_key: str) -> model.Key:
    return model.Key(CERT_REVOCATIONS.name, public_key)


def used_token_of(fact: fleet_facts.HostEnrolled) -> UsedToken:
    """Build the row of a token that was used."""
    return UsedToken(fact.token_id, fact.host_id, fact.at)


def revocation_of(fact: fleet_facts.HostEnrolled) -> Revocation:
    """Build the row of the key that a new one replaced."""
    return Revocation(fact.replaces, fact.host_id, fact.at, fact.operator, ENROLLED_AGAIN)


# ── enrollment with a token ───────────────────────────────────────────────────────────────────────


class TradeToken(Struct, frozen=True, kw_only=True):
    """Enroll a host by this key with a one-time token, which is then used up."""

    token_id: str  # of a token whose secret half was correct
    host_id: str  # as in the token's row; another host is refused
    public_key: str
    replaces: str = ""  # as in the token's row


def rows_of_trade(command: TradeToken) -> tuple[model.Key, ...]:
    """Raises: InvalidInput."""
    if not _TOKEN_ID.fullmatch(command.token_id):
        raise InvalidInput("no enrollment token looks like this", field="token")
    before = (command.replaces,) if command.replaces not in ("", command.public_key) else ()
    return (
        fleet_rows.host_key(command.host_id),
        fleet_rows.fleet_key(),
        token_key(command.token_id),
        replay_key(command.token_id),
        revocation_key(command.public_key),
        *map(revocation_key, before),
    )


def decide_trade(rows: Sequence[Any], command: TradeToken, now: datetime) -> Sequence[Struct]:
    """Enroll the host by its key and mark the token as used, in one commit.

    Raises:
        TokenRefused, TokenReplayed, KeyRevoked, and what ``enroll_host`` raises.
    """
    host: fleet_rows.Host | None = rows[0]
    fleet: fleet_rows.Fleet | None = rows[1]
    token: EnrollmentToken | None = rows[2]
    replayed: UsedToken | None = rows[3]
    revoked: Revocation | None = rows[4]
    if token is None or (token.host_id, token.replaces) != (command.host_id, command.replaces):
        raise refusals.TokenRefused("the enrollment token is unknown")
    if replayed is not None:
        raise refusals.TokenReplayed(token.host_id)
    if now >= token.expires_at:
        raise refusals.TokenRefused(
            f"the enrollment token expired at {describe_time(token.expires_at)}"
        )
    if revoked is not None:
        raise refusals.KeyRevoked(token.host_id)
    enroll = slices.EnrollHost(
        host_id=token.host_id,
        public_key=command.public_key,
        labels=token.labels,
        operator=token.operator,
    )
    if token.replaces:
        return _enroll_again(host, fleet, token, enroll, rows[5:] == (None,), now)
    return [
        structs.replace(fact, token_id=command.token_id)
        for fact in slices.decide_enroll((host, fleet), enroll, now)
        if isinstance(fact, fleet_facts.HostEnrolled)
    ]


def _enroll_again(
    host: fleet_rows.Host | None,
    fleet: fleet_rows.Fleet | None,
    token: EnrollmentToken,
    enroll: slices.EnrollHost,
    revokes: bool,
    now: datetime,
) -> Sequence[Struct]:
    """Replace the key that the host had when the token was made, and no later one.

    A host that was retired since then stays retired, because that was decided later.

    Raises:
        TokenRefused, HostGone, and what ``enroll_host`` raises.
    """
    if host is None or host.public_key != token.replaces:
        raise refusals.TokenRefused(
            f"{token.host_id} enrolled with another key after this token was made; make another "
            f"with tidegate host re-enroll {token.host_id}"
        )
    if host.status == fleet_rows.RETIRED and not token.was_retired:
        raise refusals.HostGone(token.host_id)
    if enroll.public_key == host.public_key:
        raise refusals.TokenRefused(
            f"this token replaces the key of {token.host_id}, but the agent sent the same key; "
            "start the agent with an empty state directory, so that it makes a new one"
        )
    facts: list[Struct] = []
    if host.status == fleet_rows.ENROLLED:
        reason = token.reason or ENROLLED_AGAIN
        facts.append(
            fleet_facts.HostRevoked(
                host_id=host.host_id, at=now, operator=token.operator, reason=reason
            )
        )
    free = structs.replace(host, status=fleet_rows.REVOKED)  # the state after its key was revoked
    facts += [
        structs.replace(
            fact,
            token_id=token.token_id,
            replaces=host.public_key,
            revokes=revokes,
            returned=host.status == fleet_rows.RETIRED,
        )
        for fact in slices.decide_enroll((free, fleet), enroll, now)
        if isinstance(fact, fleet_facts.HostEnrolled)
    ]
    return facts


trade_token = kernel_slices.Slice(
    name="trade-token",
    command=TradeToken,
    writes=(fleet_facts.HostRevoked, fleet_facts.HostEnrolled),
    rows=rows_of_trade,
    decide=decide_trade,
)
SLICES = (trade_token,)


COLLECTIONS = (ENROLLMENT_TOKENS, TOKEN_REPLAY, CERT_REVOCATIONS)
