"""Random walks of the rollout engine: no rule is violated, explain names every wait, replay is
equal.

A long run has 5,000 of them. ``python -m bench walks`` runs the same ones, by ranges of seeds.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from msgspec.structs import fields

from tests.quick import more
from tests.simulation.mutants import planted
from tests.simulation.walks import Walk, WalkingOperator, draw_walk, walk
from tidegate.domain.channels.facts import ChannelEdge, ChannelPolicy, WaveSpec
from tidegate.domain.gates import gate_waits
from tidegate.domain.gates.checks import GATES
from tidegate.simulate.violations import InvariantViolation
from tidegate.simulate.world import World

WALKS = more(10, long=5_000)
CHUNK = 5

PURE = "the machines and folds are the same on every engine; engines run some seeds of their own"
NOT_WALKED = {"operations"}  # outbox effects of a promotion delay no rollout
MET_IN = (45, 13, 6, 38, 0, 595, 19)  # seeds that cover everything, tried first
SEEDS_MAX = 60


@pytest.mark.req("RO-3", engines=None, reason=PURE)
@pytest.mark.req("RO-12", engines=None, reason=PURE)
@pytest.mark.req("OP-10", engines=None, reason=PURE)
@pytest.mark.parametrize("first", range(0, WALKS, CHUNK))
def test_explain_names_every_wait_and_replay_is_equal_on_random_walks(first: int) -> None:
    for seed in range(first, first + CHUNK):
        walk(seed)


@pytest.mark.long
def test_walks_use_every_verb_and_meet_every_gate_and_policy_member() -> None:
    """The walks above would also end well with an operator who does nothing."""
    world = World(draw_walk(0), operator=WalkingOperator)
    assert isinstance(world.operator, WalkingOperator)
    members = {field.name for kind in (ChannelPolicy, WaveSpec) for field in fields(kind)}
    members |= {field.name for field in fields(ChannelEdge)}
    unmet = {*world.operator.verbs, *(gate.name for gate in GATES), *(members - NOT_WALKED)}
    for seed in dict.fromkeys((*MET_IN, *range(SEEDS_MAX))):
        unmet -= _met(walk(seed))
        if not unmet:
            break

    assert unmet == set()


def _met(found: Walk) -> set[str]:
    return {*found.verbs, *found.gates, *found.members}


def _first_violation() -> str:
    """Return the message of the first walk that violates a rule."""
    for seed in range(SEEDS_MAX):
        try:
            walk(seed)
        except InvariantViolation as violation:
            return str(violation)
    return ""


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "sign"),
    [
        ("edge_opened_by_an_idle_channel", "OP-2"),
        ("stops_not_seen_by_rows", "DispatchReserved while"),
    ],
)
def test_walks_find_a_planted_bug(bug: str, sign: str) -> None:
    with planted(bug):
        assert sign in _first_violation()


@pytest.mark.long
def test_walks_notice_a_wait_that_explain_does_not_name() -> None:
    """Without the waits at gates, nothing would explain why a held rollout does not proceed."""
    with patch.object(gate_waits, "list_gate_waits", lambda look, state, rollout_id: ()):
        assert "OP-10: nothing says why" in _first_violation()


def test_a_walk_is_determined_by_its_seed() -> None:
    first, again = walk(3), walk(3)

    assert (first.ended.trace, first.verbs) == (again.ended.trace, again.verbs)
    assert first.ended.trace != walk(4).ended.trace
