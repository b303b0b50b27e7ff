"""What happens to the fleet itself: hosts enroll, change labels and retire; budgets limit them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Struct

from tidegate.kernel import tags, vocabulary


class FleetFact(Struct, frozen=True, omit_defaults=True, kw_only=True):
    host_id: Annotated[str, tags.Partition()]
    at: datetime


class HostEnrolled(FleetFact, frozen=True, kw_only=True):
    """A host enrolled with the public key of its agent, for the first time or again."""

    public_key: str  # Ed25519, hex; public, so the log may hold it
    labels: dict[str, str] = {}
    operator: str = ""
    again: bool = False  # it was known before
    token_id: Annotated[str, tags.Untagged()] = ""  # of the one-time token that its agent used
    replaces: Annotated[str, tags.Untagged()] = (
        ""  # the previous key, if the token was made to replace it
    )
    revokes: bool = False  # the previous key is revoked in this commit
    returned: bool = False  # it was retired before
    join_id: Annotated[str, tags.Untagged()] = ""  # of the join token that its agent used


class JoinTokenCreated(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A token that enrolls up to ``limit`` new hosts until its end."""

    join_id: Annotated[str, tags.Partition()]
    at: datetime
    operator: str
    limit: int
    until: datetime
    labels: dict[str, str] = {}


class JoinTokenDeleted(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The token enrolls no more hosts."""

    join_id: Annotated[str, tags.Partition()]
    at: datetime
    operator: str


class HostLabelled(FleetFact, frozen=True, kw_only=True):
    """All labels of the host, from now on."""

    labels: dict[str, str]
    operator: str


class HostFactsNoted(FleetFact, frozen=True, kw_only=True):
    """What the host reports about itself, under the keys that an operator allows: all of them."""

    facts: dict[str, str]


class HostRevoked(FleetFact, frozen=True, kw_only=True):
    """The host's key is no longer accepted; the host may enroll again."""

    operator: str
    reason: str


class HostRetired(FleetFact, frozen=True, kw_only=True):
    """The host left the fleet: no plan includes it, and its agent is refused."""

    operator: str
    reason: str


class HostSilent(FleetFact, frozen=True, kw_only=True):
    """The host has sent no heartbeat for a while. Recorded on change only."""

    last_seen_at: datetime


class HostHeard(FleetFact, frozen=True, kw_only=True):
    """The host reports again."""


class BudgetSet(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How many of these hosts may be in flight at once, over all rollouts. Without bounds: any
    number.
    """

    budget_id: Annotated[str, tags.Partition()]
    selector: str
    operator: str
    at: datetime
    max_in_flight: int | None = None
    max_in_flight_pct: int | None = None


class BudgetRemoved(Struct, frozen=True, omit_defaults=True, kw_only=True):
    budget_id: Annotated[str, tags.Partition()]
    operator: str
    at: datetime


FACTS = vocabulary.facts(
    "fleet",
    HostEnrolled,
    HostLabelled,
    HostFactsNoted,
    HostRevoked,
    HostRetired,
    HostSilent,
    HostHeard,
    BudgetSet,
    BudgetRemoved,
    JoinTokenCreated,
    JoinTokenDeleted,
)
