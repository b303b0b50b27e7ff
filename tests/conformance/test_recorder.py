"""The recorder tests of `eventsourcing`, written for the public DCB specification, pass here too.

They count positions from 1 without gaps, which the specification does not require. So they run on
the engines whose positions are dense; the last test checks the same semantics on DynamoDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
from eventsourcing.dcb.tests import DCBRecorderTestCase
from eventsourcing.persistence import IntegrityError

from tests.conformance.recorder import TidegateRecorder, schema
from tests.differential.logs import Logs

TYPES = (
    *("type1", "type2", "type3", "type4", "typeN", "Joined", "Left"),
    *("StudentRegistered", "CourseRegistered", "StudentJoinedCourse"),
)

on_dense_engines = pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])


@pytest.fixture
def recorder(engine: str, tmp_path: Path) -> Iterator[TidegateRecorder]:
    with closing(Logs(engine, tmp_path)) as logs:
        yield TidegateRecorder(logs.store(schema(*TYPES)))


@on_dense_engines
def test_passes_the_shipped_case_of_append_and_read(recorder: TidegateRecorder) -> None:
    DCBRecorderTestCase()._test_append_read(recorder)  # 125 assertions of its own

    assert recorder.read().head is not None


@on_dense_engines
def test_passes_the_shipped_case_of_append_and_subscribe(recorder: TidegateRecorder) -> None:
    DCBRecorderTestCase()._test_append_subscribe(recorder)  # 6 assertions of its own

    assert recorder.read().head is not None


@pytest.mark.req("CB-17")
def test_conditions_hold_even_if_positions_have_gaps(recorder: TidegateRecorder) -> None:
    first = recorder.append([DCBEvent("Joined", b"1", ["course", "student"])])
    both = DCBQuery([DCBQueryItem(tags=["course", "student"])])
    joined = DCBQuery([DCBQueryItem(types=["Joined"])])

    second = recorder.append([DCBEvent("Left", b"2", ["course"])], DCBAppendCondition(both, first))

    with pytest.raises(IntegrityError):
        recorder.append([DCBEvent("Joined", b"3")], DCBAppendCondition(both))
    with pytest.raises(IntegrityError):
        recorder.append([DCBEvent("Joined", b"3")], DCBAppendCondition(DCBQuery(), first))
    assert recorder.append([DCBEvent("Joined", b"3")], DCBAppendCondition(joined, first)) > second
    assert [found.event.data for found in recorder.read(both)] == [b"1"]
    assert [found.event.data for found in recorder.read(joined, after=first)] == [b"3"]
