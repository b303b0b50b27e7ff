"""Create, edit, delete, hold, unhold and protect channels.

A channel's selector is checked against all hosts, in the lane of the fleet, so that it cannot race
with a change of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.control.operations.execute import Execute, VerbResult
from tidegate.control.operations.ids import make_id
from tidegate.control.operations.protection import GuardedVerb, ProtectionGuard
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found, Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain import times
from tidegate.domain.access import callers, principals, roles, scopes, steps
from tidegate.domain.channels import default_policy, facts, refusals, rows as channel_rows, slices
from tidegate.domain.channels.policy import check_named
from tidegate.domain.channels.stops import ChannelStops, own_stops_key
from tidegate.domain.fleet import claims, rows as fleet_rows
from tidegate.domain.packages.names import DEFAULT_REPOSITORY
from tidegate.domain.packages.rows import Repository, repository_key
from tidegate.domain.releases import facts as release_facts, rows as release_rows
from tidegate.domain.rollouts.channel_deletion import DeleteChannel, delete_channel, list_users
from tidegate.errors import StaleVersion
from tidegate.kernel.model import Clause, Position, Query

_SETTINGS = frozenset({facts.ChannelCreated.__name__, facts.ChannelEdited.__name__})

ATTEMPTS_MAX = 5  # of a change of the selector, while hosts come and go


class _EditAsked(msgspec.Struct, frozen=True):
    """What identifies a repeated edit: the request, without the values that were filled in."""

    channel: str
    selector: str | None
    policy: facts.ChannelPolicy | None
    version: int | None


class _CallerIsStale(StaleVersion):
    """The channel changed since the caller read it, so another attempt would not help."""


class ChannelOperations:
    """The verbs of a channel. Each returns the log position of the change.

    Raises:
        MissingPermission, ChannelNotFound.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        fleet: FleetReader,
        log: LogReader,
        guard: ProtectionGuard,
    ) -> None:
        self._log = log
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._fleet = fleet
        self._guard = guard

    def create(
        self,
        caller: callers.Caller,
        channel: str,
        *,
        package: str,
        selector: str,
        policy: facts.ChannelPolicy | None = None,
    ) -> Position:
        """Create a channel that carries a package to the hosts that match a selector. Without a
        policy it gets the default policy, written out in full.

        The caller must be allowed to read the package's repository and the channel of each edge.

        Raises:
            ChannelExists, ChannelNameUsed, InvalidSelector, MalformedPolicy, SelectorOverlap.
            LaneBusy: other commands kept the fleet busy; nothing was changed.
        """
        caller.demand(steps.CREATE_CHANNEL, scopes.channel_scope(channel))
        asked_package, package = package, self._demand_package(caller, package)
        policy = default_policy.DEFAULT_POLICY if policy is None else policy
        _demand_readable(caller, policy.edges)
        pin = self._reads.find(release_rows.actual_key(channel), release_rows.Actual)
        if pin is not None and pin.row.status is release_facts.PinStatus.RETIRED:
            raise refusals.ChannelNameUsed(channel)
        asked = slices.CreateChannel(
            channel=channel,
            package=asked_package,
            selector=selector,
            operator=caller.id,
            policy=policy,
        )

        def attempt() -> CommandOutcome:
            version = self._check_claim(fleet_rows.ChannelScope(channel, package, selector), policy)
            command = msgspec.structs.replace(asked, package=package, fleet_version=version)
            return self._execute(slices.create_channel, command, caller, asked=asked)

        return self._position(channel, self._claim(attempt))

    def _demand_package(self, caller: callers.Caller, package: str) -> str:
        """Return the whole name of a package. A path may have slashes, so ``net/vpc`` is in the
        repository ``net`` if there is one, and else in the default repository.

        The permission is checked first: it must not tell which repositories exist.
        """
        repository, slash, _ = package.partition("/")
        if slash:
            _demand_reader(caller, repository)
            if self._reads.find(repository_key(repository), Repository) is not None:
                return package
        _demand_reader(caller, DEFAULT_REPOSITORY)
        return f"{DEFAULT_REPOSITORY}/{package}"

    def edit(
        self,
        caller: callers.Caller,
        channel: str,
        *,
        selector: str | None = None,
        policy: facts.ChannelPolicy | None = None,
        reason: str = "",
    ) -> Position:
        """Change the selector or the policy of a channel; None keeps it. Open rollouts keep their
        plan. ``reason`` is for the request, if the channel is protected.

        The caller must be allowed to read the channel of each edge that is added.

        Raises:
            StaleVersion, InvalidSelector, MalformedPolicy, SelectorOverlap.
            LaneBusy: other commands kept the fleet busy; nothing was changed.
        """
        caller.demand(steps.EDIT_CHANNEL, scopes.channel_scope(channel))
        asked = _EditAsked(channel, selector, policy, caller.expected_version)

        def complete() -> slices.EditChannel:
            found = self._demand_seen(caller, channel)
            known = {edge.channel for edge in found.row.policy.edges}
            edges = () if policy is None else policy.edges
            _demand_readable(caller, [edge for edge in edges if edge.channel not in known])
            command = slices.EditChannel(
                channel=channel,
                selector=selector or found.row.selector,
                policy=policy or found.row.policy,
                operator=caller.id,
                expected_version=found.version,  # missing values come from this version
            )
            slices.rows_of_claim(command)
            scope = fleet_rows.ChannelScope(channel, found.row.package, command.selector)
            return msgspec.structs.replace(
                command, fleet_version=self._check_claim(scope, command.policy)
            )

        def run(by: callers.Caller) -> CommandOutcome:
            return self._claim(
                lambda: self._execute(slices.edit_channel, complete(), by, asked=asked)
            )

        verb = GuardedVerb(
            step=steps.EDIT_CHANNEL,
            channels=(channel,),
            arguments={"selector": selector, "policy": msgspec.to_builtins(policy)},
            reason=reason,
            check=complete,
            rehearse=lambda: self._execute.rehearse(slices.edit_channel, complete()),
        )
        earlier = lambda: self._execute.earlier(slices.edit_channel, asked, caller)  # noqa: E731
        return self._position(channel, self._guard.run(caller, verb, run, earlier))

    def delete(self, caller: callers.Caller, channel: str, reason: str) -> Position:
        """Delete a channel that nothing uses. Its hosts are in no channel then; the log keeps its
        history. On a protected channel this takes a second person.

        Raises:
            ChannelInUse.
        """
        caller.demand(steps.DELETE_CHANNEL, scopes.channel_scope(channel))
        asked = DeleteChannel(
            channel=channel,
            operator=caller.id,
            reason=reason,
            command_id=make_id(caller, steps.DELETE_CHANNEL, "command"),
        )

        def complete() -> DeleteChannel:
            return msgspec.structs.replace(asked, waiting=self._list_waiting(channel))

        def check() -> None:
            rows = self._reads.find_all(
                (channel_rows.channel_key(channel), channel_rows.Channel),
                (fleet_rows.fleet_key(), fleet_rows.Fleet),
                (own_stops_key(channel), ChannelStops),
            )
            row, fleet, stops = (None if found is None else found.row for found in rows)
            if row is None:
                raise refusals.ChannelNotFound(channel)
            users = [*list_users(row, fleet, stops, self._execute.now()), *complete().waiting]
            if users:
                raise refusals.ChannelInUse(channel, users)

        def run(by: callers.Caller) -> CommandOutcome:
            return self._lanes.run(
                fleet_rows.FLEET, lambda: self._execute(delete_channel, complete(), by, asked=asked)
            )

        verb = GuardedVerb(
            step=steps.DELETE_CHANNEL,
            channels=(channel,),
            arguments={"reason": reason},
            reason=reason,
            check=check,
            rehearse=lambda: self._execute.rehearse(delete_channel, complete()),
        )
        earlier = lambda: self._execute.earlier(delete_channel, asked, caller)  # noqa: E731
        return self._guard.run(caller, verb, run, earlier).position

    def _list_waiting(self, channel: str) -> tuple[str, ...]:
        """List open rollouts of other channels whose frozen plans wait for this channel. Later
        rollouts follow a policy, which the commit checks.
        """
        return tuple(
            row.rollout_id
            for row in self._fleet.open_rollouts()
            if any(edge.channel == channel for edge in self._fleet.tally(row.rollout_id).row.edges)
        )

    def hold(self, caller: callers.Caller, channel: str, reason: str) -> VerbResult:
        """Block promotions and orders on the channel until the hold is released. A channel has one
        hold: a second one is not added, and a warning says who set the first.
        """
        caller.demand(steps.HOLD_CHANNEL, scopes.channel_scope(channel))
        command = slices.HoldChannel(channel=channel, operator=caller.id, reason=reason)
        outcome = self._execute(slices.hold_channel, command, caller)
        if outcome.position:
            return VerbResult(outcome.position)
        found = self._demand(channel)
        return VerbResult(found.version, (_describe_hold(found.row),))

    def unhold(self, caller: callers.Caller, channel: str, reason: str) -> VerbResult:
        """Release the hold on a channel. On a protected channel this takes a second person, unless
        the caller set the hold.
        """
        caller.demand(steps.UNHOLD_CHANNEL, scopes.channel_scope(channel))
        command = slices.UnholdChannel(channel=channel, operator=caller.id, reason=reason)
        verb = GuardedVerb(
            step=steps.UNHOLD_CHANNEL,
            channels=(channel,),
            arguments={"reason": reason},
            reason=reason,
            own_hold=channel,
            check=lambda: self._demand(channel),
            rehearse=lambda: self._execute.rehearse(slices.unhold_channel, command),
        )
        item = slices.unhold_channel
        outcome = self._guard.run(
            caller,
            verb,
            lambda by: self._execute(item, command, by),
            lambda: self._execute.earlier(item, command, caller),
        )
        if outcome.position:
            return VerbResult(outcome.position)
        warning = f"{channel} is not held. Nothing was released."
        return VerbResult(self._demand(channel).version, (warning,))

    def protect(
        self,
        caller: callers.Caller,
        channel: str,
        protection: facts.ChannelProtection | None,
        reason: str,
    ) -> Position:
        """Protect the channel; None: remove the protection. To loosen it takes a second person.

        Raises:
            NobodyElseApproves.
        """
        caller.demand(steps.PROTECT_CHANNEL, scopes.channel_scope(channel))
        self._demand(channel)
        if protection is not None:
            self._guard.demand_approvers(caller, channel, protection.approvals)
        asked = slices.ProtectChannel(
            channel=channel, operator=caller.id, reason=reason, protection=protection
        )

        def tighten() -> CommandOutcome | None:
            command = msgspec.structs.replace(asked, tightens=True)
            with suppress(refusals.ProtectionLoosened):
                return self._execute(slices.protect_channel, command, caller, asked=asked)
            return None

        verb = GuardedVerb(
            step=steps.PROTECT_CHANNEL,
            channels=(channel,),
            arguments={"protection": msgspec.to_builtins(protection), "reason": reason},
            reason=reason,
            rehearse=lambda: self._execute.rehearse(slices.protect_channel, asked),
        )
        run = lambda by: self._execute(slices.protect_channel, asked, by)  # noqa: E731
        return self._position(channel, self._guard.run(caller, verb, run, tighten))

    def _claim(self, attempt: Callable[[], CommandOutcome]) -> CommandOutcome:
        """Run an attempt in the lane of the fleet; repeat it if another process changed the fleet
        while the selector was checked.
        """
        for left in reversed(range(ATTEMPTS_MAX)):
            try:
                return self._lanes.run(fleet_rows.FLEET, attempt)
            except _CallerIsStale:
                raise
            except StaleVersion:
                if not left:
                    raise
        raise AssertionError("the last attempt raises")

    def _check_claim(self, scope: fleet_rows.ChannelScope, policy: facts.ChannelPolicy) -> Position:
        """Check that no host would be in two channels of one package, and that all hosts that the
        policy names exist. Return the version of the fleet for which this holds.

        Raises:
            SelectorOverlap, InvalidSelector, MalformedPolicy.
        """
        fleet = self._reads.find(fleet_rows.fleet_key(), fleet_rows.Fleet)
        hosts = [] if fleet is None else self._fleet.hosts()
        check_named(policy, hosts)
        if fleet is None:
            return 0
        claims.check_scope(fleet.row.channels, scope, hosts)
        return fleet.version

    def _demand_seen(self, caller: callers.Caller, channel: str) -> Found[channel_rows.Channel]:
        """Raises: ChannelNotFound, StaleVersion: the settings changed since the caller read them.

        Rollouts write the channel's row, too; that does not count as a change of its settings.
        """
        found, seen = self._demand(channel), caller.expected_version
        if seen in (None, found.version):
            return found
        own = frozenset({f"channel:{channel}"})
        changed = Query((Clause(_SETTINGS, own),))
        if seen > found.version or self._log.events(changed, after=seen, limit=1):
            raise _CallerIsStale(seen, found.version)
        return found

    def _demand(self, channel: str) -> Found[channel_rows.Channel]:
        return self._reads.demand(
            channel_rows.channel_key(channel),
            channel_rows.Channel,
            refusals.ChannelNotFound(channel),
        )

    def _position(self, channel: str, outcome: CommandOutcome) -> Position:
        return outcome.position or self._demand(channel).version


def _describe_hold(row: channel_rows.Channel) -> str:
    since = f"{row.held_by} since {times.describe_time(row.held_at)}: {row.held_reason}"
    return f"{row.channel} is held already by {since}. Your hold was not added."


def _demand_reader(caller: callers.Caller, repository: str) -> None:
    scope = scopes.repository_scope(repository)
    principals.demand_permission(caller.principal, (roles.Verb.READ,), scope)


def _demand_readable(caller: callers.Caller, edges: Iterable[facts.ChannelEdge]) -> None:
    """Check that the caller may read the channel of each edge, because an edge shows its results.

    Raises:
        MissingPermission.
    """
    for edge in edges:
        principals.demand_permission(
            caller.principal, (roles.Verb.READ,), scopes.channel_scope(edge.channel)
        )
