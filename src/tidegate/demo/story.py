"""What happens in the demo: two teams promote releases, again and again.

    web   a revision is drafted, approved and promoted to web-canary and to web-stable, which
          waits for web-canary because of an edge; waves advance
    api   a good release; then a bad one: its first host fails and rolls back, the rollout is
          Reverted and the artifact quarantined, while the receiver of webhooks is down; the
          receiver comes back and gets every webhook; then a fix is promoted
    both  a proposal waits for the visitor from the start

The visitor may change anything: a command of the story that is refused is printed, and the story
continues.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from tidegate.control.installation import Installation
from tidegate.demo.fleet import DemoFleet
from tidegate.demo.people import DemoPeople, DemoRelease
from tidegate.demo.webhook_receiver import Receiver
from tidegate.domain.channels import facts, rows as channel_rows
from tidegate.domain.rollouts import rows as rollout_rows, states
from tidegate.errors import TidegateError

MINUTE = 60.0
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 180.0  # then the story continues
NOTIFY = "notify"
HOSTS = {"web-canary": ("wc", 20), "web-stable": ("ws", 180), "api-stable": ("api", 100)}
SETTLED = {  # final or halted states, in words
    states.RolloutState.TERMINAL: "succeeded",
    states.RolloutState.REVERTED: "stopped: hosts failed and rolled back",
    states.RolloutState.FAILED: "stopped: hosts failed",
}

Say = Callable[[str], None]


class DemoOver(Exception):
    """The demo ends."""


class DemoStory:
    """Runs the story of both teams."""

    def __init__(
        self,
        installation: Installation,
        people: DemoPeople,
        fleet: DemoFleet,
        receiver: Receiver,
        *,
        speed: float,
        say: Say,
    ) -> None:
        self._installation = installation
        self._people = people
        self._fleet = fleet
        self._receiver = receiver
        self._speed = speed
        self._say = say
        self._stop = Event()

    # ── the beginning ──

    def lay_out(self) -> None:
        """Create channels, hosts, a budget, and a proposal for the visitor."""
        people = self._people
        for channel, (prefix, hosts) in HOSTS.items():
            self._fleet.join(list(people.enroll(channel, prefix, hosts)))
        people.open_channel("web-canary", "web", self._policy(("first", 2, 5), ("rest", None, 5)))
        people.open_channel(
            "web-stable",
            "web",
            self._policy(
                ("one-in-twenty", 9, 10),
                ("quarter", 45, 10),
                ("rest", None, 5),
                edges=(facts.ChannelEdge("web-canary"),),
            ),
        )
        people.open_channel(
            "api-stable", "api", self._policy(("one", 1, 5), ("tenth", 10, 5), ("rest", None, 5))
        )
        people.limit("web-hosts", "channel=web-stable", 60)
        waiting = people.draft("docs", {"index.md": "# How we release\n\nWave by wave.\n"})
        people.propose(waiting)

    def _policy(
        self, *waves: tuple[str, int | None, int], edges: tuple[facts.ChannelEdge, ...] = ()
    ) -> facts.ChannelPolicy:
        """A policy of waves (name, hosts, soak in minutes of the story)."""
        return facts.ChannelPolicy(
            waves=tuple(
                facts.WaveSpec(name=name, count=hosts, soak_seconds=self._seconds(soak))
                for name, hosts, soak in waves
            ),
            sustained_failure_seconds=self._seconds(2),
            edges=edges,
            operations=(NOTIFY,),
        )

    def _seconds(self, minutes: float) -> int:
        """Real seconds for minutes of the story, at least one."""
        return max(1, round(minutes * MINUTE / self._speed))

    # ── the teams ──

    def web(self) -> None:
        """Promote good releases, first to the canaries, then to all hosts."""
        number = 0
        while True:
            number += 1
            released = self._release("web", _web(number), "the diff is small, and tested")
            self._promote("web-canary", released)
            self._pause(1)
            self._promote("web-stable", released)
            self._settle("web-canary")
            self._settle("web-stable")
            self._pause(10)

    def api(self) -> None:
        """Promote a good release, a bad one, and a fix."""
        number = 0
        while True:
            number += 1
            self._promote("api-stable", self._release("api", _api(number, 8), "fine"))
            self._settle("api-stable")
            self._pause(4)
            bad = self._release("api", _api(number, 0), "no workers? let us see")
            self._fleet.make_probe_fail(bad.digest, "api-001")
            self._receiver.go_down()
            self._say("the receiver of webhooks is down")
            self._promote("api-stable", bad)
            self._settle("api-stable")
            self._pause(3)
            self._receiver.come_back()
            self._say("the receiver of webhooks is back")
            self._pause(12)
            fix = self._release("api", _api(number, 4), "that is the fix")
            self._promote("api-stable", fix)
            self._settle("api-stable")
            self._pause(12)

    def _release(self, package: str, files: dict[str, str], remark: str) -> DemoRelease:
        name = self._people.draft(package, files)
        self._pause(1)
        self._people.propose(name)
        self._pause(2)
        released = self._people.approve(name, remark)
        self._say(f"{released.release_id} was proposed and approved")
        self._pause(1)
        return released

    def _promote(self, channel: str, released: DemoRelease) -> None:
        try:
            rollout_id = self._people.promote(channel, released.release_id)
        except TidegateError as error:
            self._say(f"{released.release_id} was not promoted to {channel}: {error.detail}")
        else:
            self._say(f"{rollout_id} opened")

    def _settle(self, channel: str) -> None:
        """Wait until the channel's newest rollout has ended or halted."""
        for _ in range(int(PATIENCE_SECONDS / LOOK_SECONDS)):
            found = self._installation.reads.find(
                channel_rows.channel_key(channel), channel_rows.Channel
            )
            newest = None if found is None else found.row.newest_rollout_id
            rollout = (
                None
                if newest is None
                else self._installation.reads.find(
                    rollout_rows.rollout_key(newest), rollout_rows.Rollout
                )
            )
            if rollout is None or rollout.row.state not in SETTLED:
                self._wait(LOOK_SECONDS)
                continue
            self._say(f"{newest} {SETTLED[rollout.row.state]}")
            return

    # ── time ──

    def end(self) -> None:
        self._stop.set()

    def _pause(self, minutes: float) -> None:
        self._wait(minutes * MINUTE / self._speed)

    def _wait(self, seconds: float) -> None:
        """Raises: DemoOver."""
        if self._stop.wait(seconds):
            raise DemoOver


def _web(number: int) -> dict[str, str]:
    return {
        "bin/web": '#!/bin/sh\nexec python3 -m http.server --directory "$(dirname "$0")/.."\n',
        "index.html": f"<h1>Hello, for the {number}. time</h1>\n",
        "conf/site.toml": f"workers = 4\ncache_seconds = {30 * number}\n",
        "VERSION": f"1.{number}.0\n",
    }


def _api(number: int, workers: int) -> dict[str, str]:
    return {
        "bin/api": '#!/bin/sh\nexec api-server --config "$(dirname "$0")/../conf/api.toml"\n',
        "conf/api.toml": f"workers = {workers}\ntimeout_seconds = 30\n",
        "VERSION": f"2.{number}.{workers}\n",
    }
