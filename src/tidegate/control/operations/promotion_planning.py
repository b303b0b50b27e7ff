"""Promote and roll back: make a plan from the current fleet, store it in a blob, and commit.

    channel, hosts, budgets ──▶ plan ──▶ blob ──▶ promote_release (one commit)
              ▲                                        │ the fleet or the channel changed: retry
              └────────────────────────────────────────┘

The blob is durable before the commit that names it. A repeated request is recognized by what it
asked for, not by its plan, which may differ by then.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations import execute, promotion_evidence
from tidegate.control.queries import people
from tidegate.control.queries.ladder import Ladder, read_ladder
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.control.storage.blobs import Blobs
from tidegate.domain import planner, times
from tidegate.domain.channels import refusals, rows as channel_rows, stops
from tidegate.domain.channels.ladder import find_left, rung_of
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.gates import earliest, edges
from tidegate.domain.gates.waits import list_waits
from tidegate.domain.releases.rows import Actual, KnownRelease, actual_key, known_key
from tidegate.domain.requests.refusals import ProtectionChanged
from tidegate.domain.rollouts import promotion, rows as rollout_rows, states
from tidegate.domain.windows.rows import WINDOWS, Window
from tidegate.errors import Conflict, NotFound, StaleVersion
from tidegate.kernel import model, slices

PLANS_MAX = 5  # attempts for one promotion, while the fleet changes


NO_PLAN = "none"  # the plan's digest if no rollout opens


class Promote(Struct, frozen=True, kw_only=True):
    """A requested promotion. Without ``authority``, the operator's command is the evidence."""

    channel: str
    release_id: str
    command_id: str
    by: str
    authority: dict[str, Any] | None = None
    expected_version: int | None = None  # of the pin, as the caller saw it
    rollback: bool = False  # the pinned release becomes bad
    channel_version: int | None = None  # of the channel's row, from which the release was chosen
    emergency: bool = False  # a rollback on all hosts at once
    ignore_budgets: bool = False
    lift_quarantine: bool = False
    refresh: bool = False  # only new evidence for the pinned release
    overrides: tuple[states.OverridableGate, ...] = ()  # gates that the rollout passes
    start_at: datetime | None = None  # no order before; None: at once
    automatic: states.PolicyAction | None = None  # None: a person asked for it
    display_name: str = ""
    reason: str = ""


class RollBackChannel(Struct, frozen=True, kw_only=True):
    """A requested rollback to a release of the ladder. None: the newest that is allowed."""

    channel: str
    command_id: str
    by: str
    to: str | None = None
    now: bool = False  # on all hosts at once, passing gates
    ignore_budgets: bool = False
    lift_quarantine: bool = False  # of the release ``to``
    automatic: states.PolicyAction | None = None  # not None: on all hosts in one wave
    channel_version: int | None = None  # of the channel's row, if the decision depends on it
    reason: str = ""


class PlannedPromotion(Struct, frozen=True):
    """A plan, and the versions that it was made from."""

    plan: planner.Plan
    digest: str
    body: bytes
    fleet_version: model.Position
    supersedes: str | None


class Promotions:
    """Plans promotions and rollbacks, and commits them."""

    def __init__(
        self,
        control: Control,
        reader: FleetReader,
        blobs: Blobs,
        name_of: people.NameOf = lambda user_id: user_id,
    ) -> None:
        self._name_of = name_of
        self._people = people.PeopleNames(name_of)
        self._control = control
        self._reader = reader
        self._blobs = blobs

    def now(self) -> datetime:
        return self._control.clock()

    def plan(
        self,
        channel: str,
        *,
        rollback: bool = False,
        emergency: bool = False,
        automatic: bool = False,
        ignore_budgets: bool = False,
    ) -> PlannedPromotion:
        """Plan how a release would reach the channel's hosts now. Nothing is stored. In a rollback,
        hosts that fail do not go back. In an emergency or automatic rollback, all hosts are in one
        wave.

        Raises:
            ChannelNotFound, MalformedPolicy, InvalidSelector, LimitExceeded.
        """
        fleet = self._reader.row(fleet_key(), Fleet)  # first, so that later changes are noticed
        found = self._reader.row(channel_rows.channel_key(channel), channel_rows.Channel)
        if found is None:
            raise refusals.ChannelNotFound(channel)
        budgets = [seen.row for seen in self._reader.budgets() if not seen.row.removed]
        row = found.row
        if rollback:
            plain = planner.automatic_policy if automatic else planner.rollback_policy
            policy = planner.emergency_policy(row.policy) if emergency else plain(row.policy)
            row = structs.replace(row, policy=policy)
        made = planner.plan(row, self._reader.hosts(), () if ignore_budgets else budgets)
        made = structs.replace(made, preempts=emergency)
        body, digest = planner.encode_plan(made)
        version = 0 if fleet is None else fleet.version
        return PlannedPromotion(made, digest, body, version, found.row.active_rollout_id)

    def list_earliest(
        self, made: planner.Plan, now: datetime
    ) -> tuple[earliest.EarliestStart, ...]:
        """Compute when each wave of the plan could start, given the current maintenance windows."""
        windows = [seen.row for seen in self._reader.rows(WINDOWS, Window)]
        labels = {host.host_id: host.labels for host in self._reader.hosts()} if windows else {}
        return earliest.list_earliest_starts(made, labels, windows, now)

    def promote(
        self,
        asked: Promote,
        *,
        meta: model.Meta = model.NO_META,
        key: str | None = None,
        alongside: slices.Alongside | None = None,
        dry_run: bool = False,
    ) -> CommandOutcome:
        """Pin the channel to the release and open its rollout.

        Raises:
            NotFound, Refused, Conflict: see ``promote_release``.
            DryRunEnded: it is a ``dry_run``, and would have succeeded.
        """
        earlier = self._control.earlier(promotion.promote_release, asked, meta=meta, key=key)
        if earlier is not None:
            return earlier
        return self._promote(asked, asked, meta, key, alongside, dry_run=dry_run)

    def _promote(
        self,
        asked: Promote,
        request: Struct,
        meta: model.Meta,
        key: str | None,
        alongside: slices.Alongside | None = None,
        *,
        dry_run: bool,
    ) -> CommandOutcome:
        """``request`` is the original request, by which a repeat is recognized."""
        conflict: Conflict = Conflict("no plan was made")
        for _ in range(PLANS_MAX):
            command = self._command(asked, keep=not dry_run)
            try:
                if dry_run:
                    execute.end_dry_run(
                        self._control, promotion.promote_release, command, meta, alongside
                    )
                return self._control.execute(
                    promotion.promote_release,
                    command,
                    meta=meta,
                    key=key,
                    asked=request,
                    alongside=alongside,
                )
            except refusals.PlanOutdated as outdated:
                conflict = outdated
            except StaleVersion as stale:
                if self._pin_moved(asked) or self._channel_moved(asked):
                    raise
                conflict = stale  # the fleet's row changed, not the caller's: plan again
        raise conflict

    def rehearse(self, asked: Promote) -> None:
        """Plan and decide a promotion without storing anything.

        Raises:
            The errors of ``promote``.
        """
        self._control.rehearse(promotion.promote_release, self._command(asked, keep=False))

    def rehearse_rollback(self, request: RollBackChannel, to: str) -> None:
        """Rehearse a rollback to this release."""
        ladder = read_ladder(self._reader, request.channel, self._name_of)
        rung = ladder.choose(to, now=request.now, ignore_budgets=request.ignore_budgets)
        self.rehearse(_to_promotion(request, ladder, rung, None))

    def rollback(
        self,
        request: RollBackChannel,
        *,
        to: str | None = None,
        expected_version: int | None = None,
        meta: model.Meta = model.NO_META,
        key: str | None = None,
        alongside: slices.Alongside | None = None,
        plain: bool = False,
        dry_run: bool = False,
    ) -> CommandOutcome:
        """Promote a release of the channel's ladder, and mark the pinned one as bad. ``to`` is the
        release that was chosen earlier, if ``request`` does not name one.

        Raises:
            NothingToGoBackTo, NotOnLadder. The errors of ``promote``.
            ProtectionChanged: it is ``plain``, but the release was rolled back from. That may
                take a second person.
            StaleVersion: the pin changed since it was read here.
        """
        earlier = self._control.earlier(promotion.promote_release, request, meta=meta, key=key)
        if earlier is not None:
            return earlier
        conflict: Conflict = Conflict("no rung was chosen")
        for _ in range(PLANS_MAX):
            ladder = read_ladder(self._reader, request.channel, self._name_of)
            if request.channel_version not in (None, ladder.version):
                raise StaleVersion(request.channel_version, ladder.version)
            rung = ladder.choose(
                request.to or to, now=request.now, ignore_budgets=request.ignore_budgets
            )
            if plain and find_left(ladder.row, rung) is not None:
                raise ProtectionChanged((request.channel,))
            asked = _to_promotion(request, ladder, rung, expected_version)
            try:
                return self._promote(asked, request, meta, key, alongside, dry_run=dry_run)
            except StaleVersion as stale:
                if self._pin_moved(asked):
                    raise
                conflict = stale  # a rollout of the channel changed: choose again
        raise conflict

    def waits(
        self,
        channel: str,
        rollout_id: str | None = None,
        passed: tuple[states.OverridableGate, ...] = (),
        *,
        what: str = "it",
    ) -> tuple[str, ...]:
        """List what orders of the channel wait for now: freezes, a hold and, for a rollout,
        windows. ``passed``: gates to ignore. ``what``: the words for what a freeze holds.
        """
        own, copy = (self._reader.row(key, stops.ChannelStops) for key in stops.stops_keys(channel))
        rows = [None if found is None else found.row for found in (own, copy)]
        sentences: list[str] = []
        if states.OverridableGate.FREEZE not in passed:
            sentences += [
                f"Freeze {freeze.freeze_id} holds {what}{times.describe_end(freeze.until)}"
                for freeze in stops.freezes_over(rows, self._control.clock())
            ]
        for row in rows:
            if (
                row is not None
                and row.held_by is not None
                and states.OverridableGate.HOLD not in passed
            ):
                by = self._name_of(row.held_by) or "a former user"
                sentences.append(f"{channel} is held by {by}: {row.held_reason}")
        if rollout_id is not None and stops.windows_over(rows):
            state = self._reader.state([rollout_id], self._control.clock())
            found = list_waits(state, rollout_id)
            sentences += [
                wait.sentence for wait in found if wait.code == states.OverridableGate.WINDOW
            ]
        return tuple(sentences)

    def list_shut_edges(self, channel: str, release_id: str) -> tuple[str, ...]:
        """List the reasons why edges of the channel are closed for the release."""
        found = self._reader.row(channel_rows.channel_key(channel), channel_rows.Channel)
        known = self._reader.row(known_key(release_id), KnownRelease)
        if found is None or known is None:
            return ()
        waiting, now = edges.WaitingRelease(channel, release_id), self._control.clock()
        judged = (
            edges.judge_edge(
                edge, waiting, self._reader.preceding(edge, release_id, known.row.digest), now
            )
            for edge in found.row.policy.edges
        )
        return tuple(self._people.name_in(item.reason) for item in judged if not item.passed)

    def list_holds(self, channel: str, release_id: str) -> tuple[str, ...]:
        """List what would hold a rollout of the release now: closed edges, a freeze, a hold."""
        return (*self.list_shut_edges(channel, release_id), *self.waits(channel))

    def was_left(self, channel: str, release_id: str) -> bool:
        """Whether the channel was rolled back from the release since it succeeded there."""
        found = self._reader.row(channel_rows.channel_key(channel), channel_rows.Channel)
        rung = None if found is None else rung_of(found.row, release_id)
        return found is not None and rung is not None and find_left(found.row, rung) is not None

    def choose_rung(
        self, channel: str, to: str | None, *, now: bool, ignore_budgets: bool = False
    ) -> channel_rows.Rung:
        """Return the rung that a rollback would choose now.

        Raises:
            ChannelNotFound, NothingToGoBackTo, NotOnLadder.
        """
        ladder = read_ladder(self._reader, channel, self._name_of)
        return ladder.choose(to, now=now, ignore_budgets=ignore_budgets)

    def describe_bad_end(self, channel: str, release_id: str) -> tuple[str, ...]:
        """Describe who rolled the channel back from the release, or which host failed with it.
        Empty if its last result is not bad.
        """
        found = self._reader.row(
            rollout_rows.standing_key(channel, release_id), rollout_rows.ReleaseStanding
        )
        if found is None or found.row.word is not states.Word.BAD:
            return ()
        row, at = found.row, times.describe_time(found.row.said_at)
        if row.operator is None:
            return (f"{release_id} failed on {channel} at {at} ({row.host_id or 'its hosts'})",)
        who = self._name_of(row.operator) or "a former user"
        why = f": {row.reason}" if row.reason else ""
        return (f"{who} rolled {channel} back from {release_id} at {at}{why}",)

    def demand_unquarantined(self, channel: str, release_id: str) -> None:
        """Check that the release may run on the channel. Raises: ClosureQuarantined."""
        known = self._reader.row(known_key(release_id), KnownRelease)
        if known is None:
            return
        found = self._reader.row(
            channel_rows.quarantine_key(channel, known.row.digest), channel_rows.Quarantined
        )
        if found is not None:
            raise promotion.refuse_quarantined(release_id, found.row)

    def demand_release(self, channel: str, release_id: str) -> KnownRelease:
        """Return a release that the channel can carry. Raises: NotFound, WrongPackage."""
        found = self._reader.row(channel_rows.channel_key(channel), channel_rows.Channel)
        if found is not None:
            promotion.demand_package(found.row, release_id)
        known = self._reader.row(known_key(release_id), KnownRelease)
        if known is None:
            raise NotFound(f"there is no release {release_id}", release_id=release_id)
        return known.row

    def _command(self, asked: Promote, *, keep: bool = True) -> promotion.PromoteRelease:
        """Build the command, with a new plan; ``keep`` stores the plan."""
        known = self.demand_release(asked.channel, asked.release_id)
        actual = self._reader.row(actual_key(asked.channel), Actual)
        pinned = None if actual is None else actual.row.version
        if asked.refresh:
            return promotion.PromoteRelease(
                channel=asked.channel,
                release_id=asked.release_id,
                digest=known.digest,
                authority=asked.authority or self._own_authority(asked),
                command_id=asked.command_id,
                by=asked.by,
                plan_digest=NO_PLAN,
                waves=(),
                expected_version=pinned
                if asked.expected_version is None
                else asked.expected_version,
                refresh=True,
                start_at=asked.start_at,
                reason=asked.reason,
            )
        planned = self.plan(
            asked.channel,
            rollback=asked.rollback,
            emergency=asked.emergency,
            automatic=asked.automatic is not None,
            ignore_budgets=asked.ignore_budgets,
        )
        if keep:
            self._blobs.put(planned.body)
        return promotion.PromoteRelease(
            channel=asked.channel,
            release_id=asked.release_id,
            digest=known.digest,
            authority=asked.authority or self._own_authority(asked),
            command_id=asked.command_id,
            by=asked.by,
            plan_digest=planned.digest,
            waves=planner.opened_waves(planned.plan),
            empty_waves=planned.plan.empty_waves,
            expected_version=pinned if asked.expected_version is None else asked.expected_version,
            supersedes=planned.supersedes,
            fleet_version=planned.fleet_version,
            rollback=asked.rollback,
            channel_version=asked.channel_version,
            overrides=asked.overrides,
            emergency=asked.emergency,
            ignore_budgets=asked.ignore_budgets,
            lift_quarantine=asked.lift_quarantine,
            start_at=asked.start_at,
            automatic=asked.automatic,
            display_name=asked.display_name,
            reason=asked.reason,
        )

    def _own_authority(self, asked: Promote) -> dict[str, Any]:
        return promotion_evidence.operator_authority(
            asked.channel, asked.release_id, self._control.clock()
        )

    def _pin_moved(self, asked: Promote) -> bool:
        actual = self._reader.row(actual_key(asked.channel), Actual)
        if asked.expected_version is None or actual is None:
            return False
        return actual.row.version != asked.expected_version

    def _channel_moved(self, asked: Promote) -> bool:
        if asked.channel_version is None:
            return False
        found = self._reader.row(channel_rows.channel_key(asked.channel), channel_rows.Channel)
        return found is None or found.version != asked.channel_version


def _to_promotion(
    request: RollBackChannel, ladder: Ladder, rung: channel_rows.Rung, expected_version: int | None
) -> Promote:
    """Turn a rollback into a promotion of the chosen rung."""
    return Promote(
        channel=request.channel,
        release_id=rung.release_id,
        command_id=request.command_id,
        by=request.by,
        # The chosen release and the one that becomes bad were read at these versions.
        expected_version=ladder.pin_version if expected_version is None else expected_version,
        rollback=True,
        channel_version=ladder.version,
        emergency=request.now,
        ignore_budgets=request.ignore_budgets,
        lift_quarantine=request.lift_quarantine,
        automatic=request.automatic,
        reason=request.reason,
    )
