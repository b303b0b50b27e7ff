"""List rollouts with their tallies, newest first, with filters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import Struct

from tidegate.control.queries.reads import Found, Reads
from tidegate.domain.rollouts import rows, states

PAGE: Final = 200  # rows per read
PAGES_MAX: Final = 25  # read for one response: a rare outcome may need several
TALLIES_MAX: Final = 50  # rows per read


class RolloutsWanted(Struct, frozen=True, kw_only=True):
    """The filters of a list of rollouts; None matches all."""

    channel: str | None = None
    state: states.RolloutState | None = None
    outcomes: frozenset[states.Outcome] = frozenset()
    since: datetime | None = None
    had_failures: bool = False
    ended: bool | None = None  # True: only ended ones, False: only open ones


class ListedRollout(NamedTuple):
    rollout: Found[rows.Rollout]
    tally: rows.RolloutTally | None


def newest_rollouts(
    reads: Reads,
    wanted: RolloutsWanted,
    sees: Callable[[rows.Rollout], bool],
    *,
    after: str,
    limit: int,
) -> tuple[list[ListedRollout], str | None]:
    """List matching rollouts, newest first, and where the next page starts; None: no next page.

    With a filter, a page may be short or empty and still have a next one.
    """
    index, of = ("by_opening", ()) if wanted.channel is None else _of_channel(wanted.channel)
    listed: list[ListedRollout] = []
    for _ in range(PAGES_MAX):
        page = reads.newest(rows.ROLLOUTS, index, of=of, after=after, limit=PAGE)
        kept = [item for item in page if sees(item.row) and _fits_row(wanted, item.row)]
        for item in _with_tallies(reads, kept):
            if _fits_tally(wanted, item.tally):
                listed.append(item)
            if len(listed) == limit:
                return listed, item.rollout.entry
        if len(page) < PAGE or _is_before(page[-1].row, wanted.since):
            return listed, None
        after = page[-1].entry
    return listed, after


def _of_channel(channel: str) -> tuple[str, tuple[str, ...]]:
    return "channel_opening", (channel,)


def _with_tallies(reads: Reads, found: list[Found[rows.Rollout]]) -> list[ListedRollout]:
    listed: list[ListedRollout] = []
    for start in range(0, len(found), TALLIES_MAX):
        some = found[start : start + TALLIES_MAX]
        keys = [(rows.tally_key(item.row.rollout_id), rows.RolloutTally) for item in some]
        for item, tally in zip(some, reads.find_all(*keys), strict=True):
            listed.append(ListedRollout(item, None if tally is None else tally.row))
    return listed


def _is_before(row: rows.Rollout, since: datetime | None) -> bool:
    return since is not None and row.opened_at < since


def _fits_row(wanted: RolloutsWanted, row: rows.Rollout) -> bool:
    return (
        wanted.state in (None, row.state)
        and not _is_before(row, wanted.since)
        and (wanted.ended is None or wanted.ended is (row.in_flight is None))
    )


def _fits_tally(wanted: RolloutsWanted, tally: rows.RolloutTally | None) -> bool:
    if tally is None:
        return not wanted.outcomes and not wanted.had_failures
    return (not wanted.outcomes or tally.outcome in wanted.outcomes) and (
        not wanted.had_failures or tally.failures > 0
    )
