"""A registry in tests: a store, releases to pin, and commands that may be refused."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec import Struct

from tests.domain.package_log import direct
from tests.domain.registry import FOLDS, SCHEMA, SCOPE, T0, OfferRelease, digest_of, offer_release
from tidegate.clock import ManualClock
from tidegate.control.queries import history
from tidegate.control.runtime import Control
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.rows import Actual
from tidegate.engines.memory import MemoryStore
from tidegate.errors import TidegateError
from tidegate.kernel.model import ALL
from tidegate.kernel.slices import Slice

VERBS: dict[type, Slice] = {item.command: item for item in BUILT_IN.slices}


class RegistryLog:
    """A registry with three released packages."""

    def __init__(self) -> None:
        self.store = MemoryStore(SCHEMA)
        self.clock = ManualClock(T0)
        self.control = Control(self.store, FOLDS, direct(self.store), clock=self.clock)
        for release_id in ("rel_001", "rel_002", "rel_003"):
            self.offer(release_id)

    def offer(self, release_id: str, lifecycle: str = "Published", digest: str = "") -> None:
        command = OfferRelease(release_id, digest or digest_of(release_id), lifecycle)
        self.control.execute(offer_release, command)

    def tell(self, *commands: Struct) -> None:
        for command in commands:
            self.control.execute(VERBS[type(command)], command)

    def actual(self) -> Actual:
        return cast(Actual, history.find_actual(self.store, SCOPE).value)

    def types(self) -> list[str]:
        return [event.type for event in self.store.read(ALL).events]

    def refused(self, command: Struct) -> TidegateError:
        """Return the refusal of a command, and check that it changed nothing."""
        before = self.types()
        with pytest.raises(TidegateError) as refusal:
            self.tell(command)
        assert self.types() == before
        return refusal.value
