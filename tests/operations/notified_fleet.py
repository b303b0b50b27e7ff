"""A served fleet whose events go to receivers; a test runs the notifier and the sender by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.api.served_fleet import ServedFleet, serve_fleet
from tests.contract.webhook_receiver import Receiver, serve_webhooks
from tidegate.api.routes import ROUTES
from tidegate.config import NotifySetting
from tidegate.control.leaders import Leader
from tidegate.control.notifications.notifier import Notifier
from tidegate.control.notifications.sender import NoticeSender
from tidegate.control.operations.subscriptions import ChangedSubscription, NewTarget
from tidegate.dashboard.routes import PAGES
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import EVERYWHERE, Grant, Role
from tidegate.domain.notifications.slices import LEADER
from tidegate.domain.notifications.states import TargetKind
from tidegate.kernel.leases import Leases
from tidegate.kernel.replay import differences

OPERATOR = Caller(
    principal=Principal("user_operator00", "token", grants=(Grant(Role.FLEET_OPERATOR),))
)


class NotifiedFleet:
    """A fleet, a receiver, and the process that notifies the receiver."""

    def __init__(self, fleet: ServedFleet, receiver: Receiver) -> None:
        self.fleet = fleet
        self.receiver = receiver
        self.installation = found = fleet.installation
        self.clock = fleet.clock
        self.leader = Leader(
            Leases(found.store), LEADER, found.clock, monotonic=lambda: found.clock().timestamp()
        )
        self.notifier = Notifier(found.control, self.leader, found.fleet_reader)
        self.sender = NoticeSender(
            found.control,
            self.leader,
            found.addresses,
            found.notify_targets,
            found.installation_ref,
            found.name_of,
            jitter=lambda: 1.0,
        )

    def subscribe(
        self, name: str = "ops", kind: TargetKind = TargetKind.WEBHOOK, **terms: Any
    ) -> ChangedSubscription:
        terms.setdefault("scopes", (EVERYWHERE,))
        terms.setdefault("target", NewTarget(url=self.url(name)))
        return self.installation.subscriptions.create(OPERATOR, name, kind=kind, **terms)

    def url(self, name: str) -> str:
        return f"http://{self.receiver.place}/{name}"

    def run_round(self) -> int:
        """Run one round: queue what happened, send what is due. Return how many messages were
        tried.
        """
        assert self.leader.lead()
        while self.notifier.round():
            pass
        return self.sender.work()

    def run_until(self, holds: Callable[[], object], *, hours: float = 80) -> None:
        """Run rounds until a condition holds, as far apart as the queues wait, by the worker's
        clock.
        """
        ends = self.clock() + timedelta(hours=hours)
        while True:
            self.run_round()
            if holds():
                return
            assert self.clock() < ends, "the condition was never met"
            waits = [row.next_attempt_at for row in self.installation.subscriptions.queues()]
            due = [at for at in waits if at is not None]
            soon = self.clock() + timedelta(seconds=1)
            self.clock.now = max(soon, min(due, default=soon))

    def received(self, name: str = "ops") -> list[dict[str, Any]]:
        """Return the events that the receiver got, in order."""
        found = [body for path, _, body in self.receiver.requests if path == f"/{name}"]
        return [json.loads(body)["data"] for body in found]

    def events(self, name: str = "ops") -> list[str]:
        return [item["event"] for item in self.received(name)]

    def differences(self) -> list[Any]:
        return differences(self.installation.store, self.installation.folds)


@contextmanager
def notify_fleet(
    data: Path, *, more_allowed: tuple[str, ...] = (), **notify: Any
) -> Iterator[NotifiedFleet]:
    """``notify``: members of the setting of that name; ``more_allowed``: other receivers."""
    with (
        serve_webhooks() as receiver,
        serve_fleet(
            data,
            (*ROUTES, *PAGES),
            notify=NotifySetting(allowed=(receiver.place, *more_allowed), **notify),
        ) as fleet,
    ):
        notified = NotifiedFleet(fleet, receiver)
        yield notified
        notified.sender.close()
