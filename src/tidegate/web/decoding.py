"""Decodes requests into typed values. An error lists every invalid field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin
from urllib.parse import unquote, unquote_to_bytes

import msgspec

from tidegate import decoders, errors, value_faults
from tidegate.kernel.model import POSITION_MAX, Position
from tidegate.web import inputs, problems, routing, shapes

DEPTH_MAX = 32
FAULTS_COUNTED_MAX = 200  # the problem lists the first of them, and the count
LOOP_BYTES_MAX = 64 * 1024  # larger bodies are decoded in a thread
VALUES_MAX = 250_000  # of a larger body; 10,000 files have about 60,000
QUERY_PAIRS_MAX = 100
QUERY_BYTES_MAX = 16 * 1024
PATH_BYTES_MAX = 16 * 1024
KEY_CHARS_MAX = 64
ACCEPTS_MAX = 256  # headers whose parsed meaning is cached
BREAK_GLASS_CHARS_MAX = 1_024
CSRF_FIELD = "csrf_token"
# These form fields replace the headers Idempotency-Key, If-Match and Tidegate-Break-Glass.
KEY_FIELD = "idempotency_key"
VERSION_FIELD = "expected_version"
BREAK_GLASS_FIELD = "break_glass"

_NEITHER_COMMA_NOR_BRACKET = bytes(set(range(256)) - set(b",[]{}"))
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_ETAG = re.compile(r'"([0-9]{1,16})(-[0-9]{1,16})?"')
_KEY = re.compile(rf"[!-~]{{1,{KEY_CHARS_MAX}}}")
_BOOLEANS = {"true": True, "false": False}

I = TypeVar("I", bound=inputs.Input)  # noqa: E741


# ── path and query ────────────────────────────────────────────────────────────────────────────────


def segments_of(raw_path: bytes) -> list[str]:
    """Split a path and decode each segment: %2F is part of a name. Raises: InvalidRequest."""
    if len(raw_path) > PATH_BYTES_MAX:
        raise problems.InvalidRequest(
            (shapes.FieldError("path", f"has more than {PATH_BYTES_MAX} bytes"),)
        )
    try:
        return [unquote_to_bytes(part).decode() for part in raw_path[1:].split(b"/")]
    except UnicodeDecodeError:
        raise problems.InvalidRequest((shapes.FieldError("path", "is not UTF-8"),)) from None


def path_of(route: routing.Route, values: list[str]) -> inputs.Input:
    """Decode the parameters of the path. Raises: InvalidRequest."""
    struct = route.types[0]
    if struct is inputs.Nothing:
        return inputs.NOTHING
    texts = {name: [value] for name, value in zip(route.parameters, values, strict=True)}
    return _from_texts(struct, texts, "path")


def query_of(route: routing.Route, query_string: bytes) -> inputs.Input:
    """Decode the query. Raises: InvalidRequest."""
    struct = route.types[1]
    if len(query_string) > QUERY_BYTES_MAX:
        raise problems.InvalidRequest(
            (shapes.FieldError("query", f"has more than {QUERY_BYTES_MAX} bytes"),)
        )
    if not query_string:
        return _empty_query(struct)
    return _from_texts(struct, _pairs(query_string, "query"), "query")


@cache
def _empty_query(struct: type[inputs.Input]) -> inputs.Input:
    """The value of an empty query. Raises: InvalidRequest: a field is required."""
    return inputs.NOTHING if struct is inputs.Nothing else _from_texts(struct, {}, "query")


def _pairs(text: bytes, where: str) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    parts = [part for part in text.split(b"&", QUERY_PAIRS_MAX) if part]
    if text.count(b"&") >= QUERY_PAIRS_MAX:
        raise problems.InvalidRequest(
            (shapes.FieldError(where, f"has more than {QUERY_PAIRS_MAX} pairs"),)
        )
    for part in parts:
        name, _, value = part.replace(b"+", b" ").partition(b"=")
        try:
            texts.setdefault(unquote_to_bytes(name).decode(), []).append(
                unquote_to_bytes(value).decode()
            )
        except UnicodeDecodeError:
            raise problems.InvalidRequest((shapes.FieldError(where, "is not UTF-8"),)) from None
    return texts


def _from_texts(struct: type[I], texts: Mapping[str, list[str]], where: str) -> I:
    """Convert texts to the types of the fields; a list field may occur several times."""
    known = _members(struct)
    faults = list(_unknown((name for name in texts if name not in known), known, where))
    found: dict[str, Any] = {}
    for name, item in known.items():
        values = texts.get(name)
        if values is None:
            if item.required:
                faults.append(shapes.FieldError(f"{where}.{name}", "is missing"))
            continue
        try:
            found[name] = _from_text(item, values)
        except (ValueError, msgspec.ValidationError) as error:
            faults.append(
                shapes.FieldError(f"{where}.{name}", _explain(error, values[-1], item.type))
            )
    if faults:
        raise problems.InvalidRequest(faults)
    return decoders.convert(found, struct)


@cache
def _members(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {item.encode_name: item for item in msgspec.structs.fields(struct)}


def _from_text(item: msgspec.structs.FieldInfo, values: list[str]) -> Any:
    kind = _kind(item.type)
    if kind is list:
        return decoders.convert(values, item.type)
    if len(values) > 1:
        raise ValueError(f"is given {len(values)} times, once is allowed")
    text = values[0]
    content: Any = text
    if kind is int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"is an integer, found {text[:80]!r}")
        content = int(text)
    elif kind is bool:
        if text not in _BOOLEANS:
            raise ValueError(f"is true or false, found {text[:80]!r}")
        content = _BOOLEANS[text]
    return decoders.convert(content, item.type)


def _without_annotations(hint: Any) -> Any:
    return _without_annotations(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _without_none(hint: Any) -> Any:
    """The type without annotations and ``| None``."""
    inner = _without_annotations(hint)
    if get_origin(inner) in (Union, UnionType):
        arms = [arm for arm in get_args(inner) if arm is not NoneType]
        if len(arms) == 1:
            return _without_none(arms[0])
    return inner


@cache
def _kind(hint: Any) -> type:
    inner = _without_annotations(hint)
    if get_origin(inner) in (Union, UnionType):
        arms = [arm for arm in get_args(inner) if arm is not NoneType]
        return _kind(arms[0])
    if get_origin(inner) in (tuple, list, frozenset):
        return list
    if inner is bool:
        return bool
    return int if isinstance(inner, type) and issubclass(inner, int) else str


# ── body ──────────────────────────────────────────────────────────────────────────────────────────


def body_of(route: routing.Route, raw: bytes) -> inputs.Input:
    """Decode the body. Raises: MalformedBody, InvalidRequest, LimitExceeded."""
    struct = route.types[2]
    match route.content:
        case routing.Consumes.NOTHING | routing.Consumes.BYTES:
            return inputs.NOTHING
        case routing.Consumes.FORM:
            texts = _pairs(raw, "body")
            for name in (CSRF_FIELD, KEY_FIELD, VERSION_FIELD, BREAK_GLASS_FIELD):
                texts.pop(name, None)
            return _from_texts(struct, texts, "body")
    if not raw and route.has_optional_body:
        return struct()
    _check_depth(raw)
    try:
        found: inputs.Input = decoders.decoder(struct).decode(raw)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(raw) > LOOP_BYTES_MAX:
            wrong = [_first_fault(error)]
        else:
            wrong = _all_faults(raw, struct) or [shapes.FieldError("body", str(error))]
        raise problems.InvalidRequest(wrong, is_cut=len(wrong) == FAULTS_COUNTED_MAX) from None


def _all_faults(raw: bytes, struct: type[inputs.Input]) -> list[shapes.FieldError]:
    """List every fault of a body that could not be decoded. Raises: MalformedBody."""
    try:
        content = _loose.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise problems.MalformedBody(f"the body is not JSON: {error}") from None
    return list(islice(faults(content, struct, "body"), FAULTS_COUNTED_MAX))


def _first_fault(error: Exception) -> shapes.FieldError:
    """Return one fault of a large body: finding all would take as much memory and time again.

    Raises:
        MalformedBody.
    """
    if not isinstance(error, msgspec.ValidationError):
        raise problems.MalformedBody(f"the body is not JSON: {error}") from None
    reason, _, place = str(error).partition(" - at `$")
    return shapes.FieldError("body" + place.rstrip("`"), value_faults.explain(reason, ...))


def form_token(raw: bytes) -> bytes:
    """The CSRF token of a form; empty: it has none. Raises: InvalidRequest."""
    return form_field(raw, CSRF_FIELD) or b""


def form_field(raw: bytes, name: str) -> bytes | None:
    """A field that any form may have; None: this one does not. Raises: InvalidRequest."""
    found = "".join(_pairs(raw, "body").get(name, ()))
    return found.encode() if found else None


_loose = decoders.build(Any)


def _check_depth(raw: bytes) -> None:
    """Refuse a body that nests too deeply or would take far more memory than its bytes.

    Raises:
        MalformedBody, LimitExceeded.
    """
    is_large = len(raw) > LOOP_BYTES_MAX
    if not is_large and raw.count(b"{") + raw.count(b"[") <= DEPTH_MAX:
        return
    structure = _structure(raw)
    brackets = structure.replace(b",", b"")
    values = len(structure) - len(brackets) + brackets.count(b"{") + brackets.count(b"[")
    if is_large and values > VALUES_MAX:
        raise errors.LimitExceeded("values of a body", values, VALUES_MAX)
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in b"{[" else -1
        if depth > DEPTH_MAX:
            raise problems.MalformedBody(f"the body is nested deeper than {DEPTH_MAX} levels")
        if depth < 0:
            raise problems.MalformedBody(
                "the body is not JSON: a closing bracket has no opening one"
            )


def _structure(raw: bytes) -> bytes:
    """The commas and brackets of JSON outside of strings.

    It searches per string, not per byte: a file of 30 MB is one string.

    Raises:
        LimitExceeded.
    """
    if b"\\" in raw:
        raw = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    parts: list[bytes] = []
    at = 0
    while (start := raw.find(b'"', at)) >= 0:
        if len(parts) > 2 * VALUES_MAX:
            raise errors.LimitExceeded("values of a body", len(parts), VALUES_MAX)
        parts.append(raw[at:start])
        at = raw.find(b'"', start + 1) + 1
        if not at:
            break  # the last string is not closed
    else:
        parts.append(raw[at:])
    return b"".join(parts).translate(None, _NEITHER_COMMA_NOR_BRACKET)


def faults(content: Any, hint: Any, where: str) -> Iterator[shapes.FieldError]:
    """Yield each fault of decoded JSON that does not fit a type, with its place.

    It is a generator, so a caller that needs only some faults pays only for those.
    """
    own = _own_fault(content, hint, where)
    if not own:
        return
    inner = _without_none(hint)
    parts: Iterator[shapes.FieldError] = iter(())
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and isinstance(content, dict):
        parts = _struct_faults(content, inner, where)
    elif get_origin(inner) in (tuple, list, frozenset) and isinstance(content, list):
        element = get_args(inner)[0]
        parts = (
            fault
            for number, item in enumerate(content)
            for fault in faults(item, element, f"{where}[{number}]")
        )
    first = next(parts, None)
    if first is None:
        yield from own
    else:
        yield first
        yield from parts


def _struct_faults(
    content: dict[str, Any], struct: type[msgspec.Struct], where: str
) -> Iterator[shapes.FieldError]:
    known = _members(struct)
    config = struct.__struct_config__
    if config.forbid_unknown_fields:
        unknown_names = (name for name in content if name not in known and name != config.tag_field)
        yield from _unknown(unknown_names, known, where)
    for name, item in known.items():
        if name in content:
            yield from faults(content[name], item.type, f"{where}.{name}")
        elif item.required:
            yield shapes.FieldError(f"{where}.{name}", "is missing")


def _unknown(names: Iterable[str], known: Iterable[str], where: str) -> Iterator[shapes.FieldError]:
    detail = f"is unknown; known are {', '.join(known) or 'none'}"
    for name in names:
        yield shapes.FieldError(f"{where}.{name[: value_faults.FOUND_CHARS_MAX]}", detail)


def _own_fault(content: Any, hint: Any, where: str) -> list[shapes.FieldError]:
    try:
        decoders.convert(content, hint)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        # For a nested value, neither the value nor its type is known here.
        known = (..., None) if place else (content, hint)
        return [shapes.FieldError(where + place.rstrip("`"), value_faults.explain(reason, *known))]
    return []


def _explain(error: Exception, content: str, hint: Any) -> str:
    """Explain what is wrong with a text of a path, a query or a form."""
    reason, _, place = str(error).partition(" - at `$")
    return value_faults.explain(reason, ... if place else content, hint)


# ── headers ───────────────────────────────────────────────────────────────────────────────────────


def version_of(header: bytes | None) -> Position | None:
    """The version in If-Match, which is one strong ETag of ours.

    Raises:
        InvalidInput. VersionRequired: the header is empty, as from a client that has no ETag.
    """
    if header is None:
        return None
    if not header.strip():
        raise errors.VersionRequired("If-Match is empty: send the ETag that you got")
    found = _ETAG.fullmatch(header.decode("latin-1").strip())
    version = -1 if found is None else int(found[1])
    if not 0 <= version <= POSITION_MAX:
        raise errors.InvalidInput(
            f'If-Match is one ETag as it was answered, such as "17"; found {header[:80]!r}',
            field="If-Match",
        )
    return version


def key_of(header: bytes | None) -> str | None:
    """Check the idempotency key. Raises: InvalidInput."""
    if header is None:
        return None
    text = header.decode("latin-1")
    if not _KEY.fullmatch(text):
        raise errors.InvalidInput(
            f"Idempotency-Key has 1 to {KEY_CHARS_MAX} printable characters, no space",
            field="Idempotency-Key",
        )
    return text


def matches(header: bytes | None, etag: str) -> bool:
    """Whether If-None-Match names this ETag. Weak and strong are equal here (RFC 9110 §13.1.2)."""
    if header is None:
        return False
    text = header.decode("latin-1")
    if text.strip() == "*":
        return True
    return etag in [part.strip().removeprefix("W/") for part in text.split(",")]


@lru_cache(ACCEPTS_MAX)
def accepts(header: bytes | None, media: str) -> bool:
    """Whether Accept allows this media type; quality 0 does not."""
    if header is None or header in (b"*/*", b""):
        return True
    kind = media.partition("/")[0]
    for part in header.decode("latin-1").split(","):
        name, *parameters = [item.strip().lower() for item in part.split(";")]
        refused = any(item.replace(" ", "") in ("q=0", "q=0.0") for item in parameters)
        if not refused and name in (media.partition(";")[0], f"{kind}/*", "*/*"):
            return True
    return False


def dry_run_of(header: bytes | None) -> bool:
    """Whether Tidegate-Dry-Run asks for a dry run. Raises: InvalidInput."""
    if header not in (None, b"true", b"false"):
        raise errors.InvalidInput(
            f"Tidegate-Dry-Run is true or false; found {header.decode('latin-1')!r}",
            field="Tidegate-Dry-Run",
        )
    return header == b"true"


def break_glass_of(header: bytes | None, *, field: bytes | None = None) -> str:
    """The reason to bypass the approval of a protected channel, from the header or from the form
    field, which is usually empty. Raises: InvalidInput.
    """
    if header is None and not (field or b"").strip():
        return ""
    reason = unquote((header or b"").decode("latin-1")) if field is None else field.decode()
    reason = reason.strip()
    if not 1 <= len(reason) <= BREAK_GLASS_CHARS_MAX:
        raise errors.InvalidInput(
            f"Tidegate-Break-Glass has the reason, 1 to {BREAK_GLASS_CHARS_MAX} characters, "
            "percent-encoded",
            field="Tidegate-Break-Glass",
        )
    return reason
