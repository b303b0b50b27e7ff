"""An installation with something on every screen: a halted rollout, a proposal, hostile names."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from tests.browser.dashboard_fleet import PEOPLE, DashboardFleet
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.principals import Principal
from tidegate.domain.access.roles import Grant, Role
from tidegate.domain.access.second_person import SecondPersonNeeded
from tidegate.domain.channels.facts import ChannelEdge, ChannelProtection, WaveSpec
from tidegate.domain.notifications.states import TargetKind
from tidegate.domain.windows.facts import WindowKind, WindowSpec

NIGHTLY = WindowSpec(
    window_id="nightly",
    kind=WindowKind.DENY,
    start="2026-11-17T02:00",
    duration_seconds=7_200,
    rule="FREQ=DAILY",
    channels=("early",),
)
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def furnish(fleet: DashboardFleet) -> None:
    """Create something for every screen: a halted rollout, a proposal, names with markup."""
    fleet.publish("v1", {"run": "exec web\n"})
    waves = (WaveSpec(name="canary", count=2), WaveSpec(name="rest", soak_seconds=60))
    fleet.channel("early", waves=())
    fleet.channel("stable", waves=waves, edges=(ChannelEdge("early"),), sustained_failure_seconds=0)
    fleet.enroll("early", "early-00")
    fleet.enroll("stable", *(f"web-{number:02}" for number in range(5)))
    early = fleet.promote("early", "web.1")
    fleet.dispatch()
    fleet.activate(early, "early-00")
    fleet.converge(early, "early-00")
    rollout_id = fleet.promote("stable", "web.1")
    fleet.dispatch()
    first, second = (record.host_id for record in fleet.records(rollout_id))
    fleet.activate(rollout_id, first)
    fleet.converge(rollout_id, first)
    fleet.activate(rollout_id, second)
    fleet.fail(rollout_id, second, HOSTILE)
    fleet.propose(fleet.draft("v2", {"run": f"exec web {HOSTILE}\n", "notes.txt": HOSTILE}))
    stop_and_ask(fleet)


def stop_and_ask(fleet: DashboardFleet) -> None:
    """Create a window, a budget, and a protected channel with a waiting request."""
    grants = (Grant(Role.RELEASE_MANAGER), Grant(Role.FLEET_OPERATOR))
    caller = Caller(principal=Principal(PEOPLE["author"][0], "session", grants))
    made = fleet.installation
    made.windows.create(caller, NIGHTLY, HOSTILE)
    made.budgets.set(caller, "web-hosts", "channel=stable", max_in_flight=3)
    made.subscriptions.create(
        caller,
        "ops",
        kind=TargetKind.WEBHOOK,
        target=NewTarget(url="https://hooks.example.com/x"),
        scopes=("*",),
    )
    made.channels.protect(caller, "early", ChannelProtection(), HOSTILE)
    with suppress(SecondPersonNeeded):
        by = replace(caller, key="furnished")
        made.promotion.promote(by, "early", "web.1", reason=HOSTILE, refresh=True)
