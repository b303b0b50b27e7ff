"""What writers cache of the end of the log: whatever they drop, they know that they dropped it."""

from __future__ import annotations

import random
import sys
from types import CodeType, FrameType
from typing import Any

import pytest

from tidegate.engines.postgres import log_tail as postgres_recent
from tidegate.engines.sqlite import own_writes as sqlite_recent
from tidegate.kernel.model import Position

ROUNDS = 60
NAMES = [f"order_id:{number}" for number in range(9)]
TYPES = ["Opened", "Placed"]
PAIRS = [(name, type) for name in NAMES for type in TYPES]


class Interrupted(BaseException):
    """What a signal handler raises, between two lines of code."""


class Interruptions:
    """Raises before the n-th line of a function, once."""

    def __init__(self, code: CodeType | None, line: int) -> None:
        self._code = code
        self._left = line

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._stepped if frame.f_code is self._code else None

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                raise Interrupted
        return self._stepped


@pytest.mark.parametrize("line", [0, *range(2, 8)])  # 0: never
@pytest.mark.parametrize("seed", range(5))
def test_postgres_knows_what_its_cache_dropped(
    seed: int, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before each line of ``add`` in turn, and given the same facts again."""
    monkeypatch.setattr(postgres_recent, "PAIRS_MAX", 4)
    print(f"seed {seed}")
    dice = random.Random(seed)
    head = dice.randrange(5)
    memory = postgres_recent.LogTail(head)
    newest: dict[tuple[str, str], Position] = {}
    log: list[tuple[tuple[str, str], Position]] = []

    for _ in range(ROUNDS):
        for _ in range(dice.randrange(1, 9)):
            head += 1
            log.append((dice.choice(PAIRS), head))
        newest.update(log)
        for stop in (line, 0):
            unlearnt = [fact for fact in log if fact[1] > memory.head]
            with Interruptions(postgres_recent.LogTail.add.__code__, stop):
                try:
                    memory.add(unlearnt, head)
                except Interrupted:
                    assert stop

        assert memory.head == head
        for pair in PAIRS:
            found = newest.get(pair, 0)
            assert memory.newest(pair) == found or (found <= memory.floor)
    assert memory.floor > 0  # it dropped the facts


@pytest.mark.parametrize("step", ["never", "meet", "note", "leave"])
@pytest.mark.parametrize("seed", range(5))
def test_sqlite_knows_what_its_cache_dropped(
    seed: int, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of ours and of others, some of ours interrupted at any line of one step."""
    monkeypatch.setattr(sqlite_recent, "NAMES_MAX", 4)
    print(f"seed {seed}")
    dice = random.Random(seed)
    memory = sqlite_recent.OwnWrites()
    log: list[tuple[tuple[str, str], Position]] = []
    interrupted = whole = 0

    def facts() -> list[tuple[tuple[str, str], Position]]:
        first = len(log) + 1
        return [(dice.choice(PAIRS), first + number) for number in range(dice.randrange(4))]

    for _ in range(3 * ROUNDS):
        if dice.random() < 0.2:
            log += facts()  # of another process
        code = getattr(sqlite_recent.OwnWrites, step).__code__ if step != "never" else None
        try:
            with Interruptions(code, dice.randrange(1, 16)):
                memory.meet(len(log))
                whole += memory.since < len(log)
                check_sqlite(memory, log)
                ours = facts()
                for (name, type), position in ours:
                    memory.note(name, type, position)
                if dice.random() < 0.9:  # otherwise it did not commit
                    log += ours
                    memory.leave(len(log))
        except Interrupted:
            interrupted += 1
    assert whole > ROUNDS // 4
    assert bool(interrupted) == (step != "never")


def check_sqlite(
    memory: sqlite_recent.OwnWrites, log: list[tuple[tuple[str, str], Position]]
) -> None:
    """Check every boundary that was read since then: it is judged as the log requires."""
    for seen in range(memory.since, len(log) + 1):
        for name in NAMES:
            for types in (None, frozenset(TYPES[:1]), frozenset(TYPES)):
                moved = [
                    position
                    for (filed, type), position in log[seen:]
                    if filed == name and (types is None or type in types)
                ]
                assert memory.moved(name, types, seen) == (moved[-1] if moved else 0)
