"""Promote a release on a channel and roll a channel back: the verbs for people and policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, structs

from tidegate import decoders, errors
from tidegate.control.lanes import Lanes
from tidegate.control.operations import (
    ids,
    promotion_evidence,
    promotion_preview,
    protection as operation_protection,
)
from tidegate.control.operations.execute import Execute
from tidegate.control.operations.promotion_planning import Promote, Promotions, RollBackChannel
from tidegate.control.publication.manifests import Manifests
from tidegate.control.queries import as_of
from tidegate.control.queries.history import pinned_at
from tidegate.control.queries.reads import Reads
from tidegate.control.runtime import CommandOutcome
from tidegate.domain.access import callers, scopes, steps
from tidegate.domain.channels import refusals, rows as channel_rows
from tidegate.domain.gates import automation
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.requests.refusals import ProtectionChanged
from tidegate.domain.rollouts import names, promotion, states
from tidegate.kernel import model


class ChannelPromotion(Struct, frozen=True, kw_only=True):
    """The result of a promotion or a rollback."""

    channel: str
    release_id: str
    rollout_id: str
    superseded_rollout_id: str | None
    warnings: tuple[str, ...]  # what a person should know before hosts get the release
    position: model.Position
    waits: bool = False  # its orders wait for an edge, a freeze, a hold or a window


class PromotionOperations:
    """Promote a release on a channel, and roll a channel back.

    Each runs in the lane of the rollout that it replaces, ahead of the reports that wait there. It
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
        self.preview = promotion_preview.PromotionPreview(reads, promotions, guard)

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
        """Pin the channel to a release and open its rollout, in one commit. With ``refresh``,
        confirm the pinned release with new evidence and open no rollout. ``overrides`` are gates
        that the rollout passes; they need the permission emergency. No order is sent before
        ``start_at``.

        Raises:
            ReleaseNotPinned. InvalidInput: ``start_at`` is in the past, or too far ahead.
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
            start_at = None  # the approval came after the requested start
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
                raise errors.InvalidInput("an override needs a reason", field="reason")
            if not refresh:
                self._promotions.demand_unquarantined(channel, release_id)

        verb = operation_protection.GuardedVerb(
            step=steps.PROMOTE,
            channels=(channel,),
            arguments=arguments,
            reason=reason,
            emergency=bool(overrides),
            hosts=None if refresh else lambda: self.preview.count_hosts(channel),
            notes=lambda command: (
                () if refresh else self.preview.describe_promotion(channel, release_id)
            ),
            check=check,
            rehearse=lambda: self._promotions.rehearse(asked),
            outline=lambda: self.preview.outline_promotion(asked),
        )

        result = self._guard.run(
            caller,
            verb,
            lambda by: self._promote(by, asked),
            lambda: self._earlier(caller, channel, asked),
        )
        return result if refresh else self._warn_held(result, overrides)

    def _warn_held(
        self, result: ChannelPromotion, passed: tuple[states.OverridableGate, ...]
    ) -> ChannelPromotion:
        """Add to a promotion's warnings what its orders wait for."""
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
        """Return the result of this request's first copy; None: this is the first."""
        outcome = self._execute.earlier(promotion.promote_release, asked, caller)
        return None if outcome is None else self._result(channel, outcome)

    def promote_by_policy(
        self,
        caller: callers.Caller,
        found: automation.Promotable,
        channel: str,
        channel_version: model.Position,
    ) -> ChannelPromotion:
        """Promote a release that passes every edge, on a channel with ``auto_promote``. The worker
        calls this as the person who enabled it. ``channel_version`` is the version of the channel's
        row from which the release was chosen.

        Raises:
            StaleVersion: the channel changed. SecondPersonNeeded: a request was made instead.
        """
        caller.demand(steps.PROMOTE, scopes.channel_scope(channel))
        asked = Promote(
            channel=channel,
            release_id=found.release_id,
            command_id=ids.make_id(caller, steps.PROMOTE, "command"),
            by=caller.id,
            authority=promotion_evidence.success_authority(
                found.proved_by, found.digest, self._promotions.now()
            ),
            channel_version=channel_version,
            automatic=states.PolicyAction.AUTO_PROMOTE,
            reason=found.reason,
        )
        verb = operation_protection.GuardedVerb(
            step=steps.PROMOTE,
            channels=(channel,),
            arguments={"release_id": found.release_id, "reason": found.reason},
            reason=found.reason,
            hosts=lambda: self.preview.count_hosts(channel),
            rehearse=lambda: self._promotions.rehearse(asked),
        )

        return self._guard.run(
            caller,
            verb,
            lambda by: self._promote(by, asked),
            lambda: None,  # a repeat fails on the version of the channel
        )

    def roll_back_by_policy(
        self, caller: callers.Caller, channel: str, channel_version: model.Position, reason: str
    ) -> ChannelPromotion:
        """Roll back a channel with ``auto_rollback``, on all hosts in one wave. The worker calls
        this as the person who enabled it.

        Raises:
            StaleVersion: the channel changed. NothingToGoBackTo.
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
        """Roll back to a release of the channel's ladder, and mark the pinned release as bad. The
        orders wait for freezes and a hold; the warnings say so.

        ``now``: on all hosts at once, and pass freezes and holds. ``ignore_budgets``: exceed
        budgets too. ``lift_quarantine``: lift that of the release ``to``, in the same commit.

        Raises:
            NothingToGoBackTo, NotOnLadder. InvalidInput: options that cannot be combined.
        """
        scope = scopes.channel_scope(channel)
        caller.demand(steps.ROLL_BACK, scope)
        if now:
            caller.demand(steps.ROLL_BACK_NOW, scope)
        if lift_quarantine:
            caller.demand(steps.LIFT_QUARANTINE, scope)
        if ignore_budgets and not now:
            raise errors.InvalidInput("budgets are ignored by a rollback now alone", field="now")
        if lift_quarantine and to is None:
            raise errors.InvalidInput("name the release whose quarantine is lifted", field="to")
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
        chosen: list[str] = []  # for a request or break-glass; empty: the commit chooses

        def choose() -> dict[str, str]:
            rung = self._promotions.choose_rung(channel, to, now=now, ignore_budgets=ignore_budgets)
            chosen[:] = [rung.release_id]
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

        # A plain rollback takes one person. Promoting the bad release again takes two.
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
            hosts=lambda: self.preview.count_hosts(channel, rollback=True, now=now),
            notes=lambda command: self.preview.describe_rollback(
                channel, command["to"], now=now, ignore_budgets=ignore_budgets
            ),
            check=lambda: self._demand_seen(caller, channel),
            rehearse=lambda: self._promotions.rehearse_rollback(asked, chosen[0]),
            alone=lambda command: self.find_alternatives(channel, command)[0],
            at_once=lambda command: self.find_alternatives(channel, command)[1],
        )
        return self._warn(self._guard.run(caller, verb, go, go_plainly), now=now)

    def find_alternatives(
        self, channel: str, command: Mapping[str, Any]
    ) -> tuple[operation_protection.Alternative | None, str]:
        """Find the plain rollback in place of one that reaches all hosts now, and the command that
        breaks the glass. ``command``: the arguments of the request.
        """
        if not command.get("now"):
            return None, ""
        to = command["to"]
        asked = RollBackChannel(
            channel=channel,
            command_id="",
            by="",
            to=to,
            now=True,
            ignore_budgets=bool(command.get("ignore_budgets")),
            lift_quarantine=bool(command.get("lift_quarantine")),
        )
        plain = None if asked.lift_quarantine else self.preview.describe_plain(channel, to)
        return plain, promotion_preview.spell_rollback(asked, "--break-glass")

    def _warn(self, result: ChannelPromotion, *, now: bool) -> ChannelPromotion:
        waits = self.preview.list_waits(result.channel, result.rollout_id, now)
        is_held = bool(waits) and not now
        return structs.replace(result, warnings=(*result.warnings, *waits), waits=is_held)

    def _promote(self, caller: callers.Caller, asked: Promote) -> ChannelPromotion:
        run = lambda: self._promotions.promote(  # noqa: E731
            asked,
            meta=caller.meta,
            key=caller.commit_key,
            alongside=caller.alongside,
            dry_run=caller.dry_run,
        )
        return self._open_rollout(caller, asked.channel, run)

    def _open_rollout(
        self, caller: callers.Caller, channel: str, run: Callable[[], CommandOutcome]
    ) -> ChannelPromotion:
        active = self._demand_seen(caller, channel).active_rollout_id
        outcome = run() if active is None else self._lanes.run(active, run)
        self._manifests.publish_promoted(channel, by=caller.id)
        self._execute.notify()
        return self._result(channel, outcome)

    def _counter_seen(self, caller: callers.Caller, channel: str) -> int | None:
        """Return the counter of the pin at the log position that the caller saw."""
        if caller.expected_version is None:
            return None
        found = pinned_at(self._history, channel, caller.expected_version)
        return None if found is None else found.row.version

    def _demand_seen(self, caller: callers.Caller, channel: str) -> channel_rows.Channel:
        """Return the channel, if it or its pin still has the version that the caller saw.

        Raises:
            StaleVersion, ChannelNotFound.
        """
        found = self._reads.demand(
            channel_rows.channel_key(channel),
            channel_rows.Channel,
            refusals.ChannelNotFound(channel),
        )
        if caller.expected_version is not None:
            pin = self._reads.find(actual_key(channel), Actual)
            if caller.expected_version not in (found.version, 0 if pin is None else pin.version):
                raise errors.StaleVersion(caller.expected_version, found.version)
        return found.row

    def _result(self, channel: str, outcome: CommandOutcome) -> ChannelPromotion:
        answer = decoders.decoder(promotion.PromotionResult).decode(outcome.answer or b"{}")
        rollout_id = answer.rollout_id
        if rollout_id is None:  # a repeat without a key: the first copy opened the newest rollout
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
