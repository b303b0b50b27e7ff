"""How often things are tried: less in the inner loop, more in a long run.

TIDEGATE_TEST_QUICK   properties and races are tried less often; `script/check` sets it.
                      `@pytest.mark.long` leaves a test to `script/test`, which runs everything.
TIDEGATE_TEST_LONG    sweeps that `script/test` cuts short are run in full, and so is what CI leaves
                      to the bench (`@pytest.mark.in_bench`).
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from tidegate.control.operations import accounts

QUICK = bool(os.environ.get("TIDEGATE_TEST_QUICK"))
LONG = bool(os.environ.get("TIDEGATE_TEST_LONG"))
SHARE = 10
EXAMPLES = 20  # of a property that does not say how many it wants

# A busy machine makes generation slow; that is no finding about the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("suite"), max_examples=EXAMPLES)
settings.load_profile("quick" if QUICK else "suite")


# To stretch a password as a server does takes 128 MiB and some tenths of a second.
accounts.SCRYPT_N = 2**10


def fewer(count: int) -> int:
    """How often to try something: `count` times, or a tenth of that in the inner loop."""
    return max(2, count // SHARE) if QUICK else count


def more(count: int, long: int) -> int:
    """How often to try something: `count` times, or `long` times in a long run."""
    return long if LONG else count


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: left out of script/check")
    config.addinivalue_line(
        "markers",
        "in_bench: .ci/run does the same with `python -m bench` in its ci mode, behind script/test",
    )


def pytest_sessionstart() -> None:
    gc.disable()  # until everything is collected: nearly all of it stays


def pytest_collection_finish() -> None:
    """Never look again at what was collected: a search through 12,000 tests takes 0.25 s."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {"long"} if QUICK else set()
    if not LONG:
        left_out.add("in_bench")
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        is_dropped = any(mark.name in left_out for mark in item.iter_markers())
        (dropped if is_dropped else kept).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
