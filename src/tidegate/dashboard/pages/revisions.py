"""One revision: what it changes line by line, on what evidence, and the verbs of its lifecycle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from tidegate.control.operations.revisions import RevisionOperations, RevisionOutcome
from tidegate.control.queries.file_changes import FileChanged, diff_files
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.storage.blobs import Blobs
from tidegate.control.storage.content_store import read_manifest
from tidegate.dashboard.components import Chip, Field, Link, VerbButton
from tidegate.dashboard.event_text import describe_all
from tidegate.dashboard.html import short, size
from tidegate.dashboard.layout import (
    REASON,
    Layout,
    OptionalReason,
    PageQuery,
    PageView,
    Reason,
    page_route,
    step_route,
)
from tidegate.dashboard.pages.releases import path_of, quorum_of, revision_line, why_not
from tidegate.dashboard.view_models import DiffLine, FileDiff, ReferenceLine, RevisionPage
from tidegate.domain.access.roles import Verb as Right
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.access.steps import (
    APPROVE_REVISION,
    PROPOSE_REVISION,
    READ_REVISION,
    REJECT_PROPOSAL,
    WITHDRAW_PROPOSAL,
)
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.content.differences import FileChangeKind
from tidegate.domain.content.digests import DIGEST_PREFIX
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages import history
from tidegate.domain.packages.names import parse
from tidegate.domain.packages.refusals import RevisionNotFound
from tidegate.domain.packages.rows import PackageRow, Revision, package_key, revision_key
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.releases.from_packages import release_id_of
from tidegate.domain.releases.rows import ACTUAL
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, requires_step

FILES_MAX = 100
LINES_MAX = 2_000
FILES_OPEN_MAX = 12
HISTORY_MAX = 200
REFERENCES_MAX = 50
CHANNELS_MAX = 500

CHANGES = {
    FileChangeKind.ADDED: Chip("plus", "good", "Added"),
    FileChangeKind.REMOVED: Chip("cross", "bad", "Removed"),
    FileChangeKind.CHANGED: Chip("pencil", "info", "Changed"),
}
REMARK = Field(name="reason", label="Remark", kind="long", placeholder="Optional: why, for the log")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]


class RevisionPagePath(Input, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]


def _scope(request: Request[RevisionPagePath, Any, Any]) -> str:
    return repository_scope(parse(request.path.name).repository)


Shown = Request[RevisionPagePath, PageQuery, Nothing]


class RemarkForm(Input, frozen=True, kw_only=True):
    reason: OptionalReason = ""


class RejectForm(Input, frozen=True, kw_only=True):
    reason: Reason


class ApproveForm(RemarkForm, frozen=True, kw_only=True):
    digest: Digest  # of the content that was shown


Remarked = Request[RevisionPagePath, PageQuery, RemarkForm]


def show(request: Shown, pages: RevisionPages, layout: Layout) -> Response:
    """A revision and what it changes."""
    return layout.answer(request, pages.page_of(request, request.path.name))


@dataclass(frozen=True)
class RevisionPages:
    """The page of one revision."""

    reads: Reads
    log: LogReader
    blobs: Blobs
    layout: Layout

    def page_of(
        self,
        request: Request[Any, Any, Any],
        name: str,
    ) -> PageView:
        """Raises: RevisionNotFound, BlobMissing."""
        found = self.reads.find(revision_key(name), Revision)
        if found is None:
            raise RevisionNotFound(name)
        row = found.row
        people = self.layout.names(request)
        quorum = quorum_of(self.reads, row.repository)
        manifest = read_manifest(self.blobs, row.content)
        against, files, cut = _changes(self.reads, self.log, self.blobs, row, manifest)
        verbs = _verbs(request, found, quorum)
        steps = self.log.events(history.history_of(name), limit=HISTORY_MAX)
        view = RevisionPage(
            line=revision_line(row, people),
            against=against,
            files=files,
            added=sum(file.added for file in files),
            removed=sum(file.removed for file in files),
            cut=cut,
            created_by=people(row.created_by),
            proposed_by=people(row.proposed_by),
            published_by=people(row.published_by),
            self_approved=row.self_approved,
            editors=", ".join(map(people, row.editors)),
            approvals=tuple(map(people, row.approvals)),
            quorum=quorum,
            gates=row.gates,
            tasks=tuple(type(task).__name__.lower() for task in row.tasks),
            version=found.version,
            verbs=verbs,
            history=describe_all(self.log, steps, people),
            pinned=_pinned(request, self.reads, row),
            references=_references(manifest),
            references_cut=max(0, len(manifest.references) - REFERENCES_MAX),
        )
        title = path_of(row) + (f" revision {row.number}" if row.number else "")
        return PageView(
            template="revision.html",
            title=title,
            here="/releases",
            view=view,
            crumbs=(Link("Releases", "/releases"), Link(title)),
            verbs=verbs,
            about=f"revision:{name}",
        )


def _pinned(
    request: Request[Any, Any, Any],
    reads: Reads,
    row: Revision,
) -> tuple[Link, ...]:
    """The scopes that are pinned to it; one that no channel was created for leads nowhere."""
    if not row.number:
        return ()
    release = release_id_of(row.package, row.number)
    rows = reads.range(ACTUAL, limit=CHANNELS_MAX)
    scopes = [
        item.row.scope
        for item in rows
        if item.row.pinned_release_id == release
        and request.principal.may(Right.READ, channel_scope(item.row.scope))
    ]
    found = reads.find_all(*((channel_key(scope), Channel) for scope in scopes))
    return tuple(
        Link(scope, "" if channel is None else f"/channels/{scope}")
        for scope, channel in zip(scopes, found, strict=True)
    )


def _references(manifest: FileManifest) -> tuple[ReferenceLine, ...]:
    return tuple(
        ReferenceLine(
            path=file.path,
            uri=file.uri or "",
            digest=DIGEST_PREFIX + file.sha256,
            bytes=file.bytes,
            executable=file.executable,
        )
        for file in manifest.references[:REFERENCES_MAX]
    )


# ── what it changes ───────────────────────────────────────────────────────────────────────────────


def _changes(
    reads: Reads, log: LogReader, blobs: Blobs, row: Revision, manifest: FileManifest
) -> tuple[str, tuple[FileDiff, ...], int]:
    """What it is compared with, how each file differs, and how many are not shown.

    A draft or proposal is compared with the latest published revision; a published one with the
    latest before it, if that is still known.
    """
    older = _older(reads, log, row)
    old = FileManifest(())
    against = ""
    if older is not None:
        old = read_manifest(blobs, older.content)
        against = f"revision {older.number}" if older.number else older.name
    found = diff_files(blobs, old, manifest)
    files = tuple(
        _file(item, number < FILES_OPEN_MAX) for number, item in enumerate(found[:FILES_MAX])
    )
    return against, files, max(0, len(found) - FILES_MAX)


def _older(reads: Reads, log: LogReader, row: Revision) -> Revision | None:
    name: str | None = None
    if row.number:
        for event in log.events(history.history_of(row.name), limit=HISTORY_MAX):
            if event.type == "RevisionPublished":
                latest = getattr(log.value(event), "older", None)
                name = None if latest is None else latest.name
    else:
        package = reads.find(package_key(row.package), PackageRow)
        latest = None if package is None else package.row.latest
        name = None if latest is None else latest.name
    found = reads.find(revision_key(name), Revision) if name else None
    return None if found is None else found.row


def _file(item: FileChanged, opened: bool) -> FileDiff:
    note = ""
    lines: tuple[DiffLine, ...] = ()
    sides = (item.before, item.after)
    if any(side is not None and not side.is_kept for side in sides):
        return FileDiff(
            path=item.path,
            change=CHANGES[item.what],
            added=0,
            removed=0,
            lines=tuple(_places(item)),
            mode=_mode(item),
            open=opened,
        )
    if item.patch is None:
        sizes = " → ".join("none" if side is None else size(side.bytes) for side in sides)
        note = f"Not shown line by line: {sizes}"
        if item.too_different:
            note = f"Too different to show line by line: {sizes}"
    else:
        lines = tuple(_lines(item.patch))
        if None not in sides and not lines:
            note = "The bytes are the same"
    return FileDiff(
        path=item.path,
        change=CHANGES[item.what],
        added=sum(line.kind == "add" for line in lines),
        removed=sum(line.kind == "del" for line in lines),
        lines=lines,
        note=note or ("" if lines else "Empty"),
        mode=_mode(item),
        open=opened,
    )


def _mode(item: FileChanged) -> str:
    """What is to be said about its executable bit; empty: a plain file, before and after."""
    was = item.before is not None and item.before.executable
    now = item.after is not None and item.after.executable
    if item.before is None or item.after is None or was is now:
        return "Executable" if was or now else ""
    return "Now executable" if now else "No longer executable"


def _places(item: FileChanged) -> Iterator[DiffLine]:
    """Where each side's bytes are, in place of their lines: one of them is not kept here."""
    for kind, side in (("del", item.before), ("add", item.after)):
        if side is not None:
            if side.link is not None:
                yield DiffLine(kind, "", "", f"link to {side.link}")
                continue
            place = "kept here" if side.uri is None else f"by reference {side.uri}"
            yield DiffLine(kind, "", "", place)
            yield DiffLine(kind, "", "", f"{DIGEST_PREFIX}{side.sha256} {size(side.bytes)}")


def _lines(patch: str) -> Iterator[DiffLine]:
    """A unified diff as numbered lines, its two header lines left out."""
    old = new = 0
    for count, text in enumerate(patch.splitlines()[2:]):
        if count == LINES_MAX:
            yield DiffLine("hunk", "", "", f"more than {LINES_MAX} lines")
            return
        hunk = _HUNK.match(text)
        if hunk:
            old, new = int(hunk[1]), int(hunk[3])
            yield DiffLine("hunk", "", "", text)
        elif text.startswith("+"):
            yield DiffLine("add", "", str(new), text[1:])
            new += 1
        elif text.startswith("-"):
            yield DiffLine("del", str(old), "", text[1:])
            old += 1
        else:
            yield DiffLine("same", str(old), str(new), text[1:])
            old, new = old + 1, new + 1


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────


def _verbs(
    request: Request[Any, Any, Any], found: Found[Revision], quorum: int
) -> tuple[VerbButton, ...]:
    row = found.row
    caller = request.caller
    scope = repository_scope(row.repository)
    path = f"/revisions/{row.name}"
    match row.lifecycle:
        case Lifecycle.DRAFT:
            propose = VerbButton(
                id="propose",
                label="Propose",
                icon="clock",
                action=f"{path}/propose",
                title=f"Propose {path_of(row)}?",
                text="Its content is frozen until it is approved or rejected.",
                version=found.version,
                fields=(REMARK,),
                why=caller.why_not(PROPOSE_REVISION, scope),
                first=True,
            )
            return (propose,)
        case Lifecycle.PROPOSED:
            return (
                _approve(found, quorum, path, why_not(caller, row, quorum)),
                VerbButton(
                    id="reject",
                    label="Reject",
                    icon="cross",
                    action=f"{path}/reject",
                    title=f"Reject {path_of(row)}?",
                    text="It becomes a draft again, and its author reads the reason.",
                    version=found.version,
                    fields=(REASON,),
                    danger=True,
                    why=caller.why_not(REJECT_PROPOSAL, scope),
                ),
                VerbButton(
                    id="withdraw",
                    label="Withdraw",
                    icon="undo",
                    action=f"{path}/withdraw",
                    title="Withdraw the proposal?",
                    text="It becomes a draft again.",
                    version=found.version,
                    fields=(REMARK,),
                    why=caller.why_not(WITHDRAW_PROPOSAL, scope)
                    or ("" if caller.id == row.proposed_by else "Another person proposed it."),
                ),
            )
    return ()


def _approve(found: Found[Revision], quorum: int, path: str, why: str) -> VerbButton:
    row = found.row
    left = max(1, quorum) - len(row.approvals)
    becomes = "It is published with this approval, and immutable from then on."
    if left > 1:
        becomes = f"{left - 1} more approvals publish it."
    return VerbButton(
        id="approve",
        label="Approve",
        icon="check",
        action=f"{path}/approve",
        title=f"Approve {path_of(row)}?",
        text=f"You approve the content {short(row.content.digest)}, as you see it here. {becomes}",
        version=found.version,
        fields=(
            Field(name="digest", kind="hidden", value=row.content.digest),
            Field(name="reason", label="Remark", kind="long", placeholder="What you looked at"),
        ),
        why=why[:1].upper() + why[1:] + "." if why else "",
        first=True,
    )


def propose(
    request: Remarked,
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: Layout,
) -> Response:
    """Ask for approval."""
    name, reason = request.path.name, request.body.reason
    run = partial(revisions.propose, request.caller, name, reason)
    return _attempt(request, pages, layout, run, "proposed")


def withdraw(
    request: Remarked,
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: Layout,
) -> Response:
    """Take one's own proposal back."""
    name, reason = request.path.name, request.body.reason
    run = partial(revisions.withdraw, request.caller, name, reason)
    return _attempt(request, pages, layout, run, "withdrawn")


def approve(
    request: Request[RevisionPagePath, PageQuery, ApproveForm],
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: Layout,
) -> Response:
    """Approve the content that was looked at."""
    name, body = request.path.name, request.body
    run = partial(revisions.approve, request.caller, name, body.digest, body.reason)
    return _attempt(request, pages, layout, run, "approved")


def reject(
    request: Request[RevisionPagePath, PageQuery, RejectForm],
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: Layout,
) -> Response:
    """Send a proposal back, with a reason."""
    name, reason = request.path.name, request.body.reason
    run = partial(revisions.reject, request.caller, name, reason)
    return _attempt(request, pages, layout, run, "rejected")


def _attempt(
    request: Request[RevisionPagePath, PageQuery, Any],
    pages: RevisionPages,
    layout: Layout,
    run: Callable[[], RevisionOutcome],
    done: str,
) -> Response:
    name = request.path.name
    page = partial(pages.page_of, request, name)
    return layout.attempt(request, lambda: run().position, f"/revisions/{name}", done, page)


ROUTES = (
    page_route("/revisions/{name}", show, requires_step(READ_REVISION, _scope)),
    step_route("/revisions/{name}/approve", approve, APPROVE_REVISION, _scope),
    step_route("/revisions/{name}/reject", reject, REJECT_PROPOSAL, _scope),
    step_route("/revisions/{name}/propose", propose, PROPOSE_REVISION, _scope),
    step_route("/revisions/{name}/withdraw", withdraw, WITHDRAW_PROPOSAL, _scope),
)
