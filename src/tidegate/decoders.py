"""Typed decoders: each is built once, under one lock, before it is used.

    at start             build(Revision) ──▶ registry of complete decoders
    any thread, later    decoder(Revision), convert(content, Revision): look up, never build

msgspec caches what it derives from a Struct on the class, and puts it there before it is complete
(``StructInfo_Convert`` in 0.22). A second thread that decodes the Struct at that moment follows a
null pointer, and the process dies of SIGSEGV. A Decoder, ``msgspec.json.decode(type=…)`` and
``msgspec.convert`` all do this on first use. So only this module calls them with a type:
``tests/test_tidy.py`` checks that.

Decoding a type that was not built is an error even in a single thread, so that the first test that
does it fails. Call ``build`` where a module, vocabulary, collection or route is defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from threading import Lock
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec

from tidegate.errors import InvalidDefinition

T = TypeVar("T")

_building = Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_hints: set[Any] = set()  # the types that were built, with the types of their members


@overload
def build(hint: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def build(hint: Any) -> msgspec.json.Decoder[Any]: ...
def build(hint: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of this type. The first call builds it; call it at start."""
    found = _decoders.get(hint)
    if found is not None:
        return found
    with _building:
        # Another thread may have built it in the meantime: two equal decoders do no harm.
        try:
            found = msgspec.json.Decoder(hint)
        except TypeError as error:
            raise InvalidDefinition(f"{hint!r} cannot be decoded: {error}") from None
        _hints.update(_parts(hint))
        _decoders[hint] = found
    return found


@overload
def build_msgpack(hint: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def build_msgpack(hint: Any) -> msgspec.msgpack.Decoder[Any]: ...
def build_msgpack(hint: Any) -> msgspec.msgpack.Decoder[Any]:
    """Build a MessagePack decoder of this type. Keep it: each call builds another one."""
    with _building:
        found = msgspec.msgpack.Decoder(hint)
        _hints.update(_parts(hint))
    return found


@overload
def decoder(hint: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(hint: Any) -> msgspec.json.Decoder[Any]: ...
def decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder that was built for this type.

    Raises:
        InvalidDefinition: none was built.
    """
    try:
        return _decoders[hint]
    except KeyError:
        raise _not_built(hint) from None


@overload
def convert(content: Any, hint: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(content: Any, hint: Any, *, strict: bool = True) -> Any: ...
def convert(content: Any, hint: Any, *, strict: bool = True) -> Any:
    """Convert decoded JSON to a type that was built, or to the type of one of its members.

    For a hint such as ``tuple[Host, ...]`` msgspec derives a node for each call. That is safe: no
    other thread sees the node, and the Structs in it are complete.

    Raises:
        msgspec.ValidationError.
        InvalidDefinition: the type was not built.
    """
    if hint not in _hints:
        raise _not_built(hint)
    return msgspec.convert(content, hint, strict=strict)


def built() -> frozenset[Any]:
    """Every type that may be decoded now: those that were built, and their members' types."""
    with _building:
        return frozenset(_hints)


@cache
def fields_of(struct: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a Struct, cached because finding them is slow."""
    return msgspec.structs.fields(struct)


@cache
def hints_of(struct: Any) -> dict[str, Any]:
    """The types of a Struct's fields, with their annotations."""
    return get_type_hints(struct, include_extras=True)


def _not_built(hint: Any) -> InvalidDefinition:
    return InvalidDefinition(
        f"no decoder was built for {hint!r}: call decoders.build while composing"
    )


def _parts(hint: Any) -> set[Any]:
    """The hint and every type inside it, also inside the fields of its Structs."""
    found: set[Any] = set()
    rest = [hint]
    while rest:
        part = rest.pop()
        if part not in found and part not in _hints:
            found.add(part)
            rest += _inside(part)
    return found


def _inside(hint: Any) -> Iterator[Any]:
    origin = get_origin(hint)
    if isinstance(origin or hint, type) and issubclass(origin or hint, msgspec.Struct):
        yield from (item.type for item in fields_of(hint))
    elif origin is Annotated:
        yield get_args(hint)[0]
    elif origin is not Literal:
        yield from (part for part in get_args(hint) if part is not ...)
