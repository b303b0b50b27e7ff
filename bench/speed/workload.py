"""The work that every contender does: the same events, tags, payloads, conditions and log.

An event has two tags, its order and its customer, one of two types and a payload of 170 bytes.
A log of n events has n/10 orders of 10 events each, customers of 1,000 events each, and one key
account that has every tenth event; the events of an order are scattered over the whole log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

TYPES = ("OrderChanged", "OrderOpened")
PAYLOAD_BYTES = 170
ORDER_EVENTS = 10
CUSTOMER_EVENTS = 1_000
KEY_ACCOUNT = "customer_id:key-account"
KEY_ACCOUNT_SHARE = 10  # every tenth event is the key account's
READS = (10, 1_000, 100_000)
BATCHES = (10, 100, 1_000)
CLIENTS = (1, 8, 32)


class Entry(NamedTuple):
    """An event before it is in a log."""

    type: str
    tags: tuple[str, str]  # customer, order: sorted, as they are written
    payload: bytes


class Condition(NamedTuple):
    """Fail if an event of one of `TYPES` under one of the tags exists after the position."""

    tags: tuple[str, ...]
    after: int


@dataclass(frozen=True)
class Layout:
    """Which tags a log of this many events has, and who may use them.

    The lower half of orders and customers is read, the upper half appended to, so that a read
    finds the same number of events in every round. Clients never share a tag, so none conflicts.
    """

    events: int

    def __post_init__(self) -> None:
        if self.events % ORDER_EVENTS or self._others % self.customers or not self.events:
            raise ValueError(f"a log of {self.events} events is not even: take some 10,000s")

    @property
    def orders(self) -> int:
        return max(2, self.events // ORDER_EVENTS)

    @property
    def customers(self) -> int:
        return max(2, self._others // CUSTOMER_EVENTS)

    @property
    def _others(self) -> int:
        """The number of events that are not the key account's."""
        return self.events - self.events // KEY_ACCOUNT_SHARE

    def entries(self) -> Iterator[Entry]:
        """The whole log, in order."""
        return map(self._entry, range(self.events))

    def _entry(self, number: int) -> Entry:
        others = number - number // KEY_ACCOUNT_SHARE - 1
        customer = (
            KEY_ACCOUNT if number % KEY_ACCOUNT_SHARE == 0 else _customer(others % self.customers)
        )
        turn = number // self.orders
        return _entry(TYPES[turn % len(TYPES)], customer, _order(number % self.orders))

    def read_tag(self, size: int, random: Random) -> str:
        """A tag that has `size` events in a log of a million, see `events_under`."""
        if size == ORDER_EVENTS:
            return _order(random.randrange(self.orders // 2))
        if size == CUSTOMER_EVENTS:
            return _customer(random.randrange(self.customers // 2))
        return KEY_ACCOUNT

    def events_under(self, size: int) -> int:
        """How many events a `read_tag` of that size has in this log."""
        if size == ORDER_EVENTS:
            return self.events // self.orders
        if size == CUSTOMER_EVENTS:
            return self._others // self.customers
        return self.events // KEY_ACCOUNT_SHARE

    def appended(self, client: int, clients: int, random: Random, size: int = 1) -> list[Entry]:
        """Entries that only this client writes: one customer, different orders."""
        customer = _customer(_own(self.customers, client, clients, random.randrange(1 << 30)))
        start = random.randrange(1 << 30)
        return [
            _entry(
                TYPES[(start + step) % len(TYPES)],
                customer,
                _order(_own(self.orders, client, clients, start + step)),
            )
            for step in range(size)
        ]


def growing() -> Iterator[Entry]:
    """A log without end, with ever new orders and customers: no cache can hold them all."""
    for number in count():
        customer, order = number // CUSTOMER_EVENTS, number // ORDER_EVENTS
        yield _entry(TYPES[number % len(TYPES)], _customer(customer), _order(order))


def _own(everyone: int, client: int, clients: int, choice: int) -> int:
    """One of the client's numbers in the upper half; beyond it where the half is too small."""
    lower = everyone // 2
    mine = max(1, (everyone - lower) // clients)
    return lower + client + clients * (choice % mine)


def _order(number: int) -> str:
    return f"order_id:order-{number:07}"


def _customer(number: int) -> str:
    return f"customer_id:customer-{number:05}"


def _entry(type: str, customer: str, order: str) -> Entry:
    payload = (
        f'{{"customer_id":"{customer.partition(":")[2]}",'
        f'"order_id":"{order.partition(":")[2]}","note":"'
    )
    return Entry(type, (customer, order), f'{payload:.<{PAYLOAD_BYTES - 2}}"}}'.encode())
