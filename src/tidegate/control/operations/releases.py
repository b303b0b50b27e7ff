"""What is done to the pin of a scope, on evidence: register, transition, retire, keep, import."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct

from tidegate.control.operations.execute import Execute
from tidegate.control.operations.ids import make_id
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.history import pinned_at
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.scopes import channel_scope, repository_scope
from tidegate.domain.access.steps import (
    IMPORT_MANIFEST,
    KEEP_EVIDENCE,
    READ_REVISION,
    REGISTER_RELEASE,
    RETIRE_RELEASE,
    TRANSITION_RELEASE,
)
from tidegate.domain.channels.refusals import PinOfChannel
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.packages.names import parse
from tidegate.domain.releases.catalog import limit_to_visible
from tidegate.domain.releases.evidence import ImportManifest, KeepEvidence
from tidegate.domain.releases.facts import PinStatus
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.rows import Actual, KnownRelease, actual_key, known_key
from tidegate.domain.releases.slices import RegisterRelease, RetireRelease, TransitionRelease
from tidegate.errors import NotFound, StaleVersion, VersionRequired
from tidegate.kernel.model import Position
from tidegate.kernel.slices import Slice


class RequestedPin(Struct, frozen=True, kw_only=True):
    """The release that a scope shall be pinned to, and on what evidence."""

    release_id: str
    digest: str
    authority: dict[str, Any]  # provenance and confidence
    status: PinStatus = PinStatus.ACTIVE
    operations: tuple[str, ...] = ()  # effects that are owed to the world


class FactoryManifest(Struct, frozen=True, kw_only=True):
    """A factory's batch manifest: the digests of what it built."""

    batch: str
    ref: str
    observed_at: str
    digests: tuple[str, ...]
    import_run_id: str | None = None
    status: PinStatus = PinStatus.ACTIVE
    operations: tuple[str, ...] = ()


class PinOutcome(Struct, frozen=True):
    """The pin of a scope as an operation left it, also if it has moved since."""

    position: Position
    found: Found[Actual]


class ReleaseOperations:
    """The verbs of a scope's pin.

    A caller may pin releases of repositories that they may read. Of all others the answer is the
    same as if they did not exist. The pin of a channel moves by promotion, not here.

    Raises:
        PinOfChannel, MissingPermission, NotFound, RejectedEvidence, ReleaseNotPinnable,
        DuplicateEvent, ConditionFailed.
    """

    def __init__(self, execute: Execute, reads: Reads, history: RowHistory) -> None:
        self._execute = execute
        self._reads = reads
        self._history = history

    def register(self, caller: Caller, scope: str, pin: RequestedPin) -> PinOutcome:
        """Open a scope with its first pin."""
        caller.demand(REGISTER_RELEASE, channel_scope(scope))
        self._refuse_channel(scope)
        command = RegisterRelease(
            scope=scope,
            release_id=pin.release_id,
            digest=pin.digest,
            authority=pin.authority,
            command_id=make_id(caller, REGISTER_RELEASE, "command"),
            by=caller.id,
            status=pin.status,
            operations=pin.operations,
        )
        item = self._limit(BUILT_IN.register, caller)
        return self._outcome(scope, self._execute(item, command, caller))

    def transition(self, caller: Caller, scope: str, pin: RequestedPin) -> PinOutcome:
        """Pin a scope to a release, or confirm its pin. Raises: StaleVersion, VersionRequired."""
        caller.demand(TRANSITION_RELEASE, channel_scope(scope))
        self._refuse_channel(scope)
        command = TransitionRelease(
            scope=scope,
            release_id=pin.release_id,
            digest=pin.digest,
            authority=pin.authority,
            command_id=make_id(caller, TRANSITION_RELEASE, "command"),
            by=caller.id,
            expected_version=self._counter_seen(caller, scope),
            status=pin.status,
            operations=pin.operations,
        )
        item = self._limit(BUILT_IN.transition, caller)
        return self._outcome(scope, self._execute(item, command, caller))

    def retire(self, caller: Caller, scope: str, reason: str) -> PinOutcome:
        """Close a scope that is no channel; nothing of it is deleted.

        Raises:
            PinOfChannel, StaleVersion, VersionRequired.
        """
        caller.demand(RETIRE_RELEASE, channel_scope(scope))
        self._refuse_channel(scope)
        command = RetireRelease(
            scope=scope,
            reason=reason,
            command_id=make_id(caller, RETIRE_RELEASE, "command"),
            by=caller.id,
            expected_version=self._counter_seen(caller, scope),
        )
        return self._outcome(scope, self._execute(BUILT_IN.retire, command, caller))

    def keep_evidence(
        self, caller: Caller, scope: str, source: str, batch: str, document: dict[str, Any]
    ) -> Position:
        """Keep what was observed, whatever it says; it never authorises anything."""
        caller.demand(KEEP_EVIDENCE, channel_scope(scope))
        command = KeepEvidence(
            scope=scope,
            source=source,
            batch=batch,
            document=document,
            command_id=make_id(caller, KEEP_EVIDENCE, "command"),
            by=caller.id,
        )
        return self._execute(BUILT_IN.keep_evidence, command, caller).position

    def import_manifest(self, caller: Caller, scope: str, manifest: FactoryManifest) -> Position:
        """Move the pin if a factory's manifest matches one release; else keep the manifest.

        Raises:
            StaleVersion.
        """
        caller.demand(IMPORT_MANIFEST, channel_scope(scope))
        self._refuse_channel(scope)
        expected = None
        if caller.expected_version is not None:
            expected = self._counter_seen(caller, scope)
        command = ImportManifest(
            scope=scope,
            batch=manifest.batch,
            ref=manifest.ref,
            observed_at=manifest.observed_at,
            digests=manifest.digests,
            command_id=make_id(caller, IMPORT_MANIFEST, "command"),
            by=caller.id,
            expected_version=expected,
            import_run_id=manifest.import_run_id,
            status=manifest.status,
            operations=manifest.operations,
        )
        item = self._limit(BUILT_IN.import_manifest, caller)
        return self._execute(item, command, caller).position

    def _refuse_channel(self, scope: str) -> None:
        """Raises: PinOfChannel: this way there is no plan, no rollout and no check of the hold."""
        if self._reads.find(channel_key(scope), Channel) is not None:
            raise PinOfChannel(scope)

    def _limit(self, item: Slice, caller: Caller) -> Slice:
        return limit_to_visible(item, partial(self._may_pin, caller))

    def _may_pin(self, caller: Caller, release_id: str) -> bool:
        """Whether the caller may know of the release."""
        release = self._reads.find(known_key(release_id), KnownRelease)
        if release is None or not release.row.revision:
            return True  # the decision says that there is none
        return caller.may(READ_REVISION, repository_scope(parse(release.row.revision).repository))

    def _counter_seen(self, caller: Caller, scope: str) -> int:
        """The registry's own counter at the log position that the caller saw.

        A repeat under an idempotency key saw an older one.
        """
        seen = caller.expected_version
        if seen is None:
            raise VersionRequired(f"say which version of {scope} you saw")
        found = self._demand(scope)
        if found.version == seen:
            return found.row.version
        if caller.key is not None:
            earlier = pinned_at(self._history, scope, seen)
            if earlier is not None and earlier.version == seen:
                return earlier.row.version
        raise StaleVersion(seen, found.version)

    def _outcome(self, scope: str, outcome: CommandOutcome) -> PinOutcome:
        found = self._demand(scope)
        receipt = outcome.receipt
        if receipt is None:  # nothing was to be done
            return PinOutcome(found.version, found)
        if not receipt.first <= found.version <= receipt.last:
            earlier = pinned_at(self._history, scope, receipt.last)
            if earlier is None:
                message = f"{scope} was not registered at {receipt.last}"
                raise NotFound(message, scope=scope)
            found = earlier
        return PinOutcome(receipt.last, found)

    def _demand(self, scope: str) -> Found[Actual]:
        missing = NotFound(f"{scope} is not registered", scope=scope)
        return self._reads.demand(actual_key(scope), Actual, missing)
