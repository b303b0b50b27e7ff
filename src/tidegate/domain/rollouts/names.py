"""A rollout's id: the channel, the release, and a number if it is not the first such rollout.

web-stable@web.3        the first rollout of web.3 on web-stable
web-stable@web.3~2      the second one
"""

from __future__ import annotations

import re
from typing import Final

from tidegate.errors import InvalidInput

ROLLOUT_ID: Final = re.compile(r"(?P<channel>[a-z0-9-]+)@(?P<ref>[a-z0-9.-]+)(~(?P<n>[0-9]+))?")
ROLLOUT_ID_BYTES_MAX = 300


def rollout_id(channel: str, channel_ref: str, incarnation: int = 1) -> str:
    """Build the id of a rollout; no other function does. Raises: InvalidInput."""
    named = f"{channel}@{channel_ref}" + (f"~{incarnation}" if incarnation > 1 else "")
    check_rollout_id(named)
    return named


def later_prefix(channel: str, channel_ref: str) -> str:
    """Return the prefix of the ids of all but the first rollout of a release on a channel."""
    return f"{channel}@{channel_ref}~"


def check_rollout_id(text: str) -> None:
    """Raises: InvalidInput: this is not the id of a rollout."""
    if len(text) > ROLLOUT_ID_BYTES_MAX or not ROLLOUT_ID.fullmatch(text):
        raise InvalidInput(
            f"a rollout is named channel@ref or channel@ref~n, found {text[:80]!r}",
            field="rollout_id",
        )


def channel_of(text: str) -> str:
    """Return the channel that a rollout's id names. Raises: InvalidInput."""
    check_rollout_id(text)
    return text.partition("@")[0]


def ref_of(text: str) -> str:
    """Return the release that a rollout's id names. Raises: InvalidInput."""
    check_rollout_id(text)
    return text.partition("@")[2].partition("~")[0]
