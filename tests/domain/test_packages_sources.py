"""Where revisions come from: tasks, merges, lineage, and what is stored of a revision."""

from __future__ import annotations

import pytest

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, PackageLog, files
from tests.domain.refusal_checks import answer_of, creation, refusal_of, status_of, update
from tidegate.domain.content.entries import link_to
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.documents import to_document
from tidegate.domain.packages.facts import (
    Clone,
    Condition,
    ConditionStatus,
    Edit,
    Metadata,
    OwnerReference,
    Strategy,
    Upgrade,
)
from tidegate.domain.packages.merging import merge
from tidegate.domain.packages.refusals import UpgradeConflict
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import SetConditions
from tidegate.errors import TidegateError

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


# ── sources and merges ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            creation(workspace="v9"), id="init: package must not exist yet in the repository"
        ),
        pytest.param(
            creation(workspace="v9", tasks=(Clone("blueprints.base.v1"),)), id="clone: as init"
        ),
        pytest.param(
            creation(workspace="v9", tasks=(Edit("blueprints.base.v1"),)),
            id="edit: same repository and package; published or DeletionProposed",
        ),
        pytest.param(
            creation(
                workspace="v9",
                tasks=(Upgrade("blueprints.base.v1", "blueprints.open.v1", "blueprints.web.v1"),),
                files=(),
            ),
            id="upgrade: the three must be published",
        ),
    ],
)
def test_holds_each_task_to_its_rules(package_log: PackageLog, command: CreateRevision) -> None:
    package_log.published(package="base")
    package_log.published(package="web", task=Clone("blueprints.base.v1"))
    package_log.create(package="open")

    assert answer_of(package_log, command)[0] in (409, 422)


BASE = {"same": b"0", "theirs": b"0", "ours": b"0", "both": b"0", "gone": b"0"}
LOCAL = BASE | {"ours": b"1", "added-here": b"1"}
UPSTREAM = {"same": b"0", "theirs": b"2", "ours": b"0", "both": b"0", "added": b"2"}


@pytest.mark.parametrize(
    ("path", "merged"),
    [
        # path → the result of copy-merge and three-way, then of force-delete-replace
        pytest.param("added", (b"2", b"2"), id="file added upstream: added"),
        pytest.param("theirs", (b"2", b"2"), id="changed upstream only: applied"),
        pytest.param("ours", (b"1", b"0"), id="changed locally only: local kept"),
        pytest.param("gone", (None, None), id="deleted upstream: deleted"),
    ],
)
def test_merges_as_each_strategy_requires(
    path: str, merged: tuple[bytes | None, bytes | None]
) -> None:
    base, local, upstream = map(FileManifest.of, (BASE, LOCAL, UPSTREAM))
    wanted = [
        None if body is None else FileManifest.of({path: body}).by_path[path] for body in merged
    ]
    for strategy, expected in (
        (Strategy.THREE_WAY, wanted[0]),
        (Strategy.COPY_MERGE, wanted[0]),
        (Strategy.FORCE_DELETE_REPLACE, wanted[1]),
    ):
        assert merge(base, local, upstream, strategy).by_path.get(path) == expected
    with pytest.raises(UpgradeConflict):
        merge(base, local, upstream, Strategy.FAST_FORWARD)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_strategy_upgrades_unmodified_files(strategy: Strategy) -> None:
    base, upstream = FileManifest.of({"f": b"0"}), FileManifest.of({"f": b"2", "g": b"2"})

    assert merge(base, base, upstream, strategy).digest == upstream.digest


def test_a_merge_names_a_link_whose_target_is_gone() -> None:
    base = FileManifest.of({"lib/x": b"0", "y": b"0"})
    local = FileManifest((*base.files, link_to("current", "lib/x")))
    upstream = FileManifest.of({"y": b"0"})

    for strategy in (Strategy.THREE_WAY, Strategy.COPY_MERGE):
        with pytest.raises(UpgradeConflict) as conflict:
            merge(base, local, upstream, strategy)

        assert conflict.value.facts["paths"] == "current"


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────


def test_stores_the_engine_neutral_subset_of_a_revision(package_log: PackageLog) -> None:
    owner = OwnerReference("team", "edge")
    metadata = Metadata({"a": "b"}, {"c": "d"}, ("hold",), (owner,))
    name = package_log.published(package="net/vpc", files=files(a="12"), metadata=metadata)
    package_log.propose_deletion(name)
    package_log.delete(name)

    row = package_log.revision(name)
    shown = to_document(row, package_log.version(name), package_log.package("blueprints/net/vpc"))

    assert (shown.spec.repository, shown.spec.package_name) == ("blueprints", "net/vpc")
    assert (shown.spec.workspace_name, shown.metadata.name) == ("v1", "blueprints.net.vpc.v1")
    assert (shown.spec.lifecycle, shown.spec.revision) == ("DeletionProposed", 1)
    content = shown.status.content
    assert (content.file_count, content.total_bytes) == (1, 2)
    assert content.digest == FileManifest(files(a="12")).digest
    assert shown.metadata.labels == {"a": "b"}
    assert shown.metadata.annotations == {"c": "d"}
    assert shown.metadata.finalizers == ("hold",)
    assert shown.metadata.owner_references == (owner,)
    assert shown.metadata.creation_timestamp is not None
    assert shown.metadata.deletion_timestamp is not None
    assert (shown.status.created_by, shown.status.proposed_by) == (AUTHOR, AUTHOR)
    assert (shown.status.published_by, shown.status.deletion_proposed_by) == (REVIEWER, OPERATOR)
    assert None not in (shown.status.proposed_at, shown.status.deletion_proposed_at)
    assert shown.status.latest
    assert shown.metadata.resource_version == str(package_log.version(name))


def test_gives_each_creation_a_uid_of_its_own(package_log: PackageLog) -> None:
    name = package_log.create()
    first = package_log.revision(name).uid
    package_log.delete(name)
    package_log.create()

    assert package_log.revision(name).uid != first


def test_keeps_lineage_through_edits_and_moves_it_by_an_upgrade(package_log: PackageLog) -> None:
    base = package_log.published(package="base", files=files(a="1"))
    newer = package_log.published("v2", package="base", task=Edit(base), files=files(a="2"))
    clone = package_log.published(package="mine", task=Clone(base))
    edit = package_log.published("v2", package="mine", task=Edit(clone))
    task = Upgrade(base, newer, edit, Strategy.FORCE_DELETE_REPLACE)
    upgraded = package_log.create("v3", package="mine", task=task)

    for name, upstream in ((clone, base), (edit, base), (upgraded, newer)):
        found, source = package_log.revision(name).upstream, package_log.revision(upstream)
        assert found is not None
        assert (found.name, found.uid, found.revision, found.digest) == (
            source.name,
            source.uid,
            source.number,
            source.content.digest,
        )
    assert package_log.revision(upgraded).tasks == (task,)


def test_ci_may_report_on_a_frozen_proposal_and_gates_hold_at_both_steps(
    package_log: PackageLog,
) -> None:
    name = package_log.create(readiness_gates=("tested",))
    digest = package_log.revision(name).content.digest

    def report(status: ConditionStatus) -> None:
        found = (Condition("tested", status),)
        package_log.act(SetConditions, name, "user_ci", digest=digest, conditions=found)

    assert status_of(refusal_of(package_log, package_log.propose, name)) == 422
    report(ConditionStatus.TRUE)
    package_log.propose(name)
    gates = update(package_log, name, readiness_gates=())
    assert answer_of(package_log, gates) == (422, "immutable")
    report(ConditionStatus.FALSE)
    assert refusal_of(package_log, package_log.approve, name).code == "not_ready"
    report(ConditionStatus.TRUE)
    package_log.approve(name)
    with pytest.raises(TidegateError):
        report(ConditionStatus.FALSE)
