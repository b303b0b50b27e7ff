"""Futures that cost little: nearly everybody asks for the result once it is there, and no more."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")

_making = Lock()  # held by whoever makes a standard future, or tells one that it is under way


class LightFuture(Future[T]):
    """A future whose answer is never None, and takes no lock of its own to make or to resolve.

    All that a standard future holds beside the answer (``__getattr__``) is made for those who do
    more than ask for what is there: wait, call back, give up, look from outside.
    """

    def __init__(self) -> None:
        self.answer: T | BaseException | None = None
        self._running = False
        self._watched = False  # whether the standard future is there
        self._shown = False  # whether it was told the answer

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
        """Note the answer, and tell whoever looks from outside."""
        self.answer = answer
        if self._watched:
            self._show(answer)

    def _awaited(self, timeout: float | None) -> T | BaseException:
        if self.answer is None:
            super().exception(timeout)
        assert self.answer is not None
        return self.answer

    def __getattr__(self, name: str) -> Any:
        """Make the standard future, when one of its attributes is missed for the first time."""
        with _making:
            if not self._watched:
                made: Future[T] = Future()
                if self._running:
                    made.set_running_or_notify_cancel()
                vars(self).update(vars(made))  # all at once: who sees one attribute sees the others
                self._watched = True
        if self.answer is not None:
            self._show(self.answer)
        return object.__getattribute__(self, name)

    def _show(self, answer: T | BaseException) -> None:
        """Tell the standard future the answer, once: its maker and the resolver may meet here."""
        with _making:
            told, self._shown = self._shown, True
        if told or self.cancelled():
            return
        if isinstance(answer, BaseException):
            super().set_exception(answer)
        else:
            super().set_result(answer)
