"""Tidegate is a release control plane: facts and the rows folded from them, in one commit.

As a library it is what ``__all__`` lists, starting with ``Log`` (docs/library.md). The names are
imported when they are asked for, so that the command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.library import *  # noqa: F403

__version__ = "0.1.0"

__all__ = [  # noqa: F405 - of tidegate.library
    "ABSENT",
    "ALL",
    "LEASES",
    "REPAIRS",
    "Boundary",
    "BoundaryMoved",
    "Check",
    "CheckRow",
    "Clause",
    "Collection",
    "CommandOutcome",
    "Commit",
    "CommitKey",
    "Conflict",
    "CreateRow",
    "Cross",
    "Delete",
    "DeleteRow",
    "Event",
    "EventPage",
    "Fact",
    "FactType",
    "FieldRole",
    "Fold",
    "Folds",
    "Index",
    "Invalid",
    "Key",
    "Leases",
    "Log",
    "Match",
    "Meta",
    "Nature",
    "NotFound",
    "OutcomeUnknown",
    "Partition",
    "Put",
    "PutRow",
    "Query",
    "RawRecords",
    "Receipt",
    "Record",
    "Records",
    "Refused",
    "Rules",
    "Schema",
    "Slice",
    "Store",
    "StoreUnavailable",
    "Stored",
    "Subject",
    "TidegateError",
    "TooLarge",
    "Triple",
    "Unavailable",
    "UnfencedQuery",
    "Unknown",
    "Untagged",
    "UpdateRow",
    "VersionConflict",
    "Vocabulary",
    "WriteMode",
    "WritePolicy",
    "Writers",
    "differences",
    "facts",
    "perform_then_record",
    "transition_append_event",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(import_module("tidegate.library"), name)
