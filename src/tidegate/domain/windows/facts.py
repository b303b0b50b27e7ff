"""What happens to a maintenance window: it is set, with all of its members, or deleted.

The string below a member of a window is its entry in docs/windows.md.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Struct

from tidegate.kernel import tags, vocabulary

LABEL: Final = "label:"  # prefix of a zone that is taken from a host's label


class WindowKind(StrEnum):
    """What a window does while one of its occurrences lasts."""

    ALLOW = "allow"
    """Hosts that it covers get orders only during an occurrence of an allow window."""
    DENY = "deny"
    """Hosts that it covers get no order during an occurrence."""


class WindowTimes(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The times of a window, whatever it covers."""

    start: str
    """Local date and time of the first occurrence, without an offset: `2026-11-17T02:00`."""
    duration_seconds: int
    """How long an occurrence lasts in real seconds, whatever clocks do meanwhile: 300 to 604,800.
    """
    rule: str = ""
    """A recurrence rule of RFC 5545: FREQ (DAILY, WEEKLY, MONTHLY or YEARLY), INTERVAL, BYDAY,
    BYMONTHDAY, BYMONTH, BYSETPOS, and UNTIL in UTC. Empty: the window occurs once.
    """
    except_dates: tuple[str, ...] = ()
    """Local dates. An occurrence that starts on one of them is left out."""


class WindowSpec(WindowTimes, frozen=True, omit_defaults=True, kw_only=True):
    """The members of a window that decide something."""

    window_id: str
    kind: WindowKind
    channels: tuple[str, ...] = ()
    """The channels that it covers. None: all."""
    repositories: tuple[str, ...] = ()
    """It covers only channels that carry a package of these repositories. None: all."""
    hosts: str = "*"
    """It covers only hosts that match this selector."""
    zone: str = "UTC"
    """The time zone of `start`: an IANA name such as `Europe/Berlin`, or `label:tz`, which is the
    zone that each host's label `tz` names.
    """
    zone_default: str | None = None
    """The zone of hosts whose label is missing or names no zone. Without it an allow window is
    shut for these hosts, and a deny window lasts.
    """


class WindowSet(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A window was created or edited, with all of its members."""

    window_id: Annotated[str, tags.Partition()]
    operator: str
    reason: str
    at: datetime
    window: Annotated[WindowSpec, tags.Untagged()]
    left_channels: Annotated[tuple[str, ...], tags.Untagged()] = ()  # no longer named
    left_all: bool = False  # whether it covered all channels before, and names some now


class WindowDeleted(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The window was deleted."""

    window_id: Annotated[str, tags.Partition()]
    operator: str
    reason: str
    at: datetime
    channels: Annotated[tuple[str, ...], tags.Untagged()] = ()  # that it named; none: all


FACTS = vocabulary.facts("fleet", WindowSet, WindowDeleted)
