"""How often tests repeat things: less in the inner loop, more in a long run.

TIDEGATE_TEST_QUICK   properties and races are tried less often; `script/check` sets it.
                      `@pytest.mark.long` skips a test in `script/check`; `script/test` runs it.
TIDEGATE_TEST_LONG    sweeps that `script/test` shortens run in full, and so do tests that CI leaves
                      to the bench (`@pytest.mark.in_bench`). Tests in turn run on all engines.

`@pytest.mark.in_turn` is for rules of the domain that a test checks through a store. Their code is
the same on every engine, and what an engine may do wrong has tests of its own. Such a test runs on
memory and on one other engine, which its name picks. The first ones that name a requirement point
run on all engines. To run one test everywhere, name it (`file.py::test`) or give `--engines`.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tidegate.control.operations import passwords

QUICK = bool(os.environ.get("TIDEGATE_TEST_QUICK"))
LONG = bool(os.environ.get("TIDEGATE_TEST_LONG"))
SHARE = 10
EXAMPLES = 20  # for a property that does not set a number
TURNS = ("sqlite", "postgres", "dynamodb")
ENGINE = re.compile("|".join(TURNS))
ON_ALL_ENGINES = 5  # tests in turn, of those that name one requirement point

# Generating examples is slow on a busy machine; that is no defect in the code.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("suite"), max_examples=EXAMPLES)
settings.load_profile("quick" if QUICK else "suite")


# A password hash with a server's cost takes 128 MiB and some tenths of a second.
passwords.SCRYPT_N = 2**10


def fewer(count: int) -> int:
    """How often to try something: `count` times, or a tenth of that in the inner loop."""
    return max(2, count // SHARE) if QUICK else count


def more(count: int, long: int) -> int:
    """How often to try something: `count` times, or `long` times in a long run."""
    return long if LONG else count


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: left out of script/check")
    config.addinivalue_line("markers", "in_turn: on memory and one other engine, see tests.quick")
    config.addinivalue_line(
        "markers",
        "in_bench: .ci/run does the same with `python -m bench` in its ci mode, behind script/test",
    )


def pytest_sessionstart() -> None:
    gc.disable()  # until everything is collected: nearly all of it stays in memory


def pytest_collection_finish() -> None:
    """Exclude everything collected from garbage collection: a scan of 12,000 tests takes 0.25 s."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {"long"} if QUICK else set()
    if not LONG:
        left_out.add("in_bench")
    asked = config.getoption("engines") or any("::" in argument for argument in config.args)
    waiting = set() if LONG or asked else set(not_their_turn(items))
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        is_dropped = any(mark.name in left_out for mark in item.iter_markers()) or item in waiting
        (dropped if is_dropped else kept).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def not_their_turn(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests in turn that run on another engine."""
    places: Counter[str] = Counter()  # taken by tests on all engines, by requirement point
    on_all: dict[str, bool] = {}
    waiting: list[pytest.Item] = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        engine = callspec.params.get("engine") if callspec else None
        if engine not in TURNS or item.get_closest_marker("in_turn") is None:
            continue
        function, _, parameters = item.nodeid.partition("[")
        name = f"{function}[{ENGINE.sub('', parameters)}"
        if name not in on_all:
            points = {point for mark in item.iter_markers("req") for point in mark.args}
            on_all[name] = any(places[point] < ON_ALL_ENGINES for point in points)
            if on_all[name]:
                places.update(points)
        if not on_all[name] and engine != TURNS[crc32(name.encode()) % len(TURNS)]:
            waiting.append(item)
    return waiting
