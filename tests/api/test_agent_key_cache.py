"""The cache of agent keys in the agent API, and what invalidates it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.api.served_fleet import ServedFleet
from tidegate.control.fleet.enrollment import Enrollment
from tidegate.control.operations.execute import Execute
from tidegate.errors import StoreUnavailable

SOURCE = Path(tidegate.__file__).parent
ENDS = frozenset({"revoke_host", "retire_host", "CERT_REVOCATIONS"})  # their callers end keys
ROOMS = ("domain/fleet/", "simulate/")  # where they are defined, and where there is no API


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts whose keys were looked up, in order."""
    hosts: list[str] = []
    look = Enrollment.demand_valid

    def noted(self: Enrollment, host_id: str, public_key: str) -> None:
        hosts.append(host_id)
        look(self, host_id, public_key)

    monkeypatch.setattr(Enrollment, "demand_valid", noted)
    return hosts


def test_reads_a_key_once_however_much_is_committed(fleet: ServedFleet, looked: list[str]) -> None:
    agent = fleet.agents["web-01"]
    assert agent.poll().status_code == 204
    assert looked == ["web-01"]

    fleet.sail()
    fleet.enroll("db-01", app="db")
    labelled = fleet.operator.put("/v1/hosts/web-02/labels", json={"labels": {"app": "x"}})
    looked.clear()

    assert labelled.status_code == 200, labelled.text
    assert agent.poll().status_code == 200
    assert looked == []


@pytest.mark.parametrize("verb", ["revoke", "retire"])
def test_reads_every_key_again_after_one_has_ended(
    fleet: ServedFleet, looked: list[str], verb: str
) -> None:
    stays, goes = fleet.agents["web-01"], fleet.agents["web-02"]
    assert [stays.poll().status_code, goes.poll().status_code] == [204, 204]
    looked.clear()

    fleet.operator.post(f"/v1/hosts/web-02/{verb}", json={"reason": "stolen"})
    refused = goes.poll()

    assert (refused.status_code, refused.json()["code"]) == (401, "key_refused")
    assert [stays.poll().status_code for _ in range(3)] == [204, 204, 204]
    assert looked.count("web-01") == 1


@pytest.mark.parametrize("verb", ["revoke", "retire"])
def test_refuses_a_key_whose_revocation_failed_halfway(
    fleet: ServedFleet, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = fleet.agents["web-01"]
    assert agent.poll().status_code == 204

    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("no disk")

    monkeypatch.setattr(Execute, "__call__", fail)
    away = fleet.operator.post(f"/v1/hosts/web-01/{verb}", json={"reason": "stolen"})

    assert away.status_code == 503
    assert agent.poll().json()["code"] == "key_refused"


def test_refuses_a_key_that_was_enrolled_while_its_host_was_retired(
    fleet: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleet.operator.post("/v1/hosts/web-01/revoke", json={"reason": "lost"}).is_success
    installation = fleet.installation
    enrolled: list[int] = []
    execute = Execute.__call__

    def enroll_then_execute(*args: Any, **named: Any) -> Any:
        enrolled.append(fleet.enroll("web-01").poll().status_code)  # after the key was looked up
        return execute(*args, **named)

    # The agent enrolls in the host's lane, so the operator's step must not hold it.
    monkeypatch.setattr(type(installation.lanes), "run", lambda lanes, lane, run: run())
    monkeypatch.setattr(Execute, "__call__", enroll_then_execute)
    retired = fleet.operator.post("/v1/hosts/web-01/retire", json={"reason": "sold"})

    assert enrolled == [204]
    assert (retired.status_code, retired.json()["status"]) == (200, "retired")
    assert fleet.agents["web-01"].poll().json()["code"] == "key_refused"


def test_keys_are_ended_in_one_place_only() -> None:
    """The API drops a key from its cache when notified; code elsewhere would not notify it."""
    named = {
        path.relative_to(SOURCE).as_posix(): {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Name | ast.Attribute)
        }
        for path in SOURCE.rglob("*.py")
    }

    ending = {path for path, names in named.items() if names & ENDS and not path.startswith(ROOMS)}

    assert ending == {"control/fleet/enrollment.py", "control/operations/hosts.py"}
