"""Selectors: what each form matches, what is refused and where, and that parsing loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tidegate.domain.fleet.refusals import InvalidLabel, InvalidSelector
from tidegate.domain.fleet.selectors import (
    LABELS_MAX,
    SELECTOR_BYTES_MAX,
    TERMS_MAX,
    VALUES_MAX,
    Selector,
    Term,
    Test,
    check_host_id,
    check_labels,
    parse,
)
from tidegate.errors import LimitExceeded

LABELS = {"role": "web", "zone": "a", "app.example/tier": "1"}

KEYS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,12}", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)
TERMS = st.one_of(
    st.builds(Term, KEYS, st.sampled_from((Test.PRESENT, Test.ABSENT))),
    st.builds(
        Term,
        KEYS,
        st.sampled_from((Test.IN, Test.NOT_IN)),
        st.frozensets(VALUES, min_size=1, max_size=3),
    ),
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("*", True),
        (" * ", True),
        ("role=web", True),
        ("role = web", True),
        ("role=db", False),
        ("role!=db", True),
        ("role!=web", False),
        ("absent!=x", True),
        ("role", True),
        ("absent", False),
        ("!absent", True),
        ("! role", False),
        ("zone in (a,b)", True),
        ("zone in ( b , c )", False),
        ("zone in(a)", True),
        ("zone notin (b,c)", True),
        ("zone notin (a)", False),
        ("absent in (a)", False),
        ("absent notin (a)", True),
        ("role=web,zone=a", True),
        ("role=web , zone=b", False),
        ("role=web,!absent,zone in (a,b)", True),
        ("app.example/tier=1", True),
        ("host=web-01", True),
        ("host!=web-01", False),
        ("host in (web-01,web-02),role", True),
        ("host", True),
        ("in", False),
        ("in in (a)", False),
        ("inside", False),
    ],
)
def test_matches_the_hosts_that_its_terms_describe(text: str, meant: bool) -> None:
    assert parse(text).matches(LABELS, "web-01") is meant


@pytest.mark.parametrize(
    ("text", "position", "allowed"),
    [
        ("", 0, r"\* or a label's key"),
        ("   ", 3, r"\* or a label's key"),
        ("=web", 0, "a label's key"),
        ("role=", 5, "a value"),
        ("role==web", 5, "a value"),
        ("role!", 4, "=, !=, in"),
        ("role=web,", 9, "a label's key"),
        (",role", 0, "a label's key"),
        ("role web", 5, "=, !=, in"),
        ("role=web zone=a", 9, "a comma or the end"),
        ("zone in", 7, r"\("),
        ("zone in a", 8, r"\("),
        ("zone in ()", 9, "a value"),
        ("zone in (a", 10, r"a comma or \)"),
        ("zone in (a b)", 11, r"a comma or \)"),
        ("zone notin (a,)", 14, "a value"),
        ("!", 1, "a label's key"),
        ("!role=web", 5, "a comma or the end"),
        ("*,role", 0, "a label's key"),
        ("role=*", 5, "a value"),
        ("role=w$b", 6, "a comma or the end"),
        ("röle", 1, "=, !=, in"),
        ("role=web\n", 8, "a comma or the end"),
    ],
)
def test_refuses_a_malformed_selector_and_names_the_place(
    text: str, position: int, allowed: str
) -> None:
    with pytest.raises(InvalidSelector, match=allowed) as refusal:
        parse(text)

    assert refusal.value.facts["position"] == position
    assert refusal.value.facts["found"] == text[position:]


@pytest.mark.parametrize(
    "text",
    [
        "a" + "," * SELECTOR_BYTES_MAX,
        ",".join("a" * (TERMS_MAX + 1)),
        f"a in ({','.join('b' * (VALUES_MAX + 1))})",
    ],
    ids=["bytes", "terms", "values"],
)
def test_limits_the_length_of_a_selector(text: str) -> None:
    with pytest.raises(LimitExceeded):
        parse(text)


def spelt(term: Term) -> str:
    if term.test in (Test.PRESENT, Test.ABSENT):
        return term.key if term.test is Test.PRESENT else f"!{term.key}"
    return f"{term.key} {term.test} ({', '.join(sorted(term.values))})"


@given(st.lists(TERMS, min_size=1, max_size=5))
def test_reads_back_every_selector_that_can_be_written(terms: list[Term]) -> None:
    assert parse(",".join(spelt(term) for term in terms)) == Selector(tuple(terms))


@given(st.text(max_size=40))
def test_answers_any_text_with_a_selector_or_with_a_refusal(text: str) -> None:
    try:
        parse(text).matches(LABELS, "web-01")
    except InvalidSelector as refusal:
        position = refusal.facts["position"]
        assert isinstance(position, int)
        assert 0 <= position <= len(text)


@pytest.mark.parametrize("name", ["web-01", "0", "a.b_c-d", "x" * 128])
def test_accepts_names_of_hosts_without_trailing_text(name: str) -> None:
    check_host_id(name)

    for more in ("\n", " ", "*", "/"):
        with pytest.raises(InvalidLabel):
            check_host_id(name + more)


@pytest.mark.parametrize("name", ["", "Web", "-web", "a/b", "a b", "x" * 129, "é", "a\n"])
def test_refuses_names_that_no_host_has(name: str) -> None:
    with pytest.raises(InvalidLabel):
        check_host_id(name)


@pytest.mark.parametrize(
    "labels",
    [{"": "a"}, {"a": ""}, {"a b": "c"}, {"a": "b c"}, {"a": "b,c"}, {"host": "web-01"}],
    ids=str,
)
def test_refuses_labels_that_no_selector_could_name(labels: dict[str, str]) -> None:
    with pytest.raises(InvalidLabel):
        check_labels(labels)


def test_limits_the_labels_of_a_host() -> None:
    check_labels({f"k{number}": "v" for number in range(LABELS_MAX)})
    with pytest.raises(LimitExceeded):
        check_labels({f"k{number}": "v" for number in range(LABELS_MAX + 1)})
