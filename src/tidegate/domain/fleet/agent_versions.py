"""Which agents are too old: the lowest version that this server fully supports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

AGENT_VERSION_MIN: Final = "0.2.0"
OLD_AGENTS_COMMAND: Final = "tidegate host list --old-agent"
NAMED_MAX: Final = 5

_NUMBERS = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")


def is_too_old(agent_version: str) -> bool:
    """Whether an agent of this version should be upgraded.

    A text that is not a version is accepted: the agent may be another program.
    """
    found, least = _NUMBERS.match(agent_version), _NUMBERS.match(AGENT_VERSION_MIN)
    assert least is not None
    if found is None:
        return False
    return _to_tuple(found) < _to_tuple(least)


def _to_tuple(found: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(number or 0) for number in found.groups())


def old_agents_text(host_ids: Sequence[str]) -> str:
    """Build the sentence that names the first few hosts with such agents."""
    count = len(host_ids)
    named = ", ".join(host_ids[:NAMED_MAX]) + (", …" if count > NAMED_MAX else "")
    runs = "1 host runs" if count == 1 else f"{count} hosts run"
    return f"{runs} an agent older than {AGENT_VERSION_MIN}: {named}"
