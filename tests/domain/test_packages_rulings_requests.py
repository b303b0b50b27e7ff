"""packages.md §3.2–§3.3, ruling by ruling: the order of checks, and what is said when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.depot import AUTHOR, OPERATOR, REVIEWER, SLICE_OF, Depot, files
from tests.domain.ruled import answer_of, creation, refusal_of, status_of
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.content import CONTENT_BYTES_MAX, File, Manifest
from tidegate.domain.packages.creation import CreateRevision
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.facts import (
    Clone,
    Condition,
    Edit,
    Init,
    Metadata,
    Status,
)
from tidegate.domain.packages.history import dependents_of
from tidegate.domain.packages.lifecycle import Lifecycle
from tidegate.domain.packages.metadata import REASON_BYTES_MAX
from tidegate.domain.packages.updates import ReplaceResources, SetConditions, UpdateRevision
from tidegate.errors import AttemptsExhausted, IdempotencyMismatch

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"
DIGEST = Manifest(()).digest


@pytest.fixture
def depot() -> Depot:
    depot = Depot()
    depot.repository()
    return depot


# ── §3.2 the order ────────────────────────────────────────────────────────────────────────────────

LONG = "x" * (REASON_BYTES_MAX + 1)
MALFORMED: dict[type[Any], dict[str, Any]] = {
    UpdateRevision: {"labels": {"no key": ""}},
    ReplaceResources: {"files": (File("../x", "0" * 64, 0),)},
    SetConditions: {"digest": "md5:0", "conditions": ()},
    ProposeRevision: {"reason": LONG},
    WithdrawProposal: {"reason": LONG},
    RejectProposal: {"reason": ""},
    ApproveRevision: {"digest": "md5:0"},
    ProposeDeletion: {"reason": LONG},
    RejectDeletion: {"reason": ""},
    DeleteRevision: {"by": "a user"},
}
WELL_FORMED: dict[type[Any], dict[str, Any]] = {
    UpdateRevision: {"lifecycle": "DeletionProposed"},
    ReplaceResources: {"files": files(a="9")},
    SetConditions: {"digest": DIGEST, "conditions": (Condition("c", Status.TRUE),)},
    ProposeRevision: {},
    WithdrawProposal: {},
    RejectProposal: {"reason": "so"},
    ApproveRevision: {"digest": DIGEST},
    ProposeDeletion: {},
    RejectDeletion: {"reason": "so"},
}


@pytest.mark.parametrize("command", list(MALFORMED), ids=lambda item: item.__name__)
@pytest.mark.parametrize("stands", [False, True], ids=["absent", "stale"])
def test_tells_the_form_before_what_stands(depot: Depot, command: type[Any], stands: bool) -> None:
    """packages.md §3.2 #1: "syntax 400 → exists 404 → version given 400 → version matches 409 →
    not terminating 409 → transition/immutability 422 → policy" (a missing version is 428).
    """
    members = {"name": NAME, "by": AUTHOR, "expected_version": 10_000} | MALFORMED[command]
    if stands:
        depot.create()

    assert answer_of(depot, command(**members))[0] in (400, 413)


@pytest.mark.parametrize("command", list(WELL_FORMED), ids=lambda item: item.__name__)
def test_tells_of_two_faults_the_earlier(depot: Depot, command: type[Any]) -> None:
    """packages.md §3.2 #1, pair by pair: a revision that is there, without a version, at an old
    one, and being deleted, is told of its state last.
    """
    members = {"name": NAME, "by": REVIEWER} | WELL_FORMED[command]
    assert answer_of(depot, command(**members))[0] == 404, "before the version that is not given"
    depot.create(metadata=Metadata(finalizers=("hold",)))
    assert answer_of(depot, command(**members)) == (428, "version_required")
    old = depot.version(NAME)
    depot.delete(NAME)
    stale = command(**members, expected_version=old)
    assert answer_of(depot, stale) == (409, "version_conflict"), "before terminating"
    seen = command(**members, expected_version=depot.version(NAME))
    assert answer_of(depot, seen) == (409, "terminating"), "before the transition"


def test_tells_the_state_before_the_policy(depot: Depot) -> None:
    """packages.md §3.2 #1: "→ transition/immutability 422 → policy (gates 422, self-approval 403,
    references 403)".
    """
    name = depot.create(readiness_gates=("tested",))
    own = ApproveRevision(name=name, by=AUTHOR, digest=DIGEST, expected_version=depot.version(name))
    assert answer_of(depot, own) == (422, "invalid_transition")
    found = (Condition("tested", Status.TRUE),)
    depot.act(SetConditions, name, "user_ci", digest=DIGEST, conditions=found)
    depot.propose(name)
    depot.act(
        SetConditions,
        name,
        "user_ci",
        digest=DIGEST,
        conditions=(Condition("tested", Status.FALSE),),
    )
    own = replace(own, expected_version=depot.version(name))
    assert answer_of(depot, own) == (422, "not_ready")
    depot.act(SetConditions, name, "user_ci", digest=DIGEST, conditions=found)
    own = replace(own, expected_version=depot.version(name))
    assert answer_of(depot, own) == (403, "self_approval")


def test_answers_the_documented_double_fault(depot: Depot) -> None:
    """packages.md §3.2 #2: "*stale version + illegal transition → 409*"."""
    name = depot.create()
    seen = depot.version(name)
    depot.update(name, labels={"a": "b"})

    both = UpdateRevision(name=name, by=AUTHOR, lifecycle="Published", expected_version=seen)

    assert answer_of(depot, both) == (409, "version_conflict")


def test_lets_a_merely_concurrent_neighbour_succeed(depot: Depot) -> None:
    """packages.md §3.2 #3: "if the append condition fails, re-read and re-decide (bounded), so a
    stale explicit version ends as 409 and a merely concurrent neighbour succeeds"
    packages.md §4.2 #2: "two revisions of a package → both succeed with consecutive numbers after
    an internal re-decision".
    """
    one, two = depot.create("v1"), depot.create("v2")
    for name in (one, two):
        depot.propose(name)
    submit = depot.control._submit
    neighbour = [lambda: depot.approve(two)]

    def late(commit: Any) -> Any:
        depot.control._submit = submit
        neighbour.pop()()
        return submit(commit)

    depot.control._submit = late
    depot.approve(one)

    assert (depot.revision(two).number, depot.revision(one).number) == (1, 2)


def test_lets_one_of_two_approvals_of_a_revision_succeed(depot: Depot) -> None:
    """packages.md §4.2 #1: "same revision twice → one success, one 409"."""
    name = depot.create()
    depot.propose(name)
    approval = ApproveRevision(
        name=name, by=REVIEWER, digest=DIGEST, expected_version=depot.version(name)
    )
    depot.run(approval)

    assert answer_of(depot, replace(approval, by=OPERATOR)) == (409, "version_conflict")


# ── §3.3 the catalogue ────────────────────────────────────────────────────────────────────────────

Act = Callable[[Depot], Any]


def on(command: type[Any], name: str = NAME, by: str = AUTHOR, **members: Any) -> Act:
    """The command at the version where the revision stands."""
    return lambda depot: depot.run(
        command(name=name, by=by, expected_version=depot.version(name), **members)
    )


def run(command: Any) -> Act:
    return lambda depot: depot.run(command)


def drafted(depot: Depot) -> None:
    depot.create()


def proposed(depot: Depot) -> None:
    depot.create()
    depot.propose(NAME)


def published(depot: Depot) -> None:
    depot.published()


def held(depot: Depot) -> None:
    depot.create(metadata=Metadata(finalizers=("hold",)))
    depot.delete(NAME)


def cloned(depot: Depot) -> None:
    depot.published()
    depot.create(package="mine", task=Clone(NAME))
    depot.propose_deletion(NAME)


def gated(depot: Depot) -> None:
    depot.create(readiness_gates=("tested", "signed"))


def protected(depot: Depot) -> None:
    depot.repository("prod", deployment=True)
    depot.create(repository="prod")
    depot.propose("prod.web.v1")


def nothing(depot: Depot) -> None:
    pass


BIG = (File("a", "0" * 64, CONTENT_BYTES_MAX), File("b", "0" * 64, 1))


@pytest.mark.parametrize(
    ("point", "given", "act", "status", "code", "text"),
    [
        (
            "packages.md §3.3 #1: create Published/DeletionProposed",
            nothing,
            run(creation(lifecycle="Published")),
            *(400, "lifecycle_invalid_create"),
            "cannot create a package revision with lifecycle value 'Final'",
        ),
        (
            "packages.md §3.3 #2: create Proposed | same code, 400",
            nothing,
            run(creation(lifecycle="Proposed")),
            *(400, "lifecycle_invalid_create"),
            "cannot create a package revision with lifecycle value 'Proposed'",
        ),
        (
            "packages.md §3.3 #3: create with unknown value | `lifecycle_unsupported` 400",
            nothing,
            run(creation(lifecycle="x")),
            *(400, "lifecycle_unsupported", "unsupported lifecycle value: x"),
        ),
        (
            "packages.md §3.3 #4: update to unknown value | `lifecycle_invalid_desired` 400",
            drafted,
            on(UpdateRevision, lifecycle="x"),
            *(400, "lifecycle_invalid_desired", "invalid desired lifecycle value: x"),
        ),
        (
            "packages.md §3.3 #6: illegal transition | `invalid_transition` 422",
            drafted,
            on(ProposeDeletion),
            *(422, "invalid_transition", "Proposed"),
        ),
        (
            "packages.md §3.3 #7: spec/content change when frozen | `immutable` 422",
            proposed,
            on(UpdateRevision, readiness_gates=("g",)),
            *(422, "immutable", "package must be Draft"),
        ),
        (
            "packages.md §3.3 #8: resources on non-Draft | `not_draft` 422",
            published,
            on(ReplaceResources, files=files(a="2")),
            *(422, "not_draft"),
            (
                "cannot update a package revision with lifecycle value Published; package must be"
                " Draft"
            ),
        ),
        (
            "packages.md §3.3 #9: version missing | `version_required` (428 by DESIGN.md §8)",
            drafted,
            run(ProposeRevision(name=NAME, by=AUTHOR)),
            *(428, "version_required", "say which version"),
        ),
        (
            "packages.md §3.3 #10: version stale | `version_conflict` 409",
            drafted,
            run(ProposeRevision(name=NAME, by=AUTHOR, expected_version=10_000)),
            *(409, "version_conflict"),
            (
                "the object has been modified; please apply your changes to the latest version and"
                " try again"
            ),
        ),
        (
            "packages.md §3.3 #12: workspace duplicate | `already_exists` 409",
            drafted,
            run(creation()),
            *(409, "already_exists", NAME),
        ),
        (
            "packages.md §3.3 #13: nested or existing package path | `path_overlap` 409",
            drafted,
            run(creation(package="web/sub")),
            *(409, "path_overlap", "blueprints/web"),
        ),
        (
            "packages.md §3.3 #13: nested or existing package path | `package_exists` 409",
            published,
            run(creation(workspace="v2")),
            *(409, "package_exists", NAME),
        ),
        (
            "packages.md §3.3 #14: clone onto existing package | `package_exists` 409",
            published,
            run(creation(workspace="v2", tasks=(Clone(NAME),))),
            *(409, "package_exists", NAME),
        ),
        (
            "packages.md §3.3 #15: edit/upgrade source unpublished | `source_not_published` 422",
            drafted,
            run(creation(workspace="v2", tasks=(Edit(NAME),))),
            *(422, "source_not_published", NAME),
        ),
        (
            "packages.md §3.3 #15: wrong package | `source_mismatch` 422",
            published,
            run(creation(package="other", tasks=(Edit(NAME),))),
            *(422, "source_mismatch", "blueprints/web"),
        ),
        (
            "packages.md §3.3 #16: more than one task | `too_many_tasks` 400",
            nothing,
            run(creation(tasks=(Init(), Init()))),
            *(400, "too_many_tasks", "2"),
        ),
        (
            "packages.md §3.3 #17: delete Published | `deletion_not_proposed` 403",
            published,
            run(DeleteRevision(name=NAME, by=OPERATOR)),
            *(403, "deletion_not_proposed", "Published"),
        ),
        (
            "packages.md §3.3 #18: delete referenced upstream | `still_referenced` 403",
            cloned,
            run(DeleteRevision(name=NAME, by=REVIEWER)),
            *(403, "still_referenced", "blueprints.mine.v1"),
        ),
        (
            "packages.md §3.3 #19: bad names | `invalid_argument` 400",
            nothing,
            run(creation(workspace="No Label")),
            *(400, "invalid_argument", "No Label"),
        ),
        (
            "packages.md §3.3 #20: gates unmet on propose/approve | `not_ready` 422, lists gates",
            gated,
            on(ProposeRevision),
            *(422, "not_ready", "tested, signed"),
        ),
        (
            "packages.md §3.3 #21: body too big | `too_large` 413",
            nothing,
            run(creation(files=BIG)),
            *(413, "too_large", str(CONTENT_BYTES_MAX + 1)),
        ),
        (
            "packages.md §3.3 #22: missing object | `not_found` 404",
            nothing,
            on(ProposeRevision),
            *(404, "not_found", NAME),
        ),
        (
            "packages.md §3.3 #23: op on terminating object | `terminating` 409",
            held,
            on(ProposeRevision),
            *(409, "terminating", NAME),
        ),
        (
            "packages.md §3.3 #24: own proposal | `self_approval` 403 (policy)",
            proposed,
            on(ApproveRevision, digest=DIGEST),
            *(403, "self_approval", AUTHOR),
        ),
        (
            "packages.md §3.3 #26: protected Proposed deleted | `proposal_protected` 403 (policy)",
            protected,
            run(DeleteRevision(name="prod.web.v1", by=OPERATOR)),
            *(403, "proposal_protected", "Proposed"),
        ),
    ],
)
def test_says_what_the_catalogue_says(
    depot: Depot,
    point: str,
    given: Callable[[Depot], None],
    act: Act,
    status: int,
    code: str,
    text: str,
) -> None:
    """packages.md §3.3 #29: "ASCII, value bare; tests match on the stable part (e.g. contains
    `package must be Draft` and the state name) and on the machine `code`".
    """
    del point
    given(depot)

    refusal = refusal_of(depot, act, depot)

    assert (status_of(refusal), refusal.code) == (status, code)
    assert text in refusal.detail
    assert refusal.detail.isascii()


def test_tells_from_to_and_allowed_of_an_illegal_transition(depot: Depot) -> None:
    """packages.md §3.3 #6: "body has from,to,allowed[]"."""
    proposed(depot)

    refusal = refusal_of(depot, on(ProposeDeletion), depot)

    assert refusal.facts == {
        "from": "Proposed",
        "to": "DeletionProposed",
        "allowed": "Draft, Published",
    }


def test_lists_blockers_and_where_all_of_them_stand(depot: Depot) -> None:
    """packages.md §3.3 #18: "body lists **all** blockers": up to sixteen in the refusal with their
    whole number, all of them by ``dependents_of``.
    """
    depot.published()
    names = [depot.create(package=f"p{number:02}", task=Clone(NAME)) for number in range(18)]
    depot.propose_deletion(NAME)

    refusal = refusal_of(depot, depot.delete, NAME)

    assert refusal.facts["count"] == 18
    assert str(refusal.facts["blockers"]).split(", ") == names[:16]
    assert dependents_of(depot.store, NAME) == tuple(names)


def test_says_that_others_were_faster_every_time(depot: Depot) -> None:
    """packages.md §3.3 #11: "`in_progress` 409 (only when the retry budget is spent)": the kernel's
    code for it is ``attempts_exhausted``.
    """
    names = [depot.create(f"v{number}") for number in range(8)]
    for name in names:
        depot.propose(name)
    one = names.pop()
    approval = ApproveRevision(
        name=one, by=REVIEWER, digest=DIGEST, expected_version=depot.version(one)
    )
    submit = depot.control._submit

    def outrun(commit: Any) -> Any:
        depot.control._submit = submit
        depot.approve(names.pop())
        depot.control._submit = outrun
        return submit(commit)

    depot.control._submit = outrun
    with pytest.raises(AttemptsExhausted) as refusal:
        depot.run(approval)
    assert status_of(refusal.value) == 409


def test_refuses_a_key_that_came_with_another_body(depot: Depot) -> None:
    """packages.md §3.3 #27: "idempotency key re-used with another body" | "`idempotency_mismatch`
    422"; packages.md §4.5 #1: "idempotency keys on every command".
    """
    command = creation()
    first = depot.control.execute(SLICE_OF[CreateRevision], command, key="k")
    again = depot.control.execute(SLICE_OF[CreateRevision], command, key="k")
    assert again.position == first.position

    with pytest.raises(IdempotencyMismatch) as refusal:
        depot.control.execute(SLICE_OF[CreateRevision], creation(workspace="v2"), key="k")
    assert (status_of(refusal.value), refusal.value.code) == (422, "idempotency_mismatch")


@pytest.mark.parametrize("command", list(WELL_FORMED), ids=lambda item: item.__name__)
def test_answers_every_command_on_a_deleted_revision_with_a_typed_error(
    depot: Depot, command: type[Any]
) -> None:
    """packages.md §6 #1: "wrong status codes" | "typed errors (3.3)"."""
    depot.create()
    seen = depot.version(NAME)
    depot.delete(NAME)

    members = {"name": NAME, "by": OPERATOR, "expected_version": seen} | WELL_FORMED[command]
    assert answer_of(depot, command(**members)) == (404, "not_found")
