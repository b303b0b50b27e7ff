"""The two directions of an external effect. In neither is it part of the commit.

intent first   commit(state + event + intent) ──▶ worker performs ──▶ outcome ──▶ reconciler
effect first   perform(key) ──▶ observe ──▶ commit(state + event, from what was observed)
                                               └── lost? recover from key and observation
"""

from __future__ import annotations

from typing import cast

from examples.release_state.claims import by_operator, by_pipeline
from tidegate.control.outbox.sender import perform_then_record, recover
from tidegate.control.outbox.targets import Effect, Target
from tidegate.control.queries import history
from tidegate.control.runtime import Control
from tidegate.domain.outbox.names import IdempotencyKey, idempotency_key
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.outbox.states import RequestedState
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.rows import Actual
from tidegate.domain.releases.slices import TransitionRelease

ALIAS = "lambda_alias_update"


def actual(control: Control, scope: str) -> Actual:
    """What is current."""
    return cast(Actual, history.find_actual(control.store, scope).value)


# ── intent first ──────────────────────────────────────────────────────────────────────────────────


def promotion(
    control: Control, scope: str, release_id: str, digest: str, command_id: str
) -> TransitionRelease:
    """An operator's transition from the current pin. The external alias is requested, not moved."""
    return TransitionRelease(
        scope=scope,
        release_id=release_id,
        digest=digest,
        authority=by_operator(scope, release_id, control.clock()),
        command_id=command_id,
        by="user_operator",
        expected_version=actual(control, scope).version,
        operations=(ALIAS,),
    )


# ── effect first ──────────────────────────────────────────────────────────────────────────────────


class Deployment:
    """One effect that comes before its state. After a crash, its key is enough to continue."""

    def __init__(self, control: Control, target: Target, key: IdempotencyKey, digest: str) -> None:
        self._control = control
        self._target = target
        self.key = key
        state = RequestedState(release_id=key.release_id, digest=digest)
        self._effect = Effect(
            key.scope, key.operation, key.release_id, state, key.version, control.clock()
        )

    def run(self) -> None:
        """Perform the effect, observe it, and commit what was observed.

        Raises:
            StaleVersion: the scope has changed meanwhile; the effect has happened all the same.
        """
        perform_then_record(self._target, str(self.key), self._effect, self._record)

    def perform(self) -> None:
        """Perform the effect only, like a process that dies before it can record it."""
        self._target.perform(str(self.key), self._effect)

    def recover(self) -> bool:
        """Record the effect if the external system shows it; False: it never happened."""
        done = recover(self._target, str(self.key), self._effect, self._record)
        return done is not None

    def _record(self, seen: Observation) -> bool:
        current = actual(self._control, self.key.scope)
        if current.pinned_release_id == self.key.release_id:
            return True  # it was recorded; only the response was lost
        digest = seen.state["digest"]
        self._control.execute(
            BUILT_IN.transition,
            TransitionRelease(
                scope=self.key.scope,
                release_id=self.key.release_id,
                digest=digest,
                authority=by_pipeline(str(self.key), digest, self._control.clock()),
                command_id=f"{self.key.release_id}.{self.key.version}.{current.version}",
                by="user_pipeline",
                expected_version=current.version,
            ),
        )
        return True


def deployment(
    control: Control, target: Target, scope: str, release_id: str, digest: str
) -> Deployment:
    """The deployment of a release after the current pin."""
    version = actual(control, scope).version + 1
    return Deployment(control, target, idempotency_key(scope, release_id, ALIAS, version), digest)
