"""Under which index names the facts of one type are filed: what a log remembers of a type.

A program of a later release may file a type otherwise. Facts that are in the log were filed by
the old rule, so every engine keeps the rule with the log and compares it when it opens.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tidegate.kernel.model import set_name
from tidegate.kernel.tags import ALL_INDEX


class IndexRule(Struct, frozen=True):
    """All that decides where a fact of one type is filed: two that are equal file alike."""

    keys: tuple[str, ...]  # of tags that are indexes by themselves, sorted
    composites: tuple[tuple[str, ...], ...] = ()  # of exact tag sets that are, each sorted
    global_order: bool = False

    def names(self, tags: Sequence[str]) -> tuple[str, ...]:
        """The index names of a fact with these tags, some of which may be payload by now."""
        return self.filed(tags, [tag.partition(":")[0] for tag in tags])

    def filed(self, tags: Sequence[str], keys: Sequence[str]) -> tuple[str, ...]:
        """The same, where the tags' keys are known."""
        wanted = self.keys
        names = [tag for tag, key in zip(tags, keys, strict=True) if key in wanted]
        if self.composites and tuple(sorted(set(keys))) in self.composites:
            names.append(set_name(tags))
        if self.global_order:
            names.append(ALL_INDEX)
        return tuple(names)
