"""Every command that our messages tell people to type has all required arguments."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.all_commands import COMMANDS
from tests.cli.test_hints import exists
from tidegate import __file__ as HERE
from tidegate.cli.hints import NEXT

SOURCES = Path(HERE).parent
FILLED = "x-1"  # replaces a value in a message
# A command ends where its sentence continues.
_COMMAND = re.compile(r"tidegate ((?:[a-z][a-z-]*)(?: [^;,()`'\"\n|]+)?)")
_END = re.compile(r"[.:](?: |$)| (?:and|or|to|would|is|has|if|with|then) ")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module except docstrings; values in f-strings are replaced."""
    told = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            told.update(id(item) for item in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                str(item.value) if isinstance(item, ast.Constant) else FILLED
                for item in node.values
            )
            yield node.lineno, "".join(parts)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
        ):
            yield node.lineno, node.value


def printed() -> Iterator[tuple[str, str]]:
    """Each command in a message, and its place in the source."""
    for path in sorted(SOURCES.rglob("*.py")):
        for line, text in texts(ast.parse(path.read_text())):
            for found in _COMMAND.finditer(text):
                command = _END.split(found[1] + " ")[0].strip()
                words = command.split()
                if " ".join(words[:2]) in COMMANDS or words[0] in COMMANDS:
                    yield f"{path.relative_to(SOURCES)}:{line}", command


def find_fault(command: str) -> str:
    """The error that the command would give; empty if nothing is missing. A replaced value may be
    of another type than the command takes.
    """
    words = shlex.split(command.replace("…", FILLED).replace(" N", " 1"))
    words = [re.sub(r"\{\w+\}", FILLED, word) for word in words]
    name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
    rest = words[len(name.split()) :]
    if "--help" in rest:
        return ""
    try:
        COMMANDS[name].make_context(name, rest)
    except click.MissingParameter as error:
        is_named = isinstance(error.param, click.Argument) and not rest  # only the verb is named
        return "" if is_named else error.format_message()
    except click.NoSuchOption as error:
        return error.format_message()
    except click.UsageError:
        return ""
    return ""


def test_finds_commands_to_check() -> None:
    assert len(set(printed())) > 40


@pytest.mark.parametrize(
    ("where", "command"), sorted(set(printed())), ids=lambda value: str(value)[:60]
)
def test_a_printed_command_lacks_no_required_option(where: str, command: str) -> None:
    assert exists(command), where
    assert find_fault(command) == "", f"{where}: tidegate {command}"


@pytest.mark.parametrize("code", sorted(NEXT))
def test_a_suggested_command_lacks_no_required_option(code: str) -> None:
    for text in NEXT[code]:
        command = text.format(name=FILLED, path="channel promote", list="rev list")
        if command.split()[0] not in ("serve", "doctor", "--version", "--help"):
            assert find_fault(command) == "", command
