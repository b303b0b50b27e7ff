"""Cheap futures, for callers that mostly read the result after it was set, and do nothing else."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

_standard_lock = Lock()  # held while a standard future is made, or set to running


class LightFuture(Future[T]):
    """A future that has no lock of its own. Its answer is never None.

    The attributes of a standard future are made only when a caller needs them: to wait, to add a
    callback, to cancel, or to pass the future to the standard library (``__getattr__``).
    """

    def __init__(self) -> None:
        self.answer: T | BaseException | None = None
        self._running = False
        self._has_standard = False  # whether the standard future's attributes were made
        self._is_copied = False  # whether they have the answer

    def done(self) -> bool:
        return self.answer is not None or (self._has_standard and super().done())

    def result(self, timeout: float | None = None) -> T:
        answer = self._wait_for_answer(timeout)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def exception(self, timeout: float | None = None) -> BaseException | None:
        answer = self._wait_for_answer(timeout)
        if isinstance(answer, CancelledError):
            raise answer
        return answer if isinstance(answer, BaseException) else None

    def set_running_or_notify_cancel(self) -> bool:
        with _standard_lock:
            self._running = True
            has_standard = self._has_standard
        return super().set_running_or_notify_cancel() if has_standard else True

    def set_result(self, result: T) -> None:
        self.resolve(result)

    def set_exception(self, exception: BaseException | None) -> None:
        assert exception is not None
        self.resolve(exception)

    def resolve(self, answer: T | BaseException) -> None:
        """Set the answer, and wake up those who wait for it."""
        self.answer = answer
        if self._has_standard:
            self._copy_answer(answer)

    def _wait_for_answer(self, timeout: float | None) -> T | BaseException:
        if self.answer is None:
            super().exception(timeout)
        assert self.answer is not None
        return self.answer

    def __getattr__(self, name: str) -> Any:
        """Make the standard future's attributes when one of them is first used."""
        with _standard_lock:
            if not self._has_standard:
                made: Future[T] = Future()
                if self._running:
                    made.set_running_or_notify_cancel()
                vars(self).update(vars(made))  # all at once: a thread sees all of them or none
                self._has_standard = True
        if self.answer is not None:
            self._copy_answer(self.answer)
        return object.__getattribute__(self, name)

    def _copy_answer(self, answer: T | BaseException) -> None:
        """Set the answer of the standard future, once.

        The thread that made its attributes and the one that resolves may both get here.
        """
        with _standard_lock:
            was_copied, self._is_copied = self._is_copied, True
        if was_copied or self.cancelled():
            return
        if isinstance(answer, BaseException):
            super().set_exception(answer)
        else:
            super().set_result(answer)
