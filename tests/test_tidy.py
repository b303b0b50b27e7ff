"""The house rules that a test can check: who may import whom, purity, names, no residue.

Code that is older than a rule may violate it as often as tidy_allowances.toml says. These lists
only shrink: `python -m tests.test_tidy` lowers them to what is found.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.source_tree import own_errors
from tidegate import errors
from tidegate.errors import TidegateError

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tidegate"

# Which of our rooms each room may import, besides itself. A room is a package or a module right
# under tidegate; "a.b" allows only that module of it. "*" is the composition root: it wires all.
FOUNDATION = {"errors", "decoders", "clock", "config", "lru", "value_faults"}
SERVED = {
    *FOUNDATION,
    *("__version__", "rate_limits", "kernel.model", "domain", "web"),
    *("control.operations", "control.queries", "control.fleet.reader", "control.storage"),
    *("control.publication", "control.lanes"),
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "bounded_http": set(),  # HTTP with a deadline and a size limit
    "public_addresses": {"errors"},  # which addresses a name from outside may resolve to
    "decoders": {"errors"},  # the one place where msgspec derives decoders from types
    "config": {"errors", "decoders", "value_faults"},
    "kernel": {"errors", "decoders", "clock"},
    "engines": {"errors", "decoders", "kernel", "lru"},
    "domain": {"errors", "decoders", "kernel"},
    "lru": set(),  # a bounded cache
    "value_faults": set(),  # why a value does not fit its type, in plain words
    "rate_limits": {"errors", "lru"},
    "control": {
        *FOUNDATION,
        *("__version__", "bounded_http", "public_addresses", "rate_limits", "kernel", "domain"),
    },
    "web": {*FOUNDATION, "rate_limits", "kernel.model", "domain.access", "control.queries"},
    # fleet: what agents request; addresses: why one is refused
    "api": {*SERVED, "control.fleet", "control.outbox.targets", "public_addresses"},
    "dashboard": {*SERVED, "api.feed"},
    "agent": {
        *("__version__", "errors", "decoders", "clock", "bounded_http", "public_addresses"),
        *("domain.content", "domain.hosts"),
    },
    "cli": {"errors", "domain.content", "__version__"},
    "simulate": {"errors", "clock", "domain", "control", "kernel", "engines.memory"},
    "": {"library"},  # the package itself lists the library's names, and imports them late
    "library": {"errors", "clock", "kernel", "engines", "domain", "control"},
    "main": {"*"},
    "commands": {"*"},  # start what main composes, or read its data
    "demo": {"*"},  # main's parts, with a fleet and simulated people
    "__main__": {"cli"},  # names what main composes, and imports none of it
}
# Third-party packages that only the named room may import; all rooms may import the others.
RESERVED: dict[str, set[str]] = {
    "apsw": {"engines"},
    "sqlite3": {"engines"},
    "psycopg": {"engines"},
    "psycopg_pool": {"engines"},
    "boto3": {"engines", "control"},  # control: blobs in S3
    "botocore": {"engines", "control"},
    "uvicorn": {"web", "api", "main"},
    "jinja2": {"dashboard"},
    "click": {"cli", "main", "commands"},
    "rich": {"cli", "main"},
}
STDLIB_ONLY = {"errors", "clock"}
PURE = {"errors", "domain"}
IMPURE = {
    *("asyncio", "io", "logging", "os", "random", "secrets", "socket", "sqlite3", "subprocess"),
    *("tempfile", "threading", "time", "uuid"),
}
CLOCK_READS = {"now", "utcnow", "today"}
HOMELESS = {
    *("utils", "util", "helpers", "helper", "common", "misc", "manager", "service", "handler"),
    *("base", "impl", "data", "info", "stuff", "tools"),
}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users|opt)/\w")
REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org"
    r"|\bregistry(?:\.[a-z0-9-]+)+\.(?:com|corp|dev|internal|io|lan|local|net|org)\b"
)
TEXT_BYTES_MAX = 2_000_000


def tracked() -> list[Path]:
    """The files that git tracks or would track, as they are in the tree."""
    answer = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = (ROOT / name for name in answer.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file())


TRACKED = tracked()
MODULES = [path for path in TRACKED if path.suffix == ".py"]
SOURCES = [path for path in MODULES if path.is_relative_to(SOURCE)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), name_of(path))


@pytest.fixture(scope="module", autouse=True)
def _forget_the_parsed() -> Iterator[None]:
    """Two million nodes: with them, each full garbage collection takes a second, now and later."""
    gc.disable()
    yield
    parsed.cache_clear()
    gc.enable()


def room(path: Path) -> str:
    """The room of one of our modules; the package's own `__init__` is in none."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(tree: ast.AST) -> Iterator[str]:
    """Every imported name, dotted, including imports in functions and for type checking only."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.ImportFrom():
                yield "." * node.level


def import_faults(home: str, tree: ast.AST) -> list[str]:
    """What a module of room `home` imports although the table forbids it."""
    faults = []
    allowed = MAY_IMPORT.get(home, set())
    for name in imports(tree):
        top, _, inside = name.partition(".")
        if not top:
            faults.append("relative import")
        elif top == "tidegate":
            away = inside.partition(".")[0]
            entered = {".".join(inside.split(".")[:depth]) for depth in (1, 2, 3)}
            if away != home and "*" not in allowed and not entered & allowed:
                faults.append(f"{home} must not import {name}")
        elif home in RESERVED.get(top, {home}):
            if home in STDLIB_ONLY and top not in sys.stdlib_module_names:
                faults.append(f"{home} must import the standard library only, not {name}")
            if home in PURE and top in IMPURE:
                faults.append(f"{home} is pure and must not import {name}")
        else:
            faults.append(f"only {sorted(RESERVED[top])} may import {top}")
    return faults


# msgspec derives a decoder from a type on first use. A second thread that meets it half done
# crashes the process. See src/tidegate/decoders.py, the one module that may derive.
DERIVING = {"msgspec.convert", "msgspec.json.Decoder", "msgspec.msgpack.Decoder"}
DERIVING_FROM = {"msgspec.json.decode", "msgspec.msgpack.decode"}  # when they name a type
BUILDING = {"decoders.build", "decoders.build_msgpack", "codec.prepare"}
# Where a program is composed. Elsewhere a decoder is built while its module is imported.
COMPOSING = {"decoders.py", "kernel/codec.py", "kernel/collections.py", "kernel/vocabulary.py"} | {
    "web/routing.py"
}


def decoder_faults(path: str, tree: ast.Module) -> list[str]:
    """Where a module derives a decoder itself, or builds one at run time."""
    faults = [
        f"import msgspec, not {name}"
        for name in imports(tree)
        if path != "decoders.py" and name in ("msgspec.json", "msgspec.msgpack", "msgspec.convert")
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [
        (node, ast.unparse(node.func)) for node in calls if isinstance(node.func, ast.Attribute)
    ]
    if not any(name in DERIVING | DERIVING_FROM | BUILDING for _, name in named):
        return faults
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    running = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, functions)
        for inner in ast.walk(outer)
    }
    for node, called in named:
        typed = len(node.args) > 1 or any(item.arg == "type" for item in node.keywords)
        if called in DERIVING or (called in DERIVING_FROM and typed):
            if path != "decoders.py":
                faults.append(f"line {node.lineno}: use tidegate.decoders, not {called}")
        elif called in BUILDING and id(node) in running and path not in COMPOSING:
            faults.append(f"line {node.lineno}: build decoders at the top of the module")
    return faults


def clock_reads(tree: ast.AST) -> list[str]:
    return [
        f"line {node.lineno}: take now as a parameter"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in CLOCK_READS
    ]


COMPOSING_PROGRAMS = {
    *("main", "commands", "demo"),
    *("control/worker", "control/doctor", "control/storage/backup", "control/installation"),
}


def test_only_programs_know_a_whole_installation() -> None:
    """All other code names the parts that it uses in its signature."""
    known = {
        path.relative_to(SOURCE).with_suffix("").as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bInstallation\b", path.read_text())
    }
    assert {
        name
        for name in known
        if name not in COMPOSING_PROGRAMS and name.split("/")[0] not in COMPOSING_PROGRAMS
    } == set(), "take the parts that you use as parameters, not an Installation"


def test_the_table_lists_every_room() -> None:
    unknown = {room(path) for path in SOURCES} - {""} - set(MAY_IMPORT)
    assert not unknown, "say in MAY_IMPORT what it may import"


def test_every_module_imports_only_the_rooms_that_the_table_allows() -> None:
    faults = {name_of(path): import_faults(room(path), parsed(path)) for path in SOURCES}

    assert {name: found for name, found in faults.items() if found} == {}


def test_pure_code_reads_no_clock() -> None:
    reads = {name_of(path): clock_reads(parsed(path)) for path in SOURCES if room(path) in PURE}

    assert {name: found for name, found in reads.items() if found} == {}


def test_decoders_are_derived_in_one_module_and_at_import() -> None:
    faults = {
        name_of(path): decoder_faults(path.relative_to(SOURCE).as_posix(), parsed(path))
        for path in SOURCES
    }

    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    "line",
    [
        "msgspec.json.decode(body, type=Plan)",
        "msgspec.convert(body, Plan)",
        "plan = msgspec.json.Decoder(Plan)",
        "slot = msgspec.msgpack.Decoder(Plan)",
        "from msgspec import json",
        "from msgspec import convert",
        "def f():\n    decoders.build(Plan)",
        "async def f():\n    codec.prepare(Plan)",
    ],
)
def test_finds_each_way_to_derive_a_decoder_late(line: str) -> None:
    assert len(decoder_faults("domain/planner.py", ast.parse(line))) == 1


@pytest.mark.parametrize(
    "line",
    ["decoders.build(Plan)", "msgspec.json.decode(body)", "decoders.decoder(Plan).decode(body)"],
)
def test_allows_decoders_that_are_built_early_and_used_late(line: str) -> None:
    assert decoder_faults("domain/planner.py", ast.parse(line)) == []


@pytest.mark.parametrize(
    ("home", "line"),
    [
        ("kernel", "from tidegate.engines.memory import MemoryStore"),
        ("kernel", "from tidegate import domain"),
        ("kernel", "import apsw"),
        ("engines", "from tidegate.control import runtime"),
        ("engines", "from . import memory"),
        ("domain", "import os.path"),
        ("domain", "from time import monotonic"),
        ("domain", "def f():\n    import uuid"),
        ("errors", "import msgspec"),
        ("api", "from tidegate.kernel.store import Store"),
        ("agent", "from tidegate.domain.rollouts.machine import step"),
        ("cli", "from tidegate.control.runtime import Control"),
        ("simulate", "import tidegate.engines.sqlite"),
    ],
)
def test_finds_each_kind_of_forbidden_import(home: str, line: str) -> None:
    assert len(import_faults(home, ast.parse(line))) == 1


@pytest.mark.parametrize(
    ("home", "line"),
    [
        ("kernel", "from tidegate.kernel.model import Event"),
        ("engines", "from tidegate.kernel import model\nimport apsw"),
        ("api", "from tidegate.kernel.model import Event"),
        ("api", "from tidegate.kernel import model"),
        ("agent", "from tidegate.domain.hosts.machine import step"),
        ("simulate", "from tidegate.engines.memory import MemoryStore"),
        ("main", "from tidegate.engines.sqlite import SqliteStore"),
    ],
)
def test_allows_the_imports_of_the_table(home: str, line: str) -> None:
    assert import_faults(home, ast.parse(line)) == []


def test_finds_a_read_of_the_clock() -> None:
    read = ast.parse("at = datetime.now(UTC)")

    assert clock_reads(read) == ["line 1: take now as a parameter"]


def test_every_module_has_a_docstring() -> None:
    """The first paragraph of the docstring is a whole sentence."""
    said = {name_of(path): ast.get_docstring(parsed(path)) or "" for path in MODULES}

    first = {name: text.partition("\n\n")[0] for name, text in said.items()}
    unsaid = [name for name, text in first.items() if not text.endswith((".", ":"))]
    assert not unsaid, "start the docstring with one sentence that says what the module is for"


def test_no_file_has_a_meaningless_name() -> None:
    vague = [name_of(path) for path in MODULES if path.stem in HOMELESS]
    assert not vague, "name the file after what it holds or does"


def test_tracked_files_contain_no_residue() -> None:
    """No path of a machine, no host of a registry, no mark of unfinished work."""
    residue = []
    for path in TRACKED:
        content = path.read_bytes()
        if b"\0" in content or len(content) > TEXT_BYTES_MAX:
            continue
        text = content.decode()
        for pattern in (UNFINISHED, MACHINE_PATH, REGISTRY_HOST):
            for found in pattern.finditer(text) if path != Path(__file__) else ():
                number = text.count("\n", 0, found.start()) + 1
                residue.append(f"{name_of(path)}:{number}: {found[0]}")

    assert residue == []


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("image: registry.hub.example.com/app", True),
        ("https://registry.k8s.io:443", True),
        ("pip install -i https://pypi.org/simple", True),
        ("rows = store.range(registry.ACTUAL.name, limit=10)", False),
        ("registry.known.rows.get(key)", False),
    ],
)
def test_distinguishes_the_host_of_a_registry_from_a_name_in_code(line: str, host: bool) -> None:
    assert bool(REGISTRY_HOST.search(line)) is host


def family(error: type[TidegateError]) -> str:
    """The code of the family that callers catch; "none" for an error without a family."""
    families = [kind for kind in TidegateError.__subclasses__() if issubclass(error, kind)]
    return families[0].code if families and families[0].__module__ == errors.__name__ else "none"


def test_every_error_is_explained_on_a_page() -> None:
    """Those of errors.py in the table of problems, under their family; others on some page."""
    table = (ROOT / "docs" / "problems" / "README.md").read_text()
    told = set(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \| .+ \| .+ \|$", table, re.MULTILINE))
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    known = {(error.code, family(error)): error.__module__ for error in reversed([*own_errors()])}
    general = {said for said, module in known.items() if module == errors.__name__}

    assert sorted(general - told) == [], "add it to the tables of docs/problems/README.md"
    assert sorted(told - set(known)) == [], "told of an error that does not exist"
    unsaid = sorted(code for code, _ in known if f"`{code}`" not in pages)
    assert not unsaid, "add the code to the errors of docs/<noun>.md and to docs/problems/README.md"


# Codes of several errors that mean the same to a caller; every other code has one error.
SHARED_CODES = {
    *("immutable", "invalid_argument", "not_found", "outcome_unknown", "too_large"),
    "version_conflict",
}


def test_no_two_different_errors_share_a_code() -> None:
    codes = Counter(error.code for error in own_errors() if "code" in vars(error))

    shared = {code for code, count in codes.items() if count > 1}
    assert shared == SHARED_CODES, "choose a code that no other error has"


def test_decisions_are_numbered_without_gaps() -> None:
    names = [path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")]

    numbers = sorted(int(name.partition("-")[0]) for name in names)

    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name) for name in names)
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_package_and_the_changelog_have_the_same_version() -> None:
    version = re.search(r'__version__ = "(.+)"', (SOURCE / "__init__.py").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()

    released = re.findall(r"^## \[?(\d[^\]\s]*)", changelog, re.MULTILINE)
    assert version
    assert "## [Unreleased]" in changelog
    assert not released or released[0] == version[1]


def test_every_dependency_is_locked_by_hash_without_a_host() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    lock = (ROOT / "requirements.lock").read_text()

    locked = re.findall(
        r"^([a-z0-9.-]+)(?:\[.+\])?==\S+.*\\\n    --hash=sha256:", lock, re.MULTILINE
    )
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in wanted}
    assert names - set(locked) == set(), "run script/lock"
    assert len(locked) == lock.count("==") - len(re.findall(r";.*==", lock))
    assert "://" not in lock


IMPORT_LINES_MAX = 0.06  # of all lines of the source


def test_few_lines_are_imports() -> None:
    nodes = [node for path in SOURCES for node in ast.walk(parsed(path)) if is_import(node)]
    spent = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)
    lines = sum(len(path.read_text().splitlines()) for path in SOURCES)

    advice = "import the module, and write module.name, where you need several names of a package"
    assert spent / lines <= IMPORT_LINES_MAX, advice


def is_import(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom]:
    return isinstance(node, ast.Import | ast.ImportFrom)


# ── the nouns of the domain ───────────────────────────────────────────────────────────────────────

DOMAIN = SOURCE / "domain"
# Each noun may import from those before it. The first four have no facts: all may import them.
NOUNS = (
    *("times", "epochs", "content", "provenance", "access", "packages", "releases", "outbox"),
    *("publication", "hosts", "fleet", "channels", "windows", "rollouts", "planner", "gates"),
    *("requests", "notifications"),
)
ABOVE_NOUNS = {"composition", "policy_check", "setup"}  # these combine nouns
SHARED_FILES = {"facts", "states", "names", "refusals"}  # of any noun, for any noun
NOUN_FILES = {"facts", "rows", "folds", "slices", "refusals", "declarations"}
WITHOUT_FACTS = {"content", "gates"}


def layer_faults(noun: str, file: str, tree: ast.AST) -> list[str]:
    """What a file of a noun imports from a noun that comes after its own."""
    faults = []
    for name in imports(tree):
        parts = name.split(".")
        if parts[:2] != ["tidegate", "domain"] or len(parts) < 4 or parts[2] == noun:
            continue
        other, inside = parts[2], parts[3]
        is_shared = inside in SHARED_FILES or other in NOUNS[:4]
        if not is_shared and (file in SHARED_FILES or NOUNS.index(other) > NOUNS.index(noun)):
            faults.append(f"{noun}/{file} must not import {name}")
    return faults


def test_no_noun_imports_a_later_one() -> None:
    faults = []
    for path in DOMAIN.rglob("*.py"):
        noun, *rest = path.relative_to(DOMAIN).with_suffix("").parts
        if noun not in {"__init__", *ABOVE_NOUNS}:
            faults += layer_faults(noun, rest[0] if rest else noun, parsed(path))

    assert not faults, "see NOUNS for the order; every noun may import SHARED_FILES of any noun"


@pytest.mark.parametrize(
    ("noun", "file", "line", "count"),
    [
        ("channels", "slices", "from tidegate.domain.rollouts.machine import step", 1),
        ("channels", "slices", "from tidegate.domain.rollouts import machine", 1),
        ("channels", "facts", "from tidegate.domain.fleet.rows import Host", 1),
        ("channels", "slices", "from tidegate.domain.rollouts.facts import RolloutOpened", 0),
        ("channels", "slices", "from tidegate.domain.fleet.rows import Host", 0),
    ],
)
def test_finds_an_import_against_the_order_of_nouns(
    noun: str, file: str, line: str, count: int
) -> None:
    assert len(layer_faults(noun, file, ast.parse(line))) == count


def test_every_noun_with_facts_has_the_same_files() -> None:
    nouns = {path.parent for path in DOMAIN.glob("*/__init__.py")}
    missing = {
        noun.name: NOUN_FILES - {path.stem for path in noun.glob("*.py")}
        for noun in nouns
        if noun.name not in WITHOUT_FACTS
    }

    assert {noun: files for noun, files in missing.items() if files} == {}, "add the files"
    assert {noun.name for noun in nouns} >= WITHOUT_FACTS


def test_importing_a_noun_runs_no_code() -> None:
    """So that any noun, and the agent, can import the facts of any other noun alone."""
    inits = {path: parsed(path).body for path in DOMAIN.glob("*/__init__.py")}

    busy = [name_of(path) for path, body in inits.items() if len(body) != 1]
    assert not busy, "leave only the docstring in it"


# ── lists that only shrink ────────────────────────────────────────────────────────────────────────

ALLOWANCES = ROOT / "tests" / "tidy_allowances.toml"
FACES = {"api", "dashboard", "web"}
# What the API and the dashboard must not use: they call operations and queries.
BENEATH = {"Store", "Control", "Records", "codec", "Collection"}
THROUGH = {"store", "control", "records"}  # … also not as an attribute of an object
# A section of a document, a document of the design, or a seed. RFCs are public.
CITATION = re.compile(
    r"(?P<rfc>RFC \d+ )?(?:(?P<page>[A-Za-z][\w-]*\.md) |DESIGN )?§ ?(?P<section>\d+(?:\.\d+)*)"
    r"|\bDESIGN\b(?! §)|\bseed 00\d\b"
)
NUMBERED = re.compile(r"^#+ §?(\d+(?:\.\d+)*)\.? ", re.MULTILINE)


def class_names() -> dict[str, int]:
    """Public classes that are defined in several places, and in how many."""
    found = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in found.items() if count > 1}


def mentions(tree: ast.AST, names: set[str]) -> int:
    """How often a module imports or uses one of these names."""
    count = 0
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                count += name in names
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                count += sum(alias.name.rpartition(".")[2] in names for alias in aliases)
    return count


def reaches(tree: ast.AST) -> int:
    """How often a module reaches through an object to what is beneath it."""
    return sum(isinstance(node, ast.Attribute) and node.attr in THROUGH for node in ast.walk(tree))


def counted(homes: set[str], counts: Callable[[ast.AST], int]) -> dict[str, int]:
    """The modules of some rooms in which something is found, and how often."""
    found = {name_of(path): counts(parsed(path)) for path in SOURCES if room(path) in homes}
    return {name: count for name, count in found.items() if count}


def sections() -> dict[str, set[str]]:
    """The numbered sections of our pages, by the name of the page."""
    found: dict[str, set[str]] = {}
    for path in TRACKED:
        if path.suffix == ".md":
            found.setdefault(path.name, set()).update(NUMBERED.findall(path.read_text()))
    return found


def unresolved(text: str, known: Mapping[str, set[str]]) -> int:
    """How many citations in a text name nothing that is in this repository."""
    return sum(
        found["rfc"] is None and found["section"] not in known.get(found["page"] or "", set())
        for found in CITATION.finditer(text)
    )


def citations() -> dict[str, int]:
    known = sections()
    suffixes = {".py", ".md", ".toml", ".json", ".html", ".js", ".css", ".sh", ""}
    return {
        name_of(path): count
        for path in TRACKED
        if path.suffix in suffixes and path not in (Path(__file__), ALLOWANCES)
        if (count := unresolved(path.read_text(), known))
    }


RULES = {
    "class_names": class_names,
    "beneath_the_api": lambda: counted(FACES, lambda tree: mentions(tree, BENEATH)),
    "through_the_api": lambda: counted(FACES, reaches),
    "store_in_the_domain": lambda: counted({"domain"}, lambda tree: mentions(tree, {"Store"})),
    "unresolved_citations": citations,
}
ADVICE = {
    "class_names": "give the class a name that no other public class has",
    "beneath_the_api": "call an operation or a query instead of the store",
    "through_the_api": "call an operation or a query instead of the store",
    "store_in_the_domain": "take values as parameters; reads are in control/queries",
    "unresolved_citations": "cite something that is in this repository, or an RFC",
}
SHRINK = "If less is found than allowed, run: .venv/bin/python -m tests.test_tidy"


def allowances() -> dict[str, dict[str, int]]:
    return tomllib.loads(ALLOWANCES.read_text())


def excesses(found: Mapping[str, int], allowed: Mapping[str, int]) -> list[str]:
    """Where more is found than is allowed, and where more is allowed than is found."""
    return [
        f"{name}: found {found.get(name, 0)}, allowed {allowed.get(name, 0)}"
        for name in sorted({*found, *allowed})
        if found.get(name, 0) != allowed.get(name, 0)
    ]


@pytest.mark.parametrize("rule", RULES)
def test_violations_equal_the_shrinking_list(rule: str) -> None:
    found = excesses(RULES[rule](), allowances()[rule])
    assert not found, f"{'; '.join(found)}. To mend it: {ADVICE[rule]}. {SHRINK}"


def test_allowances_belong_to_rules() -> None:
    assert allowances().keys() == RULES.keys() == ADVICE.keys()


def test_finds_new_violations_and_unneeded_allowances() -> None:
    assert excesses({"a": 2, "b": 1}, {"a": 1, "b": 1, "c": 1}) == [
        "a: found 2, allowed 1",
        "c: found 0, allowed 1",
    ]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("from tidegate.kernel.store import Store", 1),
        ("from tidegate.kernel import codec\ncodec.decode(a, b)", 2),
        ("def f(store: Store) -> Control: ...", 2),
        ("kernel.policy.Collection", 1),
        ("StoreRefused('Store')", 0),
    ],
)
def test_counts_each_use_of_a_name_beneath(line: str, count: int) -> None:
    assert mentions(ast.parse(line), BENEATH) == count


def test_counts_each_attribute_that_leads_beneath() -> None:
    assert reaches(ast.parse("a.store.get(b.control)\nfrom tidegate.control import records")) == 2


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("packages.md §4.2", 1),
        ("pages.md §4.2, §9", 2),
        ("pages.md §1.1", 0),
        ("DESIGN §5 and DESIGN, as seed 003 says", 3),
        ("RFC 9110 §13.1.2", 0),
        ("docs/pages.md, seed 3", 0),
    ],
)
def test_counts_citations_without_a_target(line: str, count: int) -> None:
    assert unresolved(line, {"pages.md": {"1.1"}}) == count


def shrink() -> None:
    """Lower every allowance to what is found; nothing is added."""
    lines = ["# What tests/test_tidy.py still allows. These lists only shrink."]
    for rule, allowed in allowances().items():
        found = RULES[rule]()
        left = {name: min(count, found.get(name, 0)) for name, count in allowed.items()}
        lines += ["", f"[{rule}] # {sum(left.values())} in {sum(map(bool, left.values()))}"]
        lines += [f'"{name}" = {count}' for name, count in sorted(left.items()) if count]
    ALLOWANCES.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    shrink()
