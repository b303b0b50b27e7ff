"""The commit itself checks If-Match: of several clients with the same version, one succeeds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from tests.api.served_fleet import CHANNEL, ServedFleet
from tidegate.domain.channels.rows import Channel, channel_key
from tidegate.domain.channels.slices import EditChannel, edit_channel
from tidegate.domain.fleet.rows import Fleet, Host, fleet_key, host_key
from tidegate.domain.fleet.slices import LabelHost, label_host
from tidegate.errors import StaleVersion
from tidegate.kernel.model import Meta
from tidegate.kernel.slices import Slice

RACERS = 6
LABELS = "/v1/hosts/web-01/labels"
CHANNEL_PATH = f"/v1/channels/{CHANNEL}"


@pytest.fixture
def fleet(fleet: ServedFleet) -> ServedFleet:
    fleet.create()
    return fleet


def raced(run: Callable[[int], Any]) -> list[Any]:
    """Run it in RACERS threads that start together, and return the results."""
    start = Barrier(RACERS)

    def racer(number: int) -> Any:
        start.wait()
        return run(number)

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(racer, range(RACERS)))


def test_only_one_of_many_labels_a_host_at_one_version(fleet: ServedFleet) -> None:
    seen = fleet.viewer.get("/v1/hosts/web-01").headers["etag"]

    def label(number: int) -> httpx2.Response:
        labels = {"app": "web", "tier": f"t{number}"}
        return fleet.operator.put(LABELS, json={"labels": labels}, headers={"if-match": seen})

    found = raced(label)

    assert sorted(answer.status_code for answer in found) == [200] + [409] * (RACERS - 1)
    stale = next(answer.json() for answer in found if answer.status_code == 409)
    winner = next(answer.json() for answer in found if answer.status_code == 200)
    assert stale["code"] == "version_conflict"
    shown = fleet.viewer.get("/v1/hosts/web-01").json()
    assert shown["labels"] == winner["labels"]


def test_only_one_of_many_edits_a_channel_at_one_version(fleet: ServedFleet) -> None:
    seen = fleet.viewer.get(CHANNEL_PATH).headers["etag"]

    def edit(number: int) -> httpx2.Response:
        body = {"selector": f"app=web,tier!=t{number}"}
        return fleet.manager.patch(CHANNEL_PATH, json=body, headers={"if-match": seen})

    found = raced(edit)

    assert sorted(answer.status_code for answer in found) == [200] + [409] * (RACERS - 1)


def commands(fleet: ServedFleet) -> tuple[tuple[Slice, Callable[[int], Struct]], ...]:
    """Edits of one host and of one channel, all based on the same versions."""
    installation = fleet.installation
    channel = installation.reads.find(channel_key(CHANNEL), Channel)
    host = installation.reads.find(host_key("web-01"), Host)
    fleet_row = installation.reads.find(fleet_key(), Fleet)
    assert channel is not None
    assert host is not None
    assert fleet_row is not None
    return (
        (
            edit_channel,
            lambda number: EditChannel(
                channel=CHANNEL,
                selector=f"app=web,tier!=t{number}",
                policy=channel.row.policy,
                operator="user_op",
                fleet_version=fleet_row.version,
                expected_version=channel.version,
            ),
        ),
        (
            label_host,
            lambda number: LabelHost(
                host_id="web-01",
                labels={"app": "web", "tier": f"t{number}"},
                operator="user_op",
                expected_version=host.version,
            ),
        ),
    )


@pytest.mark.parametrize("which", [0, 1], ids=["channel", "host"])
def test_holds_between_processes_without_a_common_lane(fleet: ServedFleet, which: int) -> None:
    item, command = commands(fleet)[which]
    head = fleet.installation.log.head()

    def execute(number: int) -> bool:
        try:
            fleet.installation.control.execute(item, command(number), meta=Meta(actor="user_op"))
        except StaleVersion:
            return False
        return True

    assert raced(execute).count(True) == 1
    written = fleet.installation.log.feed(after=head, limit=100)
    assert [event.type for event in written] == [
        ("ChannelEdited" if which == 0 else "HostLabelled")
    ]


def test_a_repeat_gets_the_first_response_whatever_happened_since(fleet: ServedFleet) -> None:
    seen = fleet.viewer.get("/v1/hosts/web-01").headers["etag"]
    headers = {"if-match": seen, "idempotency-key": "label-once"}
    body = {"labels": {"app": "web", "tier": "first"}}
    first = fleet.operator.put(LABELS, json=body, headers=headers)
    fleet.operator.put(LABELS, json={"labels": {"app": "web", "tier": "second"}})

    again = fleet.operator.put(LABELS, json=body, headers=headers)

    assert (first.status_code, again.status_code) == (200, 200)
    shown = fleet.viewer.get("/v1/hosts/web-01").json()
    assert shown["labels"]["tier"] == "second"
