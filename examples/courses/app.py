"""A course must not be full and a student not over-enrolled, decided in one boundary.

``StudentSubscribed`` is filed under its course and, because ``student_id`` is declared ``Cross()``
on the command and on the fact, under its student over all courses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from tidegate.clock import system_clock
from tidegate.control.runtime import Control
from tidegate.engines import connect
from tidegate.engines.group_commit import GroupCommit
from tidegate.errors import NotFound, Refused
from tidegate.kernel.collections import Collection, Nature, Writers
from tidegate.kernel.folds import Fold, Folds
from tidegate.kernel.replay import differences, rebuild_changed
from tidegate.kernel.slices import Slice
from tidegate.kernel.store import Schema
from tidegate.kernel.tags import Cross, Partition
from tidegate.kernel.vocabulary import Vocabulary, facts

COURSES_PER_STUDENT_MAX = 3

# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


class CourseDefined(Struct, frozen=True, rename="camel"):
    course_id: str
    capacity: int


class StudentRegistered(Struct, frozen=True, rename="camel"):
    student_id: str


class StudentSubscribed(Struct, frozen=True, rename="camel"):
    course_id: Annotated[str, Partition()]
    student_id: Annotated[str, Cross()]


# ── defining and registering ──────────────────────────────────────────────────────────────────────


class DefineCourse(Struct, frozen=True, rename="camel"):
    course_id: str
    capacity: int


class RegisterStudent(Struct, frozen=True, rename="camel"):
    student_id: str


def seen(known: bool, fact: Struct) -> bool:
    return True


def decide_course(known: bool, command: DefineCourse, now: datetime) -> Sequence[Struct]:
    return () if known else (CourseDefined(command.course_id, command.capacity),)


def decide_student(known: bool, command: RegisterStudent, now: datetime) -> Sequence[Struct]:
    return () if known else (StudentRegistered(command.student_id),)


define_course = Slice(
    name="define-course",
    command=DefineCourse,
    reads=(CourseDefined,),
    writes=(CourseDefined,),
    start=lambda command: False,
    evolve=seen,
    decide=decide_course,
)

register_student = Slice(
    name="register-student",
    command=RegisterStudent,
    reads=(StudentRegistered,),
    writes=(StudentRegistered,),
    start=lambda command: False,
    evolve=seen,
    decide=decide_student,
)

# ── subscribing ───────────────────────────────────────────────────────────────────────────────────


class SubscribeStudent(Struct, frozen=True, rename="camel"):
    course_id: Annotated[str, Partition()]
    student_id: Annotated[str, Cross()]


class CourseFull(Refused):
    """Every place of the course is taken."""

    code = "course_full"


class StudentOverEnrolled(Refused):
    """The student attends as many courses as one student may."""

    code = "student_over_enrolled"


class Enrolment(Struct, frozen=True):
    """Both sides of one subscription."""

    course_id: str
    student_id: str
    registered: bool = False
    capacity: int | None = None
    students: int = 0
    courses: int = 0
    subscribed: bool = False


def evolve(
    state: Enrolment, fact: CourseDefined | StudentRegistered | StudentSubscribed
) -> Enrolment:
    match fact:
        case CourseDefined(capacity=capacity):
            return replace(state, capacity=capacity)
        case StudentRegistered():
            return replace(state, registered=True)
        case StudentSubscribed(course_id=course_id, student_id=student_id):
            here = course_id == state.course_id
            ours = student_id == state.student_id
            return replace(
                state,
                students=state.students + here,
                courses=state.courses + ours,
                subscribed=state.subscribed or (here and ours),
            )


def decide(state: Enrolment, command: SubscribeStudent, now: datetime) -> Sequence[Struct]:
    if state.capacity is None:
        raise NotFound(f"there is no course {command.course_id}", course=command.course_id)
    if not state.registered:
        raise NotFound(f"there is no student {command.student_id}", student=command.student_id)
    if state.subscribed:
        return ()
    if state.students >= state.capacity:
        raise CourseFull(f"{command.course_id} has {state.capacity} places", found=state.students)
    if state.courses >= COURSES_PER_STUDENT_MAX:
        raise StudentOverEnrolled(
            f"{command.student_id} attends {state.courses} courses", found=state.courses
        )
    return (StudentSubscribed(command.course_id, command.student_id),)


subscribe_student = Slice(
    name="subscribe-student",
    command=SubscribeStudent,
    reads=(CourseDefined, StudentRegistered, StudentSubscribed),
    writes=(StudentSubscribed,),
    start=lambda command: Enrolment(command.course_id, command.student_id),
    evolve=evolve,
    decide=decide,
)

# ── a derived table, and the whole application ────────────────────────────────────────────────────


class CoursePlaces(Struct, frozen=True, rename="camel", omit_defaults=True):
    course_id: str
    capacity: int = 0
    taken: int = 0


COURSE_PLACES = Collection(
    "course_places",
    CoursePlaces,
    writers=Writers.FOLDED,
    nature=Nature.DERIVED,
    columns=("capacity", "taken"),
)


def count_place(
    row: CoursePlaces, fact: CourseDefined | StudentSubscribed, now: datetime
) -> CoursePlaces:
    match fact:
        case CourseDefined(capacity=capacity):
            return replace(row, capacity=capacity)
        case StudentSubscribed():
            return replace(row, taken=row.taken + 1)


course_places = Fold(
    collection=COURSE_PLACES,
    number=1,
    reads=(CourseDefined, StudentSubscribed),
    ids=lambda fact: (fact.course_id,),
    start=lambda id, fact: CoursePlaces(id),
    step=count_place,
)

FACTS = facts("course", CourseDefined, StudentRegistered, StudentSubscribed)
SLICES = (define_course, register_student, subscribe_student)
SCHEMA = Schema(Vocabulary(FACTS, SLICES), (COURSE_PLACES,))
FOLDS = Folds(SCHEMA, (course_places,))


@contextmanager
def courses(url: str) -> Iterator[Control]:
    """Open the courses on the log at this URL. A fold with a new number is rebuilt first."""
    with closing(connect(url, SCHEMA)) as store, closing(GroupCommit(store)) as writer:
        rebuild_changed(store, FOLDS, system_clock())
        yield Control(store, FOLDS, writer.submit)


def walk(control: Control) -> None:
    """Let three students try to get two places."""
    control.execute(define_course, DefineCourse("c1", 2))
    for student in ("ann", "bea", "cid"):
        control.execute(register_student, RegisterStudent(student))
        try:
            control.execute(subscribe_student, SubscribeStudent("c1", student))
            print(f"{student} subscribed to c1")
        except Refused as refusal:
            print(f"{student}: {refusal.code}: {refusal.detail}")
    for record in control.store.range(COURSE_PLACES.name, limit=10):
        print(f"{record.key}: {record.data.decode()}")
    print(f"differences after replay: {differences(control.store, FOLDS)}")


if __name__ == "__main__":
    with courses(sys.argv[1] if len(sys.argv) > 1 else "memory:") as running:
        walk(running)
