"""The order in which a request about packages is checked."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.domain.package_log import AUTHOR, OPERATOR, REVIEWER, PackageLog, files
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
from tidegate.domain.packages.facts import Condition, ConditionStatus, Metadata
from tidegate.domain.packages.metadata import REASON_BYTES_MAX
from tidegate.domain.packages.states import Lifecycle
from tidegate.domain.packages.updates import ReplaceResources, SetConditions, UpdateRevision

DRAFT, PROPOSED, PUBLISHED, DELETION_PROPOSED = Lifecycle
NAME = "blueprints.web.v1"
DIGEST = FileManifest(()).digest


# ── the order ─────────────────────────────────────────────────────────────────────────────────────

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
def test_checks_the_form_before_the_stored_state(
    package_log: PackageLog, command: type[Any], stands: bool
) -> None:
    members = {"name": NAME, "by": AUTHOR, "expected_version": 10_000} | MALFORMED[command]
    if stands:
        package_log.create()

    assert answer_of(package_log, command(**members))[0] in (400, 413)


@pytest.mark.parametrize("command", list(WELL_FORMED), ids=lambda item: item.__name__)
def test_reports_the_earlier_of_two_faults(package_log: PackageLog, command: type[Any]) -> None:
    members = {"name": NAME, "by": REVIEWER} | WELL_FORMED[command]
    assert answer_of(package_log, command(**members))[0] == 404, "before the missing version"
    package_log.create(metadata=Metadata(finalizers=("hold",)))
    assert answer_of(package_log, command(**members)) == (428, "version_required")
    old = package_log.version(NAME)
    package_log.delete(NAME)
    stale = command(**members, expected_version=old)
    assert answer_of(package_log, stale) == (409, "version_conflict"), "before terminating"
    seen = command(**members, expected_version=package_log.version(NAME))
    assert answer_of(package_log, seen) == (409, "terminating"), "before the transition"


def test_checks_the_state_before_the_policy(package_log: PackageLog) -> None:
    name = package_log.create(readiness_gates=("tested",))
    own = ApproveRevision(
        name=name, by=AUTHOR, digest=DIGEST, expected_version=package_log.version(name)
    )
    assert answer_of(package_log, own) == (422, "invalid_transition")
    found = (Condition("tested", ConditionStatus.TRUE),)
    package_log.act(SetConditions, name, "user_ci", digest=DIGEST, conditions=found)
    package_log.propose(name)
    package_log.act(
        SetConditions,
        name,
        "user_ci",
        digest=DIGEST,
        conditions=(Condition("tested", ConditionStatus.FALSE),),
    )
    own = replace(own, expected_version=package_log.version(name))
    assert answer_of(package_log, own) == (422, "not_ready")
    package_log.act(SetConditions, name, "user_ci", digest=DIGEST, conditions=found)
    own = replace(own, expected_version=package_log.version(name))
    assert answer_of(package_log, own) == (403, "self_approval")


def test_answers_the_documented_double_fault(package_log: PackageLog) -> None:
    name = package_log.create()
    seen = package_log.version(name)
    package_log.update(name, labels={"a": "b"})

    both = UpdateRevision(name=name, by=AUTHOR, lifecycle="Published", expected_version=seen)

    assert answer_of(package_log, both) == (409, "version_conflict")


def test_a_concurrent_command_on_a_neighbour_succeeds(package_log: PackageLog) -> None:
    one, two = package_log.create("v1"), package_log.create("v2")
    for name in (one, two):
        package_log.propose(name)
    submit = package_log.control._submit
    neighbour = [lambda: package_log.approve(two)]

    def late(commit: Any) -> Any:
        package_log.control._submit = submit
        neighbour.pop()()
        return submit(commit)

    package_log.control._submit = late
    package_log.approve(one)

    assert (package_log.revision(two).number, package_log.revision(one).number) == (1, 2)


def test_one_of_two_approvals_of_a_revision_succeeds(package_log: PackageLog) -> None:
    name = package_log.create()
    package_log.propose(name)
    approval = ApproveRevision(
        name=name, by=REVIEWER, digest=DIGEST, expected_version=package_log.version(name)
    )
    package_log.run(approval)

    assert answer_of(package_log, replace(approval, by=OPERATOR)) == (409, "version_conflict")


@pytest.mark.parametrize("command", list(WELL_FORMED), ids=lambda item: item.__name__)
def test_answers_every_command_on_a_deleted_revision_with_a_typed_error(
    package_log: PackageLog, command: type[Any]
) -> None:
    package_log.create()
    seen = package_log.version(NAME)
    package_log.delete(NAME)

    members = {"name": NAME, "by": OPERATOR, "expected_version": seen} | WELL_FORMED[command]
    assert answer_of(package_log, command(**members)) == (404, "not_found")
