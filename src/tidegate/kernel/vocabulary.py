"""Derives from types which events a command depends on, so that nobody writes queries by hand.

An event is *indexed* under its partition tag, under each cross-partition tag, under its exact tag
set if a slice reads that composite, and under ``ALL_INDEX`` if its type has a global order. Every
engine uses this module, so on all of them the same index serves a read and guards its boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from tidegate.errors import InvalidDefinition, InvalidInput
from tidegate.kernel import codec, index_rules, model, slices as kernel_slices, tags as kernel_tags
from tidegate.kernel.clauses import DeclaredTypes, clause_fields

SHAPES_MAX = 4_096  # cached shapes of clauses
FILED_MAX = 8_192  # cached index names of facts, shared by types with the same index rule

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FactType:
    """One type of fact: its struct, its kind in the log, and its older schemas.

    ``upcasts[n]`` turns the JSON object of schema n into that of schema n + 1.
    """

    struct: type[Struct]
    kind: str
    schema: int = 1
    upcasts: Mapping[int, Upcast] = field(default_factory=dict)
    global_order: bool = False  # also indexed under ALL_INDEX, so clauses need no tag

    @property
    def name(self) -> str:
        return self.struct.__name__


def facts(kind: str, *structs: type[Struct]) -> tuple[FactType, ...]:
    """Fact types of one kind, all at schema 1."""
    return tuple(FactType(struct, kind) for struct in structs)


@dataclass(frozen=True, slots=True)
class _Served:
    """Which index serves clauses of one shape: a tag's, the exact set's, a named one, or none.

    Without an index only a scan of the log can answer the clause.
    """

    types: frozenset[str] | None  # the clause's types that are indexed there
    tag: int | None = None  # the place of the tag, among the sorted tags, that is the index
    composite: bool = False  # the exact tag set is the index
    name: str | None = None


class Vocabulary:
    """Every fact type and every slice of a log, checked against each other at start.

    Raises:
        InvalidDefinition: two types disagree on a tag's scope, a clause can match nothing, no
            clause can find a type in ``reads``, or a view has a tag annotation.
    """

    def __init__(
        self, types: Iterable[FactType], slices: Iterable[kernel_slices.Slice] = ()
    ) -> None:
        self.types: dict[str, FactType] = {}
        for fact_type in types:
            if fact_type.name in self.types:
                raise InvalidDefinition(f"fact type {fact_type.name} is declared twice")
            self.types[fact_type.name] = fact_type
            codec.prepare(fact_type.struct)
        self._fields = {
            name: kernel_tags.tag_fields(known.struct) for name, known in self.types.items()
        }
        self._tagged = {name: kernel_tags.tagging(found) for name, found in self._fields.items()}
        self._scopes = {
            name: {tag.key: tag.scope for tag in found} for name, found in self._fields.items()
        }
        self._shapes: dict[tuple[Any, ...], _Served] = {}
        self._filed: dict[tuple[int | None, tuple[str, ...]], tuple[str, ...]] = {}
        self._check_facts()
        self.slices = tuple(slices)
        # The exact tag sets that a slice reads: their keys, and the types that are indexed there.
        self.composites: dict[frozenset[str], frozenset[str]] = {}
        for item in self.slices:
            self._file_composite(item)
            for view in item.reads:
                codec.prepare(view)
        self._index_rules = {name: self._index_rule(name) for name in self.types}
        self._alike = self._alike_filed()
        self._declared = DeclaredTypes(
            {name: known.struct for name, known in self.types.items()},
            self._scopes,
            self.composites,
        )
        self._plans = {item.name: self._declared.plan(item) for item in self.slices}
        if len(self._plans) != len(self.slices):
            raise InvalidDefinition("two slices have one name")

    # ── encoding and decoding facts ──

    def fact(self, value: Struct, meta: model.Meta | None = None) -> model.Fact:
        """Encode the fact as it will be stored. Pass ``meta`` if it differs from the commit's.

        Raises:
            InvalidInput, LimitExceeded.
        """
        name = type(value).__name__
        known = self.types.get(name)
        if known is None or known.struct is not type(value):
            raise InvalidInput(f"fact type {name} is not declared")
        tags = self._tagged[name](value)
        body = codec.encode(value)
        codec.decode(body, known.struct)  # never write what cannot be read again
        return model.Fact(known.kind, name, known.schema, tags, body, meta)

    def value(self, event: model.Event | model.Fact, struct: type[Struct] | None = None) -> Struct:
        """Decode the fact of an event in its newest schema, or as a view: another ``struct``.

        Raises:
            InvalidInput: this version does not know the type or its schema.
        """
        known = self.types.get(event.type)
        if known is None or event.schema > known.schema:
            raise InvalidInput(f"{event.type} of schema {event.schema} is unknown here")
        wanted = struct or known.struct
        if event.schema == known.schema:
            return codec.decode(event.body, wanted)
        content = codec.decode(event.body, dict)
        for schema in range(event.schema, known.schema):
            content = known.upcasts[schema](content)
        return codec.convert(content, wanted)

    # ── indexes: the one place that decides which read finds which event ──

    def indexes(self, fact: model.Fact | model.Event) -> tuple[str, ...]:
        """The index names of this fact. Raises: InvalidInput."""
        # Cached: this is called when a fact is made and when it is committed, and facts with the
        # same tags often follow.
        asked = (self._alike.get(fact.type), fact.tags)
        filed = self._filed.get(asked)
        if filed is None:
            filed = self._file(fact)
            if len(self._filed) >= FILED_MAX:
                self._filed.clear()
            self._filed[asked] = filed
        return filed

    def _file(self, fact: model.Fact | model.Event) -> tuple[str, ...]:
        scopes = self._scopes.get(fact.type)
        if scopes is None:
            raise InvalidInput(f"fact type {fact.type} is not declared")
        keys = [tag.partition(":")[0] for tag in fact.tags]
        for key in keys:
            if key not in scopes:
                raise InvalidInput(
                    f"{fact.type} carries no tag {key!r}; it has {sorted(scopes) or 'none'}"
                )
        return self._index_rules[fact.type].filed(fact.tags, keys)

    def index_rule(self, name: str) -> index_rules.IndexRule:
        """The rule by which facts of this type are indexed."""
        return self._index_rules[name]

    def index(self, clause: model.Clause) -> str | None:
        """The index that serves the clause and guards it; None if only a scan can answer it.

        Raises:
            InvalidInput: a tag key or an event type is not declared.
        """
        return self.served(clause)[0]

    def fenced(self, clause: model.Clause) -> frozenset[str] | None:
        """The types of the clause that are indexed under its index; ANY stays ANY."""
        return self.served(clause)[1]

    def served(self, clause: model.Clause) -> tuple[str | None, frozenset[str] | None]:
        """The index and the types of the clause. Raises: InvalidInput."""
        tags = sorted(clause.tags)
        # Computed once for each shape of a clause, and cached.
        shape = (clause.types, tuple([tag.partition(":")[0] for tag in tags]), clause.match)
        served = self._shapes.get(shape)
        if served is None:
            served = self._serve(clause, shape[1])
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._shapes[shape] = served
        if served.tag is not None:
            return tags[served.tag], served.types
        return model.set_name(tags) if served.composite else served.name, served.types

    def _serve(self, clause: model.Clause, keys: tuple[str, ...]) -> _Served:
        self._check_known(clause, keys)
        if not keys:
            ordered = clause.types is not model.ANY and all(
                self.types[name].global_order for name in clause.types
            )
            return _Served(clause.types, name=kernel_tags.ALL_INDEX if ordered else None)
        if len(keys) > 1 and clause.match is model.Match.EXACT:
            return _Served(clause.types, composite=self._files(frozenset(keys), clause.types))
        exact = clause.match is model.Match.EXACT
        key = next((key for key in sorted(keys) if exact or self._covers(key, clause)), None)
        if key is None:
            return _Served(clause.types)
        types = clause.types
        if types is not model.ANY:
            types = frozenset(name for name in types if self._declared.indexed(name, {key}))
        return _Served(types, tag=keys.index(key))

    def matches(
        self,
        clause: model.Clause,
        event: model.Event | model.Fact,
        filed: Collection[str] | None = None,
    ) -> bool:
        """Whether a read of the clause returns the event. Engines must agree with this definition.

        ``filed`` are the event's index names; None: those of our own rule.
        """
        if clause.types is not model.ANY and event.type not in clause.types:
            return False
        if not clause.tags:
            return True
        if clause.match is model.Match.CONTAINS:
            return clause.tags.issubset(event.tags)
        if len(clause.tags) == 1:
            return next(iter(clause.tags)) in (self.indexes(event) if filed is None else filed)
        return clause.tags == frozenset(event.tags)

    # ── queries ──

    def query(self, item: kernel_slices.Slice, command: Struct) -> model.Query:
        """The clauses on which this command's decision depends.

        Raises:
            InvalidInput: the command has no tag at all (only empty lists), or an invalid tag value.
        """
        clauses: dict[model.Clause, None] = {}
        for planned in self._plans[item.name]:
            if planned.fields[0].many:
                for tag in planned.fields[0].tags(command):
                    clauses[model.Clause(planned.types, frozenset((tag,)))] = None
            else:
                tags = frozenset(tag for found in planned.fields for tag in found.tags(command))
                clauses[model.Clause(planned.types, tags)] = None
        if not clauses:
            raise InvalidInput(f"{item.name} depends on nothing: the command's lists are empty")
        model.at_most("clauses of a query", len(clauses), model.CLAUSES_MAX)
        return model.Query(tuple(clauses))

    def guard(self, item: kernel_slices.Slice, query: model.Query) -> model.Query | None:
        """What else a decision depends on if its query finds nothing (CB-13).

        These are the types that the slice writes, in the partitions that the command names. So if
        two commands both find nothing and both create something, one of them conflicts.
        """
        read = {name.__name__ for name in item.reads}
        created: dict[str, set[str]] = {}  # tag → types; a clause for each, so no more than asked
        for struct in item.writes:
            name = struct.__name__
            key = self._partition(name)
            if name in read or key is None:
                continue
            for clause in query.clauses:
                for tag in clause.tags:
                    if tag.partition(":")[0] == key:
                        created.setdefault(tag, set()).add(name)
        clauses = tuple(
            model.Clause(frozenset(names), frozenset((t,))) for t, names in created.items()
        )
        return model.Query(clauses) if clauses else None

    # ── checks at definition ──

    def _partition(self, name: str) -> str | None:
        return next(
            (tag.key for tag in self._fields[name] if tag.scope is kernel_tags.Scope.PARTITION),
            None,
        )

    def _check_known(self, clause: model.Clause, keys: Iterable[str]) -> None:
        for name in clause.types or ():
            if name not in self.types:
                raise InvalidInput(f"event type {name!r} is not declared")
        declared = {key for scopes in self._scopes.values() for key in scopes}
        for key in keys:
            if key not in declared:
                raise InvalidInput(f"unknown tag key {key!r}; known are {sorted(declared)}")

    def _covers(self, key: str, clause: model.Clause) -> bool:
        """Whether every event that can match a contains clause is indexed under this key."""
        wanted = self.types if clause.types is model.ANY else clause.types
        scopes = [self._scopes[name].get(key) for name in wanted]
        return kernel_tags.Scope.PLAIN not in scopes and any(scopes)

    def _check_facts(self) -> None:
        for name, found in self._fields.items():
            if len(found) > 1 and self._partition(name) is None:
                raise InvalidDefinition(f"{name} has several tags and no Partition() among them")
        for key in {key for scopes in self._scopes.values() for key in scopes}:
            carried = {name: scopes[key] for name, scopes in self._scopes.items() if key in scopes}
            if {kernel_tags.Scope.CROSS, kernel_tags.Scope.PLAIN} <= set(carried.values()):
                plain = sorted(
                    n for n, scope in carried.items() if scope is kernel_tags.Scope.PLAIN
                )
                cross = sorted(
                    n for n, scope in carried.items() if scope is kernel_tags.Scope.CROSS
                )
                raise InvalidDefinition(
                    f"the scope of {key!r} disagrees: cross-partition on {cross}, "
                    f"plain on {plain}; declare Cross() or Untagged() on each"
                )

    def _file_composite(self, item: kernel_slices.Slice) -> None:
        for fields in clause_fields(item):
            keys = frozenset(tag.key for tag in fields)
            if len(keys) > 1:
                model.at_most("tags of a composite", len(keys), model.COMPOSITE_TAGS_MAX)
                read = {struct.__name__ for struct in item.reads} & set(self.types)
                types = frozenset(name for name in read if self._may_carry(name, keys))
                self.composites[keys] = self.composites.get(keys, frozenset()) | types

    def _index_rule(self, name: str) -> index_rules.IndexRule:
        indexed = (
            tag.key for tag in self._fields[name] if tag.scope is not kernel_tags.Scope.PLAIN
        )
        sets = (tuple(sorted(keys)) for keys, types in self.composites.items() if name in types)
        return index_rules.IndexRule(
            tuple(sorted(indexed)), tuple(sorted(sets)), self.types[name].global_order
        )

    def _alike_filed(self) -> dict[str, int]:
        """A number for each type. Types with the same number have equal rules and tag keys."""
        rules: dict[tuple[index_rules.IndexRule, frozenset[str]], int] = {}
        found = {}
        for name, index_rule in self._index_rules.items():
            found[name] = rules.setdefault((index_rule, frozenset(self._scopes[name])), len(rules))
        return found

    def _files(self, keys: frozenset[str], types: frozenset[str] | None) -> bool:
        """Whether every event that can have exactly these keys is indexed under its exact set."""
        filed = self.composites.get(keys, frozenset())
        wanted = self.types if types is model.ANY else types
        return bool(filed) and all(name in filed for name in wanted if self._may_carry(name, keys))

    def _may_carry(self, name: str, keys: frozenset[str]) -> bool:
        """Whether an event of this type can carry exactly one tag of each of these keys."""
        found = {tag.key: tag for tag in self._fields[name]}
        return keys <= set(found) and all(
            tag.many or tag.optional for key, tag in found.items() if key not in keys
        )
