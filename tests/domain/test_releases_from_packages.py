"""From published revisions to releases that may be pinned, in the same commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.domain.registry import T0, register, transition
from tidegate.control.runtime import Control
from tidegate.domain.content.manifests import Content
from tidegate.domain.packages import declarations as packages
from tidegate.domain.packages.facts import (
    RevisionDeleted,
    RevisionDeletionProposed,
    RevisionDeletionRejected,
    RevisionDeletionStarted,
    RevisionPublished,
)
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.provenance import BUILT_IN_RULES
from tidegate.domain.releases import (
    declarations as releases,
    folds,
    from_packages,
    rows,
    rows as releases_rows,
)
from tidegate.domain.releases.facts import ReleaseOffered, ReleaseRegistered, ReleaseTransitioned
from tidegate.domain.releases.folds import SCOPES_NAMED_MAX, pin_ids, step_actual, step_pins
from tidegate.domain.releases.refusals import ReleaseTaken, StillPinned
from tidegate.domain.releases.rows import DigestMatches, KnownRelease, ReleasePins
from tidegate.domain.releases.slices import decide_register, decide_transition
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.errors import Forbidden
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import ALL
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.vocabulary import Vocabulary


class Say(Struct, frozen=True):
    """Writes facts of packages, without the commands that lead to them."""

    facts: tuple[Any, ...]


say = Slice(
    name="say",
    command=Say,
    writes=(RevisionPublished,),
    rows=lambda command: (),
    decide=lambda rows, command, now: command.facts,
)
SCHEMA = Schema(
    Vocabulary((*packages.FACTS, *releases.FACTS), (say,)),
    (*from_packages.COLLECTIONS, rows.KNOWN, rows.PINS, rows.MATCHES),
)
FOLDS = Folds(
    SCHEMA, (*from_packages.FOLDS, folds.known_releases, folds.release_pins, folds.release_matches)
)

NAME, PACKAGE, DIGEST = "blueprints.networking.vpc.v1", "blueprints/networking/vpc", "sha256:ab"
WHO: dict[str, Any] = {"name": NAME, "package": PACKAGE, "uid": "u1", "by": "user_1"}
PUBLISHED = RevisionPublished(**WHO, number=3, digest=DIGEST, self_approved=False, older=None)

STARTED = RevisionDeletionStarted(**WHO, lifecycle=Lifecycle.DELETION_PROPOSED)

WEB_2, WEB_3 = (KnownRelease(name, DIGEST, "Published") for name in ("web.2", "web.3"))
RULES = BUILT_IN_RULES


def deleted(number: int) -> RevisionDeleted:
    content = Content(DIGEST, "sha256:cd", 0, 0)
    last = Lifecycle.DELETION_PROPOSED
    return RevisionDeleted(NAME, PACKAGE, "u1", "user_1", last, number, content, None, None, None)


@pytest.fixture
def control() -> Iterator[Control]:
    store = MemoryStore(SCHEMA)
    with closing(GroupCommit(store)) as writer:
        yield Control(store, FOLDS, writer.submit, clock=lambda: T0)
    assert differences(store, FOLDS) == []


def offered(control: Control) -> KnownRelease | None:
    (record,) = control.store.get(releases_rows.known_key("blueprints.networking.vpc.3"))
    return None if record is None else codec.decode(record.data, KnownRelease)


def matching(control: Control) -> tuple[str, ...]:
    (record,) = control.store.get(releases_rows.matches_key(DIGEST))
    return () if record is None else codec.decode(record.data, DigestMatches).release_ids


def test_offers_a_published_revision_by_its_package_and_number(control: Control) -> None:
    control.execute(say, Say((PUBLISHED,)))

    release_id = "blueprints.networking.vpc.3"
    assert offered(control) == KnownRelease(release_id, DIGEST, "Published", NAME)
    assert matching(control) == (release_id,)
    said = [SCHEMA.vocabulary.value(event) for event in control.store.read(ALL).events]
    assert said == [PUBLISHED, ReleaseOffered(release_id, DIGEST, "Published", NAME)]


@pytest.mark.parametrize(
    ("facts", "lifecycle"),
    [
        ((RevisionDeletionProposed(**WHO),), "DeletionProposed"),
        ((RevisionDeletionProposed(**WHO), RevisionDeletionRejected(**WHO)), "Published"),
        ((RevisionDeletionProposed(**WHO), deleted(3)), "Deleted"),
        ((RevisionDeletionProposed(**WHO), STARTED), "Terminating"),
        ((RevisionDeletionProposed(**WHO), STARTED, deleted(3)), "Deleted"),
    ],
)
def test_follows_the_revision_through_its_lifecycle(
    control: Control, facts: tuple[Struct, ...], lifecycle: str
) -> None:
    control.execute(say, Say((PUBLISHED,)))

    for fact in facts:
        control.execute(say, Say((fact,)))

    release = offered(control)
    assert release is not None
    assert release.lifecycle == lifecycle
    assert bool(matching(control)) == (lifecycle in ("Published", "DeletionProposed"))


def test_offers_nothing_for_a_revision_that_was_never_published(control: Control) -> None:
    control.execute(say, Say((STARTED, deleted(0))))

    assert offered(control) is None
    said = [event.type for event in control.store.read(ALL).events]
    assert said == ["RevisionDeletionStarted", "RevisionDeleted"]


# ── what a release is called (ADR-0008) ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("package", "release_id"),
    [
        ("default/web", "web.3"),
        ("default/networking/vpc", "networking.vpc.3"),
        ("blueprints/web", "blueprints.web.3"),
        ("default-2/web", "default-2.web.3"),
        ("blueprints/default/web", "blueprints.default.web.3"),
    ],
)
def test_names_a_release_by_its_package_without_the_default_repository(
    package: str, release_id: str
) -> None:
    assert from_packages.release_id_of(package, 3) == release_id


def test_refuses_a_second_revision_under_the_name_of_a_release(control: Control) -> None:
    """A path of the default repository may begin like the name of another repository."""
    control.execute(say, Say((PUBLISHED,)))
    name, package = f"default.{NAME}", f"default/{PACKAGE}"

    with pytest.raises(ReleaseTaken) as refusal:
        control.execute(say, Say((replace(PUBLISHED, name=name, package=package),)))

    assert refusal.value.facts == {"release_id": "blueprints.networking.vpc.3", "revision": NAME}
    release = offered(control)
    assert release is not None
    assert release.revision == NAME


# ── pins ──────────────────────────────────────────────────────────────────────────────────────────

PINNED = ReleasePins("web.1", 1, ("web-stable",))


@pytest.mark.parametrize("lifecycle", ["DeletionProposed", "Terminating", "Deleted"])
def test_a_pinned_release_cannot_end(lifecycle: str) -> None:
    offer = ReleaseOffered("web.1", DIGEST, lifecycle)

    with pytest.raises(StillPinned, match=r"web\.1") as refusal:
        step_pins(PINNED, offer, T0)

    assert isinstance(refusal.value, Forbidden)
    assert refusal.value.code == "still_pinned"
    facts = {"release_id": "web.1", "pins": 1, "channels": ("web-stable",)}
    assert refusal.value.facts == {**facts, "hosts": (), "host_count": 0}
    assert step_pins(ReleasePins("web.1"), offer, T0) == ReleasePins("web.1")


def test_other_changes_of_a_pinned_release_are_allowed() -> None:
    assert step_pins(PINNED, ReleaseOffered("web.1", DIGEST, "Published"), T0) == PINNED


def test_names_the_first_scopes_of_many() -> None:
    row = ReleasePins("web.2")
    for number in range(SCOPES_NAMED_MAX + 2):
        said = decide_register(
            (None, None, WEB_2),
            register("web.2", scope=f"web-{number}", digest=DIGEST),
            T0,
            rules=RULES,
        )
        assert isinstance(said[0], ReleaseRegistered)
        row = step_pins(row, said[0], T0)

    with pytest.raises(StillPinned, match=r"web-0, .* and 2 more want\. Promote another"):
        step_pins(row, ReleaseOffered("web.2", DIGEST, "Deleted"), T0)


def test_names_three_hosts_and_counts_the_others() -> None:
    refusal = StillPinned(
        "web.1", 1, ("prod",), proposed=False, hosts=("a", "b", "c"), host_count=7
    )

    assert refusal.detail == (
        "web.1 can't be deleted: it is what prod wants, and a, b, c and 4 more run it. "
        "Promote another release there first: tidegate channel promote prod RELEASE"
    )


def test_counts_a_pin_on_the_new_release_and_no_longer_on_the_old() -> None:
    said = decide_register((None, None, WEB_2), register("web.2", digest=DIGEST), T0, rules=RULES)
    registered = said[0]
    assert isinstance(registered, ReleaseRegistered)
    actual = step_actual(None, registered, T0)
    confirmed, moved = (
        decide_transition(
            (actual, None, release),
            transition(release.release_id, 0, "c1", digest=DIGEST),
            T0,
            rules=RULES,
        )[0]
        for release in (WEB_2, WEB_3)
    )

    assert pin_ids(registered) == ("web.2",)
    assert step_pins(ReleasePins("web.2"), registered, T0).pins == 1
    assert isinstance(confirmed, ReleaseTransitioned)
    assert pin_ids(confirmed) == ()
    assert isinstance(moved, ReleaseTransitioned)
    assert pin_ids(moved) == ("web.3", "web.2")
    assert step_pins(ReleasePins("web.3", 4), moved, T0).pins == 5
    assert step_pins(ReleasePins("web.2", 4), moved, T0).pins == 3
