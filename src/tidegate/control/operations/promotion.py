"""Promote and roll back: a plan is made of the fleet as it is, frozen in a blob, then decided.

    channel, hosts, budgets ──▶ plan ──▶ blob ──▶ promote_release (one commit)
              ▲                                        │ the fleet or the channel moved: again
              └────────────────────────────────────────┘

The blob is durable before the commit that names it. A repeat under its idempotency key is known by
what was asked, not by the plan, which may be another one by then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, structs

from tidegate import decoders
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.lanes import Lanes
from tidegate.control.operations import ids, protection as operation_protection
from tidegate.control.operations.execute import Execute, end_dry_run
from tidegate.control.publication.manifests import Manifests
from tidegate.control.queries import as_of, people
from tidegate.control.queries.history import pinned_at
from tidegate.control.queries.ladder import Ladder, read_ladder
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome, Control
from tidegate.control.storage.blobs import Blobs
from tidegate.domain import planner, provenance, times
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.channels import refusals, rows as channel_rows, stops
from tidegate.domain.channels.ladder import rung_of
from tidegate.domain.fleet.rows import Fleet, fleet_key
from tidegate.domain.gates import automation, earliest, edges
from tidegate.domain.gates.waits import list_waits
from tidegate.domain.releases.rows import Actual, KnownRelease, actual_key, known_key
from tidegate.domain.requests.refusals import ProtectionChanged
from tidegate.domain.rollouts import names, promotion, rows as rollout_rows, states
from tidegate.domain.windows.rows import WINDOWS, Window
from tidegate.errors import Conflict, InvalidInput, NotFound, Refused, StaleVersion
from tidegate.kernel import model, slices

PLANS_MAX = 5  # made for one promotion, while the fleet moves


NO_PLAN = "none"  # as the digest of the plan, where no rollout opens


class Promote(Struct, frozen=True, kw_only=True):
    """What is asked for: a release, on a channel, on what authority. None: the operator's own."""

    channel: str
    release_id: str
    command_id: str
    by: str
    authority: dict[str, Any] | None = None
    expected_version: int | None = None  # of the registry's row, as the caller saw it
    rollback: bool = False  # away from what the channel is pinned to
    channel_version: int | None = None  # of the channel's row, from which a rollback was chosen
    emergency: bool = False  # a rollback on all hosts at once
    ignore_budgets: bool = False
    lift_quarantine: bool = False
    refresh: bool = False  # new evidence for what the channel is pinned to, and nothing else
    overrides: tuple[states.OverridableGate, ...] = ()  # gates that the rollout passes
    start_at: datetime | None = None  # no order before; None: at once
    automatic: states.PolicyAction | None = None  # None: a person asks for it
    display_name: str = ""
    reason: str = ""


class RollBackChannel(Struct, frozen=True, kw_only=True):
    """What is asked for: a release of the channel's ladder. None: the first that is allowed."""

    channel: str
    command_id: str
    by: str
    to: str | None = None
    now: bool = False  # on all hosts at once, whatever gates say
    ignore_budgets: bool = False
    lift_quarantine: bool = False  # of the release that is named
    automatic: states.PolicyAction | None = None  # then on all hosts in one wave
    channel_version: int | None = None  # of the channel's row, if the decision was made on it
    reason: str = ""


class PlannedPromotion(Struct, frozen=True):
    """A plan, and what it was made of."""

    plan: planner.Plan
    digest: str
    body: bytes
    fleet_version: model.Position
    supersedes: str | None


class Promotions:
    """Plans promotions and has them decided."""

    def __init__(
        self,
        control: Control,
        sights: FleetReader,
        blobs: Blobs,
        name_of: people.NameOf = lambda user_id: user_id,
    ) -> None:
        self._name_of = name_of
        self._people = people.PeopleNames(name_of)
        self._control = control
        self._sights = sights
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
        """The plan by which a release would reach the channel's hosts now. Nothing is stored.
        In that of a rollback, hosts that fail stay as they are. In that of an emergency, and of a
        rollback by itself, all hosts go in one wave.

        Raises:
            ChannelNotFound, MalformedPolicy, InvalidSelector, LimitExceeded.
        """
        fleet = self._sights.row(fleet_key(), Fleet)  # first: whatever moves later is noticed
        found = self._sights.row(channel_rows.channel_key(channel), channel_rows.Channel)
        if found is None:
            raise refusals.ChannelNotFound(channel)
        budgets = [seen.row for seen in self._sights.budgets() if not seen.row.removed]
        row = found.row
        if rollback:
            plain = planner.automatic_policy if automatic else planner.rollback_policy
            policy = planner.emergency_policy(row.policy) if emergency else plain(row.policy)
            row = structs.replace(row, policy=policy)
        made = planner.plan(row, self._sights.hosts(), () if ignore_budgets else budgets)
        made = structs.replace(made, preempts=emergency)
        body, digest = planner.encode_plan(made)
        version = 0 if fleet is None else fleet.version
        return PlannedPromotion(made, digest, body, version, found.row.active_rollout_id)

    def list_earliest(
        self, made: planner.Plan, now: datetime
    ) -> tuple[earliest.EarliestStart, ...]:
        """When each wave of the plan could start, as maintenance windows are now."""
        windows = [seen.row for seen in self._sights.rows(WINDOWS, Window)]
        labels = {host.host_id: host.labels for host in self._sights.hosts()} if windows else {}
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
            NotFound, Refused, Conflict: as ``promote_release`` says.
            DryRunEnded: it is a ``dry_run``, and would have succeeded.
        """
        earlier = self._control.earlier(promotion.promote_release, asked, meta=meta, key=key)
        if earlier is not None:
            return earlier
        return self._promote(asked, asked, meta, key, alongside, dry_run=dry_run)

    def _promote(
        self,
        asked: Promote,
        said: Struct,
        meta: model.Meta,
        key: str | None,
        alongside: slices.Alongside | None = None,
        *,
        dry_run: bool,
    ) -> CommandOutcome:
        """``said`` is the request as it came, by which a repeat is known."""
        moved: Conflict = Conflict("no plan was made")
        for _ in range(PLANS_MAX):
            command = self._command(asked, keep=not dry_run)
            try:
                if dry_run:
                    end_dry_run(self._control, promotion.promote_release, command, meta, alongside)
                return self._control.execute(
                    promotion.promote_release,
                    command,
                    meta=meta,
                    key=key,
                    asked=said,
                    alongside=alongside,
                )
            except refusals.PlanOutdated as outdated:
                moved = outdated
            except StaleVersion as stale:
                if self._pin_moved(asked) or self._channel_moved(asked):
                    raise
                moved = stale  # the fleet's row, not the caller's: plan again
        raise moved

    def rehearse(self, asked: Promote) -> None:
        """Plan and decide a promotion, and store nothing.

        Raises:
            Whatever ``promote`` would refuse it with now.
        """
        self._control.rehearse(promotion.promote_release, self._command(asked, keep=False))

    def rehearse_rollback(self, said: RollBackChannel, to: str) -> None:
        """As ``rehearse``, of a rollback to this release."""
        ladder = read_ladder(self._sights, said.channel, self._name_of)
        rung = ladder.choose(to, now=said.now)
        self.rehearse(_to_promotion(said, ladder, rung, None))

    def rollback(
        self,
        said: RollBackChannel,
        *,
        to: str | None = None,
        expected_version: int | None = None,
        meta: model.Meta = model.NO_META,
        key: str | None = None,
        alongside: slices.Alongside | None = None,
        plain: bool = False,
        dry_run: bool = False,
    ) -> CommandOutcome:
        """Promote a release of the channel's ladder, and leave the pinned one as bad. ``to`` is the
        release that was chosen before, where ``said`` names none.

        Raises:
            NothingToGoBackTo, NotOnLadder. Those of ``promote``.
            ProtectionChanged: it is ``plain``, and the release was rolled back from. That may
                take a second person.
            StaleVersion: the pin moved since it was read here.
        """
        earlier = self._control.earlier(promotion.promote_release, said, meta=meta, key=key)
        if earlier is not None:
            return earlier
        moved: Conflict = Conflict("no rung was chosen")
        for _ in range(PLANS_MAX):
            ladder = read_ladder(self._sights, said.channel, self._name_of)
            if said.channel_version not in (None, ladder.version):
                raise StaleVersion(said.channel_version, ladder.version)
            rung = ladder.choose(said.to or to, now=said.now)
            if plain and rung.left_at is not None:
                raise ProtectionChanged((said.channel,))
            asked = _to_promotion(said, ladder, rung, expected_version)
            try:
                return self._promote(asked, said, meta, key, alongside, dry_run=dry_run)
            except StaleVersion as stale:
                if self._pin_moved(asked):
                    raise
                moved = stale  # a rollout of the channel moved on: choose again
        raise moved

    def waits(
        self,
        channel: str,
        rollout_id: str | None = None,
        passed: tuple[states.OverridableGate, ...] = (),
        *,
        what: str = "it",
    ) -> tuple[str, ...]:
        """What orders of the channel wait for now: a freeze, a hold; of a rollout also windows.
        ``passed``: gates that do not count. ``what``: what a freeze is said to hold.
        """
        own, copy = (self._sights.row(key, stops.ChannelStops) for key in stops.stops_keys(channel))
        rows = [None if found is None else found.row for found in (own, copy)]
        said: list[str] = []
        freeze = stops.freeze_over(rows, self._control.clock())
        if freeze is not None and states.OverridableGate.FREEZE not in passed:
            said.append(f"Freeze {freeze.freeze_id} holds {what}{times.describe_end(freeze.until)}")
        for row in rows:
            if (
                row is not None
                and row.held_by is not None
                and states.OverridableGate.HOLD not in passed
            ):
                by = self._name_of(row.held_by) or "a former user"
                said.append(f"{channel} is held by {by}: {row.held_reason}")
        if rollout_id is not None and stops.windows_over(rows):
            state = self._sights.state([rollout_id], self._control.clock())
            found = list_waits(state, rollout_id)
            said += [wait.sentence for wait in found if wait.code == states.OverridableGate.WINDOW]
        return tuple(said)

    def list_shut_edges(self, channel: str, release_id: str) -> tuple[str, ...]:
        """Why edges of the channel do not let the release through now, in words."""
        found = self._sights.row(channel_rows.channel_key(channel), channel_rows.Channel)
        known = self._sights.row(known_key(release_id), KnownRelease)
        if found is None or known is None:
            return ()
        waiting, now = edges.WaitingRelease(channel, release_id), self._control.clock()
        judged = (
            edges.judge_edge(
                edge, waiting, self._sights.preceding(edge, release_id, known.row.digest), now
            )
            for edge in found.row.policy.edges
        )
        return tuple(self._people.name_in(item.reason) for item in judged if not item.passed)

    def list_holds(self, channel: str, release_id: str) -> tuple[str, ...]:
        """What would hold a rollout of the release now: closed edges, a freeze, a hold."""
        return (*self.list_shut_edges(channel, release_id), *self.waits(channel))

    def was_left(self, channel: str, release_id: str) -> bool:
        """Whether somebody rolled the channel back from the release since it succeeded there."""
        found = self._sights.row(channel_rows.channel_key(channel), channel_rows.Channel)
        rung = None if found is None else rung_of(found.row, release_id)
        return rung is not None and rung.left_at is not None

    def choose_rung(self, channel: str, to: str | None, *, now: bool) -> channel_rows.Rung:
        """What a rollback would take now.

        Raises:
            ChannelNotFound, NothingToGoBackTo, NotOnLadder.
        """
        return read_ladder(self._sights, channel, self._name_of).choose(to, now=now)

    def describe_bad_end(self, channel: str, release_id: str) -> tuple[str, ...]:
        """Who rolled the channel back from the release, or which host failed with it; nothing if
        the last word on it is not bad.
        """
        found = self._sights.row(
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
        """That the release may run on the channel. Raises: ClosureQuarantined."""
        known = self._sights.row(known_key(release_id), KnownRelease)
        if known is None:
            return
        found = self._sights.row(
            channel_rows.quarantine_key(channel, known.row.digest), channel_rows.Quarantined
        )
        if found is not None:
            raise promotion.refuse_quarantined(release_id, found.row)

    def demand_release(self, channel: str, release_id: str) -> KnownRelease:
        """A release that the channel can carry. Raises: NotFound, WrongPackage."""
        found = self._sights.row(channel_rows.channel_key(channel), channel_rows.Channel)
        if found is not None:
            promotion.demand_package(found.row, release_id)
        known = self._sights.row(known_key(release_id), KnownRelease)
        if known is None:
            raise NotFound(
                f"there is no release {release_id}; publish a revision first",
                release_id=release_id,
            )
        return known.row

    def _command(self, asked: Promote, *, keep: bool = True) -> promotion.PromoteRelease:
        """``keep``: store the plan."""
        known = self.demand_release(asked.channel, asked.release_id)
        actual = self._sights.row(actual_key(asked.channel), Actual)
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
            lift_quarantine=asked.lift_quarantine,
            start_at=asked.start_at,
            automatic=asked.automatic,
            display_name=asked.display_name,
            reason=asked.reason,
        )

    def _own_authority(self, asked: Promote) -> dict[str, Any]:
        return operator_authority(asked.channel, asked.release_id, self._control.clock())

    def _pin_moved(self, asked: Promote) -> bool:
        actual = self._sights.row(actual_key(asked.channel), Actual)
        if asked.expected_version is None or actual is None:
            return False
        return actual.row.version != asked.expected_version

    def _channel_moved(self, asked: Promote) -> bool:
        if asked.channel_version is None:
            return False
        found = self._sights.row(channel_rows.channel_key(asked.channel), channel_rows.Channel)
        return found is None or found.version != asked.channel_version


def _to_promotion(
    said: RollBackChannel, ladder: Ladder, rung: channel_rows.Rung, expected_version: int | None
) -> Promote:
    """The promotion by which a channel goes back."""
    return Promote(
        channel=said.channel,
        release_id=rung.release_id,
        command_id=said.command_id,
        by=said.by,
        # Where it goes back to was read from these versions, and so was what it leaves.
        expected_version=ladder.pin_version if expected_version is None else expected_version,
        rollback=True,
        channel_version=ladder.version,
        emergency=said.now,
        ignore_budgets=said.ignore_budgets,
        lift_quarantine=said.lift_quarantine,
        automatic=said.automatic,
        reason=said.reason,
    )


def operator_authority(channel: str, release_id: str, now: datetime) -> dict[str, Any]:
    """The evidence of somebody who may promote and says so, here and now."""
    at = _time_text(now)
    said = {
        "ref": provenance.OPERATOR_REF.format(scope=channel, release_id=release_id),
        "observed_at": at,
    }
    source = "release-control-plane"
    return {
        "provenance": {
            "mode": "native",
            "system": source,
            "kind": provenance.OPERATOR_COMMAND,
            "recorded_at": at,
            **said,
            "evidence": [{"kind": provenance.OPERATOR_COMMAND, "source": source, **said}],
        },
        "confidence": {"level": provenance.HIGH, "reasons": ["operator_command_authority"]},
    }


def success_authority(rollout_id: str, digest: str, now: datetime) -> dict[str, Any]:
    """The evidence that a release succeeded where it must: one of the rollouts that say so."""
    at = _time_text(now)
    said = {"ref": f"rollout://{rollout_id}", "observed_at": at, "digest": digest}
    kind, source = provenance.CHANNEL_SUCCESS.kind, provenance.CHANNEL_SUCCESS.source
    return {
        "provenance": {
            "mode": str(provenance.CHANNEL_SUCCESS.mode),
            "system": source,
            "kind": kind,
            "recorded_at": at,
            **said,
            "evidence": [{"kind": kind, "source": source, **said}],
        },
        "confidence": {"level": provenance.HIGH, "reasons": [provenance.CHANNEL_SUCCESS.reason]},
    }


def _time_text(now: datetime) -> str:
    return now.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _describe_hosts(count: int) -> str:
    return f"It reaches {count:,} host{'' if count == 1 else 's'}"


def _spell_rollback(asked: RollBackChannel, *more: str) -> str:
    """The command of this rollback."""
    flags = {
        "--now": asked.now,
        "--ignore-budgets": asked.ignore_budgets,
        "--lift-quarantine": asked.lift_quarantine,
    }
    to = () if asked.to is None else ("--to", asked.to)
    is_set = (name for name, value in flags.items() if value)
    return " ".join(("tidegate channel rollback", asked.channel, *to, *is_set, "--reason …", *more))


class ChannelPromotion(Struct, frozen=True, kw_only=True):
    """What a promotion or a rollback led to."""

    channel: str
    release_id: str
    rollout_id: str
    superseded_rollout_id: str | None
    warnings: tuple[str, ...]  # what a person should know before the hosts get it
    position: model.Position
    waits: bool = False  # a closed edge, a freeze, a hold or a window holds its orders


class PromotionOperations:
    """Promote a release on a channel, and roll a channel back.

    Each runs in the lane of the rollout that it ends, before the reports that wait there, and
    publishes the channel's manifest afterwards.

    Raises:
        MissingPermission, ChannelNotFound, NotFound, WrongPackage, ChannelOnHold,
        ClosureQuarantined, AlreadyPromoted, StaleVersion.
        LaneBusy: other commands kept the rollout busy; nothing was changed.
    """

    def __init__(
        self,
        execute: Execute,
        lanes: Lanes,
        reads: Reads,
        history: as_of.RowHistory,
        promotions: Promotions,
        manifests: Manifests,
        guard: operation_protection.ProtectionGuard,
    ) -> None:
        self._execute = execute
        self._lanes = lanes
        self._reads = reads
        self._history = history
        self._promotions = promotions
        self._manifests = manifests
        self._guard = guard

    def promote(
        self,
        caller: callers.Caller,
        channel: str,
        release_id: str,
        *,
        reason: str = "",
        display_name: str = "",
        refresh: bool = False,
        overrides: tuple[states.OverridableGate, ...] = (),
        start_at: datetime | None = None,
    ) -> ChannelPromotion:
        """Make a release authoritative on the channel and roll it out: one commit. ``refresh``:
        confirm the release that is, with new evidence, and open no rollout.
        ``overrides`` are gates that the rollout passes; that needs the permission emergency.
        Before ``start_at`` no order goes out.

        Raises:
            ReleaseNotPinned. InvalidInput: ``start_at`` is past, or too far ahead.
        """
        caller.demand(steps.PROMOTE, scopes.channel_scope(channel))
        if overrides:
            caller.demand(steps.OVERRIDE_GATE, scopes.channel_scope(channel))
        arguments = {
            "release_id": release_id,
            "reason": reason.strip(),
            "display_name": display_name,
            "refresh": refresh,
            "overrides": list(map(str, overrides)),
            "start_at": None if start_at is None else start_at.astimezone(UTC).isoformat(),
        }
        if (
            caller.alongside is not None
            and start_at is not None
            and start_at <= self._promotions.now()
        ):
            start_at = None  # the approval came later than the start that was asked for
        asked = Promote(
            channel=channel,
            release_id=release_id,
            command_id=ids.make_id(caller, steps.PROMOTE, "command"),
            by=caller.id,
            expected_version=self._counter_seen(caller, channel),
            refresh=refresh,
            overrides=() if refresh else overrides,
            start_at=None if start_at is None else start_at.astimezone(UTC),
            display_name=display_name,
            reason=reason.strip(),
        )

        def check() -> None:
            self._demand_seen(caller, channel)
            self._promotions.demand_release(channel, release_id)
            if overrides and not reason.strip():
                raise InvalidInput("an override needs a reason", field="reason")
            if not refresh:
                self._promotions.demand_unquarantined(channel, release_id)

        verb = operation_protection.GuardedVerb(
            step=steps.PROMOTE,
            channels=(channel,),
            arguments=arguments,
            reason=reason,
            emergency=bool(overrides),
            hosts=None if refresh else lambda: self.count_hosts(channel),
            notes=lambda said: () if refresh else self.describe_promotion(channel, release_id),
            check=check,
            rehearse=lambda: self._promotions.rehearse(asked),
        )

        def run(by: callers.Caller) -> CommandOutcome:
            return self._promotions.promote(
                asked,
                meta=by.meta,
                key=by.commit_key,
                alongside=by.alongside,
                dry_run=by.dry_run,
            )

        result = self._guard.run(
            caller,
            verb,
            lambda by: self._open_rollout(by, channel, lambda: run(by)),
            lambda: self._earlier(caller, channel, asked),
        )
        return result if refresh else self._warn_held(result, overrides)

    def _warn_held(
        self, result: ChannelPromotion, passed: tuple[states.OverridableGate, ...]
    ) -> ChannelPromotion:
        """The promotion, with what its orders wait for."""
        channel, rollout_id = result.channel, result.rollout_id
        waits = self._promotions.waits(channel, rollout_id, passed)
        if states.OverridableGate.EDGES not in passed:
            waits = (*self._promotions.list_shut_edges(channel, result.release_id), *waits)
        see = f"To see what it waits for: tidegate rollout explain {rollout_id}"
        found = tuple(f"Its orders wait. {text}" for text in waits)
        if not found:
            return result
        return structs.replace(result, warnings=(*result.warnings, *found, see), waits=True)

    def _earlier(
        self, caller: callers.Caller, channel: str, asked: Struct
    ) -> ChannelPromotion | None:
        """What the first copy of a repeat led to."""
        outcome = self._execute.earlier(promotion.promote_release, asked, caller)
        return None if outcome is None else self._result(channel, outcome)

    def describe_promotion(self, channel: str, release_id: str) -> tuple[str, ...]:
        """What a person should know before a promotion: what happened to the release here, what
        would hold it now, how many hosts get it.
        """
        promotions = self._promotions
        made = promotions.plan(channel).plan
        windows = (start.sentence for start in promotions.list_earliest(made, promotions.now()))
        holds = (*promotions.list_holds(channel, release_id), *dict.fromkeys(filter(None, windows)))
        return (
            *promotions.describe_bad_end(channel, release_id),
            *(f"Its orders would wait. {text}" for text in holds),
            _describe_hosts(made.hosts),
        )

    def describe_rollback(self, channel: str, to: str | None, *, now: bool) -> tuple[str, ...]:
        """What a rollback would take now, and how many hosts get it."""
        try:
            rung = self._promotions.choose_rung(channel, to, now=now)
        except Refused as error:
            return (f"It cannot be carried out now. {error.detail}",)
        succeeded_at = times.describe_time(rung.succeeded_at)
        return (
            f"It goes to {rung.release_id}, which succeeded here at {succeeded_at}",
            _describe_hosts(self.count_hosts(channel, rollback=True, now=now)),
        )

    def count_hosts(self, channel: str, *, rollback: bool = False, now: bool = False) -> int:
        """How many hosts a rollout of the channel would take now."""
        return self._promotions.plan(channel, rollback=rollback, emergency=now).plan.hosts

    def check_plan(self, channel: str, *, rollback: bool) -> None:
        """That what the channel would do by itself can be planned now.

        Raises:
            ChannelNotFound, MalformedPolicy, InvalidSelector, LimitExceeded.
        """
        self._promotions.plan(channel, rollback=rollback, automatic=True)

    def promote_by_policy(
        self,
        caller: callers.Caller,
        found: automation.Promotable,
        channel: str,
        channel_version: model.Position,
    ) -> ChannelPromotion:
        """What the worker does for a channel with ``auto_promote``: promote a release that every
        edge lets through, for who switched it on. ``channel_version`` is that of the channel's
        row on which the choice was made.

        Raises:
            StaleVersion: the channel moved on. SecondPersonNeeded: a request was made instead.
        """
        caller.demand(steps.PROMOTE, scopes.channel_scope(channel))
        asked = Promote(
            channel=channel,
            release_id=found.release_id,
            command_id=ids.make_id(caller, steps.PROMOTE, "command"),
            by=caller.id,
            authority=success_authority(found.proved_by, found.digest, self._promotions.now()),
            channel_version=channel_version,
            automatic=states.PolicyAction.AUTO_PROMOTE,
            reason=found.reason,
        )
        verb = operation_protection.GuardedVerb(
            step=steps.PROMOTE,
            channels=(channel,),
            arguments={"release_id": found.release_id, "reason": found.reason},
            reason=found.reason,
            hosts=lambda: self.count_hosts(channel),
            rehearse=lambda: self._promotions.rehearse(asked),
        )

        def run(by: callers.Caller) -> CommandOutcome:
            return self._promotions.promote(
                asked,
                meta=by.meta,
                key=by.commit_key,
                alongside=by.alongside,
                dry_run=by.dry_run,
            )

        return self._guard.run(
            caller,
            verb,
            lambda by: self._open_rollout(by, channel, lambda: run(by)),
            lambda: None,  # the version of the channel tells a repeat
        )

    def roll_back_by_policy(
        self, caller: callers.Caller, channel: str, channel_version: model.Position, reason: str
    ) -> ChannelPromotion:
        """What the worker does for a channel with ``auto_rollback``: a plain rollback on all hosts
        in one wave, for who switched it on.

        Raises:
            StaleVersion: the channel moved on. NothingToGoBackTo.
        """
        caller.demand(steps.ROLL_BACK, scopes.channel_scope(channel))
        asked = RollBackChannel(
            channel=channel,
            command_id=ids.make_id(caller, steps.ROLL_BACK, "command"),
            by=caller.id,
            automatic=states.PolicyAction.AUTO_ROLLBACK,
            channel_version=channel_version,
            reason=reason,
        )
        run = lambda: self._promotions.rollback(  # noqa: E731
            asked,
            meta=caller.meta,
            key=caller.commit_key,
            alongside=caller.alongside,
            plain=True,
            dry_run=caller.dry_run,
        )
        return self._open_rollout(caller, channel, run)

    def roll_back(
        self,
        caller: callers.Caller,
        channel: str,
        *,
        to: str | None = None,
        now: bool = False,
        ignore_budgets: bool = False,
        lift_quarantine: bool = False,
        reason: str = "",
    ) -> ChannelPromotion:
        """Go back to a release of the channel's ladder, and mark what is pinned now as bad. Its
        orders wait for freezes and a hold; the warnings say so.

        ``now``: on all hosts at once, in spite of them. ``ignore_budgets``: also past budgets.
        ``lift_quarantine``: of the release that ``to`` names, in the same commit.

        Raises:
            NothingToGoBackTo, NotOnLadder. InvalidInput: options that do not belong together.
        """
        scope = scopes.channel_scope(channel)
        caller.demand(steps.ROLL_BACK, scope)
        if now:
            caller.demand(steps.ROLL_BACK_NOW, scope)
        if lift_quarantine:
            caller.demand(steps.LIFT_QUARANTINE, scope)
        if ignore_budgets and not now:
            raise InvalidInput("budgets are ignored by a rollback now alone", field="now")
        if lift_quarantine and to is None:
            raise InvalidInput("name the release whose quarantine is lifted", field="to")
        asked = RollBackChannel(
            channel=channel,
            command_id=ids.make_id(caller, steps.ROLL_BACK, "command"),
            by=caller.id,
            to=to,
            now=now,
            ignore_budgets=ignore_budgets,
            lift_quarantine=lift_quarantine,
            reason=reason.strip(),
        )
        seen = self._counter_seen(caller, channel)
        chosen: list[str] = []  # what a request or break-glass names; empty: the commit chooses

        def choose() -> dict[str, str]:
            chosen[:] = [self._promotions.choose_rung(channel, to, now=now).release_id]
            return {"to": chosen[0]}

        def go(by: callers.Caller, *, plain: bool = False) -> ChannelPromotion:
            run = lambda: self._promotions.rollback(  # noqa: E731
                asked,
                to=chosen[0] if chosen else None,
                expected_version=seen,
                meta=by.meta,
                key=by.commit_key,
                alongside=by.alongside,
                plain=plain,
                dry_run=by.dry_run,
            )
            return self._open_rollout(by, channel, run)

        # A plain rollback takes one person; to go forward again to what was left takes two.
        def earlier() -> ChannelPromotion | None:
            return self._earlier(caller, channel, asked)

        def go_plainly() -> ChannelPromotion | None:
            if now or lift_quarantine:
                return earlier()
            with suppress(ProtectionChanged):
                return earlier() or go(caller, plain=True)
            return None

        verb = operation_protection.GuardedVerb(
            step=steps.ROLL_BACK,
            channels=(channel,),
            arguments={
                "to": to,
                "now": now,
                "ignore_budgets": ignore_budgets,
                "lift_quarantine": lift_quarantine,
                "reason": reason.strip(),
            },
            reason=reason,
            complete=choose,
            emergency=now,
            hosts=lambda: self.count_hosts(channel, rollback=True, now=now),
            notes=lambda said: self.describe_rollback(channel, said["to"], now=now),
            check=lambda: self._demand_seen(caller, channel),
            rehearse=lambda: self._promotions.rehearse_rollback(asked, chosen[0]),
            alone=lambda said: (
                self._describe_plain(channel, said["to"]) if now and not lift_quarantine else None
            ),
            at_once=lambda said: (
                _spell_rollback(structs.replace(asked, to=said["to"]), "--break-glass")
                if now
                else ""
            ),
        )
        return self._warn(self._guard.run(caller, verb, go, go_plainly), now=now)

    def _describe_plain(self, channel: str, to: str) -> operation_protection.Alternative | None:
        """The rollback that needs no second person; None: there is none, or it is under way."""
        pin = self._reads.find(actual_key(channel), Actual)
        is_wanted = pin is not None and pin.row.pinned_release_id == to
        if is_wanted or self._promotions.was_left(channel, to):
            return None
        plain = RollBackChannel(channel=channel, command_id="", by="", to=to)
        says = "A rollback in waves, which freezes and windows hold, needs nobody else"
        return operation_protection.Alternative(says, _spell_rollback(plain))

    def _warn(self, result: ChannelPromotion, *, now: bool) -> ChannelPromotion:
        waits = self._waits(result.channel, result.rollout_id, now)
        is_held = bool(waits) and not now
        return structs.replace(result, warnings=(*result.warnings, *waits), waits=is_held)

    def warn_before_rollback(self, channel: str, *, now: bool) -> tuple[str, ...]:
        """What a person should know before a rollback: how it reaches the hosts, what would hold
        it or what it passes, and what it needs.

        Raises:
            ChannelNotFound.
        """
        waits = self._waits(channel, None, now)
        if not now:
            return waits
        hosts = self.count_hosts(channel, rollback=True, now=True)
        all_hosts = "1 host" if hosts == 1 else f"all {hosts} hosts"
        return (
            f"It goes to {all_hosts} at once, without soak; budgets still apply",
            *waits,
            f"It needs {self._needs(channel)}",
        )

    def _waits(self, channel: str, rollout_id: str | None, now: bool) -> tuple[str, ...]:
        """What a rollback waits for, or passes; windows only of one that is open."""
        if now:
            found = self._promotions.waits(channel, rollout_id, what="other orders")
            return tuple(f"{text}; this rollback passes it" for text in found)
        found = self._promotions.waits(channel, rollout_id)
        to = "" if rollout_id is None else f"--to {names.ref_of(rollout_id)} "
        hint = (
            f"To go back in spite of it: tidegate channel rollback {channel} {to}--now --reason … "
            f"(needs {self._needs(channel)})"
        )
        return tuple(f"{text}. {hint}" for text in found)

    def _needs(self, channel: str) -> str:
        """What a rollback now takes."""
        protection = self._guard.protection_of(channel)
        if protection is None:
            return "emergency"
        if not protection.break_glass:
            return f"emergency; {channel} is protected: also a second person"
        return f"emergency; {channel} is protected: also a second person, or --break-glass"

    def _open_rollout(
        self, caller: callers.Caller, channel: str, run: Callable[[], CommandOutcome]
    ) -> ChannelPromotion:
        active = self._demand_seen(caller, channel).active_rollout_id
        outcome = run() if active is None else self._lanes.run(active, run)
        self._manifests.publish_promoted(channel, by=caller.id)
        self._execute.notify()
        return self._result(channel, outcome)

    def _counter_seen(self, caller: callers.Caller, channel: str) -> int | None:
        """The registry's own counter at the log position that the caller saw."""
        if caller.expected_version is None:
            return None
        found = pinned_at(self._history, channel, caller.expected_version)
        return None if found is None else found.row.version

    def _demand_seen(self, caller: callers.Caller, channel: str) -> channel_rows.Channel:
        """Raises: StaleVersion: neither the channel nor its pin is as the caller saw it.

        ChannelNotFound.
        """
        found = self._reads.demand(
            channel_rows.channel_key(channel),
            channel_rows.Channel,
            refusals.ChannelNotFound(channel),
        )
        if caller.expected_version is not None:
            pin = self._reads.find(actual_key(channel), Actual)
            if caller.expected_version not in (found.version, 0 if pin is None else pin.version):
                raise StaleVersion(caller.expected_version, found.version)
        return found.row

    def _result(self, channel: str, outcome: CommandOutcome) -> ChannelPromotion:
        answer = decoders.decoder(promotion.PromotionResult).decode(outcome.answer or b"{}")
        rollout_id = answer.rollout_id
        if rollout_id is None:  # a repeat without a key: its first copy opened the newest rollout
            found = self._reads.demand(
                channel_rows.channel_key(channel),
                channel_rows.Channel,
                refusals.ChannelNotFound(channel),
            )
            rollout_id = found.row.newest_rollout_id or ""
        return ChannelPromotion(
            channel=channel,
            release_id=names.ref_of(rollout_id),
            rollout_id=rollout_id,
            superseded_rollout_id=answer.superseded_rollout_id,
            warnings=tuple(f"wave {name} takes no host now" for name in answer.empty_waves),
            position=outcome.position,
        )
