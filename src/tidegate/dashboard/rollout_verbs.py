"""The buttons of a rollout: which can be used now, and why the others cannot."""

from __future__ import annotations

from tidegate.control.queries.ladder import Ladder
from tidegate.control.queries.reads import Found
from tidegate.dashboard import channel_verbs, components, layout, rollout_lines
from tidegate.dashboard.view_models import rollout_screens
from tidegate.domain.access import callers, principals, roles, scopes, steps
from tidegate.domain.releases import rows as release_rows
from tidegate.domain.rollouts import clearance, rows, states, tallies


def verbs_of(
    principal: principals.Principal,
    rollout: Found[rows.Rollout],
    tally: rows.RolloutTally,
    troubled: tuple[rollout_screens.HostLine, ...],
) -> tuple[components.VerbButton, ...]:
    """Pause, resume, clear, retry, skip, override, start or skip waves, and abort. Each has a
    reason if it cannot be used now.
    """
    path = f"/rollouts/{tally.rollout_id}"
    name = tally.rollout_id
    forbidden, scope = "", scopes.channel_scope(tally.channel)
    if not principal.may(roles.Verb.OPERATE, scope):
        forbidden = principals.describe_missing(principal, (roles.Verb.OPERATE,), scope)
    running = tally.state in states.DISPATCHABLE
    clearable = tally.state in states.CLEARABLE
    state = _describe_state(rollout.row, tally)
    halted = tally.halted_at is not None
    not_yet = (
        "It is halted. You can clear it when the hosts that are switching have finished."
        if halted
        else f"{state} Only a rollout that stopped is cleared."
    )
    return (
        components.VerbButton(
            id="pause",
            label="Pause",
            icon="pause",
            action=f"{path}/pause",
            title=f"Pause {name}?",
            text="Hosts that are switching finish. No order is sent and no wave begins.",
            version=rollout.version,
            fields=(layout.REASON,),
            why=forbidden
            or (("" if running else state) if tally.paused_at is None else "It is paused already."),
        ),
        components.VerbButton(
            id="resume",
            label="Resume",
            icon="play",
            action=f"{path}/resume",
            title=f"Resume {name}?",
            text="Orders are sent again. It continues where it was paused.",
            version=rollout.version,
            fields=(layout.REASON,),
            why=forbidden or ("It is not paused." if tally.paused_at is None else ""),
        ),
        components.VerbButton(
            id="retry",
            label="Retry",
            icon="retry",
            action=f"{path}/clear",
            title=f"Try the failed hosts of {name} again?",
            text="The quarantine of its release is lifted. The hosts that failed or rolled back "
            "get a new order.",
            version=rollout.version,
            fields=(components.Field(name="mode", kind="hidden", value="resume"), layout.REASON),
            why=forbidden or ("" if clearable else not_yet),
        ),
        components.VerbButton(
            id="skip",
            label="Skip a host",
            icon="ban",
            action=f"{path}/skip",
            title=f"Continue {name} without a host?",
            text="The host must not have started its order. It gets the release later.",
            version=rollout.version,
            fields=(components.Field(name="host_id", label="Host"), layout.REASON),
            why=forbidden or ("" if running or clearable or tally.late else state),
        ),
        _override(path, rollout, principal, tally),
        *_waves(principal, rollout, tally, forbidden),
        _clear(path, rollout.version, troubled, forbidden or ("" if clearable else not_yet)),
        components.VerbButton(
            id="abort",
            label="Abort",
            icon="stop",
            action=f"{path}/abort",
            title=f"Abort {name}?",
            text="The rollout ends. Hosts that are switching finish, and the other hosts keep what "
            f"they run. {tally.channel} stays pinned to {tally.target_ref} until you promote "
            "another release or roll back.",
            version=rollout.version,
            fields=(layout.REASON,),
            danger=True,
            why=forbidden or ("" if running or clearable else state),
        ),
    )


def sensible_verbs(tally: rows.RolloutTally) -> tuple[str, ...]:
    """The ids of the verbs that make sense in the rollout's state, the likeliest first."""
    if tally.state in states.CLEARABLE:
        return ("rollback", "retry", "clear", "abort")
    if tally.state not in states.DISPATCHABLE:
        return ()
    if tally.halted_at is not None:
        return ("rollback", "abort")
    if tally.paused_at is not None:
        return ("resume", "abort")
    return ("continue", "pause")


def roll_back(
    ladder: Ladder,
    pin: Found[release_rows.Actual] | None,
    tally: rows.RolloutTally,
    caller: callers.Caller,
) -> components.VerbButton:
    """Roll the channel back. Only the newest rollout of a channel offers it."""
    why = caller.why_not(steps.ROLL_BACK, scopes.channel_scope(tally.channel))
    newest = ladder.row.newest_rollout_id or ""
    if newest != tally.rollout_id:
        why = f"{tally.channel} has a newer rollout: {newest}." if newest else "It has ended."
    return channel_verbs.roll_back(ladder, pin, why)


def _describe_state(row: rows.Rollout, tally: rows.RolloutTally) -> str:
    """What the rollout does or how it ended, as a sentence with the words of its page."""
    word = rollout_lines.state_chip(row, tally).word
    if tally.state in states.CLEARABLE:
        return f"{word}."
    return f"It is {word.lower()}." if tally.outcome is None else f"It has ended: {word.lower()}."


def _override(
    path: str,
    rollout: Found[rows.Rollout],
    principal: principals.Principal,
    tally: rows.RolloutTally,
) -> components.VerbButton:
    scope = scopes.channel_scope(tally.channel)
    why = "" if tally.state in states.OPEN else _describe_state(rollout.row, tally)
    if not principal.may(roles.Verb.EMERGENCY, scope):
        why = principals.describe_missing(principal, (roles.Verb.EMERGENCY,), scope)
    return components.VerbButton(
        id="override",
        label="Override a gate",
        icon="warning",
        action=f"{path}/override",
        title=f"Let {tally.rollout_id} pass a gate?",
        text="This rollout passes the gate to its end, whatever the gate says. Your name and "
        "reason are shown in its history and on the channel's page.",
        version=rollout.version,
        fields=(
            components.Field(
                name="gate",
                label="Gate",
                kind="select",
                options=tuple(
                    components.Option(gate.value, gate.value) for gate in states.OverridableGate
                ),
            ),
            layout.REASON,
        ),
        danger=True,
        why=why,
    )


def _waves(
    principal: principals.Principal,
    rollout: Found[rows.Rollout],
    tally: rows.RolloutTally,
    forbidden: str,
) -> tuple[components.VerbButton, ...]:
    """Continue a manual wave; skip a wave; start all waves."""
    path, name = f"/rollouts/{tally.rollout_id}", tally.rollout_id
    scope = scopes.channel_scope(tally.channel)
    barred = ""
    if not principal.may(roles.Verb.EMERGENCY, scope):
        barred = principals.describe_missing(principal, (roles.Verb.EMERGENCY,), scope)
    dispatches = tally.state in states.DISPATCHABLE
    stopped = "" if dispatches else _describe_state(rollout.row, tally)
    if dispatches and tally.halted_at is not None:
        stopped = "It is halted. Clear it first."
    cursor = tally.current_wave
    near = (*tally.waves[:1], *tally.waves[cursor + 1 : cursor + 2])
    manual = any(map(tallies.waits_for_person, near))
    ahead = tuple(wave.name for wave in tally.waves[cursor:] if not wave.skipped)
    return (
        components.VerbButton(
            id="continue",
            label="Continue",
            icon="play",
            action=f"{path}/continue",
            title=f"Start the next wave of {name}?",
            text="The wave waits for a person. It starts as soon as the waves before it are done.",
            version=rollout.version,
            fields=(layout.OPTIONAL_REASON,),
            why=forbidden or stopped or ("" if manual else "No wave waits for a person now."),
            first=manual,
        ),
        components.VerbButton(
            id="skip-wave",
            label="Skip a wave",
            icon="ban",
            action=f"{path}/skip-wave",
            title=f"Continue {name} without a wave?",
            text="Hosts of the wave that have no order yet get none from this rollout. Later waves "
            "do not wait for it.",
            version=rollout.version,
            fields=(
                components.Field(
                    name="wave",
                    label="Wave",
                    kind="choice",
                    value=ahead[0] if ahead else "",
                    options=tuple(components.Option(wave, wave, "") for wave in ahead),
                ),
                layout.REASON,
            ),
            danger=True,
            why=barred or stopped or ("" if ahead else "Every wave has started or was skipped."),
        ),
        components.VerbButton(
            id="promote-all",
            label="Promote to all",
            icon="rollouts",
            action=f"{path}/promote-all",
            title=f"Start every wave of {name} now?",
            text="Every host gets its order without waiting for the waves before. Gates, budgets "
            "and soaks still apply.",
            version=rollout.version,
            fields=(layout.REASON,),
            danger=True,
            why=barred
            or stopped
            or ("" if cursor + 1 < len(tally.waves) or manual else "Every wave has started."),
        ),
    )


def _clear(
    path: str, version: int, troubled: tuple[rollout_screens.HostLine, ...], why: str
) -> components.VerbButton:
    bad = ", ".join(line.host_id for line in troubled[: clearance.WAIVED_MAX])
    return components.VerbButton(
        id="clear",
        label="Clear",
        icon="check",
        action=f"{path}/clear",
        title="Clear the rollout that stopped",
        version=version,
        fields=(
            components.Field(
                name="mode",
                label="How",
                kind="choice",
                value="resume",
                options=(
                    components.Option("resume", "Resume", "Try the hosts named below again."),
                    components.Option("waive", "Waive", "Continue without the hosts named below."),
                    components.Option("abandon", "Abandon", "End the rollout, as Abort does."),
                ),
            ),
            components.Field(
                name="hosts",
                label="Hosts",
                value=bad,
                hint=f"Separated by commas, at most {clearance.WAIVED_MAX}. "
                "Resume without hosts tries all.",
            ),
            layout.REASON,
        ),
        why=why,
    )
