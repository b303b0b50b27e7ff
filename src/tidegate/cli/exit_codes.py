"""The end of a command: its exit code, one line with the cause, and the next command to try."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from tidegate import errors


class ExitCode(IntEnum):
    """The exit codes, for scripts."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    CONFLICT = 3
    NOT_FOUND = 4
    PERMISSION = 5
    UNAVAILABLE = 6
    ROLLED_BACK = 7  # with --wait
    EMPTY = 8  # with --wait: no host ran it
    WAITING = 9  # a request was made; another person must approve it
    RESTART = 75  # a server or worker must be restarted; EX_TEMPFAIL of sysexits.h
    INTERRUPTED = 130


class CommandExit(Exception):
    """Ends the command with this code, this line and these commands to try next."""

    def __init__(
        self,
        code: ExitCode,
        detail: str,
        *tries: str,
        more: tuple[str, ...] = (),
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.tries = tries
        self.more = more  # further lines, such as the faults of single fields
        self._problem = problem

    @property
    def problem(self) -> Mapping[str, Any]:
        """The problem document (RFC 9457): the server's, or one for an error of this process."""
        if self._problem is not None:
            return self._problem
        family = PROBLEMS.get(self.code, errors.Refused)
        return problem_of(family, self.code, self.detail) | {"next": list(self.tries)}


FAMILIES: Final = {
    errors.Invalid: ExitCode.USAGE,
    errors.PreconditionRequired: ExitCode.USAGE,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.Gone: ExitCode.NOT_FOUND,
    errors.Forbidden: ExitCode.PERMISSION,
    errors.TooLarge: ExitCode.REFUSED,
    errors.Refused: ExitCode.REFUSED,
    errors.Conflict: ExitCode.CONFLICT,
    errors.WriterClosed: ExitCode.RESTART,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    errors.Unknown: ExitCode.UNAVAILABLE,
}
STATUSES: Final = {
    400: ExitCode.USAGE,
    421: ExitCode.USAGE,
    401: ExitCode.PERMISSION,
    403: ExitCode.PERMISSION,
    404: ExitCode.NOT_FOUND,
    405: ExitCode.USAGE,
    406: ExitCode.USAGE,
    408: ExitCode.UNAVAILABLE,
    409: ExitCode.CONFLICT,
    410: ExitCode.NOT_FOUND,
    412: ExitCode.CONFLICT,
    413: ExitCode.REFUSED,
    416: ExitCode.USAGE,
    415: ExitCode.USAGE,
    422: ExitCode.REFUSED,
    426: ExitCode.USAGE,
    428: ExitCode.USAGE,
    429: ExitCode.UNAVAILABLE,
}
# The family and status in the problem document for an error of the command itself.
PROBLEMS: Final = {
    ExitCode.USAGE: errors.Invalid,
    ExitCode.NOT_FOUND: errors.NotFound,
    ExitCode.PERMISSION: errors.Forbidden,
    ExitCode.CONFLICT: errors.Conflict,
    ExitCode.UNAVAILABLE: errors.Unavailable,
}
_STATUS: Final = {
    ExitCode.REFUSED: 422,
    ExitCode.USAGE: 400,
    ExitCode.CONFLICT: 409,
    ExitCode.NOT_FOUND: 404,
    ExitCode.PERMISSION: 403,
    ExitCode.UNAVAILABLE: 503,
}


def exit_code_of(error: errors.TidegateError) -> ExitCode:
    """The exit code for an error of this process."""
    kinds = (FAMILIES[kind] for kind in type(error).__mro__ if kind in FAMILIES)
    return next(kinds, ExitCode.UNAVAILABLE)


def problem_of(
    kind: type[errors.TidegateError], code: ExitCode, detail: str, **facts: Any
) -> dict[str, Any]:
    """Build the problem document for an error of this process."""
    return {
        **facts,
        "type": f"/problems/{kind.code}",
        "title": (kind.__doc__ or "").partition("\n")[0].replace("``", ""),
        "status": _STATUS.get(code, 422),
        "detail": detail,
        "code": kind.code,
    }


def exit_code_of_status(status: int) -> ExitCode:
    """The exit code for an error response."""
    return STATUSES.get(status, ExitCode.UNAVAILABLE if status >= 500 else ExitCode.REFUSED)
