"""From published revisions to releases that may be pinned: from packages to the registry.

    RevisionPublished, …DeletionProposed, …DeletionRejected, …DeletionStarted, RevisionDeleted
                                                                          ──▶ ReleaseOffered

A machine that remembers by the revision's name what its release is; the fact that it adds stands
in the same commit as its cause, so a pin never races a deletion unseen, and the deletion of what
is pinned is refused whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from tidegate.domain.packages.facts import (
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionDeletionStarted,
    RevisionPublished,
)
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.releases.catalog import DELETED, TERMINATING
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.folds import Machine


class ReleaseOffer(Struct, frozen=True, omit_defaults=True):
    """The release that a revision became; no id: none yet."""

    name: str
    release_id: str = ""
    digest: str = ""
    lifecycle: str = ""


OFFERS = Collection("release_offers", ReleaseOffer, writers=Writers.FOLDED, nature=Nature.DERIVED)

OfferFact = (
    RevisionPublished
    | RevisionDeletionProposed
    | RevisionDeletionRejected
    | RevisionDeletionStarted
    | RevisionDeleted
)


def release_id_of(package: str, number: int) -> str:
    """``default/web``, 3 → ``web.3``; ``blueprints/web``, 3 → ``blueprints.web.3``."""
    path = package.removeprefix(f"{DEFAULT_REPOSITORY}/")
    return f"{path.replace('/', '.')}.{number}"


def step_offer(
    offer: ReleaseOffer, fact: OfferFact, now: datetime
) -> tuple[ReleaseOffer | None, Sequence[Struct]]:
    match fact:
        case RevisionPublished(package=package, number=number, digest=digest):
            release_id = release_id_of(package, number)
            offer = replace(offer, release_id=release_id, digest=digest)
            return _moved(offer, Lifecycle.PUBLISHED)
        case RevisionDeletionProposed():
            return _moved(offer, Lifecycle.DELETION_PROPOSED)
        case RevisionDeletionRejected():
            return _moved(offer, Lifecycle.PUBLISHED)
        case RevisionDeletionStarted():
            return _moved(offer, TERMINATING) if offer.release_id else (None, ())
        case RevisionDeleted():
            return None, _moved(offer, DELETED)[1] if offer.release_id else ()


def _moved(offer: ReleaseOffer, lifecycle: str) -> tuple[ReleaseOffer, Sequence[Struct]]:
    offered = ReleaseOffered(offer.release_id, offer.digest, str(lifecycle), offer.name)
    return replace(offer, lifecycle=str(lifecycle)), (offered,)


release_offers = Machine(
    collection=OFFERS,
    number=1,
    reads=(
        RevisionPublished,
        RevisionDeletionProposed,
        RevisionDeletionRejected,
        RevisionDeletionStarted,
        RevisionDeleted,
    ),
    ids=lambda fact: (fact.name,),
    start=lambda id, fact: ReleaseOffer(id),
    step=step_offer,
)

COLLECTIONS = (OFFERS,)
FOLDS = (release_offers,)
