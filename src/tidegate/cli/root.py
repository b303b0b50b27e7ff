"""The command ``tidegate``: its nouns and the commands that ``main`` adds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import click

from tidegate import __version__, errors
from tidegate.cli import exit_codes, lazy_groups

WIDTH_MAX: Final = 100
COMPLETION: Final = "_TIDEGATE_COMPLETE"  # set by click's completion scripts
_HERE: Final = "tidegate.cli"
ACCESS: Final[Mapping[str, lazy_groups.Lazy]] = {
    "setup": (f"{_HERE}.access:setup", "Set up a new installation with its one-time code."),
    "login": (f"{_HERE}.access:login", "Sign in and save a token for later commands."),
    "logout": (f"{_HERE}.access:logout", "Revoke the saved token and delete it."),
    "status": (f"{_HERE}.status:status", "Show on one screen what runs and what needs you."),
    "whoami": (f"{_HERE}.access:whoami", "Show who you are signed in as, and your permissions."),
    "completion": (f"{_HERE}.completion:completion", "Print the completion script of a shell."),
}
NOUNS: Final[Mapping[str, lazy_groups.Lazy]] = {
    "repo": (f"{_HERE}.repo:repo", "Repositories: who must approve what."),
    "rev": (f"{_HERE}.revisions.commands:rev", "Package revisions: draft, review, publish."),
    "channel": (f"{_HERE}.channel:channel", "Channels: which hosts should run which release."),
    "rollout": (f"{_HERE}.rollout:rollout", "Rollouts: plan, watch, control, explain."),
    "host": (f"{_HERE}.host:host", "Hosts of the fleet."),
    "join": (f"{_HERE}.join:join", "Tokens that enroll many new hosts."),
    "quarantine": (f"{_HERE}.quarantine:quarantine", "Artifacts that are not dispatched again."),
    "request": (f"{_HERE}.request:request", "What waits for a second person."),
    "freeze": (f"{_HERE}.freeze:freeze", "Times in which nothing is dispatched."),
    "window": (f"{_HERE}.window:window", "Times in which orders may go out, or may not."),
    "budget": (f"{_HERE}.budget:budget", "How many hosts may be disrupted at once."),
    "outbox": (f"{_HERE}.outbox:outbox", "Webhooks, programs and files that wait to be sent."),
    "publication": (
        f"{_HERE}.publication:publication",
        "Published documents.",
    ),
    "notify": (f"{_HERE}.notify:notify", "Send events to webhooks, chat, alerts and mail."),
    "target": (f"{_HERE}.target:target", "Where outbox work goes."),
    "user": (f"{_HERE}.user:user", "Users and their roles."),
    "token": (f"{_HERE}.token:token", "API tokens."),
    "log": (f"{_HERE}.log:log", "The log of facts: read, export, verify."),
}
HELP: Final = """Tidegate: a release control plane.

Draft and approve package revisions, promote a release to a channel, roll it out wave by wave, and
prove afterwards what happened."""
ENDINGS: Final = """Exit codes: 0 done, 1 refused, 2 usage, 3 conflict, 4 not found, 5 permission,
6 unavailable, 7 rolled back, 8 no host ran it, 9 a request was made that another person must
approve."""


def root(commands: Mapping[str, lazy_groups.Lazy]) -> click.Group:
    """The group of all commands. ``commands`` are those that ``main`` adds, by import path."""
    from tidegate.cli.context import CommandContext, shared_options

    group = lazy_groups.LazyGroup(
        name="tidegate",
        help=HELP,
        epilog=ENDINGS,
        lazy={**ACCESS, **NOUNS, **commands},
        sections={
            "Begin": list(ACCESS),
            "Resources": list(NOUNS),
            "This machine": list(commands),
        },
        params=[
            *shared_options(),
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_version,
                help="Print the version and exit.",
            ),
        ],
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": _columns()},
        no_args_is_help=True,
    )
    group.context_settings["obj"] = CommandContext()
    return group


def app(commands: Mapping[str, lazy_groups.Lazy], args: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, and exit."""
    try:
        sys.exit(run(commands, args))
    except SystemExit as ended:
        if COMPLETION in os.environ and isinstance(ended.code, int):
            # A user waits for a completion, and the normal exit takes a tenth of the whole time.
            sys.stdout.flush()
            os._exit(ended.code)
        raise


def run(commands: Mapping[str, lazy_groups.Lazy], args: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return its exit code."""
    _never_fail_to_print()
    group = root(commands)
    given = list(sys.argv[1:] if args is None else args)
    try:
        result = group.main(given, prog_name="tidegate", standalone_mode=False)
        sys.stdout.flush()
    except exit_codes.CommandExit as stop:
        return print_exit(stop, given)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return exit_codes.ExitCode.USAGE
    except click.UsageError as error:
        return print_exit(_usage(error, given), given)
    except click.ClickException as error:
        ended = exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE, error.format_message(), "tidegate --help"
        )
        return print_exit(ended, given)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return exit_codes.ExitCode.INTERRUPTED
    except (BrokenPipeError, lazy_groups.ReaderGone):
        # Nobody reads the output, so the interpreter must not flush it at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.ExitCode.DONE
    except errors.TidegateError as error:
        code = exit_codes.exit_code_of(error)
        ended = exit_codes.CommandExit(
            code,
            f"{error.detail} [{error.code}]",
            _remedy(error, given),
            problem=exit_codes.problem_of(type(error), code, error.detail, **error.facts),
        )
        return print_exit(ended, given)
    return result if isinstance(result, int) else exit_codes.ExitCode.DONE


def _remedy(error: errors.TidegateError, args: Sequence[str]) -> str:
    """The command to try after an error of this process. The doctor reads the settings, too, so it
    is no help if they are invalid.
    """
    if error.code in ("place_taken", "backup_damaged"):
        return "tidegate backup DIR" if args[0] == "backup" else "tidegate restore DIR --data NEW"
    if error.code != "invalid_setting":
        return " ".join(("tidegate", "doctor", *_place(args)))
    words = ["tidegate"]
    for word in args:
        if word.startswith("-"):
            break
        words.append(word)
    flags = "--data DIR" if error.facts.get("setting") == "data" else "--help"
    return " ".join((*words, flags))


def _place(args: Sequence[str]) -> list[str]:
    """The flags that say where the log is, as they were typed."""
    from shlex import quote

    flags = ("--config", "--data", "--store")
    return [
        quote(word)
        for number, word in enumerate(args)
        if word.partition("=")[0] in flags or (number and args[number - 1] in flags)
    ]


def print_exit(stop: exit_codes.CommandExit, args: Sequence[str] = ()) -> int:
    """Print to standard error why the command ends, and the commands to try.

    With ``-o json`` or ``jsonl`` that is one line: a problem document.
    """
    if _wants_json(args):
        import json

        click.echo(json.dumps(stop.problem, ensure_ascii=False), err=True)
        return stop.code
    from tidegate.cli.symbols import clean

    is_coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    symbol, colour = ("◐", "yellow") if stop.code is exit_codes.ExitCode.WAITING else ("✘", "red")
    mark = click.style(symbol, fg=colour) if is_coloured else symbol
    click.echo(f"{mark} {clean(stop.detail)}", err=True)
    for line in stop.more:
        click.echo(f"  {clean(line)}", err=True)
    for command in stop.tries:
        click.echo(f"  try: {clean(command)}", err=True)
    return stop.code


def _wants_json(args: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON. They are parsed here because click stops at an error."""
    found = ""
    for number, word in enumerate(args):
        if word == "--":
            break
        if word in ("-o", "--output"):
            found = args[number + 1] if number + 1 < len(args) else ""
        elif word.startswith("--output="):
            found = word.partition("=")[2]
        elif word.startswith("-o"):
            found = word[2:]
    return found in ("json", "jsonl")


def _usage(error: click.UsageError, args: Sequence[str]) -> exit_codes.CommandExit:
    path = error.ctx.command_path if error.ctx else "tidegate"
    next_command = f"{path} --help"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        next_command = _type_with_missing(error, args)
    detail = " ".join(error.format_message().split())  # click puts each choice on its own line
    if isinstance(error, click.BadParameter):
        from tidegate.cli.suggestions import suggest_value

        detail += suggest_value(detail)
    return exit_codes.CommandExit(exit_codes.ExitCode.USAGE, detail, next_command)


def _type_with_missing(error: click.MissingParameter, args: Sequence[str]) -> str:
    """The command as it was typed, with every required option that it lacks. Shared flags are
    omitted, because one of them is a secret.
    """
    from shlex import quote

    from tidegate.cli.context import shared_options

    shared = {name for option in shared_options() for name in option.opts}
    words: list[str] = []
    typed = iter(args)
    for word in typed:
        if word in shared:
            next(typed, "")
        elif word.partition("=")[0] not in shared and not word.startswith("-o"):
            words.append(word)
    assert error.ctx is not None, "click knows which command lacks it"
    given = {word.partition("=")[0] for word in words}
    lacking = [
        param.opts[0]
        for param in error.ctx.command.params
        if isinstance(param, click.Option) and param.required and not given & set(param.opts)
    ]
    more = " ".join(f"{option} …" for option in lacking)
    return f"tidegate {' '.join(map(quote, words))} {more}"


def _columns() -> int:
    """The width of the help. click would import all of shutil to find it out."""
    try:
        found = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
    except (ValueError, OSError):
        found = 80  # no terminal
    return max(min(found, WIDTH_MAX) - 2, 50)


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"tidegate {__version__}")
        ctx.exit()


def _never_fail_to_print() -> None:
    """Print a question mark for characters that the terminal cannot show, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
