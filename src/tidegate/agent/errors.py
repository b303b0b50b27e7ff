"""What goes wrong on a host, told apart by what the agent does about it."""

from __future__ import annotations

from tidegate.errors import Conflict, Invalid, Refused, Unavailable


class InvalidAgentSetting(Invalid):
    """A setting of the agent is unknown, missing, or not of the form that it must have."""

    code = "invalid_agent_setting"


class InvalidProbes(Invalid):
    """The file of probes that is named cannot be read as one; nothing is activated without it."""

    code = "invalid_probes"


class StateHeld(Conflict):
    """Another agent works on this state directory; there is one per host."""

    code = "agent_state_held"


class StateFormatRefused(Invalid):
    """An agent of another format wrote the state directory; it is neither read nor changed."""

    code = "agent_state_format"


class JournalDamaged(Invalid):
    """The journal holds something other than what was written; see what the disk did."""

    code = "journal_damaged"


class ManifestMemoryDamaged(Invalid):
    """The versions of channel manifests cannot be read, so an old one could be replayed."""

    code = "manifest_memory_damaged"


class NotEnrolled(Refused):
    """The host has no identity yet: start the agent with a one-time token."""

    code = "agent_not_enrolled"


class InstallRefused(Refused):
    """The agent cannot be installed like this; nothing was started."""

    code = "agent_install_refused"


class ServerAway(Unavailable):
    """The server did not answer, or could not for now; the same request may work later."""

    code = "server_away"


class RefusedByServer(Refused):
    """The server refused: ``code`` of the problem, and its further members."""

    code = "answered"

    def __init__(self, status: int, said: str, detail: str, members: dict[str, object]) -> None:
        super().__init__(f"{status} {said}: {detail}")
        self.status = status
        self.said = said
        self.members = members


class ContentMismatch(Refused):
    """What was fetched is not what the digest names; it is not activated."""

    code = "content_mismatch"


class ReferenceAway(ServerAway):
    """The place of a referenced file did not answer, or could not for now; it may work later."""

    code = "reference_away"


class ReferenceRefused(Refused):
    """A referenced file is not to be had: its place says no, or this host's settings do."""

    code = "reference_refused"


# Why there is nothing to activate, for good: trying again cannot work.
UNPROVIDED = (ContentMismatch, RefusedByServer, ReferenceRefused)
