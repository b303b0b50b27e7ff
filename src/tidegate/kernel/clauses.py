"""Derives the clauses by which a slice reads from its types.

A clause that could never match is an error when the slice is defined, not at the first command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_type_hints

from msgspec import Struct

from tidegate.errors import InvalidDefinition
from tidegate.kernel import slices, tags


@dataclass(frozen=True, slots=True)
class PlannedClause:
    """A clause without the values of a command: the fields of its tags, and the types."""

    fields: tuple[tags.TagField, ...]
    types: frozenset[str]


def clause_fields(item: slices.Slice) -> tuple[tuple[tags.TagField, ...], ...]:
    """The fields of each clause of a slice (CB-4, 5).

    A command with a list or a cross-partition tag gets a clause per field. Otherwise all its fields
    form one composite clause.

    Raises:
        InvalidDefinition: the command has no tag.
    """
    if item.rows is not None:
        return ()
    found = tags.tag_fields(item.command)
    if not found:
        raise InvalidDefinition(f"{item.command.__name__} has no tag, so nothing to read by")
    if any(tag.many or tag.scope is tags.Scope.CROSS for tag in found):
        return tuple((tag,) for tag in found)
    return (found,)


@dataclass(frozen=True, slots=True)
class DeclaredTypes:
    """The declarations that a slice is checked against.

    ``scopes`` maps type and tag key to the tag's scope. ``composites`` maps each exact tag set that
    is an index to the types that are indexed under it.
    """

    structs: Mapping[str, type[Struct]]
    scopes: Mapping[str, Mapping[str, tags.Scope]]
    composites: Mapping[frozenset[str], frozenset[str]]

    def indexed(self, name: str, keys: set[str]) -> bool:
        """Whether facts of this type are indexed under tags with these keys."""
        if len(keys) > 1:
            return name in self.composites.get(frozenset(keys), ())
        return self.scopes[name].get(next(iter(keys)), tags.Scope.PLAIN) is not tags.Scope.PLAIN

    def plan(self, item: slices.Slice) -> tuple[PlannedClause, ...]:
        """Derive the clauses of a slice; none if it starts from rows.

        Raises:
            InvalidDefinition: a clause that can match nothing, a type in ``reads`` that no clause
                can find, a type or tag that is not declared, a tag annotation on a view.
        """
        for struct in item.writes:
            if struct.__name__ not in self.structs:
                raise InvalidDefinition(f"slice {item.name} writes undeclared {struct.__name__}")
        if item.rows is not None:
            return ()
        reads = frozenset(self._consumed(item, struct) for struct in item.reads)
        for tag in tags.tag_fields(item.command):
            self._check_command_tag(item, tag, reads)
        plan = []
        for fields in clause_fields(item):
            keys = {tag.key for tag in fields}
            types = frozenset(name for name in reads if keys <= set(self.scopes[name]))
            if not any(self.indexed(name, keys) for name in types):
                raise InvalidDefinition(
                    f"slice {item.name} reads by {sorted(keys)}, but none of {sorted(reads)} "
                    "is indexed under it; declare Cross() on command and fact, or Untagged()"
                )
            plan.append(PlannedClause(fields, types))
        for name in reads:
            if not any(
                name in clause.types and self.indexed(name, {tag.key for tag in clause.fields})
                for clause in plan
            ):
                raise InvalidDefinition(
                    f"slice {item.name} reads {name}, but none of its clauses can find one"
                )
        return tuple(plan)

    def _consumed(self, item: slices.Slice, struct: type[Struct]) -> str:
        name = struct.__name__
        known = self.structs.get(name)
        if known is None:
            raise InvalidDefinition(f"slice {item.name} reads undeclared {name}")
        if known is not struct:
            hints = get_type_hints(struct, include_extras=True)
            noted = [
                field_name
                for field_name, hint in hints.items()
                if any(isinstance(note, tags.Tag) for note in tags.annotations_of(hint)[1])
            ]
            if noted:
                raise InvalidDefinition(
                    f"the view of {name} in slice {item.name} declares tags on {noted}; "
                    "tags belong to the command and the produced fact"
                )
        return name

    def _check_command_tag(
        self, item: slices.Slice, tag: tags.TagField, reads: frozenset[str]
    ) -> None:
        where = f"{item.command.__name__}.{tag.name}"
        if tag.optional:
            raise InvalidDefinition(f"{where} is a tag and may not be absent")
        carried = {n: scopes[tag.key] for n, scopes in self.scopes.items() if tag.key in scopes}
        if not carried:
            raise InvalidDefinition(f"{where}: no fact carries a tag {tag.key!r}")
        if tag.scope is tags.Scope.CROSS:
            plain = sorted(name for name, scope in carried.items() if scope is tags.Scope.PLAIN)
            if plain:
                raise InvalidDefinition(
                    f"{where} is cross-partition, but plain on {plain}; declare it on both"
                )
        elif any(carried.get(name) is tags.Scope.CROSS for name in reads):
            raise InvalidDefinition(
                f"{where} is read over all partitions; say so with Cross() on the command too"
            )
