"""Every transition of a package revision, allowed or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.package_log import AUTHOR, FOLDS, OPERATOR, REVIEWER, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of, update
from tidegate.domain.packages.deletions import DeleteRevision
from tidegate.domain.packages.facts import Clone, Edit, Metadata, OwnerReference
from tidegate.domain.packages.refusals import LifecycleInvalidOriginal
from tidegate.domain.packages.rows import REVISIONS, revision_key
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources
from tidegate.kernel import codec
from tidegate.kernel.model import Record
from tidegate.kernel.replay import differences

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


# ── states and what may change in them ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("state", "numbered", "mutable", "latest", "deletable"),
    [
        pytest.param(*(DRAFT, False, True, False, True), id="Draft"),
        pytest.param(*(PROPOSED, False, False, False, True), id="Proposed"),
        pytest.param(
            *(PUBLISHED, True, False, True, False),
            id="Published",
        ),
        pytest.param(
            *(DELETION_PROPOSED, True, False, True, True),
            id="DeletionProposed",
        ),
    ],
)
def test_treats_a_revision_according_to_its_state(
    package_log: PackageLog,
    state: Lifecycle,
    numbered: bool,
    mutable: bool,
    latest: bool,
    deletable: bool,
) -> None:
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
    ("change", "allowed"),
    [
        pytest.param(tasks_added, {DRAFT}, id="add/change tasks"),
        pytest.param(
            lambda package_log, name: update(package_log, name, readiness_gates=("g",)),
            {DRAFT},
            id="change packageMetadata, gates, conditions (they live in the content)",
        ),
        pytest.param(
            lambda package_log, name: update(package_log, name, files=files(a="7")),
            {DRAFT},
            id="update resources",
        ),
        pytest.param(
            lambda package_log, name: update(
                package_log,
                name,
                labels={"l": "1"},
                annotations={"a": "1"},
                finalizers=("f",),
                owner_references=(OwnerReference("team", "edge"),),
            ),
            set(Lifecycle),
            id="labels, annotations, finalizers, ownerReferences",
        ),
    ],
)
@pytest.mark.parametrize("state", list(Lifecycle))
def test_allows_exactly_the_changes_of_the_codes_matrix(
    package_log: PackageLog, change: Change, allowed: set[Lifecycle], state: Lifecycle
) -> None:
    package_log.published("v0")
    name = package_log.brought_to(state, "v1", task=Edit("blueprints.web.v0"))
    before = package_log.revision(name)

    if state in allowed:
        assert package_log.run(change(package_log, name)).receipt is not None
    else:
        assert answer_of(package_log, change(package_log, name)) == IMMUTABLE
        assert package_log.revision(name) == before


# ── the matrix of transitions ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lifecycle", "answer"),
    [
        pytest.param("", None, id="(create) empty: ok to Draft"),
        pytest.param("Draft", None, id="(create) Draft: ok"),
        pytest.param(
            "Proposed",
            "cannot create a package revision with lifecycle value 'Proposed'",
            id="(create) Proposed: 400 lifecycle_invalid_create",
        ),
        pytest.param(
            "Published",
            "cannot create a package revision with lifecycle value 'Final'",
            id="(create) Published, DeletionProposed: 400",
        ),
        pytest.param(
            "DeletionProposed",
            "cannot create a package revision with lifecycle value 'Final'",
            id="(create) Published, DeletionProposed: 400",
        ),
        pytest.param(
            "Final",
            "unsupported lifecycle value: Final",
            id="(create) other value: 400",
        ),
    ],
)
def test_creates_according_to_the_matrix(
    package_log: PackageLog, lifecycle: str, answer: str | None
) -> None:
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
    ("old", "new", "answer"),
    [
        pytest.param(DRAFT, "", UNKNOWN, id="Draft to empty: 400"),
        pytest.param(DRAFT, "Draft", NOTHING, id="Draft to Draft: ok; no-op"),
        pytest.param(DRAFT, "Proposed", MOVED, id="Draft to Proposed: ok"),
        pytest.param(DRAFT, "Published", NO_STEP, id="Draft to Published: 422"),
        pytest.param(DRAFT, "DeletionProposed", NO_STEP, id="Draft to DeletionProposed"),
        pytest.param(PROPOSED, "", UNKNOWN, id="Proposed to empty: 400"),
        pytest.param(PROPOSED, "Draft", MOVED, id="Proposed to Draft: ok"),
        pytest.param(PROPOSED, "Proposed", NOTHING, id="Proposed to Proposed: ok; no-op"),
        pytest.param(
            PROPOSED,
            "Published",
            NO_STEP,
            id="Proposed to Published: ok via approve only; via update 422",
        ),
        pytest.param(PROPOSED, "DeletionProposed", NO_STEP, id="Proposed to DeletionProposed: 422"),
        pytest.param(PUBLISHED, "Draft", NO_STEP, id="Published to Draft, Proposed: 422"),
        pytest.param(PUBLISHED, "Proposed", NO_STEP, id="Published to Draft, Proposed"),
        pytest.param(PUBLISHED, "Published", NOTHING, id="Published to Published: no-op"),
        pytest.param(PUBLISHED, "DeletionProposed", MOVED, id="Published to DeletionProposed: ok"),
        pytest.param(
            DELETION_PROPOSED, "Draft", NO_STEP, id="DeletionProposed to Draft, Proposed: 422"
        ),
        pytest.param(
            DELETION_PROPOSED, "Proposed", NO_STEP, id="DeletionProposed to Draft, Proposed: 422"
        ),
        pytest.param(
            DELETION_PROPOSED,
            "Published",
            MOVED,
            id="DeletionProposed to Published: ok (reject-deletion)",
        ),
        pytest.param(
            DELETION_PROPOSED,
            "DeletionProposed",
            NOTHING,
            id="DeletionProposed to DeletionProposed: ok; no-op",
        ),
        pytest.param(DRAFT, "Final", UNKNOWN, id="any to unknown value"),
        pytest.param(PROPOSED, "draft", UNKNOWN, id="any to unknown value"),
        pytest.param(PUBLISHED, "Deleted", UNKNOWN, id="any to unknown value"),
        pytest.param(DELETION_PROPOSED, "x", UNKNOWN, id="any to unknown value"),
    ],
)
def test_an_update_changes_state_according_to_the_matrix(
    package_log: PackageLog, old: Lifecycle, new: str, answer: Any
) -> None:
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


def test_reports_a_stored_value_that_is_not_a_state(package_log: PackageLog) -> None:
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


def test_deletes_according_to_the_matrix(package_log: PackageLog) -> None:
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
