"""A definition that cannot work is refused when it is defined, not when it is first used.

These tests claim no requirement: CB-8 and CB-11 are claimed by the tests of the engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import pytest
from msgspec import Struct

from tests.domain import sample_shop as shop
from tests.domain.sample_shop import SHOP, C, P, slice_of, struct, vocabulary_of
from tidegate.errors import InvalidDefinition, InvalidInput, LimitExceeded
from tidegate.kernel.model import Fact
from tidegate.kernel.slices import Slice
from tidegate.kernel.tags import ALL_INDEX, Partition, Tag, Untagged
from tidegate.kernel.vocabulary import Vocabulary

pure = {"engines": None, "reason": "a definition is checked before there is a store"}

ADDED = struct("Added", a_id=P)
JOINED = struct("Joined", a_id=P, b_id=C)
SECOND = struct("Second", a_id=P, b_id=str)


def reading(command: type[Struct], *reads: type[Struct]) -> Vocabulary:
    return vocabulary_of(*reads, slices=[slice_of(command, reads)])


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a tag without a text form": (
        lambda: vocabulary_of(struct(a_id=bytes)),
        "no text form",
    ),
    "one key twice": (
        lambda: vocabulary_of(struct(a_id=P, other=Annotated[str, Tag("a_id")])),
        "two fields for one tag key",
    ),
    "two partitions": (lambda: vocabulary_of(struct(a_id=P, b_id=P)), "more than one partition"),
    "a list as partition": (
        lambda: vocabulary_of(struct(a_ids=Annotated[tuple[str, ...], Partition()])),
        "must be one plain value",
    ),
    "an optional partition": (
        lambda: vocabulary_of(struct(a_id=Annotated[str | None, Partition()])),
        "must be one plain value",
    ),
    "a colon in a key": (
        lambda: vocabulary_of(struct(a=Annotated[str, Tag("a:b")])),
        "holds a colon",
    ),
    "the key of the global order": (
        lambda: vocabulary_of(struct(a=Annotated[str, Tag(ALL_INDEX.partition(":")[0])])),
        "all",
    ),
    "a key that reads like the name of a set": (
        lambda: vocabulary_of(struct(a=Annotated[str, Tag("13")])),
        "13",
    ),
    "several tags and no partition": (
        lambda: vocabulary_of(struct(a_id=str, b_id=str)),
        "no Partition",
    ),
    "a fact type twice": (lambda: vocabulary_of(ADDED, ADDED), "declared twice"),
    "a float": (lambda: vocabulary_of(struct(a_id=str, price=float)), "float"),
    "scopes that disagree": (lambda: vocabulary_of(JOINED, SECOND), "scope of 'b_id' disagrees"),
    "a slice that writes what is not declared": (
        lambda: vocabulary_of(ADDED, slices=[slice_of(struct("Add", a_id=str), [ADDED], [JOINED])]),
        "writes undeclared Joined",
    ),
    "a slice that reads what is not declared": (
        lambda: vocabulary_of(ADDED, slices=[slice_of(struct("Add", a_id=str), [JOINED])]),
        "reads undeclared Joined",
    ),
    "two slices of one name": (
        lambda: vocabulary_of(
            ADDED, slices=[slice_of(struct("Add", a_id=str), [ADDED], name="x") for _ in range(2)]
        ),
        "one name",
    ),
    "a command without a tag": (lambda: reading(struct("Add", a=str), ADDED), "nothing to read by"),
    "a command whose tag may be absent": (
        lambda: reading(struct("Add", a_id=P, b_id=str | None), SECOND),
        "may not be absent",
    ),
    "a command whose tag no fact carries": (
        lambda: reading(struct("Add", z_id=str), ADDED),
        "no fact carries a tag 'z_id'",
    ),
    "a command that reads by what nothing is indexed under": (
        lambda: reading(struct("Add", b_id=str), SECOND),
        "is indexed under it",
    ),
    "a consumed type that no clause can find": (
        lambda: reading(struct("Add", a_id=str), ADDED, struct("Other", z_id=str)),
        "reads Other, but none of its clauses can find one",
    ),
    "a composite that only a part of a set equals": (
        lambda: reading(
            struct("Add", a_id=P, b_id=str), struct("Three", a_id=P, b_id=str, c_id=str)
        ),
        "is indexed under it",
    ),
    "cross-partition on the command alone": (
        lambda: reading(struct("Add", a_id=P, b_id=C), SECOND),
        "plain on",
    ),
    "cross-partition on the fact alone": (
        lambda: reading(struct("Add", a_id=P, b_id=str), JOINED),
        "say so with Cross",
    ),
    "a view that declares a tag": (
        lambda: vocabulary_of(
            JOINED, slices=[slice_of(struct("Join", a_id=P, b_id=C), [struct("Joined", b_id=C)])]
        ),
        "declares tags on \\['b_id'\\]",
    ),
    "a view that declares a partition": (
        lambda: vocabulary_of(
            ADDED, slices=[slice_of(struct("Add", a_id=str), [struct("Added", a_id=P)])]
        ),
        "declares tags",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_a_definition_that_cannot_work(name: str) -> None:
    define, words = REFUSED[name]

    with pytest.raises(InvalidDefinition, match=words):
        define()


@pytest.mark.req("CB-5", **pure)
def test_a_composite_of_seven_tags_is_refused() -> None:
    hints: dict[str, Any] = {f"{letter}_id": str for letter in "abcdefg"} | {"a_id": P}

    reading(struct("Add", **dict(list(hints.items())[:6])), struct(**dict(list(hints.items())[:6])))
    with pytest.raises(LimitExceeded, match="tags of a composite: found 7, allowed 6"):
        reading(struct("Add", **hints), struct(**hints))


def test_courses_without_the_annotation_are_refused() -> None:
    subscribed = struct("StudentSubscribed", course_id=P, student_id=str)
    enrolled = struct("StudentEnrolled", student_id=str)
    subscribe = struct("SubscribeStudent", course_id=P, student_ids=tuple[str, ...])

    with pytest.raises(InvalidDefinition, match=r"student_id.*is indexed under it"):
        reading(subscribe, subscribed)
    with pytest.raises(InvalidDefinition, match="cross-partition, but plain"):
        reading(struct("SubscribeStudent", course_id=P, student_id=C), subscribed)
    # Once a consumed fact is partitioned by the student, the clause uses that partition.
    reading(subscribe, subscribed, enrolled)


def test_an_untagged_field_of_the_same_name_is_no_conflict() -> None:
    untagged = struct("Noted", a_id=P, b_id=Annotated[str, Untagged()])

    assert vocabulary_of(JOINED, untagged).indexes(Fact("t", "Noted", 1, ("a_id:1",), b"")) == (
        "a_id:1",
    )


def test_a_plain_view_of_a_fact_may_be_consumed() -> None:
    view = struct("ProductOrdered", quantity=int)
    capping = slice_of(shop.OrderProduct, [view])
    vocabulary = Vocabulary(shop.FACTS, (capping,))
    fact = vocabulary.fact(shop.ProductOrdered("o1", "c1", "p1", 3))

    assert vocabulary.value(fact, view) == view(3)
    assert len(vocabulary.query(capping, shop.OrderProduct("o1", "c1", "p1", 3)).clauses) == 2


def test_a_slice_starts_from_facts_or_from_rows_and_from_one_of_them() -> None:
    command = struct("Add", a_id=str)

    with pytest.raises(InvalidDefinition, match="one of the two"):
        Slice("neither", command, (), lambda state, command, now: ())
    with pytest.raises(InvalidDefinition, match="one of the two"):
        replace(slice_of(command, [ADDED], name="both"), rows=lambda command: ())
    with pytest.raises(InvalidDefinition, match="one of the two"):
        replace(slice_of(command, [ADDED], name="half"), evolve=None)


def test_names_a_fact_that_is_not_declared() -> None:
    with pytest.raises(InvalidInput, match="Added is not declared"):
        SHOP.fact(ADDED("1"))
    with pytest.raises(InvalidInput, match="ProductAdded is not declared"):
        SHOP.fact(struct("ProductAdded", product_id=str)("of another struct"))
