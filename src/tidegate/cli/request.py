"""Requests: what waits for a second person on protected channels."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import completion, context as cli_context, exit_codes, output, paths

REQUESTS = completion.names("/v1/requests", "request_id")
STATES = (
    *("waiting", "approved", "executed", "rejected", "withdrawn", "expired", "voided"),
    *("to-review", "reviewed"),
)


hosts_option = click.option(
    "--hosts",
    type=click.IntRange(min=0),
    help="How many hosts the plan has that you looked at. It is asked for when the number changed "
    "by more than a tenth since the request was made.",
)


def asks_for(item: output.Item) -> str:
    """Describe what a request is for, in a few words."""
    return str(item.get("what") or item.get("kind"))


COLUMNS = (
    output.column("REQUEST", "request_id"),
    output.column("CHANNEL", "channel"),
    output.column("STATE", "state"),
    output.Column("ASKS FOR", lambda item: output.text(asks_for(item))),
    output.person_column("BY", "by", name="asked_by"),
    output.time_column("MADE", "made_at"),
    output.column("WHY", "reason"),
)


@click.group(cls=cli_context.NounGroup)
def request() -> None:
    """What waits for a second person on protected channels."""


@request.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only requests in this state.")
@cli_context.watch_option
@cli_context.with_context
def list_all(context: cli_context.CommandContext, state: str | None, watch: bool) -> None:
    """List requests, the newest first."""
    query = {} if state is None else {"state": state}
    context.print_items(
        lambda: list(context.client.items(paths.at("requests"), query)),
        COLUMNS,
        watch=watch,
        empty="no request",
    )


def _rollout_fields(rollout: Any) -> list[tuple[str, output.Cell]]:
    """The fields about the rollout that a request opened or is about."""
    if rollout is None:
        return []
    moved = f"{rollout['before'] or 'none'} → {rollout['release_id']}"
    return [
        ("  release", output.text(moved)),
        ("  hosts", output.text(rollout["hosts"])),
        ("  rollout", output.text(rollout["rollout_id"])),
    ]


def _print_carried(context: cli_context.CommandContext, answer: Any, line: str) -> None:
    """Print that a request was carried out, its result, and the command to follow it."""
    rollout_id = answer.get("rollout_id")
    if rollout_id is None:
        context.done(answer, f"{line}: {output.text(asks_for(answer))}")
        return
    waits = ", and its orders wait" if answer.get("waits") else ""
    context.done(answer, f"{line}: rollout {output.text(rollout_id)} is open{waits}")
    context.warn(answer)
    if context.is_for_people:
        output.note(f"follow it: tidegate rollout watch {output.text(rollout_id)}")


def request_fields(found: Any) -> list[tuple[str, output.Cell]]:
    seen = found.get("seen") or {}
    names = {item["user_id"]: item["name"] for item in found["approvers"]}
    return [
        ("request", output.text(found["request_id"])),
        ("channel", output.text(found["channel"])),
        ("state", output.text(found["state"])),
        ("asks for", output.text(asks_for(found))),
        *(
            (f"  {change['what']}", output.text(f"{change['before']} → {change['after']}"))
            for change in found["changes"]
        ),
        *_rollout_fields(found.get("rollout")),
        *(("note", output.text(note)) for note in found.get("notes") or ()),
        ("why", output.text(found.get("reason"))),
        ("by", output.text(found.get("asked_by") or found["by"])),
        ("made", output.when(found["made_at"])),
        ("expires", output.when(found.get("expires_at"))),
        ("pinned then", output.text(seen.get("pin"))),
        ("approved by", output.text([name or "a former user" for name in found["approved_by"]])),
        ("may approve", output.text([name or user for user, name in names.items()])),
        ("digest", output.text(found.get("digest"))),
        ("next", output.text(found["next"])),
    ]


@request.command("show")
@click.argument("request_id", shell_complete=REQUESTS)
@cli_context.watch_option
@cli_context.with_context
def show(context: cli_context.CommandContext, request_id: str, watch: bool) -> None:
    """Show what REQUEST_ID asks for, who approved it, and who else may."""
    context.print_object(
        lambda: context.get(paths.at("requests", request_id)), request_fields, watch=watch
    )


@request.command("approve")
@click.argument("request_id", shell_complete=REQUESTS)
@click.option("--digest", help="Of the request as you saw it. Default: as it is now.")
@hosts_option
@cli_context.reason(required=False)
@cli_context.with_context
def approve(
    context: cli_context.CommandContext,
    request_id: str,
    digest: str | None,
    hosts: int | None,
    reason: str | None,
) -> None:
    """Approve REQUEST_ID; the last approval carries it out."""
    if digest is None:
        digest = context.get(paths.at("requests", request_id)).get("digest") or "-"
    body = {"digest": digest, "reason": reason or "", "hosts": hosts}
    answer = context.client.write("POST", paths.at("requests", request_id, "approve"), body).json()
    if answer["not_carried_out"]:
        context.done(
            answer,
            f"Approved, not carried out: {output.text(answer['not_carried_out'])}\n"
            f"Then carry it out: tidegate request run {request_id}",
        )
        return
    if answer["state"] == "executed":
        _print_carried(context, answer, f"{request_id} is approved and carried out")
    else:
        context.done(answer, output.text(answer["next"]))


@request.command("reject")
@click.argument("request_id", shell_complete=REQUESTS)
@cli_context.reason(required=True)
@cli_context.with_context
def reject(context: cli_context.CommandContext, request_id: str, reason: str) -> None:
    """Reject REQUEST_ID."""
    path = paths.at("requests", request_id, "reject")
    context.done(
        context.client.write("POST", path, {"reason": reason}), f"{request_id} is rejected"
    )


@request.command("withdraw")
@click.argument("request_id", shell_complete=REQUESTS)
@cli_context.reason(required=False)
@cli_context.with_context
def withdraw(context: cli_context.CommandContext, request_id: str, reason: str | None) -> None:
    """Withdraw your own REQUEST_ID."""
    path = paths.at("requests", request_id, "withdraw")
    answer = context.client.write("POST", path, {"reason": reason or ""})
    context.done(answer, f"{request_id} is withdrawn")


@request.command("run")
@click.argument("request_id", shell_complete=REQUESTS)
@hosts_option
@cli_context.with_context
def run(context: cli_context.CommandContext, request_id: str, hosts: int | None) -> None:
    """Carry out REQUEST_ID after enough people have approved it."""
    path = paths.at("requests", request_id, "run")
    answer = context.client.write("POST", path, {"hosts": hosts}).json()
    _print_carried(context, answer, f"{request_id} is carried out")


@request.command("review")
@click.argument("request_id", shell_complete=REQUESTS)
@click.option("--accept", is_flag=True, help="It was right.")
@click.option("--dispute", is_flag=True, help="It was not right. It stays done.")
@cli_context.reason(required=True)
@cli_context.with_context
def review(
    context: cli_context.CommandContext, request_id: str, accept: bool, dispute: bool, reason: str
) -> None:
    """Review a use of break-glass: accept or dispute it."""
    if accept == dispute:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.USAGE, "say --accept or --dispute", "tidegate request review --help"
        )
    path = paths.at("requests", request_id, "review")
    answer = context.client.write("POST", path, {"accepted": accept, "reason": reason})
    context.done(answer, f"{request_id} is {'accepted' if accept else 'disputed'}")
