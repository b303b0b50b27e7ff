"""What the functions of a server may touch, handed to them by type.

    def get(request: Request[ChannelPath, Nothing, Nothing], reads: Reads, clock: Clock) -> Response

A handler names what it needs in its signature, and gets nothing else. What a server has is listed
once, where the program is composed; a handler that asks for more is found when the server starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, get_type_hints

from tidegate.errors import InvalidDefinition

Result = TypeVar("Result")


class Parts:
    """The parts of one server, by their type."""

    def __init__(self, parts: Mapping[Any, Any]) -> None:
        self._parts = dict(parts)

    def __getitem__(self, kind: type[Result]) -> Result:
        found: Result = self._parts[kind]
        return found

    def bind(self, function: Callable[..., Result]) -> Callable[[Any], Result]:
        """The function with all parameters but the first filled in.

        Raises:
            InvalidDefinition: it asks for something that this server does not have.
        """
        hints = get_type_hints(function)
        given: dict[str, Any] = {}
        for name in list(inspect.signature(function).parameters)[1:]:
            kind = hints.get(name)
            if kind not in self._parts:
                where = f"{function.__module__}.{function.__qualname__}"
                raise InvalidDefinition(f"{where} asks for {name}: {kind}, which nobody provides")
            given[name] = self._parts[kind]
        return partial(function, **given) if given else function
