"""A fleet at work: enrolled hosts, channels that claim them, rollouts that reach them.

All of it is created through the verbs of operators and agents. A host sends four reports
(acknowledged, activated, no probes, converged). They become seven facts, three of which move the
host in the rollout's tally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from tidegate.clock import system_clock
from tidegate.control.fleet.dispatch import Dispatcher
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import PACK_MAX, Lanes
from tidegate.control.operations.promotion_planning import Promote, Promotions
from tidegate.control.runtime import Control
from tidegate.control.storage.blobs.files import FileBlobs
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.slices import CreateChannel, create_channel
from tidegate.domain.composition import FOLDS, SCHEMA
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.domain.hosts.facts import (
    ActivationCompleted,
    AgentEvent,
    Converged,
    DispatchAck,
    ProbeTopologyDeclared,
)
from tidegate.domain.hosts.report_json import event_from_json, event_to_json
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.domain.rollouts.report_slices import ReportEvent, report_event
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit
from tidegate.kernel.commit_builder import CommitBuilder
from tidegate.kernel.model import Commit, Meta
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Store

FILE = "fleet.db"
BLOBS = "blobs"
LOG_ID = "bench"
OPERATOR = "user_operator"
PACKAGE = "web"
RELEASE = "web.1"
TARGET = "sha256:" + "a" * 64
BEFORE = "sha256:" + "b" * 64
BATCH = 100
REPORTS_PER_HOST = 4  # reports of a host
PASSES_MAX = 1_000

Wire = dict[str, Any]  # a report as its agent sent it, decoded from JSON
Line = tuple[Slice, Struct, Meta]  # one report for a lane


class Here(Executor):
    """Runs submitted work at once, in the caller's thread, so that CPU time is easy to measure."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class FleetAtWork:
    """Every part of the control plane that a rollout needs, over one store."""

    def __init__(
        self, store: Store, home: Path, writer: GroupCommit, threads: Executor | None
    ) -> None:
        self.store = store
        self.writer = writer
        self.control = Control(store, FOLDS, writer.submit)
        self.lanes = Lanes(store, FOLDS, writer.submit, threads=threads)
        blobs = FileBlobs(home / BLOBS, LOG_ID)
        self.fleet_reader = FleetReader(store, blobs)
        self.promotions = Promotions(self.control, self.fleet_reader, blobs)
        self.dispatcher = Dispatcher(self.lanes, self.fleet_reader, system_clock)

    def record(self, lane: str, lines: Sequence[Line]) -> None:
        """Record the lines through a lane, in packs; raise the first error."""
        for start in range(0, len(lines), PACK_MAX):
            for future in self.lanes.record_all(lane, lines[start : start + PACK_MAX]):
                future.result()

    # ── operators ──

    def offer(self) -> None:
        """Offer a release that can be promoted, without a revision."""
        builder = CommitBuilder(FOLDS, self.store.get)
        offered = ReleaseOffered(RELEASE, TARGET, "Published", "default/web/v1")
        builder.add((offered,), system_clock())
        self.writer.submit(builder.commit(Commit(system_clock()))).result()

    def enroll(self, channel: str, hosts: Sequence[str]) -> None:
        """Enroll these hosts, and create the channel."""
        meta = Meta(actor=OPERATOR)
        lines: list[Line] = [
            (
                enroll_host,
                EnrollHost(
                    host_id=host_id,
                    public_key=f"{number:064x}",
                    labels={"channel": channel},
                    operator=OPERATOR,
                ),
                meta,
            )
            for number, host_id in enumerate(hosts)
        ]
        self.record("fleet", lines)
        fleet = self.fleet_reader.row(fleet_key(), Fleet)
        assert fleet is not None
        command = CreateChannel(
            channel=channel,
            package=PACKAGE,
            selector=f"channel={channel}",
            operator=OPERATOR,
            policy=ChannelPolicy(),
            fleet_version=fleet.version,
        )
        self.control.execute(create_channel, command)

    def open(self, channel: str) -> int:
        """Open a rollout on the channel; return the number of facts."""
        asked = Promote(channel=channel, release_id=RELEASE, command_id=channel, by=OPERATOR)
        receipt = self.promotions.promote(asked).receipt
        assert receipt is not None
        return receipt.last - receipt.first + 1

    def order(self) -> None:
        """Let the dispatcher send orders until there are none left."""
        for _ in range(PASSES_MAX):
            if not self.dispatcher.run_pass().ordered:
                return
        raise AssertionError("the dispatcher never runs out of orders")


@contextmanager
def at_work(url: str, home: Path, threads: Executor | None = None) -> Iterator[FleetAtWork]:
    """Open the fleet with this log and with its blobs below ``home``."""
    with ExitStack() as stack:
        store = connect(url, SCHEMA)
        stack.callback(store.close)
        writer = stack.enter_context(closing(GroupCommit(store)))
        fleet = FleetAtWork(store, home, writer, threads)
        stack.callback(fleet.lanes.close)
        yield fleet


def sqlite_url(home: Path) -> str:
    return f"sqlite:///{home / FILE}"


# ── names ─────────────────────────────────────────────────────────────────────────────────────────


def channel_name(number: int) -> str:
    return f"channel-{number:03}"


def host_names(channel: str, hosts: int) -> list[str]:
    return [f"{channel}-{number:06}" for number in range(hosts)]


def rollout_of(channel: str) -> str:
    return f"{channel}@{RELEASE}"


# ── agents ──


def reports_of_host(rollout_id: str, host_id: str, at: datetime) -> tuple[Wire, ...]:
    """The reports of a host that follows its order, as they are sent."""
    said: dict[str, Any] = {"rollout_id": rollout_id, "host_id": host_id, "at": at}
    events: tuple[AgentEvent, ...] = (
        DispatchAck(**said, seq=1, target_closure=TARGET, current_closure_at_dispatch=BEFORE),
        ActivationCompleted(**said, seq=2, observed_current_closure=TARGET),
        ProbeTopologyDeclared(**said, seq=3, probes=()),
        Converged(**said, seq=4, current_closure=TARGET),
    )
    return tuple(map(event_to_json, events))


def line(report: Wire) -> Line:
    """A report as it is queued in its rollout's lane."""
    event = event_from_json(report)
    command = ReportEvent(rollout_id=event.rollout_id, host_id=event.host_id, event=event)
    return report_event, command, Meta(actor=f"host:{event.host_id}")
