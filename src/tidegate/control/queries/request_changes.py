"""Describe what a request would change: the current and the new value of each member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidegate import decoders
from tidegate.control.queries.people import NameOf
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import steps
from tidegate.domain.channels import facts as channel_facts, policy_document, rows as channel_rows
from tidegate.domain.channels.policy import wave_names
from tidegate.domain.fleet import selectors
from tidegate.domain.fleet.rows import Budget, Host, budget_key, host_key
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.requests import changes, rows as request_rows, states, subjects
from tidegate.domain.rollouts import names, rows
from tidegate.domain.times import describe_end, describe_time
from tidegate.domain.windows import facts as window_facts, rows as window_rows, slices

NONE = "none"
VALUE_CHARS_MAX = 200
INCARNATIONS_MAX = 20  # of a release on a channel that are searched for a request's rollout

for _read_here in (
    channel_facts.ChannelPolicy,
    channel_facts.ChannelProtection,
    window_facts.WindowSpec,
):
    decoders.build(_read_here)


class RequestChange(msgspec.Struct, frozen=True):
    """One difference that a request would make."""

    what: str
    before: str
    after: str


class RequestRollout(msgspec.Struct, frozen=True):
    """The rollout that a request opened or refers to."""

    rollout_id: str
    release_id: str
    before: str | None  # the release that the channel wanted before
    hosts: int  # in its plan


def find_rollout(reads: Reads, row: request_rows.ChannelRequest) -> RequestRollout | None:
    """Find the rollout of an executed request; None: none, or too old. A request is executed in the
    same commit as its command, so both have the same time.
    """
    if row.state is states.RequestState.EXECUTED:
        done_at = row.ended_at
    elif row.state in (states.RequestState.TO_REVIEW, states.RequestState.REVIEWED):
        done_at = row.made_at
    else:
        return None
    if "rollout_id" in row.command:
        return _read_rollout(reads, row.command["rollout_id"])
    release_id = row.command.get("release_id") or row.command.get("to")
    if release_id is None:
        return None
    times = reads.find(
        channel_rows.incarnation_key(row.channel, release_id), channel_rows.Incarnation
    )
    count = 0 if times is None else times.row.count
    for number in range(count, max(0, count - INCARNATIONS_MAX), -1):
        rollout_id = names.rollout_id(row.channel, release_id, number)
        found = reads.find(rows.rollout_key(rollout_id), rows.Rollout)
        if found is not None and found.row.opened_at == done_at:
            return _read_rollout(reads, rollout_id)
    return None


def _read_rollout(reads: Reads, rollout_id: str) -> RequestRollout | None:
    rollout, tally = reads.find_all(
        (rows.rollout_key(rollout_id), rows.Rollout),
        (rows.tally_key(rollout_id), rows.RolloutTally),
    )
    if rollout is None or tally is None:
        return None
    return RequestRollout(
        rollout_id=rollout_id,
        release_id=rollout.row.target_ref,
        before=tally.row.rollback_of or rollout.row.previous_ref,
        hosts=sum(wave.hosts for wave in tally.row.waves),
    )


def find_change(reads: Reads, row: request_rows.ChannelRequest) -> str:
    """Describe the change that makes an open request void; empty: none."""
    parts = subjects.list_parts(row.kind, row.channel, row.command)
    found = reads.find_all(
        (channel_rows.channel_key(row.channel), channel_rows.Channel),
        (actual_key(row.channel), Actual),
        *((part.key, part.row) for part in parts),
    )
    channel, pin, *named = (None if item is None else item.row for item in found)
    return changes.find_change(row, channel, pin, named)


def list_changes(
    reads: Reads, name_of: NameOf, row: request_rows.ChannelRequest
) -> tuple[RequestChange, ...]:
    """List what an open request would change now; empty if it is over."""
    if row.state not in states.OPEN:
        return ()
    return tuple(_Changes(reads, name_of, row).lines())


class _Changes:
    def __init__(self, reads: Reads, name_of: NameOf, row: request_rows.ChannelRequest) -> None:
        self._reads = reads
        self._name_of = name_of
        self._row = row
        self._command = row.command
        self._channel = self._find(channel_rows.channel_key(row.channel), channel_rows.Channel)

    def lines(self) -> Iterator[RequestChange]:
        command = self._command
        match self._row.kind:
            case steps.PROMOTE.name:
                yield self._pin(command["release_id"])
                for gate in command.get("overrides") or ():
                    yield RequestChange(f"gate {gate}", "holds the rollout", "passed")
                if command.get("start_at"):
                    yield RequestChange("start", "at once", command["start_at"])
            case steps.ROLL_BACK.name:
                yield from self._rollback()
            case steps.EDIT_CHANNEL.name:
                yield from self._edit()
            case steps.PROTECT_CHANNEL.name:
                yield from self._protection()
            case steps.DELETE_CHANNEL.name:
                yield RequestChange("channel", self._row.channel, "deleted")
            case steps.UNHOLD_CHANNEL.name:
                yield RequestChange("hold", self._hold(), NONE)
            case steps.LIFT_QUARANTINE.name:
                yield self._lift(command["closure_hash"])
            case _:
                yield from self._stops()

    # ── the channel ──

    def _pin(self, release: str) -> RequestChange:
        pin = self._find(actual_key(self._row.channel), Actual)
        return RequestChange("release", NONE if pin is None else pin.pinned_release_id, release)

    def _rollback(self) -> Iterator[RequestChange]:
        command = self._command
        yield self._pin(command["to"])
        if command.get("now"):
            yield RequestChange("waves and soaks", "as the policy says", "all hosts at once")
            yield RequestChange("freeze, hold and window", "hold the rollout", "passed")
        if command.get("ignore_budgets"):
            yield RequestChange("budgets", "kept", "passed")
        if command.get("lift_quarantine"):
            yield RequestChange(f"quarantine of {command['to']}", "in force", "lifted")

    def _edit(self) -> Iterator[RequestChange]:
        if self._channel is None:
            return
        selector, policy = self._command.get("selector"), self._command.get("policy")
        if selector is not None and selector != self._channel.selector:
            yield RequestChange("hosts", self._channel.selector, selector)
        if policy is not None:
            # As it will be executed: missing members get the default of the type, not that of a
            # policy file.
            asked = decoders.convert(policy, channel_facts.ChannelPolicy)
            yield from describe_policy_changes(self._channel.policy, asked)

    def _protection(self) -> Iterator[RequestChange]:
        found = None if self._channel is None else self._channel.protection
        asked = self._command.get("protection")
        if asked is None:
            yield RequestChange("protection", "a second person", NONE)
            return
        wanted = decoders.convert(asked, channel_facts.ChannelProtection)
        yield from _compare(_written(found), _written(wanted))

    def _hold(self) -> str:
        row = self._channel
        if row is None or row.held_by is None:
            return NONE
        return f"by {self._name_of(row.held_by) or row.held_by}: {row.held_reason}"

    def _lift(self, closure_hash: str) -> RequestChange:
        found = self._find(
            channel_rows.quarantine_key(self._row.channel, closure_hash), channel_rows.Quarantined
        )
        if found is None:
            return RequestChange(f"quarantine of {closure_hash[:16]}", NONE, NONE)
        since = f"since {describe_time(found.quarantined_at)}: {found.reason}"
        return RequestChange(f"quarantine of {names.ref_of(found.rollout_id)}", since, "lifted")

    # ── rollouts, and what stops them ──

    def _stops(self) -> Iterator[RequestChange]:
        command = self._command
        match self._row.kind:
            case steps.RETRY_ROLLOUT.name | steps.CLEAR_ROLLOUT.name:
                yield from self._clearance()
            case steps.OVERRIDE_GATE.name:
                yield RequestChange(f"gate {command['gate']}", "holds the rollout", "passed")
            case steps.SKIP_WAVE.name:
                yield RequestChange(f"wave {command['wave']}", "gets the release", "skipped")
            case steps.PROMOTE_ALL.name:
                yield RequestChange("waves", "one after the other", "all now")
            case steps.END_FREEZE.name:
                yield self._thaw(command["freeze_id"])
            case steps.CREATE_WINDOW.name | steps.EDIT_WINDOW.name:
                before = self._find(
                    window_rows.window_key(command["window"]["window_id"]), window_rows.Window
                )
                after = decoders.convert(command["window"], window_facts.WindowSpec)
                old = None if before is None else slices.spec_of(before)
                yield from _compare(_written(old), _written(after))
            case steps.DELETE_WINDOW.name:
                yield RequestChange(f"window {command['window_id']}", "in force", "deleted")
            case steps.SET_BUDGET.name | steps.REMOVE_BUDGET.name:
                yield from self._budget(command)
            case steps.LABEL_HOST.name:
                host = self._find(host_key(command["host_id"]), Host)
                labels, reported = ({}, {}) if host is None else selectors.split_labels(host.labels)
                given = {k: v for k, v in command["labels"].items() if reported.get(k) != v}
                yield from _compare(labels, given, "label ")

    def _clearance(self) -> Iterator[RequestChange]:
        command = self._command
        hosts = ", ".join(command.get("host_ids") or ()) or "failed hosts"
        rollout = self._find(rows.rollout_key(command["rollout_id"]), rows.Rollout)
        waived = command.get("mode") == "waive"
        yield RequestChange(hosts, "stopped", "waived" if waived else "tried again")
        if rollout is None or waived:
            return
        shut = self._find(
            channel_rows.quarantine_key(self._row.channel, rollout.target_closure),
            channel_rows.Quarantined,
        )
        if shut is not None:
            yield self._lift(rollout.target_closure)

    def _thaw(self, freeze_id: str) -> RequestChange:
        freeze = self._find(channel_rows.freeze_key(freeze_id), channel_rows.Freeze)
        if freeze is None:
            return RequestChange(f"freeze {freeze_id}", NONE, NONE)
        by = self._name_of(freeze.operator) or freeze.operator
        return RequestChange(
            f"freeze {freeze_id}", f"by {by}{describe_end(freeze.until)}: {freeze.reason}", "ended"
        )

    def _budget(self, command: Mapping[str, Any]) -> Iterator[RequestChange]:
        found = self._find(budget_key(command["budget_id"]), Budget)
        if self._row.kind == steps.REMOVE_BUDGET.name:
            yield RequestChange(f"budget {command['budget_id']}", "in force", "removed")
            return
        names = ("selector", "max_in_flight", "max_in_flight_pct")
        old = {name: None if found is None else getattr(found, name) for name in names}
        yield from _compare(old, {name: command.get(name) for name in names})

    def _find(self, key: Any, model: type[Any]) -> Any:
        found = self._reads.find(key, model)
        return None if found is None else found.row


# ── policies ──────────────────────────────────────────────────────────────────────────────────────


def describe_policy_changes(
    before: channel_facts.ChannelPolicy, after: channel_facts.ChannelPolicy
) -> Iterator[RequestChange]:
    """List the differences between two policies: waves by name, the rest member by member."""
    old, new = _waves(before), _waves(after)
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield RequestChange(f"wave {name}", old.get(name, NONE), new.get(name, NONE))
    if [name for name in old if name in new] != [name for name in new if name in old]:
        yield RequestChange("order of the waves", ", ".join(old), ", ".join(new))
    for change in policy_document.changes(before, after):
        if not change.path.startswith("waves"):
            yield RequestChange(change.path, _text(change.before), _text(change.after))


def _waves(policy: channel_facts.ChannelPolicy) -> dict[str, str]:
    if not policy.waves:
        return {"rest": "every host at once"}
    return dict(zip(wave_names(policy), map(_wave, policy.waves), strict=True))


def _wave(wave: channel_facts.WaveSpec) -> str:
    size = "all the rest"
    if wave.percent is not None:
        size = f"{wave.percent} % of the hosts"
    elif wave.count is not None:
        size = f"{wave.count} host{'' if wave.count == 1 else 's'}"
    parts = [size if wave.selector == "*" else f"{size} of {wave.selector}"]
    written = msgspec.to_builtins(wave)
    parts += [
        f"{name} {value}"
        for name, value in written.items()
        if name not in ("name", "selector", "percent", "count")
    ]
    return ", ".join(parts)


# ── members ───────────────────────────────────────────────────────────────────────────────────────


def _written(value: msgspec.Struct | None) -> dict[str, Any]:
    """Return all members, including those with default values."""
    if value is None:
        return {}
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _compare(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[RequestChange]:
    for name in dict.fromkeys((*before, *after)):
        old, new = _text(before.get(name)), _text(after.get(name))
        if old != new:
            yield RequestChange(f"{prefix}{name}", old, new)


def _text(value: Any) -> str:
    match value:
        case None | "" | () | []:
            return NONE
        case bool():
            return "yes" if value else "no"
        case str():
            return value[:VALUE_CHARS_MAX]
        case list() | tuple():
            return ", ".join(map(_text, value))[:VALUE_CHARS_MAX]
    return str(value)[:VALUE_CHARS_MAX]
