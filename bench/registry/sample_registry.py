"""A registry of some size on SQLite: packages of 100 published revisions, each with its channel.

It is filled as fast as the rules allow. Every command is decided and folded as always, but many
share a commit, as reports do in a lane. The log and the rows are the same as if each command had
been committed alone, and a replay confirms that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

import tidegate
from bench.speed.log_cache import LogCache, fingerprint
from tidegate.clock import ManualClock
from tidegate.domain.composition import FOLDS, SCHEMA, SLICES
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.approvals import ApproveRevision, ProposeRevision
from tidegate.domain.packages.facts import Edit, Init
from tidegate.domain.packages.names import identity
from tidegate.domain.packages.slices import CreateRepository, CreateRevision
from tidegate.domain.releases.slices import RegisterRelease
from tidegate.engines.sqlite import SqliteStore
from tidegate.errors import TidegateError
from tidegate.kernel.commit_builder import CommitBuilder, PackFull, Rows
from tidegate.kernel.model import Commit, Meta
from tidegate.kernel.slices import Slice

PER_PACKAGE = 100
REPOSITORY = "default"
AUTHOR, REVIEWER, MANAGER = "user_author", "user_reviewer", "user_manager"
FILLED_AT = datetime(2026, 1, 1, tzinfo=UTC)
FILE = "town.db"

SLICE_OF: dict[type[Struct], Slice] = {item.command: item for item in SLICES}


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


def package(number: int) -> str:
    return f"team-{number // 10:03}/app-{number:04}"


def scope(number: int) -> str:
    return f"app-{number:04}-stable"


def release_id(number: int, revision: int) -> str:
    return f"{package(number).replace('/', '.')}.{revision}"


def revision_name(number: int, revision: int) -> str:
    return identity(REPOSITORY, package(number), f"v{revision}").name


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


def files(number: int, revision: int) -> tuple[File, ...]:
    """Content that no other revision has; a registry does not care where its bytes are stored."""
    body = f"{number}/{revision}".encode()
    return (File("conf/site.toml", sha256(body).hexdigest(), len(body)),)


def digest(number: int, revision: int) -> str:
    return FileManifest(files(number, revision)).digest


def creation(number: int, revision: int) -> CreateRevision:
    """The command that creates the next revision of a package from its last one."""
    task = Init() if revision == 1 else Edit(revision_name(number, revision - 1))
    return CreateRevision(
        repository=REPOSITORY,
        package=package(number),
        workspace=f"v{revision}",
        uid=f"uid-{number}-{revision}",
        by=AUTHOR,
        tasks=(task,),
        files=files(number, revision),
    )


def pinning(number: int, revision: int, at: datetime) -> dict[str, Any]:
    """The command that pins a release to a channel, by an operator's decision."""
    said = {
        "ref": f"operator://deploy/{scope(number)}/{release_id(number, revision)}",
        "observed_at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    pair = {"kind": "operator_command", "source": "release-control-plane"}
    provenance = {
        "mode": "native",
        "system": pair["source"],
        "kind": pair["kind"],
        "recorded_at": said["observed_at"],
        "evidence": [{**pair, **said}],
        **said,
    }
    confidence = {"level": "high", "reasons": ["operator_command_authority"]}
    return {
        "scope": scope(number),
        "release_id": release_id(number, revision),
        "digest": digest(number, revision),
        "authority": {"provenance": provenance, "confidence": confidence},
        "command_id": f"c{revision}",
        "by": MANAGER,
    }


# ── filling ───────────────────────────────────────────────────────────────────────────────────────


def filled(log_cache: LogCache, revisions: int) -> Path:
    """The directory of a registry of this size; it is filled if it does not exist."""
    name = f"registry-{fingerprint()}-{_rules()}-{revisions}"
    return log_cache.kept(name, lambda place: fill(place / FILE, revisions))


def fill(path: Path, revisions: int) -> None:
    with closing(SqliteStore(str(path), SCHEMA)) as store:
        pack = Pack(store)
        pack.add(CreateRepository(name=REPOSITORY, by=MANAGER))
        for number in range(revisions // PER_PACKAGE):
            for command in _life_of(number):
                pack.add(command)
            pack.land()


def _life_of(number: int) -> Iterator[Struct]:
    for revision in range(1, PER_PACKAGE + 1):
        name = revision_name(number, revision)
        yield creation(number, revision)
        # The rules only require a version here, and the runtime compares it. Packs bypass
        # the runtime, so any version will do.
        yield ProposeRevision(name=name, by=AUTHOR, expected_version=1)
        yield ApproveRevision(
            name=name, by=REVIEWER, digest=digest(number, revision), expected_version=1
        )
    yield RegisterRelease(**pinning(number, 1, FILLED_AT))


class Pack:
    """Commands that share the next commit."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._clock = ManualClock(FILLED_AT)
        self._builder = self._opened({})

    def add(self, command: Struct) -> None:
        """Decide the command on the stored rows and the pending ones."""
        item = SLICE_OF[type(command)]
        try:
            self._builder.decide(item, command, self._clock())
        except PackFull:
            self.land()
            self._builder.decide(item, command, self._clock())

    def land(self) -> None:
        """Commit the pending commands. The next pack keeps the rows that this one leaves."""
        basis = Commit(self._clock(), Meta(actor=MANAGER))
        (answer,) = self._store.commit(self._builder.commit(basis))
        if isinstance(answer, TidegateError):
            raise answer
        self._builder = self._opened(self._builder.settled(answer.first))
        self._clock.advance(timedelta(seconds=1))

    def _opened(self, known: Rows) -> CommitBuilder:
        return CommitBuilder(FOLDS, self._store.get, known, self._store.pack_cost_max)


def _rules() -> str:
    """A digest of the domain's source: a registry filled by other rules is not reused."""
    known = sha256()
    for path in sorted((Path(tidegate.__file__).parent / "domain").rglob("*.py")):
        known.update(path.read_bytes())
    return known.hexdigest()[:12]
