"""Runs a contract scenario against a store: each step is a verb, and its answer is compared with
the data.

It needs the installed package and nothing else of the tests, so it also runs against a built wheel:

    python runner.py [url ...]        memory, or the stores at these URLs, each with a fresh log

Rows are read back as they are stored, without the verbs. A scenario with an unknown expectation, or
with none, does not load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from tidegate.domain.provenance import RejectedEvidence, claim
from tidegate.domain.releases.generic import transition_append_event
from tidegate.domain.releases.refusals import DuplicateEvent
from tidegate.engines import connect
from tidegate.errors import (
    ConditionFailed,
    ImmutableRecord,
    InvalidInput,
    NotFound,
    ProtectedField,
    TidegateError,
    VersionConflict,
)
from tidegate.kernel.attributes import FieldRole
from tidegate.kernel.collections import Collection
from tidegate.kernel.model import Key
from tidegate.kernel.records.actions import Action, CreateRow, DeleteRow, PutRow, UpdateRow
from tidegate.kernel.records.records import Records
from tidegate.kernel.records.write_policy import WriteMode, WritePolicy
from tidegate.kernel.store import Schema, Store
from tidegate.kernel.vocabulary import Vocabulary

HOME = Path(__file__).parent
NOW = datetime(2026, 4, 24, 19, 10, tzinfo=UTC)

# The portable names of errors, and what we raise. A leaf error also reports its family's name.
ERRORS: dict[str, type[TidegateError]] = {
    "ErrImmutableModelMutation": ImmutableRecord,
    "ErrProtectedFieldMutation": ProtectedField,
    "ErrConditionFailed": ConditionFailed,
    "ErrVersionConflict": VersionConflict,
    "ErrDuplicateEvent": DuplicateEvent,
    "ErrRejectedDeployAuthorityEvidence": RejectedEvidence,
    "ErrItemNotFound": NotFound,
    "ErrInvalidModel": InvalidInput,
}
CAPABILITIES = {
    "release_state.write_policy",
    "release_state.transactional_transition",
    "release_state.provenance_confidence",
}


# ── the fixture models ────────────────────────────────────────────────────────────────────────────

_NAMES = {
    "pk": "PK",
    "sk": "SK",
    "pinned_release_id": "pinnedReleaseId",
    "previous_release_id": "previousReleaseId",
    "updated_at": "updatedAt",
    "release_id": "releaseId",
    "event_type": "eventType",
    "recorded_at": "recordedAt",
}


class ReleaseStateActual(Struct, frozen=True, omit_defaults=True, rename=_NAMES):
    """The mutable row with a protected pin."""

    pk: Annotated[str, FieldRole.ID]
    sk: Annotated[str, FieldRole.ID]
    version: Annotated[int, FieldRole.VERSION]
    status: str = ""
    pinned_release_id: str = ""
    previous_release_id: str = ""
    provenance: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None
    updated_at: Annotated[datetime | None, FieldRole.UPDATED_AT] = None


class ReleaseStateEvent(Struct, frozen=True, omit_defaults=True, rename=_NAMES):
    """The history row, written once."""

    pk: Annotated[str, FieldRole.ID]
    sk: Annotated[str, FieldRole.ID]
    release_id: str = ""
    event_type: str = ""
    provenance: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None
    recorded_at: str = ""
    ttl: Annotated[int | None, FieldRole.TTL] = None


MODELS = {
    "ReleaseStateActual": Collection(
        "release_state_actual",
        ReleaseStateActual,
        policy=WritePolicy(protected_attributes=("pinnedReleaseId",)),
    ),
    "ReleaseStateEvent": Collection(
        "release_state_event", ReleaseStateEvent, policy=WritePolicy(WriteMode.WRITE_ONCE)
    ),
}
SCHEMA = Schema(Vocabulary(()), tuple(MODELS.values()))


# ── scenarios ─────────────────────────────────────────────────────────────────────────────────────


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a step must lead to. A step that fails has no expected data."""

    ok: bool = False
    error: str | None = None
    errors: tuple[str, ...] = ()
    item_contains: dict[str, Any] | None = None
    item_equals: dict[str, Any] | None = None
    item_has_fields: tuple[str, ...] = ()
    item_missing_fields: tuple[str, ...] = ()
    item_absent: bool = False

    def __post_init__(self) -> None:
        fails = self.error is not None or bool(self.errors)
        content = msgspec.to_builtins(self)
        if not content or (fails and len(content) > 1):
            raise ValueError(f"an expectation says one thing, and something: {content}")
        if unknown := {*self.errors, *([self.error] if self.error else [])} - set(ERRORS):
            raise ValueError(f"unknown errors {sorted(unknown)}")


class Rows(Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a step that names its own model."""

    model: str
    item: dict[str, Any] = {}
    key: dict[str, str] = {}
    set: dict[str, Any] = {}
    expected_version: int | None = None


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One call and what it must lead to."""

    op: str
    expect: Expectation
    why: str = ""
    model: str | None = None
    item: dict[str, Any] = {}
    key: dict[str, str] = {}
    fields: tuple[str, ...] = ()
    if_not_exists: bool = False
    protected_attributes: tuple[str, ...] = ()
    batch_write: dict[str, list[dict[str, Any]]] = {}
    transact_write: dict[str, list[dict[str, Any]]] = {}
    actual: Rows | None = None
    event: Rows | None = None
    outbox: Rows | None = None


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """Steps on one model, unless a step names another."""

    name: str
    model: str
    requires_capabilities: tuple[str, ...]
    steps: tuple[Step, ...]


def scenarios() -> list[Scenario]:
    """Read all data files, in order. Raises: ValueError: one of them is not a valid scenario."""
    found = [
        msgspec.json.decode(p.read_bytes(), type=Scenario) for p in sorted(HOME.glob("*.json"))
    ]
    for scenario in found:
        if missing := set(scenario.requires_capabilities) - CAPABILITIES:
            raise ValueError(f"{scenario.name} needs {sorted(missing)}")
        if unknown := {step.op for step in scenario.steps} - set(OPERATIONS) - {"get"}:
            raise ValueError(f"{scenario.name} has the unknown steps {sorted(unknown)}")
    return found


# ── the driver: steps as verbs ────────────────────────────────────────────────────────────────────


def _name(model: str) -> str:
    return MODELS[model].name


def _id(key: Mapping[str, Any]) -> str:
    return f"{key['PK']}/{key['SK']}"


def _value(model: str, item: Mapping[str, Any]) -> Struct:
    """Convert the item to its model. Raises: InvalidInput: the model lacks one of its members."""
    declared = MODELS[model]
    if unknown := set(item) - set(declared.attributes):
        raise InvalidInput(f"{model} has no member {sorted(unknown)}")
    if model == "ReleaseStateActual":
        claim(item)  # authoritative rows are validated where they are created or saved
    counter = {} if declared.role(FieldRole.VERSION) is None else {"version": 0}
    return msgspec.convert({**counter, **item}, declared.model)


def _update(model: str, item: Mapping[str, Any], fields: tuple[str, ...], **more: Any) -> UpdateRow:
    changes = {name: item[name] for name in fields}
    return UpdateRow(_name(model), _id(item), changes, expected_version=item.get("version"), **more)


def _create(model: str, item: Mapping[str, Any]) -> CreateRow:
    return CreateRow(_name(model), _id(item), _value(model, item))


def _transact(model: str, action: Mapping[str, Any]) -> Action:
    match action["kind"]:
        case "create":
            return _create(model, action["item"])
        case "put":
            return PutRow(_name(model), _id(action["item"]), _value(model, action["item"]))
        case "update":
            return _update(model, action["item"], tuple(action["fields"]))
        case "delete":
            return DeleteRow(_name(model), _id(action["key"]))
    raise ValueError(f"unknown action {action['kind']!r}")


def do_create(records: Records, model: str, step: Step) -> None:
    verb = records.create if step.if_not_exists else records.put
    verb(_name(model), _id(step.item), _value(model, step.item))


def do_update(records: Records, model: str, step: Step) -> None:
    protected = step.protected_attributes
    records.transaction(_update(model, step.item, step.fields, protected_attributes=protected))


def do_save(records: Records, model: str, step: Step) -> None:
    records.save(_name(model), _id(step.item), _value(model, step.item))


def do_delete(records: Records, model: str, step: Step) -> None:
    records.delete(_name(model), _id(step.key))


def do_batch(records: Records, model: str, step: Step) -> None:
    puts = [PutRow(_name(model), _id(i), _value(model, i)) for i in step.batch_write["puts"]]
    deletes = [DeleteRow(_name(model), _id(key)) for key in step.batch_write["deletes"]]
    records.batch(*puts, *deletes)


def do_transact(records: Records, model: str, step: Step) -> None:
    records.transaction(*(_transact(model, each) for each in step.transact_write["actions"]))


def do_transition(records: Records, model: str, step: Step) -> None:
    assert step.actual is not None
    assert step.event is not None
    outbox = step.outbox
    transition_append_event(
        records,
        Key(_name(step.actual.model), _id(step.actual.key)),
        step.actual.set,
        _create(step.event.model, step.event.item),
        expected_version=step.actual.expected_version,
        outbox=None if outbox is None else _create(outbox.model, outbox.item),
    )


def do_validate(records: Records, model: str, step: Step) -> None:
    claim(step.item)


OPERATIONS: dict[str, Callable[[Records, str, Step], None]] = {
    "create": do_create,
    "update": do_update,
    "save": do_save,
    "delete": do_delete,
    "batch_write": do_batch,
    "transact_write": do_transact,
    "transition_append_event": do_transition,
    "validate_provenance": do_validate,
}


# ── the run ───────────────────────────────────────────────────────────────────────────────────────


def run(scenario: Scenario, store: Store) -> int:
    """Run the scenario against the store and return its number of steps. Raises: AssertionError."""
    records = Records(store, lambda: NOW)
    for number, step in enumerate(scenario.steps, 1):
        where = f"{scenario.name}, step {number} ({step.op}) {step.why}"
        model = step.model or scenario.model
        if step.op == "get":
            (record,) = store.get(Key(_name(model), _id(step.key)))
            item = None if record is None else msgspec.json.decode(record.data)
            _judge_item(where, step.expect, item)
        else:
            _judge_outcome(where, step.expect, _outcome(records, model, step))
    return len(scenario.steps)


def _outcome(records: Records, model: str, step: Step) -> TidegateError | None:
    try:
        OPERATIONS[step.op](records, model, step)
    except TidegateError as error:
        return error
    return None


def _judge_outcome(where: str, expect: Expectation, error: TidegateError | None) -> None:
    wanted = expect.errors or ([expect.error] if expect.error else [])
    if not wanted:
        assert expect.ok, f"{where}: an outcome is ok or an error"
        assert error is None, f"{where}: {error!r}"
        return
    named = {name for name, kind in ERRORS.items() if isinstance(error, kind)}
    if expect.errors:
        assert named == set(wanted), f"{where}: wanted {wanted}, found {error!r}"
    else:
        assert wanted[0] in named, f"{where}: wanted {wanted}, found {error!r}"


def _judge_item(where: str, expect: Expectation, item: dict[str, Any] | None) -> None:
    if expect.item_absent:
        assert item is None, f"{where}: {item}"
        return
    assert item is not None, f"{where}: there is no row"
    if expect.item_equals is not None:
        assert item == expect.item_equals, f"{where}: {item}"
    for name, value in (expect.item_contains or {}).items():
        assert item.get(name) == value, f"{where}: {name} is {item.get(name)!r}"
    assert set(expect.item_has_fields) <= set(item), f"{where}: {item}"
    assert not set(expect.item_missing_fields) & set(item), f"{where}: {item}"


def main(urls: list[str]) -> None:
    for url in urls or ["memory:"]:
        for scenario in scenarios():
            # A scenario starts with an empty store, so each store of a URL gets a fresh log.
            place = url if url == "memory:" else f"{url}-{scenario.name[:2]}"
            with closing(connect(place, SCHEMA)) as store:
                print(f"{place}: {scenario.name}: {run(scenario, store)} steps as written")


if __name__ == "__main__":
    main(sys.argv[1:])
