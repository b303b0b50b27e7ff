"""``--wait``: wait until a rollout ends, and exit with the code of its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import click

from tidegate.cli import exit_codes, live_view, output, paths, symbols, times
from tidegate.cli.context import CommandContext

SECONDS_DEFAULT = 3_600
QUIET_SECONDS = 60.0  # without a change; then people are told how to find out why
ENDS: Final = {
    "Terminal": exit_codes.ExitCode.DONE,
    "Reverted": exit_codes.ExitCode.ROLLED_BACK,
    "Failed": exit_codes.ExitCode.REFUSED,
    "Superseded": exit_codes.ExitCode.CONFLICT,
    "Pruned": exit_codes.ExitCode.NOT_FOUND,
}
OUTCOMES: Final = {
    "succeeded": "Succeeded",
    "empty": "No hosts",
    "failed": "Failed",
    "rolled_back": "Rolled back",
    "aborted": "Aborted",
    "replaced": "Replaced",
}
CODES: Final = {
    "empty": exit_codes.ExitCode.EMPTY,
    "failed": exit_codes.ExitCode.REFUSED,
    "rolled_back": exit_codes.ExitCode.ROLLED_BACK,
    "aborted": exit_codes.ExitCode.CONFLICT,
    "replaced": exit_codes.ExitCode.CONFLICT,
}
F = TypeVar("F", bound=Callable[..., Any])


class WaitOption(NamedTuple):
    """Whether to wait, and how long at most."""

    is_asked: bool
    seconds: int


def wait_option(verb: F) -> F:
    """``--wait`` and ``--timeout``, passed as one value."""

    def both(ctx: click.Context, param: click.Parameter, value: bool) -> WaitOption:
        return WaitOption(value, int(ctx.params.pop("timeout", SECONDS_DEFAULT)))

    asked = click.option(
        "--wait",
        is_flag=True,
        callback=both,
        help="Wait until it ends. Of a rollout, exit code 7: rolled back, 1: failed, 3: aborted or "
        "replaced, 8: no host ran it. On a protected channel it does not wait for the approval: "
        "exit code 9 at once.",
    )
    timeout = click.option(
        "--timeout",
        type=click.IntRange(1),
        default=SECONDS_DEFAULT,
        show_default=True,
        is_eager=True,
        metavar="SECONDS",
        help="Wait no longer than this.",
    )
    return timeout(asked(verb))


def outcome_cell(item: output.Item) -> output.StateCell:
    """The outcome of a rollout, or its state."""
    if item.get("outcome"):
        return output.StateCell(str(item["outcome"]), OUTCOMES.get(str(item["outcome"]), ""))
    state = str(item.get("state"))
    if state in ("Reverted", "Failed"):
        how = "rolled back" if state == "Reverted" else "failed"
        return output.StateCell(state, f"Stopped: {item.get('halted_by') or 'a host'} {how}")
    if state in ENDS:
        return output.StateCell(state)
    if item.get("paused_at"):
        return output.StateCell("held", "Paused")
    waves = item.get("waves_planned") or 1
    wave = min(int(item.get("current_wave") or 0) + 1, waves)
    return output.StateCell(state, f"Rolling out, wave {wave} of {waves}")


def rollout_frame(found: Any) -> list[live_view.Line]:
    """The lines of a rollout: its state, a bar for each wave, and the gates that block it."""
    waves = found.get("waves") or []
    current = int(found.get("current_wave") or 0)
    shown = outcome_cell({**found, "waves_planned": len(waves)})
    lines: list[live_view.Line] = [
        [(f"{symbols.clean(found['rollout_id'])}  ", "default"), live_view.span(shown)]
    ]
    if found.get("paused_at"):
        by = symbols.clean(found.get("paused_by_name") or found.get("paused_by"))
        why = symbols.clean(found.get("paused_reason") or "")
        lines[0].append((f"  ■ paused by {by}{': ' if why else ''}{why}", "yellow"))
    if found.get("halted_at"):
        lines[0].append((f"  ✘ halted by {symbols.clean(found.get('halted_by'))}", "red"))
    if found.get("degraded"):
        lines[0].append(("  ! degraded", "yellow"))
    if found.get("opened_by"):
        why = f": {symbols.clean(found['opened_reason'])}" if found.get("opened_reason") else ""
        by = symbols.clean(found.get("opened_by_name") or found["opened_by"])
        if found.get("automatic"):
            by = f"{symbols.clean(found['automatic'])}, which {by} switched on"
        opened = f"  opened {output.when(found.get('opened_at'))} by {by}{why}"
        lines.append([(opened, "default")])
    if found.get("outcome_at"):
        lines.append([(f"  ended {output.when(found['outcome_at'])}", "default")])
    width = max((len(symbols.clean(output.dig(wave, "name") or "")) for wave in waves), default=0)
    lines += [
        live_view.wave_line(number, wave, current, width) for number, wave in enumerate(waves)
    ]
    if found.get("progress"):
        lines.append([(f"  {progress_text(found['progress'])}", "default")])
    return lines + [line for gate in found.get("gates") or [] for line in _gate_lines(gate)]


def progress_text(progress: output.Item, now: datetime | None = None) -> str:
    """Describe what a rollout is doing, and the remaining time in whole minutes."""
    says = symbols.clean(progress["says"])
    if not progress.get("until"):
        return says
    left = (times.parse_api_time(progress["until"]) - (now or datetime.now(UTC))).total_seconds()
    if left < 60:
        return f"{says}, less than 1 min left"
    return f"{says}, {symbols.duration(-(-left // 60) * 60)} left"


def _gate_lines(gate: output.Item) -> list[live_view.Line]:
    """The lines of a closed gate, unless earlier waves cause it; marked ✘ if it needs a person."""
    alarm = gate.get("needs_person", True)
    if not alarm and gate["gate"] == "wave-promotion":
        return []
    mark, colour = ("✘", "yellow") if alarm else ("·", "default")
    says = f"{symbols.clean(gate['gate'])}: {symbols.clean(gate.get('reason', ''))}"
    return [[(f"  {mark} {says} (since {output.when(gate.get('since'))})", colour)]]


def wait_for_rollout(context: CommandContext, rollout_id: str, wait: WaitOption) -> None:
    """Watch a rollout until it ends. Raises: CommandExit: it did not succeed, or not in time."""
    try:
        found = live_view.follow(
            lambda: context.get(paths.at("rollouts", rollout_id)),
            explain_quiet_frames(rollout_id),
            output=context.output,
            until=lambda found: found["state"] in ENDS,
            seconds=wait.seconds,
        )
    except TimeoutError:
        raise exit_codes.CommandExit(
            exit_codes.ExitCode.UNAVAILABLE,
            f"{rollout_id} did not end in {wait.seconds} s",
            f"tidegate rollout explain {rollout_id}",
            f"tidegate rollout watch {rollout_id}",
        ) from None
    exit_by_outcome(rollout_id, found)


def explain_quiet_frames(
    rollout_id: str, clock: Callable[[], float] = time.monotonic
) -> Callable[[Any], list[live_view.Line]]:
    """Draw frames that name the command which explains the wait, once no host changes its state."""
    seen: list[Any] = []
    changed_at = clock()

    def draw(found: Any) -> list[live_view.Line]:
        nonlocal seen, changed_at
        states = [wave.get("states") for wave in found.get("waves") or []]
        if states != seen:
            seen, changed_at = states, clock()
        lines = rollout_frame(found)
        if clock() - changed_at >= QUIET_SECONDS and found["state"] not in ENDS:
            hint = f"  no host has changed for a minute; why: tidegate rollout explain {rollout_id}"
            lines.append([(hint, "default")])
        return lines

    return draw


def exit_by_outcome(rollout_id: str, found: Any) -> None:
    """Raises: CommandExit: the rollout did not succeed."""
    outcome, state = found.get("outcome"), str(found["state"])
    waves = found.get("waves") or []
    hosts = sum(wave.get("hosts", 0) for wave in waves)
    done = sum((wave.get("states") or {}).get("Converged", 0) for wave in waves)
    if outcome == "succeeded" or (outcome is None and ENDS[state] is exit_codes.ExitCode.DONE):
        output.note(f"{rollout_id} succeeded on {done} of {hosts} hosts")
        return
    after = found.get("superseded_by")
    words = {
        "empty": "ended without a host that ran it",
        "failed": "failed",
        "rolled_back": "was rolled back",
        "aborted": "was aborted",
        "replaced": f"was replaced by {symbols.clean(after)}" if after else "was replaced",
        "Reverted": "stopped, and the hosts that failed rolled back",
        "Failed": "stopped: a host failed",
        "Superseded": f"was replaced by {symbols.clean(after)}" if after else "was aborted",
        "Pruned": "is past its retention",
    }
    ended = str(outcome or state)
    code = CODES.get(ended) or ENDS[state]
    raise exit_codes.CommandExit(
        code,
        f"{rollout_id} {words[ended]}",
        f"tidegate rollout explain {rollout_id}",
        f"tidegate rollout events {rollout_id}",
    )
