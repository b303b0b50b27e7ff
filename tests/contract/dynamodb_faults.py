"""A DynamoDB transport for tests that records what is sent and can break any call."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from tests.contract.world import SCHEMA
from tidegate.engines.dynamodb import DynamoStore
from tidegate.engines.dynamodb.client import BotoTransport
from tidegate.engines.dynamodb.transport import (
    Action,
    AddItem,
    AnswerLost,
    Busy,
    CancellationReason,
    Cancelled,
    Item,
    ItemKey,
    ItemPage,
    Transport,
    UpdateItem,
    Value,
)
from tidegate.kernel.store import Schema

Send = Callable[[], Any]
Plot = Callable[[Send], Any]  # runs in place of the call, and may make the call itself


class Gone(BaseException):
    """The process that made the call has ended."""


class FaultyTransport:
    """Passes the five calls on, unless a plot is waiting for the next call of that name."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.sent: list[Sequence[Action]] = []
        self._plots: defaultdict[str, deque[Plot]] = defaultdict(deque)

    def plot(self, call: str, *plots: Plot) -> None:
        """Break the next calls of this name, one plot for each."""
        self._plots[call].extend(plots)

    def get(self, places: Sequence[ItemKey], *, together: bool = False) -> dict[ItemKey, Item]:
        found = self._through("get", lambda: self.inner.get(places, together=together))
        assert isinstance(found, dict)
        return found

    def query(self, pk: str, **bounds: Any) -> ItemPage:
        page = self._through("query", lambda: self.inner.query(pk, **bounds))
        assert isinstance(page, ItemPage)
        return page

    def increment(
        self, place: ItemKey, attribute: str, equal: Mapping[str, Value | None]
    ) -> int | None:
        send = partial(self.inner.increment, place, attribute, equal)
        number: int | None = self._through("increment", send)
        return number

    def put_absent(self, item: Item) -> Item | None:
        standing: Item | None = self._through("put", lambda: self.inner.put_absent(item))
        return standing

    def transact(self, actions: Sequence[Action], token: str) -> None:
        self.sent.append(actions)
        self._through("transact", lambda: self.inner.transact(actions, token))

    def now(self) -> float:
        return self.inner.now()

    def close(self) -> None:
        self.inner.close()

    def described(self) -> list[list[str]]:
        """Describe every transaction so far in words."""
        return [
            [line for action in actions if (line := _describe(action)) is not None]
            for actions in self.sent
        ]

    def _through(self, call: str, send: Send) -> Any:
        self.calls[call] += 1
        plots = self._plots[call]
        return plots.popleft()(send) if plots else send()


def _describe(action: Action) -> str | None:
    """Describe in words what an action does to an index or its fence; None: it concerns a row."""
    where = _fence_name(action.place.pk.removeprefix("index#"))
    match action:
        case AddItem(place=ItemKey(pk)) if pk.startswith("index#"):
            return f"put in {where}"
        case UpdateItem(ItemKey(pk), equal, _, sets) if pk.startswith("index#"):
            checked, advanced = _types(equal), _types(sets)
            if not advanced:
                return f"check fence#{where} on {checked}"
            if not checked:
                return f"advance fence#{where} on {advanced}"
            return f"check fence#{where} on {checked} and advance {advanced}"
    return None


def _fence_name(index: str) -> str:
    """The name of a fence for people: ``key:value``, several tags joined by &."""
    if not index[0].isdigit():
        return index
    tags, rest = [], index.encode()
    while rest:
        size, _, rest = rest.partition(b":")
        tags.append(rest[: int(size)].decode())
        rest = rest[int(size) :]
    return "&".join(tags)


def _types(attributes: Iterable[str]) -> str:
    names = sorted(name.removeprefix("pos#") for name in attributes if name.startswith("pos#"))
    return ", ".join(names) or ("any type" if "pos" in attributes else "")


# ── plots ─────────────────────────────────────────────────────────────────────────────────────────


def lose_request(send: Send) -> Any:
    raise AnswerLost("the request never arrived")


def lose_answer(send: Send) -> Any:
    send()
    raise AnswerLost("the answer never arrived")


def throttle(send: Send) -> Any:
    raise Busy("ThrottlingException")


def die_after(send: Send) -> Any:
    send()
    raise Gone


def refuse(code: str, at: int, of: int) -> Plot:
    """Cancel the transaction because of one of its actions."""

    def plot(send: Send) -> Any:
        raise Cancelled([CancellationReason(code if i == at else None, {}) for i in range(of)])

    return plot


def report_only(*positions: int) -> Plot:
    """Make the call, and report the reasons of a refusal at these positions only."""

    def plot(send: Send) -> Any:
        try:
            return send()
        except Cancelled as refusal:
            told = [
                reason if at in positions else CancellationReason(None, {})
                for at, reason in enumerate(refusal.reasons)
            ]
            raise Cancelled(told) from None

    return plot


def first(act: Callable[[], Any]) -> Plot:
    """Do something else before the call is made."""

    def plot(send: Send) -> Any:
        act()
        return send()

    return plot


# ── handles ───────────────────────────────────────────────────────────────────────────────────────


class Time:
    """A clock that advances when a caller sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass(slots=True)
class Table:
    """A fresh table on the test server, and handles on it."""

    endpoint: str
    name: str
    time: Time

    def transport(self) -> BotoTransport:
        return BotoTransport(self.name, region="local", endpoint=self.endpoint)

    def open(self, schema: Schema = SCHEMA) -> tuple[DynamoStore, FaultyTransport]:
        """Open a handle whose calls can be broken, in the table's virtual time."""
        meddler = FaultyTransport(self.transport())
        time = self.time
        store = DynamoStore(self.name, schema, transport=meddler, clock=time, sleep=time.sleep)
        meddler.calls.clear()
        meddler.sent.clear()
        return store, meddler


def fresh_table(endpoint: str, schema: Schema = SCHEMA) -> Table:
    table = Table(endpoint, f"dynamo_{uuid4().hex[:16]}", Time())
    DynamoStore(table.name, schema, region="local", endpoint=endpoint).close()
    return table
