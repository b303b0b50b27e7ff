"""The errors of channels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tidegate.domain.rollouts.states import OPEN
from tidegate.domain.times import describe_end
from tidegate.errors import Conflict, Formatted, Invalid, NotFound, Refused

USERS_NAMED_MAX = 10


class ChannelNotFound(Formatted, NotFound):
    """There is no channel with this name."""

    code = "channel_not_found"
    message = "there is no channel {channel}"
    channel: str


class ChannelInUse(Refused):
    """Something still uses the channel."""

    code = "channel_in_use"

    def __init__(self, channel: str, users: Sequence[str]) -> None:
        named = ", ".join(users[:USERS_NAMED_MAX])
        more = len(users) - USERS_NAMED_MAX
        rest = f" and {more} more" if more > 0 else ""
        super().__init__(
            f"{channel} can't be deleted while these use it: {named}{rest}",
            channel=channel,
            users=tuple(users[:USERS_NAMED_MAX]),
        )


class ChannelNameUsed(Formatted, Conflict):
    """A channel with this name was deleted; its history keeps the name, so choose another."""

    code = "channel_name_used"
    message = "{channel} was deleted, and its history keeps the name; choose another name"
    channel: str


class ProtectionLoosened(Formatted, Conflict):
    """To loosen the protection of a channel, a second person must approve."""

    code = "protection_loosened"
    message = "{channel} would be protected less than before, which takes a second person"
    channel: str


class FreezeNotFound(Formatted, NotFound):
    """There is no active freeze with this id."""

    code = "freeze_not_found"
    message = "there is no freeze {freeze_id}"
    freeze_id: str


class QuarantineNotFound(Formatted, NotFound):
    """The artifact is not quarantined on this channel."""

    code = "quarantine_not_found"
    message = "{closure_hash} is not quarantined on {channel}"
    channel: str
    closure_hash: str


class PinOfChannel(Formatted, Refused):
    """The scope is a channel: its pin moves by promotion, with a plan and a rollout."""

    code = "pin_of_channel"
    message = (
        "{channel} is a channel and its pin moves with a rollout; use `tidegate channel promote "
        "{channel} RELEASE`"
    )
    channel: str


class PublicationOfChannel(Formatted, Refused):
    """A channel's publication follows its pin; roll back the channel."""

    code = "publication_of_channel"
    message = (
        "a channel's publication follows its pin; roll back the channel: `tidegate channel "
        "rollback {channel} --reason …`"
    )
    channel: str


class ChannelExists(Formatted, Conflict):
    """A channel with this name already exists; edit it, or choose another name."""

    code = "channel_exists"
    message = "there is a channel {channel} already"
    channel: str


class FreezeExists(Formatted, Conflict):
    """A freeze with this id already exists with other content; choose another id."""

    code = "freeze_exists"
    message = "there is a freeze {freeze_id} already"
    freeze_id: str


class SupersessionExpected(Formatted, Refused):
    """The channel already has a rollout; it must be superseded first, in the same commit."""

    code = "supersession_expected"
    message = "{channel} has {active_rollout_id}, which must be superseded first"
    channel: str
    active_rollout_id: str


class WrongPackage(Formatted, Refused):
    """The release belongs to another package than the channel."""

    code = "wrong_package"
    message = "{channel} carries {package}, and {release_id} is not a release of it"
    channel: str
    package: str
    release_id: str


class AlreadyPromoted(Refused):
    """The channel already has a rollout of this release that was not stopped; nothing to do."""

    code = "already_promoted"

    def __init__(self, rollout_id: str, state: str) -> None:
        channel, _, attempt = rollout_id.partition("@")
        release = attempt.partition("~")[0]
        is_open = state in OPEN
        said = f"is being rolled out on {channel}" if is_open else f"succeeded on {channel}"
        super().__init__(
            f"{release} {said} already: {rollout_id}", rollout_id=rollout_id, rollout_state=state
        )


class ReleaseNotPinned(Refused):
    """Only the release that the channel is pinned to can get new evidence."""

    code = "release_not_pinned"

    def __init__(self, channel: str, pinned: str | None, release_id: str) -> None:
        super().__init__(
            f"{channel} is pinned to {pinned or 'nothing'}, so {release_id} can't be refreshed; "
            "promote it without refresh",
            channel=channel,
            pinned=pinned,
            release_id=release_id,
        )


class NothingToGoBackTo(Refused):
    """There is no release that succeeded on the channel and can be rolled back to."""

    code = "nothing_to_go_back_to"

    def __init__(self, channel: str, skipped: tuple[str, ...], quarantined: str | None) -> None:
        why = "; ".join(skipped) or "no release has succeeded there"
        anyway = (
            f" To choose anyway: tidegate channel rollback {channel} --to {quarantined} "
            "--lift-quarantine --reason …"
            if quarantined
            else ""
        )
        super().__init__(f"Nothing to go back to on {channel}: {why}.{anyway}", channel=channel)


class NotOnLadder(Refused):
    """The release never succeeded on the channel, or is the pinned one; promote it instead."""

    code = "not_on_ladder"

    def __init__(
        self, channel: str, release_id: str, why: str, *, is_promotable: bool = True
    ) -> None:
        command = f". To promote it: tidegate channel promote {channel} {release_id}"
        super().__init__(
            f"{channel} can't be rolled back to {release_id}: {why}"
            f"{command if is_promotable else ''}",
            channel=channel,
            release_id=release_id,
        )


class PlanOutdated(Conflict):
    """The channel got another rollout after the plan was made; plan again."""

    code = "plan_outdated"

    def __init__(self, channel: str, planned: str | None, found: str | None) -> None:
        super().__init__(
            f"the plan was to supersede {planned or 'nothing'}, {channel} has {found or 'nothing'}",
            channel=channel,
            planned=planned,
            found=found,
        )


class MalformedPolicy(Invalid):
    """The channel's policy cannot work as it is written."""

    code = "malformed_policy"


class ChannelFrozen(Refused):
    """A freeze covers the channel: no order and no acknowledgement until it ends."""

    code = "channel_frozen"

    def __init__(self, channel: str, freeze_id: str, until: datetime | None) -> None:
        super().__init__(
            f"{channel} is frozen by {freeze_id}{describe_end(until)}",
            channel=channel,
            freeze_id=freeze_id,
            until=None if until is None else until.isoformat(),
        )


class EdgeClosed(Refused):
    """The release has not succeeded on a channel that comes first, or no longer counts as good
    there.
    """

    code = "edge_closed"

    def __init__(self, channel: str, reason: str) -> None:
        super().__init__(f"an edge of {channel} is shut: {reason}", channel=channel)


class ChannelOnHold(Refused):
    """The channel is held: no promotion, no order and no acknowledgement until the hold is
    released.
    """

    code = "channel_held"

    def __init__(self, channel: str, by: str | None, reason: str | None) -> None:
        super().__init__(
            f"{channel} is held by {by}: {reason}", channel=channel, held_by=by, reason=reason
        )
