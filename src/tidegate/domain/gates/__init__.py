"""Gates: what an order must pass before it goes out, and why it does not.

sight       the rows that gates look at, and what they answer with
edges       what one channel edge says of a release
checks      each gate, in order
passes      a pass over a rollout: orders, skips, what to say in the log
explained   every gate's verdict, for whoever asks
"""

from __future__ import annotations

from tidegate.domain.gates.checks import GATES, UNSTAGED
from tidegate.domain.gates.dispatch_pass import (
    ASKED_AGAIN,
    ORDERS_MAX,
    gate_changes,
    glance,
    held_back,
    latecomers,
    next_dispatches,
    next_skips,
    survey,
)
from tidegate.domain.gates.explain import explain, judge
from tidegate.domain.gates.inputs import (
    Enlisted,
    Evidence,
    Explanation,
    Fault,
    FleetState,
    Given,
    Held,
    Latecomer,
    Order,
    Preceding,
    Seen,
    Sight,
    Skip,
    Standing,
    Survey,
    Verdict,
)

__all__ = [
    "ASKED_AGAIN",
    "GATES",
    "ORDERS_MAX",
    "UNSTAGED",
    "Enlisted",
    "Evidence",
    "Explanation",
    "Fault",
    "FleetState",
    "Given",
    "Held",
    "Latecomer",
    "Order",
    "Preceding",
    "Seen",
    "Sight",
    "Skip",
    "Standing",
    "Survey",
    "Verdict",
    "explain",
    "gate_changes",
    "glance",
    "held_back",
    "judge",
    "latecomers",
    "next_dispatches",
    "next_skips",
    "survey",
]
