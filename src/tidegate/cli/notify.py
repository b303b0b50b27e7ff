"""Subscriptions: their events and targets, and the messages that wait to be sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidegate.cli import completion, context as cli_context, exit_codes, output, paths

KINDS = ("webhook", "slack", "teams", "pagerduty", "grafana", "mail")
SEVERITIES = ("info", "warning", "critical")
SUBSCRIPTIONS = completion.names("/v1/subscriptions", "name")


def format_state(item: output.Item) -> str:
    """Format the state of a subscription's delivery."""
    if item.get("disabled_at"):
        return f"disabled: {item.get('disabled_reason')}"
    if item.get("failures"):
        return f"failing: {item.get('last_error')}"
    if item.get("last_error"):
        return f"delivered, but {item['last_error']}"
    return "ok"


def format_events(item: output.Item) -> str:
    """Format the events: by name, or all of a severity."""
    events = item.get("events") or []
    least = item.get("min_severity")
    if events:
        return output.text(events)
    return "all" if least == "info" else f"{least} and graver"


COLUMNS = (
    output.column("NAME", "name"),
    output.column("KIND", "kind"),
    output.Column("EVENTS", format_events),
    output.column("SCOPES", "scopes"),
    output.column("WAITING", "waiting"),
    output.column("DEAD", "dead"),
    output.Column("STATE", format_state),
)
FIELDS = (
    *COLUMNS,
    output.column("SENT", "delivered"),
    output.time_column("LAST SENT", "delivered_at"),
    output.time_column("NEXT ATTEMPT", "next_attempt_at"),
    output.person_column("CREATED BY", "created_by", name="created_by_name"),
    output.time_column("CREATED", "created_at"),
)


@click.group(cls=cli_context.NounGroup)
def notify() -> None:
    """Send events to webhooks, chat, alerts and mail."""


def target_options(verb: Any) -> Any:
    """The options for the target and the events."""
    for option in reversed(
        (
            click.option(
                "--to",
                "to",
                multiple=True,
                metavar="URL",
                help="The URL; of mail, an address, once for each.",
            ),
            click.option("--to-file", metavar="FILE", help="Read the URL from a file instead."),
            click.option(
                "--secret-file",
                metavar="FILE",
                help="A webhook's own secret, PagerDuty's integration key, Grafana's token.",
            ),
            click.option(
                "--event",
                "events",
                multiple=True,
                metavar="EVENT",
                help="Only this event; once for each, or several with commas. Else by severity.",
            ),
            click.option(
                "--min-severity",
                type=click.Choice(SEVERITIES),
                help="Only events as grave as this. Without --event: warning, else info.",
            ),
            click.option(
                "--scope",
                "scopes",
                multiple=True,
                metavar="SCOPE",
                help="channel:NAME, repository:NAME or *; once for each.",
            ),
        )
    ):
        verb = option(verb)
    return verb


@notify.command("create")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="What the target is.")
@target_options
@cli_context.with_context
def create(
    context: cli_context.CommandContext,
    name: str,
    kind: str,
    to: tuple[str, ...],
    to_file: str | None,
    secret_file: str | None,
    events: tuple[str, ...],
    min_severity: str | None,
    scopes: tuple[str, ...],
) -> None:
    """Send events to a target from now on. Without --scope, it gets events of all scopes.

    Without --event and --min-severity it gets events from warning on.
    """
    wanted = _split(events)
    body = {
        "name": name,
        "kind": kind,
        **_target(kind, to, to_file, secret_file),
        "events": wanted,
        "min_severity": min_severity or ("info" if wanted else "warning"),
        "scopes": list(scopes) or ["*"],
    }
    answer = context.client.write("POST", paths.at("subscriptions"), body)
    context.done(answer, f"{name} gets notifications from now on")
    if context.is_for_people:
        _say_secret(answer.json())
        output.note(f"next: tidegate notify test {name}")


@notify.command("edit")
@click.argument("name", shell_complete=SUBSCRIPTIONS)
@target_options
@click.option(
    "--rotate-secret",
    is_flag=True,
    help="Make a new secret for a webhook. For 24 hours both secrets sign.",
)
@cli_context.version_option
@cli_context.with_context
def edit(
    context: cli_context.CommandContext,
    name: str,
    to: tuple[str, ...],
    to_file: str | None,
    secret_file: str | None,
    events: tuple[str, ...],
    min_severity: str | None,
    scopes: tuple[str, ...],
    rotate_secret: bool,
    version: int | None,
) -> None:
    """Change which events NAME gets, or where it is. Settings that you do not name stay.

    A subscription that was disabled is enabled again.
    """
    path = paths.at("subscriptions", name)
    kind = context.get(path)["kind"] if to or to_file or secret_file else ""
    body = {
        **_target(kind, to, to_file, secret_file),
        "events": _split(events) or None,
        "min_severity": min_severity,
        "scopes": list(scopes) or None,
        "rotate_secret": rotate_secret,
    }
    etag = None if version is None else f'"{version}"'
    answer = context.client.write("PATCH", path, body, etag=etag)
    context.done(answer, f"subscription {name} is changed")
    if context.is_for_people:
        _say_secret(answer.json())


@notify.command("list")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, watch: bool) -> None:
    """List the subscriptions, and what waits to be sent."""
    context.print_items(
        lambda: list(context.client.items(paths.at("subscriptions"))),
        COLUMNS,
        watch=watch,
        empty="there is no subscription; try: tidegate notify create --help",
    )


@notify.command("show")
@click.argument("name", shell_complete=SUBSCRIPTIONS)
@cli_context.with_context
def show(context: cli_context.CommandContext, name: str) -> None:
    """Show the subscription NAME, its queue and its newest dead letters."""
    item = context.get(paths.at("subscriptions", name))
    fields = [(found.title.lower(), found.cell(item)) for found in FIELDS]
    for letter in item["dead_letters"]:
        fields.append((f"dead #{letter['number']}", f"{letter['event']}: {letter['reason']}"))
    context.card(item, fields)


@notify.command("delete")
@click.argument("name", shell_complete=SUBSCRIPTIONS)
@cli_context.with_context
def delete(context: cli_context.CommandContext, name: str) -> None:
    """Delete the subscription NAME. Waiting messages are dropped, and the address is erased."""
    answer = context.client.write("DELETE", paths.at("subscriptions", name))
    context.done(answer, f"{name} is deleted")


@notify.command("test")
@click.argument("name", shell_complete=SUBSCRIPTIONS)
@cli_context.with_context
def test(context: cli_context.CommandContext, name: str) -> None:
    """Send a test message to NAME now, and show the receiver's response."""
    answer = context.client.write("POST", paths.at("subscriptions", name, "test"))
    found = answer.json()
    if not found["ok"]:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"the test message did not reach {name}: {found['detail']}",
            f"tidegate notify show {name}",
        )
    context.done(answer, f"{name} has the test message: {found['detail']}")


@notify.command("replay")
@click.argument("name", shell_complete=SUBSCRIPTIONS)
@click.option(
    "--after",
    type=click.IntRange(0),
    required=True,
    metavar="POSITION",
    help="The position of the log after which everything is sent again.",
)
@cli_context.with_context
def replay(context: cli_context.CommandContext, name: str, after: int) -> None:
    """Send the events after a position to NAME again, marked as replayed."""
    answer = context.client.write(
        "POST", paths.at("subscriptions", name, "replay"), {"after": after}
    )
    context.done(answer, f"{name} is sent again what happened after position {after}")


@notify.command("skip")
@click.argument("name", shell_complete=SUBSCRIPTIONS)
@cli_context.reason(required=True)
@cli_context.with_context
def skip(context: cli_context.CommandContext, name: str, reason: str) -> None:
    """Skip the first message that waits for NAME, so that the next one is sent."""
    body = {"reason": reason}
    answer = context.client.write("POST", paths.at("subscriptions", name, "skip"), body)
    context.done(answer, f"the first message to {name} is skipped")


def _split(events: tuple[str, ...]) -> list[str]:
    return [name.strip() for given in events for name in given.split(",") if name.strip()]


def _target(
    kind: str, to: tuple[str, ...], to_file: str | None, secret_file: str | None
) -> dict[str, Any]:
    """The fields of the request for the target. Raises: CommandExit."""
    found: dict[str, Any] = {}
    given = (*to, *([] if to_file is None else [_read(to_file)]))
    if kind == "mail" and given:
        found["to"] = list(given)
    elif len(given) > 1:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE, f"a {kind} has one address", "tidegate notify create --help"
        )
    elif given:
        found["url"] = given[0]
    if secret_file is not None:
        found["secret"] = _read(secret_file)
    return found


def _read(file: str) -> str:
    """Raises: CommandExit."""
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE,
            f"{file} cannot be read: {error}",
            "tidegate notify create --help",
        ) from None


def _say_secret(document: dict[str, Any]) -> None:
    if document.get("secret"):
        output.say(f"secret: {document['secret']}")
        output.note("give this secret to the receiver now; it is not shown again")
