"""The release state example on every engine: the walk, both directions, and failures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Struct

from examples.release_state import app
from examples.release_state.directions import ALIAS, actual, deployment, promotion
from tests.contract.address import Address
from tests.examples.racing import connector
from tests.fake_target import FakeTarget
from tidegate.clock import ManualClock
from tidegate.control.outbox.reconcile import Reconciler
from tidegate.control.outbox.sender import EffectFailed, EffectRefused, OutboxSender
from tidegate.control.outbox.targets.file import FileTarget
from tidegate.control.queries import history
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.domain.outbox.reconciliation import Observation
from tidegate.domain.releases.registry import BUILT_IN
from tidegate.domain.releases.slices import TransitionRelease
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import StaleVersion
from tidegate.kernel.model import NO_META, Meta
from tidegate.kernel.replay import differences
from tidegate.kernel.slices import Alongside, Slice

ROOT = Path(__file__).parents[2]
T0 = datetime(2026, 4, 24, 19, tzinfo=UTC)


@pytest.fixture
def control(address: Address | None) -> Iterator[Control]:
    with (
        closing(connector(address, app.FOLDS)()) as store,
        closing(GroupCommit(store)) as writer,
    ):
        yield Control(store, app.FOLDS, writer.submit, clock=ManualClock(T0))
        assert differences(store, app.FOLDS) == []


@pytest.mark.req("RS-19")
def test_walks_from_the_first_pin_to_the_last_refusal(
    control: Control, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.walk(control, FileTarget(tmp_path), tmp_path)

    said = capsys.readouterr().out
    for line in (
        "registered: web.1 at version 0",
        "wanted: web.2 at version 1, operator_command_authority; outside: nothing",
        "performed service-a:web.2:lambda_alias_update:1; outside: web.2",
        "a second look appends 0 facts",
        "recorded what was seen: web.3 at version 2, codepipeline_execution_authority",
        "outside: web.4; recorded: web.3 at version 2",
        "recovered: True, web.4 at version 3",
        "lost outside: 2 facts, 1 attempts; outside: web.2",
        "repaired: 1 facts, 0 attempts; outside: web.2",
        "at rest: 0 facts, 0 attempts; outside: web.2",
        "manifest with none: EvidenceKept; web.2 at version 4",
        "manifest with several: EvidenceKept; web.2 at version 4",
        "manifest with one: ReleaseTransitioned; web.1 at version 5, unique_factory_manifest_match",
        "refused: a stale version: version_conflict",
        "refused: a used event key: duplicate_event",
        "refused: low confidence: rejected_evidence",
        "EVIDENCE#factory#several",
        "differences after replay: []",
    ):
        assert line in said, line
    assert said.count("refused: ") == 19


@pytest.mark.req("RS-19")
def test_shows_an_effect_as_done_only_when_it_is(control: Control) -> None:
    """ "Do not hide external side effects behind a helper that appears to be atomic." """
    target = FakeTarget()
    app.register(control)
    command = promotion(control, app.SCOPE, "web.2", app.DIGESTS["web.2"], "c1")
    control.execute(BUILT_IN.transition, command)
    assert (actual(control, app.SCOPE).pinned_release_id, app.outside(target)) == (
        "web.2",
        "nothing",
    )
    target.fail("busy", "busy")
    worker = OutboxSender(control, {ALIAS: target}, jitter=lambda: 0.0)

    made = [worker.work()[0] for _ in range(3)]

    assert len({attempted.key for attempted in made}) == 1
    assert app.outside(target) == "web.2"
    told = [item.type for item in history.list_scope_events(control.store, app.SCOPE, limit=99)]
    assert told[-3:] == ["AttemptFailed", "AttemptFailed", "AttemptSucceeded"]


@pytest.mark.req("RS-19")
def test_records_nothing_of_an_effect_that_did_not_happen(control: Control) -> None:
    target = FakeTarget()
    app.register(control)
    tried = deployment(control, target, app.SCOPE, "web.2", app.DIGESTS["web.2"])

    target.fail("busy")
    with pytest.raises(EffectFailed):
        tried.run()
    target.fail("never", retryable=False)
    with pytest.raises(EffectRefused):
        tried.run()
    assert not tried.recover()
    assert actual(control, app.SCOPE).version == 0

    tried.run()
    assert actual(control, app.SCOPE).pinned_release_id == "web.2"
    assert len(set(target.keys)) == 1


class Overtaken(Control):
    """A control in which another command is decided before its next one."""

    faster: TransitionRelease | None = None

    def execute(
        self,
        item: Slice,
        command: Struct,
        *,
        meta: Meta = NO_META,
        key: str | None = None,
        asked: Struct | None = None,
        alongside: Alongside | None = None,
    ) -> CommandOutcome:
        if self.faster is not None:
            other, self.faster = self.faster, None
            super().execute(BUILT_IN.transition, other)
        return super().execute(item, command, meta=meta, key=key, asked=asked, alongside=alongside)


@pytest.mark.req("RS-19")
def test_recovers_an_effect_whose_state_lost_the_race(control: Control) -> None:
    """ "If the transaction fails, reconcile from the idempotency key and observed state." """
    target = FakeTarget()
    app.register(control)
    with closing(GroupCommit(control.store)) as writer:
        overtaken = Overtaken(control.store, app.FOLDS, writer.submit, clock=control.clock)
        tried = deployment(overtaken, target, app.SCOPE, "web.2", app.DIGESTS["web.2"])
        overtaken.faster = promotion(control, app.SCOPE, "web.3", app.DIGESTS["web.3"], "c1")

        with pytest.raises(StaleVersion):
            tried.run()
        assert actual(control, app.SCOPE).pinned_release_id == "web.3"

        assert tried.recover()
        assert tried.recover()

    assert actual(control, app.SCOPE).pinned_release_id == "web.2"
    assert actual(control, app.SCOPE).version == 2
    assert len(target.calls) == 1


@pytest.mark.req("RS-19")
def test_does_not_change_pin_and_confidence_when_the_world_disagrees(control: Control) -> None:
    target = FakeTarget()
    app.register(control)
    command = promotion(control, app.SCOPE, "web.2", app.DIGESTS["web.2"], "c1")
    control.execute(BUILT_IN.transition, command)
    worker = OutboxSender(control, {ALIAS: target})
    worker.work()
    before = actual(control, app.SCOPE)
    target.world[app.SCOPE, ALIAS] = Observation("somebody-else", {"releaseId": "web.9"})

    first, second = Reconciler(worker).run_once(), Reconciler(worker).run_once()

    assert (first.appended, second.appended) == (2, 0), "stored evidence, and a refusal"
    assert actual(control, app.SCOPE) == before
    last = history.list_scope_events(control.store, app.SCOPE, limit=99)[-1]
    assert last.type == "ReconciliationRefused"


def test_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "examples.release_state.app"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "differences after replay: []" in done.stdout
