"""Lines of an agent's journal, for tests."""

from __future__ import annotations

from tests.agent.single_host import CHANNEL, HOST, ROLLOUT, T0
from tidegate.agent.journal import ReportLine
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
