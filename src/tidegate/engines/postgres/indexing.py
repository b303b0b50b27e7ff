"""How each fact type is indexed, as stored in the log.

Two releases may have one log open. A type that only one of them knows does no harm. But if the
newer one indexes a type differently, the older one must not write that type any more, or the newer
one would miss its facts. So the log stores a rule per type and a generation, and every batch of
commits reads the generation under the lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegate import decoders
from tidegate.engines.postgres.sessions import Connection
from tidegate.errors import StoreRefused
from tidegate.kernel import index_rules, model
from tidegate.kernel.vocabulary import Vocabulary

REINDEX_PAGE_MAX = 10_000


class Indexing(NamedTuple):
    """All types that can be in the log. A new or changed type increases the generation."""

    generation: int
    types: dict[str, index_rules.IndexRule]

    def types_under(self, clause: model.Clause, index: str) -> Iterable[str]:
        """The types that are indexed under a clause over ANY, including those unknown here."""
        if clause.match is model.Match.EXACT and len(clause.tags) > 1:
            keys = tuple(sorted(tag.partition(":")[0] for tag in clause.tags))
            return (name for name, how in self.types.items() if keys in how.composites)
        key = index.partition(":")[0]
        return (name for name, how in self.types.items() if key in how.keys)

    def check(self, vocabulary: Vocabulary) -> None:
        """Raises: StoreRefused: a newer version indexes a type differently from this one."""
        for name in vocabulary.types:
            if self.types.get(name) != vocabulary.index_rule(name):
                raise StoreRefused(f"a newer version indexes {name} differently: upgrade this one")


def reindex(connection: Connection, changed: dict[str, index_rules.IndexRule]) -> None:
    """Rebuild the index for these types, in the caller's transaction and under its lock.

    The table is replaced by a new one, computed from the log. The caller must create its triggers
    again.
    """
    types = sorted(changed)
    connection.execute(
        b"ALTER TABLE event_index RENAME TO event_index_before;"
        b"ALTER INDEX event_index_pkey RENAME TO event_index_before_pkey;"
        b"CREATE TABLE event_index (LIKE event_index_before INCLUDING ALL)"
    )
    connection.execute(
        "INSERT INTO event_index SELECT * FROM event_index_before WHERE type <> ALL (%s)", (types,)
    )
    after = 0
    while page := connection.execute(
        "SELECT seq, type, tags FROM event_log WHERE seq > %s AND type = ANY (%s)"
        " ORDER BY seq LIMIT %s",
        (after, types, REINDEX_PAGE_MAX),
    ).fetchall():
        with connection.cursor().copy("COPY event_index (name, type, seq) FROM STDIN") as copy:
            for seq, type, tags in page:
                for name in changed[type].names(stored_tags(tags)):
                    copy.write_row((name, type, seq))
        after = page[-1][0]
    connection.execute("DROP TABLE event_index_before")


stored_tags = decoders.build(tuple[str, ...]).decode
