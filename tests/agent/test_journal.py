"""The agent's journal: state that it acted on survives any crash and any partial write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.agent.journal_lines import acknowledged, started, twin
from tests.agent.single_host import ROLLOUT, T0
from tidegate.agent.errors import JournalDamaged
from tidegate.agent.journal import ConfirmedLine, GivenUpLine, Journal, ReportLine, TwinLine
from tidegate.domain.hosts import agent_side
from tidegate.domain.hosts.facts import DispatchReject
from tidegate.domain.hosts.report_json import event_to_json
from tidegate.domain.hosts.rows import HostRecord
from tidegate.domain.hosts.states import HostState

WRITER = """
import sys
from pathlib import Path
from tests.agent.journal_lines import many
many(Path(sys.argv[1]))
"""


def test_restores_everything_after_it_was_closed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    journal.append(started(journal.twins[ROLLOUT]))
    before = (dict(journal.twins), journal.entries)
    journal.close()

    again = Journal(tmp_path)

    assert (dict(again.twins), again.entries) == before
    assert again.content(ROLLOUT) == "/new"
    assert [entry.event.seq for entry in again.entries] == [1, 2]
    assert again.entries[0].before == twin()


def test_keeps_a_report_until_it_is_confirmed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    journal.append(started(journal.twins[ROLLOUT]))
    assert journal.is_acknowledgement_pending(ROLLOUT)

    journal.append(ConfirmedLine(ROLLOUT, 1))
    journal.close()

    again = Journal(tmp_path)
    assert [entry.event.seq for entry in again.entries] == [2]
    assert not again.is_acknowledgement_pending(ROLLOUT)


def test_drops_only_the_abandoned_rollout(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    other = twin("api@api.1")
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    journal.append(TwinLine(other, "/api"), acknowledged(other))

    journal.append(GivenUpLine(ROLLOUT, None, 7))

    assert [entry.event.rollout_id for entry in journal.entries] == ["api@api.1"]
    assert ROLLOUT not in journal.twins
    assert journal.last_number(ROLLOUT) == 7


@pytest.mark.parametrize("torn", [1, 9, 40, 200])
def test_drops_a_torn_last_line(tmp_path: Path, torn: int) -> None:
    journal = Journal(tmp_path)
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    journal.append(started(journal.twins[ROLLOUT]))
    journal.close()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes()[:-torn])

    again = Journal(tmp_path)

    assert [entry.event.seq for entry in again.entries] == [1]
    again.append(started(again.twins[ROLLOUT]))
    again.close()
    assert [entry.event.seq for entry in Journal(tmp_path).entries] == [1, 2]


def test_refuses_damage_before_the_last_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    journal.append(started(journal.twins[ROLLOUT]))
    journal.close()
    path = tmp_path / "journal"
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)

    with pytest.raises(JournalDamaged, match="damaged at byte 0"):
        Journal(tmp_path)
    assert path.read_bytes() == content, "nothing is deleted"


def test_is_rewritten_without_finished_entries(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bytes_max=20_000)
    journal.append(TwinLine(twin(), "/new"), acknowledged(twin()))
    for _ in range(100):
        said = started(journal.twins[ROLLOUT])
        journal.append(said, ConfirmedLine(ROLLOUT, said.after.last_event_seq - 2))
    before = (dict(journal.twins), journal.entries)
    journal.close()

    again = Journal(tmp_path)

    assert (tmp_path / "journal").stat().st_size < 20_000
    assert (dict(again.twins), again.entries) == before
    assert [entry.event.seq for entry in again.entries] == [100, 101]
    assert again.twins[ROLLOUT].state is HostState.ACTIVATING


def test_forgets_old_rollouts_but_not_their_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bytes_max=60_000)
    for number in range(200):
        journal.append(GivenUpLine(f"web@web.{number}", None, number))
        record = twin(f"web@web.{number}")
        over = ReportLine(*_rejected(record))
        journal.append(TwinLine(record, "/new"), over, ConfirmedLine(record.rollout_id, 1))
    journal.close()

    again = Journal(tmp_path)

    assert again.last_number("web@web.199") == 199
    assert 1 <= len(again.twins) < 200
    assert "web@web.199" in again.twins


def _rejected(record: HostRecord) -> tuple[dict[str, object], HostRecord]:
    after, event, _ = agent_side.report(record, DispatchReject, T0, reason="no")
    return event_to_json(event), after


@pytest.mark.parametrize("lines", [1, 30, 300])
def test_is_complete_after_a_kill_during_appends(tmp_path: Path, lines: int) -> None:
    """Every report that the process printed as stored is on disk, in order and without a gap."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    ) as process:
        assert process.stdout is not None
        last = 0
        for _ in range(lines):
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
    last = max([last, *(int(text) for text in rest[:-1])])

    journal = Journal(tmp_path)

    numbers = [entry.event.seq for entry in journal.entries]
    assert journal.twins[ROLLOUT].last_event_seq in (last, last + 1)
    assert numbers[-1] == journal.twins[ROLLOUT].last_event_seq
    assert all(after == before + 1 for before, after in pairwise(numbers))
