"""Checks the types and limits of a commit, the same for every engine, before any I/O.

Callers may not use a type checker, so every member of a commit is checked. Nearly all are valid,
and many were checked before, so the checks of valid members are fast or cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn, TypeGuard

from tidegate.errors import InvalidInput, LimitExceeded
from tidegate.kernel import model

_WRITES = (model.Put, model.Delete, model.Check)


def portable_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    """The fact types, with their kinds, whose names every engine can store."""
    found = {}
    for name, kind in kinds.items():
        with suppress(InvalidInput, LimitExceeded):
            _check_form(kind, name, 1)
            found[name] = kind
    return found


def check_commit(commit: model.Commit, cost_max: int, kinds: Mapping[str, str]) -> int:
    """Check the commit, and return its bytes. ``kinds`` maps portable fact types to their kinds.

    Raises:
        InvalidInput, LimitExceeded.
    """
    model.check_time("the time of a commit", commit.at)
    if commit.meta is not model.NO_META:
        _check_meta(commit.meta)
    _demand("the facts of a commit", commit.facts, tuple)
    _demand("the boundaries of a commit", commit.boundaries, tuple)
    _demand("the writes of a commit", commit.writes, tuple)
    model.at_most("facts of a commit", len(commit.facts), model.facts_max(cost_max))
    model.at_most("writes of a commit", len(commit.writes), model.WRITES_MAX)
    for boundary in commit.boundaries:
        _check_boundary(boundary)
    size = 0
    for fact in commit.facts:
        size += _check_fact(fact, kinds)
    span = commit.span
    seen: set[model.Key] = set()
    for write in commit.writes:
        size += len(write.data) if _is_valid_put(write, span) else _check_write(write, span)
        if write.key in seen:
            raise InvalidInput(f"a commit names the row {write.key} twice")
        seen.add(write.key)
    if commit.once is not None:
        size += _check_once(commit.once)
    model.at_most("bytes of a commit", size, model.COMMIT_BYTES_MAX)
    return size


def _demand(what: str, value: object, kind: type) -> None:
    """Raises: InvalidInput."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} must be {kind.__name__}, found {type(value).__name__}")


def _check_boundary(boundary: model.Boundary) -> None:
    """Check the types of a boundary's members. Only the engine can check ``seen``.

    Raises:
        InvalidInput.
    """
    _demand("a boundary", boundary, model.Boundary)
    for query in (boundary.query, boundary.guard):
        if query is None and boundary.query is not None:
            continue
        _demand("what a boundary depends on", query, model.Query)
        _demand("the clauses of a query", query.clauses, tuple)
        for clause in query.clauses:
            _demand("a clause", clause, model.Clause)
            if clause.types is not model.ANY:
                _demand("the types of a clause", clause.types, frozenset)
            _demand("the tags of a clause", clause.tags, frozenset)


def check_seen(commit: model.Commit) -> None:
    """Check that each boundary holds a position, for engines that put one there.

    Raises:
        InvalidInput: a read of another engine made the boundary, or none.
    """
    for boundary in commit.boundaries:
        if type(boundary.seen) is not int or not 0 <= boundary.seen <= model.POSITION_MAX:
            raise foreign_boundary(boundary)


def foreign_boundary(boundary: model.Boundary) -> InvalidInput:
    """Make the error for a boundary that no read of this engine returned."""
    return InvalidInput(
        f"a boundary is made by read() of this engine alone, found {boundary.seen!r:.200}"
    )


def _cached_size(sized: Any, *values: object) -> int:
    """Call a cached size function that also checks its arguments.

    Raises:
        InvalidInput, LimitExceeded.
    """
    try:
        found: int = sized(*values)
    except TypeError:  # an argument has no hash, so it is not valid: the check raises the reason
        found = sized.__wrapped__(*values)
    return found


def _check_meta(meta: model.Meta) -> int:
    _demand("meta", meta, model.Meta)
    return _cached_size(model.meta_bytes, meta)


def _check_once(once: model.CommitKey) -> int:
    _demand("once", once, model.CommitKey)
    model.check_text("an idempotency key", once.key, model.ONCE_KEY_BYTES_MAX)
    _demand("the digest of a commit", once.digest, bytes)
    _demand("the answer of a commit", once.answer, bytes)
    model.at_most("bytes of a digest", len(once.digest), model.DIGEST_BYTES_MAX)
    model.at_most("bytes of an answer", len(once.answer), model.ANSWER_BYTES_MAX)
    return len(once.digest) + len(once.answer)


def _check_fact(fact: model.Fact, kinds: Mapping[str, str]) -> int:
    _demand("a fact", fact, model.Fact)
    body, schema = fact.body, fact.schema
    try:
        is_known = (
            kinds.get(fact.type) == fact.kind
            and type(schema) is int
            and 1 <= schema <= model.SCHEMA_MAX
        )
    except TypeError:
        is_known = False  # its type has no hash
    if not is_known:
        _refuse_kind(fact, kinds)
    _demand("the tags of a fact", fact.tags, tuple)
    tags = _cached_size(model.tags_bytes, fact.tags)
    _demand("the body of a fact", body, bytes)
    if len(body) > model.BODY_BYTES_MAX:
        raise LimitExceeded("bytes of a fact", len(body), model.BODY_BYTES_MAX)
    if not body.isascii() or b"\0" in body:
        _check_body(fact.type, body)
    return len(body) + tags + (0 if fact.meta is None else _check_meta(fact.meta))


def _check_body(type_: str, body: bytes) -> None:
    """Raises: InvalidInput: the body is not text that every engine can store."""
    if b"\0" in body:
        raise InvalidInput(f"{type_} holds a NUL byte")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{type_} is not UTF-8: {error}") from None


def _refuse_kind(fact: model.Fact, kinds: Mapping[str, str]) -> NoReturn:
    """Raise what is wrong with a fact's kind, type or schema.

    Raises:
        InvalidInput, LimitExceeded.
    """
    _check_form(fact.kind, fact.type, fact.schema)
    kind = kinds.get(fact.type)
    if kind is None:
        raise InvalidInput(f"fact type {fact.type} is not declared")
    raise InvalidInput(f"{fact.type} is declared under kind {kind!r}, found {fact.kind!r}")


def _check_form(kind: object, type_: object, schema: object) -> None:
    model.check_text("a fact's type", type_, model.TYPE_BYTES_MAX)
    model.check_text("a fact's kind", kind, model.TYPE_BYTES_MAX)
    if type(schema) is not int or not 1 <= schema <= model.SCHEMA_MAX:
        raise InvalidInput(f"the schema of {type_} counts from 1 to 2**31-1, found {schema!r}")


def _is_valid_put(write: model.Write, span: int) -> TypeGuard[model.Put]:
    """Whether the write is clearly a valid Put, as nearly every write is."""
    if (
        type(write) is not model.Put
        or type(write.key) is not model.Key
        or type(write.data) is not bytes
    ):
        return False
    id, collection, fact, born = write.key.id, write.key.collection, write.fact, write.born
    return (
        type(id) is type(collection) is str
        and type(write.expect) is type(fact) is int
        and id.isascii()
        and id.isprintable()
        and 0 < len(id) <= model.ID_BYTES_MAX
        and collection.isidentifier()
        and collection.isascii()
        and len(collection) <= model.TYPE_BYTES_MAX
        and 0 <= write.expect <= model.POSITION_MAX
        and 0 <= fact < span
        and (born is None or (type(born) is int and 0 <= born <= fact))
        and len(write.data) <= model.ROW_BYTES_MAX
    )


def _check_write(write: model.Write, span: int) -> int:
    if not isinstance(write, _WRITES):
        raise InvalidInput(f"a write must be Put, Delete or Check, found {type(write).__name__}")
    _demand("the key of a write", write.key, model.Key)
    model.check_text("a collection", write.key.collection, model.TYPE_BYTES_MAX)
    model.check_text("a row id", write.key.id, model.ID_BYTES_MAX)
    model.check_version("an expected version", write.expect)
    if isinstance(write, model.Check):
        return 0
    if type(write.fact) is not int or not 0 <= write.fact < span:
        raise InvalidInput(f"{write.key} names fact {write.fact} of {span} as its cause")
    if isinstance(write, model.Delete):
        if write.expect == model.ABSENT:
            raise InvalidInput(f"{write.key} cannot be deleted where it must be absent")
        return 0
    if write.born is not None and (
        type(write.born) is not int or not 0 <= write.born <= write.fact
    ):
        raise InvalidInput(f"{write.key} is born by fact {write.born}, after {write.fact}")
    _demand("the data of a row", write.data, bytes)
    model.at_most("bytes of a row", len(write.data), model.ROW_BYTES_MAX)
    return len(write.data)
