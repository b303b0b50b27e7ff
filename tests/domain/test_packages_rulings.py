"""packages.md §0–§1, ruling by ruling: ten things to know first, and the model of a revision."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.domain.depot import AUTHOR, OPERATOR, REVIEWER, Depot, files
from tests.domain.ruled import answer_of, creation, refusal_of, status_of, update
from tidegate.control.runtime import Outcome
from tidegate.domain.packages.approvals import ApproveRevision
from tidegate.domain.packages.content import Manifest, Strategy, merge
from tidegate.domain.packages.creation import CreateRevision
from tidegate.domain.packages.deletions import DeleteRevision
from tidegate.domain.packages.documents import document
from tidegate.domain.packages.facts import (
    Clone,
    Condition,
    Edit,
    Metadata,
    OwnerReference,
    Status,
    Upgrade,
)
from tidegate.domain.packages.lifecycle import PUBLISHED_STATES, Lifecycle
from tidegate.domain.packages.names import check_file_path, identity, parse
from tidegate.domain.packages.refusals import (
    InvalidFilePath,
    UpgradeConflict,
)
from tidegate.domain.packages.revisions import revision_key
from tidegate.domain.packages.rows import REVISIONS
from tidegate.domain.packages.updates import SetConditions
from tidegate.errors import TidegateError

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle


@pytest.fixture
def depot() -> Depot:
    depot = Depot()
    depot.repository()
    return depot


# ── §0 the ten things ─────────────────────────────────────────────────────────────────────────────


def test_stores_four_states_and_deleted_is_absence(depot: Depot) -> None:
    """packages.md §0 #1: "Four stored states only: `Draft`, `Proposed`, `Published`,
    `DeletionProposed`. "Deleted" is absence. "Is published" means Published **or**
    DeletionProposed".
    """
    assert [*Lifecycle] == ["Draft", "Proposed", "Published", "DeletionProposed"]
    assert {PUBLISHED, DELETION_PROPOSED} == PUBLISHED_STATES
    name = depot.brought_to(DELETION_PROPOSED)
    depot.delete(name)
    assert depot.store.get(revision_key(name)) == (None,)


def test_has_two_doors_of_which_one_approves(depot: Depot) -> None:
    """packages.md §0 #2: "Only the **approval door** (own sub-resource, own permission) performs
    Proposed→Published".
    """
    name = depot.brought_to(PROPOSED)

    assert answer_of(depot, update(depot, name, lifecycle="Published")) == (
        422,
        "invalid_transition",
    )
    depot.approve(name)
    assert depot.revision(name).lifecycle == PUBLISHED


def test_publishes_no_draft_and_creates_no_proposal(depot: Depot) -> None:
    """packages.md §0 #3: "Draft→Published is **illegal** in the running system"; packages.md §0
    #4: "Creating directly as Proposed is refused by the API, accepted by the inner engine; the
    seed says both. Refuse it."
    """
    name = depot.create()
    digest = depot.revision(name).content.digest
    approval = ApproveRevision(
        name=name, by=REVIEWER, digest=digest, expected_version=depot.version(name)
    )

    assert answer_of(depot, update(depot, name, lifecycle="Published"))[0] == 422
    assert answer_of(depot, approval) == (422, "invalid_transition")
    assert answer_of(depot, creation(workspace="v2", lifecycle="Proposed"))[0] == 400


def test_changes_content_in_draft_only_and_again_after_a_rejection(depot: Depot) -> None:
    """packages.md §0 #5: "Content may change in Draft only. Proposed is frozen; to edit, reject
    first".
    """
    name = depot.create()
    for state in (PROPOSED, PUBLISHED, DELETION_PROPOSED):
        frozen = depot.brought_to(state, f"in-{state.lower()}")
        refusal = refusal_of(depot, depot.push, frozen, files(a="2"))
        assert status_of(refusal) == 422
    depot.propose(name)
    depot.reject(name)
    depot.push(name, files(a="2"))


def test_deletes_in_every_state_but_published_unless_something_descends(depot: Depot) -> None:
    """packages.md §0 #6: "A Published revision cannot be deleted (403); it must be
    DeletionProposed first. Draft, Proposed and DeletionProposed are deletable at once, unless
    another revision was cloned from / upgraded to it (403)".
    """
    for state in (DRAFT, PROPOSED, DELETION_PROPOSED):
        depot.delete(depot.brought_to(state, f"in-{state.lower()}"))
    base = depot.published(package="base")
    assert answer_of(depot, DeleteRevision(name=base, by=OPERATOR))[0] == 403
    depot.create(package="clone", task=Clone(base))
    depot.propose_deletion(base)
    assert answer_of(depot, DeleteRevision(name=base, by=OPERATOR)) == (403, "still_referenced")


def test_numbers_from_one_at_publish_and_never_again(depot: Depot) -> None:
    """packages.md §0 #7: "Revision numbers: 0 until published, then 1,2,3... per package, assigned
    at publish." Of re-use and two latest flags: "We must do neither."
    """
    first = depot.create("v1")
    assert depot.revision(first).number == 0
    depot.propose(first)
    assert depot.revision(first).number == 0
    depot.approve(first)
    second = depot.published("v2", task=Edit(first))
    assert (depot.revision(first).number, depot.revision(second).number) == (1, 2)
    depot.propose_deletion(second)
    depot.delete(second)
    third = depot.published("v3", task=Edit(first))
    assert depot.revision(third).number == 3


def test_answers_a_stale_version_with_409_and_the_text(depot: Depot) -> None:
    """packages.md §0 #8: "The seed promises HTTP 409 for a stale version." … "Do better, keep the
    texts."
    """
    name = depot.create()
    stale = update(depot, name, labels={"a": "b"})
    depot.update(name, labels={"c": "d"})

    refusal = refusal_of(depot, depot.run, stale)

    assert status_of(refusal) == 409
    assert refusal.detail == (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    assert refusal.facts["current"] == depot.version(name)


def test_keeps_who_published_through_a_rejected_deletion(depot: Depot) -> None:
    """packages.md §0 #9: "`publishedBy/At` are set on Proposed→Published. Read literally the seed
    would rewrite them on DeletionProposed→Published; the code does not."
    """
    name = depot.published()
    before = depot.revision(name)
    depot.propose_deletion(name)
    depot.reject_deletion(name, by=AUTHOR)

    after = depot.revision(name)
    assert (after.published_by, after.published_at) == (REVIEWER, before.published_at)


def test_takes_the_position_of_the_last_event_as_the_version(depot: Depot) -> None:
    """packages.md §0 #10: "use the position of the object's last event"."""
    name = depot.create()
    acts: tuple[Callable[[str], Outcome], ...] = (
        lambda name: depot.update(name, labels={"a": "b"}),
        depot.propose,
        depot.approve,
        depot.propose_deletion,
        depot.reject_deletion,
    )
    for act in acts:
        outcome = act(name)
        last = max(event.position for event in depot.log() if f"revision:{name}" in event.tags)
        assert depot.version(name) == last == outcome.position


# ── §1.3 names, numbers, latest ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("repository", "path", "workspace", "name"),
    [
        ("blueprints", "web", "ws1", "blueprints.web.ws1"),
        ("blueprints", "networking/vpc", "v1", "blueprints.networking.vpc.v1"),
    ],
)
def test_names_with_dots(repository: str, path: str, workspace: str, name: str) -> None:
    """packages.md §1.3 #1: "Examples: repo `blueprints`, package `web`, workspace `ws1` →
    `blueprints.web.ws1`; package `networking/vpc`, workspace `v1` →
    `blueprints.networking.vpc.v1`."
    """
    assert identity(repository, path, workspace).name == name
    assert parse(name) == (repository, path, workspace)


def test_compares_full_identities(depot: Depot) -> None:
    """packages.md §1.3 #2: "the uniqueness and "package already exists" checks compare the *last
    path element* with the *full* packageName" … "Ours must compare full identities."
    """
    depot.published(package="a/x")
    depot.published(package="b/x")

    assert answer_of(depot, creation(package="a/x")) == (409, "already_exists")
    assert answer_of(depot, creation(package="a/x", workspace="v2")) == (409, "package_exists")


def test_counts_what_is_proposed_for_deletion_as_latest(depot: Depot) -> None:
    """packages.md §1.3 #3: "a DeletionProposed newest revision stays latest"; "on its deletion the
    next lower one becomes latest"; "if none remains, nobody is latest".
    """

    def latest() -> str | None:
        found = depot.package("blueprints/web").latest
        return None if found is None else found.name

    first = depot.published("v1")
    second = depot.published("v2", task=Edit(first))
    depot.propose_deletion(second)
    assert latest() == second
    depot.delete(second)
    assert latest() == first
    depot.propose_deletion(first)
    depot.delete(first)
    assert latest() is None


def test_has_no_placeholder(depot: Depot) -> None:
    """packages.md §1.3 #4: "PROPOSAL: do not have it. A `latest` pointer per package (derived) and
    the release registry cover its purpose."
    """
    name = depot.published()

    assert [row.key.id for row in depot.store.range(REVISIONS.name, limit=10)] == [name]
    assert depot.revision(name).number > 0


# ── §1.5 sources and merges ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("point", "command"),
    [
        (
            "packages.md §1.5 #1: `init`: package must not exist yet in the repository",
            creation(workspace="v9"),
        ),
        (
            "packages.md §1.5 #2: `clone`: as `init`",
            creation(workspace="v9", tasks=(Clone("blueprints.base.v1"),)),
        ),
        (
            (
                "packages.md §1.5 #3: `edit`: same repository and package; published or"
                " DeletionProposed"
            ),
            creation(workspace="v9", tasks=(Edit("blueprints.base.v1"),)),
        ),
        (
            "packages.md §1.5 #4: `upgrade`: the three must be published",
            creation(
                workspace="v9",
                tasks=(Upgrade("blueprints.base.v1", "blueprints.open.v1", "blueprints.web.v1"),),
                files=(),
            ),
        ),
    ],
)
def test_holds_each_task_to_its_rules(depot: Depot, point: str, command: CreateRevision) -> None:
    del point
    depot.published(package="base")
    depot.published(package="web", task=Clone("blueprints.base.v1"))
    depot.create(package="open")

    assert answer_of(depot, command)[0] in (409, 422)


BASE = {"same": b"0", "theirs": b"0", "ours": b"0", "both": b"0", "gone": b"0"}
LOCAL = BASE | {"ours": b"1", "added-here": b"1"}
UPSTREAM = {"same": b"0", "theirs": b"2", "ours": b"0", "both": b"0", "added": b"2"}


@pytest.mark.parametrize(
    ("point", "path", "merged"),
    [
        # path → what copy-merge and three-way, then force-delete-replace make of it
        ("packages.md §1.5 #5: file added upstream | added", "added", (b"2", b"2")),
        ("packages.md §1.5 #6: changed upstream only | applied", "theirs", (b"2", b"2")),
        ("packages.md §1.5 #7: changed locally only | local kept", "ours", (b"1", b"0")),
        ("packages.md §1.5 #8: deleted upstream | deleted", "gone", (None, None)),
    ],
)
def test_merges_as_the_strategies_say(
    point: str, path: str, merged: tuple[bytes | None, bytes | None]
) -> None:
    del point
    base, local, upstream = map(Manifest.of, (BASE, LOCAL, UPSTREAM))
    wanted = [None if body is None else Manifest.of({path: body}).by_path[path] for body in merged]
    for strategy, expected in (
        (Strategy.THREE_WAY, wanted[0]),
        (Strategy.COPY_MERGE, wanted[0]),
        (Strategy.FORCE_DELETE_REPLACE, wanted[1]),
    ):
        assert merge(base, local, upstream, strategy).by_path.get(path) == expected
    with pytest.raises(UpgradeConflict):
        merge(base, local, upstream, Strategy.FAST_FORWARD)


def test_lets_upstream_win_a_conflict_only_where_that_was_asked_for() -> None:
    """packages.md §1.5 #9: "both, conflict | new upstream wins silently" is what we do not do
    packages.md §8.5 #5: "implement copy-merge, force-delete-replace, fast-forward and a three-way
    *file* merge that **reports** conflicts (422 with paths) instead of letting upstream win
    silently"
    """
    base, local, upstream = (Manifest.of({"f": body}) for body in (b"0", b"1", b"2"))

    with pytest.raises(UpgradeConflict) as refusal:
        merge(base, local, upstream)
    assert (status_of(refusal.value), refusal.value.facts["paths"]) == (422, "f")
    for strategy in (Strategy.COPY_MERGE, Strategy.FORCE_DELETE_REPLACE):
        assert merge(base, local, upstream, strategy).digest == upstream.digest


@pytest.mark.parametrize("strategy", list(Strategy))
def test_upgrades_what_is_unmodified_by_every_strategy(strategy: Strategy) -> None:
    """packages.md §1.5 #10: "local unmodified | succeeds | succeeds | succeeds | succeeds"."""
    base, upstream = Manifest.of({"f": b"0"}), Manifest.of({"f": b"2", "g": b"2"})

    assert merge(base, base, upstream, strategy).digest == upstream.digest


# ── §1.8 what is kept ─────────────────────────────────────────────────────────────────────────────


def test_keeps_the_engine_neutral_subset_of_a_revision(depot: Depot) -> None:
    """packages.md §1.8 #1: "`repository`, `package` (path), `workspace`; `name` derived with dots;
    `uid` = new ULID per creation (never deterministic)"
    packages.md §1.8 #3: "the four values, exact spelling"
    packages.md §1.8 #4: "event carries `digest`, `file_count`, `total_bytes`"
    packages.md §1.8 #8: "labels, annotations, finalizers, owners, created_at/by,
    deletion_timestamp"
    packages.md §1.8 #10: "proposed_by/at, published_by/at, deletion_proposed_by/at, plus full
    event history with reason texts"
    packages.md §1.8 #11: "derived; read-only label or field"
    packages.md §1.8 #12: "opaque decimal string = global log position of the last event of this
    revision"
    """
    owner = OwnerReference("team", "edge")
    metadata = Metadata({"a": "b"}, {"c": "d"}, ("hold",), (owner,))
    name = depot.published(package="net/vpc", files=files(a="12"), metadata=metadata)
    depot.propose_deletion(name)
    depot.delete(name)

    row = depot.revision(name)
    shown = document(row, depot.version(name), depot.package("blueprints/net/vpc"))

    assert (shown.spec.repository, shown.spec.package_name) == ("blueprints", "net/vpc")
    assert (shown.spec.workspace_name, shown.metadata.name) == ("v1", "blueprints.net.vpc.v1")
    assert (shown.spec.lifecycle, shown.spec.revision) == ("DeletionProposed", 1)
    content = shown.status.content
    assert (content.file_count, content.total_bytes) == (1, 2)
    assert content.digest == Manifest(files(a="12")).digest
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
    assert shown.metadata.resource_version == str(depot.version(name))


def test_gives_each_creation_a_uid_of_its_own(depot: Depot) -> None:
    """packages.md §1.8 #2: "int, 0 until published; monotone per package, **never re-used**,
    derived from the log"; and the name may come back, its uid not.
    """
    name = depot.create()
    first = depot.revision(name).uid
    depot.delete(name)
    depot.create()

    assert depot.revision(name).uid != first


@pytest.mark.parametrize(
    ("texts", "digest"),
    [
        (
            {"app.yaml": "a: 1\n"},
            "sha256:49690b160640ad922df6f5a36ce0c57612ad16317669d08242f70bf56a0140cd",
        ),
        (
            {"app.yaml": "a: 2\n"},
            "sha256:a88c185b9e67d01cedcacd7dc21078ee126e82b2cd8291f55a72f216b2b2cfa1",
        ),
        (
            {"app.yaml": "a: 1\n", "conf/x.txt": "x\n"},
            "sha256:13edb79c4c38a8175794cd7de68b178b77a8bd7fee577aa194d3891cee26e256",
        ),
        ({}, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ],
)
def test_digests_as_the_vectors_say(texts: dict[str, str], digest: str) -> None:
    """packages.md §1.8 #5: "`sha256:` over the manifest = lines `<hex sha256 of file
    bytes>␠␠<path>\\n`, sorted by UTF-8 bytes of path. Test vectors".
    """
    assert Manifest.of({path: text.encode() for path, text in texts.items()}).digest == digest


def test_keeps_lineage_through_edits_and_moves_it_by_an_upgrade(depot: Depot) -> None:
    """packages.md §1.8 #6: "one record {type: init/clone/edit/upgrade, refs, strategy}"
    packages.md §1.8 #7: "`upstream` = {name, uid, revision, digest}; kept through `edit` and
    updated by `upgrade`".
    """
    base = depot.published(package="base", files=files(a="1"))
    newer = depot.published("v2", package="base", task=Edit(base), files=files(a="2"))
    clone = depot.published(package="mine", task=Clone(base))
    edit = depot.published("v2", package="mine", task=Edit(clone))
    task = Upgrade(base, newer, edit, Strategy.FORCE_DELETE_REPLACE)
    upgraded = depot.create("v3", package="mine", task=task)

    for name, upstream in ((clone, base), (edit, base), (upgraded, newer)):
        found, source = depot.revision(name).upstream, depot.revision(upstream)
        assert found is not None
        assert (found.name, found.uid, found.revision, found.digest) == (
            source.name,
            source.uid,
            source.number,
            source.content.digest,
        )
    assert depot.revision(upgraded).tasks == (task,)


def test_lets_ci_report_on_a_frozen_proposal_and_gates_hold_at_both_steps(depot: Depot) -> None:
    """packages.md §1.8 #9: "`readiness_gates[]` (part of the frozen spec), `conditions[]` (status,
    not content: settable in Draft and Proposed by holders of `revision.set_condition`, so CI may
    report on a frozen proposal), enforced **server side** at propose and approve".
    """
    name = depot.create(readiness_gates=("tested",))
    digest = depot.revision(name).content.digest

    def report(status: Status) -> None:
        found = (Condition("tested", status),)
        depot.act(SetConditions, name, "user_ci", digest=digest, conditions=found)

    assert status_of(refusal_of(depot, depot.propose, name)) == 422
    report(Status.TRUE)
    depot.propose(name)
    gates = update(depot, name, readiness_gates=())
    assert answer_of(depot, gates) == (422, "immutable")
    report(Status.FALSE)
    assert refusal_of(depot, depot.approve, name).code == "not_ready"
    report(Status.TRUE)
    depot.approve(name)
    with pytest.raises(TidegateError):
        report(Status.FALSE)


@pytest.mark.parametrize(
    "path",
    ["/a", "a//b", "a/", "./a", "a/./b", "../a", "a/..", "a\0b", "", "x/" * 520 + "x", "a\\b"],
)
def test_keeps_file_paths_clean(path: str) -> None:
    """packages.md §1.8 #13: "relative, `/` separators, no empty/`.`/`..` segment, no NUL, no
    leading `/`, unique after normalisation, ≤1024 bytes; violations → 400".
    """
    with pytest.raises(InvalidFilePath) as refusal:
        check_file_path(path)
    assert status_of(refusal.value) == 400
