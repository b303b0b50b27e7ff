"""Ids of what an operation creates."""

from __future__ import annotations

import secrets
from hashlib import sha256

from tidegate.domain.access import callers, steps

ID_CHARS = 26


def make_id(caller: callers.Caller, step: steps.Step, purpose: str = "") -> str:
    """Make a new id; a repeat under the same idempotency key gets the same one."""
    if caller.key is None:
        return secrets.token_hex(ID_CHARS // 2)
    parts = "\n".join((caller.id, step.name, caller.key, purpose))
    return sha256(parts.encode()).hexdigest()[:ID_CHARS]
