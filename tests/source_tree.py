"""Our own modules and error classes, for tests that check all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import tidegate
from tidegate.errors import TidegateError


def own_errors() -> Iterator[type[TidegateError]]:
    """Our errors, families included, from anywhere in the source."""
    for module in walk_packages(tidegate.__path__, "tidegate."):
        import_module(module.name)
    waiting = deque([TidegateError])
    while waiting:
        found = waiting.popleft()
        waiting += found.__subclasses__()
        if found.__module__.partition(".")[0] == "tidegate":
            yield found
