"""What the screens of releases and revisions show."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.dashboard import components


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A revision that waits for approval."""

    name: str
    package: str
    number: int  # that it would get when it is published
    by: str
    at: datetime | None
    approvals: int
    quorum: int
    why: str = ""  # why this reader cannot approve it


class RevisionLine(Struct, frozen=True, kw_only=True):
    name: str
    title: str  # the release if it is published, else its package
    package: str
    repository: str
    workspace: str
    lifecycle: components.Chip
    number: int
    by: str
    at: datetime | None
    files: int
    bytes: int
    digest: str
    channels: tuple[str, ...] = ()


class Releases(Struct, frozen=True, kw_only=True):
    tab: str
    tabs: tuple[components.Option, ...]
    waiting: tuple[PendingApproval, ...]
    revisions: tuple[RevisionLine, ...]
    headings: tuple[components.Heading, ...] = ()
    note: str = ""  # why they are not sorted as requested
    next: str = ""  # the address of the next page


class DiffLine(Struct, frozen=True):
    kind: str  # add, del, same, hunk
    old: str
    new: str
    text: str


class FileDiff(Struct, frozen=True, kw_only=True):
    path: str
    change: components.Chip
    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    note: str = ""  # why there are no lines
    mode: str = ""  # whether it is executable, or whether this changed
    open: bool = True


class ReferenceLine(Struct, frozen=True, kw_only=True):
    """A file whose bytes are stored elsewhere."""

    path: str
    uri: str
    digest: str
    bytes: int
    executable: bool = False


class RevisionPage(Struct, frozen=True, kw_only=True):
    line: RevisionLine
    against: str  # the name of the revision that it is compared with; empty: none
    files: tuple[FileDiff, ...]
    added: int
    removed: int
    cut: int  # number of files that are not shown
    created_by: str
    proposed_by: str
    published_by: str
    self_approved: bool
    editors: str
    approvals: tuple[str, ...]
    quorum: int
    gates: tuple[str, ...]
    tasks: tuple[str, ...]
    version: int
    verbs: tuple[components.VerbButton, ...]
    history: tuple[components.TimelineEntry, ...]
    pinned: tuple[components.Link, ...]
    references: tuple[ReferenceLine, ...] = ()
    references_cut: int = 0  # number of references that are not shown
