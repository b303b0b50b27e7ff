"""Change the pin of a scope on evidence: register, transition, retire, keep, import."""

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
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.channels import refusals, rows as channel_rows
from tidegate.domain.packages.names import parse
from tidegate.domain.releases import catalog, evidence, facts, registry, rows, slices
from tidegate.errors import NotFound, StaleVersion, VersionRequired
from tidegate.kernel import model, slices as kernel_slices


class RequestedPin(Struct, frozen=True, kw_only=True):
    """A release to pin a scope to, and its evidence."""

    release_id: str
    digest: str
    authority: dict[str, Any]  # provenance and confidence
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: tuple[str, ...] = ()  # effects to deliver outside


class FactoryManifest(Struct, frozen=True, kw_only=True):
    """A factory manifest: the digests of what a factory built."""

    batch: str
    ref: str
    observed_at: str
    digests: tuple[str, ...]
    import_run_id: str | None = None
    status: facts.PinStatus = facts.PinStatus.ACTIVE
    operations: tuple[str, ...] = ()


class PinOutcome(Struct, frozen=True):
    """The pin of a scope right after an operation; it may have changed since."""

    position: model.Position
    found: Found[rows.Actual]


class ReleaseOperations:
    """The verbs of a scope's pin.

    A caller may pin releases of repositories that they may read. All others are treated as if they
    did not exist. A channel's pin changes by promotion, not here.

    Raises:
        PinOfChannel, MissingPermission, NotFound, RejectedEvidence, ReleaseNotPinnable,
        DuplicateEvent, ConditionFailed.
    """

    def __init__(self, execute: Execute, reads: Reads, history: RowHistory) -> None:
        self._execute = execute
        self._reads = reads
        self._history = history

    def register(self, caller: callers.Caller, scope: str, pin: RequestedPin) -> PinOutcome:
        """Create a scope with its first pin."""
        caller.demand(steps.REGISTER_RELEASE, scopes.channel_scope(scope))
        self._refuse_channel(scope)
        command = slices.RegisterRelease(
            scope=scope,
            release_id=pin.release_id,
            digest=pin.digest,
            authority=pin.authority,
            command_id=make_id(caller, steps.REGISTER_RELEASE, "command"),
            by=caller.id,
            status=pin.status,
            operations=pin.operations,
        )
        item = self._limit(registry.BUILT_IN.register, caller)
        return self._outcome(scope, self._execute(item, command, caller))

    def transition(self, caller: callers.Caller, scope: str, pin: RequestedPin) -> PinOutcome:
        """Pin a scope to a release, or confirm its pin. Raises: StaleVersion, VersionRequired."""
        caller.demand(steps.TRANSITION_RELEASE, scopes.channel_scope(scope))
        self._refuse_channel(scope)
        command = slices.TransitionRelease(
            scope=scope,
            release_id=pin.release_id,
            digest=pin.digest,
            authority=pin.authority,
            command_id=make_id(caller, steps.TRANSITION_RELEASE, "command"),
            by=caller.id,
            expected_version=self._counter_seen(caller, scope),
            status=pin.status,
            operations=pin.operations,
        )
        item = self._limit(registry.BUILT_IN.transition, caller)
        return self._outcome(scope, self._execute(item, command, caller))

    def retire(self, caller: callers.Caller, scope: str, reason: str) -> PinOutcome:
        """Close a scope that is not a channel; nothing is deleted.

        Raises:
            PinOfChannel, StaleVersion, VersionRequired.
        """
        caller.demand(steps.RETIRE_RELEASE, scopes.channel_scope(scope))
        self._refuse_channel(scope)
        command = slices.RetireRelease(
            scope=scope,
            reason=reason,
            command_id=make_id(caller, steps.RETIRE_RELEASE, "command"),
            by=caller.id,
            expected_version=self._counter_seen(caller, scope),
        )
        return self._outcome(scope, self._execute(registry.BUILT_IN.retire, command, caller))

    def keep_evidence(
        self, caller: callers.Caller, scope: str, source: str, batch: str, document: dict[str, Any]
    ) -> model.Position:
        """Store an observation as evidence; it never changes a pin."""
        caller.demand(steps.KEEP_EVIDENCE, scopes.channel_scope(scope))
        command = evidence.KeepEvidence(
            scope=scope,
            source=source,
            batch=batch,
            document=document,
            command_id=make_id(caller, steps.KEEP_EVIDENCE, "command"),
            by=caller.id,
        )
        outcome = self._execute(registry.BUILT_IN.keep_evidence, command, caller)
        return outcome.position or self._stored_at(scope, source, batch)

    def import_manifest(
        self, caller: callers.Caller, scope: str, manifest: FactoryManifest
    ) -> model.Position:
        """Change the pin if a factory manifest matches one release; else only store the manifest.

        Raises:
            StaleVersion.
        """
        caller.demand(steps.IMPORT_MANIFEST, scopes.channel_scope(scope))
        self._refuse_channel(scope)
        expected = None
        if caller.expected_version is not None:
            expected = self._counter_seen(caller, scope)
        command = evidence.ImportManifest(
            scope=scope,
            batch=manifest.batch,
            ref=manifest.ref,
            observed_at=manifest.observed_at,
            digests=manifest.digests,
            command_id=make_id(caller, steps.IMPORT_MANIFEST, "command"),
            by=caller.id,
            expected_version=expected,
            import_run_id=manifest.import_run_id,
            status=manifest.status,
            operations=manifest.operations,
        )
        item = self._limit(registry.BUILT_IN.import_manifest, caller)
        outcome = self._execute(item, command, caller)
        return outcome.position or self._stored_at(scope, evidence.FACTORY, manifest.batch)

    def _stored_at(self, scope: str, source: str, batch: str) -> model.Position:
        """Return the log position of what an earlier command stored: evidence, or the pin."""
        key = rows.evidence_key(scope, source, batch)
        found = self._reads.find(key, rows.KeptEvidence)
        return self._demand(scope).version if found is None else found.version

    def _refuse_channel(self, scope: str) -> None:
        """Refuse a channel, whose pin needs a plan and a rollout. Raises: PinOfChannel."""
        if self._reads.find(channel_rows.channel_key(scope), channel_rows.Channel) is not None:
            raise refusals.PinOfChannel(scope)

    def _limit(self, item: kernel_slices.Slice, caller: callers.Caller) -> kernel_slices.Slice:
        return catalog.limit_to_visible(item, partial(self._may_pin, caller))

    def _may_pin(self, caller: callers.Caller, release_id: str) -> bool:
        """Whether the caller may see the release."""
        release = self._reads.find(rows.known_key(release_id), rows.KnownRelease)
        if release is None or not release.row.revision:
            return True  # the decision raises that it does not exist
        return caller.may(
            steps.READ_REVISION, scopes.repository_scope(parse(release.row.revision).repository)
        )

    def _counter_seen(self, caller: callers.Caller, scope: str) -> int:
        """Return the counter of the pin at the log position that the caller saw.

        For a repeat, it is the counter that the first copy saw.
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
        if receipt is None:  # nothing changed
            return PinOutcome(found.version, found)
        if not receipt.first <= found.version <= receipt.last:
            earlier = pinned_at(self._history, scope, receipt.last)
            if earlier is None:
                message = f"{scope} was not registered at {receipt.last}"
                raise NotFound(message, scope=scope)
            found = earlier
        return PinOutcome(receipt.last, found)

    def _demand(self, scope: str) -> Found[rows.Actual]:
        missing = NotFound(f"{scope} is not registered", scope=scope)
        return self._reads.demand(rows.actual_key(scope), rows.Actual, missing)
