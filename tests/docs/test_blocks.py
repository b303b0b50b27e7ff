"""The commands of README and docs: run in order, page by page, or marked with a reason."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.all_commands import COMMANDS
from tests.docs import fragments
from tests.docs.blocks import (
    COMMAND,
    PAGES,
    ROOT,
    RUNNABLE,
    SHELLS,
    Block,
    blocks_of,
    commands_of,
    indented_of,
)
from tests.docs.session import run_page, script_of

TYPED = re.compile(  # in a sentence or a table, and as a line of a block, which may be continued
    r"`(tidegate [a-z][^`]*)`|^ *(?:\$ )?(tidegate [a-z].*(?:(?<=\\)\n.*)*)$", re.MULTILINE
)
FLAG = re.compile(r"(?<!\S)--[a-z][a-z-]*")
BLOCKS = {str(page.relative_to(ROOT)): list(blocks_of(page)) for page in PAGES}


def runnable(languages: frozenset[str]) -> dict[str, list[Block]]:
    """The blocks of each page that can run here."""
    found = {
        page: [block for block in blocks if block.language in languages and not block.reason]
        for page, blocks in BLOCKS.items()
    }
    return {page: blocks for page, blocks in found.items() if blocks}


def fault_of(typed: str) -> str:
    """The commands or flags of this line that do not exist; empty if all do."""
    line = " ".join(typed.partition(" #")[0].replace("\\\n", " ").split())
    words = line.split()[1:]
    name = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), "")
    if not name:
        is_group = len(words) == 1 and any(name.startswith(f"{words[0]} ") for name in COMMANDS)
        return "" if is_group else line
    params = COMMANDS[name].params
    known = {"--help", *(flag for item in params for flag in (*item.opts, *item.secondary_opts))}
    return " ".join(flag for flag in FLAG.findall(line) if flag not in known)


@pytest.mark.parametrize("page", runnable(SHELLS))
def test_runs_every_command_of_the_page(page: str, tmp_path: Path) -> None:
    told = run_page(runnable(SHELLS)[page], tmp_path)

    assert told.endswith("the page is done\n")


@pytest.mark.parametrize("page", runnable(frozenset({"python"})))
def test_runs_the_python_of_the_page(page: str, tmp_path: Path) -> None:
    fragments.run(page, runnable(frozenset({"python"}))[page], tmp_path)


def test_no_unmarked_block_contains_a_command() -> None:
    fenced = [
        block.place
        for blocks in BLOCKS.values()
        for block in blocks
        if block.language not in RUNNABLE and not block.reason and block.page != "docs/cli.md"
        for line in block.text.splitlines()
        if COMMAND.match(line)
    ]
    indented = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in PAGES
        for number, line in indented_of(page)
        if COMMAND.match(line)
    ]

    assert sorted(set(fenced)) == [], "fence them as sh, or mark them"
    assert indented == [], "fence them as sh, or mark them"


def test_shows_only_commands_and_flags_that_exist() -> None:
    shown = [
        (page.relative_to(ROOT), inline or line)
        for page in PAGES
        for inline, line in TYPED.findall(page.read_text())
    ]

    wrong = [f"{page}: {fault}" for page, typed in shown if (fault := fault_of(typed))]
    assert len(shown) > 500
    assert wrong == []


@pytest.mark.parametrize(
    ("typed", "fault"),
    [
        ("tidegate rollout", ""),
        ("tidegate channel promote prod web.1 --wait   # --not-looked-at", ""),
        ("tidegate channel promote prod web.1 \\\n  --wiat", "--wiat"),
        ("tidegate channel promot prod", "tidegate channel promot prod"),
    ],
)
def test_finds_a_command_or_flag_that_does_not_exist(typed: str, fault: str) -> None:
    assert fault_of(typed) == fault


def test_lists_and_counts_what_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    marked = [block for blocks in BLOCKS.values() for block in blocks if block.reason]
    run = sum(len(blocks) for blocks in runnable(RUNNABLE).values())
    lines = [f"blocks of the pages: {run} run, {len(marked)} not run"]
    lines += [f"  not run  {block.place}: {block.reason}" for block in marked]
    with capsys.disabled():  # on standard error, which pytest's workers share with the caller
        print("", *lines, sep="\n", file=sys.stderr)

    assert [block.place for block in marked if block.language not in RUNNABLE] == []
    assert run > len(marked)


def test_finds_blocks_with_their_marks(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    blocks = list(blocks_of(page))

    assert blocks, "README has no block"
    assert {block.language for block in blocks} <= RUNNABLE | {"text", "toml", "json"}
    assert any("script/test" in block.text and block.reason for block in blocks)


def test_names_the_block_that_fails(tmp_path: Path) -> None:
    blocks = [Block("a.md", 1, "sh", "echo one\n"), Block("a.md", 5, "sh", "false\necho two\n")]

    with pytest.raises(AssertionError, match=r"(?s)one\n.*in the block at a\.md:5"):
        run_page(blocks, tmp_path)


def test_waits_for_a_background_block_and_fails_with_it(tmp_path: Path) -> None:
    beside = Block("a.md", 1, "sh", "sleep 0.2\nexit 3\n", beside=True)

    with pytest.raises(AssertionError, match="exit code 1"):
        run_page([beside, Block("a.md", 9, "sh", "echo after\n")], tmp_path)


def test_runs_only_the_input_of_a_console_block() -> None:
    block = Block("a.md", 1, "console", "$ echo a \\\n> b\na b\n$ true\n")

    assert commands_of(block) == "echo a \\\nb\ntrue\n"


def test_starts_a_server_in_the_background() -> None:
    script = script_of(
        [Block("a.md", 1, "sh", "tidegate serve --data d   # first\ntidegate whoami\n")]
    )

    assert "tidegate serve --data d >> goes-on.log 2>&1 &\nlistening\ntidegate whoami\n" in script
