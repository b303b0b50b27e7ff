"""A table behind the five-call seam, as unhelpful as the service's documentation allows.

The test servers show a transaction to readers at once, never contend and never lose an answer. Here
the items of a transaction appear one by one, other calls on them meanwhile are refused, reasons are
left out, and requests are lost, arrive late, or outlive their sender. This fault model is used in
addition to the real server, never instead of it.

Actors are threads, and one runs at a time. A seed decides which one is next at each call, and time
is virtual, so a run is fast and can be repeated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from threading import Semaphore, Thread, local

from tidegate.engines.dynamodb.transport import (
    FAILED,
    Action,
    AddItem,
    AnswerLost,
    Busy,
    CancellationReason,
    Cancelled,
    Item,
    ItemKey,
    ItemPage,
    RemoveItem,
    ReplaceItem,
    UpdateItem,
    Value,
    key_of_item,
)

STEP_SECONDS = 0.001
PAGE_ITEMS = 5


class Died(BaseException):
    """The process of an actor has died, with everything it held."""


class Actors:
    """Actors that take turns."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self._me = local()
        self._gates: list[Semaphore] = []
        self._wakes: dict[int, float] = {}
        self._done = Semaphore(0)
        self._failures: list[BaseException] = []

    def play(self, *parts: Callable[[], None]) -> None:
        """Run all actors to their ends. Raises: the first error that an actor raised, except
        ``Died``.
        """
        self._gates = [Semaphore(0) for _ in parts]
        self._wakes = dict.fromkeys(range(len(parts)), 0.0)
        threads = [Thread(target=self._act, args=one, daemon=True) for one in enumerate(parts)]
        for thread in threads:
            thread.start()
        self._gates[self._next()].release()
        self._done.acquire()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float = 0.0) -> None:
        """Let other actors run for at least this long."""
        me = getattr(self._me, "number", None)
        self.now += STEP_SECONDS
        if me is None:
            self.now += seconds  # no other actor is running
            return
        self._wakes[me] = self.now + seconds
        following = self._next()
        if following != me:
            self._gates[following].release()
            self._gates[me].acquire()

    def _act(self, number: int, part: Callable[[], None]) -> None:
        self._me.number = number
        self._gates[number].acquire()
        try:
            part()
        except Died:
            pass
        except BaseException as failure:  # noqa: BLE001  ``play`` raises it again
            self._failures.append(failure)
        del self._wakes[number]
        if self._wakes:
            self._gates[self._next()].release()
        else:
            self._done.release()

    def _next(self) -> int:
        self.now = max(self.now, min(self._wakes.values()))
        return self.random.choice([one for one, at in self._wakes.items() if at <= self.now])


@dataclass(frozen=True, slots=True)
class Weather:
    """How often things go wrong, each as a probability per call."""

    late: float = 0.02  # the answer is lost, and the request arrives some time later
    lost: float = 0.02  # the request never arrives
    unanswered: float = 0.03  # the request is carried out, the answer is lost
    death: float = 0.005
    stall: float = 0.01  # beyond the grace of the feed
    busy: float = 0.02
    omitted: float = 0.2  # each reason of a refusal


COMMON = Weather()
CALM = Weather(0, 0, 0, 0, 0, 0, 0)


class PendingTransaction:
    """A transaction that is decided but not yet visible. Its items are locked until they are."""

    def __init__(self, shown: list[tuple[ItemKey, Item | None]]) -> None:
        self.unshown = shown


class TornTable:
    """The contents of the table, shared by all handles of a run."""

    def __init__(self, cast: Actors) -> None:
        self.cast = cast
        self.items: dict[ItemKey, Item] = {}
        self._flights: list[PendingTransaction] = []
        self._late: list[Sequence[Action]] = []
        self._locked: set[ItemKey] = set()

    def begin(self, actions: Sequence[Action]) -> PendingTransaction:
        """Decide a transaction. Raises: Cancelled."""
        reasons = [self._reason(action) for action in actions]
        if any(reason.code for reason in reasons):
            raise Cancelled(reasons)
        shown = [(action.place, self._after(action)) for action in actions]
        self.cast.random.shuffle(shown)
        self._locked.update(place for place, _ in shown)
        return PendingTransaction(shown)

    def show(self, flight: PendingTransaction) -> None:
        """Make one more item of the transaction visible."""
        place, item = flight.unshown.pop()
        self._locked.discard(place)
        if item is None:
            self.items.pop(place, None)
        else:
            self.items[place] = item

    def abandon(self, flight: PendingTransaction) -> None:
        """Mark the transaction as abandoned by its caller; the table completes it."""
        self._flights.append(flight)

    def delay(self, actions: Sequence[Action]) -> None:
        self._late.append(actions)

    def go_on(self) -> None:
        """Do what the service does between two calls."""
        chance = self.cast.random
        for flight in self._flights:
            if flight.unshown and chance.random() < 0.5:
                self.show(flight)
        self._flights = [flight for flight in self._flights if flight.unshown]
        if self._late and chance.random() < 0.1:
            actions = self._late.pop(chance.randrange(len(self._late)))
            try:
                self._flights.append(self.begin(actions))
            except Cancelled:
                return

    def come_to_rest(self) -> None:
        """Deliver every late request, and complete every transaction."""
        while self._late or self._flights:
            self.go_on()

    def locked(self, place: ItemKey) -> bool:
        return place in self._locked

    def _reason(self, action: Action) -> CancellationReason:
        if action.place in self._locked:
            return CancellationReason("TransactionConflict", {})
        old = self.items.get(action.place, {})
        return (
            CancellationReason(None, {})
            if _holds(action, old)
            else CancellationReason(FAILED, dict(old))
        )

    def _after(self, action: Action) -> Item | None:
        match action:
            case AddItem(item) | ReplaceItem(item):
                return dict(item)
            case RemoveItem():
                return None
            case UpdateItem(place, _, _, sets, adds, removes):
                item = self.items.get(place, {"pk": place.pk, "sk": place.sk})
                item = {name: value for name, value in item.items() if name not in removes}
                for name, step in adds.items():
                    number = item.get(name, 0)
                    assert isinstance(number, int)
                    item[name] = number + step
                return item | dict(sets)


def _holds(action: Action, old: Item) -> bool:
    match action:
        case AddItem():
            return not old
        case UpdateItem(_, equal, below):
            for name, bound in below.items():
                number = old.get(name, -1)
                assert isinstance(number, int)
                if number >= bound:
                    return False
            return all(old.get(name) == value for name, value in equal.items())
    return True


class TornTransport:
    """One handle on the table, with its own weather."""

    def __init__(self, table: TornTable, weather: Weather) -> None:
        self._table = table
        self.weather = weather
        self._cast = table.cast
        self._chance = table.cast.random

    def get(self, places: Sequence[ItemKey], *, together: bool = False) -> dict[ItemKey, Item]:
        self._enter()
        if together:
            if any(self._table.locked(place) for place in places):
                raise Busy("TransactionConflict")
            return {p: dict(self._table.items[p]) for p in places if p in self._table.items}
        found = {}
        for place in places:
            if place in self._table.items:
                found[place] = dict(self._table.items[place])
            self._maybe_wait()
        return found

    def query(
        self,
        pk: str,
        *,
        low: str | None = None,
        high: str | None = None,
        start: str | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> ItemPage:
        self._enter()
        next_of, follows = (max, operator.lt) if descending else (min, operator.gt)
        items: list[Item] = []
        last = start
        for _ in range(min(limit or PAGE_ITEMS, PAGE_ITEMS)):
            following = [
                place.sk
                for place in self._table.items
                if place.pk == pk
                and (last is None or follows(place.sk, last))
                and place.sk >= (low or "")
                and (high is None or place.sk <= high)
            ]
            if not following:
                return ItemPage(items, None)
            last = next_of(following)
            items.append(dict(self._table.items[ItemKey(pk, last)]))
            self._maybe_wait()
        return ItemPage(items, last)

    def increment(
        self, place: ItemKey, attribute: str, equal: Mapping[str, Value | None]
    ) -> int | None:
        self._enter()
        if any(self._table.items.get(place, {}).get(name) != at for name, at in equal.items()):
            self._leave()
            return None
        item = self._table.items.setdefault(place, {"pk": place.pk, "sk": place.sk})
        number = item.get(attribute, 0)
        assert isinstance(number, int)
        item[attribute] = number + 1
        self._leave()
        return number + 1

    def put_absent(self, item: Item) -> Item | None:
        self._enter()
        place = key_of_item(item)
        if self._table.locked(place):
            raise Busy("TransactionConflict")
        standing = self._table.items.get(place)
        if standing is None:
            self._table.items[place] = dict(item)
        self._leave()
        return None if standing is None else dict(standing)

    def transact(self, actions: Sequence[Action], token: str) -> None:
        self._enter()
        if self._happens(self.weather.late):
            self._table.delay(actions)
            raise AnswerLost("the request is under way")
        try:
            flight = self._table.begin(actions)
        except Cancelled as refusal:
            raise Cancelled([self._reported(reason) for reason in refusal.reasons]) from None
        if self._happens(self.weather.unanswered):
            self._table.abandon(flight)
            raise AnswerLost("the answer is lost")
        while flight.unshown:
            self._table.show(flight)
            try:
                self._turn()
            except Died:
                self._table.abandon(flight)
                raise
        self._leave()

    def now(self) -> float:
        return self._cast.clock()

    def close(self) -> None:
        """Do nothing: this transport holds no connection."""

    def _reported(self, reason: CancellationReason) -> CancellationReason:
        return CancellationReason(None, {}) if self._happens(self.weather.omitted) else reason

    def _enter(self) -> None:
        self._turn()
        if self._happens(self.weather.busy):
            raise Busy("throttled")
        if self._happens(self.weather.lost):
            raise AnswerLost("the request is lost")

    def _leave(self) -> None:
        self._turn()
        if self._happens(self.weather.lost):
            raise AnswerLost("the answer is lost")

    def _turn(self) -> None:
        """Let other actors run. The calling actor may die meanwhile."""
        self._table.go_on()
        if self._happens(self.weather.death):
            raise Died
        self._cast.pause(self._chance.random() * 5 if self._happens(self.weather.stall) else 0.0)

    def _maybe_wait(self) -> None:
        if self._chance.random() < 0.3:
            self._turn()

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability
