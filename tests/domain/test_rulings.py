"""Every ruling of the references is quoted by a test, held by one elsewhere, or outside."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
QUOTED = re.compile(r"((?:packages|release-state|publication)\.md) §([0-9.]+)\s+#([0-9]+)")
REFERENCES = ("packages.md", "release-state.md", "publication.md")
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("rulings.toml").read_text())
RULINGS = {
    f"{reference} §{section} #{number}"
    for reference in REFERENCES
    for section, count in TABLE[reference].items()
    for number in range(1, count + 1)
}


def quoted() -> dict[str, set[str]]:
    """Ruling → the test files that quote it. Continued lines of a string are read as one."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = re.sub(r'"\s*\n\s*"', "", path.read_text())
        for reference, section, number in QUOTED.findall(text):
            found.setdefault(f"{reference} §{section} #{number}", set()).add(path.name)
    return found


def named(entries: str) -> list[str]:
    return [entry["ruling"] for entry in TABLE[entries]]


def test_quotes_every_ruling_in_some_test() -> None:
    missing = RULINGS - set(quoted()) - set(named("held")) - set(named("outside"))

    assert sorted(missing) == []


def test_quotes_no_ruling_that_is_not_in_the_table() -> None:
    told = {*quoted(), *named("held"), *named("outside")}

    assert sorted(told - RULINGS) == []
    assert [ruling for ruling, times in Counter(named("outside")).items() if times > 1] == []
    assert sorted(set(named("outside")) & {*quoted(), *named("held")}) == []


@pytest.mark.parametrize("entry", TABLE["held"], ids=lambda entry: str(entry["ruling"]))
def test_is_held_by_a_test_that_exists(entry: dict[str, str]) -> None:
    path, _, name = entry["test"].partition("::")
    tree = ast.parse((TESTS.parent / path).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    assert entry["quote"]
    assert not name or name in functions


def test_counts_as_many_rulings_as_were_found() -> None:
    """So that a section which is lost from the table is missed."""
    counts = {reference: sum(TABLE[reference].values()) for reference in REFERENCES}

    assert counts == {"packages.md": 223, "release-state.md": 202, "publication.md": 62}
