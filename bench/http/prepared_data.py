"""A data directory for a server: enrolled hosts, one open rollout, a token that reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.fleet.fleets import BATCH, OPERATOR, PASSES_MAX, RELEASE, TARGET
from tidegate.clock import system_clock
from tidegate.commands.startup import FOLDS, open_installation
from tidegate.config import Settings
from tidegate.control.fleet.dispatch import Dispatcher
from tidegate.control.installation import Installation
from tidegate.control.operations.accounts import caller_of
from tidegate.control.operations.promotion_planning import Promote
from tidegate.domain.channels.facts import ChannelPolicy
from tidegate.domain.channels.slices import CreateChannel, create_channel
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.fleet.slices import EnrollHost, enroll_host
from tidegate.domain.releases.facts import ReleaseOffered
from tidegate.domain.setup import SetUp, set_up
from tidegate.kernel.commit_builder import CommitBuilder
from tidegate.kernel.model import Commit, Meta

BUSY = "busy"  # the channel whose rollout is open, with an order for every host
CHANNEL = "sea"  # the channel whose rollout runs while its hosts poll
META = Meta(actor=OPERATOR)


@dataclass(frozen=True)
class PreparedData:
    """What a load generator needs to know about the directory."""

    data: Path
    token: str  # of a user who may do everything
    reporting: tuple[str, ...]  # hosts that have orders
    polling: tuple[str, ...]  # hosts that have none
    secret: bytes  # the keys of sessions are derived from it

    @property
    def rollout_id(self) -> str:
        return f"{BUSY}@{RELEASE}"


def public_key(host_id: str) -> str:
    return host_id.encode().hex().rjust(64, "0")[-64:]


def fill(data: Path, reporting: int, polling: int) -> PreparedData:
    """Fill it through the verbs of operators."""
    installation = open_installation(Settings(data=str(data)))
    try:
        installation.execute.run(set_up, SetUp(user_id=OPERATOR, alone=True), meta=META)
        token = installation.access.create_token(caller_of(META.actor), 30).token
        _offer(installation)
        busy, sea = _named(BUSY, reporting), _named(CHANNEL, polling)
        for channel, hosts in ((BUSY, busy), (CHANNEL, sea)):
            _enroll(installation, channel, hosts)
        promoted = Promote(channel=BUSY, release_id=RELEASE, command_id=BUSY, by=OPERATOR)
        installation.promotions.promote(promoted)
        _order(installation)
        secret = installation.secrets.key("agents")
        return PreparedData(data, token, busy, sea, secret)
    finally:
        installation.close()


def _named(channel: str, hosts: int) -> tuple[str, ...]:
    return tuple(f"{channel}-{number:06}" for number in range(hosts))


def _offer(installation: Installation) -> None:
    """Offer a release that can be promoted, without a revision."""
    builder = CommitBuilder(FOLDS, installation.store.get)
    builder.add((ReleaseOffered(RELEASE, TARGET, "Published", "default/web/v1"),), system_clock())
    installation.submit(builder.commit(Commit(system_clock()))).result()


def _enroll(installation: Installation, channel: str, hosts: Sequence[str]) -> None:
    labels = {"channel": channel}
    for start in range(0, len(hosts), BATCH):
        lines = [
            (
                enroll_host,
                EnrollHost(host_id=id, public_key=public_key(id), labels=labels, operator=OPERATOR),
                META,
            )
            for id in hosts[start : start + BATCH]
        ]
        for future in installation.lanes.record_all("fleet", lines):
            future.result()
    fleet = installation.reads.find(fleet_key(), Fleet)
    assert fleet is not None
    command = CreateChannel(
        channel=channel,
        package="web",
        selector=f"channel={channel}",
        operator=OPERATOR,
        policy=ChannelPolicy(),
        fleet_version=fleet.version,
    )
    installation.execute.run(create_channel, command, meta=META)


def _order(installation: Installation) -> None:
    dispatcher = Dispatcher(installation.lanes, installation.fleet_reader, installation.clock)
    for _ in range(PASSES_MAX):
        if not dispatcher.run_pass().ordered:
            return
    raise AssertionError("the dispatcher finds ever more to order")
