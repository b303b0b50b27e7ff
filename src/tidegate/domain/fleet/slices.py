"""The commands on the fleet: hosts enroll, are labelled, fall silent and retire; budgets are set.

A host's labels decide its channels, so every command that sets them reads the fleet's row. If a
label and a channel's selector conflict, the second commit is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from tidegate.domain.fleet import (
    facts as fleet_facts,
    refusals,
    rows as fleet_rows,
    selectors as fleet_selectors,
)
from tidegate.domain.fleet.claims import claims
from tidegate.errors import InvalidInput
from tidegate.kernel import model, slices

OPERATOR_BYTES_MAX = 128
REASON_BYTES_MAX = 1_024
FACTS_EVERY: Final = timedelta(minutes=10)  # how often a host may change its own labels

_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
_BUDGET_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class EnrollHost(Struct, frozen=True, kw_only=True):
    """Enroll a host by its agent's key. ``labels`` of None: it keeps those that it had."""

    host_id: str
    public_key: str
    labels: dict[str, str] | None = None
    operator: str = ""  # who made the token that the agent used


class LabelHost(Struct, frozen=True, kw_only=True):
    """Replace the labels of a host."""

    host_id: str
    labels: dict[str, str]
    operator: str
    expected_version: int | None = None  # of its row, as the operator saw it


class NoteFacts(Struct, frozen=True, kw_only=True):
    """Let selectors see what a host reports about itself, under the keys that an operator
    allows.
    """

    host_id: str
    facts: dict[str, str]


class RevokeHost(Struct, frozen=True, kw_only=True):
    """Revoke a host's key. The host may enroll again with another."""

    host_id: str
    operator: str
    reason: str


class RetireHost(Struct, frozen=True, kw_only=True):
    """Remove a host from the fleet, until it enrolls again with a token made for that."""

    host_id: str
    operator: str
    reason: str


class NoteSilence(Struct, frozen=True, kw_only=True):
    """Record that a host has been silent since this time."""

    host_id: str
    last_seen_at: datetime


class NoteHeard(Struct, frozen=True, kw_only=True):
    """Record that a host reports again."""

    host_id: str


class SetBudget(Struct, frozen=True, kw_only=True):
    """Limit how many of these hosts are in flight at once: by number, share, or both."""

    budget_id: str
    selector: str
    operator: str
    max_in_flight: int | None = None
    max_in_flight_pct: int | None = None


class RemoveBudget(Struct, frozen=True, kw_only=True):
    budget_id: str
    operator: str


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────


def decide_enroll(
    rows: tuple[fleet_rows.Host | None, fleet_rows.Fleet | None], command: EnrollHost, now: datetime
) -> Sequence[Struct]:
    """Raises: InvalidLabel, InvalidInput, HostGone, HostIsEnrolled, SelectorOverlap."""
    host, fleet = rows
    fleet_selectors.check_host_id(command.host_id)
    if not _PUBLIC_KEY.fullmatch(command.public_key):
        raise InvalidInput("a public key is 64 hexadecimal digits", field="public_key")
    labels = command.labels
    if labels is None:
        labels = {} if host is None else fleet_selectors.split_labels(host.labels)[0]
    fleet_selectors.check_labels(labels)
    if host is not None and host.status == fleet_rows.RETIRED:
        raise refusals.HostGone(command.host_id)
    if host is not None and host.status == fleet_rows.ENROLLED:
        if host.public_key != command.public_key:
            raise refusals.HostIsEnrolled(command.host_id)
        return ()
    claims(_scopes(fleet), command.host_id, labels)
    return (
        fleet_facts.HostEnrolled(
            host_id=command.host_id,
            at=now,
            public_key=command.public_key,
            labels=labels,
            operator=command.operator,
            again=host is not None,
        ),
    )


def decide_label(
    rows: tuple[fleet_rows.Host | None, fleet_rows.Fleet | None], command: LabelHost, now: datetime
) -> Sequence[Struct]:
    """Raises: HostNotFound, HostGone, InvalidLabel, SelectorOverlap."""
    host = demand_host(rows[0], command.host_id)
    before, reported = fleet_selectors.split_labels(host.labels)
    # A client may send back labels from the host, as it read them.
    given = {key: value for key, value in command.labels.items() if reported.get(key) != value}
    fleet_selectors.check_labels(given)
    model.check_text("operator", command.operator, OPERATOR_BYTES_MAX)
    if given == before:
        return ()
    claims(_scopes(rows[1]), command.host_id, {**given, **reported})
    return (
        fleet_facts.HostLabelled(
            host_id=command.host_id, at=now, labels=given, operator=command.operator
        ),
    )


def decide_facts(
    rows: tuple[fleet_rows.Host | None, fleet_rows.Fleet | None], command: NoteFacts, now: datetime
) -> Sequence[Struct]:
    """Record the labels, unless they are the same or changed too recently.

    If labels were only removed, this is recorded at once.

    Raises:
        SelectorOverlap.
    """
    host = rows[0]
    if host is None or host.status == fleet_rows.RETIRED:
        return ()
    given, before = fleet_selectors.split_labels(host.labels)
    after = fleet_selectors.fact_labels(command.facts)
    if after == before:
        return ()
    is_early = host.facts_at is not None and now - host.facts_at < FACTS_EVERY
    if is_early and not after.items() <= before.items():
        return ()
    claims(_scopes(rows[1]), command.host_id, {**given, **after})
    return (fleet_facts.HostFactsNoted(host_id=command.host_id, at=now, facts=command.facts),)


def decide_revoke(
    rows: tuple[fleet_rows.Host | None], command: RevokeHost, now: datetime
) -> Sequence[Struct]:
    """Raises: HostNotFound, HostGone."""
    host = demand_host(rows[0], command.host_id)
    _check_operator(command.operator, command.reason)
    if host.status == fleet_rows.REVOKED:
        return ()
    return (
        fleet_facts.HostRevoked(
            host_id=command.host_id, at=now, operator=command.operator, reason=command.reason
        ),
    )


def decide_retire(
    rows: tuple[fleet_rows.Host | None], command: RetireHost, now: datetime
) -> Sequence[Struct]:
    """Raises: HostNotFound."""
    _check_operator(command.operator, command.reason)
    if rows[0] is not None and rows[0].status == fleet_rows.RETIRED:
        return ()
    demand_host(rows[0], command.host_id)
    return (
        fleet_facts.HostRetired(
            host_id=command.host_id, at=now, operator=command.operator, reason=command.reason
        ),
    )


def decide_silence(
    rows: tuple[fleet_rows.Host | None, fleet_rows.Liveness | None],
    command: NoteSilence,
    now: datetime,
) -> Sequence[Struct]:
    """Record the silence, unless the host has reported since, is already silent, or is not
    expected.
    """
    host, liveness = rows
    if host is None or host.status == fleet_rows.RETIRED or host.silent_since is not None:
        return ()
    if liveness is not None and liveness.last_seen_at > command.last_seen_at:
        return ()
    return (
        fleet_facts.HostSilent(host_id=command.host_id, at=now, last_seen_at=command.last_seen_at),
    )


def decide_heard(
    rows: tuple[fleet_rows.Host | None], command: NoteHeard, now: datetime
) -> Sequence[Struct]:
    """Record that the host reports again, if it was silent."""
    host = rows[0]
    if host is None or host.status == fleet_rows.RETIRED or host.silent_since is None:
        return ()
    return (fleet_facts.HostHeard(host_id=command.host_id, at=now),)


def demand_host(host: fleet_rows.Host | None, host_id: str) -> fleet_rows.Host:
    """Raises: HostNotFound, HostGone."""
    if host is None:
        raise refusals.HostNotFound(host_id)
    if host.status == fleet_rows.RETIRED:
        raise refusals.HostGone(host_id)
    return host


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────


def decide_set(
    rows: tuple[fleet_rows.Budget | None], command: SetBudget, now: datetime
) -> Sequence[Struct]:
    """Raises: InvalidInput, InvalidSelector."""
    if not _BUDGET_ID.fullmatch(command.budget_id):
        raise InvalidInput(
            f"a budget is named by at most 63 of a-z 0-9 -, found {command.budget_id[:80]!r}",
            field="budget_id",
        )
    fleet_selectors.parse(command.selector)
    model.check_text("operator", command.operator, OPERATOR_BYTES_MAX)
    _check_bound("max_in_flight", command.max_in_flight, None)
    _check_bound("max_in_flight_pct", command.max_in_flight_pct, 100)
    asked = (command.selector, command.max_in_flight, command.max_in_flight_pct, False)
    found = rows[0]
    if found is not None:
        current = (found.selector, found.max_in_flight, found.max_in_flight_pct, found.removed)
        if current == asked:
            return ()
    return (
        fleet_facts.BudgetSet(
            budget_id=command.budget_id,
            selector=command.selector,
            operator=command.operator,
            at=now,
            max_in_flight=command.max_in_flight,
            max_in_flight_pct=command.max_in_flight_pct,
        ),
    )


def loosens_budget(found: fleet_rows.Budget, command: SetBudget) -> bool:
    """Whether a budget would limit other hosts than before, or allow more of them."""
    if command.selector != found.selector:
        return True
    before = (found.max_in_flight, found.max_in_flight_pct)
    after = (command.max_in_flight, command.max_in_flight_pct)
    return any(
        old is not None and (new is None or new > old)
        for old, new in zip(before, after, strict=True)
    )


def decide_remove(
    rows: tuple[fleet_rows.Budget | None], command: RemoveBudget, now: datetime
) -> Sequence[Struct]:
    """Raises: BudgetNotFound."""
    model.check_text("operator", command.operator, OPERATOR_BYTES_MAX)
    if rows[0] is None:
        raise refusals.BudgetNotFound(command.budget_id)
    if rows[0].removed:
        return ()
    return (
        fleet_facts.BudgetRemoved(budget_id=command.budget_id, operator=command.operator, at=now),
    )


def _scopes(fleet: fleet_rows.Fleet | None) -> tuple[fleet_rows.ChannelScope, ...]:
    return () if fleet is None else fleet.channels


def _check_operator(operator: str, reason: str) -> None:
    model.check_text("operator", operator, OPERATOR_BYTES_MAX)
    model.check_text("a reason", reason.strip(), REASON_BYTES_MAX)


def _check_bound(what: str, found: int | None, most: int | None) -> None:
    if found is not None and (found < 1 or (most is not None and found > most)):
        allowed = "1 or more" if most is None else f"1 … {most}"
        raise InvalidInput(f"{what} is {found}, allowed is {allowed}", field=what)


def _host(command: RevokeHost | RetireHost | NoteHeard) -> tuple[model.Key, ...]:
    return (fleet_rows.host_key(command.host_id),)


def _host_and_fleet(command: EnrollHost | LabelHost | NoteFacts) -> tuple[model.Key, ...]:
    return fleet_rows.host_key(command.host_id), fleet_rows.fleet_key()


def _expect_version(command: LabelHost) -> dict[model.Key, model.Position]:
    if command.expected_version is None:
        return {}
    return {fleet_rows.host_key(command.host_id): command.expected_version}


enroll_host = slices.Slice(
    name="enroll-host",
    command=EnrollHost,
    writes=(fleet_facts.HostEnrolled,),
    rows=_host_and_fleet,
    decide=decide_enroll,
)
label_host = slices.Slice(
    name="label-host",
    command=LabelHost,
    writes=(fleet_facts.HostLabelled,),
    rows=_host_and_fleet,
    expects=_expect_version,
    decide=decide_label,
)
note_facts = slices.Slice(
    name="note-facts",
    command=NoteFacts,
    writes=(fleet_facts.HostFactsNoted,),
    rows=_host_and_fleet,
    decide=decide_facts,
)
revoke_host = slices.Slice(
    name="revoke-host",
    command=RevokeHost,
    writes=(fleet_facts.HostRevoked,),
    rows=_host,
    decide=decide_revoke,
)
retire_host = slices.Slice(
    name="retire-host",
    command=RetireHost,
    writes=(fleet_facts.HostRetired,),
    rows=_host,
    decide=decide_retire,
)
note_silence = slices.Slice(
    name="note-silence",
    command=NoteSilence,
    writes=(fleet_facts.HostSilent,),
    rows=lambda command: (
        fleet_rows.host_key(command.host_id),
        fleet_rows.liveness_key(command.host_id),
    ),
    decide=decide_silence,
)
note_heard = slices.Slice(
    name="note-heard",
    command=NoteHeard,
    writes=(fleet_facts.HostHeard,),
    rows=_host,
    decide=decide_heard,
)
set_budget = slices.Slice(
    name="set-budget",
    command=SetBudget,
    writes=(fleet_facts.BudgetSet,),
    rows=lambda command: (fleet_rows.budget_key(command.budget_id),),
    decide=decide_set,
)
remove_budget = slices.Slice(
    name="remove-budget",
    command=RemoveBudget,
    writes=(fleet_facts.BudgetRemoved,),
    rows=lambda command: (fleet_rows.budget_key(command.budget_id),),
    decide=decide_remove,
)
SLICES = (
    enroll_host,
    label_host,
    note_facts,
    revoke_host,
    retire_host,
    note_silence,
    note_heard,
    set_budget,
    remove_budget,
)
