"""Every refusal of a request about packages: when, and with which code and text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, SLICE_OF, PackageLog, files
from tests.domain.refusal_checks import creation, refusal_of, status_of
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import list_dependents
from tidegate.domain.content.entries import CONTENT_BYTES_MAX, File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.approvals import ApproveRevision, ProposeRevision
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion
from tidegate.domain.packages.facts import Clone, Edit, Init, Metadata
from tidegate.domain.packages.refusals import TransitionRefused
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, UpdateRevision
from tidegate.errors import AttemptsExhausted, IdempotencyMismatch

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"
DIGEST = FileManifest(()).digest


# ── the catalogue ─────────────────────────────────────────────────────────────────────────────────

Act = Callable[[PackageLog], Any]


def on(command: type[Any], name: str = NAME, by: str = AUTHOR, **members: Any) -> Act:
    """Build the command with the revision's current version."""
    return lambda package_log: package_log.run(
        command(name=name, by=by, expected_version=package_log.version(name), **members)
    )


def run(command: Any) -> Act:
    return lambda package_log: package_log.run(command)


def drafted(package_log: PackageLog) -> None:
    package_log.create()


def proposed(package_log: PackageLog) -> None:
    package_log.create()
    package_log.propose(NAME)


def published(package_log: PackageLog) -> None:
    package_log.published()


def held(package_log: PackageLog) -> None:
    package_log.create(metadata=Metadata(finalizers=("hold",)))
    package_log.delete(NAME)


def cloned(package_log: PackageLog) -> None:
    package_log.published()
    package_log.create(package="mine", task=Clone(NAME))
    package_log.propose_deletion(NAME)


def gated(package_log: PackageLog) -> None:
    package_log.create(readiness_gates=("tested", "signed"))


def protected(package_log: PackageLog) -> None:
    package_log.repository("prod", deployment=True)
    package_log.create(repository="prod")
    package_log.propose("prod.web.v1")


def nothing(package_log: PackageLog) -> None:
    pass


BIG = (File("a", "0" * 64, CONTENT_BYTES_MAX), File("b", "0" * 64, 1))


@pytest.mark.parametrize(
    ("given", "act", "status", "code", "text"),
    [
        pytest.param(
            nothing,
            run(creation(lifecycle="Published")),
            *(400, "lifecycle_invalid_create"),
            "cannot create a package revision with lifecycle value 'Final'",
            id="create Published/DeletionProposed",
        ),
        pytest.param(
            nothing,
            run(creation(lifecycle="Proposed")),
            *(400, "lifecycle_invalid_create"),
            "cannot create a package revision with lifecycle value 'Proposed'",
            id="create Proposed: 400",
        ),
        pytest.param(
            nothing,
            run(creation(lifecycle="x")),
            *(400, "lifecycle_unsupported", "unsupported lifecycle value: x"),
            id="create with unknown value: lifecycle_unsupported 400",
        ),
        pytest.param(
            drafted,
            on(UpdateRevision, lifecycle="x"),
            *(400, "lifecycle_invalid_desired", "invalid desired lifecycle value: x"),
            id="update to unknown value: lifecycle_invalid_desired 400",
        ),
        pytest.param(
            drafted,
            on(ProposeDeletion),
            *(422, "invalid_transition", "Proposed"),
            id="illegal transition: invalid_transition 422",
        ),
        pytest.param(
            proposed,
            on(UpdateRevision, readiness_gates=("g",)),
            *(422, "immutable", "package must be Draft"),
            id="spec/content change when frozen: immutable 422",
        ),
        pytest.param(
            published,
            on(ReplaceResources, files=files(a="2")),
            *(422, "not_draft"),
            "cannot update a package revision with lifecycle value Published; package must be"
            " Draft",
            id="resources on non-Draft: not_draft 422",
        ),
        pytest.param(
            drafted,
            run(ProposeRevision(name=NAME, by=AUTHOR)),
            *(428, "version_required", "say which version"),
            id="version missing: version_required (428)",
        ),
        pytest.param(
            drafted,
            run(ProposeRevision(name=NAME, by=AUTHOR, expected_version=10_000)),
            *(409, "version_conflict"),
            "the object has been modified; please apply your changes to the latest version and"
            " try again",
            id="version stale: version_conflict 409",
        ),
        pytest.param(
            drafted,
            run(creation()),
            *(409, "already_exists", NAME),
            id="workspace duplicate: already_exists 409",
        ),
        pytest.param(
            drafted,
            run(creation(package="web/sub")),
            *(409, "path_overlap", "blueprints/web"),
            id="nested or existing package path: path_overlap 409",
        ),
        pytest.param(
            published,
            run(creation(workspace="v2")),
            *(409, "package_exists", NAME),
            id="nested or existing package path: package_exists 409",
        ),
        pytest.param(
            published,
            run(creation(workspace="v2", tasks=(Clone(NAME),))),
            *(409, "package_exists", NAME),
            id="clone onto existing package: package_exists 409",
        ),
        pytest.param(
            drafted,
            run(creation(workspace="v2", tasks=(Edit(NAME),))),
            *(422, "source_not_published", NAME),
            id="edit/upgrade source unpublished: source_not_published 422",
        ),
        pytest.param(
            published,
            run(creation(package="other", tasks=(Edit(NAME),))),
            *(422, "source_mismatch", "blueprints/web"),
            id="wrong package: source_mismatch 422",
        ),
        pytest.param(
            nothing,
            run(creation(tasks=(Init(), Init()))),
            *(400, "too_many_tasks", "2"),
            id="more than one task: too_many_tasks 400",
        ),
        pytest.param(
            published,
            run(DeleteRevision(name=NAME, by=OPERATOR)),
            *(403, "deletion_not_proposed", "Published"),
            id="delete Published: deletion_not_proposed 403",
        ),
        pytest.param(
            cloned,
            run(DeleteRevision(name=NAME, by=REVIEWER)),
            *(403, "still_referenced", "blueprints.mine.v1"),
            id="delete referenced upstream: still_referenced 403",
        ),
        pytest.param(
            nothing,
            run(creation(workspace="No Label")),
            *(400, "invalid_argument", "No Label"),
            id="bad names: invalid_argument 400",
        ),
        pytest.param(
            gated,
            on(ProposeRevision),
            *(422, "not_ready", "tested, signed"),
            id="gates unmet on propose/approve: not_ready 422, lists gates",
        ),
        pytest.param(
            nothing,
            run(creation(files=BIG)),
            *(413, "too_large", str(CONTENT_BYTES_MAX + 1)),
            id="body too big: too_large 413",
        ),
        pytest.param(
            nothing,
            on(ProposeRevision),
            *(404, "not_found", NAME),
            id="missing object: not_found 404",
        ),
        pytest.param(
            held,
            on(ProposeRevision),
            *(409, "terminating", NAME),
            id="op on terminating object: terminating 409",
        ),
        pytest.param(
            proposed,
            on(ApproveRevision, digest=DIGEST),
            *(403, "self_approval", AUTHOR),
            id="own proposal: self_approval 403 (policy)",
        ),
        pytest.param(
            protected,
            run(DeleteRevision(name="prod.web.v1", by=OPERATOR)),
            *(403, "proposal_protected", "Proposed"),
            id="protected Proposed deleted: proposal_protected 403 (policy)",
        ),
    ],
)
def test_every_refusal_matches_the_catalogue(
    package_log: PackageLog,
    given: Callable[[PackageLog], None],
    act: Act,
    status: int,
    code: str,
    text: str,
) -> None:
    given(package_log)

    refusal = refusal_of(package_log, act, package_log)

    assert (status_of(refusal), refusal.code) == (status, code)
    assert text in refusal.detail
    assert refusal.detail.isascii()


def test_reports_from_to_and_allowed_of_an_illegal_transition(package_log: PackageLog) -> None:
    proposed(package_log)

    refusal = refusal_of(package_log, on(ProposeDeletion), package_log)

    assert refusal.facts == {
        "from": "Proposed",
        "to": "DeletionProposed",
        "allowed": "Draft, Published",
    }


def test_lists_dependents_and_links_to_all_of_them(package_log: PackageLog) -> None:
    package_log.published()
    names = [package_log.create(package=f"p{number:02}", task=Clone(NAME)) for number in range(18)]
    package_log.propose_deletion(NAME)

    refusal = refusal_of(package_log, package_log.delete, NAME)

    assert refusal.facts["count"] == 18
    assert str(refusal.facts["blockers"]).split(", ") == names[:16]
    assert list_dependents(Reads(package_log.store), NAME) == tuple(names)


def test_reports_that_others_were_faster_at_every_attempt(package_log: PackageLog) -> None:
    names = [package_log.create(f"v{number}") for number in range(8)]
    for name in names:
        package_log.propose(name)
    one = names.pop()
    approval = ApproveRevision(
        name=one, by=REVIEWER, digest=DIGEST, expected_version=package_log.version(one)
    )
    submit = package_log.control._submit

    def outrun(commit: Any) -> Any:
        package_log.control._submit = submit
        package_log.approve(names.pop())
        package_log.control._submit = outrun
        return submit(commit)

    package_log.control._submit = outrun
    with pytest.raises(AttemptsExhausted) as refusal:
        package_log.run(approval)
    assert status_of(refusal.value) == 409


def test_refuses_a_key_that_is_reused_with_another_body(package_log: PackageLog) -> None:
    command = creation()
    first = package_log.control.execute(SLICE_OF[CreateRevision], command, key="k")
    again = package_log.control.execute(SLICE_OF[CreateRevision], command, key="k")
    assert again.position == first.position

    with pytest.raises(IdempotencyMismatch) as refusal:
        package_log.control.execute(SLICE_OF[CreateRevision], creation(workspace="v2"), key="k")
    assert (status_of(refusal.value), refusal.value.code) == (422, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("new", "allowed", "says"),
    [
        ("Published", ["DeletionProposed"], "the revision is Published already"),
        (
            "Draft",
            ["DeletionProposed"],
            "the revision is Published; it may become DeletionProposed, not Draft",
        ),
        ("Draft", [], "the revision is Published; it stays Published"),
    ],
)
def test_a_refused_step_names_the_state_and_the_steps_that_exist(
    new: str, allowed: list[str], says: str
) -> None:
    assert TransitionRefused("Published", new, allowed).detail == says
