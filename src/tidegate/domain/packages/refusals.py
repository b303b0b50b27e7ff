"""What can be said against a request about packages. Clients match on some of the sentences.

``code`` is what programs compare; the family (Invalid, Conflict, Refused, Forbidden …) decides the
HTTP status.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate import errors

SHOWN_CHARS_MAX = 200  # of a value that somebody sent
DETAIL_CHARS_MAX = 1_000  # of a list in a sentence; the problem's own member has all of it


def listed(items: Iterable[str]) -> str:
    """Several values as one member of a problem."""
    return ", ".join(items)


# ── fix the request ───────────────────────────────────────────────────────────────────────────────


class InvalidName(errors.Invalid):
    """A name is not of the form that names have."""

    code = "invalid_argument"


class InvalidMember(errors.Invalid):
    """A member of the request is not of the form that it must have."""

    code = "invalid_argument"


class LifecycleInvalidCreate(errors.Formatted, errors.Invalid):
    """A package revision is created as Draft; the other states are reached from there."""

    code = "lifecycle_invalid_create"
    message = "cannot create a package revision with lifecycle value '{value}'"
    value: str


class LifecycleUnsupported(errors.Invalid):
    """There is no such lifecycle value."""

    code = "lifecycle_unsupported"

    def __init__(self, value: str) -> None:
        value = value[:SHOWN_CHARS_MAX]
        super().__init__(f"unsupported lifecycle value: {value}", value=value)


class LifecycleInvalidDesired(errors.Invalid):
    """The lifecycle that the update asks for does not exist."""

    code = "lifecycle_invalid_desired"

    def __init__(self, value: str) -> None:
        value = value[:SHOWN_CHARS_MAX]
        super().__init__(f"invalid desired lifecycle value: {value}", value=value)


class TooManyTasks(errors.Invalid):
    """One task tells how a revision came to be; an update adds one at a time."""

    code = "too_many_tasks"


class ReasonRequired(errors.Invalid):
    """To reject another person's proposal, give a reason that they can read."""

    code = "reason_required"


# ── check the name ────────────────────────────────────────────────────────────────────────────────


class RepositoryInUse(errors.Refused):
    """Something still uses the repository."""

    code = "repository_in_use"

    def __init__(self, name: str, users: tuple[str, ...]) -> None:
        super().__init__(
            f"{name} can't be deleted while these use it: {', '.join(users)}",
            repository=name,
            users=users,
        )


class RepositoryNotFound(errors.NotFound):
    """There is no repository of this name."""

    code = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no repository {name}", repository=name)


class PackageNotFound(errors.Formatted, errors.NotFound):
    """There is no package of this path, and there never was a published one."""

    code = "package_not_found"
    message = "there is no package {package}"
    package: str


class RevisionNotFound(errors.NotFound):
    """There is no package revision of this name; a deleted one has a tombstone and a history."""

    code = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no package revision {name}", revision=name)


class FileByReference(errors.NotFound):
    """The bytes of this file are not kept here; it says where they are, and their hash."""

    code = "file_by_reference"

    def __init__(self, path: str, uri: str, sha256: str, size: int) -> None:
        super().__init__(
            f"{path[:SHOWN_CHARS_MAX]!r} is a reference: fetch {uri} and compare its SHA-256",
            path=path,
            uri=uri,
            sha256=sha256,
            bytes=size,
        )


# ── somebody was there before ─────────────────────────────────────────────────────────────────────


class AlreadyExists(errors.Conflict):
    """Something of this name exists."""

    code = "already_exists"


class PackageExists(errors.Conflict):
    """The package exists; a new revision of it is an edit or an upgrade of an existing one."""

    code = "package_exists"


class PathOverlap(errors.Conflict):
    """A package lies above or below this path; packages do not nest."""

    code = "path_overlap"


class OwnerBusy(errors.Formatted, errors.Conflict):
    """An owner has one open revision per package; finish or delete that one first."""

    code = "owner_busy"
    message = "{revision} is open in the name of {owner} already"
    owner: str
    revision: str


class DeletionPlanOutdated(errors.Conflict):
    """The package is not what the plan says; look at it again and make another plan."""

    code = "deletion_plan_outdated"


class PackageNotEmpty(errors.Conflict):
    """An import is for a package of which nothing was made here."""

    code = "package_not_empty"


class NumberUsed(errors.Conflict):
    """Numbers rise and are never used twice, by an import neither."""

    code = "number_used"


class Terminating(errors.Conflict):
    """The revision is being deleted: only finalizers go, and labels and annotations change."""

    code = "terminating"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is being deleted and waits for its finalizers", revision=name)


class DigestMismatch(errors.Formatted, errors.Conflict):
    """The content is not the one that you looked at."""

    code = "digest_mismatch"
    message = "the content is {current}, you looked at {expected}"
    expected: str
    current: str


# ── a rule says no in this state ──────────────────────────────────────────────────────────────────


class TransitionRefused(errors.IllegalTransition):
    """The lifecycle has no such step from here."""

    def __init__(self, old: str, new: str, allowed: Iterable[str], hint: str = "") -> None:
        allowed = listed(allowed)
        errors.Refused.__init__(
            self,
            f"a package revision does not go from {old} to {new}; "
            f"from {old} it may go to {allowed or 'no other state'}{hint}",
            **{"from": old, "to": new, "allowed": allowed},
        )


class NotDraft(errors.Refused):
    """Content and tasks change in Draft only."""

    code = "not_draft"

    def __init__(self, value: str, members: Iterable[str]) -> None:
        super().__init__(
            f"cannot update a package revision with lifecycle value {value}; package must be Draft",
            lifecycle=value,
            members=listed(members),
        )


class Immutable(NotDraft):
    """Outside Draft an update may touch metadata and lifecycle; this one touches more."""

    code = "immutable"


class OriginFixed(errors.Refused):
    """Tasks are history: the first is the origin, and none is changed or removed later."""

    code = "immutable"


class SourceNotPublished(errors.Refused):
    """What a revision is made from must be published."""

    code = "source_not_published"


class SourceMismatch(errors.Refused):
    """The source does not belong to what is made from it."""

    code = "source_mismatch"


class UpgradeConflict(errors.Refused):
    """Local changes meet those of the new upstream; nothing chooses for you."""

    code = "upgrade_conflict"

    def __init__(self, paths: Iterable[str]) -> None:
        paths = tuple(paths)
        super().__init__(
            f"local changes stand against the upgrade in {len(paths)} files: "
            f"{listed(paths)[:DETAIL_CHARS_MAX]}",
            count=len(paths),
            paths=listed(paths),
        )


class NotReady(errors.Refused):
    """A readiness gate has no condition of status True."""

    code = "not_ready"

    def __init__(self, gates: Iterable[str]) -> None:
        gates = listed(gates)
        super().__init__(f"these readiness gates are not met: {gates}", gates=gates)


# ── somebody else may ─────────────────────────────────────────────────────────────────────────────


class ContentDamaged(errors.Refused):
    """Stored bytes of this revision are lost or damaged, so they cannot be trusted."""

    code = "content_damaged"

    def __init__(self, name: str, what: str, *, is_missing: bool) -> None:
        found = "missing" if is_missing else "damaged"
        super().__init__(
            f"{name} cannot be approved: the stored bytes of {what} are {found}. Restore them from"
            " a backup, or reject the proposal and push the files again.",
            revision=name,
            found=found,
            what=what,
        )


class SelfApproval(errors.Forbidden):
    """Four eyes: who proposed a revision or changed it does not approve it."""

    code = "self_approval"


class SelfDeletion(errors.Forbidden):
    """Four eyes: in a deployment repository another person carries out a proposed deletion."""

    code = "self_deletion"


class NotProposer(errors.Forbidden):
    """Only the proposer withdraws a proposal; others reject it, with a reason."""

    code = "not_proposer"


class PackageNotDeletable(errors.Forbidden):
    """Something of the package may not be deleted yet, so nothing is; all reasons are listed."""

    code = "package_not_deletable"

    def __init__(self, package: str, reasons: Iterable[str]) -> None:
        reasons = tuple(reasons)
        super().__init__(
            f"{package} cannot be deleted: {'; '.join(reasons)[:DETAIL_CHARS_MAX]}",
            package=package,
            count=len(reasons),
            blockers=reasons,
        )


class DeletionNotProposed(errors.Forbidden):
    """A published revision is deleted only after its deletion was proposed."""

    code = "deletion_not_proposed"


class ProposalProtected(errors.Forbidden):
    """This repository keeps proposals from being deleted; withdraw or reject it first."""

    code = "proposal_protected"


class StillReferenced(errors.Forbidden):
    """Other revisions descend from this one."""

    code = "still_referenced"

    def __init__(self, name: str, count: int, some: Iterable[str]) -> None:
        some = tuple(some)
        self.name, self.count, self.some = name, count, some
        more = f" and {count - len(some)} more" if count > len(some) else ""
        named = f"{listed(some)}{more}" if some else f"{count} others"
        super().__init__(
            f"{name} cannot be deleted: {named} descend from it",
            revision=name,
            count=count,
            blockers=listed(some),
        )


# ── the store is damaged ──────────────────────────────────────────────────────────────────────────


class LifecycleInvalidOriginal(errors.Formatted, errors.TidegateError):
    """The stored lifecycle is none that exists: the row was damaged, nothing is decided on it."""

    code = "lifecycle_invalid_original"
    message = "invalid original lifecycle value: {value}"
    value: str
