"""Every promised verb exists, has help, and is in the reference."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.all_commands import COMMANDS
from tests.cli.shell import Shell
from tidegate.__main__ import COMMANDS as TABLE
from tidegate.cli.reference import reference
from tidegate.cli.root import root, run

ROOT = Path(__file__).parents[2]

# The verbs of each noun. Those that start processes belong to main.
PROMISED = {
    "rev": "list show create clone copy pull push files diff propose withdraw approve reject"
    " propose-delete reject-delete delete history upgrade reap",
    "repo": "list show create edit delete",
    "channel": "list show create edit delete promote rollback hold release protect unprotect"
    " history policy",
    "request": "list show approve reject withdraw run review",
    "rollout": "list show plan simulate watch pause resume skip continue skip-wave promote-all"
    " abort retry clear explain events override open",
    "host": "list show enroll re-enroll revoke explain label retire",
    "quarantine": "list show lift",
    "freeze": "list show create delete",
    "join": "list show create delete",
    "window": "list show create edit delete next",
    "outbox": "list show redrive cancel",
    "notify": "list show create edit delete test replay skip",
    "token": "list show create delete",
    "user": "list show create grant disable enable erase password reset-password redeem",
    "target": "list show create test",
    "budget": "list show create edit delete",
    "publication": "list rollback collect",
    "log": "tail show export verify",
}
ALONE = ("setup", "login", "logout", "whoami", "status", "completion")


VERBS = [name for name in COMMANDS if name.split()[0] not in TABLE]


def test_has_every_verb_that_the_product_promises() -> None:
    promised = {f"{noun} {verb}" for noun, verbs in PROMISED.items() for verb in verbs.split()}

    assert sorted((promised | set(ALONE)) - set(COMMANDS)) == [], "no such command"
    assert sorted(set(VERBS) - promised - set(ALONE)) == [], "add the verb to PROMISED"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_help_and_the_shared_flags(name: str) -> None:
    command = COMMANDS[name]
    options = [param for param in command.params if isinstance(param, click.Option)]

    assert (command.help or "").strip().split("\n")[0].endswith((".", ";", ":", ",")), (
        "end the first line of the docstring with a full stop"
    )
    assert {"output", "url", "token"} <= {option.name for option in options}
    assert [option.name for option in options if not option.help] == [], "give it help"


def test_lists_all_nouns_without_importing_one(tmp_path: Path) -> None:
    shown = Shell(tmp_path / "home").run("--help", PYTHONVERBOSE="1")

    assert "Package revisions: draft, review, publish." in shown.out
    assert "tidegate.cli.root" in shown.err
    for late in (
        "tidegate.cli.revisions.commands",
        "http.client",
        "rich",
        "json",
        "msgspec",
        "httpx2",
    ):
        assert f"import '{late}'" not in shown.err


def test_sends_a_request_without_importing_terminal_libraries(tmp_path: Path) -> None:
    asked = Shell(tmp_path / "home").run("whoami", "--url", "http://127.0.0.1:1", PYTHONVERBOSE="1")

    assert "import 'http.client'" in asked.err
    for late in ("rich", "msgspec", "httpx2", "tarfile"):
        assert f"import '{late}'" not in asked.err


@pytest.mark.parametrize(
    ("words", "try_next"),
    [
        (("rve",), "tidegate --help"),
        (("rev", "aprove"), "tidegate rev --help"),
        (("rev", "approve"), "tidegate rev approve --help"),
        (("rev", "approve", "x.v1", "--nope"), "tidegate rev approve --help"),
        (("repo", "create", "x", "--approvals", "many"), "tidegate repo create --help"),
        (("rev", "list", "-o", "yaml"), "tidegate rev list --help"),
    ],
)
def test_wrong_usage_names_the_help_to_read(
    tmp_path: Path, words: tuple[str, ...], try_next: str
) -> None:
    wrong = Shell(tmp_path / "home").run(*words)

    assert wrong.code == 2
    assert wrong.out == ""
    assert wrong.err.endswith(f"  try: {try_next}\n")


def test_suggests_a_similar_command(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")

    assert "did you mean 'rollout'?" in shell.run("rolout").err
    assert "did you mean 'approve'?" in shell.run("rev", "aprove").err


def test_prints_its_version(tmp_path: Path) -> None:
    assert Shell(tmp_path / "home").run("--version").out.startswith("tidegate 0.")


def test_the_reference_is_up_to_date() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()

    assert page == reference(root(TABLE)), "run: .venv/bin/python -m tests.cli.reference"


WITH_REASON = sorted(
    name
    for name, command in COMMANDS.items()
    if any(param.name == "reason" and param.required for param in command.params)
)


@pytest.mark.parametrize("name", WITH_REASON)
def test_a_missing_reason_suggests_the_typed_command(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    needed = [
        param
        for param in COMMANDS[name].params
        if param.required and (isinstance(param, click.Argument) or param.name != "reason")
    ]
    words: list[str] = name.split()
    for param in needed:
        words += [] if isinstance(param, click.Argument) else [param.opts[0]]
        words.append(param.type.choices[0] if isinstance(param.type, click.Choice) else "it's")

    code = run(TABLE, [*words, "--token", "tgt_secret", "-o", "table"])

    said = capfd.readouterr().err
    typed = " ".join(word.replace("it's", "'it'\"'\"'s'") for word in words)
    assert code == 2
    assert said.endswith(f"  try: tidegate {typed} --reason …\n"), said


@pytest.mark.parametrize(
    ("name", "typed", "taken"),
    [
        ("rev list", ("--lifecycle", "published"), "Published"),
        ("rev list", ("--lifecycle", "deletionproposed"), "DeletionProposed"),
        ("rollout list", ("--state", "rolled_back"), "rolled-back"),
        ("rollout list", ("--state", "Stopped"), "stopped"),
    ],
)
def test_accepts_a_state_in_any_case_with_hyphens_or_underscores(
    name: str, typed: tuple[str, str], taken: str
) -> None:
    ctx = COMMANDS[name].make_context(name, [*typed])

    assert ctx.params[typed[0].removeprefix("--")] == taken
