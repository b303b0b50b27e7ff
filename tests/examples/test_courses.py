"""The courses on every engine: two invariants in one boundary, alone and in a race."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import pytest
from msgspec import Struct

from examples.courses import app
from examples.courses.app import (
    COURSES_PER_STUDENT_MAX,
    CourseFull,
    DefineCourse,
    RegisterStudent,
    StudentOverEnrolled,
    StudentSubscribed,
    SubscribeStudent,
    define_course,
    register_student,
    subscribe_student,
)
from tests.contract.address import Address
from tests.examples.conftest import PROCESSES
from tests.examples.racing import (
    Connect,
    connector,
    control_of,
    race_processes,
    race_threads,
    send_until_decided,
)
from tidegate.control.runtime import Control
from tidegate.errors import InvalidDefinition
from tidegate.kernel.model import ALL
from tidegate.kernel.replay import differences
from tidegate.kernel.store import Store
from tidegate.kernel.tags import Partition
from tidegate.kernel.vocabulary import Vocabulary


@pytest.fixture
def connect(address: Address | None) -> Connect:
    return connector(address, app.FOLDS)


@pytest.fixture
def courses(connect: Connect) -> Iterator[Control]:
    with closing(connect()) as store, control_of(store, app.FOLDS) as control:
        yield control


@pytest.mark.req("CB-16")
def test_walks_until_the_course_is_full(
    courses: Control, capsys: pytest.CaptureFixture[str]
) -> None:
    app.walk(courses)

    printed = capsys.readouterr().out
    assert "cid: course_full" in printed
    assert "differences after replay: []" in printed

    app.walk(courses)

    assert capsys.readouterr().out == printed


@pytest.mark.req("CB-18", engines=None, reason="a query is derived before any engine is asked")
def test_reads_by_course_and_by_student() -> None:
    query = app.SCHEMA.vocabulary.query(subscribe_student, SubscribeStudent("c1", "s1"))

    assert str(query).split(" or ") == [
        "[CourseDefined|StudentSubscribed @ courseId:c1]",
        "[StudentRegistered|StudentSubscribed @ studentId:s1]",
    ]


@pytest.mark.req("CB-8", "CB-16", engines=None, reason="refused before any engine is asked")
def test_refuses_the_slice_without_the_annotation() -> None:
    class Unannotated(Struct, frozen=True, rename="camel"):
        course_id: Annotated[str, Partition()]
        student_id: str

    slices = (define_course, register_student, replace(subscribe_student, command=Unannotated))

    with pytest.raises(InvalidDefinition, match=r"student_id is read over all partitions"):
        Vocabulary(app.FACTS, slices)


@pytest.mark.req("CB-6", "CB-16")
def test_refuses_a_full_course_and_an_over_enrolled_student(courses: Control) -> None:
    for number in range(COURSES_PER_STUDENT_MAX + 1):
        courses.execute(define_course, DefineCourse(f"c{number}", 1))
    courses.execute(register_student, RegisterStudent("ann"))
    courses.execute(register_student, RegisterStudent("bea"))
    for number in range(COURSES_PER_STUDENT_MAX):
        courses.execute(subscribe_student, SubscribeStudent(f"c{number}", "ann"))

    with pytest.raises(CourseFull):
        courses.execute(subscribe_student, SubscribeStudent("c0", "bea"))
    with pytest.raises(StudentOverEnrolled):
        courses.execute(subscribe_student, SubscribeStudent(f"c{COURSES_PER_STUDENT_MAX}", "ann"))


def prepare(connect: Connect, courses: int, capacity: int, students: int) -> None:
    with closing(connect()) as store, control_of(store, app.FOLDS) as control:
        for number in range(courses):
            control.execute(define_course, DefineCourse(f"c{number}", capacity))
        for number in range(students):
            control.execute(register_student, RegisterStudent(f"s{number}"))


@pytest.mark.req("CB-16")
def test_16_racing_students_fill_a_course_exactly(connect: Connect) -> None:
    prepare(connect, courses=1, capacity=5, students=16)
    work = [(subscribe_student, SubscribeStudent("c0", f"s{n}")) for n in range(16)]

    answers = race_threads(connect, app.FOLDS, work)

    assert Counter(answers) == Counter(done=5, course_full=11)


def subscribe_in_a_process(address: Address, commands: Sequence[Struct]) -> list[str]:
    with closing(address.open(app.SCHEMA)) as store, control_of(store, app.FOLDS) as control:
        answers = [send_until_decided(control, subscribe_student, command) for command in commands]
        return [answer if isinstance(answer, str) else "done" for answer in answers]


@pytest.mark.req("CB-16")
def test_both_limits_hold_when_processes_race(
    address: Address | None, connect: Connect, processes: ProcessPoolExecutor
) -> None:
    prepare(connect, courses=5, capacity=3, students=4)
    commands = [SubscribeStudent(f"c{c}", f"s{s}") for c in range(5) for s in range(4)]

    if address is None:
        answers = race_threads(connect, app.FOLDS, [(subscribe_student, c) for c in commands])
    else:
        answers = race_processes(processes, subscribe_in_a_process, address, commands, PROCESSES)
        commands = [command for share in range(PROCESSES) for command in commands[share::PROCESSES]]

    with closing(connect()) as store:
        assert differences(store, app.FOLDS) == []
        pairs = subscriptions(store)
    taken = Counter(course for course, _ in pairs)
    attended = Counter(student for _, student in pairs)
    # No student ever leaves, so the reason of a refusal still holds at the end: then no further
    # subscription is possible, and none is missing.
    truths = {
        "done": lambda course, student: (course, student) in pairs,
        "course_full": lambda course, student: taken[course] == 3,
        "student_over_enrolled": lambda course, student: attended[student] == 3,
    }
    untrue = [
        (command, answer)
        for command, answer in zip(commands, answers, strict=True)
        if not truths[answer](command.course_id, command.student_id)
    ]
    assert untrue == []
    assert len(pairs) == len(set(pairs)) == answers.count("done")
    assert max(taken.values()) == max(attended.values()) == 3


def subscriptions(store: Store) -> list[tuple[str, str]]:
    """Return which student attends which courses, according to the log."""
    facts = [app.SCHEMA.vocabulary.value(event) for event in store.read(ALL).events]
    return [(f.course_id, f.student_id) for f in facts if isinstance(f, StudentSubscribed)]
