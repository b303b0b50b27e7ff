"""Targets: where outbox work goes, and whether it would get there.

They are settings of the server: ``add`` writes the section of its configuration file, and asks no
server; ``list`` and ``test`` ask the one that is running.
"""

from __future__ import annotations

import json
import re

import click

from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.output import column, note, say
from tidegate.cli.paths import at

# What each kind calls the place that its work goes to.
PLACES = {"webhook": "url", "command": "program", "file": "directory"}
NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
TARGETS = names("/v1/targets", "name")
COLUMNS = (
    column("TARGET", "name"),
    column("KIND", "kind"),
    column("GOES TO", "to"),
    column("OBSERVED", "observable"),
)


@click.group(cls=Noun)
def target() -> None:
    """Where outbox work goes: webhooks, programs, files."""


@target.command("add")
@click.argument("name")
@click.option("--kind", type=click.Choice(tuple(PLACES)), required=True, help="What it is.")
@click.option(
    "--to",
    "place",
    required=True,
    multiple=True,
    help="The URL, the directory, or the program; once more for each of its arguments.",
)
@click.option("--secret-file", metavar="FILE", help="Of a webhook: what requests are signed with.")
@at_desk
def add(desk: Desk, name: str, kind: str, place: tuple[str, ...], secret_file: str | None) -> None:
    """Print the section of the server's configuration file that adds the target NAME.

    Targets are read from the file of serve --config, never stored: append the section there, then
    start serve and worker anew. NAME is the operation, as the policies of channels name it.
    """
    members = _members(name, kind, place, secret_file)
    if desk.is_for_people:
        say(f"[targets.{name}]")
        for member, value in members.items():
            say(f"{member} = {json.dumps(value, ensure_ascii=False)}")
    else:
        desk.done({"targets": {name: members}}, "")
    note(
        "append this to the file of serve --config and start the server anew; "
        f"next: tidegate target test {name}"
    )


def _members(
    name: str, kind: str, place: tuple[str, ...], secret_file: str | None
) -> dict[str, str | list[str]]:
    """What the section says. Raises: Stop."""
    again = "tidegate target add --help"
    if not NAME.fullmatch(name):
        said = f"{name!r} is no name of an operation: small letters, digits, _ and -, 63 at most"
        raise Stop(Exit.USAGE, said, again)
    if not all(word and word.isprintable() for word in (*place, secret_file or "-")):
        raise Stop(Exit.USAGE, "--to and --secret-file are printable, and not empty", again)
    if kind == "webhook" and secret_file is None:
        raise Stop(Exit.USAGE, "a webhook needs a --secret-file, 16 bytes at least", again)
    if kind != "webhook" and secret_file is not None:
        raise Stop(Exit.USAGE, f"a {kind} has no secret", again)
    if kind != "command" and len(place) > 1:
        raise Stop(Exit.USAGE, f"a {kind} goes to one place; --to stands {len(place)} times", again)
    members: dict[str, str | list[str]] = {
        "kind": kind,
        PLACES[kind]: list(place) if kind == "command" else place[0],
    }
    if secret_file is not None:
        members["secret_file"] = secret_file
    return members


@target.command("list")
@at_desk
def list_all(desk: Desk) -> None:
    """The targets of the server's settings; their secrets are nowhere."""
    empty = "no target; try: tidegate target add --help"
    desk.list(desk.client.items(at("targets")), COLUMNS, empty=empty)


@target.command("test")
@click.argument("name", shell_complete=TARGETS)
@at_desk
def test(desk: Desk, name: str) -> None:
    """Try the target NAME without giving it work, and say what it answered."""
    answer = desk.client.write("POST", at("targets", name, "test"))
    found = answer.json()
    if not found["ok"]:
        raise Stop(
            Exit.UNAVAILABLE,
            f"{name} would not take work: {found['detail']}",
            "tidegate target list",
        )
    desk.done(answer, f"{name} would take work: {found['detail']}")
