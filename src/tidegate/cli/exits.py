"""How a command ends: its exit code, one line that says why, and the next command to try."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidegate import errors


class Exit(IntEnum):
    """What the exit code tells a script."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    CONFLICT = 3
    NOT_FOUND = 4
    PERMISSION = 5
    UNAVAILABLE = 6
    ROLLED_BACK = 7  # with --wait
    INTERRUPTED = 130


class Stop(Exception):
    """The command ends here, with this code, this line and these commands to try next."""

    def __init__(self, code: Exit, detail: str, *tries: str, more: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.tries = tries
        self.more = more  # lines below the first: faults of single fields


FAMILIES: Final = {
    errors.Invalid: Exit.USAGE,
    errors.PreconditionRequired: Exit.USAGE,
    errors.NotFound: Exit.NOT_FOUND,
    errors.Gone: Exit.NOT_FOUND,
    errors.Forbidden: Exit.PERMISSION,
    errors.TooLarge: Exit.REFUSED,
    errors.Refused: Exit.REFUSED,
    errors.Conflict: Exit.CONFLICT,
    errors.Unavailable: Exit.UNAVAILABLE,
    errors.Unknown: Exit.UNAVAILABLE,
}
STATUSES: Final = {
    400: Exit.USAGE,
    401: Exit.PERMISSION,
    403: Exit.PERMISSION,
    404: Exit.NOT_FOUND,
    405: Exit.UNAVAILABLE,  # the server does not know this verb: it is older or newer than we are
    409: Exit.CONFLICT,
    410: Exit.NOT_FOUND,
    412: Exit.CONFLICT,
    413: Exit.REFUSED,
    415: Exit.USAGE,
    422: Exit.REFUSED,
    428: Exit.USAGE,
    429: Exit.UNAVAILABLE,
}


def exit_of(error: errors.TidegateError) -> Exit:
    """The code of an error that was raised in this process."""
    kinds = (FAMILIES[kind] for kind in type(error).__mro__ if kind in FAMILIES)
    return next(kinds, Exit.UNAVAILABLE)


def exit_of_status(status: int) -> Exit:
    """The code of an error that a server told."""
    return STATUSES.get(status, Exit.UNAVAILABLE if status >= 500 else Exit.REFUSED)
