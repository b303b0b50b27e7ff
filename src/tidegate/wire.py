"""JSON shapes that exist on HTTP alone; what stands in the domain travels as it is.

The server encodes them, the CLI and the agent decode them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

POSITION_MAX = 2**53 - 1
LIMIT_MAX = 500
LIMIT_DEFAULT = 100

Position = Annotated[int, Meta(ge=0, le=POSITION_MAX)]
Item = TypeVar("Item")


class Input(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends: a member that nobody declared is a fault, not noise."""


class Nothing(Input, frozen=True):
    """No members: a route without path, query or body has this in their place."""


NOTHING = Nothing()


class Paging(Input, frozen=True, kw_only=True):
    """How a list is read: page by page, each cursor from the page before."""

    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    next: Annotated[str, Meta(max_length=1_024)] = ""
    min_position: Position = 0


class Reading(Input, frozen=True, kw_only=True):
    """How one thing is read; ``min_position`` waits until the log is there."""

    min_position: Position = 0


class Listed(Struct, Generic[Item], frozen=True):
    """One page. ``next`` is the cursor of the page behind it; none: this is the last."""

    items: tuple[Item, ...]
    next: str | None = None


class Written(Struct, frozen=True):
    """A change that landed, where there is nothing more to show."""

    position: int


class FieldFault(Struct, frozen=True):
    """One thing wrong with a request: where, and why."""

    field: str
    detail: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """RFC 9457, with a stable code. Further members say what was found and what is allowed."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
    errors: tuple[FieldFault, ...] = ()


class CloudEvent(Struct, frozen=True):
    """An event of the log in the envelope of CloudEvents 1.0; ``id`` is its position."""

    specversion: str
    id: str
    source: str
    type: str
    time: datetime
    subject: str
    datacontenttype: str
    position: int
    kind: str
    schema: int
    tags: tuple[str, ...]
    actor: str
    data: msgspec.Raw


class Version(Struct, frozen=True):
    """What runs."""

    name: str
    version: str
    api: str
    epoch: int = 1  # grows when a backup is restored: what came after it is gone


class Check(Struct, frozen=True):
    """One thing that must hold for a server to be ready."""

    name: str
    ok: bool
    detail: str = ""


class Readiness(Struct, frozen=True):
    ready: bool
    checks: tuple[Check, ...]


class Alive(Struct, frozen=True):
    alive: bool = True


Facts = dict[str, Any]
