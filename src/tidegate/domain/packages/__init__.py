"""Package revisions: from Draft by review to Published, and to their end (seed 001).

names         repository / package path / workspace, dotted names
merging       how an upgrade merges three manifests (domain.content)
lifecycle     states, transitions and mutability, as data
facts         what happens
rows, links   what stands: folds of the facts
repositories, creation, updates, approvals, deletions      one slice per command
wholes        all of a package at once: delete, import
permissions   what each step asks of who sends it; imported by callers, for it knows roles
documents     a revision as clients see it
history       what the log tells: timeline, approvals, lineage
refusals      what can be said against a request
"""

from __future__ import annotations

from tidegate.domain.packages import (
    approvals,
    bulk,
    deletions,
    links,
    repositories,
    rows,
    slices,
    updates,
)
from tidegate.domain.packages.facts import FACTS

SLICES = (
    *repositories.SLICES,
    *slices.SLICES,
    *updates.SLICES,
    *approvals.SLICES,
    *deletions.SLICES,
    *bulk.SLICES,
)
COLLECTIONS = (
    rows.REPOSITORIES,
    rows.PACKAGES,
    rows.REVISIONS,
    links.REVISION_LINKS,
    links.REVISION_DEPENDENTS,
    links.REVISION_OWNERS,
    links.REVISION_TOMBSTONES,
)
FOLDS = (
    rows.repositories,
    rows.packages,
    rows.revisions,
    links.revision_links,
    links.revision_dependents,
    links.revision_owners,
    links.revision_tombstones,
)

__all__ = ["COLLECTIONS", "FACTS", "FOLDS", "SLICES"]
