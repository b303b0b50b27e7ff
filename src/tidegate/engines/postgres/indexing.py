"""How each type of fact is indexed, as the log remembers it.

Programs of two releases may have one log open. Types that only one of them knows do no harm; a type
that the newer one indexes otherwise must stop the older one from writing it, or facts would be
missing where the newer one looks. So the log keeps a description per type and a generation, and
every batch of commits asks for the generation under the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tidegate.engines.postgres.sessions import Connection
from tidegate.errors import StoreRefused
from tidegate.kernel.model import Clause, Match, set_name
from tidegate.kernel.tags import ALL_INDEX, Scope, tag_fields
from tidegate.kernel.vocabulary import Vocabulary

REINDEX_PAGE_MAX = 10_000


class TypeIndexing(Struct, frozen=True):
    """Under what facts of one type are filed: tag keys, exact sets of keys, the global order."""

    keys: tuple[str, ...]
    composites: tuple[tuple[str, ...], ...] = ()
    ordered: bool = False

    def names(self, tags: Sequence[str]) -> list[str]:
        """What ``Vocabulary.indexes`` gives, also for a type that only others know."""
        keys = [tag.partition(":")[0] for tag in tags]
        names = [tag for tag, key in zip(tags, keys, strict=True) if key in self.keys]
        if len(keys) > 1 and tuple(sorted(set(keys))) in self.composites:
            names.append(set_name(tags))
        if self.ordered:
            names.append(ALL_INDEX)
        return names


class Indexing(NamedTuple):
    """All types that can stand in the log. The generation grows when one comes or changes."""

    generation: int
    types: dict[str, TypeIndexing]

    def types_under(self, clause: Clause, index: str) -> Iterable[str]:
        """The types, known here or not, that can stand under the index of a clause over ANY."""
        if clause.match is Match.EXACT and len(clause.tags) > 1:
            keys = tuple(sorted(tag.partition(":")[0] for tag in clause.tags))
            return (name for name, how in self.types.items() if keys in how.composites)
        key = index.partition(":")[0]
        return (name for name, how in self.types.items() if key in how.keys)

    def check(self, vocabulary: Vocabulary) -> None:
        """Raises: StoreRefused: the log indexes a type otherwise than this program would."""
        for name, how in describe(vocabulary).items():
            if self.types.get(name) != how:
                raise StoreRefused(
                    f"a newer program indexes {name} otherwise; restart this one with its release"
                )


def describe(vocabulary: Vocabulary) -> dict[str, TypeIndexing]:
    """How a program indexes its fact types."""
    described = {}
    for name, known in vocabulary.types.items():
        fields = tag_fields(known.struct)
        carried = {field.key for field in fields}
        described[name] = TypeIndexing(
            tuple(sorted(field.key for field in fields if field.scope is not Scope.PLAIN)),
            tuple(sorted(tuple(sorted(c)) for c in vocabulary.composites if c <= carried)),
            known.global_order,
        )
    return described


def reindex(connection: Connection, changed: dict[str, TypeIndexing]) -> None:
    """Make the index anew for these types, in the caller's transaction and under its lock.

    The index is a function of the log, so the table is replaced, not edited; its triggers are the
    caller's to set again.
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


stored_tags = msgspec.json.Decoder(tuple[str, ...]).decode
