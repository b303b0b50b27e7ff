"""Form and limits of a commit, equal on every engine, checked before any I/O.

Callers need not run a type checker: what they hand over is looked at member by member. Nearly all
of it is right, and much of it was seen before, so what is right is told fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn, TypeGuard

from tidegate.errors import InvalidInput, LimitExceeded
from tidegate.kernel.model import (
    ABSENT,
    ANSWER_BYTES_MAX,
    ANY,
    BODY_BYTES_MAX,
    COMMIT_BYTES_MAX,
    DIGEST_BYTES_MAX,
    ID_BYTES_MAX,
    NO_META,
    ONCE_KEY_BYTES_MAX,
    POSITION_MAX,
    ROW_BYTES_MAX,
    SCHEMA_MAX,
    TYPE_BYTES_MAX,
    WRITES_MAX,
    Boundary,
    Check,
    Clause,
    Commit,
    CommitKey,
    Delete,
    Fact,
    Key,
    Meta,
    Put,
    Query,
    Write,
    at_most,
    check_text,
    check_time,
    check_version,
    facts_max,
    meta_bytes,
    tags_bytes,
)

_WRITES = (Put, Delete, Check)


def portable_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    """Those types of fact, with their kinds, of which both names fit every engine."""
    found = {}
    for name, kind in kinds.items():
        with suppress(InvalidInput, LimitExceeded):
            _check_form(kind, name, 1)
            found[name] = kind
    return found


def check_commit(commit: Commit, cost_max: int, kinds: Mapping[str, str]) -> int:
    """How many bytes the commit has; ``kinds`` are the portable ones, by fact type.

    Raises:
        InvalidInput, LimitExceeded.
    """
    check_time("the time of a commit", commit.at)
    if commit.meta is not NO_META:
        _check_meta(commit.meta)
    _demand("the facts of a commit", commit.facts, tuple)
    _demand("the boundaries of a commit", commit.boundaries, tuple)
    _demand("the writes of a commit", commit.writes, tuple)
    at_most("facts of a commit", len(commit.facts), facts_max(cost_max))
    at_most("writes of a commit", len(commit.writes), WRITES_MAX)
    for boundary in commit.boundaries:
        _check_boundary(boundary)
    size = 0
    for fact in commit.facts:
        size += _check_fact(fact, kinds)
    span = commit.span
    seen: set[Key] = set()
    for write in commit.writes:
        size += len(write.data) if _is_right(write, span) else _check_write(write, span)
        if write.key in seen:
            raise InvalidInput(f"a commit names the row {write.key} twice")
        seen.add(write.key)
    if commit.once is not None:
        size += _check_once(commit.once)
    at_most("bytes of a commit", size, COMMIT_BYTES_MAX)
    return size


def _demand(what: str, value: object, kind: type) -> None:
    """Raises: InvalidInput."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} must be {kind.__name__}, found {type(value).__name__}")


def _check_boundary(boundary: Boundary) -> None:
    """Its form; what it saw is for the engine alone to look at.

    Raises:
        InvalidInput.
    """
    _demand("a boundary", boundary, Boundary)
    for query in (boundary.query, boundary.guard):
        if query is None and boundary.query is not None:
            continue
        _demand("what a boundary depends on", query, Query)
        _demand("the clauses of a query", query.clauses, tuple)
        for clause in query.clauses:
            _demand("a clause", clause, Clause)
            if clause.types is not ANY:
                _demand("the types of a clause", clause.types, frozenset)
            _demand("the tags of a clause", clause.tags, frozenset)


def check_seen(commit: Commit) -> None:
    """That its boundaries saw a position, for engines whose boundaries do.

    Raises:
        InvalidInput: no read of such an engine made it.
    """
    for boundary in commit.boundaries:
        if type(boundary.seen) is not int or not 0 <= boundary.seen <= POSITION_MAX:
            raise foreign_boundary(boundary)


def foreign_boundary(boundary: Boundary) -> InvalidInput:
    """It is not what a read of this engine returns."""
    return InvalidInput(
        f"a boundary is made by read() of this engine alone, found {boundary.seen!r:.200}"
    )


def _remembered(sized: Any, *values: object) -> int:
    """Their size, if they were right before or are right now.

    Raises:
        InvalidInput, LimitExceeded.
    """
    try:
        found: int = sized(*values)
    except TypeError:  # something has no hash, so it is wrong: to be told how
        found = sized.__wrapped__(*values)
    return found


def _check_meta(meta: Meta) -> int:
    _demand("meta", meta, Meta)
    return _remembered(meta_bytes, meta)


def _check_once(once: CommitKey) -> int:
    _demand("once", once, CommitKey)
    check_text("an idempotency key", once.key, ONCE_KEY_BYTES_MAX)
    _demand("the digest of a commit", once.digest, bytes)
    _demand("the answer of a commit", once.answer, bytes)
    at_most("bytes of a digest", len(once.digest), DIGEST_BYTES_MAX)
    at_most("bytes of an answer", len(once.answer), ANSWER_BYTES_MAX)
    return len(once.digest) + len(once.answer)


def _check_fact(fact: Fact, kinds: Mapping[str, str]) -> int:
    _demand("a fact", fact, Fact)
    body, schema = fact.body, fact.schema
    try:
        is_known = (
            kinds.get(fact.type) == fact.kind and type(schema) is int and 1 <= schema <= SCHEMA_MAX
        )
    except TypeError:
        is_known = False  # its type has no hash
    if not is_known:
        _refuse_kind(fact, kinds)
    _demand("the tags of a fact", fact.tags, tuple)
    tags = _remembered(tags_bytes, fact.tags)
    _demand("the body of a fact", body, bytes)
    if len(body) > BODY_BYTES_MAX:
        raise LimitExceeded("bytes of a fact", len(body), BODY_BYTES_MAX)
    if not body.isascii() or b"\0" in body:
        _check_body(fact.type, body)
    return len(body) + tags + (0 if fact.meta is None else _check_meta(fact.meta))


def _check_body(type_: str, body: bytes) -> None:
    """Raises: InvalidInput: not text that every engine can hold."""
    if b"\0" in body:
        raise InvalidInput(f"{type_} holds a NUL byte")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{type_} is not UTF-8: {error}") from None


def _refuse_kind(fact: Fact, kinds: Mapping[str, str]) -> NoReturn:
    """What is wrong with its kind, type or schema. Raises: InvalidInput, LimitExceeded."""
    _check_form(fact.kind, fact.type, fact.schema)
    kind = kinds.get(fact.type)
    if kind is None:
        raise InvalidInput(f"fact type {fact.type} is not declared")
    raise InvalidInput(f"{fact.type} is declared under kind {kind!r}, found {fact.kind!r}")


def _check_form(kind: object, type_: object, schema: object) -> None:
    check_text("a fact's type", type_, TYPE_BYTES_MAX)
    check_text("a fact's kind", kind, TYPE_BYTES_MAX)
    if type(schema) is not int or not 1 <= schema <= SCHEMA_MAX:
        raise InvalidInput(f"the schema of {type_} counts from 1 to 2**31-1, found {schema!r}")


def _is_right(write: Write, span: int) -> TypeGuard[Put]:
    """Whether it is a Put with which nothing is wrong: nearly every write."""
    if type(write) is not Put or type(write.key) is not Key or type(write.data) is not bytes:
        return False
    id, collection, fact, born = write.key.id, write.key.collection, write.fact, write.born
    return (
        type(id) is type(collection) is str
        and type(write.expect) is type(fact) is int
        and id.isascii()
        and id.isprintable()
        and 0 < len(id) <= ID_BYTES_MAX
        and collection.isidentifier()
        and collection.isascii()
        and len(collection) <= TYPE_BYTES_MAX
        and 0 <= write.expect <= POSITION_MAX
        and 0 <= fact < span
        and (born is None or (type(born) is int and 0 <= born <= fact))
        and len(write.data) <= ROW_BYTES_MAX
    )


def _check_write(write: Write, span: int) -> int:
    if not isinstance(write, _WRITES):
        raise InvalidInput(f"a write must be Put, Delete or Check, found {type(write).__name__}")
    _demand("the key of a write", write.key, Key)
    check_text("a collection", write.key.collection, TYPE_BYTES_MAX)
    check_text("a row id", write.key.id, ID_BYTES_MAX)
    check_version("an expected version", write.expect)
    if isinstance(write, Check):
        return 0
    if type(write.fact) is not int or not 0 <= write.fact < span:
        raise InvalidInput(f"{write.key} names fact {write.fact} of {span} as its cause")
    if isinstance(write, Delete):
        if write.expect == ABSENT:
            raise InvalidInput(f"{write.key} cannot be deleted where it must be absent")
        return 0
    if write.born is not None and (
        type(write.born) is not int or not 0 <= write.born <= write.fact
    ):
        raise InvalidInput(f"{write.key} is born by fact {write.born}, after {write.fact}")
    _demand("the data of a row", write.data, bytes)
    at_most("bytes of a row", len(write.data), ROW_BYTES_MAX)
    return len(write.data)
