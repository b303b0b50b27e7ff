"""A registry with releases to pin, a file as the outside world, and a walk through all of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from examples.release_state.claims import by_operator
from examples.release_state.directions import ALIAS, actual, deployment, promotion
from examples.release_state.refusals import refusals
from tidegate.clock import Clock, system_clock
from tidegate.control.outbox.reconcile import Reconciler
from tidegate.control.outbox.sender import OutboxSender
from tidegate.control.outbox.targets import Target
from tidegate.control.outbox.targets.file import FileTarget
from tidegate.control.queries import history
from tidegate.control.runtime import Control
from tidegate.domain.outbox import declarations as outbox
from tidegate.domain.releases import declarations as releases
from tidegate.domain.releases.catalog import PUBLISHED
from tidegate.domain.releases.evidence import ImportManifest
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.rows import ACTUAL
from tidegate.domain.releases.slices import RegisterRelease
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.leases import LEASES
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary

SCOPE = "service-a"
DIGESTS = {f"web.{number}": f"sha256:{number:064x}" for number in range(1, 6)}
PAGE = 100


class OfferRelease(Struct, frozen=True):
    """Stands in for the publication of a revision, or for a step in its lifecycle."""

    release_id: str
    digest: str
    lifecycle: str = PUBLISHED


offer_release = Slice(
    name="offer-release",
    command=OfferRelease,
    writes=(ReleaseOffered,),
    rows=lambda command: (),
    decide=lambda rows, command, now: (
        ReleaseOffered(command.release_id, command.digest, command.lifecycle),
    ),
)

SCHEMA = Schema(
    Vocabulary((*releases.FACTS, *outbox.FACTS), (*releases.SLICES, *outbox.SLICES, offer_release)),
    (*releases.COLLECTIONS, *outbox.COLLECTIONS, LEASES),
)
FOLDS = Folds(SCHEMA, (*releases.FOLDS, *outbox.FOLDS))
VERBS: dict[type[Struct], Slice] = {item.command: item for item in releases.SLICES}


@contextmanager
def registry(url: str, clock: Clock = system_clock) -> Iterator[Control]:
    """Open the registry on the log at this URL."""
    with closing(connect(url, SCHEMA)) as store, closing(GroupCommit(store)) as writer:
        yield Control(store, FOLDS, writer.submit, clock=clock)


def walk(control: Control, target: Target, world: Path) -> None:
    """Walk from the first pin to the last refusal."""
    register(control)
    intent_first(control, target)
    effect_first(control, target)
    drift(control, target, world / SCOPE / f"{ALIAS}.json")
    imports(control)
    say_no(control)
    for item in history.list_scope_events(control.store, SCOPE, limit=PAGE):
        print(f"{item.position:>4}  {item.type:<22} {item.row.partition('/')[2]}")
    print(f"current: {current(control)}")
    print(f"differences after replay: {differences(control.store, FOLDS)}")


def register(control: Control) -> None:
    for release_id, digest in DIGESTS.items():
        control.execute(offer_release, OfferRelease(release_id, digest))
    control.execute(
        BUILT_IN.register,
        RegisterRelease(
            scope=SCOPE,
            release_id="web.1",
            digest=DIGESTS["web.1"],
            authority=by_operator(SCOPE, "web.1", control.clock()),
            command_id="first",
            by="user_operator",
        ),
    )
    print(f"registered: {current(control)}")


def intent_first(control: Control, target: Target) -> None:
    """ "Write the intended internal state and an outbox row in one transaction." """
    control.execute(
        BUILT_IN.transition, promotion(control, SCOPE, "web.2", DIGESTS["web.2"], "promote-2")
    )
    print(f"wanted: {current(control)}; outside: {outside(target)}")
    worker = OutboxSender(control, {ALIAS: target})
    (attempted,) = worker.work()
    print(f"performed {attempted.key}; outside: {outside(target)}")
    print(f"a second look appends {Reconciler(worker).run_once().appended} facts")


def effect_first(control: Control, target: Target) -> None:
    """ "Perform the external side effect with an idempotency key. Observe …" """
    deployment(control, target, SCOPE, "web.3", DIGESTS["web.3"]).run()
    print(f"recorded what was seen: {current(control)}")

    # The effect happens and the process dies before the commit: key and observation are enough.
    lost = deployment(control, target, SCOPE, "web.4", DIGESTS["web.4"])
    lost.perform()
    print(f"outside: {outside(target)}; recorded: {current(control)}")
    print(f"recovered: {lost.recover()}, {current(control)}")


def drift(control: Control, target: Target, file: Path) -> None:
    """ "Every release-state system that touches an external side effect needs a reconciler." """
    control.execute(
        BUILT_IN.transition, promotion(control, SCOPE, "web.2", DIGESTS["web.2"], "promote-again")
    )
    worker = OutboxSender(control, {ALIAS: target})
    reconciler = Reconciler(worker)
    worker.work()
    file.unlink()
    for what in ("lost outside", "repaired", "at rest"):
        seen = reconciler.run_once()
        made = worker.work()
        print(f"{what}: {seen.appended} facts, {len(made)} attempts; outside: {outside(target)}")


def imports(control: Control) -> None:
    """One match may become authoritative; none or several is stored as evidence."""
    control.execute(offer_release, OfferRelease("web.6", DIGESTS["web.5"]))
    for batch, digests in (
        ("none", ("sha256:unknown",)),
        ("several", (DIGESTS["web.5"],)),
        ("one", (DIGESTS["web.1"],)),
    ):
        command = ImportManifest(
            scope=SCOPE,
            batch=batch,
            ref=f"s3://factory/{batch}.json",
            observed_at=codec.time_text(control.clock()),
            digests=digests,
            command_id=f"import-{batch}",
            by="user_factory",
            expected_version=actual(control, SCOPE).version,
        )
        (fact,) = control.execute(BUILT_IN.import_manifest, command).facts
        print(f"manifest with {batch}: {type(fact).__name__}; {current(control)}")


def say_no(control: Control) -> None:
    gone = OfferRelease("web.5", DIGESTS["web.5"], "Terminating")
    control.execute(offer_release, gone)
    good = promotion(control, SCOPE, "web.2", DIGESTS["web.2"], "promote-never")
    before = list(control.store.range(ACTUAL.name, limit=PAGE))
    for what, command, code in refusals(good, "promote-2", gone.release_id, gone.digest):
        found = refusal(control, command)
        assert found == code, f"{what}: {found}"
        print(f"refused: {what}: {found}")
    assert list(control.store.range(ACTUAL.name, limit=PAGE)) == before


def refusal(control: Control, command: Struct) -> str:
    """Return the code with which the command is refused, or "" if it is not."""
    try:
        control.execute(VERBS[type(command)], command)
    except TidegateError as error:
        return error.code
    return ""


def current(control: Control) -> str:
    row = actual(control, SCOPE)
    return f"{row.pinned_release_id} at version {row.version}, {row.confidence.reasons[0]}"


def outside(target: Target) -> str:
    """Return what the external system shows."""
    seen = target.observe(SCOPE, ALIAS)
    return "nothing" if seen is None or not seen.state else seen.state["releaseId"]


def main(arguments: Sequence[str]) -> None:
    with (
        TemporaryDirectory() as world,
        registry(arguments[0] if arguments else "memory:") as control,
    ):
        walk(control, FileTarget(world), Path(world))


if __name__ == "__main__":
    main(sys.argv[1:])
