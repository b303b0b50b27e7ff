"""Write docs/reference/*.md from the code: ``python -m tests.docs.reference``.

    types, defaults, limits ──┐
    the string below a member ├──▶ pages() ──▶ docs/reference/<name>.md
    routes, steps, errors ────┘

The meaning of a setting, a policy member, a verb, a role or a step is written in the source, in a
string right below it. Errors and routes are described by their docstrings, metrics by their help
text, and the server's settings by the help of their flags. The text around the tables is in
``tests/docs/prose.py``.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from inspect import cleandoc, getsource
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import inspect
from prometheus_client import CollectorRegistry

from tests.docs import prose
from tests.source_tree import own_errors
from tidegate import __version__, agent, config, errors
from tidegate.agent import config as agent_config
from tidegate.api.fleet_metrics import FleetMetrics
from tidegate.api.metrics import Metrics
from tidegate.api.notify_metrics import NotifyMetrics
from tidegate.api.openapi import document
from tidegate.api.routes import ROUTES
from tidegate.cli.exit_codes import exit_code_of_status
from tidegate.clock import system_clock
from tidegate.commands.options import WORDS
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.fleet_picture import FleetPictures
from tidegate.control.queries.reads import Reads
from tidegate.control.storage.archive.loop import ArchiveLoop
from tidegate.control.storage.garbage_collection import GarbageCollector
from tidegate.control.worker_loops import Counters
from tidegate.domain.access import roles, steps
from tidegate.domain.access.roles import VERBS, Role, Verb
from tidegate.domain.access.steps import STEPS, Step, VersionRule
from tidegate.domain.channels import facts, policy
from tidegate.domain.channels.default_policy import example
from tidegate.domain.composition import SCHEMA
from tidegate.domain.releases.slices import OPERATIONS_MAX
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.web.problems import headers_of, status_of
from tidegate.web.routing import PublicAccess, Requires, Route

PLACE: Final = Path(__file__).parents[2] / "docs" / "reference"
OPENAPI: Final = "openapi.json"
GENERATED: Final = "<!-- Generated from the code: python -m tests.docs.reference -->\n"


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    made = {
        "settings.md": settings_page(),
        "policy.md": policy_page(),
        "metrics.md": metrics_page(),
        "permissions.md": permissions_page(),
        "routes.md": routes_page(),
        "errors.md": errors_page(),
    }
    return {name: GENERATED + "\n" + text.strip() + "\n" for name, text in made.items()}


def openapi_document() -> str:
    """The OpenAPI document that the server answers with, for readers without a server."""
    made = msgspec.json.encode(document(ROUTES, __version__), order="sorted")
    return msgspec.json.format(made, indent=1).decode() + "\n"


# ── sentences ─────────────────────────────────────────────────────────────────────────────────────


def sentences(owner: type[Any] | ModuleType) -> Mapping[str, str]:
    """The strings right below the members of a class, or below the constants of a module."""
    body = ast.parse(getsource(owner)).body
    if isinstance(owner, type):
        assert isinstance(body[0], ast.ClassDef)
        body = body[0].body
    found: dict[str, str] = {}
    for member, below in pairwise(body):
        match member, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring as one line of Markdown."""
    paragraph = cleandoc(text or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell would end it, so it is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def code(text: object) -> str:
    return f"`{text}`"


def codes(texts: Iterable[object]) -> str:
    return ", ".join(map(code, texts))


# ── members of a type ─────────────────────────────────────────────────────────────────────────────


class Member(NamedTuple):
    """One setting, or one member of a policy."""

    name: str
    type: str
    default: str
    allowed: str
    meaning: str


def members(
    struct: type[Any], meanings: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[Member]:
    """The members of a struct. ``limits`` are those that its type does not contain."""
    kind = inspect.type_info(struct)
    assert isinstance(kind, inspect.StructType)
    for item in kind.fields:
        yield Member(
            item.name,
            type_of(item.type),
            default_of(item),
            limits.get(item.name) or range_of(item.type),
            meanings.get(item.name, ""),
        )


def type_of(kind: inspect.Type) -> str:
    """A type in words for operators."""
    match kind:
        case inspect.Metadata(type=inner):
            return type_of(inner)
        case inspect.UnionType(types=kinds):
            return " or ".join(map(type_of, kinds))
        case inspect.NoneType():
            return "`null`"
        case inspect.BoolType():
            return "boolean"
        case inspect.IntType():
            return "integer"
        case inspect.FloatType():
            return "number"
        case inspect.StrType():
            return "string"
        case inspect.EnumType(cls=cls):
            return " or ".join(code(one.value) for one in cls)
        case inspect.LiteralType(values=values):
            return " or ".join(map(code, values))
        case inspect.VarTupleType(item_type=inner):
            return f"list of {type_of(inner)}"
        case inspect.DictType(value_type=inner):
            return f"table of {type_of(inner)}"
        case inspect.StructType(cls=cls):
            return f"[{OBJECTS[cls]}](#{OBJECTS[cls].replace(' ', '-')})"
    raise AssertionError(f"no words for {kind}")


def default_of(item: inspect.Field) -> str:
    if item.default_factory is not msgspec.NODEFAULT:
        return code(msgspec.json.encode(item.default_factory()).decode())
    if item.default is msgspec.NODEFAULT:
        return "required"
    return code(msgspec.json.encode(item.default).decode())


def range_of(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            low = kind.ge if kind.ge is not None else kind.gt
            if low is None:
                return ""
            above = "" if kind.ge is not None else "more than "
            return f"{above}{number(low)} to {number(kind.le)}"
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.Metadata(type=inner):
            return range_of(inner)
    return ""


def number(value: float | None) -> str:
    return f"{value:,}" if value is not None else "any"


OBJECTS: Final[Mapping[type[Any], str]] = {
    config.TargetSetting: "target",
    config.NotifySetting: "notify",
    agent_config.ChannelSettings: "agent channel",
    facts.WaveSpec: "wave",
    facts.ChannelEdge: "channel edge",
    facts.HostEdge: "host edge",
}


# ── settings ──────────────────────────────────────────────────────────────────────────────────────

SETTING_LIMITS: Final = {
    "data": "a directory",
    "store": "`sqlite:///…`, `postgresql://…`, `dynamodb://…`",
    "host": "loopback, unless `public_url` is https or `behind_proxy` is true",
    "trusted_proxies": "addresses and networks, not `0.0.0.0/0` or `::/0`",
    "public_url": "`http://` or `https://` and a host, no path",
    "archive": "a directory",
}
AGENT_LIMITS: Final = {
    "server": "`https://` and a host; `http://` on loopback",
    "state": "an absolute path",
    "channels": f"1 to {agent_config.CHANNELS_MAX}",
    "reference_directories": f"at most {agent_config.REFERENCE_DIRECTORIES_MAX} absolute paths, "
    "not `/`",
    "reference_hosts": f"at most {agent_config.REFERENCE_HOSTS_MAX}, each `host:port`",
}
CHANNEL_LIMITS: Final = {
    "root": "an absolute path; required with `symlink`",
    "command": "begins with an absolute path; required with `command`",
    "probes": "an absolute path",
}
TARGET_LIMITS: Final = {
    "url": "required for a webhook",
    "secret_file": "required for a webhook",
    "program": "required for a command",
    "directory": "must exist; required for a file target",
}


def server_settings() -> tuple[Member, ...]:
    return tuple(members(config.Settings, WORDS, SETTING_LIMITS))


def target_settings() -> tuple[Member, ...]:
    return _described(config.TargetSetting, TARGET_LIMITS)


def agent_settings() -> tuple[Member, ...]:
    return _described(agent_config.AgentSettings, AGENT_LIMITS)


def agent_channel_settings() -> tuple[Member, ...]:
    return _described(agent_config.ChannelSettings, CHANNEL_LIMITS)


def _described(struct: type[Any], limits: Mapping[str, str]) -> tuple[Member, ...]:
    return tuple(members(struct, sentences(struct), limits))


def _member_table(head: str, found: Iterable[Member]) -> str:
    rows = (
        [code(item.name), item.type, item.default, item.allowed, item.meaning] for item in found
    )
    return table((head, "type", "default", "allowed", "meaning"), rows)


def settings_page() -> str:
    rows = []
    for item in server_settings():
        elsewhere = ("in the file only", "")
        if item.name not in config.FILE_ONLY:
            flag = item.name.replace("_", "-")
            elsewhere = (code(config.PREFIX + item.name.upper()), code(f"--{flag}"))
        facts_of = [item.type, item.default, item.allowed, *elsewhere, item.meaning]
        rows.append([code(item.name), *facts_of])
    head = ("setting", "type", "default", "allowed", "environment", "flag", "meaning")
    return "".join(
        (
            prose.SETTINGS,
            table(head, rows),
            prose.TARGETS,
            _member_table("setting", target_settings()),
            prose.NOTIFY,
            _member_table("setting", _described(config.NotifySetting, {})),
            prose.AGENT,
            _member_table("setting", agent_settings()),
            prose.AGENT_CHANNEL,
            _member_table("setting", agent_channel_settings()),
        )
    )


# ── the rollout policy ────────────────────────────────────────────────────────────────────────────

SECONDS: Final = f"0 to {number(policy.SECONDS_MAX)}"
POLICY_LIMITS: Final[Mapping[type[Any], Mapping[str, str]]] = {
    facts.ChannelPolicy: {
        "waves": f"at most {policy.WAVES_MAX}, with different names",
        "edges": f"at most {policy.CHANNEL_EDGES_MAX}, each of another channel",
        "host_edges": f"at most {number(policy.HOST_EDGES_MAX)}, without a circle",
        "operations": f"at most {OPERATIONS_MAX}, each once",
        **{name: SECONDS for name in facts.ChannelPolicy.__struct_fields__ if "seconds" in name},
    },
    facts.WaveSpec: {
        "name": f"at most {policy.WAVE_NAME_CHARS_MAX} printable characters",
        "selector": "a [selector](../fleet.md#selectors)",
        "percent": "1 to 100; not together with `count`",
        "count": "1 or more; not together with `percent`",
        "soak_seconds": SECONDS,
        "failures_max": "0 or more",
        "failures_max_percent": "0 to 100",
        "converged_min": "0 or more",
        "success_percent": "1 to 100",
        "delay_seconds": SECONDS,
    },
    facts.ChannelEdge: {"channel": "another channel", "soak_seconds": SECONDS},
    facts.HostEdge: {"before": "a host of the fleet", "after": "a host of the fleet"},
}
EXAMPLE: Final = {
    "waves": [
        {"name": "canary", "count": 1, "soak_seconds": 600},
        {"name": "early", "percent": 25, "soak_seconds": 1800},
        {"name": "rest", "soak_seconds": 600, "failures_max_percent": 2},
    ],
    "on_failure": "rollback-and-halt",
    "sustained_failure_seconds": 120,
    "offline_grace_seconds": 3600,
    "edges": [{"channel": "web-dev", "require": "succeeded", "soak_seconds": 86400}],
    "host_edges": [{"before": "db-1", "after": "db-2"}],
    "operations": ["notify"],
}


def policy_members(struct: type[Any]) -> tuple[Member, ...]:
    """The members of a policy. Their defaults are those that a policy is completed with."""
    completed = example() if struct is facts.ChannelPolicy else {}
    texts = {"waves": "the three above"} | {
        name: code(json.dumps(value)) for name, value in completed.items() if name != "waves"
    }
    return tuple(
        item._replace(default=texts.get(item.name, item.default))
        for item in _described(struct, POLICY_LIMITS[struct])
    )


def enum_meanings(kind: type[Enum]) -> dict[str, str]:
    """The values of a choice, and what each means."""
    return {str(one.value): sentences(kind).get(one.name, "") for one in kind}


def _compact(document: Any) -> str:
    """A document as JSON, with the innermost values on one line."""
    text = json.dumps(document, indent=2)
    text = re.sub(r"\{\n +([^{}]+?)\n +\}", lambda found: _one_line("{", found), text)
    return re.sub(r"\[\n +([^][{}]+?)\n +\]", lambda found: _one_line("[", found), text)


def policy_page() -> str:
    requires = ([code(value), words] for value, words in enum_meanings(facts.EdgeRequires).items())
    return "".join(
        (
            prose.POLICY.replace("@@DEFAULT@@", _compact(example())),
            "## Example\n",
            prose.POLICY_EXAMPLE,
            f"```json\n{_compact(EXAMPLE)}\n```\n",
            prose.POLICY_REFUSALS,
            _member_table("member", policy_members(facts.ChannelPolicy)),
            prose.WAVES,
            _member_table("member", policy_members(facts.WaveSpec)),
            prose.EDGES,
            _member_table("member", policy_members(facts.ChannelEdge)),
            prose.REQUIRE,
            table(("value", "meaning"), requires),
            prose.HOST_EDGES,
            _member_table("member", policy_members(facts.HostEdge)),
        )
    )


def _one_line(bracket: str, found: re.Match[str]) -> str:
    return bracket + " ".join(found[1].split()) + {"{": "}", "[": "]"}[bracket]


# ── metrics ───────────────────────────────────────────────────────────────────────────────────────


class Metric(NamedTuple):
    """One metric as its help text describes it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def server_metrics() -> tuple[Metric, ...]:
    registry = Metrics().registry
    store = MemoryStore(SCHEMA)
    reads, fleet = Reads(store), FleetReader(store, cast(Any, None))
    pictures = FleetPictures(reads, system_clock)
    registry.register(FleetMetrics(reads, fleet, pictures, system_clock))
    registry.register(NotifyMetrics(reads, system_clock))
    return tuple(_metrics(registry))


def worker_metrics() -> tuple[Metric, ...]:
    registry = CollectorRegistry()
    Counters(registry)
    nothing = cast(Any, None)
    store = MemoryStore(SCHEMA)
    GarbageCollector(nothing, store, nothing, nothing, nothing, nothing, nothing, registry)
    ArchiveLoop(cast(Any, None), Event(), registry)
    return tuple(_metrics(registry))


def _metrics(registry: CollectorRegistry) -> Iterator[Metric]:
    """The library lists label names only after the first sample, so they are read from its
    internals.
    """
    for collector in registry._collector_to_names:
        described = list(getattr(collector, "describe", tuple)())
        for family in described or collector.collect():
            labels = getattr(family, "_labelnames", ()) or getattr(collector, "_labelnames", ())
            suffix = "_total" if family.type == "counter" else ""
            meaning = family.documentation.rstrip(".") + "."
            yield Metric(family.name + suffix, family.type, tuple(labels), meaning)


def metrics_page() -> str:
    head = ("metric", "kind", "labels", "meaning")
    served, worked = (
        table(
            head,
            ([code(one.name), one.kind, codes(one.labels), one.meaning] for one in sorted(found)),
        )
        for found in (server_metrics(), worker_metrics())
    )
    return "".join((prose.METRICS, "## The server\n\n", served, prose.WORKER, worked))


# ── roles and permissions ─────────────────────────────────────────────────────────────────────────

EVERYWHERE: Final = "`*`"
REPOSITORY: Final = "repository"
CHANNEL: Final = "channel"
# Where operations check a step's permission, by the step's noun; exceptions are listed by step.
SCOPE_OF_NOUN: Final = {
    "rollout": CHANNEL,
    "channel": CHANNEL,
    "revision": REPOSITORY,
    "package": REPOSITORY,
    "repository": REPOSITORY,
    "release": CHANNEL,
    "outbox": CHANNEL,
    "target": EVERYWHERE,
    "publication": EVERYWHERE,
    "subscription": "each scope that it names",
    "user": EVERYWHERE,
    "token": "",
    "installation": "",
    "session": "",
    "freeze": "each channel that it names, or `*`",
    "window": "each channel that it names, or `*`",
    "quarantine": CHANNEL,
    "request": CHANNEL,
    "budget": EVERYWHERE,
    "host": EVERYWHERE,
    "join": EVERYWHERE,
}
SCOPE_OF_STEP: Final = {
    "revision.clean_up_owner": EVERYWHERE,
    "repository.create": EVERYWHERE,
    "user.change_password": "",
}


def step_meanings() -> dict[str, str]:
    """The meaning of each step, by its name."""
    said = sentences(steps)
    return {
        found.name: said.get(name, "")
        for name, found in vars(steps).items()
        if isinstance(found, Step)
    }


def roles_of(needed: Iterable[Verb]) -> list[Role]:
    return [role for role, verbs in VERBS.items() if verbs & set(needed)]


def permissions_page() -> str:
    verb_rows = ([code(name), words] for name, words in enum_meanings(Verb).items())
    role_words = enum_meanings(roles.Role)
    matrix = (
        [code(role), *("yes" if verb in VERBS[role] else "" for verb in Verb), role_words[role]]
        for role in Role
    )
    return "".join(
        (
            prose.PERMISSIONS,
            table(("role", *map(code, Verb), "meaning"), matrix),
            "\n",
            table(("verb", "allows you to"), verb_rows),
            prose.STEPS_HEAD,
            *_step_tables(),
        )
    )


def _step_tables() -> Iterator[str]:
    meanings = step_meanings()
    nouns: dict[str, list[Step]] = defaultdict(list)
    for step in STEPS.values():
        nouns[step.name.partition(".")[0]].append(step)
    head = ("step", "what it does", "needs", "roles", "scope", "version", "urgent")
    for noun, found in sorted(nouns.items()):
        rows = (
            [
                code(step.name),
                meanings[step.name],
                " or ".join(map(code, step.verbs)) or "–",
                codes(roles_of(step.verbs)),
                SCOPE_OF_STEP.get(step.name, SCOPE_OF_NOUN[noun]),
                "" if step.version is VersionRule.IGNORED else step.version.value,
                "yes" if step.urgent else "",
            ]
            for step in found
        )
        yield f"### {noun}\n\n" + table(head, rows) + "\n"


# ── routes ────────────────────────────────────────────────────────────────────────────────────────

KINDS: Final[Mapping[str, Callable[[Route], bool]]] = {
    "all": lambda route: True,
    "all that are not public": lambda route: route.permission is not PublicAccess.PUBLIC,
    "all that write": lambda route: route.is_write,
    "all that take a body": lambda route: route.takes_body,
    "all with a version": lambda route: route.guard is not VersionRule.IGNORED,
}


def scope_of(route: Route) -> str:
    """The scope of a route's permission, read from the function that computes it."""
    assert isinstance(route.permission, Requires)
    made_by = route.permission.scope
    if made_by is None:
        return "some scope"
    if made_by.__qualname__.startswith("requires."):
        return EVERYWHERE
    source = getsource(made_by)
    if "repository_scope" in source:
        return "the repository"
    if "list_scopes" in source:
        return "each channel that it names, or `*`"
    assert "channel_scope" in source, f"the scope of {route.name}"
    return "the channel"


def needs(route: Route) -> str:
    if isinstance(route.permission, PublicAccess):
        return route.permission.value.replace(" ", "-")
    return f"{' or '.join(map(code, route.permission.verbs))} on {scope_of(route)}"


def _shared_statuses() -> Iterator[str]:
    paths = document(ROUTES, "")["paths"]
    answers = {
        route: {
            status
            for status in paths[route.path.replace("...}", "}")][route.method.lower()]["responses"]
            if int(status) >= 400
        }
        for route in ROUTES
    }
    seen: set[str] = set()
    for words, is_one in KINDS.items():
        common = set.intersection(*(answers[route] for route in ROUTES if is_one(route)))
        yield f"| {words} | {codes(sorted(common - seen))} |\n"
        if words in ("all", "all that write"):  # a route that takes a body writes
            seen |= common


def routes_page() -> str:
    nouns: dict[str, list[Route]] = defaultdict(list)
    for route in ROUTES:
        nouns[route.noun].append(route)
    head = ("route", "what it does", "needs", "version", "status", "codes")
    parts = [prose.ROUTES_HEAD, *_shared_statuses()]
    for noun, found in sorted(nouns.items()):
        rows = (
            [
                code(route.name),
                route.summary + (" Also as server-sent events." if route.streams else ""),
                needs(route),
                "" if route.guard is VersionRule.IGNORED else route.guard.value,
                ", ".join(map(str, (route.status if route.answer else 204, *route.also))),
                codes(dict.fromkeys(sorted(error.code for error in route.errors))),
            ]
            for route in found
        )
        parts.append(f"\n## {noun}\n\n" + table(head, rows))
    return "".join(parts)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


class ErrorEntry(NamedTuple):
    """A code, with the meaning of all errors that have it."""

    code: str
    family: str
    status: int
    exit_code: int
    is_local: bool  # on a host: never over HTTP
    meaning: str


def family_of(error: type[TidegateError]) -> str:
    """The code of the family that callers catch."""
    kinds = [kind for kind in TidegateError.__subclasses__() if issubclass(error, kind)]
    return kinds[0].code if kinds and kinds[0].__module__ == errors.__name__ else "none"


NO_CODE: Final = "An error without a code of its own. Report it as a fault of Tidegate."


def error_entries() -> tuple[ErrorEntry, ...]:
    found: dict[tuple[str, str], list[type[TidegateError]]] = defaultdict(list)
    for error in sorted(own_errors(), key=lambda kind: (len(kind.__mro__), kind.__qualname__)):
        found[error.code, family_of(error)].append(error)
    assert all(len(set(map(status_of, kinds))) == 1 for kinds in found.values())
    return tuple(
        ErrorEntry(
            name,
            family,
            status_of(kinds[0]),
            exit_code_of_status(status_of(kinds[0])).value,
            all(kind.__module__.startswith(agent.__name__ + ".") for kind in kinds),
            NO_CODE if kinds == [TidegateError] else _meaning(kinds),
        )
        for (name, family), kinds in sorted(found.items())
    )


def _meaning(kinds: Iterable[type[TidegateError]]) -> str:
    """The descriptions of the errors with one code, without repeats."""
    named = (kind for kind in kinds if "code" in vars(kind))  # the others are special cases
    said = (first_paragraph(kind.__doc__) for kind in named)
    return " ".join(filter(None, dict.fromkeys(said)))


def errors_page() -> str:
    families = [kind for kind in TidegateError.__subclasses__() if family_of(kind) == kind.code]
    family_rows = (
        [
            code(kind.code),
            str(status_of(kind)),
            str(exit_code_of_status(status_of(kind)).value),
            "yes" if any(name == b"retry-after" for name, _ in headers_of(kind(""))) else "",
            first_paragraph(kind.__doc__),
        ]
        for kind in families
    )
    rows = (
        [
            code(entry.code),
            entry.family if entry.family == "none" else code(entry.family),
            "–" if entry.is_local else str(entry.status),
            str(entry.exit_code),
            entry.meaning,
        ]
        for entry in error_entries()
    )
    head = ("family", "HTTP status", "exit code", "`Retry-After`", "what to do")
    return "".join(
        (
            prose.ERRORS,
            table(head, family_rows),
            prose.ALL_ERRORS,
            table(("code", "family", "HTTP status", "exit code", "meaning"), rows),
        )
    )


if __name__ == "__main__":
    for name, text in pages().items():
        (PLACE / name).write_text(text)
    (PLACE / OPENAPI).write_text(openapi_document())
