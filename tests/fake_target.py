"""A target for tests: it records its calls and fails on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from tidegate.control.outbox.targets import Effect, TargetDone, TargetFailed, Unobservable
from tidegate.domain.outbox.reconciliation import Observation


@dataclass
class FakeTarget:
    """Returns ``answers`` in turn, then ``TargetDone``; its effects can be observed."""

    name: str = "fake"
    timeout_seconds: float = 1.0
    answers: list[TargetDone | TargetFailed] = field(default_factory=list)
    calls: list[tuple[str, Effect]] = field(default_factory=list)
    world: dict[tuple[str, str], Observation] = field(default_factory=dict)
    silent: bool = False  # whether observing it fails

    def perform(self, key: str, effect: Effect) -> TargetDone | TargetFailed:
        self.calls.append((key, effect))
        answer = self.answers.pop(0) if self.answers else TargetDone()
        if isinstance(answer, TargetDone):
            state = msgspec.to_builtins(effect.requested_state)
            self.world[effect.scope, effect.operation] = Observation(key, state)
        return answer

    def observe(self, scope: str, operation: str) -> Observation | None:
        if self.silent:
            raise Unobservable("the fake was told to be silent")
        return self.world.get((scope, operation), Observation())

    def fail(self, *reasons: str, retryable: bool = True) -> None:
        """Make the next calls fail with these reasons."""
        self.answers += [TargetFailed(reason, retryable) for reason in reasons]

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all calls, in order."""
        return tuple(key for key, _ in self.calls)


def by_operation(target: FakeTarget, operations: Iterable[str]) -> dict[str, FakeTarget]:
    """Use one target for several operations."""
    return dict.fromkeys(operations, target)
