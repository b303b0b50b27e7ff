"""Every error suggests a next command, and that command exists."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import click
import pytest

from tests.cli.all_commands import COMMANDS
from tidegate import api, control, dashboard, domain, web
from tidegate.cli.context import NounGroup
from tidegate.cli.exit_codes import CommandExit, ExitCode, exit_code_of_status
from tidegate.cli.hints import LISTS, LOOKS, NEXT, next_commands, problem
from tidegate.cli.lazy_groups import TRIED
from tidegate.cli.reference import ENDINGS
from tidegate.cli.root import run
from tidegate.dashboard.html import HERE
from tidegate.domain.access.principals import Principal, demand_permission
from tidegate.domain.access.refusals import MissingPermission
from tidegate.domain.access.roles import Grant, Role, Verb
from tidegate.errors import TidegateError
from tidegate.public_addresses import DestinationRefused, parse_destination
from tidegate.web.problems import status_of

# Commands that main adds, now or later, and options of the root itself.
MAINS = {"serve", "worker", "agent", "demo", "simulate", "doctor", "backup", "restore", "views"}
ROOTS = {"--help", "--version"}
TEMPLATES = HERE / "templates"


def leaves() -> Iterator[type[TidegateError]]:
    """The errors that a server may send."""
    for room in (api, control, dashboard, domain, web):
        for module in walk_packages(room.__path__, f"{room.__name__}."):
            import_module(module.name)
    waiting = deque([TidegateError])
    while waiting:
        found = waiting.popleft()
        waiting += found.__subclasses__()
        if found.__module__.startswith("tidegate."):
            yield found


def exists(command: str) -> bool:
    """Whether the words after ``tidegate`` name an existing command."""
    first, *rest = command.removeprefix("tidegate ").split()
    two = f"{first} {rest[0]}" if rest else first
    return first in MAINS | ROOTS or first in COMMANDS or two in COMMANDS


def test_lists_releases_if_there_is_no_such_release() -> None:
    body = {"code": "not_found", "detail": "there is no release web.7", "release_id": "web.7"}
    with click.Context(COMMANDS["channel promote"], info_name="promote"):
        ended = problem(404, json.dumps(body).encode(), {})

    assert ended.tries == ("tidegate rev list --lifecycle Published",)


NOUNS = sorted(LOOKS)
ALARM = "rollout.halted"


@pytest.mark.parametrize("noun", NOUNS)
def test_every_error_suggests_an_existing_command(noun: str) -> None:
    verb = next(name for name in COMMANDS if name.startswith(f"{noun} "))
    root = click.Context(click.Group("tidegate"), info_name="tidegate")
    group = click.Context(NounGroup(noun), root, noun)
    ctx = click.Context(COMMANDS[verb], group, verb.split()[1])
    ctx.params["name"] = "x"

    with ctx:
        said = {
            error.code: next_commands(error.code, exit_code_of_status(status_of(error)))
            for error in leaves()
        }

    assert [code for code, commands in said.items() if not commands] == []
    wrong = {command for commands in said.values() for command in commands if not exists(command)}
    assert wrong == set()


def test_every_code_with_a_hint_exists() -> None:
    assert set(NEXT) - {error.code for error in leaves()} == set()


def test_every_suggested_look_is_a_command() -> None:
    words = {*LOOKS.values(), *LISTS.values()}

    assert [look for look in words if " ".join(look.split()[:2]) not in COMMANDS] == []


def _takes(name: str, flag: str) -> bool:
    return any(flag in param.opts for param in COMMANDS[name].params)


def test_every_command_that_the_dashboard_suggests_exists() -> None:
    drawn = "".join(path.read_text() for path in sorted(TEMPLATES.glob("*.html")))
    word = r"[a-z][a-z-]*"
    found = set(re.findall(rf"tidegate ({word} {word})([^\"<{{]*)", drawn))
    agents = set(re.findall(r"tidegate agent( --[^\"<{]*)", drawn))  # it is a command by itself

    assert len(found) > 5
    unknown = {
        f"{name} {flag}"
        for name, rest in found
        for flag in (None, *re.findall(r"--[a-z-]+", rest))
        if name not in COMMANDS or (flag not in (None, "--help") and not _takes(name, str(flag)))
    }
    assert unknown == set()
    assert all(_takes("agent", flag) for rest in agents for flag in re.findall(r"--[a-z-]+", rest))


def _ended(noun: str, verb: str, error: TidegateError) -> CommandExit:
    root = click.Context(click.Group("tidegate"), info_name="tidegate")
    group = click.Context(NounGroup(noun), root, noun)
    status = status_of(type(error))
    body = {"code": error.code, "detail": error.detail, **error.facts}
    with click.Context(COMMANDS[f"{noun} {verb}"], group, verb):
        return problem(status, json.dumps(body).encode(), {})


def test_names_who_can_grant_a_missing_permission() -> None:
    viewer = Principal("user_grace", "token", (Grant(Role.VIEWER),))
    with pytest.raises(MissingPermission) as refused:
        demand_permission(viewer, (Verb.OPERATE,), "channel:prod")

    ended = _ended("rollout", "pause", refused.value)

    grant = "tidegate user grant LOGIN fleet-operator@channel:prod"
    assert ended.more == (f"A security-admin can grant it to you: {grant}",)
    assert ended.tries == ("tidegate whoami",), "it is not the caller who can grant it"


def test_a_missing_permission_on_any_scope_is_granted_on_the_channel_of_the_command() -> None:
    body = {"code": "missing_permission", "detail": "no", "role": "approver", "scope": "any"}
    command = COMMANDS["rollout pause"]
    with click.Context(command, info_name="pause") as ctx:
        ctx.params["rollout"] = "prod@web.1"
        ended = problem(403, json.dumps(body).encode(), {})

    assert ended.more[0].endswith("tidegate user grant LOGIN approver@channel:prod")


@pytest.mark.parametrize(
    ("typed", "says", "meant"),
    [
        ("rollout override prod --gate channel-edges --reason x", "'start-at'", "edges"),
        ("rollout list --state stoped", "'stopped'", "stopped"),
        ("notify create ops --kind slak", "'mail'", "slack"),
        ("channel promote prod web.1 --override holds", "'hold'", "hold"),
        ("rollout override prod --gate xyz --reason x", "'freshness'", ""),
    ],
)
def test_suggests_the_value_that_was_meant(
    typed: str, says: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run({}, typed.split()) == ExitCode.USAGE

    told = capsys.readouterr().err.splitlines()[0]
    assert says in told
    assert told.partition(" Did you mean ")[2] == (f"{meant}?" if meant else "")


@pytest.mark.parametrize(
    ("detail", "meant"),
    [
        ("is one of viewer, author, approver; found 'aprover'", "approver"),
        ("outcome is 'rolledback'; allowed are failed, rolled_back", "rolled_back"),
        ("There is no event 'rollout.halt'. Events are: channel.held, rollout.halted.", ALARM),
    ],
)
def test_suggests_the_value_that_a_server_would_take(detail: str, meant: str) -> None:
    fault = {"field": "body.x", "detail": detail}
    single = problem(400, json.dumps({"code": "invalid_input", "detail": detail}).encode(), {})
    listed = problem(400, json.dumps({"code": "malformed", "errors": [fault]}).encode(), {})

    assert single.detail.endswith(f" Did you mean {meant}? [invalid_input]")
    end = "" if detail.endswith(".") else "."
    assert listed.more == (f"x {detail}{end} Did you mean {meant}?",)


def test_names_the_setting_that_allows_a_private_receiver() -> None:
    with pytest.raises(DestinationRefused) as refused:
        parse_destination("http://127.0.0.1:9999/hooks")

    ended = _ended("notify", "create", refused.value)

    assert '[notify] allowed = ["127.0.0.1:9999"]' in ended.detail
    assert ended.tries == ("tidegate serve --config FILE",)


def test_the_reference_explains_every_exit_code() -> None:
    assert set(ENDINGS) == set(ExitCode)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("user reset", "did you mean 'reset-password'?"),
        ("user revoke", "that is tidegate user grant USER ROLE --take"),
        ("rollout rollback", "that is tidegate channel rollback CHANNEL"),
        ("host lst", "did you mean 'list'?"),
    ],
)
def test_an_unknown_verb_suggests_the_command_that_does_it(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run({}, words.split()) == 2

    assert meant in capsys.readouterr().err


def test_lists_repositories_if_there_is_no_such_repository() -> None:
    body = {"code": "not_found", "detail": "there is no repository x", "repository": "x"}
    with click.Context(COMMANDS["rev list"], info_name="list"):
        ended = problem(404, json.dumps(body).encode(), {})

    assert ended.tries == ("tidegate repo list",)


def test_a_missing_choice_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run({}, ["rollout", "clear", "prod", "--reason", "x"]) == ExitCode.USAGE

    assert capsys.readouterr().err.splitlines() == [
        "✘ Missing option '--mode'. Choose from: resume, waive, abandon",
        "  try: tidegate rollout clear prod --reason x --mode …",
    ]


@pytest.mark.parametrize("noun", ["user", "rollout", "rev", "channel"])
def test_help_lists_whole_sentences(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    run({}, [noun, "--help"])

    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_every_verb_that_people_try_is_missing_and_its_command_exists() -> None:
    for tried, command in TRIED.items():
        assert tried not in COMMANDS
        assert exists(f"tidegate {command}")


def test_a_refused_role_is_named_in_whole_sentences() -> None:
    fault = {"field": "body.role", "detail": "is one of viewer, author; found 'autor'"}
    body = {"code": "invalid_request", "detail": "no", "errors": [fault]}
    with click.Context(COMMANDS["user grant"], info_name="grant"):
        ended = problem(400, json.dumps(body).encode(), {})

    assert ended.more == (
        "ROLE[@SCOPE] is one of viewer, author; found 'autor'. Did you mean author?",
    )
