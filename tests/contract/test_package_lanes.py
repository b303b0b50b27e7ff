"""Verbs on one package at once: they wait for each other, and none is refused for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from msgspec import structs

from tests.contract.in_process_fleet import FleetStores
from tidegate.clock import system_clock
from tidegate.config import Settings
from tidegate.control.installation import Installation, log_id
from tidegate.control.lanes import Lanes
from tidegate.control.operations.revisions import RevisionOutcome
from tidegate.control.runtime import Control
from tidegate.control.secrets import Secrets
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.composition import FOLDS
from tidegate.domain.packages.facts import Init, Metadata
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import TidegateError
from tidegate.kernel.replay import differences

APPROVALS = 8
ADMIN, AUTHOR, APPROVER = (
    Caller(principal=Principal(f"user_{role.replace('-', '')}", "token", (Grant(role),)))
    for role in (Role.SECURITY_ADMIN, Role.AUTHOR, Role.APPROVER)
)


@pytest.fixture
def installation(fleet_stores: FleetStores, tmp_path: Path) -> Iterator[Installation]:
    store = fleet_stores.open()
    with ExitStack() as stack:
        writer = GroupCommit(store)
        stack.callback(writer.close)
        lanes = Lanes(store, FOLDS, writer.submit)
        stack.callback(lanes.close)
        yield Installation(
            settings=Settings(data=str(tmp_path)),
            store=store,
            folds=FOLDS,
            control=Control(store, FOLDS, writer.submit),
            submit=writer.submit,
            lanes=lanes,
            blobs=FileBlobs(tmp_path / "blobs", log_id(store, system_clock)),
            secrets=Secrets.in_directory(tmp_path),
            clock=system_clock,
            closing=ExitStack(),
        )
        assert differences(store, FOLDS) == []


def at_once(*calls: Callable[[], object]) -> list[str]:
    """Call all of them at the same moment; "done" for each, or the code of its refusal."""
    ready = Barrier(len(calls))

    def run(call: Callable[[], object]) -> str:
        ready.wait()
        try:
            call()
        except TidegateError as error:
            return error.code
        return "done"

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def on(caller: Caller, seen: RevisionOutcome) -> Caller:
    """The caller, having seen this outcome."""
    return structs.replace(caller, expected_version=seen.position)


def name_of(outcome: RevisionOutcome) -> str:
    assert outcome.found is not None
    return outcome.found.revision.row.name


@pytest.mark.req("LC-8")
def test_of_eight_revisions_of_a_package_approved_at_once_all_are_published(
    installation: Installation, rounds: int
) -> None:
    revisions = installation.revisions
    installation.repositories.create(ADMIN, "blueprints")
    for turn in range(rounds):
        numbers: list[int] = []
        proposed = []
        for number in range(APPROVALS):
            draft = revisions.create(
                AUTHOR,
                "blueprints",
                f"p{turn}",
                f"v{number}",
                tasks=(Init(),),
                metadata=Metadata(),
            )
            proposed.append(revisions.propose(on(AUTHOR, draft), name_of(draft)))

        def approve(seen: RevisionOutcome, numbers: list[int]) -> None:
            assert seen.found is not None
            digest = seen.found.revision.row.content.digest
            done = revisions.approve(on(APPROVER, seen), name_of(seen), digest)
            assert done.found is not None
            numbers.append(done.found.revision.row.number)

        answers = at_once(*(partial(approve, seen, numbers) for seen in proposed))

        assert answers == ["done"] * APPROVALS
        assert sorted(numbers) == list(range(1, APPROVALS + 1))
