"""packages.md §2.1–§2.3, ruling by ruling: the states of a revision and its transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of, update
from tidegate.domain.packages.deletions import DeleteRevision
from tidegate.domain.packages.facts import (
    Clone,
    Edit,
    Metadata,
    OwnerReference,
)
from tidegate.domain.packages.refusals import (
    LifecycleInvalidOriginal,
)
from tidegate.domain.packages.rows import REVISIONS, revision_key
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources
from tidegate.kernel import codec
from tidegate.kernel.model import Record
from tidegate.kernel.replay import differences

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


@pytest.fixture
def package_log() -> PackageLog:
    package_log = PackageLog()
    package_log.repository()
    return package_log


# ── §2.1, §2.2 states and what may change in them ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "state", "numbered", "mutable", "latest", "deletable"),
    [
        (
            "packages.md §2.1 #1: Draft | 0 | mutable | mutable | never | yes",
            *(DRAFT, False, True, False, True),
        ),
        (
            "packages.md §2.1 #2: Proposed | 0 | frozen | mutable | never | yes",
            *(PROPOSED, False, False, False, True),
        ),
        (
            (
                "packages.md §2.1 #3: Published | ≥1 (or -1) | frozen for ever | mutable |"
                " yes if highest | no, 403"
            ),
            *(PUBLISHED, True, False, True, False),
        ),
        (
            (
                "packages.md §2.1 #4: DeletionProposed | ≥1 | frozen | mutable | **still yes** if"
                " highest | yes"
            ),
            *(DELETION_PROPOSED, True, False, True, True),
        ),
    ],
)
def test_treats_a_revision_as_its_state_says(
    package_log: PackageLog,
    point: str,
    state: Lifecycle,
    numbered: bool,
    mutable: bool,
    latest: bool,
    deletable: bool,
) -> None:
    del point
    name = package_log.brought_to(state, "v1", package="web")
    assert (package_log.revision(name).number > 0) is numbered
    package_log.update(name, labels={"a": "b"})
    found = package_log.package("blueprints/web").latest
    assert (found is not None and found.name == name) is latest
    push = ReplaceResources(
        name=name, by=AUTHOR, files=files(a="9"), expected_version=package_log.version(name)
    )
    if mutable:
        package_log.run(push)
    else:
        assert answer_of(package_log, push) == (422, "not_draft")
    if deletable:
        package_log.delete(name)
    else:
        deletion = DeleteRevision(name=name, by=OPERATOR)
        assert answer_of(package_log, deletion) == (403, "deletion_not_proposed")


IMMUTABLE = (422, "immutable")
Change = Callable[[PackageLog, str], Any]


def tasks_added(package_log: PackageLog, name: str) -> Any:
    first = package_log.revision(name).tasks
    return update(package_log, name, tasks=(*first, Edit("blueprints.web.v0")), files=files(a="7"))


@pytest.mark.parametrize(
    ("point", "change", "allowed"),
    [
        (
            "packages.md §2.2 #1: add/change tasks",
            tasks_added,
            {DRAFT},
        ),
        (
            (
                "packages.md §2.2 #2: change packageMetadata, gates, conditions (they live in the"
                " content)"
            ),
            lambda package_log, name: update(package_log, name, readiness_gates=("g",)),
            {DRAFT},
        ),
        (
            "packages.md §2.2 #3: update resources",
            lambda package_log, name: update(package_log, name, files=files(a="7")),
            {DRAFT},
        ),
        (
            "packages.md §2.2 #4: labels, annotations, finalizers, ownerReferences | ✓ | ✓ | ✓ | ✓",
            lambda package_log, name: update(
                package_log,
                name,
                labels={"l": "1"},
                annotations={"a": "1"},
                finalizers=("f",),
                owner_references=(OwnerReference("team", "edge"),),
            ),
            set(Lifecycle),
        ),
    ],
)
@pytest.mark.parametrize("state", list(Lifecycle))
def test_changes_what_the_matrix_of_the_code_allows(
    package_log: PackageLog, point: str, change: Change, allowed: set[Lifecycle], state: Lifecycle
) -> None:
    """packages.md §2.2 #7: "never ignore silently. An update of
    Proposed/Published/DeletionProposed that would alter task, gates, package metadata or content
    is refused (422 `immutable`)".
    """
    del point
    package_log.published("v0")
    name = package_log.brought_to(state, "v1", task=Edit("blueprints.web.v0"))
    before = package_log.revision(name)

    if state in allowed:
        assert package_log.run(change(package_log, name)).receipt is not None
    else:
        assert answer_of(package_log, change(package_log, name)) == IMMUTABLE
        assert package_log.revision(name) == before


# ── §2.3 the matrix of transitions ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "lifecycle", "answer"),
    [
        ("packages.md §2.3 #1: (create) empty | ok → Draft", "", None),
        ("packages.md §2.3 #2: (create) Draft | ok", "Draft", None),
        (
            "packages.md §2.3 #3: (create) Proposed | 400 `lifecycle_invalid_create`",
            "Proposed",
            "cannot create a package revision with lifecycle value 'Proposed'",
        ),
        (
            "packages.md §2.3 #4: (create) Published, DeletionProposed | 400, the seed's text",
            "Published",
            "cannot create a package revision with lifecycle value 'Final'",
        ),
        (
            "packages.md §2.3 #4: (create) Published, DeletionProposed | 400, the seed's text",
            "DeletionProposed",
            "cannot create a package revision with lifecycle value 'Final'",
        ),
        (
            "packages.md §2.3 #5: (create) other value | 400, the seed's text",
            "Final",
            "unsupported lifecycle value: Final",
        ),
    ],
)
def test_creates_as_the_matrix_says(
    package_log: PackageLog, point: str, lifecycle: str, answer: str | None
) -> None:
    del point
    command = creation(lifecycle=lifecycle)
    if answer is None:
        package_log.run(command)
        assert package_log.revision("blueprints.web.v1").lifecycle == DRAFT
        return
    refusal = refusal_of(package_log, package_log.run, command)
    assert (status_of(refusal), refusal.detail) == (400, answer)


NO_STEP = (422, "invalid_transition")
UNKNOWN = (400, "lifecycle_invalid_desired")
NOTHING = "nothing"
MOVED = "moved"


@pytest.mark.parametrize(
    ("point", "old", "new", "answer"),
    [
        ("packages.md §2.3 #6: Draft → empty | 400", DRAFT, "", UNKNOWN),
        ("packages.md §2.3 #7: Draft → Draft | ok; no-op", DRAFT, "Draft", NOTHING),
        ("packages.md §2.3 #8: Draft → Proposed | ok", DRAFT, "Proposed", MOVED),
        ("packages.md §2.3 #9: Draft → Published | 422", DRAFT, "Published", NO_STEP),
        ("packages.md §2.3 #10: Draft → DeletionProposed", DRAFT, "DeletionProposed", NO_STEP),
        ("packages.md §2.3 #11: Proposed → empty | 400", PROPOSED, "", UNKNOWN),
        ("packages.md §2.3 #12: Proposed → Draft | ok", PROPOSED, "Draft", MOVED),
        ("packages.md §2.3 #13: Proposed → Proposed | ok; no-op", PROPOSED, "Proposed", NOTHING),
        (
            "packages.md §2.3 #14: Proposed → Published | ok via `approve` only; via update 422",
            PROPOSED,
            "Published",
            NO_STEP,
        ),
        (
            "packages.md §2.3 #15: Proposed → DeletionProposed | 422",
            PROPOSED,
            "DeletionProposed",
            NO_STEP,
        ),
        ("packages.md §2.3 #16: Published → Draft, Proposed | 422", PUBLISHED, "Draft", NO_STEP),
        ("packages.md §2.3 #16: Published → Draft, Proposed", PUBLISHED, "Proposed", NO_STEP),
        ("packages.md §2.3 #17: Published → Published | no-op", PUBLISHED, "Published", NOTHING),
        (
            "packages.md §2.3 #18: Published → DeletionProposed | ok",
            PUBLISHED,
            "DeletionProposed",
            MOVED,
        ),
        (
            "packages.md §2.3 #19: DeletionProposed → Draft, Proposed | 422",
            DELETION_PROPOSED,
            "Draft",
            NO_STEP,
        ),
        (
            "packages.md §2.3 #19: DeletionProposed → Draft, Proposed | 422",
            DELETION_PROPOSED,
            "Proposed",
            NO_STEP,
        ),
        (
            "packages.md §2.3 #20: DeletionProposed → Published | ok (`reject-deletion`)",
            DELETION_PROPOSED,
            "Published",
            MOVED,
        ),
        (
            "packages.md §2.3 #21: DeletionProposed → DeletionProposed | ok; no-op",
            DELETION_PROPOSED,
            "DeletionProposed",
            NOTHING,
        ),
        ("packages.md §2.3 #22: any → unknown value", DRAFT, "Final", UNKNOWN),
        ("packages.md §2.3 #22: any → unknown value", PROPOSED, "draft", UNKNOWN),
        ("packages.md §2.3 #22: any → unknown value", PUBLISHED, "Deleted", UNKNOWN),
        ("packages.md §2.3 #22: any → unknown value", DELETION_PROPOSED, "x", UNKNOWN),
    ],
)
def test_moves_by_an_update_as_the_matrix_says(
    package_log: PackageLog, point: str, old: Lifecycle, new: str, answer: Any
) -> None:
    """packages.md §2.2 #5: "lifecycle | →Proposed | →Draft, →Published | →DeletionProposed |
    →Published".
    """
    del point
    name = package_log.brought_to(old)
    before = package_log.version(name)
    command = update(package_log, name, by=OPERATOR, lifecycle=new)

    if answer == MOVED:
        package_log.run(command)
        assert package_log.revision(name).lifecycle == new
        assert package_log.version(name) > before
    elif answer == NOTHING:
        assert package_log.run(command).receipt is None
        assert package_log.version(name) == before
    else:
        assert answer_of(package_log, command) == answer


def test_tells_a_stored_value_that_is_none(package_log: PackageLog) -> None:
    """packages.md §2.3 #23: "unknown stored value → any" | "500, the seed's text (corruption)"
    packages.md §3.3 #5: "stored value unknown" | "`lifecycle_invalid_original` 500"
    """
    name = package_log.create()
    (record,) = package_log.store.get(revision_key(name))
    assert record is not None
    damaged = codec.encode(replace(package_log.revision(name), lifecycle="Lost"))
    package_log.store.restore(
        REVISIONS.name, iter((Record(record.key, record.version, record.born, damaged),))
    )

    refusal = refusal_of(package_log, package_log.propose, name)

    assert isinstance(refusal, LifecycleInvalidOriginal)
    assert status_of(refusal) == 500
    assert refusal.detail == "invalid original lifecycle value: Lost"


def test_deletes_as_the_matrix_says(package_log: PackageLog) -> None:
    """packages.md §2.3 #24: "delete Draft / Proposed | ok"
    packages.md §2.3 #25: "delete Published" | "403 `deletion_not_proposed`"
    packages.md §2.3 #26: "delete DeletionProposed" | "ok; 403 `still_referenced`"
    packages.md §2.3 #27: "delete, finalizers present" | "returns object with deletion_timestamp"
    packages.md §2.3 #28: "delete missing" | "404"
    packages.md §2.2 #6: "delete | ✓ | ✓ | ✗ 403 | ✓"
    """
    deletions = {
        state: DeleteRevision(
            name=package_log.brought_to(state, f"in-{state.lower()}"), by=REVIEWER
        )
        for state in Lifecycle
    }
    published = deletions.pop(PUBLISHED)
    assert answer_of(package_log, published) == (403, "deletion_not_proposed")
    for command in deletions.values():
        package_log.run(command)
        assert package_log.find(command.name) is None
    package_log.create(package="clone", task=Clone(published.name))
    package_log.propose_deletion(published.name)
    assert answer_of(package_log, published) == (403, "still_referenced")
    held = package_log.create(package="held", metadata=Metadata(finalizers=("hold",)))
    package_log.delete(held)
    assert package_log.revision(held).deletion_timestamp is not None
    missing = DeleteRevision(name="blueprints.none.v1", by=REVIEWER)
    assert answer_of(package_log, missing) == (404, "not_found")
    assert differences(package_log.store, FOLDS) == []
