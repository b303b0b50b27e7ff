"""The table of steps: each verb of an operator, who may take it, and what it asks of a request.

API routes, dashboard forms and the operations themselves read this table, so that a permission is
written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from tidegate.domain.access.roles import Verb


class VersionRule(Enum):
    """Whether a request names the version that its client saw."""

    IGNORED = "ignored"
    CHECKED = "checked"  # if it is given
    DEMANDED = "demanded"  # 428 without one


class Step(Struct, frozen=True, kw_only=True):
    """One verb of an operator."""

    name: str  # noun.verb
    verbs: tuple[Verb, ...]  # one of them is needed, on the scope that the arguments name
    version: VersionRule = VersionRule.IGNORED
    urgent: bool = False  # it stops something: it has a rate limit of its own


def _steps(steps: Iterable[Step]) -> Mapping[str, Step]:
    return MappingProxyType({step.name: step for step in steps})


OPERATE = (Verb.OPERATE,)
RELEASE = (Verb.RELEASE,)
CHECKED = VersionRule.CHECKED

PAUSE_ROLLOUT: Final = Step(name="rollout.pause", verbs=OPERATE, version=CHECKED, urgent=True)
RESUME_ROLLOUT: Final = Step(name="rollout.resume", verbs=OPERATE, version=CHECKED)
ABORT_ROLLOUT: Final = Step(name="rollout.abort", verbs=OPERATE, version=CHECKED, urgent=True)
CLEAR_ROLLOUT: Final = Step(name="rollout.clear", verbs=OPERATE, version=CHECKED)
RETRY_ROLLOUT: Final = Step(name="rollout.retry", verbs=OPERATE, version=CHECKED)
PROMOTE: Final = Step(name="channel.promote", verbs=RELEASE, version=CHECKED)
ROLL_BACK: Final = Step(name="channel.rollback", verbs=RELEASE, version=CHECKED)

STEPS: Final = _steps(
    (
        PAUSE_ROLLOUT,
        RESUME_ROLLOUT,
        ABORT_ROLLOUT,
        CLEAR_ROLLOUT,
        RETRY_ROLLOUT,
        PROMOTE,
        ROLL_BACK,
    )
)
