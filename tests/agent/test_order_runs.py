"""What an agent decides: orders, switches, probes, ways back, refusals, all kinds of restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.single_host import NEW, OLD, ROLLOUT, Berth, closure_of, order, run_old
from tidegate.agent.drivers import Staged, Switched, SwitchFailed, SwitchRequest
from tidegate.agent.probes import PASSED, probe_failure
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
def berth(tmp_path: Path) -> Berth:
    """A host on which the old content runs, with two probes."""
    file = tmp_path / "probes.toml"
    file.write_text(PROBES)
    berth = Berth(tmp_path, probe_file=str(file))
    run_old(berth)
    return berth


def fail(berth: Berth) -> None:
    """Let the probe fail for as long as the policy stands it."""
    berth.soak()
    berth.check(probe_failure("no"))
    berth.wait(61)
    berth.passages.tick()


# ── the straight way ──


def test_waits_for_the_server_before_it_switches(berth: Berth) -> None:
    berth.passages.take(order())

    assert berth.kinds == ["DispatchAck"]
    assert not berth.passages.jobs
    berth.passages.confirmed(ROLLOUT, 1)
    assert len(berth.passages.jobs) == 1


def test_converges_when_the_soak_is_over_and_probes_pass(berth: Berth) -> None:
    berth.soak()
    berth.check(PASSED)
    berth.wait(29)
    berth.passages.tick()
    assert berth.is_at(HostState.SOAKING)

    berth.wait(2)
    berth.passages.tick()

    assert berth.is_at(HostState.CONVERGED)
    assert berth.kinds == [
        "ActivationStarted",
        "ActivationCompleted",
        "ProbeTopologyDeclared",
        "ProbeResult",
        "ProbeResult",
        "Converged",
    ]
    assert [event.seq for event in berth.said] == [2, 3, 4, 5, 6, 7]


def test_does_not_converge_without_a_pass_of_this_activation(berth: Berth) -> None:
    berth.soak()
    berth.wait(31)
    berth.passages.tick()

    assert berth.is_at(HostState.SOAKING)


def test_says_what_a_probe_says_only_when_it_changes(berth: Berth) -> None:
    berth.soak(soak_seconds=300)
    for result in (PASSED, PASSED, probe_failure("a"), probe_failure("b"), PASSED):
        berth.wait(10)
        berth.passages.tick()
        berth.check(result)

    front = [e.status for e in berth.said if isinstance(e, ProbeResult) if e.probe_name == "front"]
    assert front == [ProbeStatus.PASS, ProbeStatus.FAIL, ProbeStatus.PASS]


def test_runs_a_probe_again_after_its_interval_and_not_before(berth: Berth) -> None:
    berth.soak()
    berth.check()
    berth.wait(9)
    berth.passages.tick()
    assert not berth.passages.jobs

    berth.wait(1)
    berth.passages.tick()

    assert len(berth.passages.jobs) == 2


def test_leaves_a_result_of_an_earlier_activation_alone(berth: Berth) -> None:
    berth.soak()
    old = berth.passages.jobs[0]
    berth.passages.jobs.clear()
    berth.passages.refused(berth.journal.entries[0], state="Failed")
    berth.switch()
    berth.confirm()
    berth.passages.take(order(attempt=2))
    berth.confirm()
    berth.wait(1)
    berth.switch()
    said = len(berth.said)

    berth.passages.checked(old, probe_failure("late"))  # type: ignore[arg-type]

    assert len(berth.said) == said


def test_takes_no_order_while_it_works_on_another(berth: Berth) -> None:
    berth.soak()

    berth.passages.take(order(rollout_id="web-stable@web.3"))

    assert list(berth.journal.twins) == [ROLLOUT]


def test_takes_the_same_order_once(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()
    berth.passages.take(order())

    assert berth.kinds == ["ActivationStarted"]
    assert len(berth.passages.jobs) == 1


def test_leaves_an_order_for_another_host_alone(berth: Berth) -> None:
    berth.passages.take(order(host_id="web-2"))

    assert not berth.journal.twins


# ── what is rejected, and what fails ──


def test_rejects_an_order_of_a_channel_that_it_does_not_serve(berth: Berth) -> None:
    berth.passages.take(order(channel="api"))

    (said,) = berth.said
    assert isinstance(said, DispatchReject)
    assert "api" in said.reason


def test_rejects_an_order_when_the_probes_cannot_be_read(berth: Berth) -> None:
    """A file that is named and wrong is not an empty set of probes."""
    Path(berth.probe_file).write_text("probes = 3")

    berth.passages.take(order())

    assert berth.kinds == ["DispatchReject"]
    assert berth.is_at(HostState.FAILED)
    assert berth.driver.current() == closure_of(OLD)


def test_fails_the_activation_when_the_probes_vanish_before_it(berth: Berth) -> None:
    berth.passages.take(order())
    Path(berth.probe_file).unlink()

    berth.confirm()

    assert berth.kinds == ["ActivationFailed"]
    assert berth.driver.current() == closure_of(OLD)


def test_fails_when_the_probes_vanish_during_the_switch(berth: Berth) -> None:
    """It runs already: so it is declared ill, by a probe that never passes, and goes back."""
    berth.passages.take(order())
    berth.confirm()
    Path(berth.probe_file).unlink()
    berth.switch()
    assert berth.is_at(HostState.SOAKING)

    berth.wait(61)
    berth.passages.tick()
    berth.switch()

    assert berth.is_at(HostState.REVERTED)
    (ended,) = [event for event in berth.said if isinstance(event, Failed)]
    assert ended.failing_probes == ("probe-file",)


def test_rejects_an_order_that_the_manifest_puts_in_doubt(berth: Berth) -> None:
    berth.passages.take(order(), doubt="the manifest says otherwise")

    assert berth.kinds == ["DispatchReject"]


def test_forgets_an_order_whose_rejection_was_torn_off_with_the_power(berth: Berth) -> None:
    """The manifest forbade it: a restart must not acknowledge it."""
    berth.passages.take(order(), doubt="the manifest says otherwise")
    journal = berth.state / "journal"
    first, _, _ = journal.read_bytes().partition(b"\n")
    journal.write_bytes(first + b"\n")

    berth.crash()

    assert berth.kinds == []
    assert ROLLOUT not in berth.journal.twins
    berth.passages.take(order(), doubt="the manifest says otherwise")
    assert berth.kinds == ["DispatchReject"]


def test_goes_back_by_itself_to_what_ran_before(berth: Berth) -> None:
    fail(berth)
    assert berth.is_at(HostState.FAILED)
    assert berth.driver.current() == closure_of(NEW)

    berth.shelf.is_away = True
    berth.switch()

    assert berth.is_at(HostState.REVERTED)
    assert berth.driver.current() == closure_of(OLD)
    last = berth.said[-1]
    assert isinstance(last, RollbackComplete)
    assert last.reverted_to_closure == closure_of(OLD)


def test_stays_where_it_is_under_the_policy_halt(berth: Berth) -> None:
    berth.passages.take(order(policy={"on_failure": OnFailure.HALT}))
    berth.confirm()
    berth.switch()
    berth.check(probe_failure("no"))
    berth.wait(61)
    berth.passages.tick()

    assert berth.is_at(HostState.FAILED)
    assert not berth.passages.jobs
    assert berth.driver.current() == closure_of(NEW)


def test_says_that_it_could_not_go_back(berth: Berth) -> None:
    fail(berth)

    berth.switch(SwitchFailed(7, "no"))

    assert berth.kinds[-2:] == ["Failed", "RollbackFailed"]
    assert berth.twin.rollback_failed
    berth.confirm()
    assert not berth.passages.is_busy


def test_goes_back_when_the_switch_fails(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()

    berth.switch(SwitchFailed(1, "it does not start"))
    berth.switch()

    assert berth.is_at(HostState.REVERTED)
    (said,) = [event for event in berth.said if isinstance(event, ActivationFailed)]
    assert (said.exit_code, said.stderr_tail) == (1, "it does not start")


def test_fails_a_switch_after_which_something_else_runs(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()

    berth.switch(Switched())  # it says so, and the old content runs

    assert berth.is_at(HostState.FAILED)


# ── the regressions of the system that we learnt from ──


def test_d25_names_what_runs_as_the_way_back_and_not_the_target(berth: Berth) -> None:
    berth.passages.take(order())

    (said,) = berth.said
    assert isinstance(said, DispatchAck)
    assert said.current_closure_at_dispatch == closure_of(OLD)
    assert said.target_closure == closure_of(NEW)


def test_d26_numbers_a_deferral_like_every_report(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()

    berth.switch(Staged("kernel"))

    said = berth.said[-1]
    assert isinstance(said, ActivationDeferred)
    assert (said.seq, said.component) == (3, "kernel")
    assert berth.is_at(HostState.DEFERRED)


def test_d22_drops_a_report_that_can_never_succeed_and_sends_the_rest(berth: Berth) -> None:
    fail(berth)
    berth.switch()
    poison = berth.journal.entries[0]

    berth.passages.refused(poison, state="Reverted")

    assert berth.said == []
    berth.passages.take(order(rollout_id="web-stable@web.3"))
    assert berth.kinds == ["DispatchAck"]


# ── what the server says ──


def test_forgets_an_order_whose_acknowledgement_is_refused(berth: Berth) -> None:
    berth.passages.take(order())

    berth.passages.refused(berth.journal.entries[0], state="Pending")

    assert not berth.journal.twins
    assert not berth.passages.jobs
    assert berth.driver.current() == closure_of(OLD)


def test_takes_an_order_again_that_was_refused_once(berth: Berth) -> None:
    """A halted rollout that is cleared hands out the same order."""
    berth.passages.take(order())
    berth.passages.refused(berth.journal.entries[0], state="Pending")

    berth.passages.take(order())

    assert [event.seq for event in berth.said] == [1]


def test_goes_on_with_the_numbers_after_a_refused_attempt(berth: Berth) -> None:
    fail(berth)
    berth.switch()
    last = berth.said[-1].seq
    berth.confirm()
    berth.passages.take(order(attempt=2))
    berth.passages.refused(berth.journal.entries[0], state="Pending")

    berth.passages.take(order(attempt=3))

    assert [event.seq for event in berth.said] == [last + 1]


def test_goes_on_with_the_numbers_of_another_life_of_the_host(berth: Berth) -> None:
    berth.passages.take(order(), numbered=9)

    assert [event.seq for event in berth.said] == [10]


def test_goes_back_when_it_was_given_up_while_the_server_was_away(berth: Berth) -> None:
    """The deadline of the activation passed at the server; what we said since is void."""
    berth.soak()
    berth.check()
    berth.wait(31)
    berth.passages.tick()
    assert berth.is_at(HostState.CONVERGED)
    completed = berth.journal.entries[1]

    berth.passages.refused(completed, state="Failed")
    assert berth.is_at(HostState.FAILED)
    berth.switch()

    assert berth.is_at(HostState.REVERTED)
    assert berth.kinds == ["RollbackComplete"]
    assert berth.said[0].seq == completed.event.seq
    assert berth.driver.current() == closure_of(OLD)


# ── restarts ──


def test_resumes_with_an_acknowledgement_that_is_not_accepted_yet(berth: Berth) -> None:
    berth.passages.take(order())

    berth.crash()

    assert berth.kinds == ["DispatchAck"]
    assert not berth.passages.jobs
    berth.confirm()
    berth.switch()
    assert berth.is_at(HostState.SOAKING)


def test_resumes_in_the_middle_of_a_switch(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()
    berth.driver.switch(SwitchRequest(closure_of(NEW), closure_of(OLD), "/new"))

    berth.crash()
    berth.switch()

    assert berth.kinds == ["ActivationStarted", "ActivationCompleted", "ProbeTopologyDeclared"]


def test_resumes_a_soak_with_what_the_probes_said(berth: Berth) -> None:
    berth.soak()
    berth.check()
    said = berth.kinds

    berth.crash()
    berth.wait(31)
    berth.passages.tick()

    assert berth.kinds == [*said, "Converged"]


def test_fails_a_declared_probe_that_is_gone_after_a_restart(berth: Berth) -> None:
    berth.soak()
    Path(berth.probe_file).write_text("probes = []")

    berth.crash()
    berth.passages.tick()
    berth.wait(61)
    berth.passages.tick()

    assert berth.is_at(HostState.FAILED)


def test_resumes_on_its_way_back(berth: Berth) -> None:
    fail(berth)

    berth.crash()
    berth.switch()

    assert berth.is_at(HostState.REVERTED)
    assert berth.driver.current() == closure_of(OLD)


def test_resumes_after_a_reboot_what_was_deferred(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()
    berth.switch(Staged("kernel"))
    berth.confirm()

    berth.crash()
    berth.switch(Staged("kernel"))  # only the agent was restarted
    assert berth.is_at(HostState.DEFERRED)
    assert berth.kinds == []
    berth.crash()
    berth.switch()

    assert berth.is_at(HostState.SOAKING)


def test_a_new_order_overtakes_what_waits_for_a_reboot(berth: Berth) -> None:
    berth.passages.take(order())
    berth.confirm()
    berth.switch(Staged("kernel"))
    berth.confirm()

    berth.passages.take(order(rollout_id="web-stable@web.3", closure=closure_of(NEW)))
    berth.confirm()

    assert list(berth.journal.twins) == ["web-stable@web.3"]
