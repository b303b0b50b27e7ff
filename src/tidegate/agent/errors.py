"""Errors of the agent, by what the agent does about them."""

from __future__ import annotations

from tidegate.errors import Conflict, Invalid, Refused, Unavailable


class InvalidAgentSetting(Invalid):
    """A setting of the agent is unknown, missing or invalid."""

    code = "invalid_agent_setting"


class InvalidProbes(Invalid):
    """The probe file is missing or invalid; nothing is activated without it."""

    code = "invalid_probes"


class StateHeld(Conflict):
    """Another agent uses this state directory; run one agent per host."""

    code = "agent_state_held"


class StateFormatRefused(Invalid):
    """The state directory has the format of another agent version; it was not changed."""

    code = "agent_state_format"


class JournalDamaged(Invalid):
    """The agent's journal is damaged; check the disk."""

    code = "journal_damaged"


class ManifestMemoryDamaged(Invalid):
    """The file of manifest versions is damaged, so an old manifest could be replayed."""

    code = "manifest_memory_damaged"


class NotEnrolled(Refused):
    """The host is not enrolled: start the agent with a one-time token."""

    code = "agent_not_enrolled"


class InstallRefused(Refused):
    """The agent cannot be installed with these options; nothing was started."""

    code = "agent_install_refused"


class ServerAway(Unavailable):
    """The server did not respond or is not available; the agent retries."""

    code = "server_away"


class RefusedByServer(Refused):
    """The server refused a request of the agent."""

    code = "answered"

    def __init__(
        self, status: int, problem_code: str, detail: str, members: dict[str, object]
    ) -> None:
        super().__init__(f"{status} {problem_code}: {detail}")
        self.status = status
        self.problem_code = problem_code
        self.members = members


class ContentMismatch(Refused):
    """The fetched content does not match its digest; it is not activated."""

    code = "content_mismatch"


class ReferenceAway(ServerAway):
    """The address of a referenced file did not respond or is not available; the agent retries."""

    code = "reference_away"


class ReferenceRefused(Refused):
    """A referenced file cannot be fetched: its address or this host's settings refuse it."""

    code = "reference_refused"


# Content cannot be fetched, and a retry cannot help.
UNPROVIDED = (ContentMismatch, RefusedByServer, ReferenceRefused)
