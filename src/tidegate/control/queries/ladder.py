"""Which release a rollback of a channel would choose, and why it skips newer ones."""

from __future__ import annotations

from msgspec import Struct

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.queries.people import NameOf
from tidegate.domain.channels import ladder as channel_ladder, refusals, rows as channel_rows
from tidegate.domain.releases import catalog, rows as release_rows
from tidegate.domain.rollouts.rows import RolloutTally
from tidegate.domain.rollouts.tallies import may_hasten
from tidegate.kernel.model import Position


class Ladder(Struct, frozen=True, kw_only=True):
    """A channel's ladder now."""

    channel: str
    version: Position  # of the channel's row
    wanted: str | None  # the pinned release
    pin_version: int | None  # the counter of the pin
    rungs: tuple[channel_ladder.JudgedRung, ...]
    row: channel_rows.Channel
    quarantined: tuple[str, ...] = ()  # releases of the ladder that are quarantined here
    newest: RolloutTally | None = None  # the channel's current rollout

    def choose(
        self, to: str | None = None, *, now: bool = False, ignore_budgets: bool = False
    ) -> channel_rows.Rung:
        """Choose the release of a rollback: the named one, or the first rung that is allowed.
        ``now``: if a rollback is in progress that would be faster, choose its release.

        Raises:
            NotOnLadder, NothingToGoBackTo.
        """
        newest = self.newest
        if now and newest is not None and to in (None, newest.target_ref):
            hastened = channel_ladder.rung_of(self.row, newest.target_ref)
            if hastened is not None and may_hasten(newest, ignore_budgets=ignore_budgets):
                return hastened
        if to is not None:
            return channel_ladder.demand_rung(self.row, self.wanted, to)
        rung = channel_ladder.choose_rung(self.rungs)
        if rung is None:
            skipped = tuple(item.skipped for item in self.rungs)
            shut = [id for id in self.quarantined if id != self.wanted]
            raise refusals.NothingToGoBackTo(self.channel, skipped, shut[0] if shut else None)
        return rung


def read_ladder(
    reader: FleetReader, channel: str, name_of: NameOf = lambda user_id: user_id
) -> Ladder:
    """Read a channel's ladder. ``name_of`` finds the name of a user. Raises: ChannelNotFound."""
    found = reader.row(channel_rows.channel_key(channel), channel_rows.Channel)
    if found is None:
        raise refusals.ChannelNotFound(channel)
    row = found.row
    pin = reader.row(release_rows.actual_key(channel), release_rows.Actual)
    quarantined: dict[str, channel_rows.Quarantined] = {}
    pinnable: set[str] = set()
    ladder = row.ladder
    shut = reader.many(
        *(
            (channel_rows.quarantine_key(channel, rung.digest), channel_rows.Quarantined)
            for rung in ladder
        )
    )
    known = reader.many(
        *((release_rows.known_key(rung.release_id), release_rows.KnownRelease) for rung in ladder)
    )
    for rung, stop, release in zip(ladder, shut, known, strict=True):
        if stop is not None:
            quarantined[rung.digest] = stop.row
        if release is not None and release.row.lifecycle in catalog.PINNABLE:
            pinnable.add(rung.release_id)
    wanted = None if pin is None else pin.row.pinned_release_id
    active = row.active_rollout_id
    tally = None if active is None else reader.tally(active).row
    return Ladder(
        channel=channel,
        version=found.version,
        wanted=wanted,
        pin_version=None if pin is None else pin.row.version,
        rungs=channel_ladder.judge_ladder(
            row, wanted, None if pin is None else pin.row.digest, quarantined, pinnable, name_of
        ),
        row=row,
        quarantined=tuple(rung.release_id for rung in row.ladder if rung.digest in quarantined),
        newest=tally,
    )
