"""PostgreSQL that goes away: lost connections, lost answers, a killed server. Nothing is invented,
nothing acknowledged is lost, and an unknown outcome is reported as unknown.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.contract.postgres_proxy import SECONDS_MAX, PostgresProxy, serve_proxy
from tests.contract.world import (
    SCHEMA,
    ProductAdded,
    Rebooted,
    append,
    boundary_of,
    commit_of,
    item,
    land,
    put,
    query_of,
    row,
    whole_feed,
)
from tests.servers import postgres
from tests.servers.process import ServerUnavailable, until
from tidegate.engines.postgres import PostgresStore, writer
from tidegate.errors import OutcomeUnknown, StoreUnavailable, TidegateError
from tidegate.kernel.model import ALL, Commit, CommitKey, Receipt

SENDS_MAX = 200


@pytest.fixture
def namespace() -> str:
    return f"loss_{uuid4().hex[:16]}"


# ── a connection that can be cut ──────────────────────────────────────────────────────────────────


@pytest.fixture
def wire(postgres_url: str) -> Iterator[PostgresProxy]:
    with serve_proxy(postgres_url) as made:
        yield made


@pytest.fixture
def direct(postgres_url: str, namespace: str) -> Iterator[PostgresStore]:
    """A handle on the same log that does not use the proxy."""
    with closing(PostgresStore(postgres_url, SCHEMA, namespace)) as store:
        yield store


def keyed(number: int = 1) -> Commit:
    writes = [put(item(f"row-{number}"), row(count=number))]
    return commit_of(
        ProductAdded(f"p{number}"), writes=writes, once=CommitKey(f"key-{number}", b"digest")
    )


def test_a_commit_whose_answer_was_lost_is_found_and_acknowledged(
    wire: PostgresProxy, direct: PostgresStore, namespace: str
) -> None:
    with closing(PostgresStore(wire.url, SCHEMA, namespace)) as store:
        wire.cut = "after"
        (answer,) = store.commit(keyed())
        wire.cut = ""

        assert isinstance(answer, Receipt)
        assert not answer.replayed
        assert len(whole_feed(direct)) == 1
        assert append(store, Rebooted()).first == 2


def test_a_commit_that_never_arrived_is_reported_as_not_applied(
    wire: PostgresProxy, direct: PostgresStore, namespace: str
) -> None:
    with closing(PostgresStore(wire.url, SCHEMA, namespace)) as store:
        wire.cut = "before"
        answers = store.commit(keyed(1), keyed(2))
        wire.cut = ""

        assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
        assert whole_feed(direct) == []
        assert store.receipt("key-1") is None
        assert land(store, keyed(1)).first == 1


def test_a_commit_that_cannot_be_looked_up_has_an_unknown_outcome(
    wire: PostgresProxy, direct: PostgresStore, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "OUTCOME_SECONDS_MAX", 0.2)
    append(direct, ProductAdded("p2"))
    moved = boundary_of(direct, query_of(ProductAdded, tags="product_id:p2"))
    append(direct, ProductAdded("p2"))
    with closing(PostgresStore(wire.url, SCHEMA, namespace)) as store:
        wire.cut, wire.is_cut_for_good = "after", True
        unknown, refused = store.commit(keyed(), commit_of(ProductAdded("p2"), on=[moved]))
        assert direct.receipt("key-1") is not None
        assert isinstance(unknown, OutcomeUnknown)
        assert isinstance(refused, TidegateError)
        with pytest.raises(StoreUnavailable):
            store.read(ALL)

        wire.cut, wire.refusing = "", False

        found = store.receipt("key-1")
        assert found is not None
        assert land(store, keyed()) == found
        assert len(whole_feed(direct)) == 3


# ── sessions that end ─────────────────────────────────────────────────────────────────────────────


def end_sessions(postgres_url: str, namespace: str) -> int:
    """End every session that used this log's tables last, and return their number."""
    with psycopg.connect(postgres_url, autocommit=True) as other:
        found = other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND application_name = %s",
            (namespace,),
        ).fetchall()
    return len(found)


def test_replaces_ended_idle_sessions_without_an_error(postgres_url: str, namespace: str) -> None:
    url = f"{postgres_url}&application_name={namespace}"
    with closing(PostgresStore(url, SCHEMA, namespace)) as store:
        append(store, Rebooted())
        assert len(store.read(ALL).events) == 1
        assert end_sessions(postgres_url, namespace) == 2

        assert append(store, Rebooted()).first == 2
        assert len(store.read(ALL).events) == 2


def test_ending_sessions_under_load_loses_and_duplicates_nothing(
    postgres_url: str, namespace: str
) -> None:
    url = f"{postgres_url}&application_name={namespace}"
    ended = Event()

    def end_again_and_again() -> None:
        while not ended.wait(0.03):
            end_sessions(postgres_url, namespace)

    with ExitStack() as stack:
        handles = [
            stack.enter_context(closing(PostgresStore(url, SCHEMA, namespace))) for _ in range(3)
        ]
        with ThreadPoolExecutor(4) as pool:
            chaos = pool.submit(end_again_and_again)
            try:
                landed = sum(
                    pool.map(lambda n: commit_all(handles[n], f"client-{n}", 60), range(3))
                )
            finally:
                ended.set()
            chaos.result()

        events = whole_feed(handles[0])

    assert landed == 180
    assert Counter(event.body for event in events).most_common(1)[0][1] == 1
    assert [event.position for event in events] == list(range(1, 181))


def commit_all(store: PostgresStore, name: str, count: int) -> int:
    """Commit each, sending it again with its key until the answer is a receipt."""
    for number in range(count):
        key = f"{name}-{number}"
        commit = commit_of(ProductAdded(key), once=CommitKey(key, b"digest"))
        for _ in range(SENDS_MAX):
            (answer,) = store.commit(commit)
            if isinstance(answer, Receipt):
                break
            assert isinstance(answer, StoreUnavailable | OutcomeUnknown), repr(answer)
            time.sleep(0.02)
        else:
            raise AssertionError(f"{key} never landed")
    return count


def test_a_writer_that_stalls_with_the_lock_loses_it(
    postgres_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.engines.postgres.sessions.STALL_SECONDS_MAX", 1)
    with ExitStack() as stack:
        stalled = stack.enter_context(closing(PostgresStore(postgres_url, SCHEMA, namespace)))
        other = stack.enter_context(closing(PostgresStore(postgres_url, SCHEMA, namespace)))
        look = stalled._writer._look_up

        has_the_lock, another_has_written = Event(), Event()

        def look_and_stall(*arguments: Any) -> Any:
            found = look(*arguments)
            has_the_lock.set()
            assert another_has_written.wait(SECONDS_MAX)
            return found

        with ThreadPoolExecutor(1) as pool:
            monkeypatch.setattr(stalled._writer, "_look_up", look_and_stall)
            late = pool.submit(stalled.commit, keyed(1))
            assert has_the_lock.wait(SECONDS_MAX)
            assert append(other, Rebooted()).first == 1
            another_has_written.set()
            (answer,) = late.result()

        assert isinstance(answer, StoreUnavailable)
        assert len(whole_feed(other)) == 1


@pytest.mark.long
def test_a_server_that_stops_is_unavailable_until_it_is_back(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(postgres.URL_VARIABLE, raising=False)
    with server_home() as home:
        with postgres.running(keep=home) as url:
            store = PostgresStore(url, SCHEMA, namespace)
            append(store, Rebooted())
            store.read(ALL)

        (refused,) = store.commit(keyed())
        assert isinstance(refused, StoreUnavailable)
        with pytest.raises(StoreUnavailable):
            store.read(ALL)

        with postgres.running(keep=home), closing(store):
            assert land(store, keyed()).first == 2
            assert len(store.read(ALL).events) == 2


# ── a server that is killed ───────────────────────────────────────────────────────────────────────

CRASHES = 2
STARTS_MAX = 20


@contextmanager
def server_home() -> Iterator[Path]:
    """A directory that the server's unprivileged user can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="tidegate-killed-") as name:
        yield Path(name)


def started(home: Path) -> tuple[AbstractContextManager[str], str]:
    """Start the server on this cluster; the children of a killed one may hold it for a moment."""
    for start in range(STARTS_MAX):
        server = postgres.running(durable=True, keep=home)
        try:
            return server, server.__enter__()
        except ServerUnavailable:
            if start == STARTS_MAX - 1:
                raise
            time.sleep(0.2)
    raise AssertionError


def wait_for_more(acknowledged: set[str], count: int = 20) -> None:
    enough = len(acknowledged) + count
    assert until(lambda: len(acknowledged) >= enough, seconds_max=SECONDS_MAX)


def kill_postmaster(home: Path) -> None:
    """Kill the running server: the pid file may still name the previous one."""

    def is_killed() -> bool:
        pid = int((home / "cluster" / "postmaster.pid").read_text().split()[0])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    assert until(is_killed, seconds_max=SECONDS_MAX)


@pytest.mark.long
def test_a_killed_server_loses_nothing_that_was_acknowledged(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(postgres.URL_VARIABLE, raising=False)
    acknowledged: set[str] = set()
    sent: list[str] = []
    stop = Event()

    def load(store: PostgresStore, name: str) -> None:
        for number in range(1_000_000):
            if stop.is_set():
                return
            key = f"{name}-{number}"
            sent.append(key)
            (answer,) = store.commit(commit_of(ProductAdded(key), once=CommitKey(key, b"digest")))
            if isinstance(answer, Receipt):
                acknowledged.add(key)
            else:
                assert isinstance(answer, StoreUnavailable | OutcomeUnknown), repr(answer)
                if isinstance(answer, StoreUnavailable):
                    unavailable.add(key)
                time.sleep(0.02)

    unavailable: set[str] = set()
    with server_home() as home, ExitStack() as stack:
        server, url = started(home)
        handles = [
            stack.enter_context(closing(PostgresStore(url, SCHEMA, namespace))) for _ in range(3)
        ]
        with ThreadPoolExecutor(3) as pool:
            loads = [pool.submit(load, handle, f"c{n}") for n, handle in enumerate(handles)]
            try:
                for _ in range(CRASHES):
                    wait_for_more(acknowledged)
                    kill_postmaster(home)
                    server.__exit__(None, None, None)
                    server, _ = started(home)
                wait_for_more(acknowledged)
            finally:
                stop.set()
            for waiting in loads:
                waiting.result()

        events = whole_feed(handles[0])
        stands = {event.tags[0].removeprefix("product_id:") for event in events}
        for key in set(sent) - acknowledged:
            assert (handles[0].receipt(key) is not None) == (key in stands)
        stack.close()
        server.__exit__(None, None, None)

    assert acknowledged <= stands
    assert not stands & unavailable
    assert [event.position for event in events] == list(range(1, len(events) + 1))
