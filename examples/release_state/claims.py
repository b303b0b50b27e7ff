"""Documents of provenance and confidence, as a claimant of authority builds them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidegate.kernel import codec

Document = dict[str, Any]


def by_operator(scope: str, release_id: str, now: datetime) -> Document:
    """Build a claim by an operator: native, so no other evidence is needed."""
    said = {
        "kind": "operator_command",
        "ref": f"operator://deploy/{scope}/{release_id}",
        "observed_at": codec.time_text(now),
    }
    return {
        "provenance": {
            "mode": "native",
            "system": "release-control-plane",
            "recorded_at": codec.time_text(now),
            **said,
            "evidence": [{"source": "release-control-plane", **said}],
        },
        "confidence": {"level": "high", "reasons": ["operator_command_authority"]},
    }


def by_pipeline(execution: str, digest: str, now: datetime) -> Document:
    """Build a claim by a pipeline that did it and observed it: the digest binds it to the
    content.
    """
    said = {
        "kind": "codepipeline_execution",
        "ref": f"pipeline://{execution}",
        "observed_at": codec.time_text(now),
        "digest": digest,
    }
    return {
        "provenance": {
            "mode": "native",
            "system": "service-ci",
            "recorded_at": codec.time_text(now),
            **said,
            "evidence": [{"source": "service-ci", **said}],
        },
        "confidence": {"level": "high", "reasons": ["codepipeline_execution_authority"]},
    }
