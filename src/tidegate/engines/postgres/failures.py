"""Translates the driver's errors into ours: what an error means to the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from tidegate.errors import InvalidInput, StoreRefused, StoreUnavailable, TidegateError

_CONTENT = (
    psycopg.DataError,
    errors.CheckViolation,
    errors.ProgramLimitExceeded,  # an index entry is larger than a third of a page
)
_UNAVAILABLE = (psycopg.OperationalError, errors.ReadOnlySqlTransaction)
_STALLED = "25P03"  # the server ended a session whose transaction was idle too long
_TRANSIENT = (errors.SerializationFailure, errors.DeadlockDetected)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the driver's errors in a block that changes nothing.

    Raises:
        StoreUnavailable, StoreRefused, InvalidInput.
    """
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
    except UnicodeEncodeError as error:
        raise InvalidInput(f"text with a lone surrogate: {error.object!r}") from None


def translate(error: psycopg.Error) -> TidegateError:
    """Translate an error after which nothing was applied."""
    text = f"PostgreSQL: {message(error)}"
    if is_about_content(error):
        return InvalidInput(text)
    if is_lost(error) or isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(text)
    return StoreRefused(text)


def message(error: BaseException) -> str:
    """The first line of the message of the database or the driver."""
    return str(error).strip().partition("\n")[0]


def is_about_content(error: BaseException) -> bool:
    """Whether the content of one commit is the cause, so that only that commit must fail."""
    return isinstance(error, _CONTENT)


def is_transient(error: BaseException) -> bool:
    """Whether the server rolled this transaction back in favour of another one: retry it."""
    return isinstance(error, _TRANSIENT)


def is_lost(error: BaseException) -> bool:
    """Whether the session itself ended, and not just a statement in it."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state[:2] == "08" or state[:3] == "57P" or state == _STALLED


def error_of_state(state: str | None, text: str) -> psycopg.Error:
    """The driver's exception for an error code. No code means that the connection is lost."""
    if state is None:
        return psycopg.OperationalError(text)
    try:
        return errors.lookup(state)(text)
    except KeyError:
        return psycopg.DatabaseError(text)
