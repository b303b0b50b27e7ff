"""Create, edit, delete, test, skip and replay subscriptions."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec import Struct, structs

from tidegate.clock import Clock
from tidegate.control.notifications.addresses import Addresses, TargetAddress
from tidegate.control.notifications.mail import TargetAnswer
from tidegate.control.notifications.targets import Targets
from tidegate.control.operations import freezes, ids
from tidegate.control.operations.execute import Execute
from tidegate.control.queries.log_reader import LogReader
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.access import callers, steps
from tidegate.domain.notifications import messages, notices, refusals, rows, slices, states
from tidegate.domain.notifications.events import TEST_EVENT
from tidegate.errors import StaleVersion
from tidegate.kernel.model import Position, at_most

SUBSCRIPTIONS_MAX: Final = 64
ROTATION_OVERLAP: Final = timedelta(hours=24)  # in which the previous secret signs, too
EDITS_MAX: Final = 5  # attempts of one edit, while others edit the subscription
DROPS_MAX: Final = 1_000  # commits that a deletion may take


class NewTarget(Struct, frozen=True, kw_only=True):
    """The target that a new subscription sends to."""

    url: str = ""
    to: tuple[str, ...] = ()  # mail addresses
    secret: str = ""


class ChangedSubscription(Struct, frozen=True, kw_only=True):
    """A subscription, and the log position of its change."""

    subscription: rows.Subscription
    version: Position
    position: Position
    secret: str = ""  # made by the server; it is shown only once


class AskedSubscription(Struct, frozen=True, kw_only=True):
    """What identifies a repeated creation, with a MAC instead of the address."""

    command: slices.CreateSubscription
    address: str


class AskedEdit(Struct, frozen=True, kw_only=True):
    """What identifies a repeated edit; None: not changed."""

    name: str
    target: str  # a MAC of it; empty: not changed
    events: tuple[str, ...] | None
    min_severity: states.Severity | None
    scopes: tuple[str, ...] | None
    rotate_secret: bool
    version: int | None


def _address_of(target: NewTarget) -> TargetAddress:
    return TargetAddress(url=target.url, to=target.to, secret=target.secret)


class SubscriptionOperations:
    """The verbs of a subscription. The caller needs the permission on each of its scopes.

    Raises:
        MissingPermission.
    """

    def __init__(
        self,
        execute: Execute,
        reads: Reads,
        log: LogReader,
        addresses: Addresses,
        targets: Targets,
        installation: messages.InstallationRef,
        name_of: messages.NameOf,
        clock: Clock,
    ) -> None:
        self._execute = execute
        self._reads = reads
        self._log = log
        self._addresses = addresses
        self._targets = targets
        self._installation = installation
        self._name_of = name_of
        self._clock = clock

    def create(
        self,
        caller: callers.Caller,
        name: str,
        *,
        kind: states.TargetKind,
        target: NewTarget,
        events: tuple[str, ...] = (),
        min_severity: states.Severity = states.Severity.INFO,
        scopes: tuple[str, ...],
    ) -> ChangedSubscription:
        """Notify a target of these events from now on.

        Raises:
            SubscriptionExists, InvalidSubscription, InvalidScope, DestinationRefused,
            ChannelNotFound.
        """
        address_id = ids.make_id(caller, steps.CREATE_SUBSCRIPTION, name)
        command = slices.CreateSubscription(
            name=name,
            operator=caller.id,
            kind=kind,
            events=events,
            min_severity=min_severity,
            scopes=scopes,
            address_id=address_id,
        )
        slices.check_terms(command)
        for scope in scopes:
            caller.demand(steps.CREATE_SUBSCRIPTION, scope)
        found = self._reads.range(rows.SUBSCRIPTIONS, limit=SUBSCRIPTIONS_MAX + 1)
        if name not in {item.id for item in found}:
            self._demand_channels(frozenset(scopes))
            at_most("subscriptions", len(found) + 1, SUBSCRIPTIONS_MAX)
        address = self._new_address(kind, target, address_id)
        self._addresses.keep(address_id, name, address, caller.meta)
        asked = AskedSubscription(command=command, address=self._addresses.mark(address))
        outcome = self._execute(slices.create_subscription, command, caller, asked=asked)
        made = "" if target.secret or kind not in states.SIGNED else address.secret
        return self._changed(name, outcome.position, made)

    def edit(
        self,
        caller: callers.Caller,
        name: str,
        *,
        target: NewTarget | None = None,
        events: tuple[str, ...] | None = None,
        min_severity: states.Severity | None = None,
        scopes: tuple[str, ...] | None = None,
        rotate_secret: bool = False,
    ) -> ChangedSubscription:
        """Change the given members, and enable the subscription if it was disabled.

        A rotation makes a new secret for a webhook. Both secrets sign for a day.

        Raises:
            SubscriptionNotFound, InvalidSubscription, InvalidScope, DestinationRefused,
            ChannelNotFound.
        """
        self._demand(caller, steps.EDIT_SUBSCRIPTION, name)
        for scope in scopes or ():
            caller.demand(steps.EDIT_SUBSCRIPTION, scope)
        new_id = ""
        if target is not None or rotate_secret:
            new_id = ids.make_id(caller, steps.EDIT_SUBSCRIPTION, name)
        is_made = rotate_secret and not (target and target.secret)
        asked = AskedEdit(
            name=name,
            target="" if target is None else self._addresses.mark(_address_of(target)),
            events=events,
            min_severity=min_severity,
            scopes=scopes,
            rotate_secret=rotate_secret,
            version=caller.expected_version,
        )
        earlier = self._execute.earlier(slices.edit_subscription, asked, caller)
        if earlier is not None:
            made = self._addresses.make_secret(new_id) if is_made else ""
            return self._changed(name, earlier.position, made)
        for left in reversed(range(EDITS_MAX)):
            found = self._demand(caller, steps.EDIT_SUBSCRIPTION, name)
            row, seen = found.row, caller.expected_version
            if seen not in (None, found.version):
                raise StaleVersion(seen, found.version)
            self._demand_channels(frozenset(scopes or ()) - frozenset(row.scopes))
            made = ""
            if new_id:
                address = self._next_address(row, target, new_id, rotate_secret=rotate_secret)
                self._addresses.keep(new_id, name, address, caller.meta)
                made = address.secret if is_made else ""
            command = slices.EditSubscription(
                name=name,
                operator=caller.id,
                kind=row.kind,
                events=row.events if events is None else events,
                min_severity=min_severity or row.min_severity,
                scopes=row.scopes if scopes is None else scopes,
                address_id=new_id or row.address_id,
                expected_version=found.version,  # the old address is erased when no row names it
            )
            try:
                outcome = self._execute(slices.edit_subscription, command, caller, asked=asked)
            except StaleVersion:
                if seen is not None or not left:
                    raise
                if new_id:  # it was made from an address that has changed meanwhile
                    self._addresses.erase(new_id, caller.meta)
                continue
            changed = self._changed(name, outcome.position, made)
            if changed.subscription.address_id not in ("", row.address_id):
                self._addresses.erase(row.address_id, caller.meta)
            return changed
        raise AssertionError("the last attempt raises")

    def delete(self, caller: callers.Caller, name: str) -> Position:
        """Delete a subscription: drop its waiting notices, and erase its address.

        Raises:
            SubscriptionNotFound.
        """
        row = self._demand(caller, steps.DELETE_SUBSCRIPTION, name).row
        command = slices.DeleteSubscription(name=name, operator=caller.id)
        outcome = self._execute.run(slices.delete_subscription, command, meta=caller.meta)
        for _ in range(DROPS_MAX):
            if self._reads.find(rows.subscription_key(name), rows.Subscription) is None:
                self._addresses.erase(row.address_id, caller.meta)
                break
            outcome = self._execute.run(slices.delete_subscription, command, meta=caller.meta)
        return outcome.position

    def skip(self, caller: callers.Caller, name: str, reason: str) -> Position:
        """Drop the first waiting notice, so that the next one is sent.

        Raises:
            SubscriptionNotFound, NothingWaits.
        """
        self._demand(caller, steps.SKIP_NOTICE, name)
        command = slices.SkipNotice(name=name, operator=caller.id, reason=reason)
        return self._execute(slices.skip_notice, command, caller).position

    def replay(self, caller: callers.Caller, name: str, after: Position) -> Position:
        """Queue again what happened after a log position.

        Raises:
            SubscriptionNotFound, InvalidSubscription.
        """
        self._demand(caller, steps.REPLAY_NOTICES, name)
        command = slices.ReplayNotices(
            name=name, operator=caller.id, after=after, head=self._log.head()
        )
        asked = slices.ReplayNotices(name=name, operator=caller.id, after=after, head=0)
        return self._execute(slices.replay_notices, command, caller, asked=asked).position

    def test(self, caller: callers.Caller, name: str) -> TargetAnswer:
        """Send a test message at once, bypassing the queue.

        Raises:
            SubscriptionNotFound.
        """
        row = self._demand(caller, steps.TEST_SUBSCRIPTION, name).row
        notice = notices.Notice(
            event=TEST_EVENT,
            severity=states.Severity.INFO,
            at=self._clock(),
            position=self._log.head(),
            actor=caller.id,
        )
        message = messages.to_message(notice, name, self._installation, self._name_of)
        return self._targets.send(row.kind, self._addresses.open(row.address_id), message)

    # ── reads ──

    def list_readable(self, caller: callers.Caller) -> list[Found[rows.Subscription]]:
        """List the subscriptions with a scope that the caller may read."""
        found = self._reads.range(rows.SUBSCRIPTIONS, limit=SUBSCRIPTIONS_MAX)
        return [item for item in found if self.may_read(caller, item.row)]

    def get(
        self, caller: callers.Caller, name: str
    ) -> tuple[Found[rows.Subscription], rows.NoticeQueue]:
        """Return a subscription and its queue, if the caller may read one of its scopes.

        Raises:
            SubscriptionNotFound.
        """
        found = self._reads.demand(
            rows.subscription_key(name), rows.Subscription, refusals.SubscriptionNotFound(name)
        )
        if not self.may_read(caller, found.row):
            caller.demand(steps.READ_SUBSCRIPTION, found.row.scopes[0])
        return found, self.queue(name)

    def queue(self, name: str) -> rows.NoticeQueue:
        """Return the queue of a subscription; it is empty if it was just deleted."""
        found = self._reads.find(rows.queue_key(name), rows.NoticeQueue)
        return rows.NoticeQueue(name=name) if found is None else found.row

    def queues(self) -> list[rows.NoticeQueue]:
        """Return all queues."""
        return [item.row for item in self._reads.range(rows.QUEUES, limit=SUBSCRIPTIONS_MAX)]

    @staticmethod
    def may_read(caller: callers.Caller, row: rows.Subscription) -> bool:
        return any(caller.may(steps.READ_SUBSCRIPTION, scope) for scope in row.scopes)

    # ── parts ──

    def _demand_channels(self, scopes: frozenset[str]) -> None:
        """Check that the channels of the scopes exist, because a subscription for a misspelt
        channel would never send anything.

        Raises:
            ChannelNotFound.
        """
        parts = (scope.partition(":") for scope in sorted(scopes))
        names = tuple(name for kind, _, name in parts if kind == "channel")
        freezes.demand_channels(self._reads, names)

    def _demand(
        self, caller: callers.Caller, step: steps.Step, name: str
    ) -> Found[rows.Subscription]:
        found = self._reads.demand(
            rows.subscription_key(name), rows.Subscription, refusals.SubscriptionNotFound(name)
        )
        for scope in found.row.scopes:
            caller.demand(step, scope)
        return found

    def _changed(self, name: str, position: Position, secret: str) -> ChangedSubscription:
        found = self._reads.demand(
            rows.subscription_key(name), rows.Subscription, refusals.SubscriptionNotFound(name)
        )
        return ChangedSubscription(
            subscription=found.row,
            version=found.version,
            position=position or found.version,
            secret=secret,
        )

    def _new_address(self, kind: states.TargetKind, target: NewTarget, id: str) -> TargetAddress:
        address = TargetAddress(url=target.url, to=target.to, secret=target.secret)
        if kind in states.SIGNED and not address.secret:
            address = structs.replace(address, secret=self._addresses.make_secret(id))
        self._targets.check(kind, address)
        return address

    def _next_address(
        self, row: rows.Subscription, target: NewTarget | None, id: str, *, rotate_secret: bool
    ) -> TargetAddress:
        before = self._addresses.open(row.address_id)
        given = target or NewTarget()
        is_moved = given.url not in ("", before.url)
        if is_moved and before.secret and not given.secret and row.kind not in states.SIGNED:
            # A webhook's secret only signs; another target's would go to the new address.
            raise refusals.InvalidSubscription(
                f"A new address needs the secret of {row.name} again.", field="secret"
            )
        address = TargetAddress(
            url=given.url or before.url,
            to=given.to or before.to,
            secret=given.secret or before.secret,
            previous_secret=before.previous_secret,  # an overlap continues
            previous_until=before.previous_until,
        )
        if rotate_secret and not given.secret:
            if row.kind not in states.SIGNED:
                raise refusals.InvalidSubscription(
                    f"Only a webhook's secret can be made here; {row.name} is {row.kind}.",
                    field="rotate_secret",
                )
            address = structs.replace(address, secret=self._addresses.make_secret(id))
        if row.kind in states.SIGNED and address.secret != before.secret:
            address = structs.replace(
                address,
                previous_secret=before.secret,
                previous_until=self._clock() + ROTATION_OVERLAP,
            )
        self._targets.check(row.kind, address)
        return address
