"""Opening the installation of some settings: what every command on this machine starts from.

It knows engines, and nothing of the web: commands that only look at the data start quickly.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from tidegate import __version__
from tidegate.clock import Clock, system_clock
from tidegate.config import Settings
from tidegate.control.archive import ARCHIVE_POSITIONS
from tidegate.control.blobs.files import FileBlobs
from tidegate.control.forecasts import Forecast, Odds
from tidegate.control.installation import Installation, Secrets, log_id, private_directory
from tidegate.control.lanes import Lanes
from tidegate.control.runtime import Control
from tidegate.domain.channels.rows import Channel
from tidegate.domain.folds import composed
from tidegate.domain.planner import Plan
from tidegate.domain.views import rebuild_lost
from tidegate.engines import connect
from tidegate.engines.group import Grouped
from tidegate.engines.presence import present
from tidegate.errors import NotFound, StoreRefused
from tidegate.kernel.replay import rebuild_changed
from tidegate.kernel.store import Store

CLOCK_BEHIND_MAX = timedelta(minutes=5)
FOLDS = composed(ARCHIVE_POSITIONS)


def open_installation(settings: Settings, clock: Clock = system_clock) -> Installation:
    """Open everything, in the order in which it depends on each other; closed in reverse.

    Raises:
        StoreRefused, Unavailable, InvalidInput. StoreRefused also while rows are made anew.
    """
    data = Path(settings.data)
    secrets = Secrets.in_directory(data)
    url = settings.store_url
    with ExitStack() as closing:
        closing.enter_context(present(url))
        store = connect(url, FOLDS.schema)
        closing.callback(store.close)
        rebuild_changed(store, FOLDS, clock())
        rebuild_lost(store, FOLDS)
        writer = Grouped(store)
        closing.callback(writer.close)
        control = Control(store, FOLDS, writer.submit, clock=clock)
        lanes = Lanes(store, FOLDS, writer.submit, clock=clock)
        closing.callback(lanes.close)
        blobs = FileBlobs(data / "blobs", log_id(store, clock), clock=clock)
        return Installation(
            settings=settings,
            store=store,
            folds=FOLDS,
            control=control,
            submit=writer.submit,
            lanes=lanes,
            blobs=blobs,
            secrets=secrets,
            clock=clock,
            version=__version__,
            closing=closing.pop_all(),
            forecast=_forecast,
            is_local=url.startswith(("sqlite:", "memory:")),
        )
    raise AssertionError("the stack swallows nothing")


def _forecast(channel: Channel, plan: Plan, odds: Odds, seeds: Sequence[int]) -> Forecast:
    """Imported when the first one is asked for: most commands never ask."""
    from tidegate.simulate.forecast import forecast

    return forecast(channel, plan, odds, seeds)


@contextmanager
def opened_store(settings: Settings) -> Iterator[Store]:
    """The log alone: nothing is written by opening it.

    Raises:
        NotFound: there is none. StoreRefused, Unavailable.
    """
    if not settings.store and not Path(settings.data).is_dir():
        raise NotFound(f"there is no log in {settings.data}")
    store = connect(settings.store_url, FOLDS.schema)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def alone(data: Path) -> Iterator[None]:
    """Be the one server of a data directory for as long as the block lasts; workers may join.

    Raises:
        StoreRefused: another server is.
    """
    private_directory(data)
    with (data / "serve.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreRefused(f"another server serves {data.name} already") from None
        yield


def refuse_old_clock(installation: Installation) -> None:
    """Raises: StoreRefused: the clock stands well before the newest event."""
    head = installation.head()
    for event in installation.feed(after=head - 1, limit=1) if head else ():
        if event.at - installation.clock() > CLOCK_BEHIND_MAX:
            raise StoreRefused(f"the clock is behind the newest event, of {event.at}; set it")
