"""Selectors: expressions over the labels of hosts, as text; parsed once, matched often.

    *                                  every host
    role=web,zone!=b                   terms, all of which must hold
    canary   !canary                   the label exists, or does not
    zone in (a,b)   zone notin (a,b)   its value is among these, or is not
    host=web-01                        ``host`` is the host's own name
    fact/arch=aarch64                  what the host reports about itself, if you allow the key

``!=`` and ``notin`` also hold for a host without the label: it has none of these values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NoReturn

from msgspec import Struct

from tidegate.domain.fleet.refusals import InvalidLabel, InvalidSelector
from tidegate.kernel.model import at_most

SELECTOR_BYTES_MAX = 512
TERMS_MAX = 16
VALUES_MAX = 64  # of one term
HOST_ID_CHARS_MAX = 128  # the ids of records and probe failures contain it
LABEL_KEY_CHARS_MAX = 63
LABEL_VALUE_CHARS_MAX = 128
LABELS_MAX = 64
PARSED_MAX = 4_096  # cached selectors

EVERY: Final = "*"
FACT_PREFIX: Final = "fact/"  # prefix of labels that come from the host itself
HOST: Final = "host"  # the key of a host's own name; no label may have it

_KEY = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_./-]{{0,{LABEL_KEY_CHARS_MAX - 1}}}")
_VALUE = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_./+-]{{0,{LABEL_VALUE_CHARS_MAX - 1}}}")
_HOST_ID = re.compile(rf"[a-z0-9][a-z0-9_.-]{{0,{HOST_ID_CHARS_MAX - 1}}}")
_SPACE = re.compile(r" *")
_AMONG = re.compile(r"(in|notin)\b")

_KEY_FORM = f"a label's key (at most {LABEL_KEY_CHARS_MAX} of A-Z a-z 0-9 _ . / -)"
_VALUE_FORM = f"a value (at most {LABEL_VALUE_CHARS_MAX} of A-Z a-z 0-9 _ . / + -)"


class Test(StrEnum):
    """How a term compares a label."""

    __test__ = False  # not pytest's

    IN = "in"
    NOT_IN = "notin"
    PRESENT = "present"
    ABSENT = "absent"


class Term(Struct, frozen=True):
    """One condition. ``key=value`` is ``key in (value)``, ``key!=value`` its opposite."""

    key: str
    test: Test
    values: frozenset[str] = frozenset()

    def holds(self, value: str | None) -> bool:
        """Whether a label with this value, or a missing one, fulfils the term."""
        match self.test:
            case Test.IN:
                return value in self.values
            case Test.NOT_IN:
                return value not in self.values
            case Test.PRESENT:
                return value is not None
            case Test.ABSENT:
                return value is None


class Selector(Struct, frozen=True):
    """Terms that must all hold; none: every host."""

    terms: tuple[Term, ...] = ()

    def matches(self, labels: Mapping[str, str], host_id: str) -> bool:
        """Whether the host matches."""
        for term in self.terms:
            if not term.holds(host_id if term.key == HOST else labels.get(term.key)):
                return False
        return True


@lru_cache(PARSED_MAX)
def parse(text: str) -> Selector:
    """Parse a selector.

    Raises:
        InvalidSelector: it names the position, what was found and what is allowed there.
        LimitExceeded: the text is too long for a selector.
    """
    at_most("bytes of a selector", len(text.encode(errors="replace")), SELECTOR_BYTES_MAX)
    if text.strip(" ") == EVERY:
        return Selector()
    reader = _Reader(text)
    terms = [reader.term()]
    while reader.take(","):
        at_most("terms of a selector", len(terms) + 1, TERMS_MAX)
        terms.append(reader.term())
    if not reader.at_end:
        reader.expect_more(terms[-1])
    return Selector(tuple(terms))


class _Reader:
    """Reads a selector from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip()

    @property
    def at_end(self) -> bool:
        return self._at == len(self._text)

    def take(self, mark: str) -> bool:
        """Read this mark if it comes next; return whether it did."""
        found = self._text.startswith(mark, self._at)
        if found:
            self._at += len(mark)
            self._skip()
        return found

    def term(self) -> Term:
        if self.take("!"):
            return Term(self._word(_KEY, _KEY_FORM), Test.ABSENT)
        key = self._word(_KEY, _KEY_FORM)
        if self.take("!="):
            return Term(key, Test.NOT_IN, frozenset((self._word(_VALUE, _VALUE_FORM),)))
        if self.take("="):
            return Term(key, Test.IN, frozenset((self._word(_VALUE, _VALUE_FORM),)))
        if among := _AMONG.match(self._text, self._at):
            self._at = among.end()
            self._skip()
            return Term(key, Test(among[0]), self._values())
        return Term(key, Test.PRESENT)

    def expect_more(self, last: Term) -> None:
        """Raises: InvalidSelector: unexpected text instead of the end or the next term."""
        bare = last.test is Test.PRESENT
        self._fail("=, !=, in (…), notin (…), a comma or the end" if bare else "a comma or the end")

    def _values(self) -> frozenset[str]:
        self._demand("(")
        values = [self._word(_VALUE, _VALUE_FORM)]
        while self.take(","):
            at_most("values of a selector's term", len(values) + 1, VALUES_MAX)
            values.append(self._word(_VALUE, _VALUE_FORM))
        self._demand(")", "a comma or )")
        return frozenset(values)

    def _demand(self, mark: str, expected: str = "") -> None:
        if not self.take(mark):
            self._fail(expected or mark)

    def _word(self, form: re.Pattern[str], expected: str) -> str:
        found = form.match(self._text, self._at)
        if found is None:
            if form is _KEY and not self._text.strip(" "):
                expected = f"{EVERY} or {expected}"
            self._fail(expected)
        self._at = found.end()
        self._skip()
        return found[0]

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()

    def _fail(self, expected: str) -> NoReturn:
        raise InvalidSelector(self._text, self._at, expected)


# ── host names and labels ─────────────────────────────────────────────────────────────────────────


def check_host_id(host_id: str) -> None:
    """Raises: InvalidLabel: this is not a valid host name."""
    if not _HOST_ID.fullmatch(host_id):
        raise InvalidLabel(
            f"a host is named by at most {HOST_ID_CHARS_MAX} of a-z 0-9 _ . -, starting with a "
            f"letter or digit; found {host_id[:HOST_ID_CHARS_MAX]!r}",
            field="host_id",
        )


def split_labels(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split labels into those from operators and those from the host itself."""
    given = {key: value for key, value in labels.items() if not key.startswith(FACT_PREFIX)}
    return given, {key: value for key, value in labels.items() if key not in given}


def fact_labels(facts: Mapping[str, str]) -> dict[str, str]:
    """Return a host's facts as labels; a value that no label can have is omitted."""
    return {
        f"{FACT_PREFIX}{key}": value
        for key, value in sorted(facts.items())
        if _VALUE.fullmatch(value)
    }


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises: InvalidLabel, LimitExceeded."""
    at_most("labels of a host", len(labels), LABELS_MAX)
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise InvalidLabel(f"{key[:80]!r} is not {_KEY_FORM}", field="labels")
        if key == HOST:
            raise InvalidLabel(f"{HOST!r} is the host's own name, not a label", field="labels")
        if key.startswith(FACT_PREFIX):
            raise InvalidLabel(
                f"{key} comes from the host itself; choose another key for your label",
                field="labels",
            )
        if not _VALUE.fullmatch(value):
            raise InvalidLabel(
                f"{value[:80]!r}, of label {key}, is not {_VALUE_FORM}", field="labels"
            )
