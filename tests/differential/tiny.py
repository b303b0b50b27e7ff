"""Every cache and window of the engines, at a size at which it is full all the time.

With the sizes that we ship, a cache drops entries after tens of thousands of commits, and a page
ends after a thousand items: no test runs that long. Here each of them does so at nearly every step.
The answers must not change, so the suites that compare answers run in this mode, too.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from tidegate import engines, kernel

# Module → constant → size. Constants are read when they are used, or when a handle is opened.
SIZES: dict[str, dict[str, float]] = {
    "group_commit": {"GROUP_MAX": 2, "GROUP_BYTES_MAX": 600, "WAITING_MAX": 2},
    "key_ages": {"TICK_SECONDS": 0, "MARK_SECONDS": 1},
    "sqlite.own_writes": {"NAMES_MAX": 4},
    "sqlite.store": {"NAMES_KEPT_MAX": 3},
    "sqlite.readers": {"KEPT_MAX": 1},
    "sqlite.layout": {"REINDEX_BATCH": 1},
    "sqlite.batch": {"ONCE_COLLECTED_MAX": 1},
    "sqlite.connection": {
        "CACHE_KIB": 16,
        "READER_CACHE_KIB": 16,
        "MMAP_BYTES": 8_192,
        "STATEMENTS_MAX": 1,
        "CHECKPOINT_PAGES": 3,
        "JOURNAL_BYTES_MAX": 8_192,
        "WAL_ROOM_MIN": 4_096,
        "WAL_ROOM_MAX": 8_192,
        "WAL_BYTES_MAX": 65_536,
    },
    # Enough to catch up in passing, and few enough to drop entries.
    "postgres.log_tail": {"PAIRS_MAX": 8},
    "postgres.writer": {"FOREIGN_MAX": 20, "HEADS_KEPT": 1, "COLLECT_EVERY": 1, "COLLECT_MAX": 1},
    "postgres.sessions": {"STATEMENTS_MAX": 2, "READERS_MAX": 1},
    "postgres.store": {"BATCH_MAX": 2, "BATCH_BYTES_MAX": 300},
    "postgres.indexing": {"REINDEX_PAGE_MAX": 1},
    "dynamodb.hints": {"HINTS_MAX": 1},
    "dynamodb.items": {"SEGMENT_SLOTS": 3, "ITEM_BYTES_MAX": 256, "INLINE_BYTES_MAX": 64},
    "dynamodb.log": {
        "PAGE_SLOTS_MIN": 1,
        "PAGE_SLOTS_MAX": 2,
        # A reader closes the number of a writer that is slower than this.
        "GRACE_SECONDS": 0.002,
        "HISTORY_STEP_SECONDS": 0.001,
    },
    "dynamodb.rows": {"PAGE_ITEMS_MIN": 1, "PAGE_ITEMS_MAX": 2},
}

# Caches of pure functions, created when their module is imported. They keep one answer.
CACHES: dict[str, tuple[str, ...]] = {
    "sqlite.events": ("_meta",),
    "postgres.queries": ("_word", "_meta", "_time"),
}

# The same for the kernel, whose caches every engine uses.
KERNEL_SIZES: dict[str, dict[str, float]] = {
    "vocabulary": {"SHAPES_MAX": 1, "FILED_MAX": 1},
    "tags": {"TAGGED_MAX": 1},
    "store": {"PAGE_ROWS": 1},
    "replay": {"PAGE": 1},
}
KERNEL_CACHES: dict[str, tuple[str, ...]] = {
    "model": ("tags_bytes", "meta_bytes"),
}

# Limits that neither drop nor cut anything. Times that end in _SECONDS_MAX or the like are not
# listed.
KERNEL_LIMITS = {
    "how often something is tried": {
        *("LEASE_ATTEMPTS_MAX", "PUT_ATTEMPTS_MAX", "VERIFY_ROUNDS_MAX", "DOUBLINGS_MAX")
    },
    "what a caller may ask for": {
        "POSITION_MAX",
        "INTEGER_MAX",
        "DEPTH_MAX",
        "TAGS_MAX",
        "COMPOSITE_TAGS_MAX",
        "FACTS_MAX",
        "WRITES_MAX",
        "CLAUSES_MAX",
        "CLAUSE_TYPES_MAX",
        "SCHEMA_MAX",
        "COST_MAX",
        "FOLLOW_UPS_MAX",
        "BATCH_MAX",
        "RESOLUTION",
    },
    "the form of what is stored": {"LOG_FORMAT", "SLOT_BYTES", "SLOT_FACT_BYTES", "ABSENT"},
    "integers of which Python keeps one object": {"SINGLE_MAX"},
    "the size of a cache in KERNEL_CACHES": {"REMEMBERED_MAX"},
    "how long a key is kept, by the log's own time": {"ONCE_KEPT"},
}
LIMITS = {
    "how often something is tried": {
        "TRIES_MAX",
        "READ_TRIES_MAX",
        "SENDS_MAX",
        "CALLS_MAX",
        "CHANGES_MAX",
        "READS_MAX",
        "RANGES_MAX",
        "HOLE_POLLS_MAX",
        "PARTS_READS_MAX",
        "TABLE_POLLS_MAX",
        "RENEWALS_PER_LEASE",
    },
    "what the database or its driver takes": {
        "ITEMS_MAX",
        "TRANSACTION_BYTES_MAX",
        "SORT_KEY_BYTES_MAX",
        "IDENTIFIER_BYTES_MAX",
        "SERVER_VERSION_MIN",
        "CONNECTIONS_MAX",
        "PART_MAX",
        "ALL_PAGES",
    },
    "the form of what is stored": {"SPAN", "DIGITS"},
    "an estimate": {"CHANGE_BYTES", "WAL_ROOM_USES_MIN"},
    "who may come, not what is kept": {"COUNTED_MAX"},
    "which of two equal statements is sent": {"SEPARATE_TYPES_MAX", "MERGED_TYPES_MAX"},
    "the size of a cache in CACHES": {"METAS_KEPT_MAX"},
    # The service deletes by its own clock, days later.
    "how long the service keeps an item": {"GONE_KEPT"},
}
# Caches without a bound: one entry per table, per count of types, per set of credentials.
UNBOUNDED = {"quoted", "_boundary_read", "_session"}


def _module(name: str, package: ModuleType = engines) -> ModuleType:
    return import_module(f"{package.__name__}.{name}")


def _changes() -> Iterator[tuple[ModuleType, str, Any]]:
    for package, every_size in ((engines, SIZES), (kernel, KERNEL_SIZES)):
        for name, sizes in every_size.items():
            for constant, size in sizes.items():
                yield _module(name, package), constant, size
    for package, every_cache in ((engines, CACHES), (kernel, KERNEL_CACHES)):
        for name, caches in every_cache.items():
            for cache in caches:
                module = _module(name, package)
                yield module, cache, lru_cache(1)(getattr(module, cache).__wrapped__)


def shrink() -> None:
    """Make every cache tiny in this process for good: to prepare a process of a test."""
    for module, name, value in _changes():
        setattr(module, name, value)


def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every cache tiny in this process until the end of a test."""
    for module, name, value in _changes():
        monkeypatch.setattr(module, name, value)


def shrink_pairs() -> None:
    """Make only the cache of PostgreSQL's writer small, and keep all other sizes."""
    _module("postgres.log_tail").PAIRS_MAX = 20  # type: ignore[attr-defined]


# ── what can be made tiny ─────────────────────────────────────────────────────────────────────────


def defined(package: ModuleType = engines) -> Iterator[tuple[str, str, object]]:
    """Yield module, name and value of every number and every cache that these modules define."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        short = found.name.removeprefix(f"{package.__name__}.")
        for name in _names(ast.parse(inspect.getsource(module))):
            yield short, name, getattr(module, name, None)


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                yield name
