"""What a new installation still needs before it can roll out a release and notify people."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidegate.control.queries.reads import Reads
from tidegate.domain.access.rows import USERS
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.fleet.rows import HOSTS
from tidegate.domain.notifications.rows import SUBSCRIPTIONS
from tidegate.domain.packages import rows, states
from tidegate.domain.rollouts.rows import ROLLOUTS

PEOPLE: Final = 2  # one proposes, another approves


class FirstSteps(Struct, frozen=True, kw_only=True):
    """Each member is true once there is at least one."""

    repository: bool
    revision: bool
    channel: bool
    host: bool
    rollout: bool
    subscription: bool
    second_person: bool

    @property
    def are_done(self) -> bool:
        return all(getattr(self, name) for name in self.__struct_fields__)


def read_first_steps(reads: Reads) -> FirstSteps:
    """Read only a few rows, because every overview asks for this."""
    published = any(
        reads.range(rows.REVISIONS, index="by_lifecycle", of=(str(state),), limit=1)
        for state in states.PUBLISHED_STATES
    )
    return FirstSteps(
        # The default repository need not be created: a revision implies a repository.
        repository=bool(
            reads.range(rows.REPOSITORIES, limit=1) or reads.range(rows.REVISIONS, limit=1)
        ),
        revision=published,
        channel=bool(reads.range(CHANNELS, limit=1)),
        host=bool(reads.range(HOSTS, limit=1)),
        rollout=bool(reads.range(ROLLOUTS, limit=1)),
        subscription=bool(reads.range(SUBSCRIPTIONS, limit=1)),
        second_person=len(reads.range(USERS, limit=PEOPLE)) == PEOPLE,
    )
