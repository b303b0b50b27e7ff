"""What a person should know before a promotion or a rollback."""

from __future__ import annotations

from datetime import datetime

from tidegate.control.operations import promotion_planning, protection as operation_protection
from tidegate.control.queries.reads import Reads
from tidegate.domain import planner, times
from tidegate.domain.releases.rows import Actual, actual_key
from tidegate.domain.rollouts import names, states
from tidegate.errors import Refused


class PromotionPreview:
    """Describes what a promotion or a rollback would do now, and what would hold it."""

    def __init__(
        self,
        reads: Reads,
        promotions: promotion_planning.Promotions,
        guard: operation_protection.ProtectionGuard,
    ) -> None:
        self._reads = reads
        self._promotions = promotions
        self._guard = guard

    def describe_promotion(self, channel: str, release_id: str) -> tuple[str, ...]:
        """Describe a promotion in advance: an earlier failure of the release here, what would hold
        it now, and how many hosts get it.
        """
        promotions = self._promotions
        made = promotions.plan(channel).plan
        return (
            *promotions.describe_bad_end(channel, release_id),
            *self._describe_holds(made, release_id, promotions.now()),
            _describe_hosts(made.hosts),
        )

    def outline_promotion(self, asked: promotion_planning.Promote) -> tuple[str, ...]:
        """Say in advance what a promotion would do: which release it replaces, which waves of
        hosts it would reach, and what would hold it now.
        """
        promotions, channel, release_id = self._promotions, asked.channel, asked.release_id
        if asked.refresh:
            return (f"{release_id} would get new evidence on {channel}; no rollout would open",)
        found = self._reads.find(actual_key(channel), Actual)
        before = None if found is None else found.row.pinned_release_id
        if before == release_id:
            moves = f"{release_id} would be rolled out again on {channel}"
        elif before is None:
            moves = f"{release_id} would be the first release on {channel}"
        else:
            moves = f"{release_id} would replace {before} on {channel}"
        made = promotions.plan(channel).plan
        start = asked.start_at or promotions.now()
        at = f"It would send no order before {times.describe_time(start)}"
        return (
            moves,
            _describe_waves(made),
            *([at] if asked.start_at else ()),
            *(f"Wave {name} takes no host now" for name in made.empty_waves),
            *promotions.describe_bad_end(channel, release_id),
            *self._describe_holds(made, release_id, start, asked.overrides),
        )

    def _describe_holds(
        self,
        made: planner.Plan,
        release_id: str,
        start: datetime,
        passed: tuple[states.OverridableGate, ...] = (),
    ) -> tuple[str, ...]:
        """Describe what would hold the orders of a promotion, except the gates that it passes."""
        gates, promotions = states.OverridableGate, self._promotions
        edges = promotions.list_shut_edges(made.channel, release_id)
        found = (
            *(() if gates.EDGES in passed else edges),
            *promotions.waits(made.channel, passed=passed),
            *(() if gates.WINDOW in passed else self._list_windows(made, start)),
        )
        return tuple(f"Its orders would wait. {text}" for text in found)

    def _list_windows(self, plan: planner.Plan, start: datetime) -> tuple[str, ...]:
        """List which windows would hold waves of a plan that starts then."""
        starts = self._promotions.list_earliest(plan, start)
        return tuple(dict.fromkeys(wave.sentence for wave in starts if wave.sentence))

    def describe_rollback(
        self, channel: str, to: str | None, *, now: bool, ignore_budgets: bool = False
    ) -> tuple[str, ...]:
        """Describe which release a rollback would choose now, and how many hosts get it."""
        try:
            rung = self._promotions.choose_rung(channel, to, now=now, ignore_budgets=ignore_budgets)
        except Refused as error:
            return (f"It cannot be carried out now. {error.detail}",)
        succeeded_at = times.describe_time(rung.succeeded_at)
        return (
            f"It goes to {rung.release_id}, which succeeded here at {succeeded_at}",
            _describe_hosts(self.count_hosts(channel, rollback=True, now=now)),
        )

    def count_hosts(self, channel: str, *, rollback: bool = False, now: bool = False) -> int:
        """Count the hosts that a rollout of the channel would reach now."""
        return self._promotions.plan(channel, rollback=rollback, emergency=now).plan.hosts

    def check_plan(self, channel: str, *, rollback: bool) -> None:
        """Check that an automatic rollout of the channel can be planned now.

        Raises:
            ChannelNotFound, MalformedPolicy, InvalidSelector, LimitExceeded.
        """
        self._promotions.plan(channel, rollback=rollback, automatic=True)

    def warn_before_rollback(self, channel: str, *, now: bool) -> tuple[str, ...]:
        """Describe a rollback in advance: how it reaches the hosts, what holds it or what it
        passes, and which permission it needs.

        Raises:
            ChannelNotFound.
        """
        waits = self.list_waits(channel, None, now)
        if not now:
            return waits
        hosts = self.count_hosts(channel, rollback=True, now=True)
        all_hosts = "1 host" if hosts == 1 else f"all {hosts} hosts"
        return (
            f"It goes to {all_hosts} at once, without soak; budgets still apply",
            *waits,
            f"It needs {self._needs(channel)}",
        )

    def list_waits(self, channel: str, rollout_id: str | None, now: bool) -> tuple[str, ...]:
        """List what a rollback waits for or passes; windows by its plan if none is open."""
        if now:
            found = self._promotions.waits(channel, rollout_id, what="other orders")
            return tuple(f"{text}; this rollback passes it" for text in found)
        found = self._promotions.waits(channel, rollout_id)
        if rollout_id is None:
            planned = self._promotions.plan(channel, rollback=True)
            found = (*found, *self._list_windows(planned.plan, self._promotions.now()))
        to = "" if rollout_id is None else f"--to {names.ref_of(rollout_id)} "
        hint = (
            f"To go back in spite of it: tidegate channel rollback {channel} {to}--now --reason … "
            f"(needs {self._needs(channel)})"
        )
        return () if not found else (*found[:-1], f"{found[-1]}. {hint}")

    def _needs(self, channel: str) -> str:
        """Describe the permission and the people that a rollback with ``--now`` needs."""
        protection = self._guard.protection_of(channel)
        if protection is None:
            return "emergency"
        if not protection.break_glass:
            return f"emergency; {channel} is protected: also a second person"
        return f"emergency; {channel} is protected: also a second person, or --break-glass"

    def describe_plain(self, channel: str, to: str) -> operation_protection.Alternative | None:
        """Describe the rollback that needs no second person; None: none, or it is already under
        way.
        """
        pin = self._reads.find(actual_key(channel), Actual)
        is_wanted = pin is not None and pin.row.pinned_release_id == to
        if is_wanted or self._promotions.was_left(channel, to):
            return None
        plain = promotion_planning.RollBackChannel(channel=channel, command_id="", by="", to=to)
        says = "A rollback in waves, which freezes and windows hold, needs no second person"
        return operation_protection.Alternative(says, spell_rollback(plain))


def _describe_hosts(count: int) -> str:
    return f"It reaches {count:,} host{'' if count == 1 else 's'}"


def _describe_waves(made: planner.Plan) -> str:
    """Describe how many hosts a plan reaches, and in which waves."""
    hosts = f"It would reach {made.hosts:,} host{'' if made.hosts == 1 else 's'}"
    waves = ", ".join(f"{wave.name} ({len(wave.hosts):,})" for wave in made.waves)
    count = len(made.waves)
    return f"{hosts} in {count} wave{'' if count == 1 else 's'}: {waves}" if waves else hosts


def spell_rollback(asked: promotion_planning.RollBackChannel, *more: str) -> str:
    """Write this rollback as a command line."""
    flags = {
        "--now": asked.now,
        "--ignore-budgets": asked.ignore_budgets,
        "--lift-quarantine": asked.lift_quarantine,
    }
    to = () if asked.to is None else ("--to", asked.to)
    is_set = (name for name, value in flags.items() if value)
    return " ".join(("tidegate channel rollback", asked.channel, *to, *is_set, "--reason …", *more))
