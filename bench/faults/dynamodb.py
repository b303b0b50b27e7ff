"""DynamoDB with conflicts, throttling, lost and late responses, chosen by a seeded generator.

Clients race on a real table. Each reaches the table through a transport that loses requests before
and responses after they took effect, throttles, cancels transactions for a conflict, and delays.
The responses that the clients got are checked against the final log.
"""

from __future__ import annotations

import time
from random import Random
from threading import Lock
from typing import Any

from bench.faults.racing import judge, racing
from bench.trials import Findings, Trial
from tests.contract.dynamodb_faults import (
    FaultyTransport,
    Send,
    fresh_table,
    lose_answer,
    lose_request,
    throttle,
)
from tests.differential.world import SCHEMA
from tests.servers import shared
from tidegate.engines.dynamodb import DynamoStore
from tidegate.engines.dynamodb.log import GRACE_SECONDS
from tidegate.engines.dynamodb.transport import CancellationReason, Cancelled, Transport
from tidegate.kernel.store import Store

CLIENTS = 4
ANSWERS = {"smoke": 40, "ci": 200, "full": 400, "long": 1_000}  # to commits
FAULT_SHARE = 0.12
CONFLICT_SHARE = 0.06
LATE_SECONDS_MAX = 0.05
SECONDS_MAX = 400.0


class BadTransport(FaultyTransport):
    """Spoils some calls, once it is armed."""

    def __init__(self, inner: Transport, random: Random, findings: Findings) -> None:
        super().__init__(inner)
        self.is_armed = False
        self._random, self._findings, self._lock = random, findings, Lock()

    def transact(self, actions: Any, token: str) -> None:
        if self._strikes(CONFLICT_SHARE):
            self._count("conflicts injected")
            reasons = [CancellationReason(None, {}) for _ in actions]
            reasons[0] = CancellationReason("TransactionConflict", {})
            raise Cancelled(reasons)
        super().transact(actions, token)

    def _through(self, call: str, send: Send) -> Any:
        if not self._strikes(FAULT_SHARE):
            return super()._through(call, send)
        kind = self._random.choice(("request lost", "answer lost", "throttled", "late"))
        self._count(kind)
        match kind:
            case "request lost":
                return lose_request(send)
            case "answer lost":
                return lose_answer(send)
            case "throttled":
                return throttle(send)
        time.sleep(self._random.random() * LATE_SECONDS_MAX)
        return send()

    def _strikes(self, share: float) -> bool:
        return self.is_armed and self._random.random() < share

    def _count(self, what: str) -> None:
        with self._lock:
            self._findings.counts[what] += 1


def run(trial: Trial) -> Findings:
    findings, random = Findings(), trial.random()
    table = fresh_table(shared.url("dynamodb"), SCHEMA)
    transports: list[BadTransport] = []

    def connect() -> Store:
        transport = BadTransport(table.transport(), Random(random.random()), findings)
        transports.append(transport)
        return DynamoStore(table.name, SCHEMA, transport=transport)

    with racing(connect, random, CLIENTS) as race:
        for transport in transports:
            transport.is_armed = True
        if not race.wait_for(ANSWERS[trial.mode], SECONDS_MAX):
            findings.failures.append(f"fewer than {ANSWERS[trial.mode]} answers")
        for transport in transports:
            transport.is_armed = False
    findings.counts["told that it is away"] += race.away
    race.quiet_seconds = 2 * GRACE_SECONDS
    judge(
        race.history(lambda: DynamoStore(table.name, SCHEMA, transport=table.transport())),
        findings,
        one_order=False,
    )
    return findings
