"""When each wave of a plan could start at the earliest, with today's maintenance windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from tidegate.domain.planner import Plan
from tidegate.domain.windows import demands, evaluation, rows, sentences


class EarliestStart(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """When the first host of a wave could get its order."""

    wave: str
    at: datetime | None = None  # None: its windows do not open within 400 days
    held: int = 0  # hosts whose windows are shut when the wave's turn comes
    sentence: str = ""  # which window holds them; empty: none does


def list_earliest_starts(
    plan: Plan,
    labels: Mapping[str, Mapping[str, str]],
    windows: Sequence[rows.Window],
    now: datetime,
) -> tuple[EarliestStart, ...]:
    """Return the earliest start of each wave, up to the first that never starts.

    A wave's turn comes when the wave before could have soaked and its own delay is over. The time
    that hosts take to switch is ignored.
    """
    found: list[EarliestStart] = []
    turn: datetime | None = now
    for number, wave in enumerate(plan.waves):
        if turn is None:
            break
        if number:
            turn += timedelta(seconds=wave.delay_seconds)
        view = evaluation.WindowView(windows, plan.channel, plan.package, turn)
        need = demands.need_of(plan.host_policy(number))
        judged = {host: view.judge(host, labels.get(host, {}), need) for host in wave.hosts}
        shut = {host: verdict for host, verdict in judged.items() if not verdict.is_open}
        start: datetime | None = turn
        sentence = ""
        if shut:
            opens = {host: verdict.until for host, verdict in shut.items() if verdict.until}
            first = min(opens, key=lambda host: opens[host]) if opens else next(iter(shut))
            if len(shut) == len(wave.hosts):
                start = opens.get(first)
            by = shut[first].by
            assert by is not None
            reason = by.window.reason if isinstance(by.window, rows.Window) else ""
            sentence = sentences.shut_text(
                shut[first],
                turn,
                plan.channel,
                first,
                scope=f" for {len(shut)} of {len(wave.hosts)} hosts",
                need=need,
                reason=reason,
            )
        found.append(EarliestStart(wave=wave.name, at=start, held=len(shut), sentence=sentence))
        turn = None if start is None else start + timedelta(seconds=wave.soak_seconds)
    return tuple(found)
