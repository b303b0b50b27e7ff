"""How often things go wrong in a simulated fleet, and how long they take."""

from __future__ import annotations

from random import Random

from msgspec import Struct


class Span(Struct, frozen=True):
    """Seconds that something takes, between two bounds."""

    least: float
    most: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.least, self.most)


class Rates(Struct, frozen=True, kw_only=True):
    """Shares between 0 and 1, of hosts or of messages, and spans of time."""

    # of hosts, per order
    rejects: float = 0.0
    activation_fails: float = 0.0
    defers: float = 0.0
    probe_fails: float = 0.0  # for good, once the release runs
    probe_flaps: float = 0.0  # fails, then passes before the deadline
    rollback_fails: float = 0.0
    dies: float = 0.0  # goes silent in the middle of an order, for good
    drifts: float = 0.0  # runs something else after it converged
    bare: float = 0.0  # runs nothing at first, so it cannot roll back

    # of messages
    lost: float = 0.0
    unanswered: float = 0.0  # accepted, but the response is lost, so it is sent again
    duplicated: float = 0.0
    reordered: float = 0.0

    # of the processes
    agent_crashes: float = 0.0  # per poll
    server_crashes: float = 0.0  # per pass
    torn: float = 0.0  # of commits: the server dies just before or just after
    off: float = 0.0  # of hosts: from the beginning, until faults end
    offline: float = 0.0  # of hosts, now and then

    tick: float = 5.0  # seconds between two ticks of a soak
    poll: Span = Span(20.0, 40.0)  # while reports are pending
    idle: Span = Span(240.0, 360.0)  # an order wakes the host at once
    activation: Span = Span(5.0, 60.0)
    rollback: Span = Span(5.0, 90.0)
    probe: Span = Span(5.0, 15.0)
    reboot: Span = Span(30.0, 300.0)
    absence: Span = Span(60.0, 900.0)


CALM = Rates()
ROUGH = Rates(
    rejects=0.005,
    activation_fails=0.02,
    defers=0.05,
    probe_fails=0.02,
    probe_flaps=0.1,
    rollback_fails=0.25,
    dies=0.01,
    drifts=0.02,
    bare=0.33,
    lost=0.05,
    unanswered=0.05,
    duplicated=0.05,
    reordered=0.05,
    agent_crashes=0.02,
    server_crashes=0.05,
    torn=0.01,
    off=0.05,
    offline=0.05,
)
