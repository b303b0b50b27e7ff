"""The commands on the fleet: hosts come, are labelled, go silent and leave; budgets are set.

A host's labels decide its channels, so whoever sets them reads the fleet's row: of a label and a
channel's selector that would meet, the second to commit is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from tidegate.domain.fleet.claims import claims
from tidegate.domain.fleet.facts import (
    BudgetRemoved,
    BudgetSet,
    HostEnrolled,
    HostFactsNoted,
    HostHeard,
    HostLabelled,
    HostRetired,
    HostRevoked,
    HostSilent,
)
from tidegate.domain.fleet.refusals import BudgetNotFound, HostGone, HostIsEnrolled, HostNotFound
from tidegate.domain.fleet.rows import (
    ENROLLED,
    RETIRED,
    REVOKED,
    Budget,
    ChannelScope,
    Fleet,
    Host,
    Liveness,
    budget_key,
    fleet_key,
    host_key,
    liveness_key,
)
from tidegate.domain.fleet.selectors import (
    check_host_id,
    check_labels,
    fact_labels,
    parse,
    split_labels,
)
from tidegate.errors import InvalidInput
from tidegate.kernel.model import Key, Position, check_text
from tidegate.kernel.slices import Slice

OPERATOR_BYTES_MAX = 128
REASON_BYTES_MAX = 1_024
FACTS_EVERY: Final = timedelta(minutes=10)  # how often a host may change its own labels

_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
_BUDGET_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class EnrollHost(Struct, frozen=True, kw_only=True):
    """Make a host known by its agent's key. ``labels`` of None: those that it had before."""

    host_id: str
    public_key: str
    labels: dict[str, str] | None = None
    operator: str = ""  # who made the token that the agent traded


class LabelHost(Struct, frozen=True, kw_only=True):
    """Give a host these labels, in place of those that it has."""

    host_id: str
    labels: dict[str, str]
    operator: str
    expected_version: int | None = None  # of its row, as the operator saw it


class NoteFacts(Struct, frozen=True, kw_only=True):
    """Let selectors see what a host says of itself, under the keys that an operator allows."""

    host_id: str
    facts: dict[str, str]


class RevokeHost(Struct, frozen=True, kw_only=True):
    """Let a host's key count no more. It may enroll again, by another."""

    host_id: str
    operator: str
    reason: str


class RetireHost(Struct, frozen=True, kw_only=True):
    """Take a host out of the fleet, until it enrolls again with a token made for that."""

    host_id: str
    operator: str
    reason: str


class NoteSilence(Struct, frozen=True, kw_only=True):
    """Say that nothing was heard of a host since this time."""

    host_id: str
    last_seen_at: datetime


class NoteHeard(Struct, frozen=True, kw_only=True):
    """Say that a host was heard again."""

    host_id: str


class SetBudget(Struct, frozen=True, kw_only=True):
    """Bound how many of these hosts are in flight at once: a number, a share of them, or both."""

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
    rows: tuple[Host | None, Fleet | None], command: EnrollHost, now: datetime
) -> Sequence[Struct]:
    """Raises: InvalidLabel, InvalidInput, HostGone, HostIsEnrolled, SelectorOverlap."""
    host, fleet = rows
    check_host_id(command.host_id)
    if not _PUBLIC_KEY.fullmatch(command.public_key):
        raise InvalidInput("a public key is 64 hexadecimal digits", field="public_key")
    labels = command.labels
    if labels is None:
        labels = {} if host is None else split_labels(host.labels)[0]
    check_labels(labels)
    if host is not None and host.status == RETIRED:
        raise HostGone(command.host_id)
    if host is not None and host.status == ENROLLED:
        if host.public_key != command.public_key:
            raise HostIsEnrolled(command.host_id)
        return ()
    claims(_scopes(fleet), command.host_id, labels)
    return (
        HostEnrolled(
            host_id=command.host_id,
            at=now,
            public_key=command.public_key,
            labels=labels,
            operator=command.operator,
            again=host is not None,
        ),
    )


def decide_label(
    rows: tuple[Host | None, Fleet | None], command: LabelHost, now: datetime
) -> Sequence[Struct]:
    """Raises: HostNotFound, HostGone, InvalidLabel, SelectorOverlap."""
    host = demand_host(rows[0], command.host_id)
    before, said = split_labels(host.labels)
    # A client may send back what comes from the host, as it read it.
    given = {key: value for key, value in command.labels.items() if said.get(key) != value}
    check_labels(given)
    check_text("operator", command.operator, OPERATOR_BYTES_MAX)
    if given == before:
        return ()
    claims(_scopes(rows[1]), command.host_id, {**given, **said})
    return (HostLabelled(host_id=command.host_id, at=now, labels=given, operator=command.operator),)


def decide_facts(
    rows: tuple[Host | None, Fleet | None], command: NoteFacts, now: datetime
) -> Sequence[Struct]:
    """Nothing follows if its labels are these, or changed a moment ago; fewer are taken at once.

    Raises:
        SelectorOverlap.
    """
    host = rows[0]
    if host is None or host.status == RETIRED:
        return ()
    given, before = split_labels(host.labels)
    after = fact_labels(command.facts)
    if after == before:
        return ()
    is_early = host.facts_at is not None and now - host.facts_at < FACTS_EVERY
    if is_early and not after.items() <= before.items():
        return ()
    claims(_scopes(rows[1]), command.host_id, {**given, **after})
    return (HostFactsNoted(host_id=command.host_id, at=now, facts=command.facts),)


def decide_revoke(rows: tuple[Host | None], command: RevokeHost, now: datetime) -> Sequence[Struct]:
    """Raises: HostNotFound, HostGone."""
    host = demand_host(rows[0], command.host_id)
    _check_said(command.operator, command.reason)
    if host.status == REVOKED:
        return ()
    return (
        HostRevoked(
            host_id=command.host_id, at=now, operator=command.operator, reason=command.reason
        ),
    )


def decide_retire(rows: tuple[Host | None], command: RetireHost, now: datetime) -> Sequence[Struct]:
    """Raises: HostNotFound."""
    _check_said(command.operator, command.reason)
    if rows[0] is not None and rows[0].status == RETIRED:
        return ()
    demand_host(rows[0], command.host_id)
    return (
        HostRetired(
            host_id=command.host_id, at=now, operator=command.operator, reason=command.reason
        ),
    )


def decide_silence(
    rows: tuple[Host | None, Liveness | None], command: NoteSilence, now: datetime
) -> Sequence[Struct]:
    """Nothing follows if the host was heard meanwhile, is silent already, or is not expected."""
    host, liveness = rows
    if host is None or host.status == RETIRED or host.silent_since is not None:
        return ()
    if liveness is not None and liveness.last_seen_at > command.last_seen_at:
        return ()
    return (HostSilent(host_id=command.host_id, at=now, last_seen_at=command.last_seen_at),)


def decide_heard(rows: tuple[Host | None], command: NoteHeard, now: datetime) -> Sequence[Struct]:
    """Nothing follows unless the host was silent."""
    host = rows[0]
    if host is None or host.status == RETIRED or host.silent_since is None:
        return ()
    return (HostHeard(host_id=command.host_id, at=now),)


def demand_host(host: Host | None, host_id: str) -> Host:
    """Raises: HostNotFound, HostGone."""
    if host is None:
        raise HostNotFound(host_id)
    if host.status == RETIRED:
        raise HostGone(host_id)
    return host


# ── budgets ───────────────────────────────────────────────────────────────────────────────────────


def decide_set(rows: tuple[Budget | None], command: SetBudget, now: datetime) -> Sequence[Struct]:
    """Raises: InvalidInput, InvalidSelector."""
    if not _BUDGET_ID.fullmatch(command.budget_id):
        raise InvalidInput(
            f"a budget is named by at most 63 of a-z 0-9 -, found {command.budget_id[:80]!r}",
            field="budget_id",
        )
    parse(command.selector)
    check_text("operator", command.operator, OPERATOR_BYTES_MAX)
    _check_bound("max_in_flight", command.max_in_flight, None)
    _check_bound("max_in_flight_pct", command.max_in_flight_pct, 100)
    asked = (command.selector, command.max_in_flight, command.max_in_flight_pct, False)
    found = rows[0]
    if found is not None:
        stands = (found.selector, found.max_in_flight, found.max_in_flight_pct, found.removed)
        if stands == asked:
            return ()
    return (
        BudgetSet(
            budget_id=command.budget_id,
            selector=command.selector,
            operator=command.operator,
            at=now,
            max_in_flight=command.max_in_flight,
            max_in_flight_pct=command.max_in_flight_pct,
        ),
    )


def loosens_budget(found: Budget, command: SetBudget) -> bool:
    """Whether a budget limits other hosts than before, or allows more of them."""
    if command.selector != found.selector:
        return True
    before = (found.max_in_flight, found.max_in_flight_pct)
    after = (command.max_in_flight, command.max_in_flight_pct)
    return any(
        old is not None and (new is None or new > old)
        for old, new in zip(before, after, strict=True)
    )


def decide_remove(
    rows: tuple[Budget | None], command: RemoveBudget, now: datetime
) -> Sequence[Struct]:
    """Raises: BudgetNotFound."""
    check_text("operator", command.operator, OPERATOR_BYTES_MAX)
    if rows[0] is None:
        raise BudgetNotFound(command.budget_id)
    if rows[0].removed:
        return ()
    return (BudgetRemoved(budget_id=command.budget_id, operator=command.operator, at=now),)


def _scopes(fleet: Fleet | None) -> tuple[ChannelScope, ...]:
    return () if fleet is None else fleet.channels


def _check_said(operator: str, reason: str) -> None:
    check_text("operator", operator, OPERATOR_BYTES_MAX)
    check_text("a reason", reason.strip(), REASON_BYTES_MAX)


def _check_bound(what: str, found: int | None, most: int | None) -> None:
    if found is not None and (found < 1 or (most is not None and found > most)):
        allowed = "1 or more" if most is None else f"1 … {most}"
        raise InvalidInput(f"{what} is {found}, allowed is {allowed}", field=what)


def _host(command: RevokeHost | RetireHost | NoteHeard) -> tuple[Key, ...]:
    return (host_key(command.host_id),)


def _host_and_fleet(command: EnrollHost | LabelHost | NoteFacts) -> tuple[Key, ...]:
    return host_key(command.host_id), fleet_key()


def _host_seen(command: LabelHost) -> dict[Key, Position]:
    if command.expected_version is None:
        return {}
    return {host_key(command.host_id): command.expected_version}


enroll_host = Slice(
    name="enroll-host",
    command=EnrollHost,
    writes=(HostEnrolled,),
    rows=_host_and_fleet,
    decide=decide_enroll,
)
label_host = Slice(
    name="label-host",
    command=LabelHost,
    writes=(HostLabelled,),
    rows=_host_and_fleet,
    expects=_host_seen,
    decide=decide_label,
)
note_facts = Slice(
    name="note-facts",
    command=NoteFacts,
    writes=(HostFactsNoted,),
    rows=_host_and_fleet,
    decide=decide_facts,
)
revoke_host = Slice(
    name="revoke-host",
    command=RevokeHost,
    writes=(HostRevoked,),
    rows=_host,
    decide=decide_revoke,
)
retire_host = Slice(
    name="retire-host",
    command=RetireHost,
    writes=(HostRetired,),
    rows=_host,
    decide=decide_retire,
)
note_silence = Slice(
    name="note-silence",
    command=NoteSilence,
    writes=(HostSilent,),
    rows=lambda command: (host_key(command.host_id), liveness_key(command.host_id)),
    decide=decide_silence,
)
note_heard = Slice(
    name="note-heard",
    command=NoteHeard,
    writes=(HostHeard,),
    rows=_host,
    decide=decide_heard,
)
set_budget = Slice(
    name="set-budget",
    command=SetBudget,
    writes=(BudgetSet,),
    rows=lambda command: (budget_key(command.budget_id),),
    decide=decide_set,
)
remove_budget = Slice(
    name="remove-budget",
    command=RemoveBudget,
    writes=(BudgetRemoved,),
    rows=lambda command: (budget_key(command.budget_id),),
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
