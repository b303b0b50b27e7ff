"""What an agent decides: orders, switches, probes, rollbacks, refusals, all kinds of restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.single_host import (
    NEW,
    OLD,
    ROLLOUT,
    SingleHost,
    closure_of,
    order,
    run_old_release,
)
from tidegate.agent import soaks
from tidegate.agent.drivers import Staged, Switched, SwitchFailed, SwitchRequest
from tidegate.agent.probe_schedule import ProbeJob
from tidegate.agent.probes import PASSED, ProbeOutcome, probe_failure
from tidegate.domain.hosts.facts import (
    ActivationDeferred,
    ActivationFailed,
    DispatchAck,
    DispatchReject,
    Failed,
    ProbeResult,
    RollbackComplete,
)
from tidegate.domain.hosts.states import HostState, OnFailure, ProbeStatus

PROBES = """
[[probes]]
name = "front"
kind = "exec"
command = ["/bin/true"]
interval_seconds = 10

[[probes]]
name = "disk"
kind = "exec"
command = ["/bin/true"]
mode = "observe"
interval_seconds = 10
"""


@pytest.fixture
def host(tmp_path: Path) -> SingleHost:
    """A host that runs the old content, with two probes."""
    file = tmp_path / "probes.toml"
    file.write_text(PROBES)
    host = SingleHost(tmp_path, probe_file=str(file))
    run_old_release(host)
    return host


def fail(host: SingleHost) -> None:
    """Let the probe fail for as long as the policy tolerates."""
    host.soak()
    host.check(probe_failure("no"))
    host.wait(61)
    host.order_runs.tick()


# ── the happy path ──


def test_waits_for_the_server_before_it_switches(host: SingleHost) -> None:
    host.order_runs.take(order())

    assert host.kinds == ["DispatchAck"]
    assert not host.order_runs.jobs
    host.order_runs.confirm(ROLLOUT, 1)
    assert len(host.order_runs.jobs) == 1


def test_converges_when_the_soak_is_over_and_probes_pass(host: SingleHost) -> None:
    host.soak()
    host.check(PASSED)
    host.wait(29)
    host.order_runs.tick()
    assert host.is_at(HostState.SOAKING)

    host.wait(2)
    host.order_runs.tick()

    assert host.is_at(HostState.CONVERGED)
    assert host.kinds == [
        "ActivationStarted",
        "ActivationCompleted",
        "ProbeTopologyDeclared",
        "ProbeResult",
        "ProbeResult",
        "Converged",
    ]
    assert [event.seq for event in host.said] == [2, 3, 4, 5, 6, 7]


def test_does_not_converge_without_a_passing_probe_of_this_activation(host: SingleHost) -> None:
    host.soak()
    host.wait(31)
    host.order_runs.tick()

    assert host.is_at(HostState.SOAKING)


def test_reports_a_probe_only_when_its_result_changes(host: SingleHost) -> None:
    host.soak(soak_seconds=300)
    for result in (PASSED, PASSED, probe_failure("a"), probe_failure("b"), PASSED):
        host.wait(10)
        host.order_runs.tick()
        host.check(result)

    front = [e.status for e in host.said if isinstance(e, ProbeResult) if e.probe_name == "front"]
    assert front == [ProbeStatus.PASS, ProbeStatus.FAIL, ProbeStatus.PASS]


def say(host: SingleHost, result: ProbeOutcome) -> None:
    """Advance ten seconds, and let the probes give this result."""
    host.wait(10)
    host.order_runs.tick()
    host.check(result)


def test_a_lasting_failure_counts_with_any_number_of_waiting_reports(
    host: SingleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix, changes past the limit were dropped, and a broken release converged."""
    monkeypatch.setattr(soaks, "REPORTS_MAX", 1)
    host.soak(soak_seconds=300)
    say(host, PASSED)
    for _ in range(11):  # a minute until it is reported, a minute until it counts as sustained
        say(host, probe_failure("no"))
    assert host.is_at(HostState.SOAKING)
    host.wait(10)
    host.order_runs.tick()

    (failed,) = (event for event in host.said if isinstance(event, Failed))
    assert failed.failing_probes == ("front",)


def test_a_pass_counts_with_any_number_of_waiting_reports(
    host: SingleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the fix, the pass was dropped, the failure seemed to last, and a good release
    reverted.
    """
    host.soak(soak_seconds=30)
    say(host, probe_failure("starting"))
    monkeypatch.setattr(soaks, "REPORTS_MAX", 1)
    for _ in range(10):
        say(host, PASSED)

    assert host.is_at(HostState.CONVERGED)


def test_does_not_converge_on_an_unreported_failure(
    host: SingleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soaks, "REPORTS_MAX", 1)
    host.soak(soak_seconds=30)
    say(host, PASSED)
    for _ in range(5):
        say(host, probe_failure("no"))
    assert host.twin.probes["front"].status is ProbeStatus.PASS  # the report waits for a minute

    host.order_runs.tick()

    assert host.is_at(HostState.SOAKING)
    say(host, PASSED)
    assert host.is_at(HostState.CONVERGED)


def test_a_flapping_probe_reports_twice_a_minute_once_many_reports_wait(
    host: SingleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soaks, "REPORTS_MAX", 1)
    host.soak(soak_seconds=36_000)
    waiting = len(host.said)
    for _ in range(180):  # one hour
        say(host, PASSED)
        say(host, probe_failure("no"))

    for probe in ("front", "disk"):
        said = [e for e in host.said[waiting:] if isinstance(e, ProbeResult)]
        assert 60 <= len([e for e in said if e.probe_name == probe]) <= 121


def test_runs_a_probe_again_after_its_interval_and_not_before(host: SingleHost) -> None:
    host.soak()
    host.check()
    host.wait(9)
    host.order_runs.tick()
    assert not host.order_runs.jobs

    host.wait(1)
    host.order_runs.tick()

    assert len(host.order_runs.jobs) == 2


def test_ignores_a_result_of_an_earlier_activation(host: SingleHost) -> None:
    host.soak()
    old = host.order_runs.jobs[0]
    host.order_runs.jobs.clear()
    host.order_runs.drop_refused(host.journal.entries[0], state="Failed")
    host.switch()
    host.confirm()
    host.order_runs.take(order(attempt=2))
    host.confirm()
    host.wait(1)
    host.switch()
    said = len(host.said)

    host.order_runs.end_probe(old, probe_failure("late"))  # type: ignore[arg-type]

    assert len(host.said) == said


def test_takes_no_order_while_another_one_runs(host: SingleHost) -> None:
    host.soak()

    host.order_runs.take(order(rollout_id="web-stable@web.3"))

    assert list(host.journal.twins) == [ROLLOUT]


def test_takes_the_same_order_once(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()
    host.order_runs.take(order())

    assert host.kinds == ["ActivationStarted"]
    assert len(host.order_runs.jobs) == 1


def test_ignores_an_order_for_another_host(host: SingleHost) -> None:
    host.order_runs.take(order(host_id="web-2"))

    assert not host.journal.twins


# ── what is rejected, and what fails ──


def test_rejects_an_order_of_a_channel_that_it_does_not_serve(host: SingleHost) -> None:
    host.order_runs.take(order(channel="api"))

    (said,) = host.said
    assert isinstance(said, DispatchReject)
    assert "api" in said.reason


def test_rejects_an_order_when_the_probes_cannot_be_read(host: SingleHost) -> None:
    """A probe file that is configured but wrong does not count as no probes."""
    Path(host.probe_file).write_text("probes = 3")

    host.order_runs.take(order())

    assert host.kinds == ["DispatchReject"]
    assert host.is_at(HostState.FAILED)
    assert host.driver.current() == closure_of(OLD)


def test_fails_the_activation_when_the_probes_vanish_before_it(host: SingleHost) -> None:
    host.order_runs.take(order())
    Path(host.probe_file).unlink()

    host.confirm()

    assert host.kinds == ["ActivationFailed"]
    assert host.driver.current() == closure_of(OLD)


def test_fails_when_the_probes_vanish_during_the_switch(host: SingleHost) -> None:
    """The release already runs, so the agent declares a probe that never passes, and rolls back."""
    host.order_runs.take(order())
    host.confirm()
    Path(host.probe_file).unlink()
    host.switch()
    assert host.is_at(HostState.SOAKING)

    host.wait(61)
    host.order_runs.tick()
    host.switch()

    assert host.is_at(HostState.REVERTED)
    (ended,) = [event for event in host.said if isinstance(event, Failed)]
    assert ended.failing_probes == ("probe-file",)


def test_rejects_an_order_that_the_manifest_does_not_allow(host: SingleHost) -> None:
    host.order_runs.take(order(), objection="the manifest says otherwise")

    assert host.kinds == ["DispatchReject"]


def test_forgets_an_order_whose_rejection_was_lost_in_a_power_cut(host: SingleHost) -> None:
    """The manifest forbade the order: a restart must not acknowledge it."""
    host.order_runs.take(order(), objection="the manifest says otherwise")
    journal = host.state / "journal"
    first, _, _ = journal.read_bytes().partition(b"\n")
    journal.write_bytes(first + b"\n")

    host.crash()

    assert host.kinds == []
    assert ROLLOUT not in host.journal.twins
    host.order_runs.take(order(), objection="the manifest says otherwise")
    assert host.kinds == ["DispatchReject"]


def test_rolls_back_by_itself_to_what_ran_before(host: SingleHost) -> None:
    fail(host)
    assert host.is_at(HostState.FAILED)
    assert host.driver.current() == closure_of(NEW)

    host.content_source.is_away = True
    host.switch()

    assert host.is_at(HostState.REVERTED)
    assert host.driver.current() == closure_of(OLD)
    last = host.said[-1]
    assert isinstance(last, RollbackComplete)
    assert last.reverted_to_closure == closure_of(OLD)


def test_stays_on_the_failed_release_under_the_policy_halt(host: SingleHost) -> None:
    host.order_runs.take(order(policy={"on_failure": OnFailure.HALT}))
    host.confirm()
    host.switch()
    host.check(probe_failure("no"))
    host.wait(61)
    host.order_runs.tick()

    assert host.is_at(HostState.FAILED)
    assert not host.order_runs.jobs
    assert host.driver.current() == closure_of(NEW)


def test_reports_a_failed_rollback(host: SingleHost) -> None:
    fail(host)

    host.switch(SwitchFailed(7, "no"))

    assert host.kinds[-2:] == ["Failed", "RollbackFailed"]
    assert host.twin.rollback_failed
    host.confirm()
    assert not host.order_runs.is_busy


def test_rolls_back_when_the_switch_fails(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()

    host.switch(SwitchFailed(1, "it does not start"))
    host.switch()

    assert host.is_at(HostState.REVERTED)
    (said,) = [event for event in host.said if isinstance(event, ActivationFailed)]
    assert (said.exit_code, said.stderr_tail) == (1, "it does not start")


def test_fails_a_switch_after_which_something_else_runs(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()

    host.switch(Switched())  # the driver reports success, but the old content runs

    assert host.is_at(HostState.FAILED)


# ── regressions of the previous system ──


def test_d25_acknowledges_what_runs_and_not_the_target(host: SingleHost) -> None:
    host.order_runs.take(order())

    (said,) = host.said
    assert isinstance(said, DispatchAck)
    assert said.current_closure_at_dispatch == closure_of(OLD)
    assert said.target_closure == closure_of(NEW)


def test_d26_numbers_a_deferral_like_every_report(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()

    host.switch(Staged("kernel"))

    said = host.said[-1]
    assert isinstance(said, ActivationDeferred)
    assert (said.seq, said.component) == (3, "kernel")
    assert host.is_at(HostState.DEFERRED)


def test_d22_drops_a_report_that_can_never_succeed_and_sends_the_rest(host: SingleHost) -> None:
    fail(host)
    host.switch()
    poison = host.journal.entries[0]

    host.order_runs.drop_refused(poison, state="Reverted")

    assert host.said == []
    host.order_runs.take(order(rollout_id="web-stable@web.3"))
    assert host.kinds == ["DispatchAck"]


# ── responses of the server ──


def test_forgets_an_order_whose_acknowledgement_is_refused(host: SingleHost) -> None:
    host.order_runs.take(order())

    host.order_runs.drop_refused(host.journal.entries[0], state="Pending")

    assert not host.journal.twins
    assert not host.order_runs.jobs
    assert host.driver.current() == closure_of(OLD)


def test_takes_an_order_again_after_a_refusal(host: SingleHost) -> None:
    """A halted rollout sends the same order again once it is cleared."""
    host.order_runs.take(order())
    host.order_runs.drop_refused(host.journal.entries[0], state="Pending")

    host.order_runs.take(order())

    assert [event.seq for event in host.said] == [1]


def test_continues_the_numbers_after_a_refused_attempt(host: SingleHost) -> None:
    fail(host)
    host.switch()
    last = host.said[-1].seq
    host.confirm()
    host.order_runs.take(order(attempt=2))
    host.order_runs.drop_refused(host.journal.entries[0], state="Pending")

    host.order_runs.take(order(attempt=3))

    assert [event.seq for event in host.said] == [last + 1]


def test_continues_the_numbers_that_come_with_an_order(host: SingleHost) -> None:
    host.order_runs.take(order(), numbered=9)

    assert [event.seq for event in host.said] == [10]


def test_rolls_back_if_its_deadline_passed_while_the_server_was_down(host: SingleHost) -> None:
    """The activation deadline passed at the server, so later reports of the agent are void."""
    host.soak()
    host.check()
    host.wait(31)
    host.order_runs.tick()
    assert host.is_at(HostState.CONVERGED)
    completed = host.journal.entries[1]

    host.order_runs.drop_refused(completed, state="Failed")
    assert host.is_at(HostState.FAILED)
    host.switch()

    assert host.is_at(HostState.REVERTED)
    assert host.kinds == ["RollbackComplete"]
    assert host.said[0].seq == completed.event.seq
    assert host.driver.current() == closure_of(OLD)


# ── restarts ──


def test_resumes_with_an_acknowledgement_that_is_not_accepted_yet(host: SingleHost) -> None:
    host.order_runs.take(order())

    host.crash()

    assert host.kinds == ["DispatchAck"]
    assert not host.order_runs.jobs
    host.confirm()
    host.switch()
    assert host.is_at(HostState.SOAKING)


def test_resumes_in_the_middle_of_a_switch(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()
    host.driver.switch(SwitchRequest(closure_of(NEW), closure_of(OLD), "/new"))

    host.crash()
    host.switch()

    assert host.kinds == ["ActivationStarted", "ActivationCompleted", "ProbeTopologyDeclared"]


def test_resumes_a_soak_with_the_results_of_its_probes(host: SingleHost) -> None:
    host.soak()
    host.check()
    said = host.kinds

    host.crash()
    host.wait(31)
    host.order_runs.tick()
    assert host.kinds == said, "a probe that passed before the restart may fail after it"
    host.check()

    assert host.kinds == [*said, "Converged"], "an unchanged result is not reported again"


def test_does_not_converge_when_the_probe_fails_after_a_restart(host: SingleHost) -> None:
    host.soak()
    host.check()

    host.wait(31)
    host.crash()
    host.order_runs.tick()
    host.check(probe_failure("it did not come up again"))
    host.order_runs.tick()

    assert host.is_at(HostState.SOAKING)


def test_does_not_count_the_time_without_probes_as_a_failure(host: SingleHost) -> None:
    host.soak()
    host.check(probe_failure("no"))

    host.wait(61)
    host.crash()
    host.order_runs.tick()
    assert host.is_at(HostState.SOAKING)
    host.check()

    assert host.is_at(HostState.CONVERGED)


def test_an_observed_probe_delays_nothing_after_a_restart(host: SingleHost) -> None:
    host.soak()
    host.check()

    host.wait(31)
    host.crash()
    host.order_runs.tick()
    while host.order_runs.jobs:
        job = host.order_runs.jobs.popleft()
        assert isinstance(job, ProbeJob)
        if job.probe.name == "front":
            host.order_runs.end_probe(job, PASSED)

    assert host.is_at(HostState.CONVERGED)


def test_fails_a_declared_probe_that_is_gone_after_a_restart(host: SingleHost) -> None:
    host.soak()
    Path(host.probe_file).write_text("probes = []")

    host.crash()
    host.order_runs.tick()
    host.wait(61)
    host.order_runs.tick()

    assert host.is_at(HostState.FAILED)


def test_resumes_a_rollback(host: SingleHost) -> None:
    fail(host)

    host.crash()
    host.switch()

    assert host.is_at(HostState.REVERTED)
    assert host.driver.current() == closure_of(OLD)


def test_resumes_a_deferred_switch_after_a_reboot(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()
    host.switch(Staged("kernel"))
    host.confirm()

    host.crash()
    host.switch(Staged("kernel"))  # only the agent restarted
    assert host.is_at(HostState.DEFERRED)
    assert host.kinds == []
    host.crash()
    host.switch()

    assert host.is_at(HostState.SOAKING)


def test_a_new_order_replaces_one_that_waits_for_a_reboot(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()
    host.switch(Staged("kernel"))
    host.confirm()

    host.order_runs.take(order(rollout_id="web-stable@web.3", closure=closure_of(NEW)))
    host.confirm()

    assert list(host.journal.twins) == ["web-stable@web.3"]


# ── an order that the server withdrew ──


def defer(host: SingleHost) -> None:
    host.order_runs.take(order())
    host.confirm()
    host.switch(Staged("kernel"))
    host.confirm()
    assert host.is_at(HostState.DEFERRED)


def test_removes_what_is_staged_when_the_order_was_withdrawn(host: SingleHost) -> None:
    defer(host)

    host.order_runs.withdraw(ROLLOUT)

    assert host.order_runs.is_busy
    job = host.switch()
    assert job.change == SwitchRequest(closure_of(OLD), closure_of(NEW), content="")
    assert host.kinds == []
    assert ROLLOUT not in host.journal.twins
    assert not host.order_runs.is_busy


def test_removes_what_is_staged_also_after_a_restart(host: SingleHost) -> None:
    defer(host)
    host.order_runs.withdraw(ROLLOUT)

    host.crash()

    assert host.switch().change.closure == closure_of(OLD)
    assert ROLLOUT not in host.journal.twins


def test_reports_the_rollback_of_a_reboot_that_came_too_late(host: SingleHost) -> None:
    """The host failed at its deadline. It removes what is staged before the next reboot."""
    defer(host)
    host.wait(host.twin.policy.deferral_seconds)

    host.order_runs.withdraw(ROLLOUT)
    assert host.is_at(HostState.FAILED)
    host.crash()
    job = host.switch()

    assert job.change == SwitchRequest(closure_of(OLD), closure_of(NEW), content="")
    assert host.kinds == ["RollbackComplete"]
    assert host.is_at(HostState.REVERTED)
    host.crash()
    assert not host.order_runs.jobs


def test_reports_nothing_of_a_late_reboot_if_its_policy_is_to_halt(host: SingleHost) -> None:
    host.order_runs.take(order(policy={"on_failure": OnFailure.HALT}))
    host.confirm()
    host.switch(Staged("kernel"))
    host.confirm()
    host.wait(host.twin.policy.deferral_seconds)

    host.order_runs.withdraw(ROLLOUT)

    assert host.switch().change.closure == closure_of(OLD)
    assert host.kinds == []
    assert ROLLOUT not in host.journal.twins


def test_rolls_back_after_a_reboot_into_a_void_order(host: SingleHost) -> None:
    defer(host)
    host.crash()
    host.switch()
    assert host.kinds[0] == "ActivationCompleted"
    assert host.driver.current() == closure_of(NEW)

    host.check()

    host.order_runs.drop_refused(host.journal.entries[0], state=HostState.PENDING)
    host.switch()

    assert host.driver.current() == closure_of(OLD)
    assert host.kinds == []
    assert not host.order_runs.is_busy


def test_takes_the_next_attempt_of_an_order_that_waits_for_a_reboot(host: SingleHost) -> None:
    """The server withdrew the first attempt, and this host was not informed."""
    defer(host)

    host.order_runs.take(order(attempt=2))

    assert host.kinds == ["DispatchAck"]
    assert host.twin.attempt == 2


# ── an order that preempts ──

BACK = "web-stable@web.1~2"


def polls(host: SingleHost) -> bool:
    return host.order_runs.may_poll


def test_takes_an_order_that_preempts_while_it_soaks(host: SingleHost) -> None:
    host.soak(soak_seconds=3_600)
    host.confirm()
    assert polls(host)

    host.order_runs.take(order(closure_of(OLD), BACK, content="/old", policy={"preempts": True}))

    assert ROLLOUT not in host.journal.twins
    assert host.kinds == ["DispatchAck"], "nothing more is reported about the replaced rollout"
    assert not polls(host)
    host.crash()
    host.order_runs.confirm(BACK, 1)
    host.switch()
    assert host.driver.current() == closure_of(OLD)


def test_ignores_an_order_that_does_not_preempt_while_it_soaks(host: SingleHost) -> None:
    host.soak(soak_seconds=3_600)
    host.confirm()

    host.order_runs.take(order(closure_of(OLD), BACK, content="/old"))

    assert host.is_at(HostState.SOAKING)
    assert BACK not in host.journal.twins


def test_does_not_poll_while_it_switches_or_rolls_back(host: SingleHost) -> None:
    assert polls(host)
    host.order_runs.take(order())
    assert not polls(host), "its acknowledgement is being sent"
    host.confirm()
    assert not polls(host), "it switches"

    host.order_runs.take(order(closure_of(OLD), BACK, policy={"preempts": True}))

    assert BACK not in host.journal.twins
    host.switch()
    host.confirm()
    assert polls(host)
    host.check(probe_failure("no"))
    host.wait(61)
    host.order_runs.tick()
    assert not polls(host), "it rolls back"
