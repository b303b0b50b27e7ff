"""What holds of packages whatever is done to them: random commands, then the log and the rows.

The numbers in the names of the checks are those of this list:

1. A revision has the number 0 until it is published.
2. Numbers of a package are distinct and increase in the order of the log. None is used again.
3. Content stays the same from the proposal to publication, and for ever after it.
4. Who published a revision, and when, is set once.
5. A package has at most one latest revision: the live one with the highest number.
6. Each revision walks along the edges of the table of transitions.
7. A published revision is deleted only after its deletion was proposed.
8. No live revision descends from a deleted one, unless it was imported.
9. Of a revision that is being deleted, only finalizers and labels change.
10. A refused command appends nothing.
11. Versions under one name increase, also over a deletion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.domain.package_log import FOLDS, SCHEMA, PackageLog, files
from tests.quick import fewer
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import plan_deletion
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.bulk import DeletePackage, ImportedRevision, ImportPackage
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.facts import (
    IMPORT,
    Clone,
    Edit,
    Init,
    RevisionContentReplaced,
    RevisionCreated,
    RevisionDeleted,
    RevisionDeletionStarted,
    RevisionMetadataChanged,
    RevisionProposed,
    RevisionPublished,
    Task,
    Upgrade,
)
from tidegate.domain.packages.history import timeline
from tidegate.domain.packages.lifecycle import EDGES
from tidegate.domain.packages.rows import REVISIONS, Revision
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.states import PUBLISHED_STATES, Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, UpdateRevision
from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.replay import differences

PATHS = ("a", "a/b", "c")
WORKSPACES = ("v1", "v2", "v3")
NAMES = tuple(f"r.{path.replace('/', '.')}.{space}" for path in PATHS for space in WORKSPACES)
USERS = ("user_1", "user_2", "user_3")
FILES = (files(), files(a="1"), files(a="2"))
ROWS_MAX = 1_000

names, users = st.sampled_from(NAMES), st.sampled_from(USERS)
tasks: st.SearchStrategy[Task] = st.one_of(
    st.just(Init()),
    st.builds(Clone, names),
    st.builds(Edit, names),
    st.builds(Upgrade, names, names, names),
)
STEPS = (ProposeRevision, WithdrawProposal, RejectProposal, ProposeDeletion, RejectDeletion)


class Packages(RuleBasedStateMachine):
    """Three users that send random commands."""

    def __init__(self) -> None:
        super().__init__()
        self.package_log = PackageLog()
        self.versions: defaultdict[str, list[int]] = defaultdict(list)

    @initialize(quorum=st.integers(0, 2), deployment=st.booleans())
    def repository(self, quorum: int, deployment: bool) -> None:
        self.package_log.repository("r", quorum=quorum, deployment=deployment)

    def attempt(self, command: Any) -> None:
        before = self.package_log.log()
        name = getattr(command, "name", None)
        try:
            self.package_log.run(command)
        except TidegateError:
            assert self.package_log.log() == before  # 10. refused commands append nothing
        if name is not None and (version := self.package_log.version(name)):
            self.versions[name].append(version)

    @rule(
        path=st.sampled_from(PATHS),
        workspace=st.sampled_from(WORKSPACES),
        by=users,
        task=tasks,
        new=st.none() | st.sampled_from(FILES),
    )
    def create(self, path: str, workspace: str, by: str, task: Task, new: Any) -> None:
        uid = f"u{len(self.package_log.log())}"
        command = CreateRevision(
            repository="r",
            package=path,
            workspace=workspace,
            uid=uid,
            by=by,
            tasks=(task,),
            files=new,
        )
        self.attempt(command)

    @rule(name=names, by=users, step=st.sampled_from(STEPS))
    def step(self, name: str, by: str, step: Any) -> None:
        seen = self.package_log.version(name)
        self.attempt(step(name=name, by=by, reason="because", expected_version=seen))

    @rule(name=names, by=users)
    def approve(self, name: str, by: str) -> None:
        row = self.package_log.find(name)
        if row is not None:
            seen = self.package_log.version(name)
            digest = row.content.digest
            self.attempt(ApproveRevision(name=name, by=by, digest=digest, expected_version=seen))

    @rule(name=names, by=st.permutations(USERS))
    def publish(self, name: str, by: Sequence[str]) -> None:
        """Take all steps to publication, because chance alone rarely gets there."""
        self.step(name, by[0], ProposeRevision)
        self.approve(name, by[1])
        self.approve(name, by[2])

    @rule(name=names, by=users, new=st.sampled_from(FILES))
    def push(self, name: str, by: str, new: Any) -> None:
        seen = self.package_log.version(name)
        self.attempt(ReplaceResources(name=name, by=by, files=new, expected_version=seen))

    @rule(
        name=names,
        by=users,
        new=st.none() | st.sampled_from(FILES),
        labels=st.none() | st.sampled_from([{}, {"a": "b"}]),
        finalizers=st.none() | st.sampled_from([(), ("f",), ("f", "g")]),
        lifecycle=st.none() | st.sampled_from([*Lifecycle, "other"]),
        task=st.none() | tasks,
    )
    def update(
        self, name: str, by: str, new: Any, labels: Any, finalizers: Any, lifecycle: Any, task: Any
    ) -> None:
        row = self.package_log.find(name)
        added = None if task is None or row is None else (*row.tasks, task)
        command = UpdateRevision(
            name=name,
            by=by,
            files=new,
            labels=labels,
            finalizers=finalizers,
            lifecycle=lifecycle,
            tasks=added,
            reason="because",
            expected_version=self.package_log.version(name),
        )
        self.attempt(command)

    @rule(name=names, by=users)
    def delete(self, name: str, by: str) -> None:
        self.attempt(DeleteRevision(name=name, by=by))

    @rule(path=st.sampled_from(PATHS), by=users)
    def delete_package(self, path: str, by: str) -> None:
        try:
            revisions = plan_deletion(Reads(self.package_log.store), f"r/{path}")
        except TidegateError:
            return
        self.attempt(DeletePackage(package=f"r/{path}", by=by, revisions=revisions))

    @rule(
        path=st.sampled_from(PATHS), by=users, number=st.integers(1, 9), new=st.sampled_from(FILES)
    )
    def bring(self, path: str, by: str, number: int, new: Any) -> None:
        uid = f"import-{len(self.package_log.log())}"
        revision = ImportedRevision(workspace="v1", uid=uid, number=number, files=new)
        self.attempt(
            ImportPackage(
                repository="r", package=path, by=by, source="elsewhere", revisions=(revision,)
            )
        )

    @precondition(lambda self: self.package_log.log())
    @invariant()
    def published_revisions_are_consistent(self) -> None:
        rows = self.rows()
        for row in rows:
            published = row.lifecycle in PUBLISHED_STATES
            assert (row.number > 0) == published  # 1. revision 0 ⇔ never published
            assert (row.published_at is not None) == published
            if row.upstream is not None:  # 8. nothing descends from a deleted revision
                upstream = self.package_log.find(row.upstream.name)
                assert upstream is not None
                assert upstream.uid == row.upstream.uid
        for package in {row.package for row in rows}:  # 5. latest is the highest live revision
            numbers = [row.number for row in rows if row.package == package and row.number]
            latest = self.package_log.package(package).latest
            assert (0 if latest is None else latest.number) == max(numbers, default=0)
        live = {row.package for row in rows}
        for package in live:  # no package inside another
            assert not any(other.startswith(f"{package}/") for other in live)
        for row in rows:
            links = self.package_log.links(row.name)
            assert links is not None
            descend = [r for r in rows if r.upstream is not None and r.upstream.name == row.name]
            assert links.dependents == len(descend)

    def rows(self) -> list[Revision]:
        records = self.package_log.store.range(REVISIONS.name, limit=ROWS_MAX)
        return [codec.decode(record.data, Revision) for record in records]

    def teardown(self) -> None:
        facts = [SCHEMA.vocabulary.value(event) for event in self.package_log.log()]
        check_numbers(facts)
        check_lives(facts)
        check_walks(self.package_log)
        for versions in self.versions.values():  # 11. versions of a name only increase
            assert versions == sorted(versions)
        assert differences(self.package_log.store, FOLDS) == []


def check_numbers(facts: Sequence[Any]) -> None:
    """2. Published numbers of a package increase in log order and are never used again."""
    last: defaultdict[str, int] = defaultdict(int)
    for fact in facts:
        if isinstance(fact, RevisionPublished):
            assert fact.number > last[fact.package]
            assert fact.by == IMPORT or fact.number == last[fact.package] + 1
            last[fact.package] = fact.number


def check_lives(facts: Sequence[Any]) -> None:
    """3. Content is frozen from proposal on. 4. Published once. 7. 9. How a life ends."""
    frozen: dict[str, str] = {}
    published: set[str] = set()
    ending: set[str] = set()
    for fact in facts:
        uid = getattr(fact, "uid", None)
        if uid in ending:
            assert isinstance(fact, RevisionMetadataChanged | RevisionDeleted)
        match fact:
            case RevisionProposed(digest=digest):
                frozen[fact.uid] = digest
            case RevisionPublished(digest=digest):
                assert fact.uid not in published
                published.add(fact.uid)
                assert frozen[fact.uid] == digest
            case RevisionContentReplaced():
                assert fact.uid not in published
            case RevisionDeletionStarted():
                ending.add(fact.uid)
            case RevisionDeleted(lifecycle=lifecycle, content=content):
                assert lifecycle is not Lifecycle.PUBLISHED
                assert fact.uid not in published or content.digest == frozen[fact.uid]


def check_walks(package_log: PackageLog) -> None:
    """6. The lifecycle of every uid follows the transitions."""
    drawn = {(edge.old, edge.new) for edge in EDGES}
    walks: defaultdict[str, list[str]] = defaultdict(list)
    for step in timeline(SCHEMA.vocabulary, package_log.log()):
        if step.uid and step.lifecycle is not None:
            walks[step.uid].append(step.lifecycle)
    for walk in walks.values():
        assert walk[0] == Lifecycle.DRAFT
        for old, new in pairwise(walk):
            assert old == new or (old, new) in drawn


TestPackages = Packages.TestCase
TestPackages.settings = settings(max_examples=fewer(60), stateful_step_count=40, deadline=None)


def test_the_machine_reaches_what_it_is_meant_to_check() -> None:
    """Otherwise the properties would also hold if every command were refused."""
    machine = Packages()
    machine.repository(2, True)
    machine.create("a", "v1", "user_1", Init(), FILES[1])
    machine.publish("r.a.v1", USERS)
    machine.create("c", "v1", "user_2", Clone("r.a.v1"), None)
    machine.update("r.a.v1", "user_1", None, None, None, "DeletionProposed", None)
    machine.delete("r.a.v1", "user_2")
    machine.delete("r.c.v1", "user_2")
    machine.delete("r.a.v1", "user_2")
    machine.published_revisions_are_consistent()
    machine.teardown()

    facts = [SCHEMA.vocabulary.value(event) for event in machine.package_log.log()]
    assert sum(isinstance(fact, RevisionPublished) for fact in facts) == 1
    assert [fact.name for fact in facts if isinstance(fact, RevisionDeleted)] == [
        "r.c.v1",
        "r.a.v1",
    ]
    assert isinstance(facts[2], RevisionCreated)
