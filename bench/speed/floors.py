"""The floors: each is a figure computed from the results, and a bound that it must keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.speed.measure import Sample, Work
from bench.speed.results import Results
from bench.speed.workload import CLIENTS

PROMISED_EVENTS = 1_000_000  # the size of the log for which the floors are meant

Figure = Callable[[Results], Sequence[float]]  # one per round; none where nothing was measured


@dataclass(frozen=True)
class Floor:
    """A floor. With `at_most` the bound is an upper one."""

    text: str
    figure: Figure
    bound: float
    at_most: bool = False

    def best(self, results: Results) -> float | None:
        """The best of the rounds; None if the run has not measured it."""
        found = self.figure(results)
        if not found:
            return None
        return min(found) if self.at_most else max(found)

    def reached(self, results: Results) -> bool | None:
        """Whether the bound is kept; None if the run has not measured it."""
        found = self.best(results)
        if found is None:
            return None
        return found <= self.bound if self.at_most else found >= self.bound


def _quotients(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round, so that both figures were measured within the same minute."""
    return [one / other for one, other in zip(over, under, strict=False)]


def _rates(samples: Sequence[Sample]) -> list[float]:
    return [sample.rate for sample in samples]


def _medians(samples: Sequence[Sample]) -> list[float]:
    return [sample.median for sample in samples]


def append_ratio(ours: str, peer: str, clients: int, *, filled: bool = True) -> Figure:
    """How many times the peer's rate of conditional appends is ours."""

    def figure(results: Results) -> Sequence[float]:
        rates = [
            _rates(results.rounds_of(name, Work.APPEND, clients, filled=filled))
            for name in (ours, peer)
        ]
        return _quotients(*rates)

    return figure


def read_ratio(ours: str, peer: str, size: int) -> Figure:
    """How many times as long as ours the peer's read takes."""
    return lambda results: _quotients(
        _medians(results.rounds_of(peer, Work.READ, size)),
        _medians(results.rounds_of(ours, Work.READ, size)),
    )


def growth(ours: str, clients: int) -> Figure:
    """The median commit on the filled log, as a multiple of that on the empty one."""
    return lambda results: _quotients(
        _medians(results.rounds_of(ours, Work.APPEND, clients)),
        _medians(results.rounds_of(ours, Work.APPEND, clients, filled=False)),
    )


def rows_cost(ours: str, clients: int) -> Figure:
    """The cost of a commit with rows, as a multiple of that of the event alone."""
    return lambda results: _quotients(
        _rates(results.rounds_of(ours, Work.ALONE, clients)),
        _rates(results.rounds_of(ours, Work.ROWS, clients)),
    )


def memory_growth(results: Results) -> Sequence[float]:
    """Resident memory at the end of the appends, as a multiple of that at 30 % of them."""
    if results.memory is None:
        return ()
    early, late = results.memory
    return (late.resident / early.resident,)


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


def _append_floors(ours: str, peer: str, bounds: dict[int, float]) -> list[Floor]:
    return [
        Floor(
            f"{ours} ÷ {peer}, commits/s, filled log, {_clients(clients)}",
            append_ratio(ours, peer, clients),
            bound,
        )
        for clients, bound in bounds.items()
    ]


def _growth_floor(ours: str, clients: int) -> Floor:
    text = f"{ours}, median commit, filled ÷ empty log, {_clients(clients)}"
    return Floor(text, growth(ours, clients), 2.0, at_most=True)


def _rows_floor(ours: str, clients: int) -> Floor:
    text = f"{ours}, commits/s, event alone ÷ with the three rows, {_clients(clients)}"
    return Floor(text, rows_cost(ours, clients), 1.8, at_most=True)


OURS = ("sqlite", "postgres")

FLOORS: tuple[Floor, ...] = (
    *_append_floors("sqlite", "umadb", {1: 2.0, 8: 2.0, 32: 1.3}),
    *_append_floors("sqlite", "eventsourcing", {1: 3.0, 8: 6.0, 32: 6.0}),
    *_append_floors("postgres", "eventsourcing", {8: 3.0, 32: 3.0}),
    Floor("umadb ÷ sqlite, boundary read of 10, median", read_ratio("sqlite", "umadb", 10), 10.0),
    *(_growth_floor(ours, clients) for ours in OURS for clients in CLIENTS),
    *(_rows_floor(ours, clients) for ours in OURS for clients in CLIENTS),
    Floor("sqlite, resident memory, all ÷ 30 % of the appends", memory_growth, 1.1, at_most=True),
)
