"""The effects of a step of the host machine, as values.

    FireSwitch, FireRollbackTo, ResetProbeCache          carried out by the agent
    RecordTransition, InsertQuarantine, QueueDispatch    carried out by the control plane

Both sides step the same function and get the same effects; each carries out its own.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.hosts.states import HostState


class FireSwitch(Struct, frozen=True):
    """Activate the target, after the control plane has accepted the acknowledgement."""

    target: str


class FireRollbackTo(Struct, frozen=True):
    """Activate what ran before."""

    closure: str


class ResetProbeCache(Struct, frozen=True):
    """Forget the probe results of an earlier activation."""


class RecordTransition(Struct, frozen=True):
    """Tell the rollout. If ``from_`` equals ``to``, something other than the state changed."""

    host_id: str
    rollout_id: str
    from_: HostState
    to: HostState
    at: datetime


class InsertQuarantine(Struct, frozen=True):
    """Do not dispatch this closure on the channel again."""

    channel: str
    closure_hash: str


class QueueDispatch(Struct, frozen=True):
    """Hand the order to the host's agent."""

    host_id: str
    rollout_id: str
    attempt: int


Effect = (
    FireSwitch | FireRollbackTo | ResetProbeCache | RecordTransition | InsertQuarantine
) | QueueDispatch
