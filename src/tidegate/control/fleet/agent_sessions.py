"""Sessions of agents: the name of a session, its end, and its key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct

from tidegate.domain.fleet.rows import ENROLLED
from tidegate.domain.hosts import protocol
from tidegate.errors import Forbidden


class ClockSkewed(Forbidden):
    """The agent's clock is too far from the server's; set it."""

    code = "agent_clock_skew"


class AgentSession(NamedTuple):
    """The content of a session's name."""

    host_id: str
    expires: int
    public_key: str

    def __str__(self) -> str:
        return f"{self.host_id}:{self.expires}:{self.public_key}"


def parse_session(session: str) -> AgentSession | None:
    """Parse a session's name; None: it is not one."""
    host_id, _, rest = session.partition(":")
    expires, _, public_key = rest.partition(":")
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 12):
        return None
    return AgentSession(host_id, int(expires), public_key)


class KeyStanding(Struct, frozen=True):
    """The fields of a host's row that decide whether its key is valid."""

    public_key: str
    status: str = ENROLLED


def check_skew(time: int, now: datetime) -> None:
    """Check that the agent's clock is about right. Raises: ClockSkewed."""
    if abs(now.timestamp() - time) > protocol.SKEW_SECONDS_MAX:
        raise ClockSkewed(
            f"the request says {time}, it is {int(now.timestamp())} here; at most "
            f"{protocol.SKEW_SECONDS_MAX} s apart are allowed",
            found=time,
            server_time=now.astimezone(UTC).isoformat(),
            allowed=protocol.SKEW_SECONDS_MAX,
        )
