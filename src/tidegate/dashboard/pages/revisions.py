"""One revision: its changes line by line, its evidence, and the verbs of its lifecycle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from tidegate.control.operations.revisions import RevisionOperations, RevisionOutcome
from tidegate.control.queries import file_changes, log_reader
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.storage.blobs import Blobs
from tidegate.control.storage.content_store import read_manifest
from tidegate.dashboard import components, event_text, layout as dashboard_layout
from tidegate.dashboard.html import short, size
from tidegate.dashboard.pages.releases import path_of, quorum_of, revision_line, why_not
from tidegate.dashboard.view_models import release_screens
from tidegate.domain.access import roles, steps as access_steps
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.content import differences, digests, manifests
from tidegate.domain.packages import history, names, refusals, rows as package_rows, states
from tidegate.domain.releases import from_packages, rows as release_rows
from tidegate.web import inputs, routing

FILES_MAX = 100
LINES_MAX = 2_000
FILES_OPEN_MAX = 12
HISTORY_MAX = 200
REFERENCES_MAX = 50
CHANNELS_MAX = 500

CHANGES = {
    differences.FileChangeKind.ADDED: components.Chip("plus", "good", "Added"),
    differences.FileChangeKind.REMOVED: components.Chip("cross", "bad", "Removed"),
    differences.FileChangeKind.CHANGED: components.Chip("pencil", "info", "Changed"),
}
REMARK = components.Field(
    name="reason", label="Remark", kind="long", placeholder="Optional: why, for the log"
)
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]


class RevisionPagePath(inputs.Input, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]


def _scope(request: routing.Request[RevisionPagePath, Any, Any]) -> str:
    return repository_scope(names.parse(request.path.name).repository)


Shown = routing.Request[RevisionPagePath, dashboard_layout.PageQuery, inputs.Nothing]


class RemarkForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_layout.OptionalReason = ""


class RejectForm(inputs.Input, frozen=True, kw_only=True):
    reason: dashboard_layout.Reason


class ApproveForm(RemarkForm, frozen=True, kw_only=True):
    digest: Digest  # of the content that was shown


Remarked = routing.Request[RevisionPagePath, dashboard_layout.PageQuery, RemarkForm]


def show(request: Shown, pages: RevisionPages, layout: dashboard_layout.Layout) -> routing.Response:
    """Show a revision and its changes."""
    return layout.answer(request, pages.page_of(request, request.path.name))


@dataclass(frozen=True)
class RevisionPages:
    """Builds the page of one revision."""

    reads: Reads
    log: log_reader.LogReader
    blobs: Blobs
    layout: dashboard_layout.Layout

    def page_of(
        self, request: routing.Request[Any, Any, Any], name: str
    ) -> dashboard_layout.PageView:
        """Build the page. Raises: RevisionNotFound, BlobMissing."""
        found = self.reads.find(package_rows.revision_key(name), package_rows.Revision)
        if found is None:
            raise refusals.RevisionNotFound(name)
        row = found.row
        people = self.layout.names(request)
        quorum = quorum_of(self.reads, row.repository)
        manifest = read_manifest(self.blobs, row.content)
        against, files, cut = _changes(self.reads, self.log, self.blobs, row, manifest)
        verbs = _verbs(request, found, quorum)
        steps = self.log.events(history.history_of(name), limit=HISTORY_MAX)
        view = release_screens.RevisionPage(
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
            history=event_text.describe_all(self.log, steps, people),
            pinned=_pinned(request, self.reads, row),
            references=_references(manifest),
            references_cut=max(0, len(manifest.references) - REFERENCES_MAX),
        )
        title = view.line.title
        return dashboard_layout.PageView(
            template="revision.html",
            address=f"/revisions/{row.name}",
            title=title,
            here="/releases",
            view=view,
            crumbs=(components.Link("Releases", "/releases"), components.Link(title)),
            verbs=verbs,
            about=f"revision:{name}",
        )


def _pinned(
    request: routing.Request[Any, Any, Any], reads: Reads, row: package_rows.Revision
) -> tuple[components.Link, ...]:
    """Links to the scopes that are pinned to it; a scope without a channel has no page."""
    if not row.number:
        return ()
    release = from_packages.release_id_of(row.package, row.number)
    rows = reads.range(release_rows.ACTUAL, limit=CHANNELS_MAX)
    scopes = [
        item.row.scope
        for item in rows
        if item.row.pinned_release_id == release
        and request.principal.may(roles.Verb.READ, channel_scope(item.row.scope))
    ]
    found = reads.find_all(*((channel_key(scope), Channel) for scope in scopes))
    return tuple(
        components.Link(scope, "" if channel is None else f"/channels/{scope}")
        for scope, channel in zip(scopes, found, strict=True)
    )


def _references(manifest: manifests.FileManifest) -> tuple[release_screens.ReferenceLine, ...]:
    return tuple(
        release_screens.ReferenceLine(
            path=file.path,
            uri=file.uri or "",
            digest=digests.DIGEST_PREFIX + file.sha256,
            bytes=file.bytes,
            executable=file.executable,
        )
        for file in manifest.references[:REFERENCES_MAX]
    )


# ── changes ───────────────────────────────────────────────────────────────────────────────────────


def _changes(
    reads: Reads,
    log: log_reader.LogReader,
    blobs: Blobs,
    row: package_rows.Revision,
    manifest: manifests.FileManifest,
) -> tuple[str, tuple[release_screens.FileDiff, ...], int]:
    """What it is compared with, how each file differs, and how many files are not shown.

    A draft or proposal is compared with the latest published revision; a published one with the
    latest one before it, if that still exists.
    """
    older = _older(reads, log, row)
    old = manifests.FileManifest(())
    against = ""
    if older is not None:
        old = read_manifest(blobs, older.content)
        against = older.name
        if older.number:
            against = from_packages.release_id_of(older.package, older.number)
    found = file_changes.diff_files(blobs, old, manifest)
    files = tuple(
        _file(item, number < FILES_OPEN_MAX) for number, item in enumerate(found[:FILES_MAX])
    )
    return against, files, max(0, len(found) - FILES_MAX)


def _older(
    reads: Reads, log: log_reader.LogReader, row: package_rows.Revision
) -> package_rows.Revision | None:
    name: str | None = None
    if row.number:
        for event in log.events(history.history_of(row.name), limit=HISTORY_MAX):
            if event.type == "RevisionPublished":
                latest = getattr(log.value(event), "older", None)
                name = None if latest is None else latest.name
    else:
        package = reads.find(package_rows.package_key(row.package), package_rows.PackageRow)
        latest = None if package is None else package.row.latest
        name = None if latest is None else latest.name
    found = reads.find(package_rows.revision_key(name), package_rows.Revision) if name else None
    return None if found is None else found.row


def _file(item: file_changes.FileChanged, opened: bool) -> release_screens.FileDiff:
    note = ""
    lines: tuple[release_screens.DiffLine, ...] = ()
    sides = (item.before, item.after)
    if any(side is not None and not side.is_kept for side in sides):
        return release_screens.FileDiff(
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
    return release_screens.FileDiff(
        path=item.path,
        change=CHANGES[item.what],
        added=sum(line.kind == "add" for line in lines),
        removed=sum(line.kind == "del" for line in lines),
        lines=lines,
        note=note or ("" if lines else "Empty"),
        mode=_mode(item),
        open=opened,
    )


def _mode(item: file_changes.FileChanged) -> str:
    """A note about its executable bit; empty: a plain file, before and after."""
    was = item.before is not None and item.before.executable
    now = item.after is not None and item.after.executable
    if item.before is None or item.after is None or was is now:
        return "Executable" if was or now else ""
    return "Now executable" if now else "No longer executable"


def _places(item: file_changes.FileChanged) -> Iterator[release_screens.DiffLine]:
    """Where the bytes of each side are, for a file of which one side is not stored here."""
    for kind, side in (("del", item.before), ("add", item.after)):
        if side is not None:
            if side.link is not None:
                yield release_screens.DiffLine(kind, "", "", f"link to {side.link}")
                continue
            place = "kept here" if side.uri is None else f"by reference {side.uri}"
            yield release_screens.DiffLine(kind, "", "", place)
            yield release_screens.DiffLine(
                kind, "", "", f"{digests.DIGEST_PREFIX}{side.sha256} {size(side.bytes)}"
            )


def _lines(patch: str) -> Iterator[release_screens.DiffLine]:
    """A unified diff as numbered lines, without its two header lines."""
    old = new = 0
    for count, text in enumerate(patch.splitlines()[2:]):
        if count == LINES_MAX:
            yield release_screens.DiffLine("hunk", "", "", f"more than {LINES_MAX} lines")
            return
        hunk = _HUNK.match(text)
        if hunk:
            old, new = int(hunk[1]), int(hunk[3])
            yield release_screens.DiffLine("hunk", "", "", text)
        elif text.startswith("+"):
            yield release_screens.DiffLine("add", "", str(new), text[1:])
            new += 1
        elif text.startswith("-"):
            yield release_screens.DiffLine("del", str(old), "", text[1:])
            old += 1
        else:
            yield release_screens.DiffLine("same", str(old), str(new), text[1:])
            old, new = old + 1, new + 1


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────


def _verbs(
    request: routing.Request[Any, Any, Any], found: Found[package_rows.Revision], quorum: int
) -> tuple[components.VerbButton, ...]:
    row = found.row
    caller = request.caller
    scope = repository_scope(row.repository)
    path = f"/revisions/{row.name}"
    match row.lifecycle:
        case states.Lifecycle.DRAFT:
            propose = components.VerbButton(
                id="propose",
                label="Propose",
                icon="clock",
                action=f"{path}/propose",
                title=f"Propose {path_of(row)}?",
                text="Its content is frozen until it is approved or rejected.",
                version=found.version,
                fields=(REMARK,),
                why=caller.why_not(access_steps.PROPOSE_REVISION, scope),
                first=True,
            )
            return (propose,)
        case states.Lifecycle.PROPOSED:
            return (
                _approve(found, quorum, path, why_not(caller, row, quorum)),
                components.VerbButton(
                    id="reject",
                    label="Reject",
                    icon="cross",
                    action=f"{path}/reject",
                    title=f"Reject {path_of(row)}?",
                    text="It becomes a draft again, and its author reads the reason.",
                    version=found.version,
                    fields=(dashboard_layout.REASON,),
                    danger=True,
                    why=caller.why_not(access_steps.REJECT_PROPOSAL, scope),
                ),
                components.VerbButton(
                    id="withdraw",
                    label="Withdraw",
                    icon="undo",
                    action=f"{path}/withdraw",
                    title="Withdraw the proposal?",
                    text="It becomes a draft again.",
                    version=found.version,
                    fields=(REMARK,),
                    why=caller.why_not(access_steps.WITHDRAW_PROPOSAL, scope)
                    or ("" if caller.id == row.proposed_by else "Another person proposed it."),
                ),
            )
    return ()


def _approve(
    found: Found[package_rows.Revision], quorum: int, path: str, why: str
) -> components.VerbButton:
    row = found.row
    left = max(1, quorum) - len(row.approvals)
    becomes = "It is published with this approval, and immutable from then on."
    if left > 1:
        becomes = f"{left - 1} more approvals publish it."
    return components.VerbButton(
        id="approve",
        label="Approve",
        icon="check",
        action=f"{path}/approve",
        title=f"Approve {path_of(row)}?",
        text=f"You approve the content {short(row.content.digest)}, as you see it here. {becomes}",
        version=found.version,
        fields=(
            components.Field(name="digest", kind="hidden", value=row.content.digest),
            components.Field(
                name="reason", label="Remark", kind="long", placeholder="What you looked at"
            ),
        ),
        why=why[:1].upper() + why[1:] + "." if why else "",
        first=True,
    )


def propose(
    request: Remarked,
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Propose a Draft for approval."""
    name, reason = request.path.name, request.body.reason
    run = partial(revisions.propose, request.caller, name, reason)
    return _attempt(request, pages, layout, run, "proposed")


def withdraw(
    request: Remarked,
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Withdraw your own proposal."""
    name, reason = request.path.name, request.body.reason
    run = partial(revisions.withdraw, request.caller, name, reason)
    return _attempt(request, pages, layout, run, "withdrawn")


def approve(
    request: routing.Request[RevisionPagePath, dashboard_layout.PageQuery, ApproveForm],
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Approve the content that was shown."""
    name, body = request.path.name, request.body
    run = partial(revisions.approve, request.caller, name, body.digest, body.reason)
    return _attempt(request, pages, layout, run, "approved")


def reject(
    request: routing.Request[RevisionPagePath, dashboard_layout.PageQuery, RejectForm],
    revisions: RevisionOperations,
    pages: RevisionPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Reject a proposal, with a reason."""
    name, reason = request.path.name, request.body.reason
    run = partial(revisions.reject, request.caller, name, reason)
    return _attempt(request, pages, layout, run, "rejected")


def _attempt(
    request: routing.Request[RevisionPagePath, dashboard_layout.PageQuery, Any],
    pages: RevisionPages,
    layout: dashboard_layout.Layout,
    run: Callable[[], RevisionOutcome],
    done: str,
) -> routing.Response:
    name = request.path.name
    page = partial(pages.page_of, request, name)
    return layout.attempt(request, lambda: run().position, f"/revisions/{name}", done, page)


ROUTES = (
    dashboard_layout.page_route(
        "/revisions/{name}", show, routing.requires_step(access_steps.READ_REVISION, _scope)
    ),
    dashboard_layout.step_route(
        "/revisions/{name}/approve", approve, access_steps.APPROVE_REVISION, _scope
    ),
    dashboard_layout.step_route(
        "/revisions/{name}/reject", reject, access_steps.REJECT_PROPOSAL, _scope
    ),
    dashboard_layout.step_route(
        "/revisions/{name}/propose", propose, access_steps.PROPOSE_REVISION, _scope
    ),
    dashboard_layout.step_route(
        "/revisions/{name}/withdraw", withdraw, access_steps.WITHDRAW_PROPOSAL, _scope
    ),
)
