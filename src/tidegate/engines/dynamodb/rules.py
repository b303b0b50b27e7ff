"""The rule by which the events of each type are indexed, stored in the table.

Fences and index items are written with the events and never again. If today's rule would index
existing events of a type differently, reads by that rule would miss them. So the store then refuses
to open.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from tidegate import decoders
from tidegate.engines.dynamodb import items, transport as dynamodb_transport
from tidegate.engines.dynamodb.log import SlotLog
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.errors import StoreRefused, StoreUnavailable
from tidegate.kernel import index_rules, model
from tidegate.kernel.vocabulary import Vocabulary

RULES: Final = dynamodb_transport.ItemKey("meta", "rules")
CHANGES_MAX = 50


Rules = dict[str, index_rules.IndexRule]

_encode = msgspec.json.Encoder(order="deterministic").encode
_decoder = decoders.build(Rules)


def update_rules(
    transport: dynamodb_transport.Transport, pace: RetryPace, vocabulary: Vocabulary, log: SlotLog
) -> None:
    """Store the rule of each new type, and check that changed rules still fit existing events.

    Raises:
        StoreRefused: today's rule would index existing events of a type differently.
        StoreUnavailable: other processes kept changing the rules.
    """
    today = {name: vocabulary.index_rule(name) for name in vocabulary.types}
    for waits in range(CHANGES_MAX):
        found = pace.retry(partial(transport.get, [RULES])).get(RULES, {})
        old = _decoder.decode(items.blob(found, "rules")) if found else {}
        changed = {
            name: (old[name], rule) for name, rule in today.items() if old.get(name, rule) != rule
        }
        if changed:
            _refuse_reindexing(changed, log.scan())
        if old | today == old or _store_rules(transport, pace, found, old | today):
            return
        pace.wait(waits)
    raise StoreUnavailable(f"the rules of the table changed at {CHANGES_MAX} attempts")


def stored_rules(transport: dynamodb_transport.Transport, pace: RetryPace) -> Rules:
    """The stored rule of every type that any version has declared."""
    found = pace.retry(partial(transport.get, [RULES])).get(RULES)
    return _decoder.decode(items.blob(found, "rules")) if found else {}


def _store_rules(
    transport: dynamodb_transport.Transport,
    pace: RetryPace,
    found: dynamodb_transport.Item,
    rules: Rules,
) -> bool:
    """Store the rules; False if another process has changed them since they were read."""
    equal = {"rules": found.get("rules")}
    change = dynamodb_transport.UpdateItem(RULES, equal, sets={"rules": _encode(rules)})
    try:
        pace.retry(partial(transport.transact, [change], pace.new_id()))
    except dynamodb_transport.Cancelled:
        return False
    return True


def _refuse_reindexing(
    changed: dict[str, tuple[index_rules.IndexRule, index_rules.IndexRule]],
    events: Iterable[model.Event],
) -> None:
    for event in events:
        if event.type in changed:
            old, new = changed[event.type]
            if old.names(event.tags) != new.names(event.tags):
                raise StoreRefused(
                    f"the indexes of {event.type} changed, and its event at {event.position} is "
                    "filed by the old rule; give the new meaning a new type",
                    type=event.type,
                    position=event.position,
                )
