"""The subject of a request, and whether it is still the same.

While a request waits, a hold, a freeze or a window may end, and another may begin under the same
name. So a request remembers a digest of each thing that it names. It becomes void when one of them
has been replaced or changed.

    making     list_parts ──▶ digest_parts ──▶ SeenChannel.subject
    checking   list_parts ──▶ find_changed_part, against SeenChannel.subject
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.domain.access import steps
from tidegate.domain.channels import rows as channel_rows, stops
from tidegate.domain.fleet import rows as fleet_rows, selectors
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.rollouts import rows as rollout_rows, states
from tidegate.domain.windows import rows as window_rows
from tidegate.kernel import model

Command = Mapping[str, Any]


class SubjectPart(NamedTuple):
    """One row that a request is about."""

    name: str
    key: model.Key
    row: type[Any]
    counts: Callable[[Any], object]  # what must not change; None: the thing does not exist
    ended: str  # the description if it no longer exists
    changed: str  # the description if it was replaced or changed


def list_parts(kind: str, channel: str, command: Command) -> tuple[SubjectPart, ...]:
    """List the rows that a request of this kind is about, without its channel and pin."""
    parts = _PARTS.get(kind)
    return () if parts is None else tuple(parts(channel, command))


def digest_parts(parts: Sequence[SubjectPart], rows: Sequence[Any]) -> dict[str, str]:
    """Compute a digest of each part as it is now; empty if it does not exist."""
    return {part.name: _digest(part, row) for part, row in zip(parts, rows, strict=True)}


def find_changed_part(
    parts: Sequence[SubjectPart], rows: Sequence[Any], seen: Mapping[str, str]
) -> str:
    """Describe what ended or changed since the digests were computed; empty if nothing did."""
    for part, row in zip(parts, rows, strict=True):
        found = _digest(part, row)
        if found != seen.get(part.name, ""):
            return part.changed if found else part.ended
    return ""


def _digest(part: SubjectPart, row: Any) -> str:
    value = None if row is None else part.counts(row)
    if value is None:
        return ""
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


# ── releases and rollouts ─────────────────────────────────────────────────────────────────────────


def _release(release_id: str) -> SubjectPart:
    return SubjectPart(
        name="release",
        key=known_key(release_id),
        row=KnownRelease,
        counts=lambda row: row.digest,
        ended=f"{release_id} was deleted",
        changed=f"the content of {release_id} changed",
    )


def _promotion(channel: str, command: Command) -> Iterator[SubjectPart]:
    yield _release(command["release_id"])
    yield from _gates(channel, command.get("overrides") or ())


def _rollback(channel: str, command: Command) -> Iterator[SubjectPart]:
    # A rollback passes all current stops of the channel, because going back is the safe direction.
    yield _release(command["to"])


def _stopped_rollout(channel: str, command: Command) -> Iterator[SubjectPart]:
    """A stopped rollout. It may be retried while the request waits, and stop once more."""
    rollout_id = command["rollout_id"]
    yield SubjectPart(
        name="rollout",
        key=rollout_rows.rollout_key(rollout_id),
        row=rollout_rows.Rollout,
        counts=lambda row: (row.state, row.reverted_at, row.failed_at),
        ended=f"{rollout_id} is gone",
        changed=f"{rollout_id} moved on",
    )


def _open_rollout(channel: str, command: Command) -> Iterator[SubjectPart]:
    rollout_id = command["rollout_id"]
    yield SubjectPart(
        name="rollout",
        key=rollout_rows.rollout_key(rollout_id),
        row=rollout_rows.Rollout,
        counts=lambda row: None if row.in_flight is None else row.opened_at,
        ended=f"{rollout_id} ended",
        changed=f"{rollout_id} moved on",
    )


def _override(channel: str, command: Command) -> Iterator[SubjectPart]:
    yield from _open_rollout(channel, command)
    yield from _gates(channel, (command["gate"],))


def _gates(channel: str, gates: Sequence[str]) -> Iterator[SubjectPart]:
    """What closes the gates to be passed. A later freeze, hold or window is another one."""
    own, copy = stops.stops_keys(channel)
    for name, key in (("", own), (" of all channels", copy)):
        for gate, noun, member in (
            (states.OverridableGate.FREEZE, "freezes", "freezes"),
            (states.OverridableGate.WINDOW, "windows", "windows"),
        ):
            if gate in gates:
                changed = f"the {noun} of {channel} changed"
                yield SubjectPart(
                    name=f"{noun}{name}",
                    key=key,
                    row=stops.ChannelStops,
                    counts=_member(member),
                    ended=changed,
                    changed=changed,
                )
    if states.OverridableGate.HOLD in gates:
        yield _hold(channel)


def _member(name: str) -> Callable[[Any], object]:
    return lambda row: getattr(row, name) or None


# ── what stops a channel ──────────────────────────────────────────────────────────────────────────


def _hold(channel: str) -> SubjectPart:
    return SubjectPart(
        name="hold",
        key=channel_rows.channel_key(channel),
        row=channel_rows.Channel,
        counts=lambda row: None if row.held_at is None else (row.held_at, row.held_by),
        ended="the hold ended",
        changed=f"{channel} was held again",
    )


def _freeze(channel: str, command: Command) -> Iterator[SubjectPart]:
    freeze_id = command["freeze_id"]
    yield SubjectPart(
        name="freeze",
        key=channel_rows.freeze_key(freeze_id),
        row=channel_rows.Freeze,
        counts=lambda row: row,
        ended=f"the freeze {freeze_id} ended",
        changed=f"the freeze {freeze_id} was started again",
    )


def _window(channel: str, command: Command) -> Iterator[SubjectPart]:
    window_id = command.get("window_id") or command["window"]["window_id"]
    yield SubjectPart(
        name="window",
        key=window_rows.window_key(window_id),
        row=window_rows.Window,
        counts=lambda row: row,
        ended=f"the window {window_id} was deleted",
        changed=f"the window {window_id} was changed",
    )


def _quarantine(channel: str, command: Command) -> Iterator[SubjectPart]:
    closure_hash = command["closure_hash"]
    yield SubjectPart(
        name="quarantine",
        key=channel_rows.quarantine_key(channel, closure_hash),
        row=channel_rows.Quarantined,
        counts=lambda row: row,
        ended="the quarantine was lifted",
        changed="the same content was quarantined again",
    )


def _budget(channel: str, command: Command) -> Iterator[SubjectPart]:
    budget_id = command["budget_id"]
    yield SubjectPart(
        name="budget",
        key=fleet_rows.budget_key(budget_id),
        row=fleet_rows.Budget,
        # Without the slots in use, which change with every order.
        counts=lambda row: (
            None if row.removed else (row.selector, row.max_in_flight, row.max_in_flight_pct)
        ),
        ended=f"the budget {budget_id} was removed",
        changed=f"the budget {budget_id} was changed",
    )


def _labels(channel: str, command: Command) -> Iterator[SubjectPart]:
    host_id = command["host_id"]
    yield SubjectPart(
        name="labels",
        key=fleet_rows.host_key(host_id),
        row=fleet_rows.Host,
        # Labels that a host reports itself are kept whatever labels a person sets.
        counts=lambda row: sorted(
            item for item in row.labels.items() if not item[0].startswith(selectors.FACT_PREFIX)
        ),
        ended=f"{host_id} is gone",
        changed=f"the labels of {host_id} were changed",
    )


_PARTS: Final[Mapping[str, Callable[[str, Command], Iterator[SubjectPart]]]] = {
    steps.PROMOTE.name: _promotion,
    steps.ROLL_BACK.name: _rollback,
    steps.RETRY_ROLLOUT.name: _stopped_rollout,
    steps.CLEAR_ROLLOUT.name: _stopped_rollout,
    steps.OVERRIDE_GATE.name: _override,
    steps.SKIP_WAVE.name: _open_rollout,
    steps.PROMOTE_ALL.name: _open_rollout,
    steps.UNHOLD_CHANNEL.name: lambda channel, command: iter((_hold(channel),)),
    steps.END_FREEZE.name: _freeze,
    steps.CREATE_WINDOW.name: _window,
    steps.EDIT_WINDOW.name: _window,
    steps.DELETE_WINDOW.name: _window,
    steps.LIFT_QUARANTINE.name: _quarantine,
    steps.SET_BUDGET.name: _budget,
    steps.REMOVE_BUDGET.name: _budget,
    steps.LABEL_HOST.name: _labels,
}
