"""What ``--wait`` shows while nothing changes."""

from __future__ import annotations

from typing import Any

from tidegate.cli import live_view
from tidegate.cli.waiting import QUIET_SECONDS, explain_quiet_frames

ROLLOUT = "prod@web.3"
HINT = f"  no host has changed for a minute; why: tidegate rollout explain {ROLLOUT}"


def rollout(converged: int, state: str = "Active") -> dict[str, Any]:
    wave = {"name": "all", "hosts": 7, "states": {"Converged": converged, "Pending": 7 - converged}}
    return {"rollout_id": ROLLOUT, "state": state, "current_wave": 0, "waves": [wave]}


def test_names_the_command_that_explains_once_no_host_changes() -> None:
    now = [0.0]
    draw = explain_quiet_frames(ROLLOUT, lambda: now[0])

    def last_line(found: dict[str, Any]) -> str:
        return live_view.plain(draw(found)[-1])

    assert last_line(rollout(5)) != HINT
    now[0] += QUIET_SECONDS - 1
    assert last_line(rollout(6)) != HINT, "a host changed"
    now[0] += QUIET_SECONDS
    assert last_line(rollout(6)) == HINT
    assert last_line(rollout(7)) != HINT, "a host changed again"
    now[0] += QUIET_SECONDS
    assert last_line(rollout(7, state="Terminal")) != HINT, "the rollout has ended"
