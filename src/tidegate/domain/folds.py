"""Everything that the domain knows, put together: one vocabulary, one schema, one set of folds.

noun          collections
repository    repositories
package       packages
revision      revisions, revision_links, revision_dependents, revision_tombstones
release       release_offers, known_releases, release_pins, release_matches
scope         release_actual, release_events, release_evidence, release_commands
outbox        outbox, outbox_deliveries, outbox_queues, outbox_drifts
publication   publications, generations, publication_requests
lease         leases

Folds alone write them, but for leases, which are kept. A release is a published revision
(``releases.offers``): the one place where packages and the registry meet.
"""

from __future__ import annotations

from typing import Final

from tidegate.domain import outbox, packages, publication, releases
from tidegate.domain.releases import offers
from tidegate.kernel.folds import Folds
from tidegate.kernel.leases import LEASES
from tidegate.kernel.policy import Collection
from tidegate.kernel.records import REPAIRS
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

FACTS: Final = (*packages.FACTS, *releases.FACTS, *outbox.FACTS, *publication.FACTS, *REPAIRS)
SLICES: Final = (*packages.SLICES, *releases.SLICES, *outbox.SLICES, *publication.SLICES)
COLLECTIONS: Final = (
    *packages.COLLECTIONS,
    *offers.COLLECTIONS,
    *releases.COLLECTIONS,
    *outbox.COLLECTIONS,
    *publication.COLLECTIONS,
    LEASES,
)


def composed(*kept: Collection) -> Folds:
    """All folds, over a schema that also holds kept collections of the rooms above this one.

    Raises:
        InvalidDefinition.
    """
    schema = Schema(Vocabulary(FACTS, SLICES), (*COLLECTIONS, *kept))
    folds = (*packages.FOLDS, *offers.FOLDS, *releases.FOLDS, *outbox.FOLDS, *publication.FOLDS)
    return Folds(schema, folds)


FOLDS: Final = composed()
SCHEMA: Final = FOLDS.schema
