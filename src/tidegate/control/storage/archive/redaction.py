"""Render events for the archive as lines of JSON, with secrets masked.

No fact holds a secret; this is a second line of defense. A member with the name of a secret is
masked, and so is a text that looks like one, wherever it is. If a fact type has an allow-list, all
members that are not on it are masked. A tag repeats the value of a member, so it is masked, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from tidegate.domain.outbox.redaction import REDACTED, is_secret, is_secret_name
from tidegate.errors import InvalidDefinition
from tidegate.kernel import codec, model
from tidegate.kernel.vocabulary import Vocabulary

Allowed = Mapping[str, Collection[str]]  # fact type → its members that are not masked

_encoder = msgspec.json.Encoder(order="deterministic")
_NOTHING: Final[Allowed] = {}


class FactRedactor:
    """Renders events with secrets masked. The same event always gives the same line.

    Raises:
        InvalidDefinition: an allow-list names a fact type that does not exist.
    """

    def __init__(self, vocabulary: Vocabulary, allowed: Allowed = _NOTHING) -> None:
        for name, members in allowed.items():
            if name not in vocabulary.types:
                raise InvalidDefinition(f"no fact type is called {name!r}; nothing would be masked")
            if isinstance(members, str):
                raise InvalidDefinition(f"the members of {name} must be a list, found one text")
        self._allowed = {name: frozenset(members) for name, members in allowed.items()}

    def line(self, event: model.Event) -> bytes:
        """Render the event as an archived line, with its line break."""
        masked: set[str] = set()
        body = self._body(event, masked)
        content = {
            "position": event.position,
            "at": codec.time_text(event.at),
            "kind": event.kind,
            "type": event.type,
            "schema": event.schema,
            "tags": [_tag(tag, masked) for tag in event.tags],
            "meta": _mask_secrets(msgspec.to_builtins(event.meta), masked),
            "body": body,
        }
        return _encoder.encode(content) + b"\n"

    def _body(self, event: model.Event, masked: set[str]) -> Any:
        try:
            body = msgspec.json.decode(event.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return REDACTED  # an unknown type: nothing is known about its content
        allowed = self._allowed.get(event.type)
        if allowed is None or not isinstance(body, dict):
            return _mask_secrets(body, masked)
        return {
            name: _mask_secrets(value, masked) if name in allowed else _mask(value, masked)
            for name, value in body.items()
        }


def _mask_secrets(value: Any, masked: set[str]) -> Any:
    """Mask everything that is a secret by its name or its look."""
    match value:
        case str():
            return _mask(value, masked) if is_secret(value) else value
        case list():
            return [_mask_secrets(item, masked) for item in value]
        case dict():
            return dict(_member(name, item, masked) for name, item in value.items())
    return value


def _member(name: str, value: Any, masked: set[str]) -> tuple[str, Any]:
    if is_secret(name):
        return REDACTED, _mask(value, masked)
    return name, _mask(value, masked) if is_secret_name(name) else _mask_secrets(value, masked)


def _mask(value: Any, masked: set[str]) -> Any:
    """Mask a value, hiding its form and length. True, false and null stay."""
    if value is None or isinstance(value, bool):
        return value
    masked.update(_texts(value))
    return REDACTED


def _texts(value: Any) -> list[str]:
    """List every text and number inside, as a tag would contain it."""
    match value:
        case dict():
            return [text for item in value.values() for text in _texts(item)]
        case list():
            return [text for item in value for text in _texts(item)]
    return [str(value)]


def _tag(tag: str, masked: set[str]) -> str:
    key, _, value = tag.partition(":")
    hidden = value in masked or is_secret_name(key) or is_secret(value)
    return f"{key}:{REDACTED}" if hidden else tag
