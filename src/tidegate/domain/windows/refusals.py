"""The errors of maintenance windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tidegate.errors import Conflict, Formatted, Invalid, NotFound, Refused


class MalformedWindow(Invalid):
    """The window cannot work as it is written; the message names every fault."""

    code = "malformed_window"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults), faults=tuple(faults))


class WindowNotFound(Formatted, NotFound):
    """There is no window with this name."""

    code = "window_not_found"
    message = "there is no window {window_id}"
    window_id: str


class WindowExists(Formatted, Conflict):
    """A window with this name and other members exists; edit it, or choose another name."""

    code = "window_exists"
    message = (
        "there is a window {window_id} already; change it with "
        "`tidegate window edit {window_id} --reason …`"
    )
    window_id: str


class WindowClosed(Refused):
    """A maintenance window keeps orders from the host: no order and no acknowledgement now."""

    code = "window_closed"

    def __init__(
        self, channel: str, host_id: str, window_id: str, detail: str, until: datetime | None
    ) -> None:
        super().__init__(
            detail,
            channel=channel,
            host_id=host_id,
            window_id=window_id,
            until=None if until is None else until.isoformat(),
        )
