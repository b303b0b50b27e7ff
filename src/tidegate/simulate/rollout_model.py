"""A model of one rollout, host by host. Tallies are compared with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from tidegate.domain.hosts import states as host_states
from tidegate.domain.rollouts import states as rollout_states


@dataclass(slots=True)
class HostModel:
    """One host in one rollout, according to the facts."""

    wave: int
    state: host_states.HostState
    late: bool = False
    left: bool = False


@dataclass
class RolloutModel:
    """A rollout, host by host."""

    channel: str
    closure: str
    planned: tuple[int, ...]  # hosts per wave
    shares: tuple[int, ...] = ()  # of the counted hosts, in percent, per wave
    minima: tuple[int, ...] = ()  # converged hosts needed, per wave
    passed: set[int] = field(
        default_factory=set
    )  # waves that an operator skipped or did not wait for
    hosts: dict[str, HostModel] = field(default_factory=dict)
    gone: Counter[int] = field(default_factory=Counter)  # skipped without an order, per wave
    state: rollout_states.RolloutState = rollout_states.RolloutState.OPENING
    wave: int = 0
    halted: bool = False
    terminals: int = 0
    ever_terminal: bool = False
    outcome: rollout_states.Outcome | None = None
    release: str = ""
    start_at: datetime | None = None
    before: tuple[str, ...] = ()  # channels on which the release must have succeeded

    def counted(self, *states: host_states.HostState) -> int:
        return sum(
            host.state in states for host in self.hosts.values() if not (host.left or host.late)
        )

    def unsettled(self, wave: int) -> int:
        """How many hosts of this wave and the earlier ones block the next wave.

        A deferred host blocks none while it waits for its reboot, but does after it.
        """
        return sum(self._unsettled(number) for number in range(wave + 1))

    def lacks_converged(self, wave: int) -> int:
        """How many converged hosts this wave and the earlier ones lack to their minimum."""
        return sum(
            max(0, min(self.minima[number], self.planned[number]) - self._converged(number))
            for number in range(wave + 1)
            if number not in self.passed
        )

    def _converged(self, wave: int) -> int:
        return sum(
            host.wave == wave and host.state is host_states.HostState.CONVERGED
            for host in self.hosts.values()
            if not (host.left or host.late)
        )

    def _unsettled(self, wave: int) -> int:
        if wave in self.passed:
            return 0
        hosts = [host for host in self.hosts.values() if host.wave == wave and not host.late]
        left = self.gone[wave] + sum(host.left for host in hosts)
        settled = sum(host.state in host_states.SETTLED for host in hosts if not host.left)
        wanted = -(-self.shares[wave] * (self.planned[wave] - left) // 100)
        return max(0, wanted - settled)
