"""Commits: take a number, send one transaction per pack, and find out its outcome.

A guarded value never returns to an earlier one, so a commit that conflicted once always will. If
the response to transaction n is lost, one conditional put decides the outcome: it puts VOID into
slot n. Either it succeeds, and transaction n can never be applied, or it finds the slot filled, and
transaction n was applied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidegate import errors
from tidegate.engines.dynamodb import items, pack as dynamodb_pack, transport as dynamodb_transport
from tidegate.engines.dynamodb.draft import Drafter
from tidegate.engines.dynamodb.hints import FenceHints
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.kernel import model, store

COMMIT_SECONDS_MAX = 10.0  # after it, commits that were not applied are unavailable
SETTLE_SECONDS_MAX = 10.0  # after it, the outcome of a lost response is unknown
SENDS_MAX = 1_000  # transactions of one call

Answer = model.Receipt | errors.TidegateError
Group = tuple[
    tuple[dynamodb_pack.CommitDraft, ...], int
]  # drafts to send together, and how often they waited


@dataclass(slots=True)
class Number:
    """A number of the log that we have taken, and every transaction that was sent with it."""

    n: int
    sent: dict[str, dynamodb_pack.Pack] = field(default_factory=dict)


class DynamoWriter:
    """Writes the commits of a store. It keeps only hints between calls."""

    def __init__(
        self,
        transport: dynamodb_transport.Transport,
        schema: store.Schema,
        pace: RetryPace,
        hints: FenceHints,
        era: int,
    ) -> None:
        self.transport = transport
        self.schema = schema
        self.pace = pace
        self.hints = hints
        self.era = era
        self.drafter = Drafter(schema)

    def commit(self, commits: Sequence[model.Commit]) -> tuple[Answer, ...]:
        return CommitAttempt(self).run(commits)

    def fetch(
        self, places: Sequence[dynamodb_transport.ItemKey]
    ) -> dict[dynamodb_transport.ItemKey, dynamodb_transport.Item]:
        """Read items, with an empty one for each that does not exist. Raises: StoreUnavailable."""
        if not places:
            return {}
        distinct = list(dict.fromkeys(places))
        found = self.pace.retry(lambda: self.transport.get(distinct))
        return {place: found.get(place, {}) for place in distinct}

    def replay(self, commits: Iterable[model.Commit]) -> dict[str, dynamodb_transport.Item]:
        """The items of the commits' idempotency keys that were used before, by key.

        The read is serialized with transactions. A plain read could miss the key of an earlier copy
        of this commit, although the conflict that we are about to report is with that copy.

        Raises:
            StoreUnavailable.
        """
        keys = {items.once_place(c.once.key): c.once.key for c in commits if c.once is not None}
        places, found = list(keys), dict[dynamodb_transport.ItemKey, dynamodb_transport.Item]()
        for start in range(0, len(places), dynamodb_transport.ITEMS_MAX):
            asked = places[start : start + dynamodb_transport.ITEMS_MAX]
            found |= self.pace.retry(partial(self.transport.get, asked, together=True))
        return {keys[place]: item for place, item in found.items()}


class CommitAttempt:
    """One call of ``commit``: its answers so far, and the number that it holds."""

    def __init__(self, writer: DynamoWriter) -> None:
        self._writer = writer
        self._pace = writer.pace
        self._transport = writer.transport
        self._drafter = writer.drafter
        self._deadline = writer.pace.now() + COMMIT_SECONDS_MAX
        self._answers: dict[dynamodb_pack.CommitDraft, Answer] = {}
        self._number: Number | None = None

    def run(self, commits: Sequence[model.Commit]) -> tuple[Answer, ...]:
        prepared = self._prepare(commits)
        waiting = [draft for draft in prepared if isinstance(draft, dynamodb_pack.CommitDraft)]
        while waiting:
            pack = dynamodb_pack.next_pack(waiting)
            self._commit_pack(pack)
            waiting = waiting[len(pack.drafts) :]
        self._void_number()
        return tuple(
            self._answers[one] if isinstance(one, dynamodb_pack.CommitDraft) else one
            for one in prepared
        )

    def _prepare(
        self, commits: Sequence[model.Commit]
    ) -> list[dynamodb_pack.CommitDraft | errors.TidegateError]:
        """Check every commit before any I/O, then draft it with the rows that it replaces."""
        prepared: list[model.Commit | dynamodb_pack.CommitDraft | errors.TidegateError] = [
            self._check(one) for one in commits
        ]
        sound = [one for one in prepared if isinstance(one, model.Commit)]
        try:
            old = self._writer.fetch([p for one in sound for p in self._drafter.old_rows(one)])
        except (errors.StoreUnavailable, errors.StoreRefused) as error:
            return [error if isinstance(one, model.Commit) else one for one in prepared]
        drafts: list[dynamodb_pack.CommitDraft | errors.TidegateError] = []
        for one in prepared:
            try:
                drafts.append(
                    self._drafter.draft(one, old) if isinstance(one, model.Commit) else one
                )
            except errors.TidegateError as error:
                drafts.append(error)
        return drafts

    def _check(self, commit: model.Commit) -> model.Commit | errors.TidegateError:
        try:
            self._writer.schema.check(commit, dynamodb_transport.ITEMS_MAX)
            self._drafter.check_seen(commit)
        except errors.TidegateError as error:
            return error
        return commit

    def _commit_pack(self, pack: dynamodb_pack.Pack) -> None:
        """Send the pack, whole or in parts, until every draft has its answer."""
        groups: deque[Group] = deque([(pack.drafts, 0)])
        for _ in range(SENDS_MAX):
            if not groups:
                return
            drafts, waits = groups.popleft()
            if waits:
                self._pace.wait(waits - 1)
            try:
                if possible := self._drop_doomed(drafts):
                    self._check_deadline()
                    groups.extend(self._send(possible, waits))
            except (errors.StoreUnavailable, errors.StoreRefused) as error:
                self._answer_all(drafts, error)
        for drafts, _ in groups:
            self._answer_all(
                drafts, errors.StoreUnavailable(f"not applied after {SENDS_MAX} attempts")
            )

    def _check_deadline(self) -> None:
        if self._pace.now() >= self._deadline:
            raise errors.StoreUnavailable(f"nothing was applied within {COMMIT_SECONDS_MAX:g} s")

    def _drop_doomed(
        self, drafts: Sequence[dynamodb_pack.CommitDraft]
    ) -> tuple[dynamodb_pack.CommitDraft, ...]:
        """The drafts without an answer that may succeed.

        Those that are known to conflict are answered here, without taking a number.
        """
        wanted = [draft for draft in drafts if draft not in self._answers]
        doomed = [draft for draft in wanted if draft.doubtful or self._is_outdated(draft)]
        if doomed:
            found = self._writer.fetch([place for draft in doomed for place in draft.places])
            self._refuse({draft: self._drafter.judge(draft, found) for draft in doomed})
            for draft in doomed:
                if draft not in self._answers:  # in the meantime its rows have become as expected
                    draft.entries = self._drafter.draft(draft.commit, found).entries
                    draft.doubtful = False
        return tuple(draft for draft in wanted if draft not in self._answers)

    def _is_outdated(self, draft: dynamodb_pack.CommitDraft) -> bool:
        return any(
            self._writer.hints.is_outdated(
                items.fence_place(index),
                {items.position_attribute(name): at for name, at in seen.items()},
            )
            for index, seen in draft.consumed.items()
        )

    # ── one transaction ──

    def _send(self, drafts: tuple[dynamodb_pack.CommitDraft, ...], waits: int) -> list[Group]:
        """Send these drafts once, and return the groups to send next."""
        number = self._take_number()
        tx = self._pace.new_id()
        number.sent[tx] = dynamodb_pack.Pack(drafts)
        steps = number.sent[tx].steps(number.n, tx, self._transport.now())
        try:
            self._transport.transact([step.action for step in steps], self._pace.new_id())
        except dynamodb_transport.Busy:
            return [(drafts, waits + 1)]
        except dynamodb_transport.AnswerLost:
            return self._resolve_outcome(drafts, waits)
        except dynamodb_transport.Cancelled as refusal:
            return self._sort_out_refusal(drafts, waits, steps, refusal.reasons)
        self._answer_applied(tx)
        return []

    def _take_number(self) -> Number:
        """The number that we hold, or a new one.

        It is taken as late as possible: until its slot is filled, readers of the feed wait there.

        Raises:
            StoreRefused: the era has changed. StoreUnavailable.
        """
        if self._number is None:
            equal = {items.ERA: self._writer.era or None}
            n = self._pace.retry(
                lambda: self._transport.increment(items.COUNTER, items.COUNT_ATTRIBUTE, equal),
                max(0.0, self._deadline - self._pace.now()),
            )
            if n is None:
                raise dynamodb_transport.in_another_era()
            self._number = Number(n)
        return self._number

    def _answer_applied(self, tx: str) -> None:
        """Answer the drafts of a transaction that was applied."""
        number, self._number = self._number, None
        assert number is not None
        pack = number.sent[tx]
        for draft, first in zip(pack.drafts, pack.firsts(number.n), strict=True):
            self._answers.setdefault(draft, draft.receipt(first))
        for change, _ in pack.changes(number.n):
            self._writer.hints.note(change.place, change.sets)

    def _resolve_outcome(
        self, drafts: tuple[dynamodb_pack.CommitDraft, ...], waits: int
    ) -> list[Group]:
        """Resolve an unknown outcome: void the slot, or find out which transaction filled it."""
        number = self._number
        assert number is not None
        try:
            existing = self._pace.retry(
                lambda: self._transport.put_absent(items.void_slot(number.n)), SETTLE_SECONDS_MAX
            )
        except (errors.StoreUnavailable, errors.StoreRefused) as error:
            self._number = None  # a reader of the feed will void it
            unknown = errors.OutcomeUnknown(
                f"transaction {number.n} was sent, but not acknowledged: {error.detail}"
            )
            self._answer_all(drafts, unknown)
            return []
        return self._continue_from_slot(existing or {}, drafts, waits)

    def _continue_from_slot(
        self,
        slot: dynamodb_transport.Item,
        drafts: tuple[dynamodb_pack.CommitDraft, ...],
        waits: int,
    ) -> list[Group]:
        """Continue from the content of our slot: one of our transactions, or VOID."""
        assert self._number is not None
        tx = items.slot_transaction(slot)
        if tx is None:
            self._number = None
        else:
            assert tx in self._number.sent, f"slot {self._number.n} holds a stranger"
            self._answer_applied(tx)
        return [(drafts, waits)]

    # ── a transaction that was refused ──

    def _sort_out_refusal(
        self,
        drafts: tuple[dynamodb_pack.CommitDraft, ...],
        waits: int,
        steps: Sequence[dynamodb_pack.PackedAction],
        reasons: Sequence[dynamodb_transport.CancellationReason],
    ) -> list[Group]:
        """Answer the drafts that conflict, by the reasons given, and group the rest to be sent.

        The service may omit reasons, so an action without one may still be a conflict.
        """
        assert self._number is not None
        found, held = _read_reasons(steps, reasons)
        missing = [place for place, item in found.items() if not item]
        if not found and not held:
            missing = [step.action.place for step in steps]
        found |= self._writer.fetch(missing)
        slot = found.get(items.slot_place(self._number.n), {})
        if slot:
            return self._continue_from_slot(slot, drafts, waits)
        if any(
            step.role is dynamodb_pack.ActionPurpose.EVENTS and found.get(step.action.place)
            for step in steps
        ):
            return self._resolve_outcome(
                drafts, waits
            )  # only a transaction of ours can have put the item
        for place, item in found.items():
            self._writer.hints.note(place, item)
        self._answer_replays(drafts, found)
        verdicts = {draft: self._drafter.judge(draft, found) for draft in drafts}
        self._refuse(verdicts)
        rest = [draft for draft in drafts if draft not in self._answers]
        is_overtaken = any(items.integer(item, "high") >= self._number.n for item in found.values())
        if is_overtaken:
            self._void_number()
        waiting = tuple(d for owner, d in enumerate(drafts) if owner in held and d in rest)
        ready = tuple(draft for draft in rest if draft not in waiting)
        if not (waiting or is_overtaken or len(rest) < len(drafts)):
            waiting, ready = ready, ()  # no reason was found: retry, but more slowly
        groups = [(ready, waits), (waiting, waits + 1)]
        return [group for group in groups if group[0]]

    def _answer_replays(
        self,
        drafts: Iterable[dynamodb_pack.CommitDraft],
        found: Mapping[dynamodb_transport.ItemKey, dynamodb_transport.Item],
    ) -> None:
        for draft in drafts:
            once = draft.commit.once
            if once is not None and (item := found.get(items.once_place(once.key))):
                self._answers[draft] = receipt_of_repeat(draft.commit, item)

    def _refuse(
        self, verdicts: Mapping[dynamodb_pack.CommitDraft, errors.TidegateError | None]
    ) -> None:
        """Answer conflicts, after a look-up of the idempotency keys.

        An earlier copy of the commit may have been applied and be what it conflicts with.
        """
        refused = {
            draft: error
            for draft, error in verdicts.items()
            if error is not None and draft not in self._answers
        }
        used = self._writer.replay(draft.commit for draft in refused)
        for draft, error in refused.items():
            once = draft.commit.once
            item = None if once is None else used.get(once.key)
            self._answers[draft] = error if item is None else receipt_of_repeat(draft.commit, item)

    def _answer_all(
        self, drafts: Iterable[dynamodb_pack.CommitDraft], error: errors.TidegateError
    ) -> None:
        for draft in drafts:
            self._answers.setdefault(draft, error)

    def _void_number(self) -> None:
        """Void a number that is not needed; if that fails, a reader of the feed will do it."""
        number, self._number = self._number, None
        if number is not None:
            try:
                self._transport.put_absent(items.void_slot(number.n))
            except (dynamodb_transport.Busy, dynamodb_transport.AnswerLost, errors.StoreRefused):
                return


def _read_reasons(
    steps: Sequence[dynamodb_pack.PackedAction],
    reasons: Sequence[dynamodb_transport.CancellationReason],
) -> tuple[dict[dynamodb_transport.ItemKey, dynamodb_transport.Item], frozenset[int]]:
    """The items found where a condition failed, and the drafts whose items are contended.

    Raises:
        StoreRefused: DynamoDB refuses an action for another reason.
    """
    found: dict[dynamodb_transport.ItemKey, dynamodb_transport.Item] = {}
    held: set[int] = set()
    for step, reason in zip(steps, reasons, strict=False):
        if reason.code == dynamodb_transport.FAILED:
            found[step.action.place] = reason.item
        elif reason.code in dynamodb_transport.CONTENDED:
            held.update(step.owners)
        elif reason.code is not None:
            raise errors.StoreRefused(f"DynamoDB refuses the {step.role} action: {reason.code}")
    return found, frozenset(held)


def receipt_of_repeat(commit: model.Commit, item: dynamodb_transport.Item) -> Answer:
    """The answer to a commit whose key was used before."""
    assert commit.once is not None
    if items.blob(item, "digest") != commit.once.digest:
        return errors.IdempotencyMismatch(commit.once.key)
    return items.once_receipt(item)
