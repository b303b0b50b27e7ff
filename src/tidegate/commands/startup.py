"""Opens the installation of some settings, for every command that runs on this machine.

It imports engines but nothing of the web, so that commands that only read data start quickly.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import uniform
from urllib.parse import unquote, urlsplit

from tidegate.clock import Clock, system_clock
from tidegate.config import Settings
from tidegate.control.installation import Installation, log_id
from tidegate.control.lanes import Lanes
from tidegate.control.queries.forecasts import Forecast, ForecastConditions, Odds
from tidegate.control.runtime import Control
from tidegate.control.secrets import Secrets, private_directory
from tidegate.control.storage.archive import ARCHIVE_POSITIONS
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.control.storage.lost_caches import lost_caches, rebuild_lost
from tidegate.domain import composition, planner
from tidegate.domain.channels.rows import Channel
from tidegate.engines import connect, group_commit, presence
from tidegate.errors import NotFound, StoreRefused
from tidegate.kernel import folds as kernel_folds, replay
from tidegate.kernel.store import Store

CLOCK_BEHIND_MAX = timedelta(minutes=5)

log = logging.getLogger("tidegate")
FOLDS = composition.compose(ARCHIVE_POSITIONS)
STARTS_MAX = 10  # attempts to get the log alone, for a rebuild of rows
START_WAIT_SECONDS_MIN, START_WAIT_SECONDS_MAX = (
    0.05,
    0.25,
)  # random, or two starts would collide each time


def open_installation(settings: Settings, clock: Clock = system_clock) -> Installation:
    """Open an installation. Its parts are closed in reverse order.

    Raises:
        StoreRefused: among others, another process rebuilds rows, or rows must be rebuilt while
            another process has the log open. Unavailable, InvalidInput.
    """
    data = Path(settings.data)
    secrets = Secrets.in_directory(data)
    url = settings.store_url
    _make_private(url, data / "blobs")
    with ExitStack() as stack:
        store = stack.enter_context(open_counted_store(url, FOLDS, clock))
        writer = group_commit.GroupCommit(store)
        stack.callback(writer.close)
        control = Control(store, FOLDS, writer.submit, clock=clock)
        lanes = Lanes(store, FOLDS, writer.submit, clock=clock)
        stack.callback(lanes.close)
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
            closing=stack.pop_all(),
            forecast=_forecast,
            is_local=url.startswith(("sqlite:", "memory:")),
        )
    raise AssertionError("the stack swallows nothing")


def _make_private(url: str, blobs: Path) -> None:
    """Create database and blobs readable by their owner only. SQLite's other files inherit that."""
    blobs.mkdir(mode=0o700, exist_ok=True)
    parts = urlsplit(url)
    if parts.scheme == "sqlite" and len(parts.path) > 1:
        with suppress(OSError):  # the engine reports what is wrong
            Path(unquote(parts.path[1:])).touch(mode=0o600)  # an existing file keeps its mode


@contextmanager
def open_counted_store(
    url: str, folds: kernel_folds.Folds, clock: Clock, *, lease: float = presence.LEASE_SECONDS
) -> Iterator[Store]:
    """Open a log whose rows are up to date with these folds; count this process as a user of it.

    No process rebuilds rows while another is counted. So outdated rows are looked for while this
    process is counted, and rebuilt while it is alone; then it looks again.

    Raises:
        StoreRefused: another process rebuilds rows, or rows must be rebuilt while another process
            has the log open.
        Unavailable.
    """
    with ExitStack() as stack:
        yield _open_up_to_date(url, folds, clock, lease, stack)


def _open_up_to_date(
    url: str, folds: kernel_folds.Folds, clock: Clock, lease: float, stack: ExitStack
) -> Store:
    refused: StoreRefused | None = None
    for _ in range(STARTS_MAX):
        with ExitStack() as counted:
            counted.enter_context(presence.present(url, lease=lease))
            store = counted.enter_context(closing(connect(url, folds.schema)))
            replay.begin(store, folds, clock())
            outdated = [*replay.changed_folds(store, folds), *lost_caches(store, folds)]
            if not outdated:
                stack.push(counted.pop_all())
                return store
        names = ", ".join(dict.fromkeys(fold.collection.name for fold in outdated))
        try:
            _rebuild(url, folds, clock, lease)
        except StoreRefused as error:
            if error.facts.get("reason") != presence.OPEN_ELSEWHERE:
                raise
            refused = StoreRefused(f"rows must be rebuilt ({names}), and {error.detail}")
            # It may be another start, which closes the log now to rebuild it alone.
            time.sleep(uniform(START_WAIT_SECONDS_MIN, START_WAIT_SECONDS_MAX))
    raise refused or StoreRefused("several versions rebuild the rows of the log; keep one of them")


def _rebuild(url: str, folds: kernel_folds.Folds, clock: Clock, lease: float) -> None:
    with (
        presence.present(url, alone=True, lease=lease),
        closing(connect(url, folds.schema)) as store,
    ):
        replay.rebuild_changed(store, folds, clock())
        rebuild_lost(store, folds)


def _forecast(
    channel: Channel,
    plan: planner.Plan,
    odds: Odds,
    seeds: Sequence[int],
    conditions: ForecastConditions,
) -> Forecast:
    """Import the simulator on first use: most commands never need it."""
    from tidegate.simulate.forecast import forecast

    return forecast(channel, plan, odds, seeds, conditions)


@contextmanager
def open_store(settings: Settings) -> Iterator[Store]:
    """Open only the log; opening it writes nothing.

    Raises:
        NotFound: there is no log. StoreRefused, Unavailable.
    """
    if not settings.store and not Path(settings.data).is_dir():
        raise NotFound(f"there is no log in {settings.data}")
    store = connect(settings.store_url, FOLDS.schema)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def open_store_alone(data: Path) -> Iterator[None]:
    """Lock a data directory, so that only one server uses it; workers may.

    Raises:
        StoreRefused: another server holds the lock.
    """
    private_directory(data)
    (data / "serve.lock").touch(mode=0o600)
    with (data / "serve.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreRefused(f"another server serves {data.name} already") from None
        yield


def refuse_old_clock(installation: Installation, *, is_accepted: bool = False) -> None:
    """Refuse to start if the clock is well before the newest event: it may be wrong.

    ``is_accepted``: an operator confirms that the clock is right, and that it once ran ahead.

    Raises:
        StoreRefused.
    """
    head = installation.log.head()
    for event in installation.log.feed(after=head - 1, limit=1) if head else ():
        behind = event.at - installation.clock()
        if behind <= CLOCK_BEHIND_MAX:
            return
        found = f"the clock is {behind - timedelta(microseconds=behind.microseconds)} before the"
        found = f"{found} newest event, which is of {event.at:%Y-%m-%d %H:%M:%S} UTC"
        if not is_accepted:
            raise StoreRefused(
                f"{found}. Set the clock. If it is right and once ran ahead, start with"
                " --accept-clock"
            )
        log.warning("%s; it is accepted as it is", found)
