"""The rows that decisions on packages read, each a fold of facts.

    repositories         how many approvals a repository needs
    packages             for each path: whether it is in use, the last number, the latest revision
    revisions            a revision by its name; its version is the resource version

Every row is small: pointers and counts, never a history. The relations of a revision to others are
in a separate row, ``links``.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from msgspec import Struct

from tidegate.domain.content.manifests import Content
from tidegate.domain.packages import facts, names, states
from tidegate.kernel import collections as kernel_collections, model

# ── repositories ──────────────────────────────────────────────────────────────────────────────────


class Repository(Struct, frozen=True):
    name: str
    quorum: int  # approvals that a publication needs; 0: the proposer's own suffices
    deployment: bool
    protect_proposed: bool  # a proposal must be withdrawn or rejected before it is deleted


REPOSITORIES = kernel_collections.Collection(
    "repositories",
    Repository,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


# ── packages ──────────────────────────────────────────────────────────────────────────────────────


class PackageRow(Struct, frozen=True, omit_defaults=True):
    """A path of a repository. It outlives its revisions, because numbers are never reused."""

    package: str
    live: int = 0  # revisions that exist
    below: int = 0  # packages that exist below this path
    last_number: int = 0
    latest: facts.Numbered | None = None  # the highest number that is published or DeletionProposed
    owned: dict[str, str] = {}  # owner → the open revision that was created for it
    imported: bool = False  # all revisions were imported, so an import may continue


PACKAGES = kernel_collections.Collection(
    "packages",
    PackageRow,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


# ── revisions ─────────────────────────────────────────────────────────────────────────────────────


class Revision(Struct, frozen=True, omit_defaults=True):
    """A package revision. Fields of later states are empty until then.

    ``lifecycle`` is text, not an enum, so that a damaged value can be read and reported.
    """

    name: str
    uid: str
    repository: str
    package: str
    workspace: str
    lifecycle: str
    number: int  # 0 until it is published
    content: Content
    tasks: tuple[facts.Task, ...]
    created_by: str
    created_at: datetime | None = None
    upstream: facts.Lineage | None = None
    metadata: facts.Metadata = facts.Metadata()
    gates: tuple[str, ...] = ()
    conditions: tuple[facts.Condition, ...] = ()
    editors: tuple[str, ...] = ()  # all who changed the content to be published
    approvals: tuple[str, ...] = ()  # of the current proposal
    proposed_by: str = ""
    proposed_at: datetime | None = None
    published_by: str = ""
    published_at: datetime | None = None
    self_approved: bool = False
    deletion_proposed_by: str = ""
    deletion_proposed_at: datetime | None = None
    deletion_timestamp: datetime | None = None


REVISIONS = kernel_collections.Collection(
    "revisions",
    Revision,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("repository", "package", "workspace", "lifecycle", "number", "uid", "created_by"),
    indexes=(
        kernel_collections.Index("by_package", ("package",)),
        kernel_collections.Index("by_lifecycle", ("lifecycle",)),
        kernel_collections.Index("by_author", ("created_by",)),
    ),
)


class RevisionLinks(Struct, frozen=True, omit_defaults=True):
    """The neighbours and descendants of a revision.

    The published revisions of a package form a chain, so that the deletion of the latest finds the
    one before it without a search.
    """

    name: str
    dependents: int = 0
    some_dependents: tuple[str, ...] = ()
    older: facts.Numbered | None = None
    newer: facts.Numbered | None = None


REVISION_LINKS = kernel_collections.Collection(
    "revision_links",
    RevisionLinks,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


class RevisionDependent(Struct, frozen=True):
    """``dependent`` descends from ``upstream``, which therefore cannot be deleted."""

    upstream: str
    dependent: str


REVISION_DEPENDENTS = kernel_collections.Collection(
    "revision_dependents",
    RevisionDependent,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


def dependent_id(upstream: str, dependent: str) -> str:
    """The id of this pair's row; ``upstream/`` is the prefix of all rows of an upstream."""
    return f"{upstream}/{dependent}"


class RevisionOwner(Struct, frozen=True):
    """``revision`` belongs to the owner with this key, and possibly to others."""

    owner: str
    revision: str


REVISION_OWNERS = kernel_collections.Collection(
    "revision_owners",
    RevisionOwner,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
)


def owner_prefix(owner: str) -> str:
    """The prefix of the rows of an owner's key. It is a hash, because the key may be long and
    contain anything.
    """
    return sha256(owner.encode(errors="replace")).hexdigest()[:32] + "/"


class Tombstone(Struct, frozen=True, omit_defaults=True):
    """A revision that was deleted. Its history stays in the log under its name."""

    name: str
    uid: str
    package: str
    lifecycle: states.Lifecycle  # the last one
    number: int
    content: Content
    deleted_by: str
    deleted_at: datetime
    upstream: facts.Lineage | None = None


REVISION_TOMBSTONES = kernel_collections.Collection(
    "revision_tombstones",
    Tombstone,
    writers=kernel_collections.Writers.FOLDED,
    nature=kernel_collections.Nature.DERIVED,
    columns=("package", "number"),
    indexes=(kernel_collections.Index("by_package", ("package",)),),
)


def tombstone_id(name: str, uid: str) -> str:
    """The id of the row; ``name/`` is the prefix of all deleted revisions with that name."""
    return f"{name}/{uid}"


def revision_key(named: str | names.Identity) -> model.Key:
    """The key of a revision's row, by its name or its parsed name. Raises: InvalidName."""
    place = names.parse(named) if isinstance(named, str) else named
    return model.Key(REVISIONS.name, place.name)


def package_key(package: str) -> model.Key:
    return model.Key(PACKAGES.name, package)


def links_key(name: str) -> model.Key:
    return model.Key(REVISION_LINKS.name, name)


def repository_key(name: str) -> model.Key:
    names.check_label("a repository", name)
    return model.Key(REPOSITORIES.name, name)


COLLECTIONS = (
    REPOSITORIES,
    PACKAGES,
    REVISIONS,
    REVISION_LINKS,
    REVISION_DEPENDENTS,
    REVISION_OWNERS,
    REVISION_TOMBSTONES,
)
