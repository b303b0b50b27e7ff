"""The generated pages of docs/reference: complete, correct, and up to date with the code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.docs import reference
from tests.docs.blocks import ROOT, blocks_of
from tests.source_tree import own_errors
from tidegate import config, decoders
from tidegate.agent import config as agent_config
from tidegate.api.routes import ROUTES
from tidegate.api.routes.channels import PolicyGiven
from tidegate.cli.exit_codes import FAMILIES, exit_code_of_status
from tidegate.domain.access.roles import Role, Verb
from tidegate.domain.access.steps import STEPS
from tidegate.domain.channels import facts
from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, WaveSpec
from tidegate.domain.channels.policy import check_policy
from tidegate.domain.channels.refusals import MalformedPolicy
from tidegate.domain.notifications.events import EVENTS
from tidegate.domain.releases.slices import check_operations
from tidegate.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from tidegate.web.problems import InternalError, status_of

SENTENCE: Final = re.compile(r"[A-Z0-9`].* .*[.?)`]", re.DOTALL)
RANGE: Final = re.compile(r"^([\d,]+) (?:to ([\d,]+)|or more)")
SOURCE: Final = ROOT / "src" / "tidegate"


def test_the_openapi_document_is_up_to_date() -> None:
    written = (reference.PLACE / reference.OPENAPI).read_text()

    assert written == reference.openapi_document(), "run python -m tests.docs.reference"


def entries() -> Iterator[tuple[str, str]]:
    """Everything that a page lists, with the page's text about it."""
    members = (
        *(("setting", one) for one in reference.server_settings()),
        *(("target", one) for one in reference.target_settings()),
        *(("agent", one) for one in reference.agent_settings()),
        *(("agent channel", one) for one in reference.agent_channel_settings()),
    )
    for where, member in members:
        yield f"{where} {member.name}", member.meaning
    for struct in reference.POLICY_LIMITS:
        for member in reference.policy_members(struct):
            yield f"{struct.__name__}.{member.name}", member.meaning
    for choice in (facts.EdgeRequires, Verb, Role):
        for value, words in reference.enum_meanings(choice).items():
            yield f"{choice.__name__} {value}", words
    for metric in (*reference.server_metrics(), *reference.worker_metrics()):
        yield metric.name, metric.meaning
    for name, words in reference.step_meanings().items():
        yield f"step {name}", words
    for route in ROUTES:
        yield route.name, route.summary
    for entry in reference.error_entries():
        yield f"error {entry.code}", entry.meaning


def test_the_pages_equal_the_generated_ones() -> None:
    """To update them: python -m tests.docs.reference."""
    outdated = [
        name
        for name, text in reference.pages().items()
        if not (reference.PLACE / name).exists() or (reference.PLACE / name).read_text() != text
    ]

    assert outdated == [], "run: .venv/bin/python -m tests.docs.reference"


def test_every_entry_has_a_sentence() -> None:
    silent = [name for name, words in entries() if not SENTENCE.fullmatch(words)]

    assert silent == [], "write it in the string below the member, or in the docstring"


def test_lists_every_setting() -> None:
    assert [one.name for one in reference.server_settings()] == list(config.NAMES)
    for struct, found in (
        (config.TargetSetting, reference.target_settings()),
        (agent_config.AgentSettings, reference.agent_settings()),
        (agent_config.ChannelSettings, reference.agent_channel_settings()),
    ):
        assert tuple(one.name for one in found) == struct.__struct_fields__


def test_lists_every_step_under_a_known_scope() -> None:
    meanings = reference.step_meanings()

    assert sorted(meanings) == sorted(STEPS)
    assert {name.partition(".")[0] for name in STEPS} == set(reference.SCOPE_OF_NOUN)
    assert set(reference.SCOPE_OF_STEP) <= set(STEPS)


def test_lists_every_error_and_every_route() -> None:
    page = reference.errors_page()
    routes = reference.routes_page()

    assert [error for error in own_errors() if f"| `{error.code}` |" not in page] == []
    assert [route.name for route in ROUTES if f"| `{route.name}` |" not in routes] == []


def metric_names(path: Path) -> Iterator[str]:
    """The metrics that a module creates."""
    text = path.read_text()
    if "prometheus_client" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Constant(value=str(name)) if re.fullmatch(r"tidegate_[a-z_]+", name):
                yield name


def test_lists_every_metric_that_the_source_makes() -> None:
    made = {name for path in SOURCE.rglob("*.py") for name in metric_names(path)}
    listed = (*reference.server_metrics(), *reference.worker_metrics())

    assert made == {one.name.removesuffix("_total") for one in listed}


def test_names_the_exit_code_that_a_command_ends_with() -> None:
    """Whether a server sent the error or the command's own process raised it."""
    served_only = ("tidegate.web.", "tidegate.api.")
    differing = [
        error.code
        for error in own_errors()
        if not error.__module__.startswith(served_only)
        for kind in (Invalid, NotFound, Refused, Conflict, Unavailable)
        if issubclass(error, kind) and FAMILIES[kind] is not exit_code_of_status(status_of(error))
    ]

    assert differing == []


# ── the policy ────────────────────────────────────────────────────────────────────────────────────


def example() -> dict[str, Any]:
    blocks = blocks_of(reference.PLACE / "policy.md")
    found: dict[str, Any] = json.loads(next(one.text for one in blocks if one.language == "json"))
    return found


def test_shows_a_policy_that_the_server_accepts() -> None:
    decoders.convert(example(), PolicyGiven)
    policy = decoders.convert(example(), ChannelPolicy)

    check_policy("web-prod", policy)
    check_operations(policy.operations)
    assert len(policy.waves) == 3


def bounds() -> Iterator[tuple[type[Any], str, int, int | None]]:
    for struct in reference.POLICY_LIMITS:
        for member in reference.policy_members(struct):
            if found := RANGE.match(member.allowed):
                low, high = (text and int(text.replace(",", "")) for text in found.groups())
                yield struct, member.name, int(low or 0), high or None


def policy_with(struct: type[Any], name: str, value: int) -> ChannelPolicy:
    if struct is WaveSpec:
        return ChannelPolicy(waves=(replace(WaveSpec(), **{name: value}),))
    if struct is ChannelEdge:
        return ChannelPolicy(edges=(replace(ChannelEdge("dev"), **{name: value}),))
    return replace(ChannelPolicy(), **{name: value})


@pytest.mark.parametrize(("struct", "name", "low", "high"), list(bounds()))
def test_names_the_limits_that_are_checked(
    struct: type[Any], name: str, low: int, high: int | None
) -> None:
    check_policy("web", policy_with(struct, name, low))
    check_policy("web", policy_with(struct, name, 10**12 if high is None else high))
    for beyond in (low - 1, *([] if high is None else [high + 1])):
        with pytest.raises(MalformedPolicy):
            check_policy("web", policy_with(struct, name, beyond))


def test_names_a_limit_for_every_number_of_a_policy() -> None:
    numbers = {
        (struct, member.name)
        for struct in reference.POLICY_LIMITS
        for member in reference.policy_members(struct)
        if member.type.startswith("integer")
    }

    assert {(struct, name) for struct, name, _, _ in bounds()} == numbers


# ── the tool itself ───────────────────────────────────────────────────────────────────────────────


class Sample:
    first: int
    """What is
    first.
    """
    second: int = 2
    THIRD = 3
    """What is third."""


def test_reads_the_string_below_a_member() -> None:
    assert reference.sentences(Sample) == {"first": "What is first.", "THIRD": "What is third."}


def test_finds_the_family_of_an_error() -> None:
    assert reference.family_of(MalformedPolicy) == "invalid"
    assert reference.family_of(InternalError) == "none"


def test_lists_every_event_that_people_can_subscribe_to() -> None:
    page = (ROOT / "docs" / "notifications.md").read_text()
    rows = [f"| `{name}` | {found.severity} | {found.when} |" for name, found in EVENTS.items()]

    assert [row for row in rows if row not in page] == []
