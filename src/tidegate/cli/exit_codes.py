"""How a command ends: its exit code, one line that says why, and the next command to try."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidegate import errors


class ExitCode(IntEnum):
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


class CommandExit(Exception):
    """The command ends here, with this code, this line and these commands to try next."""

    def __init__(
        self, code: ExitCode, detail: str, *tries: str, more: tuple[str, ...] = ()
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.tries = tries
        self.more = more  # lines below the first: faults of single fields


FAMILIES: Final = {
    errors.Invalid: ExitCode.USAGE,
    errors.PreconditionRequired: ExitCode.USAGE,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.Gone: ExitCode.NOT_FOUND,
    errors.Forbidden: ExitCode.PERMISSION,
    errors.TooLarge: ExitCode.REFUSED,
    errors.Refused: ExitCode.REFUSED,
    errors.Conflict: ExitCode.CONFLICT,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    errors.Unknown: ExitCode.UNAVAILABLE,
}
STATUSES: Final = {
    400: ExitCode.USAGE,
    401: ExitCode.PERMISSION,
    403: ExitCode.PERMISSION,
    404: ExitCode.NOT_FOUND,
    405: ExitCode.UNAVAILABLE,  # the server does not know this verb: other version
    409: ExitCode.CONFLICT,
    410: ExitCode.NOT_FOUND,
    412: ExitCode.CONFLICT,
    413: ExitCode.REFUSED,
    415: ExitCode.USAGE,
    422: ExitCode.REFUSED,
    428: ExitCode.USAGE,
    429: ExitCode.UNAVAILABLE,
}


def exit_code_of(error: errors.TidegateError) -> ExitCode:
    """The code of an error that was raised in this process."""
    kinds = (FAMILIES[kind] for kind in type(error).__mro__ if kind in FAMILIES)
    return next(kinds, ExitCode.UNAVAILABLE)


def exit_code_of_status(status: int) -> ExitCode:
    """The code of an error that a server told."""
    return STATUSES.get(status, ExitCode.UNAVAILABLE if status >= 500 else ExitCode.REFUSED)
