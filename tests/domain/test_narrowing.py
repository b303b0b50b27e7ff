"""Random vocabularies: narrowing loses nothing, and every fact found is covered by a fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from msgspec import Struct

from tests.domain.sample_shop import C, P, slice_of, struct, vocabulary_of
from tests.quick import fewer
from tidegate.errors import InvalidDefinition
from tidegate.kernel.model import Clause, Fact, Query
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import Cross, tag_fields
from tidegate.kernel.vocabulary import Vocabulary

pure = {"engines": None, "reason": "derivation is a pure function of types and values"}
Draw = Callable[[st.SearchStrategy[Any]], Any]

KEYS = ("a", "b", "c")
VALUES = st.sampled_from(["1", "2"])


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[Vocabulary, Slice]:
    """Random fact types over three tag keys, and a command that reads those that it can find."""
    crossed = draw(st.sets(st.sampled_from(KEYS), max_size=1))
    structs = [_fact_type(draw, f"Fact{n}", crossed) for n in range(draw(st.integers(1, 4)))]
    sets = [{tag.key.removesuffix("_id") for tag in tag_fields(made)} for made in structs]
    keys = sorted(draw(st.sampled_from([*sets, *({key} for key in set().union(*sets))])))
    command = struct("Command", **_command(keys, crossed, listed=draw(st.booleans())))
    reads = [made for made in structs if _defined(structs, command, [made])]
    for more in draw(st.permutations(structs)):
        if more not in reads and _defined(structs, command, [*reads, more]):
            reads.append(more)
    assume(reads)
    item = slice_of(command, reads)
    return vocabulary_of(*structs, slices=[item]), item


def _defined(structs: list[type[Struct]], command: type[Struct], reads: list[type[Struct]]) -> bool:
    try:
        vocabulary_of(*structs, slices=[slice_of(command, reads)])
    except InvalidDefinition:
        return False
    return True


def _command(keys: list[str], crossed: set[str], *, listed: bool) -> dict[str, Any]:
    hints: dict[str, Any] = {f"{key}_id": C if key in crossed else str for key in keys}
    if listed:
        many: Any = tuple[str, ...]
        del hints[f"{keys[0]}_id"]
        hints[f"{keys[0]}_ids"] = Annotated[many, Cross()] if keys[0] in crossed else many
    return hints


def _fact_type(draw: Draw, name: str, crossed: set[str]) -> type[Struct]:
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    hints: dict[str, Any] = {f"{keys[0]}_id": P}
    for key in keys[1:]:
        many = draw(st.booleans())
        hint: Any = tuple[str, ...] if many else str
        hints[f"{key}_ids" if many else f"{key}_id"] = (
            Annotated[hint, Cross()] if key in crossed else hint
        )
    return struct(name, **hints)


def _value(draw: Draw, made: type[Struct]) -> Struct:
    return made(
        **{
            field.name: tuple(draw(st.lists(VALUES, max_size=2))) if field.many else draw(VALUES)
            for field in tag_fields(made)
        }
    )


@pytest.mark.req("CB-7", **pure)
@settings(max_examples=fewer(100), deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_narrowing_never_changes_what_a_read_returns(data: st.DataObject) -> None:
    vocabulary, item = data.draw(vocabularies())
    command = _value(data.draw, item.command)
    assume(any(getattr(command, field.name) for field in tag_fields(item.command)))
    narrowed = vocabulary.query(item, command)
    consumed = frozenset(read.__name__ for read in item.reads)
    wide = Query(tuple(Clause(consumed, clause.tags) for clause in narrowed.clauses))

    types = st.sampled_from([known.struct for known in vocabulary.types.values()])
    for _ in range(6):
        fact = vocabulary.fact(_value(data.draw, data.draw(types)))

        def found(query: Query, fact: Fact = fact) -> bool:
            return any(vocabulary.matches(clause, fact) for clause in query.clauses)

        assert found(narrowed) == found(wide)
    for clause in narrowed.clauses:
        assert clause.types
        assert clause.types <= consumed


@settings(max_examples=fewer(100), deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_facts_found_by_a_clause_are_in_the_index_that_fences_it(data: st.DataObject) -> None:
    """Index scope = read scope = fence scope."""
    vocabulary, item = data.draw(vocabularies())
    command = _value(data.draw, item.command)
    assume(any(getattr(command, field.name) for field in tag_fields(item.command)))
    made = data.draw(st.sampled_from([known.struct for known in vocabulary.types.values()]))
    fact = vocabulary.fact(_value(data.draw, made))

    for clause in vocabulary.query(item, command).clauses:
        index = vocabulary.index(clause)
        assert index is not None
        fenced = vocabulary.fenced(clause)
        assert fenced is not None
        under = index in vocabulary.indexes(fact) and fact.type in fenced
        assert vocabulary.matches(clause, fact) == under
