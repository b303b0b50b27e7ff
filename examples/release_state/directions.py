"""The two directions of an external effect. In neither is it part of the commit.

intent first   commit(state + event + intent) ──▶ worker performs ──▶ outcome ──▶ reconciler
effect first   perform(key) ──▶ observe ──▶ commit(state + event, by what was observed)
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
    """Return the current row."""
    return cast(Actual, history.find_actual(control.store, scope).value)


# ── intent first ──────────────────────────────────────────────────────────────────────────────────


def promotion(
    control: Control, scope: str, release_id: str, digest: str, command_id: str
) -> TransitionRelease:
    """Build an operator's command on the current state; the alias outside is moved later, by an
    intent.
    """
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
    """One effect that comes before its state. Its key is all it needs to resume."""

    def __init__(self, control: Control, target: Target, key: IdempotencyKey, digest: str) -> None:
        self._control = control
        self._target = target
        self.key = key
        state = RequestedState(release_id=key.release_id, digest=digest)
        self._effect = Effect(
            key.scope, key.operation, key.release_id, state, key.version, control.clock()
        )

    def run(self) -> None:
        """Perform the effect, observe it, and let the observation become state.

        Raises:

            StaleVersion: the scope changed meanwhile; the effect remains.
        """
        perform_then_record(self._target, str(self.key), self._effect, self._record)

    def perform(self) -> None:
        """Perform the effect alone, like a process that dies before it can record it."""
        self._target.perform(str(self.key), self._effect)

    def recover(self) -> bool:
        """Record the effect if it exists outside. Return False if it never happened."""
        done = recover(self._target, str(self.key), self._effect, self._record)
        return done is not None

    def _record(self, seen: Observation) -> bool:
        stands = actual(self._control, self.key.scope)
        if stands.pinned_release_id == self.key.release_id:
            return True  # it was recorded, and only the answer was lost
        digest = seen.state["digest"]
        self._control.execute(
            BUILT_IN.transition,
            TransitionRelease(
                scope=self.key.scope,
                release_id=self.key.release_id,
                digest=digest,
                authority=by_pipeline(str(self.key), digest, self._control.clock()),
                command_id=f"{self.key.release_id}.{self.key.version}.{stands.version}",
                by="user_pipeline",
                expected_version=stands.version,
            ),
        )
        return True


def deployment(
    control: Control, target: Target, scope: str, release_id: str, digest: str
) -> Deployment:
    """Build the deployment of a release on the current state."""
    version = actual(control, scope).version + 1
    return Deployment(control, target, idempotency_key(scope, release_id, ALIAS, version), digest)
