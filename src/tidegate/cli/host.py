"""Hosts: enroll, label, show, revoke and retire them."""

from __future__ import annotations

from collections.abc import Callable

import click

from tidegate.cli import (
    completion,
    context as cli_context,
    exit_codes,
    gates,
    live_view,
    output,
    paths,
    times,
)

HOSTS = completion.names("/v1/hosts", "host_id")
DIGEST_SHOWN = len("sha256:") + 12


def host_state(item: output.Item) -> output.StateCell:
    status = str(item.get("status") or "enrolled")
    return output.StateCell(
        "silent" if status == "enrolled" and item.get("silent_since") else status
    )


def agent_cell(item: output.Item) -> output.Cell:
    """The version of the host's agent, and whether it should be upgraded."""
    version = str(item.get("agent_version") or "")
    return output.text(f"{version} (too old)" if item.get("agent_too_old") else version)


def release_cell(member: str) -> Callable[[output.Item], output.Cell]:
    """A cell with the releases of a host, one per channel in the order of their names."""
    return lambda item: output.text(
        [_release(found, member) for found in item.get("releases") or []]
    )


def _release(found: output.Item, member: str) -> str:
    """A release by its name; content without a known release by its digest."""
    digest = str(found.get("digest") or "")[:DIGEST_SHOWN] if member == "runs" else ""
    return output.text(found.get(member) or digest)


COLUMNS = (
    output.column("HOST", "host_id"),
    output.Column("STATE", host_state),
    output.Column("WANTED", release_cell("wanted")),
    output.Column("RUNS", release_cell("runs")),
    output.column("LABELS", "labels"),
    output.time_column("ENROLLED", "enrolled_at"),
    output.time_column("HEARD", "last_seen_at"),
    output.Column("AGENT", agent_cell),
)


def labels_of(words: tuple[str, ...]) -> dict[str, str | None]:
    """Parse labels: ``key=value`` sets, ``key-`` removes. Raises: CommandExit."""
    found: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            found[key] = value
        elif word.endswith("-"):
            found[word[:-1]] = None
        else:
            raise exit_codes.CommandExit(
                exit_codes.ExitCode.USAGE,
                f"a label is KEY=VALUE, or KEY- to remove it; found {word!r}",
                "tidegate host label --help",
            )
    return found


@click.group(cls=cli_context.NounGroup)
def host() -> None:
    """Hosts of the fleet."""


@host.command("list")
@click.option("--status", type=click.Choice(("enrolled", "revoked", "retired")), help="Only those.")
@click.option("--channel", help="Only those of this channel.")
@click.option("--runs", metavar="RELEASE", help="Only those that run this release, such as web.3.")
@click.option(
    "--silent",
    metavar="[DURATION]",
    is_flag=False,
    flag_value="",
    help="Only those that are silent; with a DURATION such as 2h, those silent for so long.",
)
@click.option("--old-agent", is_flag=True, help="Only those whose agent should be upgraded.")
@cli_context.watch_option
@cli_context.with_context
def list_all(
    context: cli_context.CommandContext,
    status: str | None,
    channel: str | None,
    runs: str | None,
    silent: str | None,
    old_agent: bool,
    watch: bool,
) -> None:
    """List all hosts."""
    query = {
        "status": status,
        "channel": channel,
        "runs": runs,
        "silent_seconds": None if silent is None else str(silent_seconds(silent)),
        "old_agent": "true" if old_agent else None,
    }
    is_narrowed = any(value is not None for value in query.values())
    context.print_items(
        lambda: list(context.client.items(paths.at("hosts"), query)),
        COLUMNS,
        watch=watch,
        empty=_describe_none(runs, is_narrowed=is_narrowed),
    )


def _describe_none(runs: str | None, *, is_narrowed: bool) -> str:
    if runs is not None:
        return f"no host runs {runs}"
    return "no such host" if is_narrowed else "no host; try: tidegate host enroll HOST"


def silent_seconds(text: str) -> int:
    """Parse a duration to seconds; 0: none was given. Raises: CommandExit."""
    return int(times.parse_span(text).total_seconds()) if text else 0


@host.command("show")
@click.argument("host", shell_complete=HOSTS)
@cli_context.with_context
def show(context: cli_context.CommandContext, host: str) -> None:
    """Show HOST: what it runs, its labels and channels."""
    found = context.get(paths.at("hosts", host))
    context.card(
        found,
        [
            ("host", output.text(found["host_id"])),
            ("state", host_state(found)),
            ("labels", output.text(found.get("labels"))),
            *release_lines(found),
            ("busy with", output.text(found.get("order"))),
            ("enrolled", output.when(found.get("enrolled_at"))),
            ("heard", output.when(found.get("last_seen_at"))),
            ("agent", agent_cell(found)),
            *fact_lines(found),
            ("silent since", output.when(found.get("silent_since"))),
            ("key", output.text(found.get("public_key"))),
        ],
    )


def release_lines(found: output.Item) -> list[tuple[str, output.Cell]]:
    """For each channel of the host, the desired release and the one that the host runs."""
    releases = found.get("releases") or []
    lines = [
        f"{output.text(item.get('channel'))}: wanted {_release(item, 'wanted')}, "
        f"runs {_release(item, 'runs')}"
        for item in releases
    ]
    return [("channel" if number == 0 else "", line) for number, line in enumerate(lines)]


def fact_lines(found: output.Item) -> list[tuple[str, output.Cell]]:
    """What the host reports about its machine."""
    facts = found.get("facts") or {}
    lines: list[tuple[str, output.Cell]] = [
        ("os", output.text(" ".join(filter(None, (facts.get("os"), facts.get("os_version")))))),
        ("kernel", output.text(facts.get("kernel"))),
        ("arch", output.text(facts.get("arch"))),
        ("addresses", output.text(facts.get("addresses"))),
    ]
    if found.get("facts_refused"):
        lines.append(("facts refused", output.text(found["facts_refused"])))
    return lines


@host.command("enroll")
@click.argument("host")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label of the host; repeatable. Without any, a host that was revoked keeps its own.",
)
@cli_context.with_context
def enroll(context: cli_context.CommandContext, host: str, labels: tuple[str, ...]) -> None:
    """Print a one-time token with which the agent on HOST enrolls itself.

    If HOST is enrolled already and was re-imaged, see: tidegate host re-enroll.
    """
    body = {"host_id": host, "labels": labels_of(labels) or None}
    made = context.client.write("POST", paths.at("hosts", "enroll"), body).json()
    show_token(context, made, f"on {host}")


def show_token(context: cli_context.CommandContext, made: output.Item, where: str) -> None:
    """Print a token and the command with which an agent uses it."""
    if context.is_for_people:
        run = "tidegate agent --config FILE --token-file FILE"
        output.note(f"this token is shown only once; {where}: {run}")
        output.say(made["token"])
    else:
        context.done(made, "")


@host.command("re-enroll")
@click.argument("host", shell_complete=HOSTS)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label in place of all its own; repeatable.",
)
@cli_context.reason(required=False)
@cli_context.with_context
def re_enroll(
    context: cli_context.CommandContext, host: str, labels: tuple[str, ...], reason: str | None
) -> None:
    """Print a one-time token with which HOST enrolls again, re-imaged or retired.

    Its use revokes the key that HOST has now.
    """
    body = {"labels": labels_of(labels) or None, "reason": reason or ""}
    made = context.client.write("POST", paths.at("hosts", host, "re-enroll"), body).json()
    show_token(context, made, f"on {host}")


@host.command("label")
@cli_context.dry_run_option
@click.argument("host", shell_complete=HOSTS)
@click.argument("labels", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...")
@cli_context.with_context
def label(context: cli_context.CommandContext, host: str, labels: tuple[str, ...]) -> None:
    """Set or remove labels of HOST. Other labels stay."""
    change = labels_of(labels)
    path = paths.at("hosts", host)
    found = context.client.get(path)
    kept = {**(found.json().get("labels") or {}), **change}
    body = {"labels": {name: value for name, value in kept.items() if value is not None}}
    answer = context.client.write("PUT", paths.at("hosts", host, "labels"), body, etag=found.etag)
    context.done(answer, f"{host} has labels {output.text(body['labels'])}")


@host.command("revoke")
@cli_context.dry_run_option
@click.argument("host", shell_complete=HOSTS)
@cli_context.reason(required=True)
@cli_context.with_context
def revoke(context: cli_context.CommandContext, host: str, reason: str) -> None:
    """Revoke the key of HOST's agent."""
    answer = context.client.write("POST", paths.at("hosts", host, "revoke"), {"reason": reason})
    context.done(answer, f"{host} is revoked")


@host.command("retire")
@cli_context.dry_run_option
@click.argument("host", shell_complete=HOSTS)
@cli_context.reason(required=True)
@cli_context.with_context
def retire(context: cli_context.CommandContext, host: str, reason: str) -> None:
    """Retire HOST from the fleet. `host re-enroll` brings it back."""
    answer = context.client.write("POST", paths.at("hosts", host, "retire"), {"reason": reason})
    context.done(answer, f"{host} is retired")


@host.command("explain")
@click.argument("host", shell_complete=HOSTS)
@cli_context.with_context
def explain(context: cli_context.CommandContext, host: str) -> None:
    """Explain why HOST waits, or why it runs what it runs."""
    found = context.get(paths.at("hosts", host, "explain"))
    if not context.is_for_people:
        context.card(found, [])
        return
    for line in gates.explain_lines(found):
        output.say(live_view.paint(line))
