"""Base classes of what clients send: strict structs for paths, queries and bodies."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

POSITION_MAX = 2**53 - 1


LIMIT_MAX = 500


LIMIT_DEFAULT = 100


Position = Annotated[int, Meta(ge=0, le=POSITION_MAX)]


class Input(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends. An unknown member is an error."""


class Nothing(Input, frozen=True):
    """No members: for routes without a path parameter, query or body."""


NOTHING = Nothing()


class Paging(Input, frozen=True, kw_only=True):
    """How to read a list: page by page, with the cursor of the page before."""

    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    next: Annotated[str, Meta(max_length=1_024)] = ""
    min_position: Position = 0


class ReadQuery(Input, frozen=True, kw_only=True):
    """How to read one thing; ``min_position`` waits until the log reaches that position."""

    min_position: Position = 0
