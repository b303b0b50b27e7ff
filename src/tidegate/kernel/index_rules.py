"""The rule by which the facts of one type are indexed.

A later release may index a type differently, but the facts in the log are indexed by the old rule.
So every engine stores the rules with the log and compares them when it opens the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tidegate.kernel.model import set_name
from tidegate.kernel.tags import ALL_INDEX


class IndexRule(Struct, frozen=True):
    """Decides the index names of the facts of one type."""

    keys: tuple[str, ...]  # the keys of tags that each are an index, sorted
    composites: tuple[tuple[str, ...], ...] = ()  # the keys of exact tag sets that are, sorted
    global_order: bool = False

    def names(self, tags: Sequence[str]) -> tuple[str, ...]:
        """The index names of a fact with these tags. Some may no longer be tags of its type."""
        return self.filed(tags, [tag.partition(":")[0] for tag in tags])

    def filed(self, tags: Sequence[str], keys: Sequence[str]) -> tuple[str, ...]:
        """As ``names``, for a caller that has already split off the tags' keys."""
        wanted = self.keys
        names = [tag for tag, key in zip(tags, keys, strict=True) if key in wanted]
        if self.composites and tuple(sorted(set(keys))) in self.composites:
            names.append(set_name(tags))
        if self.global_order:
            names.append(ALL_INDEX)
        return tuple(names)
