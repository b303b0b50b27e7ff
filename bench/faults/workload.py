"""People at work on an installation, and a ledger of what was acknowledged.

A line of the ledger is written after the response arrived. After a fault, everything in the ledger
must exist: the event at its position, the rows that follow from it, and the bytes of its files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from tidegate.commands.startup import FOLDS, open_installation
from tidegate.config import Settings
from tidegate.control.installation import Installation
from tidegate.control.operations.uploads import ReceivedFiles
from tidegate.control.queries.revisions import find_revision
from tidegate.control.storage.content_store import read_manifest
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.domain.packages.facts import Metadata
from tidegate.domain.setup import SetUp, set_up
from tidegate.errors import Conflict, TidegateError
from tidegate.kernel.model import Key, Meta, Position
from tidegate.kernel.replay import differences

ADMIN = "user_admin0000"
CALLER = Caller(principal=Principal(ADMIN, "token", tuple(Grant(role) for role in Role)))
META = Meta(actor=ADMIN)
FILE_BYTES_MAX = 9_000

Line = dict[str, Any]  # of the ledger


def opened(data: Path) -> Installation:
    return open_installation(Settings(data=str(data)))


class Ledger:
    """What was acknowledged, one line each, in a file outside of what is tested."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, line: Line) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def lines_of(content: bytes) -> list[Line]:
    """The complete lines; an incomplete line is no acknowledgement."""
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def work(
    installation: Installation, ledger: Ledger, random: Random, *, name: str, steps: int
) -> None:
    """Do one person's work."""
    for number in range(steps):
        step = random.choice((_create_repository, _draft, _draft, _enroll))
        with suppress(Conflict):  # the same name in the second sitting, or a race: not done
            ledger.add(step(installation, random, f"{name}-{number}"))


def work_together(
    installation: Installation, ledger: Ledger, random: Random, names: list[str], steps: int
) -> None:
    """Let several people work at once, so that commits share a transaction and a sync."""
    seeds = [random.random() for _ in names]
    raised: list[BaseException] = []

    def person(number: int) -> None:
        try:
            work(installation, ledger, Random(seeds[number]), name=names[number], steps=steps)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the trial's thread
            raised.append(error)

    threads = [Thread(target=person, args=(number,)) for number in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in raised:
        raise error


def begin(installation: Installation, ledger: Ledger) -> None:
    """Set up the installation; if it is set up already, change nothing."""
    if installation.log.head() == 0:
        outcome = installation.execute.run(set_up, SetUp(user_id=ADMIN, alone=True), meta=META)
        ledger.add({"position": outcome.position, "row": ["users", ADMIN]})


def _create_repository(installation: Installation, random: Random, name: str) -> Line:
    outcome = installation.repositories.create(CALLER, name)
    return {"position": outcome.position, "row": ["repositories", name]}


def _enroll(installation: Installation, random: Random, name: str) -> Line:
    command = EnrollHost(
        host_id=name, public_key=random.randbytes(32).hex(), labels={}, operator=ADMIN
    )
    outcome = installation.lanes.record("fleet", enroll_host, command, meta=META).result()
    return {"position": outcome.position, "row": ["hosts", name]}


def _draft(installation: Installation, random: Random, name: str) -> Line:
    files = {
        f"f{number}": random.randbytes(random.randint(1, FILE_BYTES_MAX))
        for number in range(random.randint(1, 2))
    }
    package = name.partition("-")[0]
    outcome = installation.revisions.create(
        CALLER, "default", package, name, metadata=Metadata(), files=ReceivedFiles(files)
    )
    return {"position": outcome.position, "draft": f"default.{package}.{name}", "files": len(files)}


# ── after the fault ───────────────────────────────────────────────────────────────────────────────


def wrongs(installation: Installation, ledger: list[Line]) -> Iterator[str]:
    """Acknowledged work that is missing, and rows that differ from the log."""
    head = installation.log.head()
    for line in ledger:
        position: Position = line["position"]
        if position > head:
            yield f"acknowledged at {position}, the log ends at {head}: {line}"
        elif "row" in line and installation.store.get(Key(*line["row"]))[0] is None:
            yield f"acknowledged at {position}, there is no row {line['row']}"
        elif "draft" in line:
            yield from _draft_wrongs(installation, line)
    yield from (f"rows differ from the log: {found}" for found in differences_of(installation))


def differences_of(installation: Installation) -> list[str]:
    return [str(found) for found in differences(installation.store, FOLDS)]


def _draft_wrongs(installation: Installation, line: Line) -> Iterator[str]:
    found = find_revision(installation.reads, line["draft"])
    if found is None:
        yield f"acknowledged, there is no revision {line['draft']}"
        return
    try:
        manifest = read_manifest(installation.blobs, found.revision.row.content)
        for file in manifest.files:
            installation.blobs.get(f"sha256:{file.sha256}")
    except TidegateError as error:
        yield f"files of {line['draft']} were acknowledged and cannot be read: {error}"
