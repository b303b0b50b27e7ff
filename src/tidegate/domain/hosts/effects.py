"""What a step of the host machine asks for, as values.

    FireSwitch, FireRollbackTo, ResetProbeCache          the agent does it, the control plane not
    RecordTransition, InsertQuarantine, QueueDispatch    the control plane does it, the agent not

Both sides step the same function and get the same values; each acts on its own.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from tidegate.domain.hosts.states import HostState


class FireSwitch(Struct, frozen=True):
    """Activate the target, once the control plane took the acknowledgement."""

    target: str


class FireRollbackTo(Struct, frozen=True):
    """Activate again what ran before."""

    closure: str


class ResetProbeCache(Struct, frozen=True):
    """Forget what probes said of an earlier activation."""


class RecordTransition(Struct, frozen=True):
    """Tell the rollout. ``from_`` = ``to``: the state stayed, something else about it changed."""

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
