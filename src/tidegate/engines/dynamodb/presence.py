"""Being there: leases in one item, and eras that keep out whoever lost his.

    presence  -    register   token → until when it is counted; who is alone, and until when; era

    joined ──renewed──▶ joined ──left, or not renewed in time──▶ not counted
    nobody counted ──alone, in a new era──▶ nobody joins ──left──▶ free
                                              └─not renewed──▶ the next one begins a new era

The register is changed as a whole, by equality on what was read. Times are those of the processes'
own clocks; counted means ``until > now``, at equality it is over, as with the kernel's leases. So a
process that stood still for long, or whose clock is wrong, may be taken for dead. That costs its
manners and no rows: an era stands on the counter, too, from which commits take their numbers, and a
store takes none in another era than the one in which it was opened (ADR-0014).
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
from tidegate.engines.presence import being_made_anew, open_elsewhere
from tidegate.errors import InvalidInput, StoreUnavailable, TidegateError

_logger = logging.getLogger(__name__)

PRESENCE: Final = dynamodb_transport.ItemKey("presence", "-")
REGISTER: Final = "register"
COUNTED_MAX = 1_000
CHANGES_MAX = 100
RENEWALS_PER_LEASE = 3
LEASE_SECONDS_MAX = 3_600.0
LEAVE_SECONDS_MAX = 2.0  # how long leaving is tried; then the lease runs out by itself


class Register(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who has the log open, and until when that holds unless it is renewed."""

    counted: Mapping[str, datetime] = {}
    alone: tuple[str, datetime] | None = None
    era: int = 0

    def pruned(self, now: datetime) -> Register:
        """Without those whose time is over."""
        counted = {token: until for token, until in self.counted.items() if until > now}
        alone = self.alone if self.alone is not None and self.alone[1] > now else None
        return Register(counted, alone, self.era)

    def joined(self, token: str, until: datetime, now: datetime) -> Register:
        """With one more. Raises: StoreRefused: one is alone. StoreUnavailable: too many."""
        live = self.pruned(now)
        if live.alone is not None:
            raise being_made_anew()
        if len(live.counted) >= COUNTED_MAX:
            raise StoreUnavailable(f"{COUNTED_MAX} processes have the log open, which is the most")
        return msgspec.structs.replace(live, counted={**live.counted, token: until})

    def taken(self, token: str, until: datetime, now: datetime, lease: float) -> Register:
        """With this one alone. Raises: StoreRefused: somebody is there."""
        live = self.pruned(now)
        if live.alone is not None:
            raise being_made_anew()
        if live.counted:
            raise open_elsewhere(f" (one that was killed counts for {lease:g} s)")
        return Register(alone=(token, until), era=self.era)

    def has(self, token: str) -> bool:
        return token in self.counted or (self.alone is not None and self.alone[0] == token)

    def without(self, token: str) -> Register:
        counted = {other: until for other, until in self.counted.items() if other != token}
        is_alone = self.alone is not None and self.alone[0] == token
        return Register(counted, None if is_alone else self.alone, self.era)


_encode = msgspec.json.Encoder(order="deterministic").encode
_decoder = decoders.build(Register)


class Presence:
    """One process's place in the register of one table."""

    def __init__(
        self, transport: dynamodb_transport.Transport, pace: RetryPace, *, alone: bool, lease: float
    ) -> None:
        """Raises: InvalidInput: nobody could renew such a lease."""
        if not 0 < lease <= LEASE_SECONDS_MAX:
            raise InvalidInput(f"a lease lasts up to {LEASE_SECONDS_MAX:g} s, found {lease!r}")
        self._transport = transport
        self._pace = pace
        self._is_alone = alone
        self._lease = lease
        self._token = pace.fresh()
        self._era = 0
        self._over = Event()

    def enter(self) -> None:
        """Raises: StoreRefused: others are there. StoreUnavailable."""
        self._era = self._change(self._entered).era

    def keep(self) -> None:
        """Renew until told to stop. A try that fails is followed by the next one."""
        while not self._over.wait(self._lease / RENEWALS_PER_LEASE):
            try:
                self._change(self._renewed)
            except TidegateError:
                continue  # no answer in time; should the lease lapse, the era keeps us out

    def leave(self) -> None:
        """Stop renewing, and be counted no more, if the table answers soon."""
        self._over.set()
        try:
            self._change(lambda register: register.without(self._token), LEAVE_SECONDS_MAX)
        except TidegateError:
            return  # the lease runs out

    def _entered(self, register: Register) -> Register:
        if register.has(self._token):
            return register  # by a request of ours whose answer was lost
        now, until = self._times()
        if self._is_alone:
            return register.taken(self._token, until, now, self._lease)
        return register.joined(self._token, until, now)

    def _renewed(self, register: Register) -> Register:
        """In the era in which we came nobody was alone but us; in another one we are out."""
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

    def _change(
        self, rule: Callable[[Register], Register], seconds_max: float | None = None
    ) -> Register:
        """Bring the register to what a rule makes of it. Raises: what the rule does."""
        for waits in range(CHANGES_MAX):
            found = self._pace.persist(
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
            send = partial(self._transport.transact, actions, self._pace.fresh())
            try:
                self._pace.persist(send, seconds_max)
            except dynamodb_transport.Cancelled:
                self._pace.wait(waits)
            else:
                return new
        raise StoreUnavailable(f"who has the log open changed {CHANGES_MAX} times meanwhile")


def _begins_era(old: Register, new: Register) -> bool:
    """Whether somebody is alone now who was not, or one who was alone is left behind, and may not
    know it. One who leaves by himself is through with the rows.
    """
    was, now = old.alone and old.alone[0], new.alone and new.alone[0]
    return was != now and bool(now or new.counted)


@contextmanager
def leased(url: str, alone: bool, lease: float) -> Iterator[None]:
    """Be in the register while the block lasts. Raises: StoreRefused, StoreUnavailable."""
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
