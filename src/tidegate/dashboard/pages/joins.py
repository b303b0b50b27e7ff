"""Join tokens: made, listed and revoked. Each enrolls many new hosts; it is shown once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from tidegate.clock import Clock
from tidegate.control.operations.join_tokens import JoinTokenOperations, MadeJoinToken
from tidegate.control.queries.reads import Reads
from tidegate.dashboard.components import Chip, Field, Link, LinkButton, Option, VerbButton
from tidegate.dashboard.forms import FormReader, Typed, fill, mark, typed_of
from tidegate.dashboard.layout import Layout, PageQuery, PageView, page_route, step_route
from tidegate.dashboard.view_models import FormPage, JoinLine, Joins
from tidegate.domain.access import steps
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE, Verb
from tidegate.domain.fleet.joins import JOIN_HOSTS_MAX, JOIN_LIFE_MAX, JOIN_TOKENS, JoinToken
from tidegate.errors import TidegateError
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, requires, requires_step

HERE: Final = "/joins"
TOKENS_MAX = 200
CRUMBS = (Link("Hosts", "/hosts"), Link("Join tokens", HERE))
USABLE = Chip("key", "good", "Usable")
USED_UP = Chip("check", "gone", "Used up", "it enrolled as many hosts as it may")
OVER = Chip("clock", "gone", "Over", "its time is over")


class NewJoinForm(Input, frozen=True, kw_only=True):
    limit: Typed
    until: Typed
    labels: Typed = ""
    do: Typed = "save"


class DeleteJoinForm(Input, frozen=True, kw_only=True):
    join_id: Annotated[str, Meta(min_length=1, max_length=64)]


@dataclass(frozen=True)
class JoinPages:
    """The list of join tokens, and the form of a new one."""

    reads: Reads
    clock: Clock
    layout: Layout

    def page(self, request: Request[Any, Any, Any], made: MadeJoinToken | None = None) -> PageView:
        people = self.layout.names(request)
        found = self.reads.range(JOIN_TOKENS, limit=TOKENS_MAX)
        rows = sorted((item.row for item in found), key=lambda row: row.created_at, reverse=True)
        lines = tuple(
            JoinLine(
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
        create = LinkButton(
            id="create",
            label="New join token",
            icon="plus",
            href="/new/join",
            why=request.caller.why_not(steps.CREATE_JOIN_TOKEN, EVERYWHERE),
            first=True,
        )
        return PageView(
            template="joins.html",
            title="Join tokens",
            here="/hosts",
            view=Joins(
                lines=lines,
                create=create,
                secret="" if made is None else made.token,
                made="" if made is None else made.join_id,
            ),
            crumbs=CRUMBS,
            verbs=tuple(line.delete for line in lines),
            still=made is not None,
        )

    def _chip(self, row: JoinToken) -> Chip:
        if row.until <= self.clock():
            return OVER
        return USABLE if row.enrolled < row.limit else USED_UP

    def form(self) -> FormPage:
        tomorrow = self.clock() + timedelta(days=1)
        return FormPage(
            title="New join token",
            text="Agents enroll new hosts with it, until it is used up or over. It never takes the "
            "name of a host that exists.",
            action="/new/join",
            back=HERE,
            fields=(
                Field(
                    name="labels",
                    label="Labels of its hosts",
                    placeholder="env=prod, app=web",
                    hint="Selectors of channels match them.",
                ),
                Field(
                    name="limit",
                    label="Hosts at most",
                    kind="number",
                    value="10",
                    required=True,
                    hint=f"1 to {JOIN_HOSTS_MAX:,}.",
                ),
                Field(
                    name="until",
                    label="Until, UTC",
                    kind="datetime-local",
                    value=f"{tomorrow:%Y-%m-%dT%H:%M}",
                    required=True,
                    hint=f"At most {JOIN_LIFE_MAX.days} days ahead.",
                ),
            ),
            submits=(Option("save", "Create", "key"),),
        )


def _delete(caller: Caller, row: JoinToken, number: int) -> VerbButton:
    return VerbButton(
        id=f"delete-join-{number}",
        label="Revoke",
        icon="trash",
        action="/joins/delete",
        title=f"Revoke {row.join_id}?",
        text="It enrolls no more hosts. Those that it enrolled stay.",
        fields=(Field(name="join_id", kind="hidden", value=row.join_id),),
        why=caller.why_not(steps.DELETE_JOIN_TOKEN, EVERYWHERE),
        danger=True,
    )


def _form_page(form: FormPage) -> PageView:
    return PageView(
        template="form.html",
        title=form.title,
        here="/hosts",
        view=form,
        crumbs=(*CRUMBS, Link(form.title)),
        still=True,
    )


def _read_labels(reader: FormReader, text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for part in reader.names(text):
        key, mark_, value = part.partition("=")
        if not mark_:
            reader.refuse("labels", f"has {part[:80]!r}; write key=value")
        labels[key] = value
    return labels


def index(
    request: Request[Nothing, PageQuery, Nothing], pages: JoinPages, layout: Layout
) -> Response:
    """The join tokens, without their secrets."""
    return layout.answer(request, pages.page(request))


def show_new_join(
    request: Request[Nothing, PageQuery, Nothing], pages: JoinPages, layout: Layout
) -> Response:
    """The form of a new join token."""
    return layout.answer(request, _form_page(pages.form()))


def create_join(
    request: Request[Nothing, PageQuery, NewJoinForm],
    join_tokens: JoinTokenOperations,
    pages: JoinPages,
    layout: Layout,
) -> Response:
    """Make a join token. The page that answers shows it, once."""
    body = request.body
    try:
        reader = FormReader()
        labels = _read_labels(reader, body.labels)
        limit = reader.number("limit", body.limit, 1, JOIN_HOSTS_MAX)
        until = reader.moment("until", body.until)
        reader.check()
        made, _ = join_tokens.create(request.caller, labels, limit, until)
    except TidegateError as error:
        form = pages.form()
        fields = mark(fill(form.fields, typed_of(request)), error, {"invalid_label": "labels"})
        return layout.answer(request, _form_page(replace(form, fields=fields)), problem=error)
    return layout.answer(request, pages.page(request, made))


def delete(
    request: Request[Nothing, PageQuery, DeleteJoinForm],
    join_tokens: JoinTokenOperations,
    pages: JoinPages,
    layout: Layout,
) -> Response:
    """Let a join token enroll no more hosts."""
    run = partial(join_tokens.delete, request.caller, request.body.join_id)
    return layout.attempt(request, run, HERE, "join revoked", partial(pages.page, request))


ROUTES = (
    page_route(HERE, index, requires(Verb.READ)),
    page_route("/new/join", show_new_join, requires_step(steps.CREATE_JOIN_TOKEN)),
    step_route("/new/join", create_join, steps.CREATE_JOIN_TOKEN),
    step_route("/joins/delete", delete, steps.DELETE_JOIN_TOKEN),
)
