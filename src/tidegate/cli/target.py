"""Targets: where the outbox sends its work.

Targets are settings of the server. ``add`` prints a section for its configuration file and calls no
server; ``list`` and ``test`` call the running server.
"""

from __future__ import annotations

import json
import re

import click

from tidegate.cli import completion, context as cli_context, exit_codes, output, paths

# The setting of each kind for the place that its work goes to.
PLACES = {"webhook": "url", "command": "program", "file": "directory"}
NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
TARGETS = completion.names("/v1/targets", "name")
COLUMNS = (
    output.column("TARGET", "name"),
    output.column("KIND", "kind"),
    output.column("GOES TO", "to"),
    output.column("OBSERVED", "observable"),
)


@click.group(cls=cli_context.NounGroup)
def target() -> None:
    """Where outbox work goes: webhooks, programs, files."""


@target.command("create")
@click.argument("name")
@click.option("--kind", type=click.Choice(tuple(PLACES)), required=True, help="What it is.")
@click.option(
    "--to",
    "place",
    required=True,
    multiple=True,
    help="The URL, the directory, or the program; once more for each of its arguments.",
)
@click.option(
    "--secret-file",
    metavar="FILE",
    help="Of a webhook: the file with its secret, whsec_… as in Standard Webhooks.",
)
@cli_context.with_context
def add(
    context: cli_context.CommandContext,
    name: str,
    kind: str,
    place: tuple[str, ...],
    secret_file: str | None,
) -> None:
    """Print the section of the server's configuration file that adds the target NAME.

    Targets are read from the file of serve --config, never stored: append the section there, then
    restart serve and worker. NAME is the operation, as the policies of channels name it.
    """
    members = _members(name, kind, place, secret_file)
    if context.is_for_people:
        output.say(f"[targets.{name}]")
        for member, value in members.items():
            output.say(f"{member} = {json.dumps(value, ensure_ascii=False)}")
    else:
        context.done({"targets": {name: members}}, "")
    output.note(
        "append this to the file of serve --config and restart the server; "
        f"next: tidegate target test {name}"
    )


def _members(
    name: str, kind: str, place: tuple[str, ...], secret_file: str | None
) -> dict[str, str | list[str]]:
    """The settings of the section. Raises: CommandExit."""
    again = "tidegate target create --help"
    if not NAME.fullmatch(name):
        message = f"{name!r} is no name of an operation: small letters, digits, _ and -, 63 at most"
        raise exit_codes.CommandExit(exit_codes.ExitCode.USAGE, message, again)
    if not all(word and word.isprintable() for word in (*place, secret_file or "-")):
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE, "--to and --secret-file are printable, and not empty", again
        )
    if kind == "webhook" and secret_file is None:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            "a webhook needs a --secret-file, with whsec_ and base64",
            again,
        )
    if kind != "webhook" and secret_file is not None:
        raise exit_codes.CommandExit(exit_codes.ExitCode.USAGE, f"a {kind} has no secret", again)
    if kind != "command" and len(place) > 1:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            f"a {kind} has one address; --to was given {len(place)} times",
            again,
        )
    members: dict[str, str | list[str]] = {
        "kind": kind,
        PLACES[kind]: list(place) if kind == "command" else place[0],
    }
    if secret_file is not None:
        members["secret_file"] = secret_file
    return members


@target.command("list")
@cli_context.with_context
def list_all(context: cli_context.CommandContext) -> None:
    """List the targets of the server's settings, without their secrets."""
    empty = "no target; try: tidegate target create --help"
    context.list(context.client.items(paths.at("targets")), COLUMNS, empty=empty)


@target.command("show")
@click.argument("name", shell_complete=TARGETS)
@cli_context.with_context
def show(context: cli_context.CommandContext, name: str) -> None:
    """Show one target."""
    context.one_of(context.client.items(paths.at("targets")), "name", name, COLUMNS, "target")


@target.command("test")
@click.argument("name", shell_complete=TARGETS)
@cli_context.with_context
def test(context: cli_context.CommandContext, name: str) -> None:
    """Test the target NAME without giving it work, and show its response."""
    answer = context.client.write("POST", paths.at("targets", name, "test"))
    found = answer.json()
    if not found["ok"]:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"{name} would not take work: {found['detail']}",
            "tidegate target list",
        )
    context.done(answer, f"{name} would take work: {found['detail']}")
