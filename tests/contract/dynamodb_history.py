"""Inject faults into the torn table, and check the resulting history.

Every decision records what it read. The checker replays the feed from the beginning: at each fact,
the earlier facts must give exactly what the decision read. A missed conflict, a torn read, or an
order that is not serial shows as a fact that contradicts its past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from msgspec import Struct

from tests.contract.dynamodb_model import CALM, COMMON, Actors, TornTable, TornTransport, Weather
from tests.contract.world import (
    SCHEMA,
    VOCABULARY,
    OrderPlaced,
    ProductRenamed,
    Rebooted,
    clause,
    commit_of,
    item,
    row,
)
from tidegate.engines.dynamodb import DynamoStore
from tidegate.errors import TidegateError, Unknown
from tidegate.kernel import codec
from tidegate.kernel.model import (
    ABSENT,
    Boundary,
    Check,
    CommitKey,
    Delete,
    Event,
    Meta,
    Put,
    Query,
    Receipt,
    Write,
)

WRITERS = 4
COMMANDS = 8
ATTEMPTS_MAX = 12
QUIET_ROUNDS = 4
CUSTOMERS = PRODUCTS = ROWS = ("1", "2")


class Row(Struct, frozen=True, omit_defaults=True):
    """The part of an item that is counted here."""

    count: int = 0


codec.prepare(Row)

Decided = tuple[Struct, tuple[Boundary, ...], tuple[Write, ...]]


@dataclass(slots=True)
class History:
    """What callers were answered. An attempt is ``command/number``."""

    receipts: dict[str, Receipt] = field(default_factory=dict)  # command → its acknowledgement
    refused: set[str] = field(default_factory=set)  # attempts that certainly did not happen
    followed: list[Event] = field(default_factory=list)  # what a follower of the feed saw
    feed: list[Event] = field(default_factory=list)  # what was there at the end


# ── what actors do ────────────────────────────────────────────────────────────────────────────────


def place_order(store: DynamoStore, chance: Random, command: str) -> Decided:
    """Read a customer's orders and a product's names; write into neither of the two alone."""
    customer, product = chance.choice(CUSTOMERS), chance.choice(PRODUCTS)
    orders = clause(OrderPlaced, tags=f"customer_id:{customer}")
    names = clause(ProductRenamed, tags=f"product_id:{product}")
    page = store.read(Query((orders, names)))
    assert page.has_boundary
    seen = Counter(event.type for event in page.events)
    units = 1_000 * seen["ProductRenamed"] + seen["OrderPlaced"]
    return OrderPlaced(command, customer, (product,), units), (page.boundary,), ()


def rename(store: DynamoStore, chance: Random, command: str) -> Decided:
    """Append without reading anything."""
    return ProductRenamed(chance.choice(PRODUCTS), command), (), ()


def change_row(store: DynamoStore, chance: Random, command: str) -> Decided:
    """Increment a row, delete it, or only read it. The fact records what was there before."""
    name = chance.choice(ROWS)
    (record,) = store.get(item(name))
    count = None if record is None else codec.decode(record.data, Row).count
    verb = chance.choice(("count", "count", "look", "remove" if record else "count"))
    expect = ABSENT if record is None else record.version
    write: Write
    if verb == "count":
        write = Put(item(name), row(count=(count or 0) + 1, state=chance.choice("ab")), expect)
    elif verb == "remove":
        write = Delete(item(name), expect)
    else:
        write = Check(item(name), expect)
    return Rebooted(f"{name} {count} {verb}"), (), (write,)


Decision = Callable[[DynamoStore, Random, str], Decided]
MIXED: tuple[Decision, ...] = (place_order, place_order, rename, change_row)
ROWS_ONLY: tuple[Decision, ...] = (change_row,)


def attempt(
    store: DynamoStore, chance: Random, decide: Decision, name: str, history: History
) -> bool:
    """Decide and commit once, as a runtime would. Return whether the command is finished.

    A rename has no key, so it must not be sent again when its outcome is unknown.
    """
    command = name.partition("/")[0]
    keyed = decide is not rename
    if keyed and (known := store.receipt(command)) is not None:
        history.receipts[command] = known
        return True
    fact, boundaries, writes = decide(store, chance, command)
    once = CommitKey(command, b"digest", command.encode()) if keyed else None
    commit = commit_of(fact, on=boundaries, writes=writes, once=once, meta=Meta(request=name))
    (answer,) = store.commit(commit)
    if isinstance(answer, Receipt):
        history.receipts[command] = answer
        return True
    if isinstance(answer, Unknown):
        return not keyed
    history.refused.add(name)
    return False


def work(
    store: DynamoStore, cast: Actors, decisions: Sequence[Decision], actor: int, history: History
) -> None:
    chance = Random(cast.random.random())
    for number in range(COMMANDS):
        decide = decisions[(number + actor) % len(decisions)]
        for tries in range(ATTEMPTS_MAX):
            try:
                if attempt(store, chance, decide, f"{actor}-{number}/{tries}", history):
                    break
            except TidegateError:
                continue  # the read failed, and nothing was sent


def follow(store: DynamoStore, cast: Actors, history: History, going: Callable[[], bool]) -> None:
    after = 0
    while going():
        try:
            page = store.feed(after=after, limit=5).events
        except TidegateError:
            continue
        history.followed += page
        after = page[-1].position if page else after
        cast.pause(cast.random.random())


def chaos(
    seed: int,
    weather: Weather = COMMON,
    decisions: Sequence[Decision] = MIXED,
) -> list[str]:
    """Run once from a seed, and return every violation that the checker finds."""
    cast, history = Actors(seed), History()
    table = TornTable(cast)
    stores = [handle(table, weather) for _ in range(WRITERS + 1)]
    left = set(range(WRITERS))

    def writer(actor: int) -> Callable[[], None]:
        def part() -> None:
            try:
                work(stores[actor], cast, decisions, actor, history)
            finally:
                left.discard(actor)

        return part

    def follower() -> None:
        follow(stores[-1], cast, history, lambda: bool(left))

    cast.play(*(writer(actor) for actor in range(WRITERS)), follower)
    table.come_to_rest()
    reader = handle(table, CALM)
    history.feed = quiet_feed(reader, cast)
    found = list(violations(history))
    if quiet_feed(handle(table, CALM), cast) != history.feed:
        found.append("the feed changed after it was quiet")
    facts = replayed_rows(history.feed)
    for name, record in zip(ROWS, reader.get(*(item(name) for name in ROWS)), strict=True):
        count = None if record is None else codec.decode(record.data, Row).count
        if count != facts[name]:
            found.append(f"row {name} is {count}, its facts say {facts[name]}")
    return found


def handle(table: TornTable, weather: Weather) -> DynamoStore:
    """Open a handle without faults, then give it this weather."""
    cast = table.cast
    transport = TornTransport(table, CALM)
    random = Random(cast.random.random())
    store = DynamoStore(
        "torn", SCHEMA, transport=transport, clock=cast.clock, sleep=cast.pause, random=random
    )
    transport.weather = weather
    return store


def quiet_feed(store: DynamoStore, cast: Actors) -> list[Event]:
    found: list[Event] = []
    for _ in range(QUIET_ROUNDS):
        while page := store.feed(after=found[-1].position if found else 0, limit=50).events:
            found += page
        cast.pause(3.0)
    return found


# ── the checker ───────────────────────────────────────────────────────────────────────────────────


def violations(history: History) -> Iterable[str]:
    positions = [event.position for event in history.feed]
    if positions != sorted(set(positions)):
        yield "the feed is not in order"
    if history.followed != history.feed[: len(history.followed)]:
        yield "a follower saw another feed than there is"
    attempts = [event.meta.request for event in history.feed]
    commands = Counter(name.partition("/")[0] for name in attempts)
    for command, times in commands.items():
        if times > 1:
            yield f"{command} happened {times} times"
    for name in history.refused & set(attempts):
        yield f"{name} was refused and happened"
    standing = {event.position: event.meta.request.partition("/")[0] for event in history.feed}
    for command, receipt in history.receipts.items():
        if standing.get(receipt.first) != command:
            yield f"{command} was acknowledged at {receipt.first} and is not there"
    yield from contradictions(history.feed)


def contradictions(feed: Iterable[Event]) -> Iterable[str]:
    """Return the facts that do not follow from the facts before them."""
    orders: Counter[str] = Counter()
    names: Counter[str] = Counter()
    rows: dict[str, int | None] = dict.fromkeys(ROWS)
    for event in feed:
        match VOCABULARY.value(event):
            case OrderPlaced(_, customer, (product,), units):
                if units != 1_000 * names[product] + orders[customer]:
                    yield (
                        f"at {event.position} {units} was seen, "
                        f"{1_000 * names[product] + orders[customer]} is true"
                    )
                orders[customer] += 1
            case ProductRenamed(product):
                names[product] += 1
            case Rebooted(text):
                name, count, verb = text.split()
                if count != str(rows[name]):
                    yield f"at {event.position} row {name} was {count}, {rows[name]} is true"
                rows[name] = stepped(rows[name], verb)


def stepped(count: int | None, verb: str) -> int | None:
    if verb == "count":
        return (count or 0) + 1
    return None if verb == "remove" else count


def replayed_rows(feed: Iterable[Event]) -> dict[str, int | None]:
    rows: dict[str, int | None] = dict.fromkeys(ROWS)
    for event in feed:
        if isinstance(value := VOCABULARY.value(event), Rebooted):
            name, _, verb = value.text.split()
            rows[name] = stepped(rows[name], verb)
    return rows
