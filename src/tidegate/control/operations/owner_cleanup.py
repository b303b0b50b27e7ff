"""Delete the open revisions of an owner that no longer exists, on an administrator's request."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.control.runtime import Control
from tidegate.control.storage.owner_cleanup import Reaped, clean_up_owner
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.packages.facts import OwnerReference


class OwnerCleanupOperations:
    """The clean-up after owners. It needs no idempotency key: a repeat deletes what remains."""

    def __init__(self, control: Control, notify: Callable[[], None]) -> None:
        self._control = control
        self._notify = notify

    def clean_up(self, caller: callers.Caller, owner: OwnerReference) -> Reaped:
        """Delete the Draft and Proposed revisions of an owner; published ones stay.

        Raises:
            MissingPermission, InvalidName.
        """
        caller.demand(steps.CLEAN_UP_OWNER, roles.EVERYWHERE)
        reaped = clean_up_owner(self._control, owner, caller.id, caller.request_id)
        self._notify()
        return reaped
