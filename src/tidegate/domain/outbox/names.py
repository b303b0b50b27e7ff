"""The ids and idempotency keys of intents.

    RELEASE#web-stable/OUTBOX#lambda_alias_update#web.2#c1     the id of an intent
    web-stable:web.2:lambda_alias_update:7                     its key: scope, release, operation,
                                                               version of the registry row

The key depends only on the decision. It is the same for every attempt, and another one when the
same release is promoted again. No name contains a colon, so a key can be parsed in only one way.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from tidegate.errors import InvalidInput, NotFound
from tidegate.kernel import canonical_json, model

NAME_BYTES_MAX = 128
_NAMES: Final = {
    "scope": re.compile(r"[a-z0-9][a-z0-9-]*"),
    "release_id": re.compile(r"[a-z0-9][a-z0-9._-]*"),
    "operation": re.compile(r"[a-z][a-z0-9_-]{0,62}"),
    "command_id": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
}


class IdempotencyKey(Struct, frozen=True):
    """The parts of an effect's idempotency key."""

    scope: str
    release_id: str
    operation: str
    version: int

    def __str__(self) -> str:
        return f"{self.scope}:{self.release_id}:{self.operation}:{self.version}"


def check_name(name: str, text: str) -> None:
    """Raises: InvalidInput, LimitExceeded: it cannot be part of an id, a key or a file name."""
    model.check_text(name, text, NAME_BYTES_MAX)
    if not _NAMES[name].fullmatch(text):
        raise InvalidInput(f"{name} is {text!r}, allowed is {_NAMES[name].pattern}", field=name)


def idempotency_key(scope: str, release_id: str, operation: str, version: int) -> IdempotencyKey:
    """Raises: InvalidInput, LimitExceeded."""
    check_name("scope", scope)
    check_name("release_id", release_id)
    check_name("operation", operation)
    if not 0 <= version <= canonical_json.INTEGER_MAX:
        raise InvalidInput(f"a registry row has no version {version}", field="version")
    return IdempotencyKey(scope, release_id, operation, version)


def parse_key(text: str) -> IdempotencyKey | None:
    """Parse a key; None if it is not one of ours."""
    scope, _, rest = text.partition(":")
    release_id, _, rest = rest.partition(":")
    operation, _, version = rest.partition(":")
    try:
        key = idempotency_key(scope, release_id, operation, int(version))
    except (ValueError, InvalidInput):
        return None
    return key if str(key) == text else None


def row_id(scope: str, sort_key: str = "") -> str:
    """The id of a scope's row with this sort key, or a prefix of several."""
    return f"RELEASE#{scope}/{sort_key}"


def intent_id(scope: str, operation: str, release_id: str, command_id: str) -> str:
    return row_id(scope, f"OUTBOX#{operation}#{release_id}#{command_id}")


def scope_of_intent(intent_id: str) -> str:
    """The scope in the id of an intent. Raises: NotFound: it is not the id of an intent."""
    prefix, _, rest = intent_id.partition("#")
    scope, slash, _ = rest.partition("/")
    if prefix != "RELEASE" or not slash or not scope:
        raise NotFound(f"there is no intent {intent_id[:200]}")
    return scope
