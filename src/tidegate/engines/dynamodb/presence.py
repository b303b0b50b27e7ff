"""Presence on DynamoDB: leases in one item, and eras that stop a process whose lease expired.

    item presence/-   register: token → when its lease ends; which token is alone, until when; era

    joined ──renewed──▶ joined ──left, or not renewed in time──▶ not counted
    none counted ──alone, in a new era──▶ none can join ──left──▶ free
                                            └─not renewed──▶ the next process begins a new era

The register is replaced as a whole, if it has not changed since it was read. Times are from the
processes' own clocks. A lease is valid while ``until > now``; at equality it has expired, as with
the kernel's leases. So a process that was paused for long, or whose clock is wrong, may count as
dead while it runs. That cannot damage rows: the era is also on the counter from which commits take
their numbers, and a store takes no number in another era than the one it was opened in (ADR-0014).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, Thread
from typing import Final

import msgspec

from tidegate import decoders
from tidegate.engines.dynamodb import items, store, transport as dynamodb_transport
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.engines.presence import open_elsewhere, rebuild_running
from tidegate.errors import InvalidInput, StoreUnavailable, TidegateError

_logger = logging.getLogger(__name__)

PRESENCE: Final = dynamodb_transport.ItemKey("presence", "-")
REGISTER: Final = "register"
COUNTED_MAX = 1_000
CHANGES_MAX = 100
RENEWALS_PER_LEASE = 3
LEASE_SECONDS_MAX = 3_600.0
LEAVE_SECONDS_MAX = 2.0  # how long to try to leave; after that the lease expires by itself


class Register(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which processes have the log open, and when their leases end unless renewed."""

    counted: Mapping[str, datetime] = {}
    alone: tuple[str, datetime] | None = None
    era: int = 0

    def drop_expired(self, now: datetime) -> Register:
        """The register without expired leases."""
        counted = {token: until for token, until in self.counted.items() if until > now}
        alone = self.alone if self.alone is not None and self.alone[1] > now else None
        return Register(counted, alone, self.era)

    def join(self, token: str, until: datetime, now: datetime) -> Register:
        """The register with one process more.

        Raises:
            StoreRefused: a process is alone with the log. StoreUnavailable: there are too many.
        """
        live = self.drop_expired(now)
        if live.alone is not None:
            raise rebuild_running()
        if len(live.counted) >= COUNTED_MAX:
            raise StoreUnavailable(f"{COUNTED_MAX} processes have the log open, which is the most")
        return msgspec.structs.replace(live, counted={**live.counted, token: until})

    def take_alone(self, token: str, until: datetime, now: datetime, lease: float) -> Register:
        """The register with this process alone.

        Raises:
            StoreRefused: another process has the log open.
        """
        live = self.drop_expired(now)
        if live.alone is not None:
            raise rebuild_running()
        if live.counted:
            raise open_elsewhere(f" (one that was killed counts for {lease:g} s)")
        return Register(alone=(token, until), era=self.era)

    def has(self, token: str) -> bool:
        """Whether the process is registered, alone or with others."""
        return token in self.counted or (self.alone is not None and self.alone[0] == token)

    def remove(self, token: str) -> Register:
        """The register without this process."""
        counted = {other: until for other, until in self.counted.items() if other != token}
        is_alone = self.alone is not None and self.alone[0] == token
        return Register(counted, None if is_alone else self.alone, self.era)


_encode = msgspec.json.Encoder(order="deterministic").encode
_decoder = decoders.build(Register)


class Presence:
    """The entry of one process in the register of a table."""

    def __init__(
        self, transport: dynamodb_transport.Transport, pace: RetryPace, *, alone: bool, lease: float
    ) -> None:
        """Raises: InvalidInput: the length of the lease is not valid."""
        if not 0 < lease <= LEASE_SECONDS_MAX:
            raise InvalidInput(f"a lease lasts up to {LEASE_SECONDS_MAX:g} s, found {lease!r}")
        self._transport = transport
        self._pace = pace
        self._is_alone = alone
        self._lease = lease
        self._token = pace.new_id()
        self._era = 0
        self._over = Event()

    def enter(self) -> None:
        """Register this process.

        Raises:
            StoreRefused: other processes do not allow it. StoreUnavailable.
        """
        self._era = self._update(self._add_self).era

    def keep(self) -> None:
        """Renew the lease until ``leave``. A failed renewal is retried at the next turn."""
        while not self._over.wait(self._lease / RENEWALS_PER_LEASE):
            try:
                self._update(self._renew_self)
            except TidegateError:
                continue  # if the lease expires before the next try, the era protects the rows

    def leave(self) -> None:
        """Stop renewing, and remove this process from the register if the table responds soon."""
        self._over.set()
        try:
            self._update(lambda register: register.remove(self._token), LEAVE_SECONDS_MAX)
        except TidegateError:
            return  # the lease will expire

    def _add_self(self, register: Register) -> Register:
        if register.has(self._token):
            return register  # an earlier request, whose response was lost, was applied
        now, until = self._times()
        if self._is_alone:
            return register.take_alone(self._token, until, now, self._lease)
        return register.join(self._token, until, now)

    def _renew_self(self, register: Register) -> Register:
        """The register with our lease renewed; unchanged if the era is not ours any more.

        As long as the era is ours, no other process has been alone with the log since we joined.
        """
        if register.era != self._era:
            self._over.set()
            _logger.warning("the lease on the log lapsed, and its rows were rebuilt: start again")
        if self._over.is_set():
            return register
        _, until = self._times()
        if self._is_alone:
            return msgspec.structs.replace(register, alone=(self._token, until))
        return msgspec.structs.replace(register, counted={**register.counted, self._token: until})

    def _times(self) -> tuple[datetime, datetime]:
        now = datetime.fromtimestamp(time.time(), UTC)
        return now, now + timedelta(seconds=self._lease)

    def _update(
        self, rule: Callable[[Register], Register], seconds_max: float | None = None
    ) -> Register:
        """Replace the register by the result of the rule, and return that.

        Raises:
            StoreUnavailable: other processes kept changing the register. All that the rule raises.
        """
        for waits in range(CHANGES_MAX):
            found = self._pace.retry(
                partial(self._transport.get, [PRESENCE, items.COUNTER]), seconds_max
            )
            item = found.get(PRESENCE, {})
            old = _decoder.decode(items.blob(item, REGISTER)) if item else Register()
            new = rule(old)
            if new == old:
                return old
            actions: list[dynamodb_transport.Action] = []
            if _begins_era(old, new):
                era = items.integer(found.get(items.COUNTER, {}), items.ERA)
                new = msgspec.structs.replace(new, era=era + 1)
                actions.append(
                    dynamodb_transport.UpdateItem(
                        items.COUNTER, {items.ERA: era or None}, sets={items.ERA: era + 1}
                    )
                )
            equal = {REGISTER: item.get(REGISTER)}
            actions.append(
                dynamodb_transport.UpdateItem(PRESENCE, equal, sets={REGISTER: _encode(new)})
            )
            send = partial(self._transport.transact, actions, self._pace.new_id())
            try:
                self._pace.retry(send, seconds_max)
            except dynamodb_transport.Cancelled:
                self._pace.wait(waits)
            else:
                return new
        raise StoreUnavailable(f"the register of open processes changed at {CHANGES_MAX} attempts")


def _begins_era(old: Register, new: Register) -> bool:
    """Whether the change must begin a new era.

    It must if a process is alone that was not before, or if the one that was alone has lost its
    lease without knowing it. One that left by itself writes no more rows.
    """
    was, now = old.alone and old.alone[0], new.alone and new.alone[0]
    return was != now and bool(now or new.counted)


@contextmanager
def hold_lease(url: str, alone: bool, lease: float) -> Iterator[None]:
    """Register this process during the block. Raises: StoreRefused, StoreUnavailable."""
    pace = RetryPace()
    with closing(store.open_table(url, pace)) as transport:
        presence = Presence(transport, pace, alone=alone, lease=lease)
        presence.enter()
        keeper = Thread(target=presence.keep, name="tidegate-presence", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            presence.leave()
            keeper.join()
