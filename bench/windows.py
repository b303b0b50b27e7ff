"""What maintenance windows cost: the gate `window` for each host of a pass.

    python -m bench windows --hosts 100000

Hosts have one of 40 time zones as a label. Each case is a set of windows of one channel. The time
is CPU time, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from time import process_time

from msgspec.structs import asdict

from tidegate.domain.channels.facts import ChannelPolicy, WaveSpec
from tidegate.domain.channels.rows import Channel
from tidegate.domain.fleet.rows import Host
from tidegate.domain.gates.checks import GATES
from tidegate.domain.gates.context import GateContext
from tidegate.domain.gates.inputs import FleetState, GateInput, HostPresence, Versioned
from tidegate.domain.hosts.states import OnFailure
from tidegate.domain.planner import index_by_host, plan
from tidegate.domain.rollouts.rows import RolloutTally, WaveTally
from tidegate.domain.rollouts.states import RolloutState
from tidegate.domain.windows.facts import WindowKind, WindowSpec
from tidegate.domain.windows.rows import Window
from tidegate.domain.windows.zones import zone_names

ZONES = 40
AT = datetime(2027, 3, 28, 1, 30, tzinfo=UTC)
BOUND = 5.0  # microseconds for each host


def windows(count: int, zone: str) -> list[WindowSpec]:
    """Allow and deny windows with rules of several kinds."""
    rules = (
        "FREQ=DAILY",
        "FREQ=WEEKLY;BYDAY=MO,WE",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
    )
    return [
        WindowSpec(
            window_id=f"w{number:02}",
            kind=WindowKind.DENY if number % 2 else WindowKind.ALLOW,
            start=f"2026-01-01T{number % 24:02}:00",
            duration_seconds=7_200,
            rule=rules[number % len(rules)],
            hosts="*" if number % 3 else "role in (web,db)",
            zone=zone,
        )
        for number in range(count)
    ]


CASES = {
    "no window": windows(0, "UTC"),
    "1 window, one zone": windows(1, "Europe/Berlin"),
    "1 window, each host's zone": windows(1, "label:tz"),
    "16 windows, each host's zone": windows(16, "label:tz"),
}


def fleet_state(case: Sequence[WindowSpec], hosts: int, *, must_fit: bool) -> FleetState:
    """An open rollout to all hosts of a fleet, none of which has an order."""
    zones = sorted(zone_names())[:: len(zone_names()) // ZONES][:ZONES]
    roles = ("web", "db", "ci")
    fleet = [
        Host(
            host_id=f"h{number}",
            enrolled_at=AT,
            public_key="",
            labels={"tz": zones[number % len(zones)], "role": roles[number % 3]},
        )
        for number in range(hosts)
    ]
    policy = ChannelPolicy(waves=(WaveSpec(soak_seconds=1_800),), must_fit=must_fit)
    where = Channel(
        channel="prod", package="default/web", selector="*", policy=policy, created_at=AT
    )
    frozen = plan(where, fleet, ())
    tally = RolloutTally(
        rollout_id="prod@web.1",
        channel="prod",
        target_ref="web.1",
        target_closure="sha256:new",
        on_failure=OnFailure.ROLLBACK,
        opened_at=AT,
        retention_seconds=60,
        plan_digest="sha256:plan",
        state=RolloutState.ACTIVE,
        waves=(WaveTally(name="rest", hosts=hosts),),
    )
    sight = GateInput(
        tally=Versioned(tally, 1),
        chart=index_by_host(frozen),
        standings={},
        failures=(),
        quarantined=None,
        pin=None,
        edges={},
        latecomers=(),
        blocked_since={},
    )
    rows = [Window(**asdict(item), reason="bench", operator="user_1", set_at=AT) for item in case]
    return FleetState(
        at=AT,
        rollouts={"prod@web.1": sight},
        channels={"prod": Versioned(where, 1)},
        hosts={
            item.host_id: Versioned(HostPresence(item.host_id, labels=item.labels), 1)
            for item in fleet
        },
        orders={},
        budgets={},
        freezes=(),
        windows=tuple(Versioned(row, 1) for row in rows),
        rebooted={},
        faults={},
    )


def measure(state: FleetState) -> tuple[float, int]:
    """CPU microseconds per host of one pass, with all that the pass prepares, and the number of
    hosts that the gate holds.
    """
    (gate,) = [item.blocks for item in GATES if item.name == "window"]
    begun = process_time()
    look = GateContext(state, state.sight("prod@web.1"))
    held = sum(gate(look, host_id) is not None for host_id in state.hosts)
    return (process_time() - begun) / len(state.hosts) * 1_000_000, held


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench windows",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    is_slow = False
    print("| case | hosts held | first pass, µs a host | later passes: median | worst |")
    print("|---|---:|---:|---:|---:|")
    for name, case in CASES.items():
        for must_fit in (False, True):
            state = fleet_state(case, options.hosts, must_fit=must_fit)
            rounds = [measure(state) for _ in range(options.rounds)]
            first, *later = [time for time, _ in rounds]
            said = f"{name}, `must_fit`" if must_fit else name
            middle, worst = median(later or [first]), max(later or [first])
            print(f"| {said} | {rounds[0][1]:,} | {first:.1f} | {middle:.1f} | {worst:.1f} |")
            is_slow = is_slow or middle > BOUND
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
