"""A light future behaves like a standard one to every caller."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from threading import Barrier

import pytest

from tidegate.kernel.futures import LightFuture

SECONDS_MAX = 60.0
ROUNDS = 300


def test_tells_its_answer_without_a_standard_future() -> None:
    future: LightFuture[str] = LightFuture()
    assert future.set_running_or_notify_cancel()
    future.set_result("here")

    assert future.done()
    assert future.result() == "here"
    assert future.exception() is None
    assert "_condition" not in vars(future)


def test_tells_its_error() -> None:
    future: LightFuture[str] = LightFuture()
    future.set_exception(ValueError("no"))

    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="no"):
        future.result()


def test_waits_no_longer_than_it_was_told() -> None:
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


def test_is_given_up_until_it_is_under_way() -> None:
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


def test_wakes_who_waits_for_one_that_is_cancelled_by_its_maker() -> None:
    future: LightFuture[str] = LightFuture()
    told: list[bool] = []
    future.add_done_callback(lambda done: told.append(done.done()))
    future.set_exception(CancelledError())

    assert told == [True]
    with pytest.raises(CancelledError):
        future.result(timeout=SECONDS_MAX)


def test_is_waited_for_among_others() -> None:
    light: LightFuture[str] = LightFuture()
    heavy: Future[str] = Future()
    for future in (light, heavy):
        future.set_result("here")

    assert wait([light, heavy], timeout=SECONDS_MAX).not_done == set()


def test_answers_whoever_looks_while_it_is_resolved() -> None:
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
