"""Notifications: who gets which events, whether messages arrive, and which were given up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta, structs

from tidegate.control.operations.subscriptions import NewTarget, SubscriptionOperations
from tidegate.control.queries.reads import Found, Reads
from tidegate.dashboard import components, forms, layout as dashboard_layout
from tidegate.dashboard.view_models import form_screens, settings_screens
from tidegate.domain.access import callers, roles, steps
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.channels.rows import CHANNELS
from tidegate.domain.notifications import rows, states
from tidegate.domain.notifications.events import EVENTS
from tidegate.errors import TidegateError
from tidegate.kernel.model import POSITION_MAX
from tidegate.web import inputs, routing

HERE = "/notifications"
CHANNELS_MAX = 60
NAME_CHARS_MAX = 63
WORKING = components.Chip("check", "good", "Works")
FAILING = components.Chip("warning", "bad", "Failing")
DISABLED = components.Chip("ban", "warn", "Disabled")
PLACES = {
    "subscription_exists": "name",
    "destination_refused": "url",
    "invalid_scope": "scopes",
}

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]


class SubscriptionForm(inputs.Input, frozen=True, kw_only=True):
    """The members of a subscription as texts."""

    min_severity: forms.Typed = "info"
    url: forms.Typed = ""
    to: forms.Typed = ""
    secret: forms.Typed = ""
    events: forms.Ticked = ()
    scopes: forms.Ticked = ()
    do: forms.Typed = "save"


class NewSubscriptionForm(SubscriptionForm, frozen=True, kw_only=True):
    name: forms.Typed
    kind: forms.Typed


class EditSubscriptionForm(SubscriptionForm, frozen=True, kw_only=True):
    rotate: forms.Typed = ""


class SubscriptionPagePath(inputs.Input, frozen=True):
    subscription: Name


class NamedSubscriptionForm(inputs.Input, frozen=True, kw_only=True):
    name: Name


class SkipNoticeForm(inputs.Input, frozen=True, kw_only=True):
    name: Name
    reason: dashboard_layout.Reason


class ReplayForm(inputs.Input, frozen=True, kw_only=True):
    name: Name
    after: Annotated[int, Meta(ge=0, le=POSITION_MAX)]


# ── the page ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class NotificationPages:
    """Builds the list of subscriptions, and their forms."""

    reads: Reads
    subscriptions: SubscriptionOperations

    def page(
        self, request: routing.Request[Any, Any, Any], test_response: str = "", secret: str = ""
    ) -> dashboard_layout.PageView:
        caller = request.caller
        lines = tuple(
            _line(caller, found, self.subscriptions.queue(found.id), number)
            for number, found in enumerate(self.subscriptions.list_readable(caller))
        )
        create = components.LinkButton(
            id="new-subscription",
            label="New subscription",
            icon="plus",
            href="/new/subscription",
            why=dashboard_layout.why_nowhere(request.principal, steps.CREATE_SUBSCRIPTION),
            first=True,
        )
        return dashboard_layout.PageView(
            template="notifications.html",
            address=HERE,
            title="Notifications",
            here=HERE,
            view=settings_screens.Notifications(
                lines=lines, create=create, test_response=test_response, secret=secret
            ),
            verbs=tuple(verb for line in lines for verb in line.verbs),
            still=bool(test_response or secret),
        )

    def form(self, request: routing.Request[Any, Any, Any]) -> form_screens.FormPage:
        scopes = [components.Option(roles.EVERYWHERE, "everything")]
        scopes += [
            components.Option(channel_scope(name), f"channel {name}")
            for name in (
                item.row.channel for item in self.reads.range(CHANNELS, limit=CHANNELS_MAX)
            )
            if request.principal.may(roles.Verb.READ, channel_scope(name))
        ]
        return form_screens.FormPage(
            title="New subscription",
            text="Tells a chat, a mailbox, PagerDuty, Grafana or a program of events from now on.",
            action="/new/subscription",
            back=HERE,
            fields=(
                components.Field(name="name", label="Name", required=True, placeholder="team-chat"),
                components.Field(
                    name="kind",
                    label="Kind",
                    kind="select",
                    value="slack",
                    options=tuple(
                        components.Option(str(kind), str(kind)) for kind in states.TargetKind
                    ),
                ),
                components.Field(
                    name="url",
                    label="Address",
                    placeholder="https://hooks.example.com/…",
                    hint="Of every kind but mail. It is sealed, and never shown again.",
                ),
                components.Field(name="to", label="Mail addresses", placeholder="ops@example.com"),
                components.Field(
                    name="secret",
                    label="Secret",
                    kind="password",
                    completes="off",
                    hint="A PagerDuty or Grafana key. Empty for a webhook: one is made and shown "
                    "once.",
                ),
                components.Field(
                    name="min_severity",
                    label="From this severity on",
                    kind="select",
                    value="warning",
                    options=tuple(
                        components.Option(str(item), str(item)) for item in states.Severity
                    ),
                ),
                components.Field(
                    name="scopes",
                    label="Of",
                    kind="many",
                    values=(roles.EVERYWHERE,),
                    options=tuple(scopes),
                ),
                components.Field(
                    name="events",
                    label="Events",
                    kind="many",
                    hint="Tick none for all events.",
                    options=tuple(
                        components.Option(name, name, f"{event.severity}: {event.when}")
                        for name, event in EVENTS.items()
                    ),
                ),
            ),
            submits=(components.Option("save", "Create", "check"),),
        )

    def edit_form(
        self, request: routing.Request[SubscriptionPagePath, Any, Any]
    ) -> form_screens.FormPage:
        """The form of a subscription. Raises: SubscriptionNotFound, MissingPermission."""
        name = request.path.subscription
        found, _ = self.subscriptions.get(request.caller, name)
        row, form = found.row, self.form(request)
        fields = form.fields[2:]
        texts = {"min_severity": row.min_severity, "scopes": row.scopes, "events": row.events}
        rotate = components.Field(
            name="rotate",
            label="Webhook secret",
            kind="select",
            options=(
                components.Option("", "keep it"),
                components.Option("yes", "make a new one, shown once"),
            ),
        )
        address = {
            "url": "Empty: as it is. A new address needs the secret again, but for a webhook.",
            "to": "Empty: as they are.",
            "secret": "Empty: as it is.",
        }
        filled = forms.fill(fields, texts)
        return structs.replace(
            form,
            title=f"Edit {name}",
            text="A disabled subscription is enabled again.",
            action=f"/subscriptions/{quote(name, safe='')}/edit",
            fields=(
                *(structs.replace(item, hint=address.get(item.name, item.hint)) for item in filled),
                *((rotate,) if row.kind is states.TargetKind.WEBHOOK else ()),
            ),
            version=found.version,
            submits=(components.Option("save", "Save", "check"),),
        )


def describe_subscription(row: rows.Subscription) -> str:
    """Which events a subscription sends, and of which scopes."""
    what = ", ".join(row.events) or f"events of severity {row.min_severity} or higher"
    return (
        f"{what} · {'everywhere' if row.scopes == (roles.EVERYWHERE,) else ', '.join(row.scopes)}"
    )


def subscription_chip(row: rows.Subscription, queue: rows.NoticeQueue) -> components.Chip:
    """Whether its messages arrive."""
    if row.disabled_at is not None:
        return DISABLED
    return FAILING if queue.failures else WORKING


def _line(
    caller: callers.Caller, found: Found[rows.Subscription], queue: rows.NoticeQueue, number: int
) -> settings_screens.NotificationLine:
    row = found.row
    reasons = (caller.why_not(steps.EDIT_SUBSCRIPTION, scope) for scope in row.scopes)
    why = next(filter(None, reasons), "")
    name = components.Field(name="name", kind="hidden", value=row.name)

    def verb(id: str, label: str, icon: str, **more: Any) -> components.VerbButton:
        fields = (name, *more.pop("fields", ()))
        path = f"{HERE}/{id}"
        return components.VerbButton(
            id=f"{id}-{number}", label=label, icon=icon, action=path, fields=fields, **more
        )

    replay = components.Field(
        name="after",
        label="After this log position",
        kind="number",
        required=True,
        hint="Everything that happened after it is sent again; 0 is the whole log.",
    )
    return settings_screens.NotificationLine(
        name=row.name,
        kind=str(row.kind),
        chip=subscription_chip(row, queue),
        text=describe_subscription(row),
        queue=f"{queue.delivered:,} sent · {queue.waiting:,} waiting · {queue.dead:,} given up",
        error=row.disabled_reason or queue.last_error,
        dead=tuple(f"{item.event}: {item.reason}" for item in queue.dead_letters),
        edit=components.LinkButton(
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
                fields=(dashboard_layout.REASON,),
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
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """List who gets which events."""
    return layout.answer(request, pages.page(request))


# ── create and edit ───────────────────────────────────────────────────────────────────────────────


def _page(form: form_screens.FormPage) -> dashboard_layout.PageView:
    return forms.form_page(form, HERE, components.Link("Notifications", HERE))


def show_new_subscription(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, inputs.Nothing],
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a new subscription."""
    return layout.answer(request, _page(pages.form(request)))


def show_edit(
    request: routing.Request[SubscriptionPagePath, dashboard_layout.PageQuery, inputs.Nothing],
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Show the form of a subscription."""
    return layout.answer(request, _page(pages.edit_form(request)))


def _severity(reader: forms.FormReader, text: str) -> states.Severity:
    if text not in list(states.Severity):
        reader.refuse("min_severity", f"is {text[:80]!r}; allowed are {', '.join(states.Severity)}")
        return states.Severity.INFO
    return states.Severity(text)


def create_subscription(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NewSubscriptionForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Subscribe a target to events. Only the page that responds shows a secret that was made."""
    body, form = request.body, pages.form(request)
    try:
        reader = forms.FormReader()
        name = reader.text("name", body.name, most=NAME_CHARS_MAX)
        if body.kind not in list(states.TargetKind):
            reader.refuse(
                "kind", f"is {body.kind[:80]!r}; allowed are {', '.join(states.TargetKind)}"
            )
        severity = _severity(reader, body.min_severity)
        if not body.scopes:
            reader.refuse("scopes", "is missing; tick at least one")
        reader.check()
        made = subscriptions.create(
            request.caller,
            name,
            kind=states.TargetKind(body.kind),
            target=NewTarget(
                url=body.url.strip(), to=reader.names(body.to), secret=body.secret.strip()
            ),
            events=body.events,
            min_severity=severity,
            scopes=body.scopes,
        )
    except TidegateError as error:
        form = forms.mark(forms.fill_typed(form, request), error, PLACES)
        return layout.answer(request, _page(form), problem=error)
    if made.secret:
        return layout.answer(request, pages.page(request, secret=made.secret))
    return dashboard_layout.see_other(f"{HERE}?done=created&min_position={made.position}")


def edit(
    request: routing.Request[
        SubscriptionPagePath, dashboard_layout.PageQuery, EditSubscriptionForm
    ],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Change a subscription. Only the page that responds shows a new secret."""
    body, form = request.body, pages.edit_form(request)
    try:
        reader = forms.FormReader()
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
        form = forms.mark(forms.fill_typed(form, request), error, PLACES)
        return layout.answer(request, _page(form), problem=error)
    if changed.secret:
        return layout.answer(request, pages.page(request, secret=changed.secret))
    return dashboard_layout.see_other(f"{HERE}?done=saved&min_position={changed.position}")


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────

Named = routing.Request[inputs.Nothing, dashboard_layout.PageQuery, NamedSubscriptionForm]


def test(
    request: Named,
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Send a test message; the page shows the target's response."""
    try:
        answer = subscriptions.test(request.caller, request.body.name)
    except TidegateError as error:
        return layout.answer(request, pages.page(request), problem=error)
    verdict = "accepted the test message" if answer.is_delivered else "refused the test message"
    test_response = f"{request.body.name} {verdict}: {answer.detail}"
    return layout.answer(request, pages.page(request, test_response=test_response))


def delete(
    request: Named,
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Delete a subscription."""
    run = partial(subscriptions.delete, request.caller, request.body.name)
    return layout.attempt(request, run, HERE, "deleted", partial(pages.page, request))


def skip(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, SkipNoticeForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Give up the first message in the queue."""
    run = partial(subscriptions.skip, request.caller, request.body.name, request.body.reason)
    return layout.attempt(request, run, HERE, "saved", partial(pages.page, request))


def replay(
    request: routing.Request[inputs.Nothing, dashboard_layout.PageQuery, ReplayForm],
    subscriptions: SubscriptionOperations,
    pages: NotificationPages,
    layout: dashboard_layout.Layout,
) -> routing.Response:
    """Send the events after a position again."""
    run = partial(subscriptions.replay, request.caller, request.body.name, request.body.after)
    return layout.attempt(request, run, HERE, "replayed", partial(pages.page, request))


# The operation checks the permission on each scope of the subscription.
ROUTES = (
    dashboard_layout.page_route(HERE, notifications, routing.requires_somewhere(roles.Verb.READ)),
    dashboard_layout.page_route(
        "/new/subscription",
        show_new_subscription,
        routing.requires_step(steps.CREATE_SUBSCRIPTION, None),
    ),
    dashboard_layout.step_route(
        "/new/subscription", create_subscription, steps.CREATE_SUBSCRIPTION, None
    ),
    dashboard_layout.page_route(
        "/subscriptions/{subscription}/edit",
        show_edit,
        routing.requires_step(steps.EDIT_SUBSCRIPTION, None),
    ),
    dashboard_layout.step_route(
        "/subscriptions/{subscription}/edit", edit, steps.EDIT_SUBSCRIPTION, None
    ),
    dashboard_layout.step_route("/notifications/test", test, steps.TEST_SUBSCRIPTION, None),
    dashboard_layout.step_route("/notifications/delete", delete, steps.DELETE_SUBSCRIPTION, None),
    dashboard_layout.step_route("/notifications/skip", skip, steps.SKIP_NOTICE, None),
    dashboard_layout.step_route("/notifications/replay", replay, steps.REPLAY_NOTICES, None),
)
