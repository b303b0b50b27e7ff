"""The fenced blocks of the pages, and the marks in the comments above them.

<!-- not run: reason -->           cannot run here; it is listed and counted
<!-- run: beside the next -->      runs while the next block does, and must succeed as well
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SHELLS: Final = frozenset({"sh", "bash", "console"})
RUNNABLE: Final = SHELLS | {"python"}
FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n`]*$")
NOT_RUN: Final = re.compile(r"^ *<!-- not run: (.+) -->$")
BESIDE: Final = re.compile(r"^ *<!-- run: beside the next -->$")
COMMAND: Final = re.compile(
    r"^(\$ |(\.venv/bin/)?tidegate [a-z]|script/\w|(\.venv/bin/)?python3? -m |curl |docker |"
    r"systemctl |pip |mkdocs |export \w+=)"
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its place, its language, and whether it can run."""

    page: str
    line: int
    language: str
    text: str
    reason: str = ""  # why it is not run
    beside: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order. Raises: ValueError: a fence is not closed."""
    lines = page.read_text().splitlines()
    name = str(page.relative_to(ROOT))
    number = 0
    while number < len(lines):
        if (fence := FENCE.match(lines[number])) is None:
            number += 1
            continue
        above = next((line for line in reversed(lines[:number]) if line.strip()), "")
        indent = len(fence["indent"])
        closing = " " * indent + "```"
        try:
            end = lines.index(closing, number + 1)
        except ValueError:
            raise ValueError(f"{name}:{number + 1} is not closed") from None
        text = "\n".join(line[indent:] for line in lines[number + 1 : end]) + "\n"
        said = NOT_RUN.match(above)
        yield Block(
            page=name,
            line=number + 1,
            language=fence["language"],
            text=text,
            reason=said[1] if said else "",
            beside=BESIDE.match(above) is not None,
        )
        number = end + 1


def indented_of(page: Path) -> Iterator[tuple[int, str]]:
    """Indented lines of code outside of fences, with their numbers."""
    is_fenced = False
    before = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced and line.startswith("    ") and not before.strip():
            yield number, line.strip()
        before = line


def commands_of(block: Block) -> str:
    """The input: of a ``console`` block, the lines after the prompt."""
    if block.language != "console":
        return block.text
    typed = [line[2:] for line in block.text.splitlines() if line.startswith(("$ ", "> "))]
    return "\n".join(typed) + "\n"
