"""The rows of the fleet: hosts, claims, budgets, and the last heartbeats."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from tidegate.domain.hosts.protocol import HostFacts
from tidegate.kernel import collections as kernel_collections, model

FLEET = "fleet"  # the id of the one row that every change of hosts and channels steps

ENROLLED: Final = "enrolled"
REVOKED: Final = "revoked"
RETIRED: Final = "retired"


class Host(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A host as the fleet knows it."""

    host_id: str
    enrolled_at: datetime
    public_key: str
    labels: dict[str, str] = {}
    status: str = ENROLLED
    silent_since: datetime | None = None
    facts_at: datetime | None = None  # when the labels that come from its facts last changed
    replaced_key: str = ""  # its previous key; an agent that uses it gets a clear refusal


class ChannelScope(Struct, frozen=True, omit_defaults=True):
    """What a channel claims."""

    channel: str
    package: str
    selector: str
    edges: tuple[str, ...] = ()  # channels that it waits for


class Fleet(Struct, frozen=True, omit_defaults=True):
    """The claims of all channels, and a count of changes. Its version ties claims and labels
    together.
    """

    channels: tuple[ChannelScope, ...] = ()
    hosts: int = 0  # known and not retired
    changes: int = 0


class Budget(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A budget's limits, and how many slots are in use."""

    budget_id: str
    selector: str = ""
    max_in_flight: int | None = None
    max_in_flight_pct: int | None = None
    in_flight: int = 0
    removed: bool = False


class Liveness(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An agent's last heartbeat and its content: stored, coarse, without history."""

    host_id: str
    last_seen_at: datetime
    said_at: int = 0  # Unix time by the host's clock; an older heartbeat is a replay
    agent_version: str = ""
    current_closures: dict[str, str] = {}  # channel → what runs
    facts: HostFacts | None = None  # what the host reports about its machine
    facts_refused: str = ""  # why the facts for selectors did not become labels


HOSTS = kernel_collections.Collection(
    "hosts",
    Host,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("host_id", "status", "silent_since"),
    allowed={"status": frozenset({ENROLLED, REVOKED, RETIRED})},
    indexes=(
        kernel_collections.Index("by_status", ("status",)),
        kernel_collections.Index("by_silence", ("silent_since",)),
    ),
)
FLEETS = kernel_collections.Collection(
    "fleet",
    Fleet,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)
BUDGETS = kernel_collections.Collection(
    "budgets",
    Budget,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("budget_id",),
)
LIVENESS = kernel_collections.Collection(
    "host_liveness",
    Liveness,
    nature=kernel_collections.Nature.KEPT,
    columns=("host_id", "last_seen_at"),
    indexes=(kernel_collections.Index("by_last_seen", ("last_seen_at",)),),
)


def host_key(host_id: str) -> model.Key:
    return model.Key(HOSTS.name, host_id)


def fleet_key() -> model.Key:
    return model.Key(FLEETS.name, FLEET)


def budget_key(budget_id: str) -> model.Key:
    return model.Key(BUDGETS.name, budget_id)


def liveness_key(host_id: str) -> model.Key:
    return model.Key(LIVENESS.name, host_id)


COLLECTIONS = (HOSTS, FLEETS, BUDGETS, LIVENESS)
