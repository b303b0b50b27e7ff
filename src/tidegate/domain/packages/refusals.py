"""The errors of requests about packages. Clients match on some of the sentences.

Programs compare the ``code``. The family (Invalid, Conflict, Refused, Forbidden …) decides the HTTP
status.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate import errors

SHOWN_CHARS_MAX = 200  # of a value from a request
DETAIL_CHARS_MAX = 1_000  # of a list in a sentence; a field of the problem has all of it


def listed(items: Iterable[str]) -> str:
    """Join several values into one field of a problem document."""
    return ", ".join(items)


# ── fix the request ───────────────────────────────────────────────────────────────────────────────


class InvalidName(errors.Invalid):
    """A name is malformed."""

    code = "invalid_argument"


class InvalidMember(errors.Invalid):
    """A field of the request is malformed."""

    code = "invalid_argument"


class LifecycleInvalidCreate(errors.Formatted, errors.Invalid):
    """A package revision is created as Draft; it reaches the other states from there."""

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
    """The lifecycle that the update requests does not exist."""

    code = "lifecycle_invalid_desired"

    def __init__(self, value: str) -> None:
        value = value[:SHOWN_CHARS_MAX]
        super().__init__(f"invalid desired lifecycle value: {value}", value=value)


class TooManyTasks(errors.Invalid):
    """A revision is created by one task, and an update adds one at a time."""

    code = "too_many_tasks"


class ReasonRequired(errors.Invalid):
    """To reject another person's proposal, give a reason."""

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
    """There is no repository with this name."""

    code = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no repository {name}", repository=name)


class PackageNotFound(errors.Formatted, errors.NotFound):
    """There is no package at this path, and there never was a published one."""

    code = "package_not_found"
    message = "there is no package {package}"
    package: str


class RevisionNotFound(errors.NotFound):
    """There is no package revision with this name; a deleted one has a tombstone and a history."""

    code = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no package revision {name}", revision=name)


class FileByReference(errors.NotFound):
    """The bytes of this file are not stored here; use its address and verify the hash."""

    code = "file_by_reference"

    def __init__(self, path: str, uri: str, sha256: str, size: int) -> None:
        super().__init__(
            f"{path[:SHOWN_CHARS_MAX]!r} is a reference: fetch {uri} and compare its SHA-256",
            path=path,
            uri=uri,
            sha256=sha256,
            bytes=size,
        )


# ── conflicts with what exists ────────────────────────────────────────────────────────────────────


class AlreadyExists(errors.Conflict):
    """This name is in use."""

    code = "already_exists"


class PackageExists(errors.Conflict):
    """The package exists; edit or upgrade one of its revisions to create another."""

    code = "package_exists"


class PathOverlap(errors.Conflict):
    """There is a package above or below this path; packages do not nest."""

    code = "path_overlap"


class OwnerBusy(errors.Formatted, errors.Conflict):
    """The owner has an open revision of this package; finish or delete that one first."""

    code = "owner_busy"
    message = "{revision} is open in the name of {owner} already"
    owner: str
    revision: str


class DeletionPlanOutdated(errors.Conflict):
    """The package has changed since the plan was made; make another plan."""

    code = "deletion_plan_outdated"


class PackageNotEmpty(errors.Conflict):
    """Revisions of this package were created here, so none can be imported."""

    code = "package_not_empty"


class NumberUsed(errors.Conflict):
    """Numbers rise and are never reused, not even by an import."""

    code = "number_used"


class Terminating(errors.Conflict):
    """The revision is being deleted; only finalizers, labels and annotations may change."""

    code = "terminating"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is being deleted and waits for its finalizers", revision=name)


class DigestMismatch(errors.Formatted, errors.Conflict):
    """The content has changed since you read it."""

    code = "digest_mismatch"
    message = "the content is {current}, you looked at {expected}"
    expected: str
    current: str


# ── the state does not allow it ───────────────────────────────────────────────────────────────────


class TransitionRefused(errors.IllegalTransition):
    """The lifecycle has no such step from the current state."""

    def __init__(self, old: str, new: str, allowed: Iterable[str], hint: str = "") -> None:
        allowed = listed(allowed)
        next_states = f"it may become {allowed}, not {new}" if allowed else f"it stays {old}"
        errors.Refused.__init__(
            self,
            f"the revision is {old} already{hint}"
            if old == new
            else f"the revision is {old}; {next_states}{hint}",
            **{"from": old, "to": new, "allowed": allowed},
        )


class NotDraft(errors.Refused):
    """Content and tasks can change only in Draft."""

    code = "not_draft"

    def __init__(self, value: str, members: Iterable[str]) -> None:
        super().__init__(
            f"cannot update a package revision with lifecycle value {value}; package must be Draft",
            lifecycle=value,
            members=listed(members),
        )


class Immutable(NotDraft):
    """Outside Draft an update may change only metadata and lifecycle."""

    code = "immutable"


class OriginFixed(errors.Refused):
    """The tasks of a revision cannot be changed or removed; an update can only add one."""

    code = "immutable"


class SourceNotPublished(errors.Refused):
    """The source of a revision must be published."""

    code = "source_not_published"


class SourceMismatch(errors.Refused):
    """The source does not fit the revision that is created from it."""

    code = "source_mismatch"


class UpgradeConflict(errors.Refused):
    """Local changes conflict with those of the new upstream; resolve them or choose a strategy."""

    code = "upgrade_conflict"

    def __init__(self, paths: Iterable[str]) -> None:
        paths = tuple(paths)
        super().__init__(
            f"the upgrade conflicts with local changes in {listed(paths)[:DETAIL_CHARS_MAX]}",
            count=len(paths),
            paths=listed(paths),
        )


class NotReady(errors.Refused):
    """A readiness gate has no condition of status True."""

    code = "not_ready"

    def __init__(self, gates: Iterable[str]) -> None:
        gates = listed(gates)
        super().__init__(f"these readiness gates are not met: {gates}", gates=gates)


# ── another person must do it ─────────────────────────────────────────────────────────────────────


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
    """You cannot approve a revision that you proposed or changed (four eyes)."""

    code = "self_approval"


class SelfDeletion(errors.Forbidden):
    """In a deployment repository another person must carry out a proposed deletion (four eyes)."""

    code = "self_deletion"


class NotProposer(errors.Forbidden):
    """Only the proposer can withdraw a proposal; others reject it, with a reason."""

    code = "not_proposer"


class PackageNotDeletable(errors.Forbidden):
    """A revision of the package cannot be deleted yet, so none is; all reasons are listed."""

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
    """A published revision can be deleted only after its deletion was proposed."""

    code = "deletion_not_proposed"


class ProposalProtected(errors.Forbidden):
    """This repository protects proposals from deletion; withdraw or reject it first."""

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
    """The stored lifecycle is not a known one; the row is damaged, so the request is refused."""

    code = "lifecycle_invalid_original"
    message = "invalid original lifecycle value: {value}"
    value: str
