"""The values that pass between the rules and the storage engines.

    Commit = facts appended under boundaries + row writes guarded by versions + an idempotency key

Everything here is frozen and knows neither a domain nor a database. A tag is the text
``key:value``; the key holds no colon, so the first colon splits it. None of these values can be
part of a reference cycle, so the garbage collector does not track them (``gc=False``).
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

POSITION_MAX = 2**53 - 1  # the largest integer that every JSON reader keeps exact
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
SLOT_BYTES = 340_000  # of facts in one storage item; DynamoDB allows 409,600 with everything else
SLOT_FACT_BYTES = 512  # what a fact takes there in addition to body, tags and own meta, at most
ONCE_KEPT: Final = timedelta(days=30)
# The range of commit times. It leaves room, so that adding a duration to one cannot overflow.
TIME_MIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MAX: Final = datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
REMEMBERED_MAX = 8_192  # cached tag sets, and cached metas, that were found valid


class Match(StrEnum):
    """How a clause's tags are compared with an event's."""

    EXACT = "exact"  # one tag: events indexed under it; several: exactly the event's tag set
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
    """Clauses, OR-ed. Never empty: an empty query could mean all events or none."""

    clauses: tuple[Clause, ...]

    def __post_init__(self) -> None:
        if not self.clauses:
            raise InvalidInput("a query needs at least one clause; say ALL for every event")
        at_most("clauses of a query", len(self.clauses), CLAUSES_MAX)

    def __str__(self) -> str:
        return " or ".join(map(str, self.clauses))


class Meta(Struct, frozen=True, omit_defaults=True, gc=False):
    """Who caused a commit or one of its facts, and through which request."""

    actor: str = ""
    on_behalf_of: str = ""
    request: str = ""
    cause: str = ""


NO_META: Final = Meta()


class Fact(Struct, frozen=True, gc=False):
    """An event that has no position yet. It is encoded once; these bytes are what is stored."""

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
    """What a decision has read, and up to which position. Only ``Store.read`` makes one.

    A commit under it fails if an event that matches it was added since the read.
    """

    query: Query
    seen: Any  # opaque: only the engine that made it reads it
    guard: Query | None = None  # must not change either; set where the page was empty

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """Every clause that must not have new events; can be more than ``CLAUSES_MAX``."""
        return self.query.clauses + (() if self.guard is None else self.guard.clauses)


class EventPage(Struct, frozen=True, gc=False):
    """Events in position order, with the boundary of a decision on them."""

    events: tuple[Event, ...]
    guarded: Boundary | None = None  # None: the read has no boundary

    @property
    def has_boundary(self) -> bool:
        """Whether a decision may be based on this page."""
        return self.guarded is not None

    @property
    def boundary(self) -> Boundary:
        """The boundary for the commit of a decision that is based on this page.

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
    """The collection and id of a row."""

    collection: str
    id: str

    def __str__(self) -> str:
        return f"{self.collection}/{self.id}"


class Record(Struct, frozen=True, gc=False):
    """A row. ``version`` is the position that last wrote it, ``born`` the one that created it.

    A version never recurs, also not after the row was deleted and created again.
    """

    key: Key
    version: Position
    born: Position
    data: bytes


class Put(Struct, frozen=True, gc=False):
    """Write the row if its version is ``expect``; ``fact`` is the index of its cause in the commit.

    Where several facts of the commit step the row, ``born`` is the index of the one that created
    it. None: ``fact`` created it if it was absent, else the row keeps the ``born`` that it has.
    """

    key: Key
    data: bytes
    expect: Position
    fact: int = 0
    born: int | None = None

    def born_at(self, first: Position, before: Position) -> Position:
        """The row's ``born`` once the commit is applied at ``first``; ``before`` is its old one."""
        if self.born is not None:
            return first + self.born
        return first + self.fact if self.expect == ABSENT else before


class Delete(Struct, frozen=True, gc=False):
    """Remove the row if its version is ``expect``."""

    key: Key
    expect: Position
    fact: int = 0


class Check(Struct, frozen=True, gc=False):
    """Require that the row's version is ``expect``, and write nothing."""

    key: Key
    expect: Position


Write = Put | Delete | Check


class CommitKey(Struct, frozen=True, gc=False):
    """An idempotency key, with the digest of the request and the answer for a repeat of it."""

    key: str
    digest: bytes
    answer: bytes = b""


class Commit(Struct, frozen=True, gc=False):
    """Facts, row writes and their conditions, applied all or nothing."""

    at: datetime
    meta: Meta = NO_META
    facts: tuple[Fact, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    writes: tuple[Write, ...] = ()  # a row key at most once
    once: CommitKey | None = None

    @property
    def span(self) -> int:
        """How many positions the commit takes: one per fact, and one if it has no fact."""
        return len(self.facts) or 1

    def meta_of(self, fact: Fact) -> Meta:
        """The meta of this fact, else of the commit."""
        return self.meta if fact.meta is None else fact.meta


class Receipt(Struct, frozen=True, gc=False):
    """The positions of a commit that was applied.

    ``replayed``: an earlier commit with the same idempotency key was applied, not this one.
    """

    first: Position
    last: Position
    at: datetime
    answer: bytes = b""
    replayed: bool = False
    digest: bytes = b""  # of the request with the idempotency key; empty without one


def set_name(tags: Iterable[str]) -> str:
    """The index name of an exact tag set: length-prefixed, so distinct sets never collide."""
    return "".join(f"{len(tag.encode())}:{tag}" for tag in sorted(tags))


def fact_bytes(fact: Fact) -> int:
    """The stored bytes of the fact's body, its tags and its own meta.

    Raises:
        InvalidInput, LimitExceeded: the meta is not valid.
    """
    own = 0
    if fact.meta is not None:
        try:
            own = _size(structs.astuple(fact.meta))
        except (TypeError, UnicodeEncodeError):
            own = meta_bytes(fact.meta)  # not valid: this raises with the reason
    return len(fact.body) + _size(fact.tags) + own


def _size(texts: tuple[str, ...]) -> int:
    together = "".join(texts)
    return len(together) if together.isascii() else len(together.encode())


def slot_bytes(fact: Fact) -> int:
    """The bytes that the fact takes in the log's storage items, at most."""
    return fact_bytes(fact) + SLOT_FACT_BYTES


def slots(size: int) -> int:
    """How many storage items of the log are needed for facts of this size in total."""
    return 1 + size // SLOT_BYTES


def facts_max(cost_max: int) -> int:
    """How many facts a commit with this cost limit may have. A pack of a lane may have more."""
    return FACTS_MAX if cost_max <= COST_MAX else cost_max


# ── limits and form, checked before any I/O ───────────────────────────────────────────────────────


def at_most(limit: str, found: int, allowed: int) -> None:
    """Raises: LimitExceeded."""
    if found > allowed:
        raise LimitExceeded(limit, found, allowed)


def check_text(what: str, text: object, bytes_max: int) -> None:
    """Check text that every engine stores as a key: not empty, UTF-8, no control characters.

    Raises:
        InvalidInput, LimitExceeded.
    """
    if (  # the fast path for nearly every text; the rest finds out what is wrong with the others
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
    if (  # the fast path for nearly every tag
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
    """The bytes of a fact's tags. Cached: the facts of one host or revision have the same tags.

    Raises:
        InvalidInput: not sorted and distinct, or not tags. LimitExceeded.
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
    """The bytes of tags that are clearly valid, as nearly all are; 0 if each must be checked."""
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
    """The bytes of the meta's members. Raises: InvalidInput, LimitExceeded."""
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
