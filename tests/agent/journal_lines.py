"""Lines of an agent's journal, for tests."""

from __future__ import annotations

from pathlib import Path

from tests.agent.single_host import CHANNEL, HOST, ROLLOUT, T0
from tidegate.agent.journal import ConfirmedLine, Journal, ReportLine, TwinLine
from tidegate.domain.hosts import agent_side
from tidegate.domain.hosts.facts import ActivationStarted, DispatchAck
from tidegate.domain.hosts.report_json import event_to_json
from tidegate.domain.hosts.rows import HostRecord, QueuedDispatch
from tidegate.domain.hosts.states import HostPolicy


def twin(rollout_id: str = ROLLOUT) -> HostRecord:
    order = QueuedDispatch(
        host_id=HOST,
        rollout_id=rollout_id,
        attempt=1,
        channel=CHANNEL,
        target_closure="sha256:new",
        wave=0,
        policy=HostPolicy(),
        enqueued_at=T0,
    )
    return agent_side.record_from_order(order, None, T0)


def acknowledged(before: HostRecord) -> ReportLine:
    after, event, _ = agent_side.report(
        before, DispatchAck, T0, target_closure="sha256:new", current_closure_at_dispatch=""
    )
    return ReportLine(event_to_json(event), after)


def started(before: HostRecord) -> ReportLine:
    after, event, _ = agent_side.report(before, ActivationStarted, T0)
    return ReportLine(event_to_json(event), after)


def many(directory: Path) -> None:
    """Append until killed, and print the number of each report that is on disk."""
    journal = Journal(directory, bytes_max=64 * 1024)
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    while True:
        said = started(journal.twins[ROLLOUT])
        journal.append(said)
        if len(journal.entries) > 20:
            journal.append(ConfirmedLine(ROLLOUT, said.after.last_event_seq - 10))
        print(said.after.last_event_seq, flush=True)
