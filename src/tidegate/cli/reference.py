"""The reference of all commands, generated from the commands themselves.

``python -m tests.cli.reference`` writes docs/cli.md. A test checks that the page is current.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from tidegate.cli.exit_codes import ExitCode

INTRODUCTION = """# The command line

This page is written from the code: `python -m tests.cli.reference` writes it.

## What all commands share

| flag | what it does |
|---|---|
| `-o`, `--output` | `table` for people (default), `json`, or `jsonl`: a line of JSON per item |
| `--url` | the server; default: `TIDEGATE_URL`, what `login` saved, `http://127.0.0.1:8420` |
| `--token` | the API token; default: `TIDEGATE_TOKEN`, what `login` saved for this server |
| `-h`, `--help` | what the command does |

They may be placed before the noun or after the verb. Of the commands that work on this machine,
such as `serve` and `backup`, only `doctor` and `simulate` take `-o`, and none takes `--url` or
`--token`. `tidegate login` saves server and token in `$XDG_CONFIG_HOME/tidegate/client.json`, mode
0600. A saved token is sent to no other server.

* A write carries an idempotency key. If the server is unavailable (503), the command repeats it
  under the same key, so it happens once. It names the version that it changes: that of `--version`,
  or the current one.
* `--watch` redraws in place on a terminal and prints a plain line for each change otherwise.
* If a table is too wide for the terminal, times of today lose their date, and long texts wrap.
  Names are never broken. A pipe always gets whole lines.
* Without a terminal, or with `NO_COLOR`, there are no colours. A state always has a glyph and a
  word.
* You can look before you act. These commands change nothing: `channel rollback --dry-run` (which
  release, and what would hold it), every other command with `--dry-run` (what it would do and
  record, and who must approve it on a protected channel), `channel policy --check` and `--diff`
  (faults of a policy, and what it would change), `window create --check` (the next occurrences),
  `rollout plan` (hosts by wave), `rollout simulate` and `simulate` (how it would go),
  `rollout explain` and `host explain` (why something waits).
* Errors go to standard error: one line that says why, with the stable code of
  `docs/problems/README.md`, and the next command to try. With `-o json` or `jsonl` the last line on
  standard error is a problem document (RFC 9457) as the server sent it: `type`, `title`, `status`,
  `code`, `detail`, `instance`, `errors`. An error of the command itself has the same members, and
  the commands to try in `next`. Standard output then holds results only.

| exit code | meaning |
|---|---|
"""
ENDINGS = {
    ExitCode.DONE: "done",
    ExitCode.REFUSED: "refused: a rule forbids it",
    ExitCode.USAGE: "usage: the command or its input is malformed",
    ExitCode.CONFLICT: "conflict: another request was committed first",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.PERMISSION: "permission: not signed in, or not allowed",
    ExitCode.UNAVAILABLE: "unavailable: no answer, or not now",
    ExitCode.ROLLED_BACK: "rolled back (with `--wait` and `rollout watch`)",
    ExitCode.EMPTY: "no host ran it (with `--wait` and `rollout watch`)",
    ExitCode.WAITING: "a request was made: another person must approve it (protected channels)",
    ExitCode.RESTART: "the server or worker cannot go on, because a flush of the log failed",
    ExitCode.INTERRUPTED: "interrupted",
}
SHARED = frozenset({"output", "url", "token", "help"})


def reference(group: click.Group) -> str:
    """Write the page about a group and everything below it."""
    return "".join(_lines(group)).rstrip() + "\n"


def _lines(group: click.Group) -> Iterator[str]:
    yield INTRODUCTION
    for code, words in ENDINGS.items():
        yield f"| {code.value} | {words} |\n"
    ctx = click.Context(group, info_name="tidegate")
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None, "a group has the commands that it lists"
        yield from _command(command, click.Context(command, ctx, name), "##")


def _command(command: click.Command, ctx: click.Context, mark: str) -> Iterator[str]:
    yield f"\n{mark} `{ctx.command_path}`\n\n"
    yield f"{_prose(command)}\n"
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield from _flags(command, ctx)
        for name in command.list_commands(ctx):
            member = command.get_command(ctx, name)
            assert member is not None
            yield from _command(member, click.Context(member, ctx, name), f"{mark}#")
        return
    yield from _flags(command, ctx)


def _flags(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield f"\n```text\n{_usage(command, ctx)}\n```\n"
    options = [
        param
        for param in command.params
        if isinstance(param, click.Option) and param.name not in SHARED and not param.hidden
    ]
    if options:
        yield "\n| flag | what it does |\n|---|---|\n"
        for option in options:
            yield _option(option, ctx)


def _prose(command: click.Command) -> str:
    """The help text by paragraph. Preformatted parts are not changed."""
    paragraphs = []
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            laid_out = paragraph.split("\b", 1)[1].strip("\n")
            paragraphs.append(f"```text\n{laid_out}\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def _usage(command: click.Command, ctx: click.Context) -> str:
    pieces = [piece for piece in command.collect_usage_pieces(ctx) if piece != "[OPTIONS]"]
    required = [
        f"{param.opts[-1]} {_metavar(param, ctx)}"
        for param in command.params
        if isinstance(param, click.Option) and param.required
    ]
    return " ".join((ctx.command_path, *pieces, *required, "[FLAGS]"))


def _option(option: click.Option, ctx: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" `{_metavar(option, ctx)}`"
    words = (option.help or "").rstrip(".")
    if option.required:
        words += "; needed"
    if option.show_default and option.default not in (None, False):
        words += f"; else {option.default}"
    return f"| {names}{_safe(value)} | {_safe(words)} |\n"


def _metavar(param: click.Parameter, ctx: click.Context) -> str:
    return param.make_metavar(ctx)


def _safe(words: str) -> str:
    """Escape a text for a table, where a bar would end the cell."""
    return words.replace("|", "\\|")
