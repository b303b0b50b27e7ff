"""One canonical JSON form per value, where msgspec alone would allow several.

msgspec writes floats and integers beyond 2**53, and times without a fixed width. It omits a default
only if the value is that very object, not an equal one.

plain? ── yes ─▶ msgspec already writes the canonical form
       ── no ──▶ check and render the value member by member, times in fixed width
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec

from tidegate.decoders import fields_of, hints_of
from tidegate.errors import InvalidDefinition, InvalidInput
from tidegate.kernel.model import check_time

INTEGER_MAX = 2**53 - 1
DEPTH_MAX = 32
SINGLE_MAX = 256  # Python has only one object for each integer up to this one

_encoder = msgspec.json.Encoder()

Render = Callable[[Any, str], Any]
IsPlain = Callable[[Any], bool]


def time_text(at: datetime) -> str:
    """The time in fixed width, so that it sorts as text. Raises: InvalidInput."""
    check_time("a time", at)
    if at.microsecond:  # then msgspec writes all six digits, and it is faster
        return _encoder.encode(at)[1:-1].decode()
    return at.isoformat(timespec="microseconds")[:-6] + "Z"


def check_type(struct: type[msgspec.Struct]) -> None:
    """Raises: InvalidDefinition: a member of the type has no portable form."""
    renderer(struct)


@cache
def renderer(struct: Any) -> Render | None:
    """Make the function that checks a value and returns what to encode; None if none is needed.

    It only looks at the fields with integers, times or nested values.
    """
    _in_progress.append(struct)
    try:
        return _make_renderer(struct)
    finally:
        _in_progress.remove(struct)


# The types whose functions are being made. A type that contains itself finds itself here, and its
# inner values look their function up at run time.
_in_progress: list[Any] = []


def _make_renderer(struct: Any) -> Render | None:
    hints = hints_of(struct)
    names = [(item.name, item.encode_name) for item in fields_of(struct)]
    renders = {name: _field_renderer(hints[name], f"{struct.__name__}.{name}") for name, _ in names}
    needed = [(name, render) for name, render in renders.items() if render is not None]
    if not _is_rewritten(struct):
        return _make_checker(needed) if needed else None
    return _make_writer(struct, renders)


def _make_checker(needed: list[tuple[str, Render]]) -> Render:
    def check(value: Any, where: str) -> Any:
        for name, render in needed:
            render(getattr(value, name), name)
        return value

    return check


def _make_writer(struct: Any, renders: dict[str, Render | None]) -> Render:
    """Make a function that copies a struct into a shadow with the same members, to be encoded.

    The shadow holds times as fixed-width text. In place of a value that equals its default, it
    holds the default object itself, so that msgspec omits it.
    """
    items = fields_of(struct)
    config = struct.__struct_config__
    shadow = msgspec.defstruct(
        f"{struct.__name__}Shadow",
        [(item.name, Any, _same_default(item)) for item in items],
        rename={item.name: item.encode_name for item in items},
        omit_defaults=config.omit_defaults,
        tag_field=config.tag_field,
        tag=config.tag,
    )
    # Most members are written unchanged: only look at the others.
    checked = [
        (place, item.name, renders[item.name], item.default)
        for place, item in enumerate(items)
        if renders[item.name] is not None or _has_equals(item.default)
    ]

    def write(value: Any, where: str) -> Any:
        members = list(msgspec.structs.astuple(value))
        for place, name, render, default in checked:
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
    # A required member gets a default that no value is equal to, so that it is never omitted.
    return msgspec.field(default=object() if item.required else item.default)


def _is_rewritten(hint: Any, within: tuple[Any, ...] = ()) -> bool:
    """Whether msgspec alone may write a value of this type in another form than the canonical."""
    if hint is datetime or hint is Any or hint is object:
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint in within:
            return False
        members = hints_of(hint).values()
        return _omits_defaults(hint) or any(_is_rewritten(arm, (*within, hint)) for arm in members)
    return any(_is_rewritten(arm, within) for arm in get_args(hint) if arm is not ...)


def _omits_defaults(struct: type[msgspec.Struct]) -> bool:
    """Whether the struct omits a default that other objects can be equal to."""
    return struct.__struct_config__.omit_defaults and any(
        not item.required and _has_equals(item.default) for item in fields_of(struct)
    )


def _has_equals(default: Any) -> bool:
    """Whether another object can be equal to this default.

    Python has one object for None, for each empty text, bytes and tuple, and for small integers.
    """
    if isinstance(default, Enum) or default in (None, msgspec.NODEFAULT, "", b"", ()):
        return False
    return not (isinstance(default, int) and 0 <= default <= SINGLE_MAX)


def _field_renderer(hint: Any, where: str) -> Render | None:
    origin = get_origin(hint)
    if origin is Annotated:
        return _field_renderer(get_args(hint)[0], where)
    if hasattr(hint, "__supertype__"):
        return _field_renderer(hint.__supertype__, where)
    if hint in (str, bool, bytes, NoneType) or origin is Literal:
        return None
    if hint is int:
        return _check_integer
    if hint is float:
        raise InvalidDefinition(f"{where} is a float; floats have no portable form")
    if hint is datetime:
        return _render_time
    if isinstance(hint, type) and issubclass(hint, Enum):
        return None
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _render_struct if hint in _in_progress else renderer(hint)
    if hint is Any or hint is object or hint is dict or hint is list:
        return _render_any
    arms = [_field_renderer(arm, where) for arm in get_args(hint) if arm is not ...]
    if origin in (Union, UnionType) and len(arms) == 2 and NoneType in get_args(hint):
        return _make_optional(arms[0] or arms[1])
    if origin in (Union, UnionType, tuple, list, frozenset, set, dict):
        return None if not any(arms) else _render_any
    raise InvalidDefinition(f"{where} has a type without a portable form: {hint}")


def _make_optional(render: Render | None) -> Render | None:
    """Make a renderer that passes None through."""
    if render is None:
        return None
    return lambda value, where: None if value is None else render(value, where)


def _check_integer(value: Any, where: str) -> Any:
    if type(value) is not int:
        raise InvalidInput(f"{where} must be an integer, found {value!r}", field=where)
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise InvalidInput(f"{where} is beyond 2**53: {value}", field=where)
    return value


def _render_time(value: Any, where: str) -> Any:
    if type(value) is datetime and value.tzinfo is UTC and value.microsecond:
        return value
    if not isinstance(value, datetime):
        raise InvalidInput(f"{where} must be a datetime, found {value!r}", field=where)
    if value.tzinfo is None:
        raise InvalidInput(f"{where} is a naive datetime: {value!r}", field=where)
    return time_text(value.astimezone(UTC))


def _render_struct(value: Any, where: str) -> Any:
    render = renderer(cast(Any, type(value)))
    return value if render is None else render(value, where)


_UNCHANGED = (str, bool, bytes, Enum)
_SEQUENCES = (set, frozenset, tuple, list)


def _render_any(value: Any, where: str, depth: int = 0) -> Any:
    """Check and render a value whose declared type does not tell what is inside."""
    if depth > DEPTH_MAX:
        raise InvalidInput(f"{where} is nested deeper than {DEPTH_MAX}", field=where)
    if value is None or isinstance(value, _UNCHANGED):
        return value
    if isinstance(value, int):
        return _check_integer(value, where)
    if isinstance(value, float):
        raise InvalidInput(f"{where} holds the float {value!r}; send an integer", field=where)
    if isinstance(value, datetime):
        return _render_time(value, where)
    if isinstance(value, msgspec.Struct):
        return _render_struct(value, where)
    if isinstance(value, dict):
        return {key: _render_any(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, _SEQUENCES):
        return type(value)(_render_any(item, where, depth + 1) for item in value)
    raise InvalidInput(f"{where} holds a {type(value).__name__}: it has no JSON form", field=where)


# ── the fast path: values whose canonical form msgspec writes by itself ───────────────────────────


@cache
def plain(struct: Any) -> IsPlain | None:
    """Make the function that tells whether msgspec alone writes a value's canonical form.

    It is True for nearly every value. None: the type needs the slow path.
    """
    _in_progress.append(struct)
    try:
        return _make_plain_test(struct)
    finally:
        _in_progress.remove(struct)


def _make_plain_test(struct: Any) -> IsPlain | None:
    hints = hints_of(struct)
    times, integers, others = [], [], []
    defaults: dict[str, Any] = {}
    for item in fields_of(struct):
        if struct.__struct_config__.omit_defaults and _has_equals(item.default):
            defaults[item.name] = item.default
        if _field_renderer(hints[item.name], item.name) is None:
            continue
        arms = _arms(hints[item.name])
        if arms == {datetime}:
            times.append(item.name)
        elif arms == {int}:
            integers.append(item.name)
        elif (is_plain := _plain_value(arms)) is not None:
            others.append((item.name, is_plain))
        else:
            return None
    return _compile_plain_test(times, integers, others, defaults)


def _arms(hint: Any) -> set[Any]:
    """The types that a value may have, if it is not None."""
    if get_origin(hint) is Annotated:
        return _arms(get_args(hint)[0])
    if hasattr(hint, "__supertype__"):
        return _arms(hint.__supertype__)
    if get_origin(hint) in (Union, UnionType):
        return {arm for union in get_args(hint) for arm in _arms(union)}
    return {hint} - {NoneType}


def _plain_value(arms: set[Any]) -> IsPlain | None:
    """Make the same function for a value of these types that is not None."""
    hint, *more = arms
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not ...]
    if more or hint in _in_progress or len(parts) > (2 if origin is dict else 1):
        return None
    if hint is datetime:
        return _has_all_digits
    if hint is int:
        return _is_portable
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return plain(hint)
    if origin in (tuple, list, dict) and (each := _plain_part(parts[-1])) is not None:
        return _all_plain(each, is_dict=origin is dict)
    return None


def _plain_part(hint: Any) -> IsPlain | None:
    if NoneType in get_args(hint) or _field_renderer(hint, "") is None:
        return None
    return _plain_value(_arms(hint))


def _all_plain(each: IsPlain, *, is_dict: bool) -> IsPlain:
    if is_dict:
        return lambda value: all(map(each, value.values()))
    return lambda value: all(map(each, value))


def _has_all_digits(at: Any) -> bool:
    """Whether msgspec writes the time with all six digits: it has microseconds."""
    return type(at) is datetime and at.tzinfo is UTC and bool(at.microsecond)


def _is_portable(number: Any) -> bool:
    return type(number) is int and -INTEGER_MAX <= number <= INTEGER_MAX


def _compile_plain_test(
    times: list[str],
    integers: list[str],
    others: list[tuple[str, IsPlain]],
    defaults: dict[str, Any],
) -> IsPlain:
    """Compile one expression over all members: a loop would take longer than the encoding."""
    scope = {"datetime": datetime, "UTC": UTC}
    terms = [
        f"type(m := value.{name}) is datetime and m.tzinfo is UTC and m.microsecond or m is None"
        for name in times
    ]
    terms += [
        f"type(m := value.{name}) is int and {-INTEGER_MAX} <= m <= {INTEGER_MAX} or m is None"
        for name in integers
    ]
    for number, (name, is_plain) in enumerate(others):
        scope[f"is_plain_{number}"] = is_plain
        terms.append(f"(m := value.{name}) is None or is_plain_{number}(m)")
    for number, (name, default) in enumerate(defaults.items()):
        scope[f"default_{number}"] = default
        # msgspec does not omit a value that is equal to its default but another object.
        terms.append(f"(m := value.{name}) is default_{number} or m != default_{number}")
    source = " and ".join([f"({term})" for term in terms]) or "True"
    return cast(IsPlain, eval(f"lambda value: {source}", scope))
