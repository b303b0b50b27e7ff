"""``tidegate agent``: enroll if this host is new, then run until INT or TERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname
from types import FrameType
from typing import Final

from tidegate import __version__, clock
from tidegate.agent import config, drivers, errors as agent_errors, identity, state_format
from tidegate.agent.client import AgentClient
from tidegate.agent.journal import Journal
from tidegate.agent.loop import AgentLoop, BackOff
from tidegate.domain.hosts.protocol import EnrollmentAnswer

TOKEN: Final = "TIDEGATE_AGENT_TOKEN"
JOIN: Final = "tj_"  # how join tokens begin
STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
ENROLL_ATTEMPTS_MAX: Final = 100
ENROLL_SECONDS_MAX: Final = 30.0  # between two of them
LINE: Final = "%(asctime)s %(levelname)s %(message)s"


def run(file: str, token_file: str | None = None, state_directory: str | None = None) -> None:
    """Run the agent of this host with the settings of the file; enroll it if it is new.

    Raises:
        InvalidAgentSetting, NotEnrolled, StateHeld, StateFormatRefused, JournalDamaged,
        RefusedByServer.
    """
    settings = config.load(Path(file), state=state_directory)
    logging.basicConfig(level=logging.INFO, format=LINE, stream=sys.stderr)
    for noisy in ("httpx2", "httpcore2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    state = Path(settings.state)
    with ExitStack() as stack:
        stack.enter_context(identity.lock_state_directory(state))
        state_format.check_format(state)
        key = identity.load_or_create_key(state)
        enrolled = identity.load_enrollment(state) or _enroll(state, settings, key, token_file)
        client = AgentClient(settings.server, key, clock.system_clock, enrolled.host_id)
        stack.callback(client.close)
        journal = Journal(state)
        stack.callback(journal.close)
        loop = AgentLoop(
            settings,
            enrolled,
            client,
            journal,
            drivers.build_drivers(settings, client),
            clock.system_clock,
            __version__,
        )
        _stop_on_signals(loop)
        logging.info("%s works for %s", enrolled.host_id, settings.server)
        loop.run()
        logging.info("%s stopped", enrolled.host_id)


def _enroll(
    state: Path, settings: config.AgentSettings, key: identity.HostKey, file: str | None
) -> EnrollmentAnswer:
    """Raises: NotEnrolled, InvalidAgentSetting, RefusedByServer."""
    token = os.environ.get(TOKEN, "")
    if file is not None:
        try:
            token = Path(file).read_text().strip()
        except OSError as error:
            raise agent_errors.InvalidAgentSetting(
                f"{file} cannot be read: {error.strerror}"
            ) from None
    if not token:
        raise agent_errors.NotEnrolled(
            f"the first start needs a one-time token: --token-file or {TOKEN}"
        )
    client = AgentClient(settings.server, key, clock.system_clock)
    try:
        enrolled = _register(client, token, settings.host or gethostname().lower())
    finally:
        client.close()
    identity.save_enrollment(state, enrolled)
    return enrolled


def _register(client: AgentClient, token: str, name: str) -> EnrollmentAnswer:
    """Register the host; retry while the server is away or busy."""
    back_off = BackOff(ENROLL_SECONDS_MAX)
    for _ in range(ENROLL_ATTEMPTS_MAX):
        try:
            return client.join(token, name) if token.startswith(JOIN) else client.enroll(token)
        except agent_errors.ServerAway as away:
            logging.warning("not enrolled yet: %s", away.detail)
            time.sleep(back_off.failed())
    raise agent_errors.NotEnrolled(f"the server did not answer in {ENROLL_ATTEMPTS_MAX} attempts")


def _stop_on_signals(loop: AgentLoop) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        loop.stop()

    for number in STOPPING:
        signal.signal(number, stop)
