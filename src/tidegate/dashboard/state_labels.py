"""The only table of how each state looks: its glyph, tone and word."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegate.dashboard.components import Chip
from tidegate.domain.hosts.states import HostState
from tidegate.domain.outbox.states import IntentState as OutboxState
from tidegate.domain.requests.states import RequestState
from tidegate.domain.rollouts.states import Outcome, RolloutState

UNORDERED: Final = Chip("ring", "none", "No order", "planned; no order was sent yet")
LEFT: Final = Chip("skip", "gone", "Skipped", "waived or skipped: it no longer counts")

HOSTS: Final[Mapping[HostState, Chip]] = MappingProxyType(
    {
        HostState.PENDING: Chip("dots", "idle", "Pending", "ordered; not acknowledged yet"),
        HostState.ACTIVATING: Chip("gear", "info", "Activating", "the switch runs"),
        HostState.SOAKING: Chip("hourglass", "soak", "Soaking", "activated; probes run"),
        HostState.CONVERGED: Chip("check", "good", "Converged", "runs the target, probes pass"),
        HostState.DEFERRED: Chip("moon", "calm", "Deferred", "staged until its next reboot"),
        HostState.FAILED: Chip("cross", "bad", "Failed"),
        HostState.REVERTED: Chip("undo", "back", "Rolled back", "runs again what ran before"),
    }
)
# The byte of a host in the encoded grid is its index in this list. The browser uses the same list.
GRID: Final = (
    ("unordered", UNORDERED),
    *((str(state), chip) for state, chip in HOSTS.items()),
    ("left", LEFT),
)
GRID_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {name: code for code, (name, _) in enumerate(GRID)}
)

ROLLOUTS: Final[Mapping[RolloutState, Chip]] = MappingProxyType(
    {
        RolloutState.OPENING: Chip("ring", "info", "Rolling out", "no host has its order yet"),
        RolloutState.ACTIVE: Chip("play", "info", "Rolling out", "hosts are switching or soaking"),
        RolloutState.CONVERGING: Chip(
            "half", "calm", "Rolling out", "all hosts so far are done; more waves follow"
        ),
        RolloutState.TERMINAL: Chip("check", "good", "Ended", "every host is done"),
        RolloutState.REVERTED: Chip(
            "undo", "back", "Stopped", "hosts failed and rolled back: you decide what is next"
        ),
        RolloutState.FAILED: Chip(
            "cross",
            "bad",
            "Stopped",
            "a host failed and did not roll back: you decide what is next",
        ),
        RolloutState.SUPERSEDED: Chip("arrow", "gone", "Replaced", "another release took over"),
        RolloutState.PRUNED: Chip("trash", "gone", "Pruned", "past its retention"),
    }
)
OUTCOMES: Final[Mapping[Outcome, Chip]] = MappingProxyType(
    {
        Outcome.SUCCEEDED: Chip("check", "good", "Succeeded", "hosts of the plan converged"),
        Outcome.EMPTY: Chip("ring", "gone", "No hosts", "no host ran it"),
        Outcome.FAILED: Chip("cross", "bad", "Failed", "it ended with hosts that failed"),
        Outcome.ROLLED_BACK: Chip("undo", "back", "Rolled back", "its hosts rolled back"),
        Outcome.ABORTED: Chip("stop", "gone", "Aborted", "an operator ended it"),
        Outcome.REPLACED: Chip("arrow", "gone", "Replaced", "another release took over"),
    }
)
HALTED: Final = Chip("stop", "bad", "Halted", "a host failed: no more orders are sent")
PAUSED: Final = Chip("pause", "warn", "Paused", "no order is sent until it is resumed")
DEGRADED: Final = Chip("warning", "warn", "Degraded", "a host regressed or failed after the end")
HELD: Final = Chip("lock", "warn", "Held")
FROZEN: Final = Chip("snow", "calm", "Frozen")
SILENT: Final = Chip("silent", "warn", "Silent")

LIFECYCLES: Final[Mapping[str, Chip]] = MappingProxyType(
    {
        "Draft": Chip("pencil", "idle", "Draft"),
        "Proposed": Chip("clock", "warn", "Proposed", "waits for approval"),
        "Published": Chip("check", "good", "Published", "immutable"),
        "DeletionProposed": Chip("trash", "back", "Deletion proposed"),
    }
)
OUTBOX: Final[Mapping[OutboxState, Chip]] = MappingProxyType(
    {
        OutboxState.PENDING: Chip("clock", "info", "Pending"),
        OutboxState.DONE: Chip("check", "good", "Done"),
        OutboxState.DEAD: Chip("cross", "bad", "Dead", "given up after its last attempt"),
        OutboxState.SUPERSEDED: Chip("arrow", "gone", "Replaced", "a newer promotion replaced it"),
        OutboxState.CANCELLED: Chip("ban", "gone", "Cancelled"),
    }
)
REQUESTS: Final[Mapping[RequestState, Chip]] = MappingProxyType(
    {
        RequestState.WAITING: Chip("clock", "warn", "Waiting", "not enough people approved it yet"),
        RequestState.APPROVED: Chip("half", "info", "Approved", "and not carried out yet"),
        RequestState.EXECUTED: Chip("check", "good", "Carried out"),
        RequestState.REJECTED: Chip("cross", "bad", "Rejected"),
        RequestState.WITHDRAWN: Chip("undo", "gone", "Withdrawn"),
        RequestState.EXPIRED: Chip("hourglass", "gone", "Expired"),
        RequestState.VOIDED: Chip("ban", "gone", "Void", "the channel changed meanwhile"),
        RequestState.TO_REVIEW: Chip("warning", "bad", "To review", "one person did it alone"),
        RequestState.REVIEWED: Chip("eye", "idle", "Reviewed"),
    }
)
HOST_STATUS: Final[Mapping[str, Chip]] = MappingProxyType(
    {
        "enrolled": Chip("check", "good", "Enrolled"),
        "revoked": Chip("key", "bad", "Revoked", "its key is no longer accepted"),
        "retired": Chip("moon", "gone", "Retired"),
    }
)
EVIDENCE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"high": ("idle", "complete"), "medium": ("idle", "partial"), "low": ("warn", "weak")}
)


def lifecycle(word: str) -> Chip:
    return LIFECYCLES.get(word, Chip("warning", "bad", word or "unknown"))


def evidence(kind: str, confidence: str) -> Chip:
    """On what evidence a release is pinned. It is never green: it says nothing about hosts."""
    tone, word = EVIDENCE.get(confidence, ("gone", "not judged"))
    return Chip("shield", tone, f"{kind.replace('_', ' ')}, {word}")
