"""What channels do automatically: the worker executes it, and people see it in advance.

channel, pin, newest rollout, ladder of the preceding channel, request ──▶ domain.automation
    ──▶ PromotionOperations, as the person who enabled it, with their current permissions
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from tidegate.clock import Clock
from tidegate.control.fleet.reader import FleetReader
from tidegate.control.operations.promotion import PromotionOperations
from tidegate.control.operations.protection import request_id_of
from tidegate.control.queries import people, request_changes
from tidegate.control.queries.ladder import Ladder, read_ladder
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import callers, scopes, second_person, steps
from tidegate.domain.channels import facts, rows as channel_rows
from tidegate.domain.channels.ladder import choose_rung
from tidegate.domain.gates import automation, inputs
from tidegate.domain.gates.edges import WaitingRelease, judge_edge
from tidegate.domain.releases import catalog, rows as release_rows
from tidegate.domain.requests import rows as request_rows, states as request_states
from tidegate.domain.rollouts import rows as rollout_rows, states as rollout_states
from tidegate.errors import Conflict, Forbidden, Invalid, LeaseLost, NotFound, Refused, TooLarge
from tidegate.kernel import codec, slices as kernel_slices

WORKER = "worker"  # who executes it
REQUESTS_MAX = 1_000  # open requests that are read
UNPLANNABLE = (Invalid, TooLarge)  # the policy cannot be applied to the current hosts
# These keep a channel from acting this time: its state changed, or a rule refuses. The next round
# tries again.
NOT_NOW = (Refused, Conflict, Forbidden, NotFound, *UNPLANNABLE)


class AutomationOperations:
    """Acts for channels whose policy says ``auto_promote`` or ``auto_rollback``."""

    def __init__(
        self,
        reader: FleetReader,
        reads: Reads,
        promotion: PromotionOperations,
        principals: people.Principals,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._reads = reads
        self._promotion = promotion
        self._principals = principals
        self._clock = clock

    def show(self, channel: channel_rows.Channel) -> tuple[automation.Automation, ...]:
        """Return what the channel will do in the worker's next round, or why nothing."""
        found = []
        if channel.policy.auto_promote:
            judged = self._judge_promotion(channel).shown
            found.append(self._planned(channel, judged, "Auto-promotion"))
        if channel.policy.auto_rollback:
            judged = self._judge_rollback(channel)[0]
            found.append(self._planned(channel, judged, "Auto-rollback"))
        return tuple(found)

    def _planned(
        self, channel: channel_rows.Channel, judged: automation.Automation, what: str
    ) -> automation.Automation:
        """Return the automation if its rollout can be planned; else the reason why not."""
        if judged.release_id is None:
            return judged
        try:
            self._promotion.preview.check_plan(
                channel.channel, rollback=judged.action is rollout_states.PolicyAction.AUTO_ROLLBACK
            )
        except UNPLANNABLE as error:
            return _silenced(judged, f"{what} on {channel.channel} waits: {error.detail}")
        return judged

    def act(
        self,
        seen: inputs.Versioned[channel_rows.Channel],
        alongside: kernel_slices.Alongside | None = None,
    ) -> str | None:
        """Do what the channel's policy asks for now. ``alongside`` goes into the same commit.

        Returns:
            The rollout that was opened, or None.

        Raises:
            LeaseLost: another process became the leader. Unavailable, Unknown.
        """
        channel = seen.row
        try:
            if channel.policy.auto_rollback:
                judged, reason = self._judge_rollback(channel)
                if judged.release_id is not None:
                    caller = self._caller(channel, steps.ROLL_BACK, alongside, reason)
                    opened = self._promotion.roll_back_by_policy(
                        caller, channel.channel, seen.version, reason
                    )
                    return opened.rollout_id
            if channel.policy.auto_promote:
                promotion = self._judge_promotion(channel)
                if promotion.promotable is not None:
                    release_id = promotion.promotable.release_id
                    caller = self._caller(channel, steps.PROMOTE, alongside, release_id)
                    opened = self._promotion.promote_by_policy(
                        caller, promotion.promotable, channel.channel, seen.version
                    )
                    return opened.rollout_id
        except second_person.SecondPersonNeeded:
            return None  # it became a request for a second person
        except LeaseLost:
            raise
        except NOT_NOW:
            return None
        return None

    # ── promote ──

    def _judge_promotion(self, channel: channel_rows.Channel) -> automation.AutoPromotion:
        pin = self._reader.row(release_rows.actual_key(channel.channel), release_rows.Actual)
        pinned = None if pin is None else pin.row.pinned_release_id
        judged = automation.judge_promotion(
            channel,
            pinned,
            self._newest(channel),
            self._open_request(channel),
            tuple(self._candidates(channel, pinned)),
        )
        refusal = self._why_not(channel, steps.PROMOTE, "Auto-promotion")
        return judged if not refusal else automation.AutoPromotion(_silenced(judged.shown, refusal))

    def _candidates(
        self, channel: channel_rows.Channel, pinned: str | None
    ) -> Iterator[automation.Candidate]:
        """Return the releases newer than the pinned one that succeeded on the channel of the first
        edge that requires a success: no other release passes that edge.
        """
        edges = channel.policy.edges
        first = next(edge for edge in edges if edge.require is facts.EdgeRequires.SUCCEEDED)
        before = self._reader.row(channel_rows.channel_key(first.channel), channel_rows.Channel)
        now = self._clock()
        for rung in () if before is None else before.row.ladder:
            if automation.number_of(rung.release_id) <= automation.number_of(pinned):
                continue
            waits = WaitingRelease(channel.channel, rung.release_id)
            verdicts = (
                judge_edge(
                    edge, waits, self._reader.preceding(edge, rung.release_id, rung.digest), now
                )
                for edge in edges
            )
            yield automation.Candidate(
                release_id=rung.release_id,
                digest=rung.digest,
                proved_by=rung.rollout_id,
                refusal=self._refusal(channel, rung),
                edges=tuple(zip(edges, verdicts, strict=True)),
            )

    def _refusal(self, channel: channel_rows.Channel, rung: channel_rows.Rung) -> str:
        """Return why the channel does not promote this release automatically; empty: it may."""
        name, release_id = channel.channel, rung.release_id
        quarantined, known, standing = self._reader.many(
            (channel_rows.quarantine_key(name, rung.digest), channel_rows.Quarantined),
            (release_rows.known_key(release_id), release_rows.KnownRelease),
            (rollout_rows.standing_key(name, release_id), rollout_rows.ReleaseStanding),
        )
        if quarantined is not None:
            return f"{release_id} is quarantined on {name}"
        if known is None or known.row.lifecycle not in catalog.PINNABLE:
            return f"{release_id} was withdrawn"
        if standing is not None and standing.row.word is rollout_states.Word.BAD:
            return f"{release_id} failed on {name} before, or {name} was rolled back from it"
        if channel.protection is None:
            return ""
        made = self._reads.find(
            request_rows.request_key(
                request_id_of(self._caller(channel, steps.PROMOTE, None, release_id), steps.PROMOTE)
            ),
            request_rows.ChannelRequest,
        )
        if made is None:
            return ""
        return f"request {made.row.request_id} for {release_id} is {made.row.state}"

    def _open_request(self, channel: channel_rows.Channel) -> str | None:
        """Return the id of an open request on the channel that can still be executed."""
        if channel.protection is None:
            return None
        now = self._clock()
        for state in sorted(request_states.OPEN):
            for found in self._reads.newest(
                request_rows.REQUESTS, "by_state", of=(state,), limit=REQUESTS_MAX
            ):
                row = found.row
                expired = row.expires_at is not None and row.expires_at <= now
                ours = row.channel == channel.channel and not expired
                if ours and not request_changes.find_change(self._reads, row):
                    return str(row.request_id)
        return None

    # ── roll back ──

    def _judge_rollback(self, channel: channel_rows.Channel) -> tuple[automation.Automation, str]:
        """Return the automation to show, and the reason for the log."""
        newest = self._newest(channel)
        ladder: Ladder = read_ladder(self._reader, channel.channel)
        skipped = tuple(item.skipped for item in ladder.rungs if item.skipped)
        judged = automation.judge_rollback(channel, newest, choose_rung(ladder.rungs), skipped)
        refusal = self._why_not(channel, steps.ROLL_BACK, "Auto-rollback")
        if refusal:
            judged = _silenced(judged, refusal)
        host = (
            "" if newest is None or newest.halted_by is None else f"{newest.halted_by} failed in "
        )
        return judged, f"auto_rollback: {host}{'' if newest is None else newest.rollout_id}"

    # ── for whom ──

    def _newest(self, channel: channel_rows.Channel) -> rollout_rows.RolloutTally | None:
        if channel.newest_rollout_id is None:
            return None
        found = self._reader.row(
            rollout_rows.tally_key(channel.newest_rollout_id), rollout_rows.RolloutTally
        )
        return None if found is None else found.row

    def _why_not(self, channel: channel_rows.Channel, step: steps.Step, what: str) -> str:
        if self._caller(channel, step, None, "").may(step, scopes.channel_scope(channel.channel)):
            return ""
        return (
            f"{what} on {channel.channel} is off: who switched it on may not do this any more; "
            "take it out of the policy and put it back: "
            f"tidegate channel edit {channel.channel} --policy FILE"
        )

    def _caller(
        self,
        channel: channel_rows.Channel,
        step: steps.Step,
        alongside: kernel_slices.Alongside | None,
        subject: str,
    ) -> callers.Caller:
        """Return a caller for the person who enabled the automation. Its idempotency key depends on
        the channel's settings and pin, so that a request is made again only if these change.
        """
        by = channel.auto_promote_by if step is steps.PROMOTE else channel.auto_rollback_by
        pin = self._reader.row(release_rows.actual_key(channel.channel), release_rows.Actual)
        guarded = b"" if channel.protection is None else codec.encode(channel.protection)
        settings = b"\n".join((codec.encode(channel.policy), channel.selector.encode(), guarded))
        parts = (step.name, channel.channel, subject, 0 if pin is None else pin.row.version)
        text = "\n".join((*map(str, parts), sha256(settings).hexdigest()))
        return callers.Caller(
            principal=self._principals(by or ""),
            request_id="",
            key=sha256(text.encode()).hexdigest(),
            carried_by=WORKER,
            alongside=alongside,
        )


def _silenced(judged: automation.Automation, sentence: str) -> automation.Automation:
    return automation.Automation(
        action=judged.action, sentence=sentence, switched_on_by=judged.switched_on_by
    )
