"""A rollout in miniature: hosts report, each settles once, with one tally and one final fact.

HostReported ──▶ host machine ──▶ HostSettled ──▶ tally machine ──▶ RolloutSettled + an intent
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from tidegate.errors import NotFound, Refused
from tidegate.kernel.collections import Collection, Index, Nature, Writers
from tidegate.kernel.folds import Folds, Machine, WorkRow
from tidegate.kernel.model import Key
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Partition, Untagged
from tidegate.kernel.vocabulary import Vocabulary, facts

# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


class RolloutStarted(Struct, frozen=True):
    rollout_id: Annotated[str, Partition()]
    hosts: int


class HostReported(Struct, frozen=True):
    rollout_id: Annotated[str, Partition()]
    host_id: Annotated[str, Untagged()]
    seq: int
    healthy: bool


class HostSettled(Struct, frozen=True):
    rollout_id: Annotated[str, Partition()]
    host_id: Annotated[str, Untagged()]


class RolloutSettled(Struct, frozen=True):
    rollout_id: Annotated[str, Partition()]
    hosts: int


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────


class Host(Struct, frozen=True, omit_defaults=True):
    rollout_id: str
    host_id: str
    state: str = "pending"
    seq: int = 0


class Tally(Struct, frozen=True, omit_defaults=True):
    rollout_id: str
    hosts: int = 0
    settled: int = 0
    done: bool = False


class Notice(Struct, frozen=True):
    text: str


HOSTS = Collection(
    "miniature_hosts",
    Host,
    writers=Writers.FOLDED,
    nature=Nature.CACHE,
    columns=("rollout_id", "state"),
    allowed={"state": frozenset({"pending", "active", "settled"})},
    indexes=(Index("by_state", ("rollout_id", "state")),),
)
TALLIES = Collection("miniature_tallies", Tally, writers=Writers.FOLDED, nature=Nature.DERIVED)
NOTICES = Collection("miniature_notices", Notice, nature=Nature.QUEUE)


# ── machines ──────────────────────────────────────────────────────────────────────────────────────


def host_id(fact: HostReported) -> tuple[str, ...]:
    return (f"{fact.rollout_id}/{fact.host_id}",)


def step_host(host: Host, fact: HostReported, now: datetime) -> tuple[Host, Sequence[Struct]]:
    state = "settled" if fact.healthy else "active"
    settles = state == "settled" != host.state
    effects = (HostSettled(fact.rollout_id, fact.host_id),) if settles else ()
    return replace(host, state=state, seq=fact.seq), effects


def step_tally(
    tally: Tally, fact: RolloutStarted | HostSettled | RolloutSettled, now: datetime
) -> tuple[Tally, Sequence[Struct]]:
    match fact:
        case RolloutStarted(hosts=hosts):
            return replace(tally, hosts=hosts), ()
        case HostSettled():
            tally = replace(tally, settled=tally.settled + 1)
            if tally.settled == tally.hosts:
                return tally, (RolloutSettled(tally.rollout_id, tally.hosts),)
            return tally, ()
        case RolloutSettled():
            notice = WorkRow(Key(NOTICES.name, tally.rollout_id), Notice("settled"))
            return replace(tally, done=True), (notice,)


host_machine = Machine(
    collection=HOSTS,
    number=1,
    reads=(HostReported,),
    ids=host_id,
    start=lambda id, fact: Host(fact.rollout_id, fact.host_id),
    step=step_host,
)
tally_machine = Machine(
    collection=TALLIES,
    number=1,
    reads=(RolloutStarted, HostSettled, RolloutSettled),
    ids=lambda fact: (fact.rollout_id,),
    start=lambda id, fact: Tally(id),
    step=step_tally,
)


# ── slices ────────────────────────────────────────────────────────────────────────────────────────


class StartRollout(Struct, frozen=True):
    rollout_id: str
    hosts: int


class ReportHost(Struct, frozen=True):
    rollout_id: str
    host_id: str
    seq: int
    healthy: bool


class SequenceGap(Refused):
    """The host's previous report is missing; send it first."""

    code = "sequence_gap"


def decide_start(
    rows: tuple[Tally | None], command: StartRollout, now: datetime
) -> Sequence[Struct]:
    return () if rows[0] is not None else (RolloutStarted(command.rollout_id, command.hosts),)


def decide_report(
    rows: tuple[Tally | None, Host | None], report: ReportHost, now: datetime
) -> Sequence[Struct]:
    tally, host = rows
    if tally is None:
        raise NotFound(f"there is no rollout {report.rollout_id}", rollout=report.rollout_id)
    last = 0 if host is None else host.seq
    if report.seq <= last:
        return ()
    if report.seq > last + 1:
        raise SequenceGap(f"{report.host_id} skipped a report", expected=last + 1, found=report.seq)
    return (HostReported(report.rollout_id, report.host_id, report.seq, report.healthy),)


start_rollout = Slice(
    name="start-rollout",
    command=StartRollout,
    writes=(RolloutStarted,),
    rows=lambda command: (Key(TALLIES.name, command.rollout_id),),
    decide=decide_start,
)
report_host = Slice(
    name="report-host",
    command=ReportHost,
    writes=(HostReported,),
    rows=lambda report: (
        Key(TALLIES.name, report.rollout_id),
        Key(HOSTS.name, f"{report.rollout_id}/{report.host_id}"),
    ),
    decide=decide_report,
)

FACTS = (
    *facts("agent_event", HostReported),
    *facts("rollout_event", RolloutStarted, HostSettled, RolloutSettled),
)
SCHEMA = Schema(Vocabulary(FACTS, (start_rollout, report_host)), (HOSTS, TALLIES, NOTICES))
FOLDS = Folds(SCHEMA, (host_machine, tally_machine))
