"""Explains in plain words why a value does not fit its type.

The decoder reports ``Expected `int` >= 1``; this module turns it into "is at least 1; found 0".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

FOUND_CHARS_MAX = 80
_KINDS: Final = {
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time such as 2026-01-31T18:00:00Z",
    "null": "null",
}
_NOUNS: Final = {"str": "characters", "array": "entries", "object": "members", "bytes": "bytes"}
_BOUNDS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_WRONG_KIND = re.compile(r"Expected `([^`]+)`, got `[^`]+`")
_LENGTH = re.compile(r"Expected `(\w+)` of length (>=|<=) (\d+)")
_BOUND = re.compile(r"Expected `\w+` (>=|<=|>|<) (\S+)")
_FORM = re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL)
_NAME: Final = "consists of lower-case letters, digits and hyphens"
_FORMS: Final = {  # the patterns of names, and how to say them in words
    "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": f"{_NAME}, and begins and ends with a letter or digit",
    "^[a-z0-9-]+(/[a-z0-9-]+)*$": f"{_NAME}, in parts with / between them",
    r"^[a-z0-9-]+(\.[a-z0-9-]+){2,}$": f"{_NAME}, in three parts or more with . between them",
    "^[a-z0-9][a-z0-9._-]*$": f"{_NAME}, or . and _, and begins with a letter or digit",
    "^[!-~]+$": "consists of printable ASCII characters without spaces",
}
_PARTS = re.compile(r"\[\d+\]|[^.\[\]]+")  # of a decoder's path: member names and list indexes
_MISSING = re.compile(r"Object missing required field `(.+)`")
_STRANGE = re.compile(r"Object contains unknown field `(.+)`")


def explain(reason: str, content: Any, hint: Any = None) -> str:
    """Turn a decoder's reason into a clause whose subject is the member: "is …; found …".

    ``content`` is the value and ``hint`` its type, where they are known.
    """
    if reason.startswith("Invalid enum value"):
        allowed = list_choices(hint)
        return f"is one of {', '.join(allowed)}{_found(content)}" if allowed else reason
    if match := _WRONG_KIND.fullmatch(reason):
        kinds = [_KINDS.get(kind.strip(), kind.strip()) for kind in match[1].split("|")]
        return f"is {' or '.join(kinds)}{_found(content)}"
    if match := _LENGTH.fullmatch(reason):
        return _explain_length(match[1], match[2], match[3], content)
    if match := _BOUND.fullmatch(reason):
        return f"is {_BOUNDS[match[1]]} {match[2].removesuffix('.0')}{_found(content)}"
    if match := _FORM.fullmatch(reason):
        form = _FORMS.get(match[1].replace("\\\\", "\\")) or f"has the form {match[1]}"
        return f"{form}{_found(content)}"
    if "datetime" in reason:
        zone = " with its zone" if "timezone" in reason else ""
        return f"is {_KINDS['datetime']}{zone}{_found(content)}"
    if match := _MISSING.fullmatch(reason):
        return f"lacks {match[1]}"
    if match := _STRANGE.fullmatch(reason):
        return f"has the unknown member {match[1][:FOUND_CHARS_MAX]}"
    return reason


def explain_member(error: Exception, content: Any, types: Mapping[str, Any]) -> str:
    """Explain a fault in a decoded file with its member: "port is at least 1; found 0".

    ``types`` maps the members to their types.
    """
    reason, _, place = str(error).partition(" - at `$")
    name = place.rstrip("`").removeprefix(".")
    if not name:
        return f"it {explain(reason, ...)}"
    for part in _PARTS.findall(name):
        try:
            content = content[int(part[1:-1]) if part.startswith("[") else part]
        except (LookupError, TypeError, ValueError):
            content = ...
    return f"{name} {explain(reason, content, types.get(name))}"


def list_choices(hint: Any) -> list[str]:
    """The values of an enumeration, optional and annotated ones too; empty for any other type."""
    origin = get_origin(hint)
    if origin is Annotated:
        return list_choices(get_args(hint)[0])
    if origin in (Union, UnionType):
        return [one for arm in get_args(hint) if arm is not NoneType for one in list_choices(arm)]
    if origin is Literal:
        return [str(value) for value in get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(member.value) for member in hint]
    return []


def _explain_length(kind: str, sign: str, length: str, content: Any) -> str:
    noun = _NOUNS.get(kind, "entries")
    if int(length) == 1:
        noun = noun.removesuffix("s") if noun != "entries" else "entry"
    if sign == ">=" and length == "1":
        return "is empty"
    found = f"; found {len(content)}" if isinstance(content, str | list | dict | tuple) else ""
    return f"has {_BOUNDS[sign]} {length} {noun}{found}"


def _found(content: Any) -> str:
    match content:
        case str():
            return f"; found {content[:FOUND_CHARS_MAX]!r}"
        case bool() | None:
            return f"; found {str(content).lower() if content is not None else 'null'}"
        case int() | float():
            return f"; found {str(content)[:FOUND_CHARS_MAX]}"
        case list() | tuple():
            return "; found a list"
        case dict():
            return "; found an object"
    return ""
