"""Freezes: times in which nothing is dispatched."""

from __future__ import annotations

import click

from tidegate.cli.channel import CHANNELS
from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk, reason, watched
from tidegate.cli.output import Column, column, person, text, timed
from tidegate.cli.paths import at

COLUMNS = (
    column("FREEZE", "freeze_id"),
    Column("CHANNELS", lambda item: text(item.get("channels") or "all")),
    timed("SINCE", "started_at"),
    timed("UNTIL", "until"),
    person("BY", "operator"),
    column("WHY", "reason"),
)


@click.group(cls=Noun)
def freeze() -> None:
    """Times in which nothing is dispatched."""


@freeze.command("start")
@click.option("--channel", "channels", multiple=True, shell_complete=CHANNELS, help="Else: all.")
@click.option("--until", metavar="TIME", help="When it ends by itself: 2026-12-24T18:00:00Z.")
@reason(required=True)
@at_desk
def start(desk: Desk, channels: tuple[str, ...], until: str | None, reason: str) -> None:
    """Dispatch nothing from now on."""
    body = {"channels": list(channels), "until": until, "reason": reason}
    answer = desk.client.write("POST", at("freezes"), body)
    freeze_id = answer.json()["freeze_id"]
    desk.done(answer, f"frozen; end it with: tidegate freeze end {freeze_id} --reason …")


@freeze.command("end")
@click.argument("freeze_id", shell_complete=names("/v1/freezes", "freeze_id"))
@reason(required=True)
@at_desk
def end(desk: Desk, freeze_id: str, reason: str) -> None:
    """End a freeze before its time."""
    answer = desk.client.write("POST", at("freezes", freeze_id, "end"), {"reason": reason})
    desk.done(answer, f"freeze {freeze_id} is over")


@freeze.command("list")
@watched
@at_desk
def list_all(desk: Desk, watch: bool) -> None:
    """The freezes that hold now."""
    desk.shown(
        lambda: list(desk.client.items(at("freezes"))), COLUMNS, watch=watch, empty="no freeze"
    )
