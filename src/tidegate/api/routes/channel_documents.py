"""Builds the documents of channels that the API returns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.automation import AutomationOperations
from tidegate.control.queries import channel_releases, fleet_picture, history, log_reader
from tidegate.control.queries.as_of import RowHistory
from tidegate.control.queries.edges import edge_of
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.channels import facts, refusals, rows as channel_rows
from tidegate.domain.gates.automation import Automation
from tidegate.domain.gates.edges import EdgeVerdict
from tidegate.domain.gates.overrides import list_overrides
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.rollouts.rows import Rollout, RolloutTally, rollout_key, tally_key
from tidegate.domain.rollouts.states import Outcome
from tidegate.domain.windows import evaluation, rows as window_rows
from tidegate.kernel.model import Position
from tidegate.web import routing


class EdgeShown(msgspec.Struct, frozen=True):
    """A channel that comes first, and whether it blocks the release that is pinned here."""

    channel: str
    require: facts.EdgeRequires
    soak_seconds: int
    blocks: bool
    reason: str
    until: datetime | None  # when it opens without any action


class ChannelListed(channel_rows.Channel, frozen=True, kw_only=True):
    version: int
    wanted: str | None = None  # the release
    actual: channel_releases.ActualReleases | None = None
    newest_outcome: Outcome | None = None  # of the newest rollout; null: it is open


class ChannelShown(channel_rows.Channel, frozen=True, kw_only=True):
    """A channel with its pin, its active rollout, and the channels that come before it."""

    version: int
    pin: Actual | None = None
    # As of now; null in responses to writes and with as_of. In a large fleet up to 15 s old.
    wanted: channel_releases.WantedRelease | None = None
    actual: channel_releases.ActualReleases | None = None
    newest_outcome: Outcome | None = None  # of the newest rollout; null: it is open
    confidence: str | None = None
    active_state: str | None = None
    held_by_name: str | None = None  # null: not held, erased, or not a person
    edges: tuple[EdgeShown, ...] = ()
    # What it does without a person now, or why it does nothing.
    automation: tuple[Automation, ...] = ()
    windows: tuple[str, ...] = ()  # ids of the maintenance windows that cover it
    overrides: tuple[str, ...] = ()  # who overrode which gate of the newest rollout, and until when
    warnings: tuple[str, ...] = ()  # that a hold or a release changed nothing, and why


def demand(reads: Reads, channel: str) -> Found[channel_rows.Channel]:
    """Read the channel's row. Raises: ChannelNotFound."""
    found = reads.find(channel_rows.channel_key(channel), channel_rows.Channel)
    if found is None:
        raise refusals.ChannelNotFound(channel)
    return found


@dataclass(frozen=True)
class ChannelDocuments:
    """Builds the documents of channels that the API returns."""

    reads: Reads
    log: log_reader.LogReader
    row_history: RowHistory
    fleet_reader: FleetReader
    clock: Clock
    automation: AutomationOperations
    people: PeopleNames
    pictures: fleet_picture.FleetPictures

    def show_now(self, channel: str) -> routing.Response:
        """The channel as it is now, with what its hosts run. Raises: ChannelNotFound."""
        found = demand(self.reads, channel)
        answer = self.show(found)
        newest = self._newest(found.row)
        answer.body = msgspec.structs.replace(
            answer.body,
            wanted=channel_releases.find_wanted(self.reads, self.people, channel),
            actual=self._count([channel])[channel],
            newest_outcome=None if newest is None else newest.outcome,
        )
        return answer

    def list_now(self, found: list[Found[channel_rows.Channel]]) -> list[ChannelListed]:
        """These channels, each with the release that it wants and what its hosts run."""
        names = [item.row.channel for item in found]
        if not names:
            return []
        actual = self._count(names)
        pins = self.reads.find_all(*((actual_key(name), Actual) for name in names))
        ids = [item.row.newest_rollout_id or "" for item in found]  # no rollout has the id ""
        tallies = self.reads.find_all(*((tally_key(id), RolloutTally) for id in ids))
        return [
            ChannelListed(
                **msgspec.structs.asdict(item.row),
                version=item.version,
                wanted=None if pin is None else pin.row.pinned_release_id,
                actual=actual[item.row.channel],
                newest_outcome=None if tally is None else tally.row.outcome,
            )
            for item, pin, tally in zip(found, pins, tallies, strict=True)
        ]

    def _count(self, channels: list[str]) -> dict[str, channel_releases.ActualReleases]:
        drawn = {item.channel: item for item in self.pictures.look().channels}
        pictured = [  # a channel that is newer than the picture has no counts yet
            drawn.get(name) or fleet_picture.ChannelPicture(channel=name) for name in channels
        ]
        counts = channel_releases.count_actual(self.reads, pictured)
        return dict(zip(channels, counts, strict=True))

    def _newest(self, row: channel_rows.Channel) -> RolloutTally | None:
        """The newest rollout's tally; None: there is none, or it was pruned."""
        if row.newest_rollout_id is None:
            return None
        found = self.reads.find(tally_key(row.newest_rollout_id), RolloutTally)
        return None if found is None else found.row

    def show(self, found: Found[channel_rows.Channel]) -> routing.Response:
        """The channel as it is now, with its pin, rollout, edges and windows."""
        row = found.row
        keys: list[Any] = [(actual_key(row.channel), Actual)]
        if row.active_rollout_id is not None:
            keys.append((rollout_key(row.active_rollout_id), Rollout))
        pin, *active = self.reads.find_all(*keys)
        now = self.clock()
        windows = [
            item
            for item in self.reads.iterate(window_rows.WINDOWS)
            if evaluation.covers_channel(item.row, row.channel, row.package)
        ]
        edges = [edge_of(self.fleet_reader, row, pin, edge, now) for edge in row.policy.edges]
        body = ChannelShown(
            **msgspec.structs.asdict(row),
            version=found.version,
            pin=None if pin is None else pin.row,
            confidence=None if pin is None else pin.row.confidence.level,
            active_state=active[0].row.state if active and active[0] is not None else None,
            held_by_name=self.people.find_name(row.held_by),
            edges=tuple(map(self._edge, row.policy.edges, edges)),
            automation=tuple(
                msgspec.structs.replace(item, sentence=self.people.name_in(item.sentence))
                for item in self.automation.show(row)
            ),
            windows=tuple(item.row.window_id for item in windows),
            overrides=self._overrides(row, now),
        )
        return routing.Response(body, version=found.version)

    def _overrides(self, row: channel_rows.Channel, now: datetime) -> tuple[str, ...]:
        tally = self._newest(row)
        found_overrides = () if tally is None else list_overrides(tally, now)
        return tuple(self.people.name_in(sentence) for sentence, _ in found_overrides)

    def show_written(
        self, channel: str, position: Position, warnings: tuple[str, ...] = ()
    ) -> routing.Response:
        """The channel right after a command. A repeated request gets the first response again."""
        found = demand(self.reads, channel)
        if found.version > position:
            found = history.channel_at(self.log, self.row_history, channel, position) or found
        answer = self.show(found)
        answer.position = position
        if warnings:
            named = tuple(map(self.people.name_in, warnings))
            answer.body = msgspec.structs.replace(answer.body, warnings=named)
        return answer

    def _edge(self, edge: facts.ChannelEdge, found: EdgeVerdict) -> EdgeShown:
        return EdgeShown(
            channel=edge.channel,
            require=edge.require,
            soak_seconds=edge.soak_seconds,
            blocks=not found.passed,
            reason=self.people.name_in(found.reason),
            until=found.until,
        )
