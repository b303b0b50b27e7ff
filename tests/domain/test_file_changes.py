"""How far two files are compared line by line."""

from __future__ import annotations

from difflib import unified_diff

from hypothesis import given, strategies as st

from tidegate.domain.content.differences import STEPS_MAX, ComparisonBudget, diff_lines

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n"]), max_size=30)


def numbered(word: str, count: int) -> list[str]:
    return [f"{word} {number}\n" for number in range(count)]


def test_two_files_whose_every_second_line_differs_are_too_different_to_show() -> None:
    before = numbered("a", 10_000)
    after = [line if number % 2 else f"b{number}\n" for number, line in enumerate(before)]
    budget = ComparisonBudget()

    assert diff_lines(before, after, "conf", budget) is None
    assert 0 <= budget.steps <= STEPS_MAX


def test_two_files_of_the_same_lines_in_another_order_are_too_different_to_show() -> None:
    before = [f"{number % 150}\n" for number in range(16_000)]

    assert diff_lines(before, before[::-1], "conf", ComparisonBudget()) is None


def test_two_long_files_without_a_common_line_are_shown() -> None:
    found = diff_lines(numbered("a", 8_000), numbered("b", 8_000), "conf", ComparisonBudget())

    assert found is not None
    assert found.count("\n") == 16_003


def test_the_files_of_two_revisions_share_one_budget() -> None:
    budget = ComparisonBudget(100)
    before, after = numbered("a", 40), [*numbered("a", 39), "new\n"]

    found = [diff_lines(before, after, "conf", budget) is None for _ in range(3)]

    assert found == [False, True, True]


@given(LINES, LINES)
def test_a_patch_equals_the_one_from_difflib(before: list[str], after: list[str]) -> None:
    expected = "".join(unified_diff(before, after, fromfile="a/x", tofile="b/x"))

    assert diff_lines(before, after, "x", ComparisonBudget()) == expected
