"""Checks that tests of packages share: the HTTP status of a refusal, and that it writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.domain.package_log import AUTHOR, PackageLog
from tidegate import errors
from tidegate.domain.packages.slices import CreateRevision
from tidegate.domain.packages.updates import UpdateRevision
from tidegate.errors import TidegateError

# The HTTP status follows the family of the error: docs/problems/README.md.
STATUS: dict[type[TidegateError], int] = {
    errors.Invalid: 400,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Gone: 410,
    errors.TooLarge: 413,
    errors.Refused: 422,
    errors.PreconditionRequired: 428,
    errors.Unavailable: 503,
}


def status_of(error: TidegateError) -> int:
    return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)


def refusal_of(package_log: PackageLog, act: Callable[..., Any], *said: Any) -> TidegateError:
    """Return the refusal of a command, and check that nothing was appended."""
    before = len(package_log.log())
    with pytest.raises(TidegateError) as refusal:
        act(*said)
    assert len(package_log.log()) == before
    return refusal.value


def answer_of(package_log: PackageLog, command: Struct) -> tuple[int, str]:
    """Return the status and code of a refused command."""
    refusal = refusal_of(package_log, package_log.run, command)
    return status_of(refusal), refusal.code


def creation(**members: Any) -> CreateRevision:
    """Build the creation of a package's first revision, with these changes."""
    said: dict[str, Any] = {
        "repository": "blueprints",
        "package": "web",
        "workspace": "v1",
        "uid": "u",
        "by": AUTHOR,
    }
    return CreateRevision(**(said | members))


def update(package_log: PackageLog, name: str, **members: Any) -> UpdateRevision:
    """Build an update of the revision at its current version."""
    said: dict[str, Any] = {
        "by": AUTHOR,
        "expected_version": package_log.version(name),
        "reason": "so",
    }
    return UpdateRevision(name=name, **(said | members))
