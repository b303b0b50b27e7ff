"""Notifications: who is told of what, whether messages get through, and what was given up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta
from msgspec.structs import replace

from tidegate.control.operations.subscriptions import NewTarget, SubscriptionOperations
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard.components import Chip, Field, Link, LinkButton, Option, VerbButton
from tidegate.dashboard.forms import FormReader, Ticked, Typed, fill, mark, typed_of
from tidegate.dashboard.layout import (
    REASON,
    Layout,
    PageQuery,
    PageView,
    Reason,
    page_route,
    see_other,
    step_route,
    why_nowhere,
)
from tidegate.dashboard.view_models import FormPage, NotificationLine, Notifications
from tidegate.domain.access import steps
from tidegate.domain.access.callers import Caller
from tidegate.domain.access.roles import EVERYWHERE, Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.notifications.events import EVENTS
from tidegate.domain.notifications.rows import NoticeQueue, Subscription
from tidegate.domain.notifications.states import Severity, TargetKind
from tidegate.errors import TidegateError
from tidegate.kernel.model import POSITION_MAX
from tidegate.web.inputs import Input, Nothing
from tidegate.web.routing import Request, Response, requires_somewhere, requires_step

HERE = "/notifications"
CHANNELS_MAX = 60
NAME_CHARS_MAX = 63
WORKING = Chip("check", "good", "Works")
FAILING = Chip("warning", "bad", "Failing")
OFF = Chip("ban", "warn", "Disabled")
PLACES = {
    "subscription_exists": "name",
    "destination_refused": "url",
    "invalid_scope": "scopes",
}

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class SubscriptionForm(Input, frozen=True, kw_only=True):
    """The terms of a subscription as texts."""

    min_severity: Typed = "info"
    url: Typed = ""
    to: Typed = ""
    secret: Typed = ""
    events: Ticked = ()
    scopes: Ticked = ()
    do: Typed = "save"


class NewSubscriptionForm(SubscriptionForm, frozen=True, kw_only=True):
    name: Typed
    kind: Typed


class EditSubscriptionForm(SubscriptionForm, frozen=True, kw_only=True):
    rotate: Typed = ""


class SubscriptionPagePath(Input, frozen=True):
    subscription: Name


class NamedSubscriptionForm(Input, frozen=True, kw_only=True):
    name: Name


class SkipNoticeForm(Input, frozen=True, kw_only=True):
    name: Name
    reason: Reason


class ReplayForm(Input, frozen=True, kw_only=True):
    name: Name
    after: Annotated[int, Meta(ge=0, le=POSITION_MAX)]


# ── the page ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class NotificationPages:
    """The list of subscriptions, and their forms."""

    reads: Reads
    subscriptions: SubscriptionOperations

    def page(self, request: Request[Any, Any, Any], said: str = "", secret: str = "") -> PageView:
        caller = request.caller
        lines = tuple(
            _line(caller, found, self.subscriptions.queue(found.id), number)
            for number, found in enumerate(self.subscriptions.list_readable(caller))
        )
        create = LinkButton(
            id="new-subscription",
            label="New subscription",
            icon="plus",
            href="/new/subscription",
            why=why_nowhere(request.principal, steps.CREATE_SUBSCRIPTION),
            first=True,
        )
        return PageView(
            template="notifications.html",
            title="Notifications",
            here=HERE,
            view=Notifications(lines=lines, create=create, said=said, secret=secret),
            verbs=tuple(verb for line in lines for verb in line.verbs),
            still=bool(said or secret),
        )

    def form(self, request: Request[Any, Any, Any]) -> FormPage:
        scopes = [Option(EVERYWHERE, "everything")]
        scopes += [
            Option(channel_scope(name), f"channel {name}")
            for name in (
                item.row.channel for item in self.reads.range(CHANNELS, limit=CHANNELS_MAX)
            )
            if request.principal.may(Verb.READ, channel_scope(name))
        ]
        return FormPage(
            title="New subscription",
            text="Tells a chat, a mailbox, PagerDuty, Grafana or a program of events from now on.",
            action="/new/subscription",
            back=HERE,
            fields=(
                Field(name="name", label="Name", required=True, placeholder="team-chat"),
                Field(
                    name="kind",
                    label="Kind",
                    kind="select",
                    value="slack",
                    options=tuple(Option(str(kind), str(kind)) for kind in TargetKind),
                ),
                Field(
                    name="url",
                    label="Address",
                    placeholder="https://hooks.example.com/…",
                    hint="Of every kind but mail. It is sealed, and never shown again.",
                ),
                Field(name="to", label="Mail addresses", placeholder="ops@example.com"),
                Field(
                    name="secret",
                    label="Secret",
                    kind="password",
                    completes="off",
                    hint="A PagerDuty or Grafana key. Empty for a webhook: one is made and shown "
                    "once.",
                ),
                Field(
                    name="min_severity",
                    label="From this severity on",
                    kind="select",
                    value="warning",
                    options=tuple(Option(str(item), str(item)) for item in Severity),
                ),
                Field(
                    name="scopes",
                    label="Of",
                    kind="many",
                    values=(EVERYWHERE,),
                    options=tuple(scopes),
                ),
                Field(
                    name="events",
                    label="Events",
                    kind="many",
                    hint="Tick none for all events.",
                    options=tuple(
                        Option(name, name, f"{event.severity}: {event.when}")
                        for name, event in EVENTS.items()
                    ),
                ),
            ),
            submits=(Option("save", "Create", "check"),),
        )

    def edit_form(self, request: Request[SubscriptionPagePath, Any, Any]) -> FormPage:
        """Raises: SubscriptionNotFound, MissingPermission."""
        name = request.path.subscription
        found, _ = self.subscriptions.get(request.caller, name)
        row, form = found.row, self.form(request)
        fields = form.fields[2:]
        texts = {"min_severity": row.min_severity, "scopes": row.scopes, "events": row.events}
        rotate = Field(
            name="rotate",
            label="Webhook secret",
            kind="select",
            options=(Option("", "keep it"), Option("yes", "make a new one, shown once")),
        )
        address = {
            "url": "Empty: as it is. A new address needs the secret again, but for a webhook.",
            "to": "Empty: as they are.",
            "secret": "Empty: as it is.",
        }
        filled = fill(fields, texts)
        return replace(
            form,
            title=f"Edit {name}",
            text="A disabled subscription is enabled again.",
            action=f"/subscriptions/{quote(name, safe='')}/edit",
            fields=(
                *(replace(item, hint=address.get(item.name, item.hint)) for item in filled),
                *((rotate,) if row.kind is TargetKind.WEBHOOK else ()),
            ),
            version=found.version,
            submits=(Option("save", "Save", "check"),),
        )


def _line(
    caller: Caller, found: Found[Subscription], queue: NoticeQueue, number: int
) -> NotificationLine:
    row = found.row
    whys = (caller.why_not(steps.EDIT_SUBSCRIPTION, scope) for scope in row.scopes)
    why = next(filter(None, whys), "")
    chip = FAILING if queue.failures else WORKING
    told = ", ".join(row.events) or f"all events from {row.min_severity} on"
    name = Field(name="name", kind="hidden", value=row.name)

    def verb(id: str, label: str, icon: str, **more: Any) -> VerbButton:
        fields = (name, *more.pop("fields", ()))
        path = f"{HERE}/{id}"
        return VerbButton(
            id=f"{id}-{number}", label=label, icon=icon, action=path, fields=fields, **more
        )

    replay = Field(
        name="after",
        label="After this log position",
        kind="number",
        required=True,
        hint="Everything that happened after it is sent again; 0 is the whole log.",
    )
    return NotificationLine(
        name=row.name,
        kind=str(row.kind),
        chip=OFF if row.disabled_at is not None else chip,
        text=f"{told} · {', '.join(row.scopes)}",
        queue=f"{queue.delivered:,} sent · {queue.waiting:,} wait · {queue.dead:,} given up",
        error=row.disabled_reason or queue.last_error,
        dead=tuple(f"{item.event}: {item.reason}" for item in queue.dead_letters),
        edit=LinkButton(
            id=f"edit-{number}",
            label="Edit",
            icon="pencil",
            href=f"/subscriptions/{quote(row.name, safe='')}/edit",
            why=why,
        ),
        verbs=(
            verb("test", "Send a test", "bell", title=f"Send a test to {row.name}?", why=why),
            verb(
                *("replay", "Replay", "retry"),
                title=f"Send messages to {row.name} again?",
                fields=(replay,),
                why=why,
            ),
            verb(
                *("skip", "Skip one", "skip"),
                title="Give up the first message that waits?",
                fields=(REASON,),
                why=why or ("" if queue.waiting else "Nothing waits to be sent."),
            ),
            verb(
                *("delete", "Delete", "trash"),
                title=f"Delete {row.name}?",
                text="What waits is dropped, and the address is erased.",
                why=why,
                danger=True,
            ),
        ),
    )


def notifications(
    request: Request[Nothing, PageQuery, Nothing], pages: NotificationPages, layout: Layout
) -> Response:
    """Who is told of what."""
    return layout.answer(request, pages.page(request))


# ── create and edit ───────────────────────────────────────────────────────────────────────────────


def _page(form: FormPage) -> PageView:
    crumbs = (Link("Notifications", HERE), Link(form.title))
    return PageView(
        template="form.html", title=form.title, here=HERE, view=form, crumbs=crumbs, still=True
    )


def show_new_subscription(
    request: Request[Nothing, PageQuery, Nothing], pages: NotificationPages, layout: Layout
) -> Response:
    """The form of a new subscription."""
    return layout.answer(request, _page(pages.form(request)))


def show_edit(
    request: Request[SubscriptionPagePath, PageQuery, Nothing],
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """The form of a subscription."""
    return layout.answer(request, _page(pages.edit_form(request)))


def _severity(reader: FormReader, text: str) -> Severity:
    if text not in list(Severity):
        reader.refuse("min_severity", f"is {text[:80]!r}; allowed are {', '.join(Severity)}")
        return Severity.INFO
    return Severity(text)


def create_subscription(
    request: Request[Nothing, PageQuery, NewSubscriptionForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """Tell a target of events. The page that answers shows a secret that was made, once."""
    body, form = request.body, pages.form(request)
    try:
        reader = FormReader()
        name = reader.text("name", body.name, most=NAME_CHARS_MAX)
        if body.kind not in list(TargetKind):
            reader.refuse("kind", f"is {body.kind[:80]!r}; allowed are {', '.join(TargetKind)}")
        severity = _severity(reader, body.min_severity)
        if not body.scopes:
            reader.refuse("scopes", "is missing; tick at least one")
        reader.check()
        made = subscriptions.create(
            request.caller,
            name,
            kind=TargetKind(body.kind),
            target=NewTarget(
                url=body.url.strip(), to=reader.names(body.to), secret=body.secret.strip()
            ),
            events=body.events,
            min_severity=severity,
            scopes=body.scopes,
        )
    except TidegateError as error:
        fields = mark(fill(form.fields, typed_of(request)), error, PLACES)
        return layout.answer(request, _page(replace(form, fields=fields)), problem=error)
    if made.secret:
        return layout.answer(request, pages.page(request, secret=made.secret))
    return see_other(f"{HERE}?done=created&min_position={made.position}")


def edit(
    request: Request[SubscriptionPagePath, PageQuery, EditSubscriptionForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """Change a subscription; a new secret of a webhook is shown once."""
    body, form = request.body, pages.edit_form(request)
    try:
        reader = FormReader()
        severity = _severity(reader, body.min_severity)
        if not body.scopes:
            reader.refuse("scopes", "is missing; tick at least one")
        if body.rotate not in ("", "yes"):
            reader.refuse("rotate", f"is {body.rotate[:80]!r}; allowed are yes and nothing")
        reader.check()
        target = NewTarget(
            url=body.url.strip(), to=reader.names(body.to), secret=body.secret.strip()
        )
        changed = subscriptions.edit(
            request.caller,
            request.path.subscription,
            target=None if target == NewTarget() else target,
            events=body.events,
            min_severity=severity,
            scopes=body.scopes,
            rotate_secret=body.rotate == "yes",
        )
    except TidegateError as error:
        fields = mark(fill(form.fields, typed_of(request)), error, PLACES)
        shown = replace(form, fields=fields, version=request.version)
        return layout.answer(request, _page(shown), problem=error)
    if changed.secret:
        return layout.answer(request, pages.page(request, secret=changed.secret))
    return see_other(f"{HERE}?done=saved&min_position={changed.position}")


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────

Named = Request[Nothing, PageQuery, NamedSubscriptionForm]


def test(
    request: Named,
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """Send a test message; the page says what the target answered."""
    try:
        answer = subscriptions.test(request.caller, request.body.name)
    except TidegateError as error:
        return layout.answer(request, pages.page(request), problem=error)
    verdict = "took the test message" if answer.is_delivered else "did not take the test message"
    said = f"{request.body.name} {verdict}: {answer.detail}"
    return layout.answer(request, pages.page(request, said=said))


def delete(
    request: Named,
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """Tell the target no more."""
    run = partial(subscriptions.delete, request.caller, request.body.name)
    return layout.attempt(request, run, HERE, "deleted", partial(pages.page, request))


def skip(
    request: Request[Nothing, PageQuery, SkipNoticeForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """Give up the first message that waits."""
    run = partial(subscriptions.skip, request.caller, request.body.name, request.body.reason)
    return layout.attempt(request, run, HERE, "saved", partial(pages.page, request))


def replay(
    request: Request[Nothing, PageQuery, ReplayForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: Layout,
) -> Response:
    """Send again what happened after a position of the log."""
    run = partial(subscriptions.replay, request.caller, request.body.name, request.body.after)
    return layout.attempt(request, run, HERE, "replayed", partial(pages.page, request))


# The operation asks for the permission on each scope of the subscription.
ROUTES = (
    page_route(HERE, notifications, requires_somewhere(Verb.READ)),
    page_route(
        "/new/subscription", show_new_subscription, requires_step(steps.CREATE_SUBSCRIPTION, None)
    ),
    step_route("/new/subscription", create_subscription, steps.CREATE_SUBSCRIPTION, None),
    page_route(
        "/subscriptions/{subscription}/edit",
        show_edit,
        requires_step(steps.EDIT_SUBSCRIPTION, None),
    ),
    step_route("/subscriptions/{subscription}/edit", edit, steps.EDIT_SUBSCRIPTION, None),
    step_route("/notifications/test", test, steps.TEST_SUBSCRIPTION, None),
    step_route("/notifications/delete", delete, steps.DELETE_SUBSCRIPTION, None),
    step_route("/notifications/skip", skip, steps.SKIP_NOTICE, None),
    step_route("/notifications/replay", replay, steps.REPLAY_NOTICES, None),
)
