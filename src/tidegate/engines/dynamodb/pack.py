"""Turns waiting commits into one transaction.

A *draft* is one commit: what it consumes (types under an index, at the position observed), what it
produces there, and its rows and idempotency key. A *pack* is drafts that fit into one transaction.
Everything here is pure: the transaction's number is a parameter, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tidegate.engines.dynamodb import items, transport
from tidegate.kernel import model

GONE_KEPT: Final = timedelta(days=1)  # how long the item of an absent row keeps its ``high``
CHANGE_BYTES = 512  # the estimated size of a fence's change without its names

Observed = dict[
    str, dict[str | None, model.Position]
]  # index → type (None: any) → newest position seen


class ActionPurpose(StrEnum):
    """What an action of a transaction is for."""

    SLOT = "slot"
    FENCE = "fence"
    EVENTS = "events"
    ROW = "row"
    ENTRY = "entry"
    ONCE = "key"


OWN: Final = frozenset(
    {ActionPurpose.EVENTS, ActionPurpose.ROW, ActionPurpose.ENTRY, ActionPurpose.ONCE}
)  # never shared by several drafts of a pack


@dataclass(frozen=True, slots=True)
class PackedAction:
    """One action of a transaction, and the drafts (by their index in the pack) that need it."""

    role: ActionPurpose
    action: transport.Action
    owners: tuple[int, ...]


Entries = frozenset[tuple[str, str]]  # (index, entry) of a row


@dataclass(slots=True, eq=False)
class CommitDraft:
    """One commit, prepared: everything but its number."""

    commit: model.Commit
    consumed: Observed
    produced: dict[str, list[int]]  # index → which facts of the commit are indexed there
    entries: dict[int, tuple[Entries, Entries]]  # write → the entries to delete, and to add
    doubtful: bool  # its reads contradict each other: judge it before it is sent
    own: int = 0  # actions that no other draft shares
    weight: int = 0

    def receipt(self, first: model.Position) -> model.Receipt:
        last = first + self.commit.span - 1
        once = self.commit.once
        if once is None:
            return model.Receipt(first, last, self.commit.at)
        return model.Receipt(first, last, self.commit.at, once.answer, digest=once.digest)

    def stored(self, first: model.Position, ordinals: Iterable[int]) -> items.StoredCommit:
        facts = self.commit.facts
        return items.pack_events(
            self.commit, ((first + ordinal, facts[ordinal]) for ordinal in ordinals)
        )

    @property
    def indexes(self) -> frozenset[str]:
        """Every index whose fence the draft consumes or changes."""
        return frozenset((*self.consumed, *self.produced))

    @property
    def places(self) -> list[transport.ItemKey]:
        """The items that are needed to judge the draft: the fences it consumes, and its rows."""
        fences = [items.fence_place(index) for index in self.consumed]
        return fences + [items.row_place(write.key) for write in self.commit.writes]


# ── packs ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Pack:
    """Drafts in one transaction, in order."""

    drafts: tuple[CommitDraft, ...]

    def firsts(self, number: int) -> list[model.Position]:
        """The first position of each draft."""
        first, found = number * items.SPAN, []
        for draft in self.drafts:
            found.append(first)
            first += draft.commit.span
        return found

    def steps(self, number: int, tx: str, now: float) -> list[PackedAction]:
        """The actions of the transaction.

        Index items contain whole events if that does not make the transaction too large. ``now`` is
        the service's clock, by which the service deletes keys and absent rows later.
        """
        steps = self._steps(number, tx, now, inline=True)
        if weight(steps) <= transport.TRANSACTION_BYTES_MAX:
            return steps
        return self._steps(number, tx, now, inline=False)

    def _steps(self, number: int, tx: str, now: float, *, inline: bool) -> list[PackedAction]:
        firsts = self.firsts(number)
        everyone = tuple(range(len(self.drafts)))
        commits = [
            draft.stored(first, range(len(draft.commit.facts)))
            for draft, first in zip(self.drafts, firsts, strict=True)
        ]
        steps = [
            PackedAction(ActionPurpose.SLOT, transport.AddItem(item), everyone)
            for item in items.slot_items(number, tx, commits)
        ]
        steps += [
            PackedAction(ActionPurpose.FENCE, change, owners)
            for change, owners in self.changes(number)
        ]
        for owner, (draft, first) in enumerate(zip(self.drafts, firsts, strict=True)):
            own: list[tuple[ActionPurpose, transport.Action]] = [
                (
                    ActionPurpose.EVENTS,
                    transport.AddItem(
                        items.index_item(index, draft.stored(first, ordinals), inline=inline)
                    ),
                )
                for index, ordinals in sorted(draft.produced.items())
            ]
            own += _row_actions(draft, first, number, now)
            if draft.commit.once is not None:
                key = items.once_item(draft.commit, draft.receipt(first), now)
                own.append((ActionPurpose.ONCE, transport.AddItem(key)))
            steps += [PackedAction(role, action, (owner,)) for role, action in own]
        return steps

    def changes(self, number: int) -> Iterator[tuple[transport.UpdateItem, tuple[int, ...]]]:
        """One fence change per index that is consumed or produced, and the drafts that need it.

        The fence of an index that is only consumed is changed, too: its ``high`` increases. So no
        later transaction can add an event there with a number below this decision.
        """
        firsts = self.firsts(number)
        names = {name for draft in self.drafts for name in (*draft.consumed, *draft.produced)}
        for index in sorted(names):
            equal: dict[str, transport.Value | None] = {}
            sets: dict[str, transport.Value] = {"high": number}
            adds: dict[str, int] = {}
            owners = []
            for owner, draft in enumerate(self.drafts):
                for type_name, seen in draft.consumed.get(index, {}).items():
                    equal[items.position_attribute(type_name)] = seen or None
                for ordinal in draft.produced.get(index, ()):
                    for name in (None, draft.commit.facts[ordinal].type):
                        sets[items.position_attribute(name)] = firsts[owner] + ordinal
                        counted = items.count_attribute(name)
                        adds[counted] = adds.get(counted, 0) + 1
                if index in draft.consumed or index in draft.produced:
                    owners.append(owner)
            yield (
                transport.UpdateItem(items.fence_place(index), equal, {"high": number}, sets, adds),
                tuple(owners),
            )


def _row_actions(
    draft: CommitDraft, first: model.Position, number: int, now: float
) -> Iterator[tuple[ActionPurpose, transport.Action]]:
    for ordinal, write in enumerate(draft.commit.writes):
        sets: dict[str, transport.Value] = {"high": number}
        removes: tuple[str, ...] = ()
        match write:
            case model.Put(_, data, expect, cause):
                sets |= {"version": first + cause, "data": data}
                if born := write.born_at(first, model.ABSENT):  # else the row keeps its ``born``
                    sets["born"] = born
                if expect == model.ABSENT:
                    removes = (transport.EXPIRES,)
            case model.Delete():
                removes = ("version", "born", "data")
        if isinstance(write, model.Delete) or (
            isinstance(write, model.Check) and write.expect == model.ABSENT
        ):
            sets[transport.EXPIRES] = items.expiry(now, GONE_KEPT)
        place = items.row_place(write.key)
        equal = {"version": write.expect or None}
        yield (
            ActionPurpose.ROW,
            transport.UpdateItem(place, equal, {"high": number}, sets, removes=removes),
        )
        gone, new = draft.entries.get(ordinal, (frozenset(), frozenset()))
        for index, entry in sorted(gone):
            yield (
                ActionPurpose.ENTRY,
                transport.RemoveItem(
                    transport.key_of_item(items.entry_item(write.key, index, entry))
                ),
            )
        for index, entry in sorted(new):
            yield (
                ActionPurpose.ENTRY,
                transport.ReplaceItem(items.entry_item(write.key, index, entry)),
            )


def next_pack(drafts: Sequence[CommitDraft]) -> Pack:
    """The longest prefix of these drafts that fits into one transaction; this keeps their order."""
    pack = Pack((drafts[0],))
    for draft in drafts[1:]:
        wider = Pack((*pack.drafts, draft))
        if not (
            _is_within_limits(wider) and all(are_compatible(other, draft) for other in pack.drafts)
        ):
            break
        pack = wider
    return pack


def are_compatible(one: CommitDraft, other: CommitDraft) -> bool:
    """Whether two drafts can share a transaction.

    They must not share a row or an idempotency key. On a shared fence, neither consumes what the
    other produces, and what both consume they saw at the same position.
    """
    if one.commit.once and other.commit.once and one.commit.once.key == other.commit.once.key:
        return False
    if {write.key for write in one.commit.writes} & {write.key for write in other.commit.writes}:
        return False
    for index in one.consumed.keys() & other.consumed.keys():
        mine, yours = one.consumed[index], other.consumed[index]
        if any(mine[name] != yours[name] for name in mine.keys() & yours.keys()):
            return False
    return not (_conflicts(one, other) or _conflicts(other, one))


def _conflicts(reader: CommitDraft, writer: CommitDraft) -> bool:
    for index in reader.consumed.keys() & writer.produced.keys():
        types = {writer.commit.facts[ordinal].type for ordinal in writer.produced[index]}
        if None in reader.consumed[index] or types & reader.consumed[index].keys():
            return True
    return False


def _is_within_limits(pack: Pack) -> bool:
    """Whether the pack is within every limit, by an upper estimate."""
    bytes_ = sum(draft.weight for draft in pack.drafts)
    slots = 1 + bytes_ // items.ITEM_BYTES_MAX
    fences = len(frozenset().union(*(draft.indexes for draft in pack.drafts)))
    own = sum(draft.own for draft in pack.drafts)
    return (
        sum(draft.commit.span for draft in pack.drafts) <= items.SPAN
        and slots + fences + own <= transport.ITEMS_MAX
        and bytes_ <= transport.TRANSACTION_BYTES_MAX
    )


def weight(steps: Iterable[PackedAction]) -> int:
    """The bytes of a transaction, at most."""
    return sum(_action_size(step.action) for step in steps)


def _action_size(action: transport.Action) -> int:
    match action:
        case transport.AddItem(item) | transport.ReplaceItem(item):
            return items.size(item)
        case transport.RemoveItem(place):
            return len(place.pk.encode()) + len(place.sk.encode())
        case transport.UpdateItem(place, equal, _, sets, adds):
            names = sum(len(name.encode()) + 21 for name in (*equal, *adds))
            return CHANGE_BYTES + len(place.pk.encode()) + names + items.size(dict(sets))
