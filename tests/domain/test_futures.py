"""A light future behaves like a standard one to every caller."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from threading import Barrier

import pytest

from tidegate.kernel.futures import LightFuture

SECONDS_MAX = 60.0
ROUNDS = 300


def test_returns_its_answer_without_a_standard_future() -> None:
    future: LightFuture[str] = LightFuture()
    assert future.set_running_or_notify_cancel()
    future.set_result("here")

    assert future.done()
    assert future.result() == "here"
    assert future.exception() is None
    assert "_condition" not in vars(future)


def test_raises_its_error() -> None:
    future: LightFuture[str] = LightFuture()
    future.set_exception(ValueError("no"))

    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="no"):
        future.result()


def test_waits_no_longer_than_its_timeout() -> None:
    future: LightFuture[str] = LightFuture()
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    future.set_result("late")

    assert future.result(timeout=0.01) == "late"


@pytest.mark.parametrize("early", [True, False])
def test_calls_back_once(early: bool) -> None:
    future: LightFuture[str] = LightFuture()
    told: list[str] = []
    if not early:
        future.set_result("here")
    future.add_done_callback(lambda done: told.append(done.result()))
    if early:
        future.set_result("here")

    assert told == ["here"]


def test_can_be_cancelled_until_it_is_running() -> None:
    waiting: LightFuture[str] = LightFuture()
    assert waiting.cancel()
    assert waiting.cancelled()
    assert waiting.done()
    assert not waiting.set_running_or_notify_cancel()
    with pytest.raises(CancelledError):
        waiting.result()

    under_way: LightFuture[str] = LightFuture()
    assert under_way.set_running_or_notify_cancel()
    assert under_way.running()
    assert not under_way.cancel()
    under_way.set_result("here")
    assert under_way.result() == "here"


def test_wakes_a_waiter_when_its_creator_cancels_it() -> None:
    future: LightFuture[str] = LightFuture()
    told: list[bool] = []
    future.add_done_callback(lambda done: told.append(done.done()))
    future.set_exception(CancelledError())

    assert told == [True]
    with pytest.raises(CancelledError):
        future.result(timeout=SECONDS_MAX)


def test_works_in_a_wait_for_several_futures() -> None:
    light: LightFuture[str] = LightFuture()
    heavy: Future[str] = Future()
    for future in (light, heavy):
        future.set_result("here")

    assert wait([light, heavy], timeout=SECONDS_MAX).not_done == set()


def test_answers_a_caller_that_reads_while_it_is_resolved() -> None:
    """The creation of the standard future and the resolution overlap at every possible point."""
    with ThreadPoolExecutor(2) as threads:
        for _ in range(ROUNDS):
            future: LightFuture[str] = LightFuture()
            told: list[str] = []
            together = Barrier(2)

            def resolve(future: LightFuture[str] = future, together: Barrier = together) -> None:
                together.wait(SECONDS_MAX)
                assert future.set_running_or_notify_cancel()
                future.set_result("here")

            def note(done: Future[str], told: list[str] = told) -> None:
                told.append(done.result())

            resolving = threads.submit(resolve)
            together.wait(SECONDS_MAX)
            future.add_done_callback(note)
            assert future.result(timeout=SECONDS_MAX) == "here"
            resolving.result(SECONDS_MAX)
            assert told == ["here"]
