"""Requests on protected channels as pages show them, with the verbs that make sense for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from tidegate.control.operations.protection import ProtectionGuard
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import components, layout, state_labels
from tidegate.dashboard.view_models import channel_screens
from tidegate.domain.access import callers, roles, scopes, steps
from tidegate.domain.releases.rows import KnownRelease, known_key
from tidegate.domain.requests import rows, states as request_states, words

REQUESTS_MAX = 100  # on one page


class RequestLines:
    """Builds the lines of one page. What several of them need is read once."""

    def __init__(
        self,
        reads: Reads,
        guard: ProtectionGuard,
        caller: callers.Caller,
        people: layout.UserDirectory,
        now: datetime,
    ) -> None:
        self._reads = reads
        self._guard = guard
        self._caller = caller
        self._people = people
        self._now = now

    def list_open(self) -> tuple[channel_screens.ChannelRequestLine, ...]:
        """The requests that wait for a decision, newest first."""
        return self._list(request_states.RequestState.WAITING, request_states.RequestState.APPROVED)

    def list_to_review(self) -> tuple[channel_screens.ChannelRequestLine, ...]:
        """Uses of break-glass that are not reviewed yet."""
        return self._list(request_states.RequestState.TO_REVIEW)

    def list_ended(self) -> tuple[channel_screens.ChannelRequestLine, ...]:
        """The requests that were decided, newest first."""
        found = self._reads.newest(rows.REQUESTS, "by_making", limit=REQUESTS_MAX)
        decided = [
            item
            for item in found
            if item.row.state not in (*request_states.OPEN, request_states.RequestState.TO_REVIEW)
        ]
        return self._lines(decided)

    def _list(
        self, *states: request_states.RequestState
    ) -> tuple[channel_screens.ChannelRequestLine, ...]:
        found: list[Found[rows.ChannelRequest]] = []
        for state in states:
            found += self._reads.newest(
                rows.REQUESTS, "by_state", of=(str(state),), limit=REQUESTS_MAX
            )
        return self._lines(sorted(found, key=lambda item: item.row.made_at, reverse=True))

    def _lines(
        self, found: Sequence[Found[rows.ChannelRequest]]
    ) -> tuple[channel_screens.ChannelRequestLine, ...]:
        principal = self._caller.principal
        return tuple(
            self.line(item)
            for item in found
            if principal.may(roles.Verb.READ, scopes.channel_scope(item.row.channel))
        )

    def line(
        self, found: Found[rows.ChannelRequest], hosts: int | None = None
    ) -> channel_screens.ChannelRequestLine:
        """One request, compared with its channel as it is now. ``hosts``: how many hosts the plan
        has, if that changed; the approver confirms it.
        """
        row = found.row
        shown = self._guard.show(found)
        is_late = (
            row.state in request_states.OPEN
            and row.expires_at is not None
            and row.expires_at <= self._now
        )
        state = request_states.RequestState.EXPIRED if is_late else row.state
        return channel_screens.ChannelRequestLine(
            request_id=row.request_id,
            channel=row.channel,
            title=title_of(row),
            chip=state_labels.REQUESTS[state],
            by=self._people(row.by),
            at=row.made_at,
            reason=row.reason,
            changes=shown.changes,
            approvals=self._approvals(row),
            approvers=", ".join(self._people(person.user_id) for person in shown.approvers)
            if row.state is request_states.RequestState.WAITING
            or row.state is request_states.RequestState.TO_REVIEW
            else "",
            links=self._links(row),
            digest=row.digest,
            command=msgspec.json.format(msgspec.json.encode(row.command), indent=2).decode(),
            expires_at=row.expires_at if row.state in request_states.OPEN else None,
            ended=self._ended(row),
            verbs=() if is_late else tuple(self._verbs(row, hosts)),
        )

    def _approvals(self, row: rows.ChannelRequest) -> str:
        if row.seen is None:
            return ""
        needed = row.approvals_needed
        by = ", ".join(map(self._people, row.approvals))
        sentence = f"{len(row.approvals)} of {needed} approval{'' if needed == 1 else 's'}"
        return f"{sentence}: {by}" if by else sentence

    def _ended(self, row: rows.ChannelRequest) -> str:
        if not row.ended_by or row.state in request_states.OPEN:
            return ""
        verdict = "accepted" if row.accepted else "disputed"
        verdict = "" if row.accepted is None else verdict
        parts = [self._people(row.ended_by), verdict, row.ended_reason]
        return ": ".join(part for part in parts if part)

    def _links(self, row: rows.ChannelRequest) -> tuple[components.Link, ...]:
        """Links to what an approver checks first."""
        links = [components.Link(f"Channel {row.channel}", f"/channels/{row.channel}")]
        release = row.command.get("release_id") or row.command.get("to")
        if release:
            known = self._reads.find(known_key(release), KnownRelease)
            if known is not None and known.row.revision:
                links.append(
                    components.Link(f"What {release} changes", f"/revisions/{known.row.revision}")
                )
        if row.kind == steps.PROMOTE.name and row.state in request_states.OPEN:
            plan = f"/plan?channel={row.channel}&release={release}"
            links.append(components.Link("Current plan", plan))
        if rollout_id := row.command.get("rollout_id"):
            links.append(components.Link(rollout_id, f"/rollouts/{rollout_id}"))
        return tuple(links)

    # ── verbs ──

    def _verbs(self, row: rows.ChannelRequest, hosts: int | None) -> list[components.VerbButton]:
        own = row.by == self._caller.id
        match row.state:
            case request_states.RequestState.WAITING:
                decide = [self._approve(row, hosts), self._reject(row)]
                return [*decide, self._withdraw(row)] if own else decide
            case request_states.RequestState.APPROVED:
                decide = [self._run(row, hosts), self._reject(row)]
                return [*decide, self._withdraw(row)] if own else decide
            case request_states.RequestState.TO_REVIEW:
                return [self._review(row, accepted=True), self._review(row, accepted=False)]
        return []

    def _why_not(self, step: steps.Step, row: rows.ChannelRequest) -> str:
        return self._caller.why_not(step, scopes.channel_scope(row.channel))

    def _why_not_other(self, step: steps.Step, row: rows.ChannelRequest, verb: str) -> str:
        """As ``_why_not``, for steps that only another person may take."""
        why = self._why_not(step, row)
        if not why and row.by == self._caller.id:
            why = f"You made this request; another person must {verb} it."
        until = self._caller.principal.approvals_barred_until
        if not why and until is not None:
            why = f"Your password was reset; you approve nothing until {until:%d %b %H:%M} UTC."
        return why

    def _approve(self, row: rows.ChannelRequest, hosts: int | None) -> components.VerbButton:
        last = len(row.approvals) + 1 >= row.approvals_needed
        why = self._why_not_other(steps.APPROVE_REQUEST, row, "approve")
        if not why and self._caller.id in row.approvals:
            why = "You approved it already."
        return components.VerbButton(
            id=f"approve-{row.request_id}",
            label="Approve",
            icon="check",
            action="/approvals/approve",
            title=f"{title_of(row)}?",
            text="It is carried out at once, as the person who asked for it."
            if last
            else "More people must approve it before it is carried out.",
            fields=(
                *_request_fields(row),
                _hidden("digest", row.digest or "-"),
                *_hosts_fields(hosts),
                layout.OPTIONAL_REASON,
            ),
            why=why,
            first=True,
        )

    def _reject(self, row: rows.ChannelRequest) -> components.VerbButton:
        return components.VerbButton(
            id=f"reject-{row.request_id}",
            label="Reject",
            icon="cross",
            action="/approvals/reject",
            title=f"Reject {row.request_id}?",
            text="Nothing is changed. The person who asked sees your reason.",
            fields=(*_request_fields(row), layout.REASON),
            why=self._why_not(steps.REJECT_REQUEST, row),
            danger=True,
        )

    def _withdraw(self, row: rows.ChannelRequest) -> components.VerbButton:
        return components.VerbButton(
            id=f"withdraw-{row.request_id}",
            label="Withdraw",
            icon="undo",
            action="/approvals/withdraw",
            title=f"Take {row.request_id} back?",
            fields=(*_request_fields(row), layout.OPTIONAL_REASON),
            why=self._why_not(steps.WITHDRAW_REQUEST, row),
        )

    def _run(self, row: rows.ChannelRequest, hosts: int | None) -> components.VerbButton:
        return components.VerbButton(
            id=f"run-{row.request_id}",
            label="Run",
            icon="play",
            action="/approvals/run",
            title=f"{title_of(row)} now?",
            text="Enough people approved it. It is carried out as the person who asked for it.",
            fields=(*_request_fields(row), *_hosts_fields(hosts)),
            why=self._why_not(steps.RUN_REQUEST, row),
            first=True,
        )

    def _review(self, row: rows.ChannelRequest, *, accepted: bool) -> components.VerbButton:
        name = "accept" if accepted else "dispute"
        return components.VerbButton(
            id=f"{name}-{row.request_id}",
            label=name.capitalize(),
            icon="check" if accepted else "cross",
            action="/approvals/review",
            title="Was it right?" if accepted else "Was it wrong?",
            text="Your review undoes nothing. It is recorded in the log.",
            fields=(
                *_request_fields(row),
                _hidden("accepted", str(accepted).lower()),
                layout.REASON,
            ),
            why=self._why_not_other(steps.REVIEW_REQUEST, row, "review"),
            danger=not accepted,
            first=accepted,
        )


def _request_fields(row: rows.ChannelRequest) -> tuple[components.Field, ...]:
    return (_hidden("request_id", row.request_id),)


def _hosts_fields(hosts: int | None) -> tuple[components.Field, ...]:
    return () if hosts is None else (_hidden("hosts", str(hosts)),)


def title_of(row: rows.ChannelRequest) -> str:
    """What a request asks for, as a title."""
    sentence = words.describe_request(row.kind, row.channel, row.command)
    return sentence[:1].upper() + sentence[1:]


def _hidden(name: str, value: str) -> components.Field:
    return components.Field(name=name, kind="hidden", value=value)
