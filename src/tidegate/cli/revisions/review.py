"""The review of a revision: proposed, withdrawn, approved, rejected, deleted."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.context import CommandContext, VerbCommand, reason, version_option, with_context
from tidegate.cli.exit_codes import CommandExit, ExitCode
from tidegate.cli.live_view import Line, follow
from tidegate.cli.paths import at
from tidegate.cli.revisions.documents import content_digest, release_of, take_step
from tidegate.cli.revisions.names import DRAFTS, PROPOSED, PUBLISHED, REVISIONS, full_name
from tidegate.cli.symbols import clean, glyph
from tidegate.cli.waiting import WaitOption, wait_option


@click.command("propose", cls=VerbCommand)
@click.argument("name", shell_complete=DRAFTS)
@reason(required=False)
@version_option
@wait_option
@with_context
def propose(
    context: CommandContext, name: str, reason: str | None, version: int | None, wait: WaitOption
) -> None:
    """Propose the draft NAME for review. It is frozen until it is decided.

    With --wait: exit code 0 when it is published, 1 when it was rejected.
    """
    answer = take_step(context, name, "propose", {"reason": reason or ""}, version)
    if not wait.is_asked or context.is_for_people:
        next_step = f"an approver goes on with: tidegate rev approve {full_name(name)}"
        context.done(answer, f"{full_name(name)} is proposed; {next_step}")
    if wait.is_asked:
        _decided(context, full_name(name), wait)


def _decided(context: CommandContext, name: str, wait: WaitOption) -> None:
    """Raises: Stop: it was not published, or not in time."""
    try:
        found = follow(
            lambda: context.get(at("revisions", name)),
            _frame,
            output=context.output,
            until=lambda found: found["spec"]["lifecycle"] != "Proposed",
            seconds=wait.seconds,
        )
    except TimeoutError:
        raise CommandExit(
            ExitCode.UNAVAILABLE,
            f"there is no decision yet about {name} in {wait.seconds} s",
            f"tidegate rev show {name}",
        ) from None
    if found["spec"]["lifecycle"] == "Draft":
        raise CommandExit(
            ExitCode.REFUSED,
            f"{name} was rejected or withdrawn",
            f"tidegate rev history {name}",
        )


def _frame(found: Any) -> list[Line]:
    lifecycle = str(found["spec"]["lifecycle"])
    mark, colour = glyph(lifecycle)
    approvals = len(found["status"]["approvedBy"])
    ready = ", the next approval publishes it" if found["status"].get("readyToPublish") else ""
    name = clean(found["metadata"]["name"])
    return [
        [
            (f"{name}  ", "default"),
            (f"{mark} {lifecycle}", colour),
            (f"  {approvals} approved{ready}", "default"),
        ]
    ]


@click.command("withdraw", cls=VerbCommand)
@click.argument("name", shell_complete=PROPOSED)
@reason(required=False)
@version_option
@with_context
def withdraw(context: CommandContext, name: str, reason: str | None, version: int | None) -> None:
    """Withdraw your own proposal. It becomes a draft again."""
    answer = take_step(context, name, "withdraw", {"reason": reason or ""}, version)
    context.done(answer, f"{full_name(name)} is a draft again")


@click.command("approve", cls=VerbCommand)
@click.argument("name", shell_complete=PROPOSED)
@click.option(
    "--digest", help="The digest of the content that you reviewed. Default: the current one."
)
@reason(required=False)
@version_option
@with_context
def approve(
    context: CommandContext, name: str, digest: str | None, reason: str | None, version: int | None
) -> None:
    """Approve the content of NAME; the approval that completes the quorum publishes it."""
    path = at("revisions", full_name(name))
    seen = context.client.get(path)
    body = {"digest": digest or content_digest(seen.json()), "reason": reason or ""}
    etag = seen.etag if version is None else f'"{version}"'
    answer = context.client.write("POST", f"{path}/approve", body, etag=etag)
    found = answer.json()
    if found["spec"]["lifecycle"] == "Published":
        release = release_of(found)
        line = f"{full_name(name)} is published as {release}"
        context.done(answer, f"{line}; next: tidegate channel promote CHANNEL {release}")
    else:
        count = len(found["status"]["approvedBy"])
        context.done(answer, f"{full_name(name)} is approved by {count}; others must approve, too")


@click.command("reject", cls=VerbCommand)
@click.argument("name", shell_complete=PROPOSED)
@reason(required=True)
@version_option
@with_context
def reject(context: CommandContext, name: str, reason: str, version: int | None) -> None:
    """Send the proposal NAME back to its author, with a reason."""
    answer = take_step(context, name, "reject", {"reason": reason}, version)
    context.done(answer, f"{full_name(name)} is a draft again")


@click.command("propose-delete", cls=VerbCommand)
@click.argument("name", shell_complete=PUBLISHED)
@reason(required=False)
@version_option
@with_context
def propose_delete(
    context: CommandContext, name: str, reason: str | None, version: int | None
) -> None:
    """Propose that the published revision NAME is deleted."""
    answer = take_step(context, name, "propose-delete", {"reason": reason or ""}, version)
    context.done(answer, f"the deletion of {full_name(name)} is proposed")


@click.command("reject-delete", cls=VerbCommand)
@click.argument("name", shell_complete=REVISIONS)
@reason(required=True)
@version_option
@with_context
def reject_delete(context: CommandContext, name: str, reason: str, version: int | None) -> None:
    """Keep NAME, whose deletion was proposed, with a reason."""
    answer = take_step(context, name, "reject-delete", {"reason": reason}, version)
    context.done(answer, f"{full_name(name)} stays published")


@click.command("delete", cls=VerbCommand)
@click.argument("name", shell_complete=REVISIONS)
@version_option
@with_context
def delete(context: CommandContext, name: str, version: int | None) -> None:
    """Delete NAME for good: a draft, a proposal, or what is proposed for deletion."""
    path = at("revisions", full_name(name))
    answer = context.client.write("DELETE", path, etag=context.etag_of(path, version))
    waits = answer.status == 202
    line = "waits for its finalizers" if waits else "is deleted; its history stays"
    document = answer.json() or {"deleted": full_name(name), "position": answer.position}
    context.done(document, f"{full_name(name)} {line}")


VERBS = (propose, withdraw, approve, reject, propose_delete, reject_delete, delete)
