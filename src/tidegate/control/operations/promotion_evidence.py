"""The evidence that Tidegate itself gives for a pin: an operator's command, or a success."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidegate.domain import provenance


def operator_authority(channel: str, release_id: str, now: datetime) -> dict[str, Any]:
    """Make the evidence for a promotion by a person who has the permission."""
    at = _time_text(now)
    observation = {
        "ref": provenance.OPERATOR_REF.format(scope=channel, release_id=release_id),
        "observed_at": at,
    }
    source = "release-control-plane"
    return {
        "provenance": {
            "mode": "native",
            "system": source,
            "kind": provenance.OPERATOR_COMMAND,
            "recorded_at": at,
            **observation,
            "evidence": [{"kind": provenance.OPERATOR_COMMAND, "source": source, **observation}],
        },
        "confidence": {"level": provenance.HIGH, "reasons": ["operator_command_authority"]},
    }


def success_authority(rollout_id: str, digest: str, now: datetime) -> dict[str, Any]:
    """Make the evidence that a release succeeded on the channels of all edges, from one rollout."""
    at = _time_text(now)
    observation = {"ref": f"rollout://{rollout_id}", "observed_at": at, "digest": digest}
    kind, source = provenance.CHANNEL_SUCCESS.kind, provenance.CHANNEL_SUCCESS.source
    return {
        "provenance": {
            "mode": str(provenance.CHANNEL_SUCCESS.mode),
            "system": source,
            "kind": kind,
            "recorded_at": at,
            **observation,
            "evidence": [{"kind": kind, "source": source, **observation}],
        },
        "confidence": {"level": provenance.HIGH, "reasons": [provenance.CHANNEL_SUCCESS.reason]},
    }


def _time_text(now: datetime) -> str:
    return now.isoformat(timespec="microseconds").replace("+00:00", "Z")
