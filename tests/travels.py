"""What leaves the process and comes back: the names that logs, databases, clients and agents hold.

`frozen()` reads the list in tests/fixtures/travels.txt. `found()` computes it from the code, one
item per line, without the name of a module or of a class; only facts keep theirs, which is stored.

    python -m tests.travels    writes the file
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from itertools import chain
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import msgspec
from msgspec import inspect

import tidegate
from tidegate.api.routes import ROUTES
from tidegate.dashboard.routes import PAGES
from tidegate.domain.composition import SCHEMA
from tidegate.errors import TidegateError

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidegate"
FROZEN = ROOT / "tests" / "fixtures" / "travels.txt"

PURPOSE = re.compile(r"(?:secrets|self)\.(?:key|mac|seal)\(\s*\"(\w+)\"")
CONTEXT = re.compile(r"\"?(tidegate(?:\.[a-z_]+)+\.v\d+)")
HEADER = re.compile(r"\"(tidegate-[a-z-]+[a-z])\"", re.IGNORECASE)
NO_HEADERS = {
    f"tidegate-{name}"
    for name in ["agent", "ahead", "api", "data", "mac", "presence", "soak-due", "writer"]
}
TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n?\s*\)(?: STRICT|;)", re.DOTALL)
COLUMN = re.compile(r"(?:^|,)\s*([a-z]\w*) (?:text|bigint|integer|bytea|blob)\b", re.IGNORECASE)
# Items of DynamoDB: `_item` makes one of keywords, the others read one attribute by its name.
ITEM, ATTRIBUTE = "_item", {"text", "blob", "integer"}


def frozen() -> list[str]:
    return FROZEN.read_text().splitlines()


def found() -> list[str]:
    for module in walk_packages(tidegate.__path__, "tidegate."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    parts = (facts(), tags(), collections(), tables(), attributes(), errors(), texts(), routes())
    return sorted(set(chain.from_iterable(parts)))


# ── types ─────────────────────────────────────────────────────────────────────────────────────────


def members(struct: type[Any]) -> Iterator[str]:
    """Every member of a stored struct, including those of nested structs, as dotted paths.

    A path is followed by the values of a choice, and by the default that a reader uses when the
    member is absent.
    """
    yield from _inside(inspect.type_info(struct), "", ())


def _inside(kind: inspect.Type, path: str, above: tuple[type[Any], ...]) -> Iterator[str]:
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            if cls in above:
                yield f"{path} again"
                return
            for item in fields:
                inner = f"{path}.{item.encode_name}"
                yield inner + _choice(item.type) + _default(item)
                yield from _inside(item.type, inner, (*above, cls))
        case inspect.UnionType(types=types):
            for one in types:
                tag = one.tag if isinstance(one, inspect.StructType) else None
                yield from _inside(one, path if tag is None else f"{path}<{tag}>", above)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            yield from _inside(inner, f"{path}[]", above)
        case inspect.SetType(item_type=inner) | inspect.FrozenSetType(item_type=inner):
            yield from _inside(inner, f"{path}[]", above)
        case inspect.TupleType(item_types=types):
            for number, one in enumerate(types):
                yield from _inside(one, f"{path}[{number}]", above)
        case inspect.DictType(value_type=inner):
            yield from _inside(inner, f"{path}{{}}", above)
        case inspect.Metadata(type=inner):
            yield from _inside(inner, path, above)


def _choice(kind: inspect.Type) -> str:
    match kind:
        case inspect.EnumType(cls=cls):
            return ": " + "|".join(sorted(str(one.value) for one in cls))
        case inspect.LiteralType(values=values):
            return ": " + "|".join(sorted(map(str, values)))
        case inspect.UnionType(types=types):
            return "".join(map(_choice, types))
        case inspect.Metadata(type=inner):
            return _choice(inner)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            return _choice(inner)
        case inspect.SetType(item_type=inner) | inspect.FrozenSetType(item_type=inner):
            return _choice(inner)
    return ""


def _default(item: inspect.Field) -> str:
    if item.default_factory is not msgspec.NODEFAULT:
        return " = " + msgspec.json.encode(item.default_factory(), order="deterministic").decode()
    if item.default is not msgspec.NODEFAULT:
        return " = " + msgspec.json.encode(item.default, order="deterministic").decode()
    return ""


def facts() -> Iterator[str]:
    for name, known in SCHEMA.vocabulary.types.items():
        yield f"fact {name}: {known.kind}, schema {known.schema}"
        for member in members(known.struct):
            yield f"fact {name}{member}"


def tags() -> Iterator[str]:
    """The tags of the members of unions."""
    waiting = [msgspec.Struct]
    while waiting:
        struct = waiting.pop()
        waiting += struct.__subclasses__()
        config = struct.__struct_config__
        own = config.tag is not None and not struct.__subclasses__()
        if own and struct.__module__.startswith("tidegate."):
            fields = " ".join(struct.__struct_encode_fields__)
            yield f"tag {config.tag_field}={config.tag}: {fields}"


def collections() -> Iterator[str]:
    for name, collection in SCHEMA.collections.items():
        yield f"collection {name}: {collection.writers.value}, {collection.nature.value}"
        for member in members(collection.model):
            yield f"collection {name}{member}"
        for column, allowed in collection.allowed.items():
            yield f"column {name}.{column}: {'|'.join(sorted(allowed))}"
        for column in {*collection.columns, *collection.stamps} - collection.allowed.keys():
            yield f"column {name}.{column}"
        for index in collection.indexes:
            yield f"index {name}.{index.name}: {' '.join(index.columns)}"


# ── engines ───────────────────────────────────────────────────────────────────────────────────────


def source(*within: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(SOURCE.joinpath(*within).rglob("*.py")):
        yield path, path.read_text()


def tables() -> Iterator[str]:
    """The tables of the log itself; those of collections follow from their declarations."""
    for engine in ("sqlite", "postgres"):
        for _, text in source("engines", engine):
            for name, body in TABLE.findall(text):
                columns = COLUMN.findall(body)
                assert columns, f"no columns of {name} are understood"
                yield from (f"{engine} {name}.{column}" for column in columns)


def attributes() -> Iterator[str]:
    """The attributes of DynamoDB items, as far as the code names them."""
    for _, text in source("engines", "dynamodb"):
        for node in ast.walk(ast.parse(text)):
            called = _called(node)
            match node:
                case ast.Call(args=[*places]) if called == "ItemKey":
                    named = [str(one.value) for one in places if isinstance(one, ast.Constant)]
                    if len(named) == len(places) == 2:
                        yield f"dynamodb place {named[0]} {named[1]}"
                case ast.Call(keywords=said) if called == ITEM:
                    yield from (f"dynamodb attribute {item.arg}" for item in said if item.arg)
                case ast.Call(args=[_, ast.Constant(value=str(name))]) if called in ATTRIBUTE:
                    yield f"dynamodb attribute {name}"
                case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]):
                    if re.fullmatch(r"[a-z]+#", start):
                        yield f"dynamodb prefix {start}"
                case ast.AugAssign(value=ast.Dict(keys=keys)):
                    for key in keys:
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            yield f"dynamodb attribute {key.value}"
                case ast.AnnAssign(annotation=ast.Name(id="Final"), value=ast.Constant(value=name)):
                    if isinstance(name, str) and re.fullmatch("[a-z_]+|[A-Z]+", name):
                        yield f"dynamodb constant {name}"


def _called(node: ast.AST) -> str:
    """The last part of the called name, with or without its module."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return ""


# ── what clients, agents and secrets know ─────────────────────────────────────────────────────────


def errors() -> Iterator[str]:
    """Every code, with the family that says what to do about it."""
    waiting = [(TidegateError, "none")]
    while waiting:
        error, family = waiting.pop()
        for kind in error.__subclasses__():
            waiting.append((kind, kind.code if error is TidegateError else family))
        if error.__module__.startswith("tidegate."):
            yield f"error {error.code}: {family}"


def texts() -> Iterator[str]:
    """Purposes of derived keys, labels that are signed or hashed, and headers."""
    for _, text in source():
        yield from (f"key purpose {name}" for name in PURPOSE.findall(text))
        yield from (f"context {name}" for name in CONTEXT.findall(text))
        headers = {name.lower() for name in HEADER.findall(text)} - NO_HEADERS
        yield from (f"header {name}" for name in headers)


def routes() -> Iterator[str]:
    """Every operation and page, with the media types that it accepts and returns."""
    for route in (*ROUTES, *PAGES):
        takes = route.consumes.value if isinstance(route.consumes, Enum) else ""
        if not takes and route.takes_body:
            takes = "application/json"
        streams = " or events" if route.streams else ""
        media = f"{takes} -> {route.produces}{streams}" if takes else f"{route.produces}{streams}"
        yield f"route {route.path} {route.method}: {media}"


def main() -> None:
    lines = found()
    FROZEN.write_text("".join(f"{line}\n" for line in lines))
    print(f"{FROZEN.relative_to(ROOT)}: {len(lines)} lines")


if __name__ == "__main__":
    main()
