"""An installation with something on every screen: a halted rollout, a proposal, hostile names."""

from __future__ import annotations

from tests.browser.dashboard_fleet import DashboardFleet
from tidegate.domain.channels.facts import ChannelEdge, WaveSpec

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def furnish(fleet: DashboardFleet) -> None:
    """Something on every screen: a rollout that halted, a proposal, names that attack."""
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
