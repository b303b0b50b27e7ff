"""Package revisions under several processes at once: every race has one outcome, and it is a legal
one. On memory the racers are threads, because its log lives in one process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.contract.address import Address
from tests.domain.package_log import (
    AUTHOR,
    FOLDS,
    OPERATOR,
    REVIEWER,
    SCHEMA,
    SLICE_OF,
    PackageLog,
    direct,
    files,
)
from tidegate.control.queries.reads import Reads
from tidegate.control.queries.revisions import plan_deletion
from tidegate.control.runtime import Control
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.approvals import ApproveRevision, ProposeRevision, RejectProposal
from tidegate.domain.packages.bulk import DeletePackage, ImportedRevision, ImportPackage
from tidegate.domain.packages.deletions import DeleteRevision
from tidegate.domain.packages.facts import (
    Clone,
    Edit,
    Init,
    Metadata,
    OwnerReference,
    RevisionPublished,
    Task,
)
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, UpdateRevision
from tidegate.errors import AttemptsExhausted, TidegateError
from tidegate.kernel.store import Store

APPROVERS = 8
SENDS_MAX = 200
HEAD_START_SECONDS = 0.05  # so that all racers are ready when the first one runs
SHARES = 2

Race = Callable[[Sequence[Struct]], list[str]]


def decided(store: Store, command: Struct) -> str:
    """Send a command until it is decided. Return "done", or the code of its refusal."""
    control = Control(store, FOLDS, direct(store))
    pause = Random(repr(command))
    for _ in range(SENDS_MAX):
        try:
            control.execute(SLICE_OF[type(command)], command)
        except AttemptsExhausted:
            time.sleep(pause.random() * 0.01)
        except TidegateError as error:
            return error.code
        else:
            return "done"
    raise AssertionError(f"{command} was not decided in {SENDS_MAX} sendings")


def send(store: Store, commands: Sequence[Struct], start: float) -> list[str]:
    """Send each command from a thread of its own, all at the same moment."""

    def run(command: Struct) -> str:
        time.sleep(max(0.0, start - time.time()))
        return decided(store, command)

    with ThreadPoolExecutor(len(commands)) as threads:
        return list(threads.map(run, commands))


def send_from_a_process(address: Address, commands: Sequence[Struct], start: float) -> list[str]:
    with closing(address.open(SCHEMA)) as store:
        return send(store, commands, start)


@pytest.fixture
def race(request: pytest.FixtureRequest, package_log: PackageLog, address: Address | None) -> Race:
    """Return the answers in the order of the commands; the second half runs in another process."""

    def run(commands: Sequence[Struct]) -> list[str]:
        start = time.time() + HEAD_START_SECONDS
        if address is None:
            return send(package_log.store, commands, start)
        pool: ProcessPoolExecutor = request.getfixturevalue("processes")
        shares = [list(range(len(commands)))[share::SHARES] for share in range(SHARES)]
        waiting = [
            pool.submit(send_from_a_process, address, [commands[i] for i in share], start)
            for share in shares
        ]
        answers = {
            i: answer
            for share, future in zip(shares, waiting, strict=True)
            for i, answer in zip(share, future.result(), strict=True)
        }
        return [answers[i] for i in range(len(commands))]

    return run


def approval(package_log: PackageLog, name: str, by: str = REVIEWER) -> ApproveRevision:
    digest = package_log.revision(name).content.digest
    return ApproveRevision(
        name=name, by=by, digest=digest, expected_version=package_log.version(name)
    )


def creation(package: str, workspace: str, task: Task, uid: str) -> CreateRevision:
    return CreateRevision(
        repository="blueprints",
        package=package,
        workspace=workspace,
        uid=uid,
        by=AUTHOR,
        tasks=(task,),
    )


def publications(package_log: PackageLog, package: str) -> list[int]:
    facts = (SCHEMA.vocabulary.value(event) for event in package_log.log())
    return [
        fact.number
        for fact in facts
        if isinstance(fact, RevisionPublished) and fact.package == f"blueprints/{package}"
    ]


@pytest.mark.req("LC-6", "LC-8")
def test_one_of_eight_approvers_publishes(package_log: PackageLog, race: Race, rounds: int) -> None:
    for turn in range(rounds):
        name = package_log.brought_to(Lifecycle.PROPOSED, package=f"p{turn}")

        answers = race(
            [approval(package_log, name, f"user_{number}") for number in range(APPROVERS)]
        )

        assert Counter(answers) == Counter(done=1, version_conflict=APPROVERS - 1)
        assert publications(package_log, f"p{turn}") == [1]


def test_two_workspaces_of_a_package_approved_at_once_get_numbers_one_and_two(
    package_log: PackageLog, race: Race, rounds: int
) -> None:
    for turn in range(rounds):
        names = [
            package_log.brought_to(Lifecycle.PROPOSED, workspace, package=f"p{turn}")
            for workspace in ("v1", "v2")
        ]

        answers = race([approval(package_log, name) for name in names])

        assert answers == ["done", "done"]
        assert sorted(package_log.revision(name).number for name in names) == [1, 2]
        assert publications(package_log, f"p{turn}") == [1, 2]


@pytest.mark.req("LC-6")
def test_approve_against_edit(package_log: PackageLog, race: Race, rounds: int) -> None:
    for turn in range(rounds):
        name = package_log.brought_to(Lifecycle.PROPOSED, package=f"p{turn}", files=files(a="1"))
        seen = package_log.version(name)
        approved, labelled, pushed = race(
            [
                approval(package_log, name),
                UpdateRevision(name=name, by=AUTHOR, labels={"a": "b"}, expected_version=seen),
                ReplaceResources(name=name, by=AUTHOR, files=(), expected_version=seen),
            ]
        )

        assert sorted((approved, labelled)) == ["done", "version_conflict"]
        assert pushed in ("not_draft", "version_conflict")
        assert package_log.revision(name).content.digest == FileManifest(files(a="1")).digest


@pytest.mark.req("LC-4", "LC-6")
def test_propose_against_edit(package_log: PackageLog, race: Race, rounds: int) -> None:
    for turn in range(rounds):
        name = package_log.create(package=f"p{turn}", files=files(a="1"))
        seen = package_log.version(name)
        looked_at = package_log.revision(name).content.digest
        proposed, pushed = race(
            [
                ProposeRevision(name=name, by=AUTHOR, expected_version=seen),
                ReplaceResources(name=name, by=AUTHOR, files=files(a="2"), expected_version=seen),
            ]
        )

        assert sorted((proposed, pushed)) == ["done", "version_conflict"]
        assert (package_log.revision(name).content.digest == looked_at) == (proposed == "done")


@pytest.mark.req("LC-2", "LC-6")
def test_approve_against_reject(package_log: PackageLog, race: Race, rounds: int) -> None:
    for turn in range(rounds):
        name = package_log.brought_to(Lifecycle.PROPOSED, package=f"p{turn}")
        seen = package_log.version(name)
        approved, rejected = race(
            [
                approval(package_log, name),
                RejectProposal(name=name, by=OPERATOR, reason="no", expected_version=seen),
            ]
        )

        assert sorted((approved, rejected)) == ["done", "version_conflict"]
        wanted = Lifecycle.PUBLISHED if approved == "done" else Lifecycle.DRAFT
        assert package_log.revision(name).lifecycle == wanted


@pytest.mark.req("LC-12")
def test_approve_against_delete(package_log: PackageLog, race: Race, rounds: int) -> None:
    for turn in range(rounds):
        name = package_log.brought_to(Lifecycle.PROPOSED, package=f"p{turn}")
        approved, deleted = race(
            [approval(package_log, name), DeleteRevision(name=name, by=OPERATOR)]
        )

        assert (approved, deleted) in (("done", "deletion_not_proposed"), ("not_found", "done"))
        assert publications(package_log, f"p{turn}") == ([1] if approved == "done" else [])


@pytest.mark.req("LC-17")
def test_delete_against_clone(package_log: PackageLog, race: Race, rounds: int) -> None:
    for turn in range(rounds):
        base = package_log.brought_to(Lifecycle.DELETION_PROPOSED, package=f"p{turn}")
        deleted, cloned = race(
            [
                DeleteRevision(name=base, by=REVIEWER),
                creation(f"clone{turn}", "v1", Clone(base), f"u{turn}"),
            ]
        )

        assert (deleted, cloned) in (("done", "not_found"), ("still_referenced", "done"))
        assert (package_log.find(base) is None) == (deleted == "done")


def test_concurrent_first_writers_of_a_path_agree_on_its_owner(
    package_log: PackageLog, race: Race, rounds: int
) -> None:
    for turn in range(rounds):
        one, two, below, other = race(
            [
                creation(f"p{turn}", "v1", Init(), "one"),
                creation(f"p{turn}", "v1", Init(), "two"),
                creation(f"p{turn}/below", "v1", Init(), "three"),
                creation(f"p{turn}", "v2", Init(), "four"),
            ]
        )

        if below == "done":
            assert one == two == other == "path_overlap"
        else:
            assert sorted((one, two)) == ["already_exists", "done"]
            assert (below, other) == ("path_overlap", "done")


def test_deleting_neighbours_at_once_keeps_the_right_latest_revision(
    package_log: PackageLog, race: Race, rounds: int
) -> None:
    for turn in range(rounds):
        first = package_log.published("v1", f"p{turn}")
        others = [
            package_log.published(f"v{number}", f"p{turn}", task=Edit(first)) for number in (2, 3)
        ]
        for name in others:
            package_log.propose_deletion(name)

        answers = race([DeleteRevision(name=name, by=REVIEWER) for name in others])

        assert answers == ["done", "done"]
        latest = package_log.package(f"blueprints/p{turn}").latest
        assert latest is not None
        assert latest.name == first
        links = package_log.links(first)
        assert links is not None
        assert links.newer is None


@pytest.mark.req("LC-12", "LC-17")
def test_delete_a_package_against_a_new_revision_and_a_clone(
    package_log: PackageLog, race: Race, rounds: int
) -> None:
    """All or nothing, whichever is first: no revision remains in a deleted package."""
    for turn in range(rounds):
        package = f"blueprints/p{turn}"
        first = package_log.published("v1", f"p{turn}")
        package_log.propose_deletion(first)
        plan = DeletePackage(
            package=package, by=REVIEWER, revisions=plan_deletion(Reads(package_log.store), package)
        )

        deleted, edited, cloned = race(
            [
                plan,
                creation(f"p{turn}", "v2", Edit(first), f"e{turn}"),
                creation(f"q{turn}", "v1", Clone(first), f"c{turn}"),
            ]
        )

        if deleted == "done":
            assert (edited, cloned) == ("not_found", "not_found")
            assert package_log.package(package).live == 0
        else:
            assert deleted in ("deletion_plan_outdated", "package_not_deletable")
            assert (edited, cloned) == ("done", "done")
            assert package_log.package(package).live == 2


def test_one_of_several_imports_of_a_package_at_once_succeeds(
    package_log: PackageLog, race: Race, rounds: int
) -> None:
    taken = ("number_used", "already_exists", "package_exists", "package_not_empty")
    for turn in range(rounds):
        commands = [
            ImportPackage(
                repository="blueprints",
                package=f"p{turn}",
                by=AUTHOR,
                source=f"mirror {number}",
                revisions=(
                    ImportedRevision(workspace="v1", uid=f"i{turn}-{number}", number=1, files=()),
                ),
            )
            for number in range(4)
        ]

        answers = race([*commands, creation(f"p{turn}", "v1", Init(), f"n{turn}")])

        assert answers.count("done") == 1
        assert set(answers) <= {"done", *taken}
        assert package_log.package(f"blueprints/p{turn}").live == 1


def test_racing_creations_give_an_owner_one_open_revision(
    package_log: PackageLog, race: Race, rounds: int
) -> None:
    metadata = Metadata(owner_references=(OwnerReference("variant", "edge"),))
    for turn in range(rounds):
        commands = [
            replace(
                creation(f"p{turn}", f"v{number}", Init(), f"o{turn}-{number}"), metadata=metadata
            )
            for number in range(4)
        ]

        answers = race(commands)

        assert sorted(answers) == ["done", *["owner_busy"] * 3]
