"""Every command that ``explain`` offers names the permission that it takes, and people without it
read whom to ask.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import product
from typing import Final

import pytest

from tests.domain import test_explain_waits as waits
from tests.domain.gate_inputs import ROLLOUT, T0
from tests.domain.test_gates import WHO
from tidegate.domain.access import callers, principals, roles, scopes, steps
from tidegate.domain.channels.facts import ChannelEdge
from tidegate.domain.gates import edges, explain, inputs, whom_to_ask
from tidegate.domain.rollouts.states import Outcome

# Commands whose step has another name than the command.
STEP_OF: Final = {
    "channel release": "channel.unhold",
    "freeze delete": "freeze.end",
    "budget edit": "budget.set",
}
READS: Final = {"rollout explain"}
PROMOTED: Final = edges.WaitingRelease("stable", "web.2")
NOBODY: Final = principals.Principal("user_x", "session")
END: Final = inputs.Remedy(
    "tidegate freeze delete xmas --reason …",
    "if the freeze is no longer needed",
    (roles.Verb.OPERATE,),
    (scopes.channel_scope("dev"), scopes.channel_scope("prod")),
)


def list_remedies() -> Iterator[inputs.Remedy]:
    """List the remedies of every state of a host and a rollout, at every gate."""
    for host, tally, gate in waits.cases():
        state = waits.build(host, tally, gate)
        for found in (explain.explain(state, ROLLOUT), explain.explain(state, ROLLOUT, WHO)):
            for wait in found.waits:
                yield from wait.remedies
    for members in ({"manual": True}, {"delay_seconds": 1_800}):
        yield from waits.held(**members).remedies
    for seen in (
        inputs.PrecedingChannel(None, None, None, None, ""),
        waits.shut_edge(outcome=Outcome.ABORTED),
        waits.halted_there(),
    ):
        opens = edges.judge_edge(ChannelEdge(channel="base"), PROMOTED, seen, T0).remedy
        assert opens is not None
        yield opens
    yield END


REMEDIES: Final = sorted(set(list_remedies()), key=lambda remedy: remedy.command)


def find_step(command: str) -> str:
    """Return the name of the step that a command takes; empty: it reads."""
    _, noun, verb, *rest = shlex.split(command)
    if f"{noun} {verb}" in READS:
        return ""
    if (noun, verb) == ("channel", "rollback") and "--now" in rest:
        return "channel.rollback_now"
    return STEP_OF.get(f"{noun} {verb}", f"{noun}.{verb}")


@pytest.mark.req("OP-10", engines=None, reason="a pure function")
@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.command)
def test_every_remedy_names_the_permission_of_its_step(remedy: inputs.Remedy) -> None:
    step = find_step(remedy.command)
    assert remedy.needs == (steps.STEPS[step].verbs if step else (roles.Verb.READ,))
    noun, subject = shlex.split(remedy.command)[1], shlex.split(remedy.command)[3]
    if noun in ("rollout", "channel", "quarantine"):
        assert remedy.scopes == (scopes.channel_scope(subject.partition("@")[0]),)
    else:
        assert remedy.scopes, remedy


def test_the_remedies_cover_the_steps_that_end_a_wait() -> None:
    assert {find_step(remedy.command) for remedy in REMEDIES} >= {
        *("rollout.resume", "rollout.retry", "rollout.clear", "rollout.abort", "rollout.skip"),
        *("rollout.continue", "rollout.promote-all", "rollout.override", "channel.rollback"),
        *("channel.promote", "channel.unhold", "freeze.end", "quarantine.lift", "budget.set"),
    }


@pytest.mark.req("OP-10", engines=None, reason="a pure function")
@pytest.mark.parametrize("role", roles.Role)
def test_offers_a_role_exactly_what_its_operations_do_not_refuse(role: roles.Role) -> None:
    everywhere = {scope for remedy in REMEDIES for scope in remedy.scopes}
    for remedy, scope in product(
        REMEDIES, (*sorted(everywhere), scopes.channel_scope("elsewhere"))
    ):
        person = principals.Principal("user_x", "session", (roles.Grant(role, scope),))
        caller = callers.Caller(principal=person)
        step = steps.STEPS.get(find_step(remedy.command))
        may = all(
            caller.may(step, on) if step is not None else person.may(roles.Verb.READ, on)
            for on in remedy.scopes
        )
        own, others = whom_to_ask.split((remedy,), person)
        assert (own, others) == (((remedy,), ()) if may else ((), (remedy,)))


@pytest.mark.req("OP-13", engines=None, reason="a pure function")
@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.command)
def test_every_sentence_ends_with_the_command(remedy: inputs.Remedy) -> None:
    sentence = whom_to_ask.describe(remedy, NOBODY)
    assert sentence.startswith(("Ask a ", "Ask an "))
    assert sentence.endswith(f": {remedy.command}")


@pytest.mark.parametrize(
    ("people", "named"),
    [
        (None, ""),
        ([], " (there is none yet)"),
        (["Ann"], " (Ann)"),
        (["Ann", "Bob", "Cal"], " (Ann, Bob or Cal)"),
        (["Ann", "Bob", "Cal", "Dan"], " (Ann, Bob, Cal or 1 other)"),
        (["Ann", "Bob", "Cal", "Dan", "Eve"], " (Ann, Bob, Cal or 2 others)"),
    ],
)
def test_names_at_most_three_people(people: list[str] | None, named: str) -> None:
    reader = principals.Principal("user_x", "session", (roles.Grant(roles.Role.VIEWER),))
    assert whom_to_ask.describe(END, reader, people) == (
        f"Ask a fleet-operator or an on-call of dev and prod{named}, "
        "if the freeze is no longer needed: tidegate freeze delete xmas --reason …"
    )


def test_does_not_name_channels_that_the_person_may_not_read() -> None:
    reader = principals.Principal(
        "user_x", "session", (roles.Grant(roles.Role.VIEWER, scopes.channel_scope("prod")),)
    )
    assert "of prod and other channels, " in whom_to_ask.describe(END, reader)
    everywhere = inputs.Remedy(
        "tidegate budget edit b --max N", "", (roles.Verb.OPERATE,), (roles.EVERYWHERE,)
    )
    assert "an on-call of all channels: " in whom_to_ask.describe(everywhere, reader)
