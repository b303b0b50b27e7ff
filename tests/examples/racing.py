"""Many writers on one log, in threads or in processes, each with a control of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from random import Random

from msgspec import Struct

from tests.contract.address import Address
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.memory import MemoryStore
from tidegate.errors import AttemptsExhausted, Refused
from tidegate.kernel.folds import Folds
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

WRITERS = 16
RESENDS_MAX = 200

Connect = Callable[[], Store]


@contextmanager
def control_of(store: Store, folds: Folds) -> Iterator[Control]:
    with closing(GroupCommit(store)) as writer:
        yield Control(store, folds, writer.submit)


def connector(address: Address | None, folds: Folds) -> Connect:
    """Return a function that opens handles on one log. In memory all handles are the store
    itself.
    """
    if address is None:
        store = MemoryStore(folds.schema)
        return lambda: store
    return lambda: address.open(folds.schema)


def send_until_decided(control: Control, item: Slice, command: Struct) -> CommandOutcome | str:
    """Send a command until it is decided: a writer that ran out of attempts sends it again."""
    pause = Random(repr(command))
    for _ in range(RESENDS_MAX):
        try:
            return control.execute(item, command)
        except AttemptsExhausted:
            time.sleep(pause.random() * 0.02)
        except Refused as refusal:
            return refusal.code
    raise AssertionError(f"{item.name} was not decided in {RESENDS_MAX} sendings")


def race_threads(connect: Connect, folds: Folds, work: Sequence[tuple[Slice, Struct]]) -> list[str]:
    """Send each command from its own handle, all at once. Return "done", or the code of its
    refusal.
    """

    def send(item: tuple[Slice, Struct]) -> str:
        with closing(connect()) as store, control_of(store, folds) as control:
            outcome = send_until_decided(control, *item)
        return outcome if isinstance(outcome, str) else "done"

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(send, work))


def race_processes(
    pool: ProcessPoolExecutor,
    task: Callable[[Address, Sequence[Struct]], list[str]],
    address: Address,
    commands: Sequence[Struct],
    shares: int,
) -> list[str]:
    """Distribute the commands over processes, each of which opens the log itself."""
    waiting = [pool.submit(task, address, commands[share::shares]) for share in range(shares)]
    return [answer for future in waiting for answer in future.result()]
