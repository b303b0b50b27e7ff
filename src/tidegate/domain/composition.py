"""The whole domain composed: one vocabulary, one schema, one set of folds.

noun          collections
repository    repositories
package       packages
revision      revisions, revision_links, revision_dependents, revision_owners
revision      revision_tombstones
release       release_offers, known_releases, release_pins, release_matches
scope         release_actual, release_events, release_evidence, release_commands
outbox        outbox, outbox_deliveries, outbox_queues, outbox_drifts
publication   publications, generations, publication_requests
host          host_rollout_records, probe_failures, host_orders, dispatch_queue
rollout       rollouts, rollout_tallies, rollout_gates, release_standings, quarantined_closures
channel       channels, rollout_incarnations, freezes, channel_stops, protected_channels
window        windows, window_names
request       requests
fleet         hosts, fleet, budgets, host_liveness, join_tokens
credential    enrollment_tokens, token_replay, cert_revocations
notification  subscriptions, notice_queues, notices, subscription_addresses, notifier_positions
lease         leases
log           epochs
access        installations, users, api_tokens, people, logins, credentials, token_secrets
access        sessions, installation_ids

Only folds write them, except for the collections declared as kept: leases, the dispatch queue,
liveness, people and their secrets (access), and the addresses of subscriptions. A release is a
published revision; ``releases.from_packages`` is the only place that connects packages and the
registry.
"""

from __future__ import annotations

from typing import Final

from tidegate.domain import epochs, setup
from tidegate.domain.access import declarations as access
from tidegate.domain.channels import declarations as channels
from tidegate.domain.fleet import declarations as fleet
from tidegate.domain.gates import automation
from tidegate.domain.hosts import declarations as hosts
from tidegate.domain.notifications import declarations as notifications
from tidegate.domain.outbox import declarations as outbox
from tidegate.domain.packages import declarations as packages
from tidegate.domain.publication import declarations as publication
from tidegate.domain.releases import declarations as releases, from_packages
from tidegate.domain.requests import declarations as requests
from tidegate.domain.rollouts import declarations as rollouts
from tidegate.domain.windows import declarations as windows
from tidegate.kernel import collections, folds as kernel_folds, leases, store, vocabulary
from tidegate.kernel.records.records import REPAIRS

FACTS: Final = (
    *access.FACTS,
    *packages.FACTS,
    *releases.FACTS,
    *outbox.FACTS,
    *publication.FACTS,
    *hosts.FACTS,
    *rollouts.FACTS,
    *channels.FACTS,
    *windows.FACTS,
    *requests.FACTS,
    *fleet.FACTS,
    *notifications.FACTS,
    *epochs.FACTS,
    *REPAIRS,
)
SLICES: Final = (
    *access.SLICES,
    *packages.SLICES,
    *setup.SLICES,
    *releases.SLICES,
    *outbox.SLICES,
    *publication.SLICES,
    *hosts.SLICES,
    *rollouts.SLICES,
    *channels.SLICES,
    *windows.SLICES,
    *requests.SLICES,
    *automation.SLICES,
    *fleet.SLICES,
    *notifications.SLICES,
    *epochs.SLICES,
)
COLLECTIONS: Final = (
    *access.COLLECTIONS,
    *packages.COLLECTIONS,
    *from_packages.COLLECTIONS,
    *releases.COLLECTIONS,
    *outbox.COLLECTIONS,
    *publication.COLLECTIONS,
    *hosts.COLLECTIONS,
    *rollouts.COLLECTIONS,
    *channels.COLLECTIONS,
    *windows.COLLECTIONS,
    *requests.COLLECTIONS,
    *fleet.COLLECTIONS,
    *notifications.COLLECTIONS,
    *epochs.COLLECTIONS,
    leases.LEASES,
)


def compose(*kept: collections.Collection) -> kernel_folds.Folds:
    """All folds, over a schema that also has these kept collections of other packages.

    Raises:
        InvalidDefinition.
    """
    schema = store.Schema(vocabulary.Vocabulary(FACTS, SLICES), (*COLLECTIONS, *kept))
    folds = (
        *access.FOLDS,
        *packages.FOLDS,
        *from_packages.FOLDS,
        *releases.FOLDS,
        *outbox.FOLDS,
        *publication.FOLDS,
        *hosts.FOLDS,
        *rollouts.FOLDS,
        *channels.FOLDS,
        *windows.FOLDS,
        *requests.FOLDS,
        *fleet.FOLDS,
        *notifications.FOLDS,
        *epochs.FOLDS,
    )
    return kernel_folds.Folds(schema, folds)


FOLDS: Final = compose()
SCHEMA: Final = FOLDS.schema
