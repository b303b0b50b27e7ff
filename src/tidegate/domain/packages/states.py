"""The states of a package revision."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Lifecycle(StrEnum):
    """The state of a revision, see docs/design/packages.md."""

    DRAFT = "Draft"
    PROPOSED = "Proposed"
    PUBLISHED = "Published"
    DELETION_PROPOSED = "DeletionProposed"


# "A package revision is considered published if its lifecycle is either Published or
# DeletionProposed."
PUBLISHED_STATES: Final = frozenset({Lifecycle.PUBLISHED, Lifecycle.DELETION_PROPOSED})
