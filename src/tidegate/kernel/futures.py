"""Cheap futures, for callers that mostly read the result after it was set, and do nothing else."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

_making = Lock()  # held while a standard future is made, or set to running


class LightFuture(Future[T]):
    """A future that has no lock of its own. Its answer is never None.

    The attributes of a standard future are made only when a caller needs them: to wait, to add a
    callback, to cancel, or to pass the future to the standard library (``__getattr__``).
    """

    def __init__(self) -> None:
        self.answer: T | BaseException | None = None
        self._running = False
        self._watched = False  # whether the standard future's attributes were made
        self._shown = False  # whether they have the answer

    def done(self) -> bool:
        return self.answer is not None or (self._watched and super().done())

    def result(self, timeout: float | None = None) -> T:
        answer = self._awaited(timeout)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def exception(self, timeout: float | None = None) -> BaseException | None:
        answer = self._awaited(timeout)
        if isinstance(answer, CancelledError):
            raise answer
        return answer if isinstance(answer, BaseException) else None

    def set_running_or_notify_cancel(self) -> bool:
        with _making:
            self._running = True
            watched = self._watched
        return super().set_running_or_notify_cancel() if watched else True

    def set_result(self, result: T) -> None:
        self.resolve(result)

    def set_exception(self, exception: BaseException | None) -> None:
        assert exception is not None
        self.resolve(exception)

    def resolve(self, answer: T | BaseException) -> None:
        """Set the answer, and wake up those who wait for it."""
        self.answer = answer
        if self._watched:
            self._show(answer)

    def _awaited(self, timeout: float | None) -> T | BaseException:
        if self.answer is None:
            super().exception(timeout)
        assert self.answer is not None
        return self.answer

    def __getattr__(self, name: str) -> Any:
        """Make the standard future's attributes when one of them is first used."""
        with _making:
            if not self._watched:
                made: Future[T] = Future()
                if self._running:
                    made.set_running_or_notify_cancel()
                vars(self).update(vars(made))  # all at once: a thread sees all of them or none
                self._watched = True
        if self.answer is not None:
            self._show(self.answer)
        return object.__getattribute__(self, name)

    def _show(self, answer: T | BaseException) -> None:
        """Set the answer of the standard future, once.

        The thread that made its attributes and the one that resolves may both get here.
        """
        with _making:
            told, self._shown = self._shown, True
        if told or self.cancelled():
            return
        if isinstance(answer, BaseException):
            super().set_exception(answer)
        else:
            super().set_result(answer)
