"""A process that rebuilds rows has the log to itself, as processes on each engine see it
(ADR-0014).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import pytest

from tests.child_processes import CHILDREN
from tests.operations.processes import SECONDS_MAX, Process, run
from tests.servers.process import until
from tidegate.clock import system_clock
from tidegate.commands.startup import FOLDS, open_counted_store
from tidegate.control.runtime import Control
from tidegate.domain.setup import SetUp, set_up
from tidegate.engines import connect
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.engines.dynamodb.presence import Presence, Register
from tidegate.engines.dynamodb.store import open_table
from tidegate.engines.group_commit import GroupCommit
from tidegate.engines.presence import LEASE_SECONDS, present
from tidegate.errors import StoreRefused, TidegateError
from tidegate.kernel import codec
from tidegate.kernel.folds import Folds
from tidegate.kernel.model import ABSENT, Commit, Key, Meta, Put
from tidegate.kernel.replay import changed_folds, differences
from tidegate.kernel.store import FOLD_NUMBERS, FoldNumber, Store

ADMIN = "user_admin0000"
SHORT = 2.0  # seconds of a lease that is not renewed for long
RENEWED = 12.0  # of one that even a busy machine renews in time
# The folds of a later version, one of which builds its rows by other rules.
NEWER = Folds(
    FOLDS.schema,
    [
        replace(fold, number=fold.number + 1) if fold.collection.name == "users" else fold
        for fold in FOLDS.folds
    ],
)
OTHERS = "another process has the log open; stop every server and worker of it first"
UNDER_WAY = "the rows of the log are being rebuilt; start again when that is done"


@pytest.fixture(params=["sqlite", "postgres", "dynamodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh log on each engine that has processes."""
    name = f"company_{uuid4().hex[:12]}"
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path / 'tidegate.db'}"
        case "postgres":
            return f"{request.getfixturevalue('postgres_url')}&schema={name}"
        case _:
            return _table(request.getfixturevalue("dynamodb_url"))


@pytest.fixture
def table_url(dynamodb_url: str) -> str:
    return _table(dynamodb_url)


def _table(endpoint: str) -> str:
    return f"dynamodb://company_{uuid4().hex[:12]}?region=local&endpoint={endpoint}"


def set_up_by(store: Store, folds: Folds = FOLDS, user_id: str = ADMIN) -> None:
    """Facts with rows of several folds."""
    with closing(GroupCommit(store)) as writer:
        control = Control(store, folds, writer.submit)
        control.execute(set_up, SetUp(user_id=user_id, alone=True), meta=Meta(actor=user_id))


def prepared(url: str) -> None:
    with open_counted_store(url, FOLDS, system_clock) as store:
        set_up_by(store)


# ── other processes ───────────────────────────────────────────────────────────────────────────────


@contextmanager
def _place(url: str, how: str, lease: float) -> Iterator[Store | None]:
    match how:
        case "joins" | "is alone":
            with present(url, alone=how == "is alone", lease=lease):
                yield None
        case _:
            folds = NEWER if how == "starts newer" else FOLDS
            with open_counted_store(url, folds, system_clock, lease=lease) as store:
                yield store


def _live(url: str, how: str, lease: float, pipe: Connection) -> None:
    """Run in another process: take its place, report it, follow commands, leave."""
    try:
        with _place(url, how, lease) as store:
            pipe.send("there")
            while pipe.recv() == "commit":
                assert store is not None
                try:
                    set_up_by(store)
                    pipe.send("committed")
                except TidegateError as error:
                    pipe.send(error.detail)
    except StoreRefused as refused:
        pipe.send(refused.detail)


class Other:
    """A process of its own; ``hears`` returns its next answer."""

    def __init__(self, url: str, how: str, lease: float = LEASE_SECONDS) -> None:
        self._pipe, theirs = CHILDREN.Pipe()
        self.process = CHILDREN.Process(target=_live, args=(url, how, lease, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def receive(self) -> str:
        assert self._pipe.poll(SECONDS_MAX), "it sends nothing"
        said: str = self._pipe.recv()
        return said

    def ask(self, word: str) -> None:
        self._pipe.send(word)

    def signal(self, how: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, how)

    def leave(self) -> None:
        self.ask("leave")
        assert self.ended() == 0

    def ended(self) -> int:
        """Wait for its exit code. ``join`` would also wait for every process that inherited its
        pipe.
        """
        deadline = time.monotonic() + SECONDS_MAX
        while (code := self.process.exitcode) is None:
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.02)
        return code

    def close(self) -> None:
        self.process.kill()
        self.ended()
        self._pipe.close()


@contextmanager
def other(url: str, how: str, lease: float = LEASE_SECONDS) -> Iterator[Other]:
    with closing(Other(url, how, lease)) as process:
        yield process


def refusal(url: str, *, alone: bool) -> str:
    with pytest.raises(StoreRefused) as refused, present(url, alone=alone):
        pass
    return refused.value.detail


def register(url: str) -> Register:
    """Return which processes are registered, by the table of DynamoDB."""
    pace = RetryPace()
    with closing(open_table(url, pace)) as transport:
        return Presence(transport, pace, alone=False, lease=SHORT)._update(lambda found: found)


def await_alone(url: str, lease: float = LEASE_SECONDS) -> ExitStack:
    """Get exclusive access as soon as no other process is registered."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        with ExitStack() as stack:
            try:
                stack.enter_context(present(url, alone=True, lease=lease))
            except StoreRefused:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                continue
            return stack.pop_all()


# ── presence ──────────────────────────────────────────────────────────────────────────────────────


def test_many_processes_may_be_present_or_one_alone(url: str) -> None:
    with other(url, "joins") as guest:
        assert guest.receive() == "there"
        with present(url):
            assert refusal(url, alone=True).startswith(OTHERS)
        assert refusal(url, alone=True).startswith(OTHERS)
        guest.leave()

    with other(url, "is alone") as host:
        assert host.receive() == "there"
        assert refusal(url, alone=False) == UNDER_WAY
        assert refusal(url, alone=True) == UNDER_WAY
        host.leave()

    with present(url, alone=True):
        pass
    with present(url):
        pass


@pytest.mark.parametrize("how", ["joins", "is alone"])
def test_a_killed_process_is_no_longer_counted(url: str, how: str) -> None:
    with other(url, how, SHORT) as guest:
        assert guest.receive() == "there"

        guest.signal(signal.SIGKILL)
        assert guest.ended() == -signal.SIGKILL

        with await_alone(url):
            assert refusal(url, alone=False) == UNDER_WAY


def test_a_lease_is_renewed_while_its_process_lives(table_url: str) -> None:
    with present(table_url, lease=RENEWED):
        (first,) = register(table_url).counted.values()

        assert until(
            lambda: list(register(table_url).counted.values()) > [first], seconds_max=SECONDS_MAX
        )
        assert refusal(table_url, alone=True).startswith(OTHERS)
    with present(table_url, alone=True, lease=RENEWED):
        alone = register(table_url).alone
        assert alone is not None

        assert until(
            lambda: (register(table_url).alone or alone)[1] > alone[1], seconds_max=SECONDS_MAX
        )
        assert refusal(table_url, alone=False) == UNDER_WAY


# ── starts ────────────────────────────────────────────────────────────────────────────────────────


def test_processes_that_start_at_once_on_a_new_log_run_together(url: str) -> None:
    with ExitStack() as stack:
        guests = [stack.enter_context(other(url, "starts")) for _ in range(3)]

        assert [guest.receive() for guest in guests] == ["there"] * 3

        for guest in guests:
            guest.leave()
    with closing(connect(url, FOLDS.schema)) as store:
        assert changed_folds(store, FOLDS) == ()


def test_a_start_that_must_rebuild_rows_is_refused_until_it_can_be_alone(url: str) -> None:
    with open_counted_store(url, FOLDS, system_clock) as server:
        set_up_by(server)

        with other(url, "starts newer") as newer:
            said = newer.receive()

        assert said.startswith(f"rows must be rebuilt (users), and {OTHERS}")
        assert changed_folds(server, FOLDS) == ()
        assert differences(server, FOLDS) == []

    await_alone(url).close()  # PostgreSQL takes a moment to notice that the other process is gone
    with open_counted_store(url, NEWER, system_clock) as newer_store:
        assert changed_folds(newer_store, NEWER) == ()
        assert differences(newer_store, NEWER) == []


def test_a_version_never_rebuilds_the_rows_of_a_newer_one(url: str) -> None:
    with open_counted_store(url, NEWER, system_clock) as newer:
        set_up_by(newer)
        before = newer.range("users", limit=10)

    with pytest.raises(StoreRefused) as refused, open_counted_store(url, FOLDS, system_clock):
        pass

    assert refused.value.detail == (
        "a newer version wrote rows of this log (users): upgrade Tidegate"
    )
    with open_counted_store(url, NEWER, system_clock) as newer:
        assert newer.range("users", limit=10) == before


def test_a_version_refuses_a_log_with_unknown_rows(url: str) -> None:
    """It would add facts and not update these rows."""
    prepared(url)
    unknown = Put(Key(FOLD_NUMBERS.name, "shelves"), codec.encode(FoldNumber(1)), ABSENT)
    with closing(connect(url, FOLDS.schema)) as store:
        store.commit(Commit(system_clock(), writes=(unknown,)))

    with (
        pytest.raises(StoreRefused, match=r"\(shelves\): upgrade Tidegate"),
        open_counted_store(url, FOLDS, system_clock),
    ):
        pass


def test_one_of_two_newer_processes_that_start_at_once_rebuilds_and_both_run(
    url: str,
) -> None:
    prepared(url)
    refused: list[str] = []
    with ExitStack() as stack:
        waiting = [stack.enter_context(other(url, "starts newer")) for _ in range(2)]
        there: list[Other] = []
        for _ in range(20):
            for guest in waiting:
                said = guest.receive()
                if said == "there":
                    there.append(guest)
                else:
                    refused.append(said)
            if len(there) == 2:
                break
            waiting = [stack.enter_context(other(url, "starts newer"))]

        assert len(there) == 2
        assert set(refused) <= {UNDER_WAY}
        for guest in there:
            guest.leave()
    with closing(connect(url, FOLDS.schema)) as store:
        assert differences(store, NEWER) == []


# ── a process that lost its lease ─────────────────────────────────────────────────────────────────


def test_a_stalled_process_cannot_commit_after_a_rebuild(table_url: str) -> None:
    with other(table_url, "starts", SHORT) as server:
        assert server.receive() == "there"
        server.signal(signal.SIGSTOP)
        with await_alone(table_url):
            pass

        server.signal(signal.SIGCONT)
        server.ask("commit")

        assert "were rebuilt since it was opened" in server.receive()
    with open_counted_store(table_url, FOLDS, system_clock) as store:
        assert store.feed(after=0, limit=10).events == ()
        set_up_by(store)


def test_a_stalled_process_continues_if_no_process_was_alone_meanwhile(table_url: str) -> None:
    with other(table_url, "starts", SHORT) as server:
        assert server.receive() == "there"
        server.signal(signal.SIGSTOP)
        time.sleep(SHORT + 0.2)
        with present(table_url):  # counts it out
            pass

        server.signal(signal.SIGCONT)
        server.ask("commit")

        assert server.receive() == "committed"
        server.leave()


def test_a_rebuild_that_lost_its_lease_writes_no_more_rows(table_url: str) -> None:
    prepared(table_url)
    with ExitStack() as stack:
        with present(table_url, alone=True):
            late = stack.enter_context(closing(connect(table_url, FOLDS.schema)))
            before = late.range("users", limit=10)
        with present(table_url, alone=True), pytest.raises(StoreRefused, match="rebuilt since"):
            late.restore("users", ())

        assert [record.key.id for record in late.range("users", limit=10)] == [ADMIN]
        assert late.range("users", limit=10) == before


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def test_the_command_rebuilds_nothing_while_a_worker_runs(url: str, tmp_path: Path) -> None:
    prepared(url)
    words = ("--data", str(tmp_path / "data"), "--store", url)
    with Process(["worker", *words], tmp_path / "said") as worker:
        worker.says("working")

        refused = run("views", "rebuild", *words)

        assert refused.returncode == 6
        assert OTHERS in refused.stderr
        assert worker.stop() == 0
    made = run("views", "rebuild", *words)
    assert (made.returncode, made.stderr) == (0, "")
