"""Gives each handler the parts of the server that its signature names, by their type.

    def get(request: Request[ChannelPath, Nothing, Nothing], reads: Reads, clock: Clock) -> Response

A handler can touch nothing else. The parts of a server are listed once, where the program is
composed. Parts that several handlers need together are a dataclass, created when the first handler
needs it. A handler that needs a part that does not exist fails when the server starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar, get_type_hints

from tidegate.errors import InvalidDefinition

FUNCTIONS_MAX = 2_000  # functions whose signatures are cached

Part = TypeVar("Part")
Result = TypeVar("Result")


class Parts:
    """The parts of one server, by their type."""

    def __init__(self, parts: Mapping[Any, Any]) -> None:
        self._parts = dict(parts)

    def __getitem__(self, kind: type[Part]) -> Part:
        """Get or create a part. Raises: InvalidDefinition: there is no such part."""
        if kind not in self._parts:
            if not is_dataclass(kind):
                raise InvalidDefinition(f"no part provides {kind}")
            self._parts[kind] = kind(**self._fill(kind))
        found: Part = self._parts[kind]
        return found

    def bind(self, function: Callable[..., Result]) -> Callable[[Any], Result]:
        """Fill in all parameters of a function but the first.

        Raises:
            InvalidDefinition: the function needs a part that this server does not have.
        """
        given = self._fill(function, skip=1)
        return partial(function, **given) if given else function

    def _fill(self, function: Callable[..., Any], *, skip: int = 0) -> dict[str, Any]:
        try:
            return {name: self[kind] for name, kind in _parameters(function)[skip:]}
        except InvalidDefinition as error:
            where = f"{function.__module__}.{function.__qualname__}"
            raise InvalidDefinition(f"{where}: {error}") from None


@lru_cache(FUNCTIONS_MAX)
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, Any], ...]:
    """The names and types of a function's parameters, in order; None: a parameter has no type."""
    hints = get_type_hints(function)
    return tuple((name, hints.get(name)) for name in inspect.signature(function).parameters)
