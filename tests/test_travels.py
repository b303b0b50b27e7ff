"""Stored and sent names equal the frozen list: logs and agents outlive names in the code."""

from __future__ import annotations

from tests import travels

ADVICE = """\
What is stored or sent has changed. If that is meant, run
    .venv/bin/python -m tests.travels
A line with - is a break: say so in CHANGELOG.md, with the reason. A line with + is an addition.
{lines}"""


def test_stored_and_sent_names_equal_the_frozen_list() -> None:
    frozen, found = travels.frozen(), travels.found()
    gone = [f"- {line}" for line in frozen if line not in set(found)]
    new = [f"+ {line}" for line in found if line not in set(frozen)]

    assert not gone + new, ADVICE.format(lines="\n".join(gone + new))


def test_the_list_has_each_kind_of_name() -> None:
    kinds = {line.partition(" ")[0] for line in travels.frozen()}

    assert kinds == {
        *("fact", "tag", "collection", "column", "index", "sqlite", "postgres", "dynamodb"),
        *("error", "key", "context", "header", "route"),
    }


def test_the_list_is_sorted_and_names_no_modules() -> None:
    frozen = travels.frozen()

    assert frozen == sorted(set(frozen))
    assert [line for line in frozen if "tidegate.domain" in line or "tidegate.kernel" in line] == []
