"""The checklists of CONTRIBUTING.md: an addition is complete when it has its tests and pages.

Each test looks for a name in the files that the checklist of its kind requires. ``EXEMPT`` and
``OWN_NAME`` list what needs no entry, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.browser import samples
from tests.source_tree import own_errors
from tests.test_tidy import NOUNS
from tidegate.api.routes import ROUTES
from tidegate.dashboard.components import NAV
from tidegate.domain.access import steps
from tidegate.domain.access.steps import Step
from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, WaveSpec
from tidegate.domain.composition import FACTS, SLICES

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "src" / "tidegate" / "dashboard" / "templates"
TESTS = ("tests/**/*.py", "tests/**/*.txt")

EXEMPT = {
    # Not a verb of its own: it widens or narrows another one, whose cases cover it.
    "BREAK_GLASS",
    "CARRY_OUT_DELETION",
    "DELETE_OPEN",
    # Reads, which tests/api/permission_table.txt lists.
    "READ_REVISION",
    "READ_SUBSCRIPTION",
    # Parts of pages; test_page_walk and test_simulation render them.
    "held_hosts.html",
    "simulation.html",
    # Times of a host's own steps: simulated hosts use the defaults.
    "ack_seconds",
    "activation_seconds",
    "convergence_seconds",
    "deferral_seconds",
    "rollback_seconds",
    "sustained_failure_seconds",
    "topology_seconds",
    # It reads windows, and simulated fleets have none.
    "must_fit",
    # The worker does it, and simulated control planes have none.
    "auto_promote",
    "auto_rollback",
}
# Facts whose name is clear enough: event_text.py splits it into words.
OWN_NAME = frozenset(
    {
        "BudgetRemoved",
        "BudgetSet",
        "CredentialsVoided",
        "EpochStarted",
        "EvidenceKept",
        "GenerationPublished",
        "HostJoined",
        "HostLabelled",
        "InstallationSetUp",
        "IntentCancelled",
        "IntentSuperseded",
        "NoticesDropped",
        "PackageEmptied",
        "PackageImported",
        "PackageStarted",
        "PasswordChanged",
        "PointerSwapped",
        "PublicationInvalidated",
        "ReconciliationRefused",
        "RecordRepaired",
        "RecoveryActivationAssumed",
        "ReleaseOffered",
        "ReleaseRetired",
        "ReplayFinished",
        "ReplayRequested",
        "RepositoryChanged",
        "RepositoryCreated",
        "RequestFailed",
        "RequestStarted",
        "RetentionExpired",
        "RevisionConditionsChanged",
        "RevisionDeleted",
        "RevisionDeletionProposed",
        "RevisionDeletionRejected",
        "RevisionDeletionStarted",
        "RevisionGatesChanged",
        "RevisionMetadataChanged",
        "RevisionTaskAdded",
        "RowsCollected",
        "UserErased",
    }
)


@cache
def words_of(*places: str) -> frozenset[str]:
    """All words in the files that match these patterns, except this file."""
    found: set[str] = set()
    for place in places:
        for path in ROOT.glob(place):
            if path != Path(__file__):
                found.update(re.findall(r"[\w-]+", path.read_text("utf-8")))
    return frozenset(found)


def missing(names: Iterable[str], *places: str) -> list[str]:
    """The names that are in no file of these places, although they must be."""
    return sorted(set(names) - words_of(*places) - EXEMPT)


def demand_none(names: Iterable[str], advice: str) -> None:
    """Fail with the names and with what to do about them."""
    found = sorted(names)
    assert not found, f"{', '.join(found)}: {advice}"


def test_every_slice_runs_in_some_test() -> None:
    """Some test names the command, or everything that the slice writes."""
    untested = {
        item.name
        for item in SLICES
        if missing([item.command.__name__], *TESTS)
        and missing([kind.__name__ for kind in item.writes], *TESTS)
    }

    demand_none(untested, "run the command in tests/domain/test_<noun>.py")


def test_every_slice_is_named_on_a_page() -> None:
    unnamed = missing((item.name for item in SLICES), "docs/*.md", "docs/design/*.md")

    demand_none(unnamed, "add the slice to the table of slices in docs/design/<noun>.md")


def test_every_fact_has_a_text_for_people() -> None:
    names = {item.name for item in FACTS} - OWN_NAME

    unsaid = missing(names, "src/tidegate/dashboard/event_text.py")
    demand_none(unsaid, "add a case to src/tidegate/dashboard/event_text.py")


def test_names_only_facts_that_exist() -> None:
    demand_none(OWN_NAME - {item.name for item in FACTS}, "no such fact; take it out of OWN_NAME")


def test_every_error_occurs_in_some_test() -> None:
    shown = words_of(*TESTS)
    leaves = {error for error in own_errors() if not error.__subclasses__()}

    unseen = {e.__name__ for e in leaves if not {e.__name__, e.code} & shown}
    demand_none(unseen, "let a test name the class or its code where the error is raised")


def test_every_step_is_tested_through_each_door() -> None:
    names = {name for name, value in vars(steps).items() if isinstance(value, Step)}

    untaken = missing(names, "tests/verbs/*.py")
    demand_none(untaken, "add a Verb and its cases to tests/verbs/test_<noun>_verbs.py")


def test_every_route_is_named_on_a_page() -> None:
    """As a whole, or all its parts as code in one line, such as `/v1/channels` and `hold`."""
    pages = [(ROOT / "docs" / name).read_text("utf-8") for name in ("api.md", "agent-protocol.md")]
    lines = [code_in(line) for page in pages for line in page.splitlines()]

    unnamed = {
        route.name
        for route in ROUTES
        if not any(route.path in page for page in pages)
        and not any(fixed_parts(route.path) <= words for words in lines)
    }
    demand_none(unnamed, "add the path to the table of its noun in docs/api.md")


def code_in(line: str) -> frozenset[str]:
    """The words of a line of Markdown that are marked as code."""
    return frozenset(re.findall(r"[\w.-]+", " ".join(re.findall(r"`([^`]+)`", line))))


def fixed_parts(path: str) -> frozenset[str]:
    return frozenset(part for part in path.split("/") if part and "{" not in part)


def test_words_of_a_sentence_do_not_count_as_a_route() -> None:
    line = "| `/v1/channels/{channel}` and `hold` | a note on the policy |"

    assert fixed_parts("/v1/channels/{channel}/hold") <= code_in(line)
    assert not fixed_parts("/v1/channels/{channel}/note") <= code_in(line)


def test_every_template_has_a_sample() -> None:
    drawn = {template for template, _, _ in samples.SCREENS.values()}
    used = "".join(path.read_text("utf-8") for path in TEMPLATES.iterdir())
    included = set(re.findall(r"{% *(?:import|include|extends|from) *\"([\w.]+)\"", used))

    names = {path.name for path in TEMPLATES.iterdir()}
    undrawn = names - drawn - included - EXEMPT
    demand_none(undrawn, "add a sample view to SCREENS of tests/browser/samples.py")


def test_the_page_of_the_dashboard_names_every_screen_and_its_key() -> None:
    page = (ROOT / "docs" / "dashboard.md").read_text("utf-8")
    items = [item for _, group in NAV for item in group]

    words = [word for item in items for word in (item.href, f"g {item.key}")]
    unnamed = [word for word in words if f"`{word}`" not in page]
    demand_none(unnamed, "add the screen and its key to docs/dashboard.md")


@pytest.mark.parametrize("struct", [ChannelPolicy, WaveSpec, ChannelEdge])
def test_every_member_of_a_policy_is_documented_tested_and_simulated(
    struct: type[ChannelPolicy],
) -> None:
    members = struct.__struct_fields__

    write = "run: .venv/bin/python -m tests.docs.reference"
    demand_none(missing(members, "docs/reference/policy.md"), write)
    demand_none(missing(members, "tests/domain/*.py"), "test it in tests/domain")
    unplayed = missing(members, "src/tidegate/simulate/*.py")
    demand_none(unplayed, "draw it in src/tidegate/simulate/scenario.py")


def test_the_order_of_imports_names_every_noun() -> None:
    tour = " ".join((ROOT / "docs" / "tour.md").read_text("utf-8").split())

    order = ", ".join(noun for noun in NOUNS)
    assert f"lowest first: {order}." in tour, f"docs/tour.md must list the nouns: {order}"


def test_a_failure_says_how_to_add_what_is_missing() -> None:
    with pytest.raises(AssertionError, match=r"^HostLost, HostTeleported: add a page"):
        demand_none(["HostTeleported", "HostLost"], "add a page")

    demand_none([], "add a page")


def test_sees_what_is_missing() -> None:
    assert missing(["HostTeleported", "HostJoined"], "src/tidegate/domain/**/*.py") == [
        "HostTeleported"
    ]
