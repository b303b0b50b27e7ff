"""Bytes: how facts, rows and commands become JSON, once, the same for ever.

Deterministic order, no floats, integers within 2**53, aware UTC times to the microsecond in fixed
width, no lone surrogates. What breaks a rule is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from hashlib import sha256
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from tidegate.errors import InvalidDefinition, InvalidInput
from tidegate.kernel.model import NO_META, Event, Meta, check_time

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 32

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="deterministic")
_meta_decoder = msgspec.json.Decoder(Meta)


def encode(value: Struct) -> bytes:
    """The one JSON text of a fact, row or command.

    Raises:
        InvalidInput: an integer, time or text that has no portable form; names the field.
    """
    render = _renderer(type(value))
    try:
        return _encoder.encode(value if render is None else render(value, type(value).__name__))
    except UnicodeEncodeError:
        raise InvalidInput(f"{type(value).__name__} holds a lone surrogate") from None


def decode(data: bytes, struct: type[T]) -> T:
    """The value of these bytes. Raises: InvalidInput, naming the member that does not fit."""
    try:
        value: T = _decoder(cast(Any, struct)).decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a {struct.__name__}: {error}") from None
    return value


def decode_all(texts: Sequence[bytes], struct: type[T]) -> list[T]:
    """The values of many texts, by one call. Raises: InvalidInput."""
    values: list[T] = []
    with suppress(msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
        values = _decoder(cast(Any, list)[struct]).decode(b"[" + b",".join(texts) + b"]")
    if len(values) != len(texts):  # one of them is wrong: to be told which way
        return [decode(text, struct) for text in texts]
    return values


def convert(content: Any, struct: type[T]) -> T:
    """The value of a decoded JSON object. Raises: InvalidInput."""
    try:
        return msgspec.convert(content, struct)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not a {struct.__name__}: {error}") from None


def time_text(at: datetime) -> str:
    """The time in fixed width, so that order as text is order in time. Raises: InvalidInput."""
    check_time("a time", at)
    text = at.isoformat(timespec="microseconds")
    return text[:-6] + "Z"


def time_value(text: str) -> datetime:
    """The time that ``time_text`` wrote."""
    return datetime.fromisoformat(text)


def meta_text(meta: Meta) -> str:
    """Meta as it is stored."""
    return _encoder.encode(meta).decode()


def meta_value(text: str | bytes) -> Meta:
    """The meta that ``meta_text`` wrote."""
    return NO_META if text == "{}" else _meta_decoder.decode(text)


def leaf(event: Event) -> bytes:
    """SHA-256 of the event as a leaf of a Merkle tree: a pure function of stored columns."""
    content = [
        event.position,
        time_text(event.at),
        event.kind,
        event.type,
        event.schema,
        sorted(event.tags),
        event.meta,
        sha256(event.body).hexdigest(),
    ]
    return sha256(b"\x00" + _encoder.encode(content)).digest()


@cache
def _decoder(struct: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct)


# ── what msgspec leaves open: integers, times, floats ─────────────────────────────────────────────

Render = Callable[[Any, str], Any]


def check_type(struct: type[Struct]) -> None:
    """Raises: InvalidDefinition: the type holds something that has no portable form."""
    _renderer(struct)


@cache
def _renderer(struct: Any) -> Render | None:
    """A function that checks a value and gives what to encode, or None where nothing can be wrong.

    Only the fields that hold integers, times or nested values are looked at.
    """
    _compiling.append(struct)
    try:
        return _compiled(struct)
    finally:
        _compiling.remove(struct)


_compiling: list[Any] = []  # types that may hold themselves are looked up again at run time


def _compiled(struct: Any) -> Render | None:
    hints = get_type_hints(struct, include_extras=True)
    names = [(item.name, item.encode_name) for item in msgspec.structs.fields(struct)]
    renders = {name: _field_renderer(hints[name], f"{struct.__name__}.{name}") for name, _ in names}
    needed = [(name, render) for name, render in renders.items() if render is not None]
    if not _is_rewritten(struct):
        return _checking(needed) if needed else None
    return _writing(struct, renders)


def _checking(needed: list[tuple[str, Render]]) -> Render:
    def check(value: Any, where: str) -> Any:
        for name, render in needed:
            render(getattr(value, name), name)
        return value

    return check


def _writing(struct: Any, renders: dict[str, Render | None]) -> Render:
    """Writes a struct through a shadow of the same members, because msgspec would write it
    otherwise: times not in fixed width, and a value that equals its default without being that
    very object not left out.
    """
    items = msgspec.structs.fields(struct)
    config = struct.__struct_config__
    shadow = msgspec.defstruct(
        f"{struct.__name__}Shadow",
        [(item.name, Any, _same_default(item)) for item in items],
        rename={item.name: item.encode_name for item in items},
        omit_defaults=config.omit_defaults,
        tag_field=config.tag_field,
        tag=config.tag,
    )
    # Most members are written as they are: only the others are looked at.
    looked_at = [
        (place, item.name, renders[item.name], item.default)
        for place, item in enumerate(items)
        if renders[item.name] is not None or _has_equals(item.default)
    ]

    def write(value: Any, where: str) -> Any:
        members = list(astuple(value))
        for place, name, render, default in looked_at:
            member = members[place]
            if member is default:
                continue
            if type(member) is type(default) and member == default:
                members[place] = default
            elif render is not None:
                members[place] = render(member, name)
        return shadow(*members)

    return write


def _same_default(item: msgspec.structs.FieldInfo) -> Any:
    if item.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=item.default_factory)
    # Without a default, one that no value equals: so it is never left out.
    return msgspec.field(default=object() if item.required else item.default)


def _is_rewritten(hint: Any, within: tuple[Any, ...] = ()) -> bool:
    """Whether a value of this type may be written otherwise than msgspec would write it."""
    if hint is datetime or hint is Any or hint is object:
        return True
    if isinstance(hint, type) and issubclass(hint, Struct):
        if hint in within:
            return False
        members = get_type_hints(hint, include_extras=True).values()
        return _leaves_out(hint) or any(_is_rewritten(arm, (*within, hint)) for arm in members)
    return any(_is_rewritten(arm, within) for arm in get_args(hint) if arm is not ...)


def _leaves_out(struct: type[Struct]) -> bool:
    """Whether it leaves out defaults of which there can be several equal objects."""
    return struct.__struct_config__.omit_defaults and any(
        not item.required and _has_equals(item.default) for item in msgspec.structs.fields(struct)
    )


def _has_equals(default: Any) -> bool:
    """Whether there can be another object that equals this default."""
    return default not in (None, True, False, msgspec.NODEFAULT) and not isinstance(default, Enum)


def _field_renderer(hint: Any, where: str) -> Render | None:
    origin = get_origin(hint)
    if origin is Annotated:
        return _field_renderer(get_args(hint)[0], where)
    if hasattr(hint, "__supertype__"):
        return _field_renderer(hint.__supertype__, where)
    if hint in (str, bool, bytes, NoneType) or origin is Literal:
        return None
    if hint is int:
        return _integer
    if hint is float:
        raise InvalidDefinition(f"{where} is a float; floats have no portable form")
    if hint is datetime:
        return _time
    if isinstance(hint, type) and issubclass(hint, Enum):
        return None
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _nested if hint in _compiling else _renderer(hint)
    if hint is Any or hint is object or hint is dict or hint is list:
        return _anything
    arms = [_field_renderer(arm, where) for arm in get_args(hint) if arm is not ...]
    if origin in (Union, UnionType) and len(arms) == 2 and NoneType in get_args(hint):
        return _unless_none(arms[0] or arms[1])
    if origin in (Union, UnionType, tuple, list, frozenset, set, dict):
        return None if not any(arms) else _anything
    raise InvalidDefinition(f"{where} has a type without a portable form: {hint}")


def _unless_none(render: Render | None) -> Render | None:
    """How a member is rendered that may be None."""
    if render is None:
        return None
    return lambda value, where: None if value is None else render(value, where)


def _integer(value: Any, where: str) -> Any:
    if type(value) is not int:
        raise InvalidInput(f"{where} must be an integer, found {value!r}", field=where)
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise InvalidInput(f"{where} is beyond 2**53: {value}", field=where)
    return value


def _time(value: Any, where: str) -> Any:
    if type(value) is datetime and value.tzinfo is UTC and value.microsecond:
        return value  # with all its digits msgspec writes it in the same width
    if not isinstance(value, datetime):
        raise InvalidInput(f"{where} must be a datetime, found {value!r}", field=where)
    if value.tzinfo is None:
        raise InvalidInput(f"{where} is a naive datetime: {value!r}", field=where)
    return time_text(value.astimezone(UTC))


def _nested(value: Any, where: str) -> Any:
    render = _renderer(cast(Any, type(value)))
    return value if render is None else render(value, where)


_AS_IT_IS = (str, bool, bytes, Enum)
_SEQUENCES = (set, frozenset, tuple, list)


def _anything(value: Any, where: str, depth: int = 0) -> Any:
    """Walk a value whose type says too little, and render what it holds."""
    if depth > DEPTH_MAX:
        raise InvalidInput(f"{where} is nested deeper than {DEPTH_MAX}", field=where)
    if value is None or isinstance(value, _AS_IT_IS):
        return value
    if isinstance(value, int):
        return _integer(value, where)
    if isinstance(value, float):
        raise InvalidInput(f"{where} holds the float {value!r}; send an integer", field=where)
    if isinstance(value, datetime):
        return _time(value, where)
    if isinstance(value, Struct):
        return _nested(value, where)
    if isinstance(value, dict):
        return {key: _anything(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, _SEQUENCES):
        return type(value)(_anything(item, where, depth + 1) for item in value)
    raise InvalidInput(f"{where} holds a {type(value).__name__}: it has no JSON form", field=where)
