"""A server that has just started decodes in many threads at once, and builds no decoder for it.

Each test runs a child process: a defect here crashes the process, and decoders are global.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTS = 3
SECONDS_MAX = 300.0

COMPOSED = """
import resource, sys, threading
from pathlib import Path

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

from tidegate.config import Settings
from tidegate.main import make_application, open_installation
from tidegate.errors import TidegateError
from tidegate.kernel import codec

installation = open_installation(Settings(data=sys.argv[1]))
application = make_application(installation)
routes = application.routes
schema = installation.store.schema
vocabulary = schema.vocabulary
"""

# Sixteen threads decode everything that a request, a commit or a page may decode. They meet before
# each type, so that all of them decode it for the first time at once.
HAMMERED = (
    COMPOSED
    + """
from tidegate.web import decoding
from tidegate.web.routing import Consumes
from tidegate.domain.hosts.report_json import KINDS

structs = [known.struct for known in vocabulary.types.values()]
structs += [view for item in vocabulary.slices for view in item.reads]
models = [collection.model for collection in schema.collections.values()]
asked = [lambda s=s: codec.decode(b"{}", s) for s in (*structs, *models)]
asked += [lambda s=s: codec.decode_all([b"{}"], s) for s in models]
asked += [lambda s=s: codec.convert({}, s) for s in (*structs, *KINDS.values())]
for route in routes:
    asked.append(lambda r=route: decoding.path_of(r, ["x"] * len(r.parameters)))
    asked.append(lambda r=route: decoding.query_of(r, b"limit=1&next=a"))
    if route.content is Consumes.JSON:
        asked.append(lambda r=route: decoding.body_of(r, b'{"zzz": [{}]}'))

def ask():
    for one in asked:
        barrier.wait()
        try:
            one()
        except TidegateError as error:
            if error.code == "invalid_definition":
                failed.append(error.detail)
        except Exception as error:
            failed.append(repr(error))

failed = []
barrier = threading.Barrier(16)
threads = [threading.Thread(target=ask) for _ in range(16)]
sys.setswitchinterval(1e-6)
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.setswitchinterval(0.005)
application.close()
installation.close()
assert not failed, failed[:5]
assert len(asked) > 500, len(asked)
"""
)

WALKED = (
    COMPOSED
    + """
from tidegate import agent, config, decoders
from tidegate.agent import client, command, journal, probes
from tidegate.agent.config import AgentSettings
from tidegate.control.publication.manifests import ChannelManifest, SignedManifest
from tidegate.domain.hosts.report_json import KINDS
from tidegate.domain.hosts import protocol
from tidegate.domain.planner import Plan

used = {known.struct for known in vocabulary.types.values()}
used |= {view for item in vocabulary.slices for view in item.reads}
used |= {collection.model for collection in schema.collections.values()}
used |= {struct for route in routes for struct in route.types}
used |= {*KINDS.values(), *journal.KINDS.values(), config.Settings, AgentSettings}
used |= {protocol.EnrollmentAnswer, protocol.HeartbeatAnswer, protocol.SessionAnswer}
used |= {protocol.Order}
used |= {protocol.ReleaseContent, protocol.ReportsAnswer, ChannelManifest, SignedManifest, Plan}
missing = sorted(struct.__name__ for struct in used - decoders.built())
application.close()
installation.close()
assert not missing, missing
assert len(used) > 200, len(used)
"""
)

FILLED = """
import sys
from pathlib import Path
from unittest.mock import patch

from tests.api.served_fleet import serve_fleet
from tests.api.populated_installation import PopulatedInstallation
from tests.api.page_walk import walk
from tidegate import decoders
from tidegate.dashboard.routes import PAGES
from tidegate.api.routes import ROUTES
from tidegate.control.operations import passwords

everything = (*ROUTES, *PAGES)
with patch.object(passwords, "SCRYPT_N", 2), serve_fleet(Path(sys.argv[1]), everything) as fleet:
    before = decoders.built()
    populated = PopulatedInstallation(fleet.served)
    populated.fill()
    seen = walk(populated.browser("administrator"), "/")
    late = decoders.built() - before
assert not late, late
assert len(seen.statuses) > 100, len(seen.statuses)
"""


def ran(script: str, data: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, str(data)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_survives_threads_that_decode_everything_right_after_a_start(tmp_path: Path) -> None:
    for start in range(STARTS):
        ended = ran(HAMMERED, tmp_path / str(start))

        assert ended.returncode == 0, (start, ended.returncode, ended.stderr[-2_000:])


def test_has_built_every_type_that_it_decodes_when_it_is_composed(tmp_path: Path) -> None:
    ended = ran(WALKED, tmp_path / "data")

    assert ended.returncode == 0, ended.stderr[-2_000:]


def test_builds_no_decoder_while_it_serves(tmp_path: Path) -> None:
    ended = ran(FILLED, tmp_path / "data")

    assert ended.returncode == 0, ended.stderr[-2_000:]
