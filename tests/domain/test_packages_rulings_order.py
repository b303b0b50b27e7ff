"""packages.md §3.2, ruling by ruling: the order of checks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, Depot, files
from tests.domain.refusal_checks import answer_of
from tidegate.domain.content.entries import File
from tidegate.domain.content.manifests import FileManifest
from tidegate.domain.packages.approvals import (
    ApproveRevision,
    ProposeRevision,
    RejectProposal,
    WithdrawProposal,
)
from tidegate.domain.packages.deletions import DeleteRevision, ProposeDeletion, RejectDeletion
from tidegate.domain.packages.facts import (
    Condition,
    ConditionStatus,
    Metadata,
)
from tidegate.domain.packages.metadata import REASON_BYTES_MAX
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, SetConditions, UpdateRevision

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"
DIGEST = FileManifest(()).digest


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
    SetConditions: {"digest": DIGEST, "conditions": (Condition("c", ConditionStatus.TRUE),)},
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
    found = (Condition("tested", ConditionStatus.TRUE),)
    depot.act(SetConditions, name, "user_ci", digest=DIGEST, conditions=found)
    depot.propose(name)
    depot.act(
        SetConditions,
        name,
        "user_ci",
        digest=DIGEST,
        conditions=(Condition("tested", ConditionStatus.FALSE),),
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
