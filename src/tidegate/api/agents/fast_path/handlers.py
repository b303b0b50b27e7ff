"""Answers plain polls and plain reports at the socket.

    poll      no order is queued: 204. Else it is leased, and sent when the lease is durable.
    report    is decoded from its bytes, queued in its lane, and answered when it is durable.

A request that is not plain or not valid goes to the route's usual handler, which explains why.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import msgspec

from tidegate.api.agents.auth import PREFIX
from tidegate.api.agents.commit_waiters import CommitWaiters
from tidegate.api.agents.order_waiters import OrderWaiters
from tidegate.api.metrics import Metrics
from tidegate.control.fleet import agent_reports as fleet_agent_reports, order_queue
from tidegate.control.queries.reads import Reads
from tidegate.domain.hosts import protocol, rows
from tidegate.domain.rollouts.names import ref_of
from tidegate.errors import VersionConflict
from tidegate.kernel.model import Meta, Receipt
from tidegate.web import decoding, problems, routing

NO_ORDER: Final = routing.Response(None)
_TITLES: Final = {
    404: "There is nothing to report to",
    409: "The state of the host or its rollout refuses the report; it takes no number",
    410: "The rollout is over; drop its reports",
    422: "The report is none that agents send, or a member of it is wrong",
}


def answer_poll(
    request: routing.FastRequest,
    reads: Reads,
    deliveries: order_queue.OrderQueue,
    commit_waiters: CommitWaiters,
    order_waiters: OrderWaiters,
) -> bool:
    """Respond that there is no order, or with the order once its lease is durable."""
    host_id = request.principal.id.removeprefix(PREFIX)
    if is_idle(order_waiters, host_id, reads):
        request.send_success()
        return True
    offer = deliveries.hand_out(host_id) if reads.is_local else None
    if offer is None:
        return False
    order, leased = offer
    if order is None or leased is None:
        request.send_success()
    else:
        commit_waiters.call(leased, partial(_leased, request, order, leased))
    return True


def _leased(
    request: routing.FastRequest, order: rows.QueuedDispatch, leased: Future[Receipt]
) -> None:
    error = leased.exception()
    if error is None:
        request.send_success(order_of(order))
    elif isinstance(error, VersionConflict):  # another request leased it first
        request.send_success()
    else:
        request.fail(error)


def order_of(queued: rows.QueuedDispatch) -> protocol.Order:
    """Build the order for the agent."""
    release_id = ref_of(queued.rollout_id)
    return protocol.Order(
        rollout_id=queued.rollout_id,
        host_id=queued.host_id,
        attempt=queued.attempt,
        channel=queued.channel,
        wave=queued.wave,
        target_closure=queued.target_closure,
        policy=queued.policy,
        release_id=release_id,
        content=f"/v1/agent/releases/{release_id}",
        enqueued_at=queued.enqueued_at,
        last_event_seq=queued.last_event_seq,
    )


def is_idle(order_waiters: OrderWaiters, host_id: str, reads: Reads) -> bool:
    """Whether the host is known to have no order, or a local read shows that."""
    return reads.is_local and order_waiters.is_free(host_id, partial(_look, reads, host_id))


def _look(reads: Reads, host_id: str) -> bool:
    """Whether the host has no order. Then none is queued that counts."""
    return reads.find(rows.order_key(host_id), rows.HostOrder) is None


def answer_report(
    request: routing.FastRequest,
    agent_reports: fleet_agent_reports.AgentReports,
    metrics: Metrics,
    commit_waiters: CommitWaiters,
) -> bool:
    """Queue a body with one valid report in its lane."""
    body = request.body
    if body.count(b"{") + body.count(b"[") > decoding.DEPTH_MAX:
        return False
    actor = request.principal.id
    commit_waiters.attach()

    def when_done(report: fleet_agent_reports.SingleReport) -> None:
        commit_waiters.land(partial(_landed, request, metrics, report))

    meta = Meta(actor=actor, request=request.id)
    return agent_reports.take_one(actor.removeprefix(PREFIX), body, meta, when_done)


def _landed(
    request: routing.FastRequest, metrics: Metrics, report: fleet_agent_reports.SingleReport
) -> None:
    try:
        result = fleet_agent_reports.to_reported(report, report.exception())
    except BaseException as fault:  # noqa: BLE001 - none of our errors: a bug, and answered as one
        request.fail(fault)
        return
    if result.status == 200:
        request.send_success(protocol.ReportsAnswer((result,)))
    else:
        metrics.refusals.count(result.code or "unknown")
        request.answer(refusal(result, request.id))


def refusal(answer: protocol.ReportResult, request_id: str) -> routing.Response:
    """Convert a refused report to a problem: the machine's own code, with a status for agents."""
    problem: dict[str, Any] = {
        **answer.facts,
        "type": f"/problems/{answer.code}",
        "title": _TITLES.get(answer.status, "The report was not taken"),
        "status": answer.status,
        "detail": answer.detail,
        "code": answer.code,
        "instance": f"/requests/{request_id}",
        "rollout_id": answer.rollout_id,
        "seq": answer.seq,
        "state": answer.state,
        "accepted_through": answer.accepted_through,
    }
    headers = {"retry-after": "1"} if answer.status == 503 else {}
    return routing.Response(
        msgspec.json.encode(problem), status=answer.status, media=problems.MEDIA, headers=headers
    )
