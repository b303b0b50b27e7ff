"""The state history of every rollout, computed from an export of the log alone.

    {"position": 41, "type": "RolloutOpened", "body": {…}, …}      one line of JSON per event
    web-stable@web.3  41  2026-05-01T06:00:00.000000Z  Opening
    web-stable@web.3  44  2026-05-01T06:00:09.000000Z  Opening → Active  wave 1  w0-1 joined

This is for auditors: it uses no store, no rows and no folds. Its last states equal the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from tidegate import decoders
from tidegate.domain.rollouts import facts, states as rollout_states
from tidegate.errors import InvalidInput
from tidegate.kernel import codec


class ExportedEvent(msgspec.Struct, frozen=True):
    """The members that an exported event must have."""

    position: int
    type: str
    body: msgspec.Raw


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """A state that a rollout entered, and the event that recorded it."""

    position: int
    at: datetime
    state: rollout_states.RolloutState
    current_wave: int
    reason: str = ""
    before: rollout_states.RolloutState | None = None  # None: it was opened


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The state changes of one rollout, from its opening on."""

    rollout_id: str
    channel: str
    target_ref: str
    changes: tuple[StateChange, ...]

    @property
    def opened(self) -> StateChange:
        return self.changes[0]

    @property
    def last(self) -> StateChange:
        return self.changes[-1]


_line = decoders.build(ExportedEvent)
decoders.build(facts.RolloutOpened)
decoders.build(facts.RolloutTransitioned)


def histories(export: Iterable[bytes]) -> dict[str, History]:
    """Return the history of every rollout in an export, by id, in the order of opening.

    Raises:
        InvalidInput: a line is not an event, or events are missing: a rollout was never opened, or
            leaves a state that it was not in.
    """
    found: dict[str, History] = {}
    for number, text in enumerate(export, 1):
        try:
            line = _line.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"line {number} is no event of a log: {error}") from None
        if line.type == facts.RolloutOpened.__name__:
            opened = codec.decode(bytes(line.body), facts.RolloutOpened)
            found.setdefault(opened.rollout_id, _begin(line.position, opened))
        elif line.type == facts.RolloutTransitioned.__name__:
            moved = codec.decode(bytes(line.body), facts.RolloutTransitioned)
            found[moved.rollout_id] = _continue(found.get(moved.rollout_id), line.position, moved)
    return found


def _begin(position: int, opened: facts.RolloutOpened) -> History:
    first = StateChange(
        position=position,
        at=opened.at,
        state=rollout_states.RolloutState.OPENING,
        current_wave=0,
        reason=opened.reason,
    )
    return History(
        rollout_id=opened.rollout_id,
        channel=opened.channel,
        target_ref=opened.target_ref,
        changes=(first,),
    )


def _continue(history: History | None, position: int, moved: facts.RolloutTransitioned) -> History:
    if history is None or history.last.state is not moved.from_:
        actual = "was not opened" if history is None else f"was {history.last.state}"
        raise InvalidInput(
            f"at {position} {moved.rollout_id} leaves {moved.from_}, but it {actual}: "
            "the export is not whole",
            position=position,
        )
    change = StateChange(
        position=position,
        at=moved.at,
        state=moved.to,
        current_wave=moved.current_wave,
        reason=moved.reason,
        before=moved.from_,
    )
    return msgspec.structs.replace(history, changes=(*history.changes, change))


def render(found: dict[str, History]) -> Iterator[str]:
    """Render the histories for people, one line per change."""
    for history in found.values():
        for change in history.changes:
            states = change.state if change.before is None else f"{change.before} → {change.state}"
            columns = (
                history.rollout_id,
                str(change.position),
                codec.time_text(change.at),
                states,
                "" if change.before is None else f"wave {change.current_wave + 1}",
                change.reason,
            )
            yield "  ".join(part for part in columns if part)
