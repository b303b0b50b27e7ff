"""Join tokens: made, listed and revoked. Each enrolls many new hosts and is shown once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

from msgspec import Meta

from tidegate.clock import Clock
from tidegate.control.operations.join_tokens import JoinTokenOperations, MadeJoinToken
from tidegate.control.queries.reads import Reads
from tidegate.dashboard import components, forms, layout as dashboard_layout
from tidegate.dashboard.view_models import form_screens, host_screens
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.fleet.joins import JOIN_HOSTS_MAX, JOIN_LIFE_MAX, JOIN_TOKENS, JoinToken
from tidegate.errors import TidegateError
from tidegate.web import inputs, routing

HERE: Final = "/joins"
TOKENS_MAX = 200
CRUMBS = (components.Link("Hosts", "/hosts"), components.Link("Join tokens", HERE))
USABLE = components.Chip("key", "good", "Usable")
USED_UP = components.Chip("check", "gone", "Used up", "it enrolled as many hosts as it may")
OVER = components.Chip("clock", "gone", "Over", "its time is over")


class NewJoinForm(inputs.Input, frozen=True, kw_only=True):
    limit: forms.Typed
    until: forms.Typed
    labels: forms.Typed = ""
    do: forms.Typed = "save"


class DeleteJoinForm(inputs.Input, frozen=True, kw_only=True):
    join_id: Annotated[str, Meta(min_length=1, max_length=64)]


@dataclass(frozen=True)
class JoinPages:
    """Builds the list of join tokens, and the form of a new one."""

    reads: Reads
    clock: Clock
    layout: dashboard_layout.Layout

    def page(
        self, request: routing.Request[Any, Any, Any], made: MadeJoinToken | None = None
    ) -> dashboard_layout.PageView:
        people = self.layout.names(request)
        found = self.reads.range(JOIN_TOKENS, limit=TOKENS_MAX)
        rows = sorted((item.row for item in found), key=lambda row: row.created_at, reverse=True)
        lines = tuple(
            host_screens.JoinLine(
                join_id=row.join_id,
                chip=self._chip(row),
                labels=tuple(f"{key}={value}" for key, value in sorted(row.labels.items())),
                enrolled=row.enrolled,
                limit=row.limit,
                until=row.until,
                by=people(row.operator),
                delete=_delete(request.caller, row, number),
            )
            for number, row in enumerate(rows)
        )
        create = components.LinkButton(
            id="create",
            label="New join token",
            icon="plus",
            href="/new/join",
            why=request.caller.why_not(steps.CREATE_JOIN_TOKEN, roles.EVERYWHERE),
            first=True,
        )
        return dashboard_layout.PageView(
            template="joins.html",
            address="/joins",
            title="Join tokens",
            here="/hosts",
            view=host_screens.Joins(
                lines=lines,
                create=create,
                secret="" if made is None else made.token,
                made="" if made is None else made.join_id,
            ),
            crumbs=CRUMBS,
            verbs=tuple(line.delete for line in lines),
            still=made is not None,
        )

    def _chip(self, row: JoinToken) -> components.Chip:
        if row.until <= self.clock():
            return OVER
        return USABLE if row.enrolled < row.limit else USED_UP

    def form(self) -> form_screens.FormPage:
        tomorrow = self.clock() + timedelta(days=1)
        return form_screens.FormPage(
            title="New join token",
            text="Agents enroll new hosts with it, until it is used up or over. It never takes the "
            "name of a host that exists.",
            action="/new/join",
            back=HERE,
            fields=(
                components.Field(
                    name="labels",
                    label="Labels of its hosts",
                    placeholder="env=prod, app=web",
                    hint="Selectors of channels match them.",
                ),
                components.Field(
                    name="limit",
                    label="Hosts at most",
                    kind="number",
                    value="10",
                    required=True,
                    hint=f"1 to {JOIN_HOSTS_MAX:,}.",
                ),
                components.Field(
                    name="until",
                    label="Until, UTC",
                    kind="datetime-local",
                    value=f"{tomorrow:%Y-%m-%dT%H:%M}",
                    required=True,
                    hint=f"At most {JOIN_LIFE_MAX.days} days ahead.",
                ),
            ),
            submits=(components.Option("save", "Create", "key"),),
        )


def _delete(caller: callers.Caller, row: JoinToken, number: int) -> components.VerbButton:
    return components.VerbButton(
        id=f"delete-join-{number}",
        label="Revoke",
        icon="trash",
        action="/joins/delete",
        title=f"Revoke {row.join_id}?",
        text="It enrolls no more hosts. Those that it enrolled stay.",
        fields=(components.Field(name="join_id", kind="hidden", value=row.join_id),),
        why=caller.why_not(steps.DELETE_JOIN_TOKEN, roles.EVERYWHERE),
        danger=True,
    )


def _form_page(form: form_screens.FormPage) -> dashboard_layout.PageView:
    return forms.form_page(form, "/hosts", *CRUMBS)


def _read_labels(reader: forms.FormReader, text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for part in reader.names(text):
        key, equals, value = part.partition("=")
        if not equals:
            reader.refuse("labels", f"has {part[:80]!r}; write key=value")
        labels[key] = value
    return labels


def index(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    pages: JoinPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List the join tokens, without their secrets."""
    return layout.answer(request, pages.page(request))


def show_new_join(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    pages: JoinPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a new join token."""
    return layout.answer(request, _form_page(pages.form()))


def create_join(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewJoinForm],
    join_tokens: JoinTokenOperations,
    pages: JoinPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Make a join token. Only the page that responds shows it."""
    body = request.body
    try:
        reader = forms.FormReader()
        labels = _read_labels(reader, body.labels)
        limit = reader.number("limit", body.limit, 1, JOIN_HOSTS_MAX)
        until = reader.moment("until", body.until)
        reader.check()
        made, _ = join_tokens.create(request.caller, labels, limit, until)
    except TidegateError as error:
        typed = forms.fill_typed(pages.form(), request)
        form = forms.mark(typed, error, {"invalid_label": "labels"})
        return layout.answer(request, _form_page(form), problem=error)
    return layout.answer(request, pages.page(request, made))


def delete(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, DeleteJoinForm],
    join_tokens: JoinTokenOperations,
    pages: JoinPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Delete a join token; it enrolls no more hosts."""
    run = partial(join_tokens.delete, request.caller, request.body.join_id)
    return layout.attempt(request, run, HERE, "join revoked", partial(pages.page, request))


ROUTES = (
    dashboard_layout.page_route(HERE, index, routing.requires(roles.Verb.READ)),
    dashboard_layout.page_route(
        "/new/join", show_new_join, routing.requires_step(steps.CREATE_JOIN_TOKEN)
    ),
    dashboard_layout.step_route("/new/join", create_join, steps.CREATE_JOIN_TOKEN),
    dashboard_layout.step_route("/joins/delete", delete, steps.DELETE_JOIN_TOKEN),
)
