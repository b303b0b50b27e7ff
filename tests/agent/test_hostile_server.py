"""An agent against a hostile server: memory stays bounded, and every exchange ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent import hostile_server
from tests.agent.hostile_server import Behaviour, serve_hostile

SECONDS_MAX = 60
KIB_MAX = 40 * 1024  # growth allowed for a process; an endless body would take gigabytes
LISTING_KIB_MAX = 160 * 1024  # a listing may have 64 MiB and is held in memory whole

# The child prints how the call ended and by how many KiB the process grew.
CHILD = """
import json, resource, sys
from datetime import timedelta
from pathlib import Path
from tidegate.agent import identity
from tidegate.agent.client import AgentClient
from tidegate.agent.content import _fetch_file
from tidegate.clock import system_clock
from tidegate.domain.content.entries import File
from tidegate.domain.hosts.protocol import SessionAnswer
from tidegate.errors import TidegateError

url, call, place = sys.argv[1:4]
state = Path(place) / "state"
state.mkdir(mode=0o700, exist_ok=True)
client = AgentClient(
    url,
    identity.load_or_create_key(state),
    system_clock,
    "web-1",
    answer_seconds=2.0,
    download_seconds=2.0,
)
client._session = SessionAnswer("s", "00" * 32, system_clock() + timedelta(hours=1), system_clock())
calls = {
    "heartbeat": lambda: client.heartbeat("1", {}),
    "dispatch": lambda: client.dispatch(0),
    "manifest": lambda: client.manifest("stable"),
    "listing": lambda: client.listing("/v1/agent/releases/web.1"),
    "file": lambda: _fetch_file(
        File("app", "ab" * 32, 1_000), Path(place) / "app", "/v1/agent/releases/web.1", client
    ),
}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    calls[call]()
    ended = "done"
except TidegateError as error:
    ended = error.code
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"ended": ended, "grown": grown, "left": (Path(place) / "app").exists()}))
"""


def run(behaviour: Behaviour, call: str, place: Path) -> tuple[str, int]:
    """Run a call of the agent, and return how it ended and by how many KiB its process grew."""
    with serve_hostile(behaviour) as url:
        ran = subprocess.run(
            [sys.executable, "-c", CHILD, url, call, str(place)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    # Only an interrupted download leaves a file, because it is resumed later.
    assert not found["left"] or (call == "file" and found["ended"] == "server_away")
    return found["ended"], found["grown"]


BODIES = [
    hostile_server.endless,
    hostile_server.announced,
    hostile_server.gzip_bomb,
    hostile_server.drip,
    hostile_server.drip_head,
]


@pytest.mark.parametrize("behaviour", BODIES, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize("call", ["heartbeat", "dispatch", "manifest"])
def test_a_hostile_response_ends_and_costs_little(
    tmp_path: Path, behaviour: Behaviour, call: str
) -> None:
    ended, grown = run(behaviour, call, tmp_path)

    assert ended == "server_away"
    assert grown < KIB_MAX


@pytest.mark.parametrize("behaviour", BODIES, ids=lambda behaviour: behaviour.__name__)
def test_a_hostile_listing_ends_and_costs_no_more_than_the_largest(
    tmp_path: Path, behaviour: Behaviour
) -> None:
    ended, grown = run(behaviour, "listing", tmp_path)

    assert ended == "server_away"
    assert grown < LISTING_KIB_MAX


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (hostile_server.endless, "content_mismatch"),
        (hostile_server.announced, "content_mismatch"),
        (hostile_server.one_more, "content_mismatch"),
        (hostile_server.gzip_bomb, "server_away"),
        (hostile_server.drip, "server_away"),
        (hostile_server.drip_head, "server_away"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_is_read_up_to_its_listed_size_and_no_further(
    tmp_path: Path, behaviour: Behaviour, expected: str
) -> None:
    ended, grown = run(behaviour, "file", tmp_path)

    assert ended == expected
    assert grown < KIB_MAX
