"""The mode of tiny caches covers every cache there is."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest

from tests.differential.tiny import (
    CACHES,
    KERNEL_CACHES,
    KERNEL_LIMITS,
    KERNEL_SIZES,
    LIMITS,
    SIZES,
    UNBOUNDED,
    defined,
    shrunk,
)
from tidegate import engines, kernel

TIMES = ("_SECONDS", "_SECONDS_MAX", "_SECONDS_FIRST", "_MS")


def test_every_limit_of_the_engines_is_tiny_or_not_of_a_cache() -> None:
    no_memory = frozenset().union(*LIMITS.values())
    unknown = [
        f"{module}.{name}"
        for module, name, value in defined()
        if name.isupper()
        and not name.startswith("_")
        and isinstance(value, int | float | timedelta)
        and not name.endswith(TIMES)
        and name not in SIZES.get(module, ())
        and name not in no_memory
    ]

    assert unknown == [], "add each to SIZES, or to LIMITS if nothing is dropped beyond it"


def test_every_limit_of_the_kernel_is_tiny_or_not_of_a_cache() -> None:
    no_memory = frozenset().union(*KERNEL_LIMITS.values())
    unknown = [
        f"{module}.{name}"
        for module, name, value in defined(kernel)
        if name.isupper()
        and not name.startswith("_")
        and isinstance(value, int | float | timedelta)
        and not name.endswith((*TIMES, "_BYTES_MAX"))
        and name not in KERNEL_SIZES.get(module, ())
        and name not in no_memory
    ]

    assert unknown == [], "add each to KERNEL_SIZES, or to KERNEL_LIMITS"


def test_every_bounded_cache_of_the_kernel_is_tiny() -> None:
    unknown = [
        f"{module}.{name}"
        for module, name, value in defined(kernel)
        if hasattr(value, "cache_parameters")
        and value.cache_parameters()["maxsize"] is not None
        and name not in KERNEL_CACHES.get(module, ())
    ]

    assert unknown == []


def test_every_cache_of_the_engines_is_tiny_or_unbounded() -> None:
    unknown = [
        f"{module}.{name}"
        for module, name, value in defined()
        if hasattr(value, "cache_info")
        and name not in CACHES.get(module, ())
        and name not in UNBOUNDED
    ]

    assert unknown == []


def test_no_module_keeps_the_original_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that another module imported by its value must be shrunk there, too."""
    list(defined())  # imports them all
    shrunk(monkeypatch)

    for name, sizes in SIZES.items():
        for constant, size in sizes.items():
            for module in list(sys.modules.values()):
                if module.__name__.startswith(f"{engines.__name__}.{name.partition('.')[0]}"):
                    found = getattr(module, constant, size)
                    other = module.__name__.removeprefix(f"{engines.__name__}.")
                    assert found == SIZES.get(other, {}).get(constant, size), other
