"""Make published revisions releases that may be pinned: the link from packages to the registry.

    RevisionPublished, …DeletionProposed, …DeletionRejected, …DeletionStarted, RevisionDeleted
                                                                          ──▶ ReleaseOffered

A machine that remembers the release of each revision by the revision's name. The fact that it adds
is in the same commit as its cause. So a pin and a deletion at the same time always conflict, and
the deletion of a pinned release is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from tidegate.domain.packages import facts as package_facts, names, states
from tidegate.domain.releases import catalog, facts
from tidegate.kernel import collections as kernel_collections, folds


class ReleaseOffer(Struct, frozen=True, omit_defaults=True):
    """The release of a revision; no id before it is published."""

    name: str
    release_id: str = ""
    digest: str = ""
    lifecycle: str = ""


OFFERS = kernel_collections.Collection(
    "release_offers",
    ReleaseOffer,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)

OfferFact = (
    package_facts.RevisionPublished
    | package_facts.RevisionDeletionProposed
    | package_facts.RevisionDeletionRejected
    | package_facts.RevisionDeletionStarted
    | package_facts.RevisionDeleted
)


def release_id_of(package: str, number: int) -> str:
    """``default/web``, 3 → ``web.3``; ``blueprints/web``, 3 → ``blueprints.web.3``."""
    path = package.removeprefix(f"{names.DEFAULT_REPOSITORY}/")
    return f"{path.replace('/', '.')}.{number}"


def step_offer(
    offer: ReleaseOffer, fact: OfferFact, now: datetime
) -> tuple[ReleaseOffer | None, Sequence[Struct]]:
    match fact:
        case package_facts.RevisionPublished(package=package, number=number, digest=digest):
            release_id = release_id_of(package, number)
            offer = structs.replace(offer, release_id=release_id, digest=digest)
            return _offer(offer, states.Lifecycle.PUBLISHED)
        case package_facts.RevisionDeletionProposed():
            return _offer(offer, states.Lifecycle.DELETION_PROPOSED)
        case package_facts.RevisionDeletionRejected():
            return _offer(offer, states.Lifecycle.PUBLISHED)
        case package_facts.RevisionDeletionStarted():
            return _offer(offer, catalog.TERMINATING) if offer.release_id else (None, ())
        case package_facts.RevisionDeleted():
            return None, _offer(offer, catalog.DELETED)[1] if offer.release_id else ()


def _offer(offer: ReleaseOffer, lifecycle: str) -> tuple[ReleaseOffer, Sequence[Struct]]:
    offered = facts.ReleaseOffered(offer.release_id, offer.digest, str(lifecycle), offer.name)
    return structs.replace(offer, lifecycle=str(lifecycle)), (offered,)


release_offers = folds.Machine(
    collection=OFFERS,
    number=1,
    reads=(
        package_facts.RevisionPublished,
        package_facts.RevisionDeletionProposed,
        package_facts.RevisionDeletionRejected,
        package_facts.RevisionDeletionStarted,
        package_facts.RevisionDeleted,
    ),
    ids=lambda fact: (fact.name,),
    start=lambda id, fact: ReleaseOffer(id),
    step=step_offer,
)

COLLECTIONS = (OFFERS,)
FOLDS = (release_offers,)
