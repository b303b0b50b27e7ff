"""The verbs of a rollout: which there are now, and why the others are not."""

from __future__ import annotations

from tidegate.control.queries.reads import Found
from tidegate.dashboard.components import Field, Option, VerbButton
from tidegate.dashboard.layout import OPTIONAL_REASON, REASON
from tidegate.dashboard.view_models import HostLine
from tidegate.domain.access.principals import Principal, describe_missing
from tidegate.domain.access.roles import Verb as Right
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.rollouts.clearance import WAIVED_MAX
from tidegate.domain.rollouts.rows import Rollout, RolloutTally
from tidegate.domain.rollouts.states import CLEARABLE, DISPATCHABLE, OPEN, OverridableGate
from tidegate.domain.rollouts.tallies import waits_for_person


def verbs_of(
    principal: Principal,
    rollout: Found[Rollout],
    tally: RolloutTally,
    troubled: tuple[HostLine, ...],
) -> tuple[VerbButton, ...]:
    """Pause, resume, clear, retry, skip, override, pass waves and abort; each says why it cannot
    be used.
    """
    path = f"/rollouts/{tally.rollout_id}"
    name = tally.rollout_id
    forbidden, scope = "", channel_scope(tally.channel)
    if not principal.may(Right.OPERATE, scope):
        forbidden = describe_missing(principal, (Right.OPERATE,), scope)
    running = tally.state in DISPATCHABLE
    clearable = tally.state in CLEARABLE
    state = f"It is {tally.state}."
    halted = tally.halted_at is not None
    not_yet = (
        "It is halted; it can be cleared once its last host in flight is back."
        if halted
        else f"{state} Only a Reverted or Failed rollout is cleared."
    )
    return (
        VerbButton(
            id="pause",
            label="Pause",
            icon="pause",
            action=f"{path}/pause",
            title=f"Pause {name}?",
            text="Hosts that run on their way finish. No order goes out and no wave begins.",
            version=rollout.version,
            fields=(REASON,),
            why=forbidden
            or (("" if running else state) if tally.paused_at is None else "It is paused already."),
        ),
        VerbButton(
            id="resume",
            label="Resume",
            icon="play",
            action=f"{path}/resume",
            title=f"Resume {name}?",
            text="Orders go out again, from where it stopped.",
            version=rollout.version,
            fields=(REASON,),
            why=forbidden or ("It is not paused." if tally.paused_at is None else ""),
        ),
        VerbButton(
            id="retry",
            label="Retry",
            icon="retry",
            action=f"{path}/clear",
            title=f"Try the failed hosts of {name} again?",
            text="The quarantine of its release is lifted, and its failed and reverted hosts get "
            "a new order.",
            version=rollout.version,
            fields=(Field(name="mode", kind="hidden", value="resume"), REASON),
            why=forbidden or ("" if clearable else not_yet),
        ),
        VerbButton(
            id="skip",
            label="Skip a host",
            icon="ban",
            action=f"{path}/skip",
            title=f"Continue {name} without a host?",
            text="The host must not have started its order. It gets the release later.",
            version=rollout.version,
            fields=(Field(name="host_id", label="Host"), REASON),
            why=forbidden or ("" if running or clearable or tally.late else state),
        ),
        _override(path, rollout.version, principal, tally),
        *_waves(principal, rollout, tally, forbidden),
        _clear(path, rollout.version, troubled, forbidden or ("" if clearable else not_yet)),
        VerbButton(
            id="abort",
            label="Abort",
            icon="stop",
            action=f"{path}/abort",
            title=f"Give {name} up?",
            text="It ends without a successor. Hosts that run on their way finish, the others "
            "keep what they run; the channel keeps its pin until you promote another release.",
            version=rollout.version,
            fields=(REASON,),
            danger=True,
            why=forbidden or ("" if running or clearable else state),
        ),
    )


def sensible_verbs(tally: RolloutTally) -> tuple[str, ...]:
    """The ids of the verbs that make sense in the rollout's state, the likeliest first."""
    if tally.state in CLEARABLE:
        return ("clear", "retry", "abort")
    if tally.state not in DISPATCHABLE:
        return ()
    if tally.halted_at is not None:
        return ("abort",)
    if tally.paused_at is not None:
        return ("resume", "abort")
    return ("continue", "pause")


def _override(path: str, version: int, principal: Principal, tally: RolloutTally) -> VerbButton:
    scope = channel_scope(tally.channel)
    why = "" if tally.state in OPEN else f"It is {tally.state}."
    if not principal.may(Right.EMERGENCY, scope):
        why = describe_missing(principal, (Right.EMERGENCY,), scope)
    return VerbButton(
        id="override",
        label="Override a gate",
        icon="warning",
        action=f"{path}/override",
        title=f"Let {tally.rollout_id} pass a gate?",
        text="This rollout passes the gate to its end, whatever the gate says. Your name and "
        "reason are shown in its history and on the channel's page.",
        version=version,
        fields=(
            Field(
                name="gate",
                label="Gate",
                kind="select",
                options=tuple(Option(gate.value, gate.value) for gate in OverridableGate),
            ),
            REASON,
        ),
        danger=True,
        why=why,
    )


def _waves(
    principal: Principal, rollout: Found[Rollout], tally: RolloutTally, forbidden: str
) -> tuple[VerbButton, ...]:
    """Continue a manual wave; go on without a wave, or without waiting for any."""
    path, name = f"/rollouts/{tally.rollout_id}", tally.rollout_id
    scope = channel_scope(tally.channel)
    barred = ""
    if not principal.may(Right.EMERGENCY, scope):
        barred = describe_missing(principal, (Right.EMERGENCY,), scope)
    stopped = "" if tally.state in DISPATCHABLE else f"It is {tally.state}."
    if tally.halted_at is not None:
        stopped = "It is halted; clear it first."
    cursor = tally.current_wave
    near = (*tally.waves[:1], *tally.waves[cursor + 1 : cursor + 2])
    manual = any(map(waits_for_person, near))
    ahead = tuple(wave.name for wave in tally.waves[cursor:] if not wave.skipped)
    return (
        VerbButton(
            id="continue",
            label="Continue",
            icon="play",
            action=f"{path}/continue",
            title=f"Let the next wave of {name} go?",
            text="It waits for a person. It goes as soon as the waves before it are done.",
            version=rollout.version,
            fields=(OPTIONAL_REASON,),
            why=forbidden or stopped or ("" if manual else "No wave waits for a person now."),
            first=manual,
        ),
        VerbButton(
            id="skip-wave",
            label="Skip a wave",
            icon="ban",
            action=f"{path}/skip-wave",
            title=f"Continue {name} without a wave?",
            text="Hosts of the wave that have no order get none of this rollout. Its minimum is "
            "not waited for.",
            version=rollout.version,
            fields=(
                Field(
                    name="wave",
                    label="Wave",
                    kind="choice",
                    value=ahead[0] if ahead else "",
                    options=tuple(Option(wave, wave, "") for wave in ahead),
                ),
                REASON,
            ),
            danger=True,
            why=barred or stopped or ("" if ahead else "No wave is left."),
        ),
        VerbButton(
            id="promote-all",
            label="Promote to all",
            icon="rollouts",
            action=f"{path}/promote-all",
            title=f"Let every wave of {name} go now?",
            text="Every host gets its order without waiting for the waves before. Gates, budgets "
            "and soaks stay.",
            version=rollout.version,
            fields=(REASON,),
            danger=True,
            why=barred
            or stopped
            or ("" if cursor + 1 < len(tally.waves) or manual else "Every wave goes already."),
        ),
    )


def _clear(path: str, version: int, troubled: tuple[HostLine, ...], why: str) -> VerbButton:
    bad = ", ".join(line.host_id for line in troubled[:WAIVED_MAX])
    return VerbButton(
        id="clear",
        label="Clear",
        icon="check",
        action=f"{path}/clear",
        title="Clear the halted rollout",
        version=version,
        fields=(
            Field(
                name="mode",
                label="How",
                kind="choice",
                value="resume",
                options=(
                    Option("resume", "Resume", "Try the hosts named below again."),
                    Option("waive", "Waive", "Go on without the hosts named below."),
                    Option("abandon", "Abandon", "End it, without a successor."),
                ),
            ),
            Field(
                name="hosts",
                label="Hosts",
                value=bad,
                hint=f"Separated by commas, at most {WAIVED_MAX}. Resume without hosts tries all.",
            ),
            REASON,
        ),
        why=why,
        first=True,
    )
