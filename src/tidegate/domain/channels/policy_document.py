"""A policy as JSON: read member by member, completed with defaults, written out, compared.

A wrong member takes its default while the rest is read, so that all faults are found at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, cast

from msgspec import UNSET, Struct, inspect, structs

from tidegate.domain.channels import default_policy, facts
from tidegate.domain.channels.policy import FAULTS_MAX, PolicyFinding

FOUND_CHARS_MAX = 60  # of a wrong value in a message
DOCUMENT: Final = "the policy"
COMPLETED: Final = ("waves", "offline_grace_seconds")  # taken from DEFAULT_POLICY if omitted


class PolicyRead(Struct, frozen=True):
    """A policy from a document, and the faults of the document."""

    policy: facts.ChannelPolicy
    faults: tuple[PolicyFinding, ...]
    completed: tuple[str, ...]  # omitted members that got their value from the default


class PolicyChange(Struct, frozen=True):
    """One member that differs between two policies. An absent one is None."""

    path: str
    before: Any
    after: Any


def read_policy(document: Any) -> PolicyRead:
    """Read a policy as a person writes it; an edge may be a channel's name alone."""
    faults: list[PolicyFinding] = []
    if isinstance(document, dict) and isinstance(document.get("edges"), list):
        edges = [{"channel": edge} if isinstance(edge, str) else edge for edge in document["edges"]]
        document = document | {"edges": edges}
    read = _read(document, inspect.type_info(facts.ChannelPolicy), "", faults)
    given = document if isinstance(document, dict) else {}
    policy = facts.ChannelPolicy() if read is UNSET else cast(facts.ChannelPolicy, read)
    completed = tuple(name for name in COMPLETED if name not in given)
    members = {name: getattr(policy, name) for name in policy.__struct_fields__}
    members |= {name: getattr(default_policy.DEFAULT_POLICY, name) for name in completed}
    return PolicyRead(facts.ChannelPolicy(**members), tuple(faults[:FAULTS_MAX]), completed)


def _read(found: Any, kind: inspect.Type, path: str, faults: list[PolicyFinding]) -> Any:
    """Read the value as this type; return UNSET and a fault if it does not fit."""
    match kind:
        case inspect.StructType() if isinstance(found, dict):
            return _read_struct(found, kind, path, faults)
        case inspect.VarTupleType(item_type=item) if isinstance(found, list):
            members = [_read(one, item, f"{path}[{n}]", faults) for n, one in enumerate(found)]
            return tuple(one for one in members if one is not UNSET)
        case inspect.UnionType(types=kinds):
            if found is None and any(isinstance(one, inspect.NoneType) for one in kinds):
                return None
            inner = next(one for one in kinds if not isinstance(one, inspect.NoneType))
            return _read_scalar(found, inner, path, faults, " or null")
    return _read_scalar(found, kind, path, faults, "")


def _read_struct(
    found: Mapping[Any, Any], kind: inspect.StructType, path: str, faults: list[PolicyFinding]
) -> Any:
    known = {member.name: member for member in kind.fields}
    for name in found:
        if name not in known:
            faults.append(_check_unknown(str(name), tuple(known), path))
    members: dict[str, Any] = {}
    is_whole = True
    for name, member in known.items():
        place = f"{path}.{name}" if path else name
        if name in found:
            value = _read(found[name], member.type, place, faults)
            if value is not UNSET:
                members[name] = value
        elif member.required:
            faults.append(PolicyFinding(place, f"{place} is missing."))
        is_whole = is_whole and (name in members or not member.required)
    return kind.cls(**members) if is_whole else UNSET


def _check_unknown(name: str, known: tuple[str, ...], path: str) -> PolicyFinding:
    name = name[:FOUND_CHARS_MAX]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"its members are {', '.join(known)}."
    place = f"{path}.{name}" if path else name
    return PolicyFinding(place, f"There is no member {name} in {path or DOCUMENT}; {hint}")


def _read_scalar(
    found: Any, kind: inspect.Type, path: str, faults: list[PolicyFinding], more: str
) -> Any:
    allowed = "allowed is "
    match kind:
        case inspect.EnumType(cls=choices):
            values = {str(one.value): one for one in choices}
            if isinstance(found, str) and found in values:
                return values[found]
            hint = f"allowed are {', '.join(values)}"
        case inspect.BoolType():
            if isinstance(found, bool):
                return found
            hint = f"{allowed}true or false"
        case inspect.IntType():
            if isinstance(found, int) and not isinstance(found, bool):
                return found
            if isinstance(found, str):
                found = f'"{found}"'  # with quotes: without them "6" would look like a number
            hint = f"{allowed}an integer"
        case inspect.StrType():
            if isinstance(found, str):
                return found
            hint = f"{allowed}a text"
        case inspect.VarTupleType():
            hint = f"{allowed}a list"
        case _:
            hint = f"{allowed}an object"
    place = path or "The policy"
    faults.append(PolicyFinding(path, f"{place} is {_show(found)}; {hint}{more}."))
    return UNSET


def _show(found: Any) -> str:
    match found:
        case str():
            return found[:FOUND_CHARS_MAX] if found.strip() else repr(found[:FOUND_CHARS_MAX])
        case None:
            return "null"
        case bool():
            return str(found).lower()
        case dict():
            return "an object"
        case list():
            return "a list"
    return str(found)[:FOUND_CHARS_MAX]


# ── writing and comparing ─────────────────────────────────────────────────────────────────────────


def write_out(policy: facts.ChannelPolicy) -> dict[str, Any]:
    """Write the policy as JSON with every member, including those at their default."""
    return cast(dict[str, Any], _to_json(policy))


def _to_json(value: Any) -> Any:
    if isinstance(value, Struct):
        return {item.name: _to_json(getattr(value, item.name)) for item in structs.fields(value)}
    if isinstance(value, tuple):
        return [_to_json(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def changes(before: facts.ChannelPolicy, after: facts.ChannelPolicy) -> tuple[PolicyChange, ...]:
    """Compare two policies member by member."""
    return tuple(_changes(write_out(before), write_out(after), ""))


def _changes(before: Any, after: Any, path: str) -> Iterator[PolicyChange]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before:
            yield from _changes(before[name], after[name], f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(after, list):
        for place in range(max(len(before), len(after))):
            old = before[place] if place < len(before) else None
            new = after[place] if place < len(after) else None
            yield from _changes(old, new, f"{path}[{place}]")
    else:
        yield PolicyChange(path, before, after)
