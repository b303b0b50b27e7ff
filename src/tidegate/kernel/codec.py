"""Encodes facts, rows and commands as JSON, always to the same bytes.

Deterministic order, no floats, integers within 2**53, aware UTC times to the microsecond in fixed
width, no lone surrogates. A value that breaks a rule is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeVar, cast

import msgspec

from tidegate import decoders
from tidegate.errors import InvalidInput
from tidegate.kernel import canonical_json, model
from tidegate.kernel.canonical_json import (
    DEPTH_MAX as DEPTH_MAX,
    INTEGER_MAX as INTEGER_MAX,
    plain,
    renderer,
    time_text as time_text,
)

T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="deterministic")
_meta_decoder = decoders.build(model.Meta)
decoders.build(dict)


def prepare(struct: type[msgspec.Struct]) -> None:
    """Build the encoder and decoders of this type; call it at start.

    Raises:
        InvalidDefinition: a member of the type has no portable form.
    """
    canonical_json.check_type(struct)
    plain(struct)
    decoders.build(struct)
    decoders.build(cast(Any, list)[struct])


def encode(value: msgspec.Struct) -> bytes:
    """Encode a fact, row or command as its one JSON text.

    Raises:
        InvalidInput: an integer, time or text that has no portable form; names the field.
    """
    struct = type(value)
    is_plain = plain(struct)
    try:
        if is_plain is not None and is_plain(value):
            return _encoder.encode(value)
        render = renderer(struct)
        return _encoder.encode(value if render is None else render(value, struct.__name__))
    except UnicodeEncodeError:
        raise InvalidInput(f"{type(value).__name__} holds a lone surrogate") from None


def decode(data: bytes, struct: type[T]) -> T:
    """Decode a value. Raises: InvalidInput, naming the member that does not fit."""
    try:
        value: T = decoders.decoder(struct).decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"not a {struct.__name__}: {error}") from None
    return value


def decode_all(texts: Sequence[bytes], struct: type[T]) -> list[T]:
    """Decode many texts in one call, which is faster. Raises: InvalidInput."""
    values: list[T] = []
    with suppress(msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
        values = decoders.decoder(cast(Any, list)[struct]).decode(b"[" + b",".join(texts) + b"]")
    if len(values) != len(texts):  # one is not valid: decoding it alone raises with the reason
        return [decode(text, struct) for text in texts]
    return values


def convert(content: Any, struct: type[T]) -> T:
    """Convert a decoded JSON object to a value. Raises: InvalidInput."""
    try:
        return decoders.convert(content, struct)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"not a {struct.__name__}: {error}") from None


def time_value(text: str) -> datetime:
    """Parse the time that ``time_text`` wrote."""
    return datetime.fromisoformat(text)


def meta_text(meta: model.Meta) -> str:
    """Encode a meta as it is stored."""
    return _encoder.encode(meta).decode()


def meta_value(text: str | bytes) -> model.Meta:
    """Decode the meta that ``meta_text`` wrote."""
    return model.NO_META if text == "{}" else _meta_decoder.decode(text)


def leaf(event: model.Event) -> bytes:
    """The hash of the event as a leaf of a Merkle tree, computed from stored columns only."""
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
