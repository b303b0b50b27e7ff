"""Validate what people attach to a revision: metadata, gates, conditions, reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tidegate.domain.packages import facts, refusals
from tidegate.kernel.model import at_most

LABELS_MAX = 64
ANNOTATIONS_BYTES_MAX = 64 * 1024
FINALIZERS_MAX = 32
OWNERS_MAX = 32
GATES_MAX = 32
CONDITIONS_MAX = 64
REASON_BYTES_MAX = 1_024

RESERVED_PREFIX = "tidegate/"  # of labels that Tidegate sets itself

_KEY = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_UID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def check_metadata(metadata: facts.Metadata) -> None:
    """Raises: InvalidMember, LimitExceeded."""
    at_most("labels of a revision", len(metadata.labels), LABELS_MAX)
    for key, value in metadata.labels.items():
        _check_key("a label", key)
        if key.startswith(RESERVED_PREFIX):
            raise refusals.InvalidMember(
                f"labels that begin with {RESERVED_PREFIX} are set by Tidegate; found {key}",
                member=key,
            )
        if not _LABEL_VALUE.fullmatch(value):
            raise refusals.InvalidMember(
                f"the value of label {key} is not one: {value[:80]!r}", member=key
            )
    for key in metadata.annotations:
        _check_key("an annotation", key)
    size = _size(metadata.annotations)
    at_most("bytes of annotations of a revision", size, ANNOTATIONS_BYTES_MAX)
    at_most("finalizers of a revision", len(metadata.finalizers), FINALIZERS_MAX)
    _check_keys("a finalizer", metadata.finalizers)
    at_most("owner references of a revision", len(metadata.owner_references), OWNERS_MAX)
    for owner in metadata.owner_references:
        _check_key("the kind of an owner", owner.kind)
        if not 0 < len(owner.id) <= 253:
            raise refusals.InvalidMember("the id of an owner has 1 to 253 characters")
    if len(set(metadata.owner_references)) != len(metadata.owner_references):
        raise refusals.InvalidMember("an owner is named twice")


def check_gates(gates: tuple[str, ...]) -> None:
    """Raises: InvalidMember, LimitExceeded."""
    at_most("readiness gates of a revision", len(gates), GATES_MAX)
    _check_keys("a readiness gate", gates)


def check_conditions(conditions: tuple[facts.Condition, ...]) -> None:
    """Raises: InvalidMember, LimitExceeded."""
    at_most("conditions of a report", len(conditions), CONDITIONS_MAX)
    _check_keys("a condition", [condition.type for condition in conditions])
    for condition in conditions:
        at_most("bytes of a condition's reason", len(condition.reason.encode()), REASON_BYTES_MAX)
        at_most("bytes of a condition's message", len(condition.message.encode()), REASON_BYTES_MAX)


def check_uid(uid: str) -> None:
    """Raises: InvalidMember."""
    if not _UID.fullmatch(uid):
        raise refusals.InvalidMember("a uid has 1 to 64 letters, digits, - and _")


def check_reason(reason: str, *, needed: bool) -> None:
    """Raises: ReasonRequired, LimitExceeded."""
    if needed and not reason.strip():
        raise refusals.ReasonRequired("say why: the reason is stored and shown to who proposed it")
    at_most("bytes of a reason", len(reason.encode(errors="replace")), REASON_BYTES_MAX)


def _check_keys(what: str, keys: Iterable[str]) -> None:
    seen = set()
    for key in keys:
        _check_key(what, key)
        if key in seen:
            raise refusals.InvalidMember(f"{what} is named twice: {key}", member=key)
        seen.add(key)


def _check_key(what: str, key: str) -> None:
    if not _KEY.fullmatch(key):
        raise refusals.InvalidMember(
            f"{what} is named by letters, digits, -, _ and ., with a domain and / before it if "
            f"wanted; found {key[:80]!r}"
        )


def _size(texts: Mapping[str, str]) -> int:
    return sum(len(key) + len(text.encode(errors="replace")) for key, text in texts.items())
