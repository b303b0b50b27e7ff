"""Eight people approve different revisions of one package at the same moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Barrier

from msgspec import structs

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
from tidegate.kernel.store import Store

APPROVALS = 8
REPOSITORY = "blueprints"
ADMIN, AUTHOR, APPROVER = (
    Caller(principal=Principal(f"user_{role.replace('-', '')}", "token", (Grant(role),)))
    for role in (Role.SECURITY_ADMIN, Role.AUTHOR, Role.APPROVER)
)


@dataclass
class ApprovedAtOnce:
    """What became of the approvals of one round."""

    answers: list[str]
    numbers: list[int] = field(default_factory=list)
    overlapping: int = 0  # that began before another one ended


@contextmanager
def opened_installation(store: Store, home: Path) -> Iterator[Installation]:
    """Set up an installation with one repository on a fresh log."""
    with ExitStack() as stack:
        writer = GroupCommit(store)
        stack.callback(writer.close)
        lanes = Lanes(store, FOLDS, writer.submit)
        stack.callback(lanes.close)
        installation = Installation(
            settings=Settings(data=str(home)),
            store=store,
            folds=FOLDS,
            control=Control(store, FOLDS, writer.submit),
            submit=writer.submit,
            lanes=lanes,
            blobs=FileBlobs(home / "blobs", log_id(store, system_clock)),
            secrets=Secrets.in_directory(home),
            clock=system_clock,
            closing=ExitStack(),
        )
        installation.repositories.create(ADMIN, REPOSITORY)
        yield installation


def approve_at_once(installation: Installation, package: str) -> ApprovedAtOnce:
    """Propose eight revisions of a new package, then approve all of them at once."""
    proposed = [propose(installation, package, f"v{number}") for number in range(APPROVALS)]
    numbers: list[int] = []
    spans: list[tuple[float, float]] = []

    def approve(seen: RevisionOutcome) -> None:
        assert seen.found is not None
        began = time.monotonic()
        row = seen.found.revision.row
        done = installation.revisions.approve(on(APPROVER, seen), row.name, row.content.digest)
        spans.append((began, time.monotonic()))
        assert done.found is not None
        numbers.append(done.found.revision.row.number)

    answers = at_once(*(partial(approve, seen) for seen in proposed))
    first_end = min((end for _, end in spans), default=0.0)
    overlapping = sum(began < first_end for began, _ in spans) - 1
    return ApprovedAtOnce(answers, numbers, max(overlapping, 0))


def propose(installation: Installation, package: str, workspace: str) -> RevisionOutcome:
    revisions = installation.revisions
    draft = revisions.create(
        AUTHOR, REPOSITORY, package, workspace, tasks=(Init(),), metadata=Metadata()
    )
    return revisions.propose(on(AUTHOR, draft), name_of(draft))


def at_once(*calls: Callable[[], object]) -> list[str]:
    """Call all functions at the same moment. Each yields "done" or the code of its refusal."""
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
