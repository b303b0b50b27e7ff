"""What clients send: strict structs for paths, queries and bodies."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

POSITION_MAX = 2**53 - 1


LIMIT_MAX = 500


LIMIT_DEFAULT = 100


Position = Annotated[int, Meta(ge=0, le=POSITION_MAX)]


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


class ReadQuery(Input, frozen=True, kw_only=True):
    """How one thing is read; ``min_position`` waits until the log is there."""

    min_position: Position = 0
