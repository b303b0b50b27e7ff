"""Keep secrets out of the outbox, by allow-lists for requested states and for errors.

Outbox rows and facts are kept for ever and shown to many people, so they must not contain
credentials, key material or decrypted values. A requested state has only declared fields, and none
of their values may look like a secret. Of an error only plain words and small numbers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tidegate import decoders, errors
from tidegate.domain.outbox import refusals, states
from tidegate.kernel.model import check_text

VALUE_BYTES_MAX = 256
ERROR_CHARS_MAX = 500
REDACTED = "[redacted]"


MEMBERS: Final = frozenset(
    item.encode_name for item in msgspec.structs.fields(states.RequestedState)
)


# ── into the outbox ───────────────────────────────────────────────────────────────────────────────

_SECRET_NAMES = re.compile(
    r"pass(word|wd|phrase)?|secret|token|credential|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|authorization|bearer|cookie|session|signature|plaintext|kms|\bkeys?\b",
    re.IGNORECASE,
)
# Credentials with a recognisable format, and key material in its usual notations.
_SECRETS = re.compile(
    r"-----BEGIN|\b(AKIA|ASIA|AROA)[A-Z0-9]{12,}|\bgh[pousr]_\w{16,}|\bglpat-|\bxox[abprs]-"
    r"|\bsk[-_](live|test|proj)[-_]|\btg_\w{16,}|\bAIza[\w-]{20,}"
    r"|\bAQICAH|://[^/\s:@]*:[^/\s@]+@|(?i:\b(password|secret|token|bearer|api[-_]?key)\b\s*[=: ])",
)
_DIGEST = re.compile(r"(sha256|sha512|blake3):[0-9a-f]{32,128}|[0-9a-f]{32,128}")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@~/-]*")
# Runs of letters and digits of at least this length are key material, not names.
RUN_CHARS_MIN = 24
_RUN = re.compile(r"[A-Za-z0-9+/]+")
_SEGMENT = re.compile(r"[A-Za-z0-9]+")
_DIGIT = re.compile(r"[0-9]")
_CAPITAL = re.compile(r"[A-Z]")
# A signed token: three parts between dots, of which the first is a JSON object in base64.
_PART = re.compile(r"[\w-]+")
_JSON_OBJECT = re.compile(r"\beyJ[\w-]{8}")


_WORD = re.compile(r"[A-Za-z]{1,20}(?:['-][A-Za-z]{1,20}){0,3}")
_NUMBER = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,3})?%?")
_EDGES = "()[]{}<>\"'`.,:;!?"
_LINKS = frozenset({"is", "was", "=", "of", "for", "the"})  # words between a name and its secret


def is_secret_name(name: str) -> bool:
    """Whether a field with this name counts as a secret, whatever its value."""
    return _SECRET_NAMES.search(name) is not None


def is_secret(text: str) -> bool:
    """Whether the text contains something that looks like a credential or key material."""
    return _SECRETS.search(text) is not None or _has_material(text) or _has_signed_token(text)


def _has_material(text: str) -> bool:
    """Whether some long run has a segment that contains both a digit and a capital letter.

    Runs, and segments in a run, do not overlap, so this takes linear time.
    """
    return any(
        _DIGIT.search(segment) is not None and _CAPITAL.search(segment) is not None
        for segment in _material(text)
    )


def _material(text: str) -> Iterator[str]:
    """The segments of long runs, without those too close to the end of their run."""
    for run in _RUN.finditer(text):
        last = run.end() - RUN_CHARS_MIN
        if last < run.start():
            continue
        for segment in _SEGMENT.finditer(text, run.start(), run.end()):
            if segment.start() > last:
                break
            yield segment[0]


def _has_signed_token(text: str) -> bool:
    return any(_JSON_OBJECT.search(part) is not None for part in _dotted(text))


def _dotted(text: str) -> Iterator[str]:
    """Each part that is followed by a dot, another part and a dot."""
    before: re.Match[str] | None = None
    for part in _PART.finditer(text):
        follows = before is not None and text[before.end() : part.start()] == "."
        if before is not None and follows and text[part.end() : part.end() + 1] == ".":
            yield before[0]
        before = part


decoders.build(states.RequestedState)


def check_requested_state(content: states.RequestedState | dict[str, Any]) -> states.RequestedState:
    """Return the requested state if all of it may be stored.

    Raises:
        SecretRefused: a value or the name of a field looks like a secret.
        InvalidInput, LimitExceeded: a field is unknown, or its value is not a text.
    """
    if isinstance(content, dict):
        _check_members(content)
        try:
            content = decoders.convert(content, states.RequestedState)
        except msgspec.ValidationError as error:
            raise errors.InvalidInput(
                f"not a requested state: {error}", field="requestedState"
            ) from None
    for item in msgspec.structs.fields(content):
        _check_value(item.name, item.encode_name, getattr(content, item.name))
    return content


def _check_members(content: dict[str, Any]) -> None:
    for member in content:
        if member in MEMBERS:
            continue
        if _SECRET_NAMES.search(str(member)):
            raise refusals.SecretRefused(f"requestedState.{member}")
        raise errors.InvalidInput(
            f"a requested state has no member {member!r}; it has {sorted(MEMBERS)}",
            field="requestedState",
        )


def _check_value(field: str, member: str, value: str) -> None:
    if not value and field != "release_id":
        return
    check_text(f"requestedState.{member}", value, VALUE_BYTES_MAX)
    if field == "digest" and _DIGEST.fullmatch(value):
        return
    if is_secret(value):
        raise refusals.SecretRefused(f"requestedState.{member}")
    if field == "digest" or not _PLAIN.fullmatch(value):
        # The value is not echoed, because it may be anything.
        raise errors.InvalidInput(f"requestedState.{member} is not of its form", field=member)


# ── out of an error ───────────────────────────────────────────────────────────────────────────────


def redact(error: str) -> str:
    """Redact an error so that it may be stored and shown: only words and small numbers stay.

    Everything else is blanked: names of hosts and files, addresses, tokens, pairs with an equals
    sign, and everything that follows a word that announces a secret.
    """
    text = " ".join(_kept(error[: 8 * ERROR_CHARS_MAX]))
    return text if len(text) <= ERROR_CHARS_MAX else text[: ERROR_CHARS_MAX - 1] + "…"


def _kept(error: str) -> Iterator[str]:
    blanked = False
    announced = False
    for token in error.split():
        core = token.strip(_EDGES)
        plain = not core or bool(_WORD.fullmatch(core) or _NUMBER.fullmatch(core))
        plain = plain and not is_secret(core)
        if announced and core.lower() in _LINKS:
            yield token
            continue
        if plain and not announced:
            blanked = False
            yield token
        elif not blanked:
            blanked = True
            yield REDACTED
        announces = bool(_SECRET_NAMES.search(core)) and (plain or core.endswith("="))
        announced = announces or (announced and not core)
