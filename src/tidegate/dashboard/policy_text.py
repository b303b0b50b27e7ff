"""A rollout policy as people read and write it: short JSON, and the meaning of each member."""

from __future__ import annotations

import ast
import inspect
import json
from enum import Enum
from functools import cache
from typing import Any

from msgspec import NODEFAULT, Struct, structs

from tidegate.dashboard.components import Option
from tidegate.domain.channels import default_policy, facts, policy_document

SHOWN = (*policy_document.COMPLETED, "on_failure", "edges")  # also if they have their default
SHOWN_OF_WAVE = ("name", "soak_seconds", "converged_min")


def to_text(policy: facts.ChannelPolicy) -> str:
    """The policy without the members that have their defaults; it means the same."""
    written, usual = (
        policy_document.write_out(policy),
        policy_document.write_out(facts.ChannelPolicy()),
    )
    usual_wave = policy_document.write_out(facts.ChannelPolicy(waves=(facts.WaveSpec(),)))["waves"][
        0
    ]
    members = {
        name: value for name, value in written.items() if name in SHOWN or value != usual[name]
    }
    members["waves"] = [
        {
            name: value
            for name, value in wave.items()
            if name in SHOWN_OF_WAVE or value != usual_wave[name]
        }
        for wave in written["waves"]
    ]
    return lay_out(members)


def example_text() -> str:
    """The default policy as a person would write it."""
    return lay_out(default_policy.example())


def lay_out(members: dict[str, Any]) -> str:
    """Format JSON with a line for each member, and for each object of a list."""
    lines = [f"  {json.dumps(name)}: {_value(value)}" for name, value in members.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def _value(value: Any) -> str:
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        inner = ",\n".join(f"    {json.dumps(item, ensure_ascii=False)}" for item in value)
        return f"[\n{inner}\n  ]"
    return json.dumps(value, ensure_ascii=False)


# ── members of a policy ───────────────────────────────────────────────────────────────────────────


@cache
def describe_members() -> tuple[Option, ...]:
    """Every member of a policy with its default and its meaning, as in docs/reference/policy.md."""
    return (
        *_members_of(facts.ChannelPolicy, ""),
        *_members_of(facts.WaveSpec, "waves[]."),
        *_members_of(facts.ChannelEdge, "edges[]."),
        *_members_of(facts.HostEdge, "host_edges[]."),
    )


def _members_of(kind: type[Struct], prefix: str) -> tuple[Option, ...]:
    meanings = _meanings(kind.__name__)
    return tuple(
        Option(_default(item.default), f"{prefix}{item.name}", meanings.get(item.name, ""))
        for item in structs.fields(kind)
    )


def _default(value: Any) -> str:
    if value is NODEFAULT:
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    return "none" if value in (None, (), "") else json.dumps(value)


@cache
def _meanings(name: str) -> dict[str, str]:
    """The text below each member of a policy's struct; empty if the source is missing."""
    try:
        tree = ast.parse(inspect.getsource(facts))
    except OSError:
        return {}
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    meanings: dict[str, str] = {}
    for member, below in zip(found.body, found.body[1:], strict=False):
        match member, below:
            case (
                ast.AnnAssign(target=ast.Name(id=called)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                meanings[called] = " ".join(text.replace("`", "").split())
    return meanings
