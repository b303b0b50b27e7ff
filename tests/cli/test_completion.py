"""Completion in bash, zsh and fish: nouns, verbs, flags, and names that the server knows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Seat
from tests.cli.shell import Shell
from tidegate.domain.access.roles import Role

# Libraries that completion does not need, and that take longer to import than the request.
HEAVY = frozenset(
    {"asyncio", "dataclasses", "email", "http.client", "httpx2", "msgspec", "pathlib", "rich"}
)


def pressed(*words: str) -> dict[str, str]:
    """The environment that bash sets when a person presses tab after these words."""
    return {
        "COMP_WORDS": " ".join(("tidegate", *words)),
        "COMP_CWORD": str(len(words)),
        "_TIDEGATE_COMPLETE": "bash_complete",
    }


def completed(shell: Shell, *words: str) -> list[str]:
    """The completions that bash would offer for the last of these words."""
    asked = shell.run(**pressed(*words))
    assert asked.code == 0, asked.err
    return [line.partition(",")[2] for line in asked.out.splitlines() if line]


def test_completes_nouns_verbs_and_flags(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")

    assert completed(shell, "ro") == ["rollout"]
    assert completed(shell, "rev", "prop") == ["propose", "propose-delete"]
    assert "--workspace" in completed(shell, "rev", "create", "--w")
    assert completed(shell, "rev", "list", "-o", "j") == ["json", "jsonl"]


def test_completes_names_that_the_server_knows(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    author.run("rev", "create", "complete-me", "--workspace", "v1")
    author.run("rev", "create", "complete-too", "--workspace", "v1")
    author.run("rev", "propose", "complete-too.v1")

    assert "default.complete-me.v1" in completed(author, "rev", "show", "default.comp")
    assert completed(author, "rev", "approve", "default.comp") == ["default.complete-too.v1"]
    assert "default" in completed(author, "repo", "edit", "")


def test_asks_the_server_without_a_library_that_takes_long_to_import(seat: Seat) -> None:
    author = seat(Role.AUTHOR)
    asked = author.run(**pressed("repo", "edit", ""), PYTHONPROFILEIMPORTTIME="1")

    imported = {line.rpartition("|")[2].strip() for line in asked.err.splitlines()}
    assert "default" in asked.out
    assert {"tidegate.cli.profile", "socket"} <= imported
    assert imported & HEAVY == set()


def test_completes_nothing_if_no_server_answers(tmp_path: Path) -> None:
    away = Shell(tmp_path / "home", "http://127.0.0.1:1", "t")

    assert completed(away, "rev", "show", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_prints_a_script_that_the_shell_accepts(tmp_path: Path, shell: str) -> None:
    script = Shell(tmp_path / "home").run("completion", shell)

    assert script.code == 0
    assert "_TIDEGATE_COMPLETE" in script.out
    if (program := shutil.which(shell)) is not None:
        checked = subprocess.run([program, "-n"], input=script.out, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")
