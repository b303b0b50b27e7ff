"""Which commands of an explanation a person may run, and whom to ask for the others.

split        the remedies into those of this person and those of others
describe     one sentence for a remedy of others: the role, the people, when, the command
leave_out    sentences that end with the command of a remedy lose it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from tidegate.domain.access import principals, roles
from tidegate.domain.gates.inputs import Explanation, Remedy

NAMES_MAX: Final = 3  # people named by a sentence
READ: Final = roles.Verb.READ


def split(
    remedies: Iterable[Remedy], principal: principals.Principal
) -> tuple[tuple[Remedy, ...], tuple[Remedy, ...]]:
    """Split remedies into those that the person may use and those that others may use."""
    own: list[Remedy] = []
    others: list[Remedy] = []
    for remedy in remedies:
        (own if may_use(remedy, principal) else others).append(remedy)
    return tuple(own), tuple(others)


def may_use(remedy: Remedy, principal: principals.Principal) -> bool:
    """Whether the person has a permission that the remedy needs, on all of its scopes."""
    return all(any(principal.may(verb, on) for verb in remedy.needs) for on in remedy.scopes)


def describe(
    remedy: Remedy, principal: principals.Principal, people: Sequence[str] | None = None
) -> str:
    """Say whom the person asks for a remedy that they may not use themselves.

    ``people``: the names of those who may; None: the person does not see names there.
    """
    when = f", {remedy.when}" if remedy.when else ""
    if principal.narrowed is not None and may_use(
        remedy, principals.Principal(principal.id, principal.method, principal.grants)
    ):
        return f"Your roles allow this, but your token does not{when}: {remedy.command}"
    who = f"{_describe_roles(remedy.needs)} {_describe_scopes(remedy.scopes, principal)}"
    return f"Ask {who}{_name(people)}{when}: {remedy.command}"


def leave_out(found: Explanation, remedies: Iterable[Remedy]) -> Explanation:
    """Remove the commands of these remedies from the ends of all sentences."""
    commands = {f": {remedy.command}" for remedy in remedies}

    def shorten(sentence: str) -> str:
        return next((sentence.removesuffix(c) for c in commands if sentence.endswith(c)), sentence)

    return replace(
        found,
        answer=shorten(found.answer),
        verdicts=tuple(replace(item, reason=shorten(item.reason)) for item in found.verdicts),
        waits=tuple(replace(item, sentence=shorten(item.sentence)) for item in found.waits),
    )


def list_all(found: Explanation) -> tuple[Remedy, ...]:
    """List the remedies of all waits."""
    return tuple(remedy for wait in found.waits for remedy in wait.remedies)


def _describe_roles(verbs: Sequence[roles.Verb]) -> str:
    if READ in verbs:
        return "a user with any role"
    enough = [role for role, allowed in roles.VERBS.items() if not allowed.isdisjoint(verbs)]
    return " or ".join(f"{'an' if role[0] in 'aeiou' else 'a'} {role}" for role in enough)


def _describe_scopes(scopes: Sequence[str], principal: principals.Principal) -> str:
    """Name the channels, except those that the person may not read."""
    if roles.EVERYWHERE in scopes:
        return "of all channels"
    seen = [on.partition(":")[2] for on in scopes if len(scopes) == 1 or principal.may(READ, on)]
    return f"of {_join([*seen, *(['other channels'] if len(seen) < len(scopes) else [])], 'and')}"


def _name(people: Sequence[str] | None) -> str:
    if people is None:
        return ""
    if not people:
        return " (there is none yet)"
    more = len(people) - NAMES_MAX
    others = [f"{more} other{'s' if more > 1 else ''}"] if more > 0 else []
    return f" ({_join([*people[:NAMES_MAX], *others], 'or')})"


def _join(words: Sequence[str], last: str) -> str:
    *most, final = words
    return f"{', '.join(most)} {last} {final}" if most else final
