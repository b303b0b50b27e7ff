"""Targets: where outbox work goes, and whether it would get there."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.output import column
from tidegate.cli.paths import at

KINDS = ("webhook", "command", "file")
TARGETS = names("/v1/targets", "name")
COLUMNS = (
    column("TARGET", "name"),
    column("KIND", "kind"),
    column("GOES TO", "to"),
    column("VERSION", "version"),
)


@click.group(cls=Noun)
def target() -> None:
    """Where outbox work goes: webhooks, programs, files."""


@target.command("add")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What it is.")
@click.option("--to", "place", required=True, help="The URL, the program, or the directory.")
@click.option("--secret-stdin", is_flag=True, help="Read the signing secret of a webhook.")
@at_desk
def add(desk: Desk, name: str, kind: str, place: str, secret_stdin: bool) -> None:
    """Add the target NAME; operations of channels name it."""
    body: dict[str, Any] = {"name": name, "kind": kind, "to": place}
    if secret_stdin:
        from tidegate.cli.access import secret_of

        body["secret"] = secret_of(True, "Secret", "--secret-stdin")
    answer = desk.client.write("POST", at("targets"), body)
    desk.done(answer, f"target {name} is there; next: tidegate target test {name}")


@target.command("list")
@at_desk
def list_all(desk: Desk) -> None:
    """All targets; their secrets are nowhere."""
    empty = "no target; try: tidegate target add --help"
    desk.list(desk.client.items(at("targets")), COLUMNS, empty=empty)


@target.command("test")
@click.argument("name", shell_complete=TARGETS)
@at_desk
def test(desk: Desk, name: str) -> None:
    """Ask the target NAME for an effect that does nothing, and say what it answered."""
    answer = desk.client.write("POST", at("targets", name, "test"))
    found = answer.json()
    if not found.get("ok", True):
        raise Stop(
            Exit.UNAVAILABLE,
            f"{name} did not take it: {found.get('detail', 'no reason was given')}",
            "tidegate target list",
        )
    desk.done(answer, f"{name} took it")
