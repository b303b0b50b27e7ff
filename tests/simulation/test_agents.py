"""A simulated host, like the real agent, ignores the end of a switch whose order it has given
up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

from msgspec.structs import replace

from tidegate.domain.hosts.rows import QueuedDispatch
from tidegate.domain.hosts.states import HostPolicy, HostState
from tidegate.errors import IllegalTransition
from tidegate.simulate.agents import SimulatedAgent
from tidegate.simulate.rates import CALM, Span

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ROLLOUT = "web@web.1"
ORDER = QueuedDispatch(
    host_id="web-1",
    rollout_id=ROLLOUT,
    attempt=1,
    channel="web",
    target_closure="sha256:1",
    wave=0,
    policy=HostPolicy(),
    enqueued_at=T0,
)
AGAIN = replace(ORDER, attempt=2, last_event_seq=1)
NEWER = replace(ORDER, rollout_id="web@web.2", target_closure="sha256:2")


class OneHost:
    """A host, its clock, and a control plane that accepts its reports unless a test makes it
    refuse.
    """

    def __init__(self) -> None:
        self._now = T0
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._count = 0
        self._is_refusing = False
        self.agent = SimulatedAgent(ORDER.host_id, CALM, Random(1), self)

    def now(self) -> datetime:
        return self._now

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        due = (self._now + timedelta(seconds=seconds), self._count, action)
        heapq.heappush(self._due, due)

    def flush(self, agent: SimulatedAgent) -> None:
        while agent.journal and not self._is_refusing:
            agent.confirm(agent.journal.popleft())
        if agent.journal:
            error = IllegalTransition("host", "Pending", "ActivationStarted")
            agent.drop_refused(agent.journal[0], error)

    def wait(self, seconds: float) -> None:
        until = self._now + timedelta(seconds=seconds)
        while self._due and self._due[0][0] <= until:
            self._now, _, action = heapq.heappop(self._due)
            action()
        self._now = until

    def take(self, order: QueuedDispatch, activation: float) -> None:
        """Take the order. Its switch lasts this long, from the confirmed acknowledgement on."""
        self.agent.rates = replace(CALM, activation=Span(activation, activation))
        self.agent.take(order)
        entry = self.agent.journal.popleft()
        self.agent.confirm(entry)

    def give_up(self) -> None:
        """Refuse the report that the switch started, as for a host whose order was given up."""
        self._is_refusing = True
        self.wait(1.0)
        self._is_refusing = False
        assert self.agent.twins == {}


def test_a_switch_of_an_earlier_attempt_does_not_complete_the_next_one() -> None:
    host = OneHost()
    host.take(ORDER, activation=30.0)
    host.give_up()
    host.take(AGAIN, activation=60.0)

    host.wait(45.0)
    assert host.agent.twins[ROLLOUT].state is HostState.ACTIVATING
    assert host.agent.running == {}

    host.wait(45.0)
    assert host.agent.twins[ROLLOUT].state is HostState.CONVERGED
    assert host.agent.running == {"web": "sha256:1"}


def test_a_switch_of_an_order_that_was_given_up_undoes_no_later_release() -> None:
    host = OneHost()
    host.take(ORDER, activation=600.0)
    host.give_up()
    host.take(AGAIN, activation=30.0)
    host.wait(90.0)
    assert host.agent.running == {"web": "sha256:1"}
    host.take(NEWER, activation=30.0)
    host.wait(90.0)
    assert host.agent.running == {"web": "sha256:2"}

    host.wait(600.0)
    assert host.agent.running == {"web": "sha256:2"}
