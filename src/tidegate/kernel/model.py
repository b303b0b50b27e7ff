"""The values that cross the narrow waist between rules and storage.

    Commit = facts appended under boundaries + row writes guarded by versions + an idempotency key

Everything here is frozen and knows neither a domain nor a database. A tag is text ``key:value``;
the key holds no colon, so the first colon splits it. Nothing here can be part of a cycle, so the
garbage collector need not look (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, structs

from tidegate.errors import InvalidInput, LimitExceeded, UnfencedQuery

Position = int

ANY: Final = None  # in a clause: events of every type
ABSENT: Final[Position] = 0  # as an expected version: the row must not exist

POSITION_MAX = 2**53 - 1  # it travels in JSON, SSE ids and ETags
TYPE_BYTES_MAX = 128
TAG_BYTES_MAX = 256
TAGS_MAX = 64
COMPOSITE_TAGS_MAX = 6  # an exact set is one index name; DynamoDB allows 2,048 bytes
FACTS_MAX = 128  # per commit; on DynamoDB a position is n * 128 + ordinal
WRITES_MAX = 4_000
BODY_BYTES_MAX = 256 * 1024
ROW_BYTES_MAX = 350 * 1024
ID_BYTES_MAX = 512
COMMIT_BYTES_MAX = 3_500_000
CLAUSES_MAX = 64
CLAUSE_TYPES_MAX = 64
ONCE_KEY_BYTES_MAX = 128
META_BYTES_MAX = 1_024  # each member
ANSWER_BYTES_MAX = 64 * 1024
DIGEST_BYTES_MAX = 256
SCHEMA_MAX = 2**31 - 1
COST_MAX = 100  # storage items of one command or report, on every engine
SLOT_BYTES = 340_000  # of facts in one storage item; DynamoDB takes 409,600 with all around them
SLOT_FACT_BYTES = 512  # what a fact takes there beside body, tags and own meta, at most
ONCE_KEPT: Final = timedelta(days=30)
# Times of commits, so that whoever adds or subtracts a while from one stays inside the calendar.
TIME_MIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MAX: Final = datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
REMEMBERED_MAX = 8_192  # tag sets, and metas, that were found to be right


class Match(StrEnum):
    """How a clause's tags are compared with an event's."""

    EXACT = "exact"  # one tag: what is indexed under it; several: the event's whole tag set
    CONTAINS = "contains"  # the event carries at least these tags


class Clause(Struct, frozen=True, gc=False):
    """Events of some types under some tags. Tags are AND-ed; ``types=ANY`` means every type."""

    types: frozenset[str] | None
    tags: frozenset[str] = frozenset()
    match: Match = Match.EXACT

    def __post_init__(self) -> None:
        if self.types is not None:
            if not self.types:
                raise InvalidInput("a clause lists no event type; say ANY for every type")
            at_most("types of a clause", len(self.types), CLAUSE_TYPES_MAX)
        if self.match is Match.EXACT:
            at_most("tags of an exact clause", len(self.tags), COMPOSITE_TAGS_MAX)
        at_most("tags of a clause", len(self.tags), TAGS_MAX)
        for tag in self.tags:
            check_tag(tag)

    def __str__(self) -> str:
        types = "*" if self.types is None else "|".join(sorted(self.types))
        tags = " & ".join(sorted(self.tags)) or "no tag"
        return f"[{types} @ {tags}]" if self.match is Match.EXACT else f"[{types} @ ⊇ {tags}]"


class Query(Struct, frozen=True, gc=False):
    """Clauses, OR-ed. Never empty: an empty query has no one meaning."""

    clauses: tuple[Clause, ...]

    def __post_init__(self) -> None:
        if not self.clauses:
            raise InvalidInput("a query needs at least one clause; say ALL for every event")
        at_most("clauses of a query", len(self.clauses), CLAUSES_MAX)

    def __str__(self) -> str:
        return " or ".join(map(str, self.clauses))


class Meta(Struct, frozen=True, omit_defaults=True, gc=False):
    """Who caused a commit or a fact of it, and through what."""

    actor: str = ""
    on_behalf_of: str = ""
    request: str = ""
    cause: str = ""


NO_META: Final = Meta()


class Fact(Struct, frozen=True, gc=False):
    """An event before it has a position: encoded once, stored as these bytes, never made again."""

    kind: str
    type: str
    schema: int
    tags: tuple[str, ...]  # sorted, distinct
    body: bytes
    meta: Meta | None = None  # None: the commit's


class Event(Struct, frozen=True, gc=False):
    """A fact in the log."""

    position: Position
    at: datetime
    kind: str
    type: str
    schema: int
    tags: tuple[str, ...]
    meta: Meta
    body: bytes


class Boundary(Struct, frozen=True, gc=False):
    """What a decision depends on and how far it saw it. Made by ``Store.read`` alone."""

    query: Query
    seen: Any  # opaque: the engine that made it is the only one that reads it
    guard: Query | None = None  # observed too, where the page was empty

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """All that may not move: more than a caller may ask for in one query."""
        return self.query.clauses + (() if self.guard is None else self.guard.clauses)


class EventPage(Struct, frozen=True, gc=False):
    """Events in position order, and what a decision on them depends on."""

    events: tuple[Event, ...]
    guarded: Boundary | None = None  # None: the read cannot be guarded as a whole

    @property
    def has_boundary(self) -> bool:
        """Whether a decision may rest on this page."""
        return self.guarded is not None

    @property
    def boundary(self) -> Boundary:
        """What to hand to the commit of a decision that rests on this page.

        Raises:
            UnfencedQuery: the limit cut the page, or no index covers the query.
        """
        if self.guarded is None:
            raise UnfencedQuery(
                "this page has no boundary: its limit cut it, or no index covers its query as a"
                " condition; a decision on it could not be guarded"
            )
        return self.guarded


class Key(Struct, frozen=True, order=True, gc=False):
    """Where a row lives."""

    collection: str
    id: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.id}"


class Record(Struct, frozen=True, gc=False):
    """A row: ``version`` is the position that last wrote it, ``born`` the one that created it."""

    key: Key
    version: Position
    born: Position
    data: bytes


class Put(Struct, frozen=True, gc=False):
    """Write the row if it is at ``expect``; ``fact`` is the index of its cause in the commit.

    ``born`` is the index of the fact that made the row (anew), where the commit has several about
    it; None: ``fact`` made it if it was absent, else it keeps its birth.
    """

    key: Key
    data: bytes
    expect: Position
    fact: int = 0
    born: int | None = None

    def born_at(self, first: Position, before: Position) -> Position:
        """The row's birth when the commit lands at ``first``; ``before`` is what it was so far."""
        if self.born is not None:
            return first + self.born
        return first + self.fact if self.expect == ABSENT else before


class Delete(Struct, frozen=True, gc=False):
    """Remove the row if it is at ``expect``."""

    key: Key
    expect: Position
    fact: int = 0


class Check(Struct, frozen=True, gc=False):
    """Only demand that the row is at ``expect``."""

    key: Key
    expect: Position


Write = Put | Delete | Check


class CommitKey(Struct, frozen=True, gc=False):
    """An idempotency key with the digest of what was asked and the answer to give again."""

    key: str
    digest: bytes
    answer: bytes = b""


class Commit(Struct, frozen=True, gc=False):
    """All or nothing."""

    at: datetime
    meta: Meta = NO_META
    facts: tuple[Fact, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    writes: tuple[Write, ...] = ()  # a row key at most once
    once: CommitKey | None = None

    @property
    def span(self) -> int:
        """How many positions it takes: a commit without facts takes one number too."""
        return len(self.facts) or 1

    def meta_of(self, fact: Fact) -> Meta:
        """Who caused this fact of it."""
        return self.meta if fact.meta is None else fact.meta


class Receipt(Struct, frozen=True, gc=False):
    """A commit that landed, now or (``replayed``) when the same key came first."""

    first: Position
    last: Position
    at: datetime
    answer: bytes = b""
    replayed: bool = False
    digest: bytes = b""  # of what was asked under the key; empty without one


def set_name(tags: Iterable[str]) -> str:
    """The index name of an exact tag set: length-prefixed, so distinct sets never collide."""
    return "".join(f"{len(tag.encode())}:{tag}" for tag in sorted(tags))


def fact_bytes(fact: Fact) -> int:
    """Bytes of its body, its tags and the meta that is its own, as they are stored.

    Raises:
        InvalidInput, LimitExceeded: the meta is wrong.
    """
    own = 0
    if fact.meta is not None:
        try:
            own = _size(structs.astuple(fact.meta))
        except (TypeError, UnicodeEncodeError):
            own = meta_bytes(fact.meta)  # it is wrong: to be told how
    return len(fact.body) + _size(fact.tags) + own


def _size(texts: tuple[str, ...]) -> int:
    together = "".join(texts)
    return len(together) if together.isascii() else len(together.encode())


def slot_bytes(fact: Fact) -> int:
    """Bytes that it takes in the log's storage items, at most."""
    return fact_bytes(fact) + SLOT_FACT_BYTES


def slots(size: int) -> int:
    """How many storage items of the log facts begin that take so many bytes together."""
    return 1 + size // SLOT_BYTES


def facts_max(cost_max: int) -> int:
    """How many facts a commit may have that may cost so much: a pack where it may cost more."""
    return FACTS_MAX if cost_max <= COST_MAX else cost_max


# ── limits and form, checked before any I/O ───────────────────────────────────────────────────────


def at_most(limit: str, found: int, allowed: int) -> None:
    """Raises: LimitExceeded."""
    if found > allowed:
        raise LimitExceeded(limit, found, allowed)


def check_text(what: str, text: object, bytes_max: int) -> None:
    """Text that every engine can hold as a key: not empty, UTF-8, no control characters.

    Raises:
        InvalidInput, LimitExceeded.
    """
    if (  # nearly every text; the rest of this function finds out what is wrong with the others
        type(text) is str and text.isascii() and text.isprintable() and 0 < len(text) <= bytes_max
    ):
        return
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be text, found {type(text).__name__}")
    if not text:
        raise InvalidInput(f"{what} is empty")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise InvalidInput(f"{what} holds a control character: {text!r}")
    at_most(f"bytes of {what}", _utf8(what, text), bytes_max)


def _utf8(what: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} holds a lone surrogate: {text!r}") from None


def check_tag(tag: object) -> None:
    """Raises: InvalidInput, LimitExceeded."""
    if (  # nearly every tag, as above
        type(tag) is str
        and tag.isascii()
        and tag.isprintable()
        and len(tag) <= TAG_BYTES_MAX
        and 0 < tag.find(":") < len(tag) - 1
    ):
        return
    check_text("a tag", tag, TAG_BYTES_MAX)
    assert isinstance(tag, str)
    key, colon, value = tag.partition(":")
    if not (key and colon and value):
        raise InvalidInput(f"a tag is key:value with both not empty, found {tag!r}")


@lru_cache(REMEMBERED_MAX)
def tags_bytes(tags: tuple[str, ...]) -> int:
    """Bytes of a fact's tags. Those of one host or revision come again and again.

    Raises:
        InvalidInput: not sorted and distinct, or no tags. LimitExceeded.
    """
    at_most("tags of a fact", len(tags), TAGS_MAX)
    if size := _plain_size(tags):
        return size
    before = ""
    for tag in tags:
        check_tag(tag)
        if tag <= before:
            raise InvalidInput(f"the tags of a fact must be sorted and distinct: {tags!r}")
        before = tag
    return sum(len(tag.encode()) for tag in tags)


def _plain_size(tags: tuple[str, ...]) -> int:
    """Bytes of tags with which nothing can be wrong: nearly all; 0: they must be looked at."""
    try:
        together = "".join(tags)
    except TypeError:
        return 0
    if len(together) > TAG_BYTES_MAX or not (together.isascii() and together.isprintable()):
        return 0
    before = ""
    for tag in tags:
        if tag <= before or not 0 < tag.find(":") < len(tag) - 1:
            return 0
        before = tag
    return len(together)


@lru_cache(REMEMBERED_MAX)
def meta_bytes(meta: Meta) -> int:
    """Bytes of its members. Raises: InvalidInput, LimitExceeded."""
    size = 0
    for text in structs.astuple(meta):
        if not isinstance(text, str):
            raise InvalidInput(f"a member of meta must be str, found {type(text).__name__}")
        at_most("bytes of a member of meta", _utf8("meta", text), META_BYTES_MAX)
        size += len(text.encode())
    return size


def check_time(what: str, at: object) -> None:
    """Raises: InvalidInput."""
    if type(at) is datetime and at.tzinfo is UTC and TIME_MIN <= at <= TIME_MAX:
        return
    if not isinstance(at, datetime):
        raise InvalidInput(f"{what} must be a datetime, found {type(at).__name__}")
    if at.utcoffset() != timedelta(0):
        raise InvalidInput(f"{what} must be aware and in UTC, found {at!r}")
    if not TIME_MIN <= at <= TIME_MAX:
        raise InvalidInput(f"{what} must be in the years 1970 to 9998, found {at!r}")


def check_version(what: str, version: object) -> None:
    """Raises: InvalidInput."""
    if type(version) is not int or not 0 <= version <= POSITION_MAX:
        raise InvalidInput(f"{what} must be an integer 0 … 2**53-1, found {version!r}")


ALL: Final = Query((Clause(ANY),))
