"""The review of a revision: proposed, withdrawn, approved, rejected, deleted."""

from __future__ import annotations

from typing import Any

import click

from tidegate.cli.desk import Desk, Verb, at_desk, reason, versioned
from tidegate.cli.exits import Exit, Stop
from tidegate.cli.frames import Line, follow
from tidegate.cli.glyphs import clean, glyph
from tidegate.cli.paths import at
from tidegate.cli.revisions import (
    DRAFTS,
    PROPOSED,
    PUBLISHED,
    REVISIONS,
    content_digest,
    full,
    release_of,
    stepped,
)
from tidegate.cli.waiting import Waiting, waiting


@click.command("propose", cls=Verb)
@click.argument("name", shell_complete=DRAFTS)
@reason(required=False)
@versioned
@waiting
@at_desk
def propose(desk: Desk, name: str, reason: str | None, version: int | None, wait: Waiting) -> None:
    """Ask for review of the draft NAME; it is frozen until somebody decided.

    With --wait: exit code 0 when it is published, 1 when it was rejected.
    """
    answer = stepped(desk, name, "propose", {"reason": reason or ""}, version)
    if not wait.is_asked or desk.is_for_people:
        desk.done(answer, f"{full(name)} is proposed; next: tidegate rev approve {full(name)}")
    if wait.is_asked:
        _decided(desk, full(name), wait)


def _decided(desk: Desk, name: str, wait: Waiting) -> None:
    """Raises: Stop: it was not published, or not in time."""
    try:
        found = follow(
            lambda: desk.get(at("revisions", name)),
            _frame,
            output=desk.output,
            until=lambda found: found["spec"]["lifecycle"] != "Proposed",
            seconds=wait.seconds,
        )
    except TimeoutError:
        raise Stop(
            Exit.UNAVAILABLE,
            f"nobody decided about {name} in {wait.seconds} s",
            f"tidegate rev get {name}",
        ) from None
    if found["spec"]["lifecycle"] == "Draft":
        raise Stop(
            Exit.REFUSED,
            f"{name} was rejected or withdrawn",
            f"tidegate rev history {name}",
        )


def _frame(found: Any) -> list[Line]:
    lifecycle = str(found["spec"]["lifecycle"])
    mark, colour = glyph(lifecycle)
    approvals = len(found["status"]["approvedBy"])
    name = clean(found["metadata"]["name"])
    return [
        [
            (f"{name}  ", "default"),
            (f"{mark} {lifecycle}", colour),
            (f"  {approvals} approved", "default"),
        ]
    ]


@click.command("withdraw", cls=Verb)
@click.argument("name", shell_complete=PROPOSED)
@reason(required=False)
@versioned
@at_desk
def withdraw(desk: Desk, name: str, reason: str | None, version: int | None) -> None:
    """Take your own proposal back: a draft again."""
    answer = stepped(desk, name, "withdraw", {"reason": reason or ""}, version)
    desk.done(answer, f"{full(name)} is a draft again")


@click.command("approve", cls=Verb)
@click.argument("name", shell_complete=PROPOSED)
@click.option("--digest", help="The content that you looked at; else what stands now.")
@reason(required=False)
@versioned
@at_desk
def approve(
    desk: Desk, name: str, digest: str | None, reason: str | None, version: int | None
) -> None:
    """Approve the content of NAME; the approval that completes the quorum publishes it."""
    path = at("revisions", full(name))
    seen = desk.client.get(path)
    body = {"digest": digest or content_digest(seen.json()), "reason": reason or ""}
    etag = seen.etag if version is None else f'"{version}"'
    answer = desk.client.write("POST", f"{path}/approve", body, etag=etag)
    found = answer.json()
    if found["spec"]["lifecycle"] == "Published":
        release = release_of(found)
        line = f"{full(name)} is published as {release}"
        desk.done(answer, f"{line}; next: tidegate channel promote CHANNEL {release}")
    else:
        count = len(found["status"]["approvedBy"])
        desk.done(answer, f"{full(name)} is approved by {count}; others must approve, too")


@click.command("reject", cls=Verb)
@click.argument("name", shell_complete=PROPOSED)
@reason(required=True)
@versioned
@at_desk
def reject(desk: Desk, name: str, reason: str, version: int | None) -> None:
    """Send the proposal NAME back to its author, with a reason."""
    answer = stepped(desk, name, "reject", {"reason": reason}, version)
    desk.done(answer, f"{full(name)} is a draft again")


@click.command("propose-delete", cls=Verb)
@click.argument("name", shell_complete=PUBLISHED)
@reason(required=False)
@versioned
@at_desk
def propose_delete(desk: Desk, name: str, reason: str | None, version: int | None) -> None:
    """Propose that the published revision NAME is deleted."""
    answer = stepped(desk, name, "propose-delete", {"reason": reason or ""}, version)
    desk.done(answer, f"the deletion of {full(name)} is proposed")


@click.command("reject-delete", cls=Verb)
@click.argument("name", shell_complete=REVISIONS)
@reason(required=True)
@versioned
@at_desk
def reject_delete(desk: Desk, name: str, reason: str, version: int | None) -> None:
    """Keep NAME, whose deletion was proposed, with a reason."""
    answer = stepped(desk, name, "reject-delete", {"reason": reason}, version)
    desk.done(answer, f"{full(name)} stays published")


@click.command("delete", cls=Verb)
@click.argument("name", shell_complete=REVISIONS)
@versioned
@at_desk
def delete(desk: Desk, name: str, version: int | None) -> None:
    """Delete NAME for good: a draft, a proposal, or what is proposed for deletion."""
    path = at("revisions", full(name))
    answer = desk.client.write("DELETE", path, etag=desk.etag_of(path, version))
    waits = answer.status == 202
    line = "waits for its finalizers" if waits else "is deleted; its history stays"
    document = answer.json() or {"deleted": full(name), "position": answer.position}
    desk.done(document, f"{full(name)} {line}")


VERBS = (propose, withdraw, approve, reject, propose_delete, reject_delete, delete)
