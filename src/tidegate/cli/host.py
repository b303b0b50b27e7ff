"""Hosts: enrolled, labelled, looked at, revoked, retired."""

from __future__ import annotations

import click

from tidegate.cli.completion import names
from tidegate.cli.desk import Desk, Noun, at_desk, reason, watched
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.frames import painted
from tidegate.cli.gates import explained
from tidegate.cli.output import Column, Item, State, column, note, say, text, timed, when
from tidegate.cli.paths import at

HOSTS = names("/v1/hosts", "host_id")


def standing(item: Item) -> State:
    status = str(item.get("status") or "enrolled")
    return State("silent" if status == "enrolled" and item.get("silent_since") else status)


COLUMNS = (
    column("HOST", "host_id"),
    Column("STATE", standing),
    column("LABELS", "labels"),
    timed("ENROLLED", "enrolled_at"),
    timed("HEARD", "last_seen_at"),
)


def labels_of(words: tuple[str, ...]) -> dict[str, str | None]:
    """``key=value`` sets, ``key-`` removes. Raises: Stop."""
    found: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            found[key] = value
        elif word.endswith("-"):
            found[word[:-1]] = None
        else:
            raise Stop(
                Exit.USAGE,
                f"a label is KEY=VALUE, or KEY- to remove it; found {word!r}",
                "tidegate host label --help",
            )
    return found


@click.group(cls=Noun)
def host() -> None:
    """Hosts of the fleet."""


@host.command("list")
@click.option("--status", type=click.Choice(("enrolled", "revoked", "retired")), help="Only those.")
@click.option("--channel", help="Only those of this channel.")
@watched
@at_desk
def list_all(desk: Desk, status: str | None, channel: str | None, watch: bool) -> None:
    """All hosts."""
    query = {"status": status, "channel": channel}
    desk.shown(
        lambda: list(desk.client.items(at("hosts"), query)),
        COLUMNS,
        watch=watch,
        empty="no host; try: tidegate host enroll HOST",
    )


@host.command("show")
@click.argument("host", shell_complete=HOSTS)
@at_desk
def show(desk: Desk, host: str) -> None:
    """What is known of HOST."""
    found = desk.get(at("hosts", host))
    desk.card(
        found,
        [
            ("host", text(found["host_id"])),
            ("state", standing(found)),
            ("labels", text(found.get("labels"))),
            ("channels", text(found.get("channels"))),
            ("runs", text(found.get("current_closures"))),
            ("order", text(found.get("order"))),
            ("enrolled", when(found.get("enrolled_at"))),
            ("heard", when(found.get("last_seen_at"))),
            ("agent", text(found.get("agent_version"))),
            ("silent since", when(found.get("silent_since"))),
            ("key", text(found.get("public_key"))),
        ],
    )


@host.command("enroll")
@click.argument("host")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="May stand again.")
@at_desk
def enroll(desk: Desk, host: str, labels: tuple[str, ...]) -> None:
    """Print a one-time token with which the agent on HOST enrolls itself."""
    body = {"host_id": host, "labels": labels_of(labels)}
    made = desk.client.write("POST", at("hosts", "enroll"), body).json()
    if desk.is_for_people:
        note(f"shown this once; on {host}: tidegate agent --config FILE --token-file FILE")
        say(made["token"])
    else:
        desk.done(made, "")


@host.command("label")
@click.argument("host", shell_complete=HOSTS)
@click.argument("labels", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...")
@at_desk
def label(desk: Desk, host: str, labels: tuple[str, ...]) -> None:
    """Set labels of HOST, or remove them; the others stay."""
    change = labels_of(labels)
    path = at("hosts", host)
    found = desk.client.get(path)
    kept = {**(found.json().get("labels") or {}), **change}
    body = {"labels": {name: value for name, value in kept.items() if value is not None}}
    answer = desk.client.write("PUT", at("hosts", host, "labels"), body, etag=found.etag)
    desk.done(answer, f"{host} has labels {text(body['labels'])}")


@host.command("revoke")
@click.argument("host", shell_complete=HOSTS)
@reason(required=True)
@at_desk
def revoke(desk: Desk, host: str, reason: str) -> None:
    """Shut the agent of HOST out: its key opens nothing any more."""
    answer = desk.client.write("POST", at("hosts", host, "revoke"), {"reason": reason})
    desk.done(answer, f"{host} is revoked")


@host.command("retire")
@click.argument("host", shell_complete=HOSTS)
@reason(required=True)
@at_desk
def retire(desk: Desk, host: str, reason: str) -> None:
    """Take HOST out of the fleet; its name does not come back."""
    answer = desk.client.write("POST", at("hosts", host, "retire"), {"reason": reason})
    desk.done(answer, f"{host} is retired")


@host.command("explain")
@click.argument("host", shell_complete=HOSTS)
@at_desk
def explain(desk: Desk, host: str) -> None:
    """Why HOST waits, or why it runs what it runs."""
    found = desk.get(at("hosts", host, "explain"))
    if not desk.is_for_people:
        desk.card(found, [])
        return
    for line in explained(found):
        say(painted(line))
