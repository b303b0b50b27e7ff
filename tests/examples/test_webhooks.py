"""The receivers in `examples/webhooks`: stock libraries of PyPI and npm verify what we send.

Each is a process of its own, with the real clock. Without Node or its packages the tests fail.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from shutil import copy
from threading import Thread

import pytest

from tests.contract.test_targets import ALIAS, KEY, effect
from tests.operations.notified_fleet import notify_fleet
from tests.servers.node import STANDARD_WEBHOOKS, install, node
from tests.servers.process import until
from tidegate.clock import system_clock
from tidegate.control.operations.subscriptions import NewTarget
from tidegate.control.outbox.targets import TargetDone, TargetFailed
from tidegate.control.outbox.targets.webhook import WebhookTarget
from tidegate.control.webhooks import to_secret
from tidegate.domain.outbox.reconciliation import Observation

EXAMPLES = Path(__file__).parents[2] / "examples" / "webhooks"
SECRET = to_secret(b"a secret of thirty-two bytes, ok")
OTHER = to_secret(b"another secret, of 32 bytes too.")
ONE_STORE = {"engines": None, "reason": "the store is not part of a message"}


class ReceiverProcess:
    """A running receiver, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        first = process.stdout.readline()
        assert first.startswith("listening on "), first
        self.place = f"127.0.0.1:{first.split()[-1]}"
        self.lines: list[str] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._reader.join()

    def target(self, *secrets: str) -> WebhookTarget:
        return WebhookTarget(
            f"http://{self.place}/",
            secrets,
            allowed=(self.place,),
            observable=True,
            timeout_seconds=60.0,
        )


def python_command(directory: Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / "receiver.py")]


def node_command(directory: Path) -> list[str]:
    install(STANDARD_WEBHOOKS, directory)
    return [node(), str(copy(EXAMPLES / "receiver.js", directory))]


COMMANDS = {"python": python_command, "node": node_command}


@contextmanager
def receiving(language: str, directory: Path, secret: str) -> Iterator[ReceiverProcess]:
    secret_file = directory / "secret"
    secret_file.write_text(f"{secret}\n")
    command = [*COMMANDS[language](directory), str(secret_file), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        receiver = ReceiverProcess(process)
        try:
            yield receiver
        finally:
            receiver.end()


@pytest.fixture(params=COMMANDS)
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReceiverProcess]:
    with receiving(request.param, tmp_path, SECRET) as found:
        yield found


@pytest.mark.req("NT-2", **ONE_STORE)
def test_a_halted_rollout_is_verified_by_a_stock_library(
    receiver: ReceiverProcess, tmp_path: Path
) -> None:
    with notify_fleet(tmp_path / "data", more_allowed=(receiver.place,)) as notified:
        url = f"http://{receiver.place}/hooks"
        events = ("rollout.halted",)
        for name, secret in (("ops", SECRET), ("stranger", OTHER)):
            target = NewTarget(url=url, secret=secret)
            notified.subscribe(name, target=target, events=events)
        notified.fleet.sail()
        notified.fleet.fail("web-01")
        notified.clock.now = system_clock()

        notified.run_round()

        queue = notified.installation.subscriptions.queue
        ours, other = queue("ops"), queue("stranger")
        assert (ours.waiting, other.waiting) == (0, 1)
        assert other.last_error == "status 401"
        assert notified.differences() == []
    assert until(lambda: len(receiver.lines) == 2, seconds_max=60)
    halted = "message dev.tidegate.rollout.halted.v1 ✘ web-stable: web.1 stopped in wave 1 of 2"
    assert sorted(receiver.lines) == [halted, "refused No matching signature found"]


@pytest.mark.req("NT-2", **ONE_STORE)
def test_a_rotated_secret_is_verified_before_and_after_the_receiver_has_it(
    receiver: ReceiverProcess,
) -> None:
    assert receiver.target(OTHER, SECRET).try_out() == TargetDone("status 204")
    assert receiver.target(SECRET).try_out() == TargetDone("status 204")
    assert receiver.target(OTHER).try_out() == TargetFailed("status 401", retryable=False)


@pytest.mark.req("RS-9", **ONE_STORE)
def test_an_effect_happens_once_per_id_and_its_state_can_be_queried(
    receiver: ReceiverProcess,
) -> None:
    target = receiver.target(SECRET)
    assert target.observe("web", ALIAS) == Observation()

    for _ in range(2):
        assert target.perform(KEY, effect(1)) == TargetDone("status 204")
    newer = KEY.replace(":0", ":2")
    assert target.perform(newer, effect(2, "web.2")) == TargetDone("status 204")
    assert target.perform(KEY.replace(":0", ":1"), effect(1)) == TargetDone("status 204")

    state = {"releaseId": "web.2", "status": "active"}
    assert target.observe("web", ALIAS) == Observation(newer, state)
    receiver.end()
    assert receiver.lines == [
        f"effect web {ALIAS} web.1",
        f"again {KEY}",
        f"effect web {ALIAS} web.2",
    ]


@pytest.mark.req("RS-9", **ONE_STORE)
def test_an_old_request_is_refused(receiver: ReceiverProcess) -> None:
    target = WebhookTarget(
        f"http://{receiver.place}/",
        (SECRET,),
        allowed=(receiver.place,),
        timeout_seconds=60.0,
        clock=lambda: system_clock() - timedelta(minutes=10),
    )

    assert target.perform(KEY, effect()) == TargetFailed("status 401", retryable=False)
