"""The policy of a channel that is created without one: a careful one, written out in full.

The defaults of ``ChannelPolicy`` define what an absent member of a stored policy means, so they
never change. This module decides instead what a new channel gets, where a policy is read.
"""

from __future__ import annotations

from typing import Any, Final

from tidegate.domain.channels.facts import ChannelPolicy, WaveSpec
from tidegate.domain.hosts.states import OnFailure

OFFLINE_GRACE_SECONDS: Final = 900
CONVERGED_MIN: Final = 1
DEFAULT_WAVES: Final = (
    WaveSpec(name="canary", count=1, soak_seconds=300, converged_min=CONVERGED_MIN),
    WaveSpec(name="early", percent=10, soak_seconds=300, converged_min=CONVERGED_MIN),
    WaveSpec(name="rest", soak_seconds=60, converged_min=CONVERGED_MIN),
)
DEFAULT_POLICY: Final = ChannelPolicy(
    waves=DEFAULT_WAVES, on_failure=OnFailure.ROLLBACK, offline_grace_seconds=OFFLINE_GRACE_SECONDS
)


def example() -> dict[str, Any]:
    """Return the default policy as a person would write it, with every member that it sets."""
    waves = []
    for wave in DEFAULT_WAVES:
        size = {"count": wave.count, "percent": wave.percent}
        waves.append(
            {"name": wave.name}
            | {name: number for name, number in size.items() if number is not None}
            | {"soak_seconds": wave.soak_seconds, "converged_min": wave.converged_min}
        )
    return {
        "waves": waves,
        "on_failure": str(DEFAULT_POLICY.on_failure),
        "offline_grace_seconds": DEFAULT_POLICY.offline_grace_seconds,
    }
