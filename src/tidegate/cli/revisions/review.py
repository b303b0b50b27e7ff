"""The review of a revision: propose, withdraw, approve, reject, delete."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli import context as cli_context, exit_codes, live_view, paths, symbols, waiting
from tidegate.cli.revisions import documents, names


@click.command("propose", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.DRAFTS)
@cli_context.reason(required=False)
@cli_context.version_option
@waiting.wait_option
@cli_context.with_context
def propose(
    context: cli_context.CommandContext,
    name: str,
    reason: str | None,
    version: int | None,
    wait: waiting.WaitOption,
) -> None:
    """Propose the draft NAME for review. It is frozen until it is decided.

    With --wait: exit code 0 when it is published, 1 when it was rejected.
    """
    answer = documents.take_step(context, name, "propose", {"reason": reason or ""}, version)
    if not wait.is_asked or context.is_for_people:
        next_step = f"next, an approver runs: tidegate rev approve {names.full_name(name)}"
        context.done(answer, f"{names.full_name(name)} is proposed; {next_step}")
    if wait.is_asked:
        _wait_for_decision(context, names.full_name(name), wait)


def _wait_for_decision(
    context: cli_context.CommandContext, name: str, wait: waiting.WaitOption
) -> None:
    """Raises: CommandExit: it was not published, or not in time."""
    try:
        found = live_view.follow(
            lambda: context.get(paths.at("revisions", name)),
            _frame,
            output=context.output,
            until=lambda found: found["spec"]["lifecycle"] != "Proposed",
            seconds=wait.seconds,
        )
    except TimeoutError:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"there is no decision yet about {name} in {wait.seconds} s",
            f"tidegate rev show {name}",
        ) from None
    if found["spec"]["lifecycle"] == "Draft":
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.REFUSED,
            f"{name} was rejected or withdrawn",
            f"tidegate rev history {name}",
        )


def _frame(found: Any) -> list[live_view.Line]:
    lifecycle = str(found["spec"]["lifecycle"])
    mark, colour = symbols.glyph(lifecycle)
    approvals = len(found["status"]["approvedBy"])
    ready = ", the next approval publishes it" if found["status"].get("readyToPublish") else ""
    name = symbols.clean(found["metadata"]["name"])
    return [
        [
            (f"{name}  ", "default"),
            (f"{mark} {lifecycle}", colour),
            (f"  {approvals} approved{ready}", "default"),
        ]
    ]


@click.command("withdraw", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.PROPOSED)
@cli_context.reason(required=False)
@cli_context.version_option
@cli_context.with_context
def withdraw(
    context: cli_context.CommandContext, name: str, reason: str | None, version: int | None
) -> None:
    """Withdraw your own proposal. It becomes a draft again."""
    answer = documents.take_step(context, name, "withdraw", {"reason": reason or ""}, version)
    context.done(answer, f"{names.full_name(name)} is a draft again")


@click.command("approve", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.PROPOSED)
@click.option(
    "--digest", help="The digest of the content that you reviewed. Default: the current one."
)
@cli_context.reason(required=False)
@cli_context.version_option
@cli_context.with_context
def approve(
    context: cli_context.CommandContext,
    name: str,
    digest: str | None,
    reason: str | None,
    version: int | None,
) -> None:
    """Approve the content of NAME; the approval that completes the quorum publishes it."""
    path = paths.at("revisions", names.full_name(name))
    seen = context.client.get(path)
    body = {"digest": digest or documents.content_digest(seen.json()), "reason": reason or ""}
    etag = seen.etag if version is None else f'"{version}"'
    answer = context.client.write("POST", f"{path}/approve", body, etag=etag)
    found = answer.json()
    if found["spec"]["lifecycle"] == "Published":
        release = documents.release_of(found)
        line = f"{names.full_name(name)} is published as {release}"
        context.done(answer, f"{line}; next: tidegate channel promote CHANNEL {release}")
    else:
        count = len(found["status"]["approvedBy"])
        context.done(
            answer, f"{names.full_name(name)} is approved by {count}; others must approve, too"
        )


@click.command("reject", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.PROPOSED)
@cli_context.reason(required=True)
@cli_context.version_option
@cli_context.with_context
def reject(
    context: cli_context.CommandContext, name: str, reason: str, version: int | None
) -> None:
    """Send the proposal NAME back to its author, with a reason."""
    answer = documents.take_step(context, name, "reject", {"reason": reason}, version)
    context.done(answer, f"{names.full_name(name)} is a draft again")


@click.command("propose-delete", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.PUBLISHED)
@cli_context.reason(required=False)
@cli_context.version_option
@cli_context.with_context
def propose_delete(
    context: cli_context.CommandContext, name: str, reason: str | None, version: int | None
) -> None:
    """Propose to delete the published revision NAME."""
    answer = documents.take_step(context, name, "propose-delete", {"reason": reason or ""}, version)
    context.done(answer, f"the deletion of {names.full_name(name)} is proposed")


@click.command("reject-delete", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.REVISIONS)
@cli_context.reason(required=True)
@cli_context.version_option
@cli_context.with_context
def reject_delete(
    context: cli_context.CommandContext, name: str, reason: str, version: int | None
) -> None:
    """Reject the proposed deletion of NAME, with a reason."""
    answer = documents.take_step(context, name, "reject-delete", {"reason": reason}, version)
    context.done(answer, f"{names.full_name(name)} stays published")


@click.command("delete", cls=cli_context.VerbCommand)
@cli_context.dry_run_option
@click.argument("name", shell_complete=names.REVISIONS)
@cli_context.version_option
@cli_context.with_context
def delete(context: cli_context.CommandContext, name: str, version: int | None) -> None:
    """Delete NAME permanently: a draft, a proposal, or a revision proposed for deletion."""
    path = paths.at("revisions", names.full_name(name))
    answer = context.client.write("DELETE", path, etag=context.etag_of(path, version))
    waits = answer.status == 202
    line = "waits for its finalizers" if waits else "is deleted; its history stays"
    document = answer.json() or {"deleted": names.full_name(name), "position": answer.position}
    context.done(document, f"{names.full_name(name)} {line}")


VERBS = (propose, withdraw, approve, reject, propose_delete, reject_delete, delete)
