"""Subscriptions: which events of which scopes go to which target, and their queues."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from tidegate import errors, public_addresses
from tidegate.api.routes.channels import ReasonBody
from tidegate.control.operations import subscriptions as operation_subscriptions
from tidegate.control.queries.people import PeopleNames
from tidegate.control.queries.reads import Found
from tidegate.domain.access import refusals as access_refusals, roles, steps
from tidegate.domain.channels import refusals as channel_refusals
from tidegate.domain.notifications import refusals as notification_refusals, rows, slices, states
from tidegate.kernel.model import POSITION_MAX
from tidegate.web import inputs, paging, routing, shapes

Name = Annotated[str, Meta(min_length=1, max_length=63)]
Events = Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=64)]
Scopes = Annotated[
    tuple[Annotated[str, Meta(max_length=roles.SCOPE_CHARS_MAX)], ...],
    Meta(min_length=1, max_length=slices.SCOPES_MAX),
]
Url = Annotated[str, Meta(max_length=public_addresses.URL_CHARS_MAX)]
Secret = Annotated[str, Meta(max_length=256)]
Recipients = Annotated[tuple[Annotated[str, Meta(max_length=320)], ...], Meta(max_length=20)]


class SubscriptionPath(inputs.Input, frozen=True):
    subscription: Name


class NewSubscription(inputs.Input, frozen=True, kw_only=True):
    """Without events: all of the severity. A webhook without a secret gets one, shown once."""

    name: Name
    kind: states.TargetKind
    url: Url = ""
    to: Recipients = ()
    secret: Secret = ""
    events: Events = ()
    min_severity: states.Severity = states.Severity.INFO
    scopes: Scopes = (roles.EVERYWHERE,)


class SubscriptionChanges(inputs.Input, frozen=True, kw_only=True):
    """Members that are left out do not change. A disabled subscription is enabled again."""

    url: Url | None = None
    to: Recipients | None = None
    secret: Secret | None = None
    events: Events | None = None
    min_severity: states.Severity | None = None
    scopes: Scopes | None = None
    rotate_secret: bool = False


class ReplayAfter(inputs.Input, frozen=True, kw_only=True):
    """The position of the log to replay from."""

    after: Annotated[int, Meta(ge=0, le=POSITION_MAX)]


class SubscriptionShown(Struct, frozen=True, kw_only=True):
    """A subscription and its queue, without the target's address."""

    name: str
    kind: states.TargetKind
    events: tuple[str, ...]
    min_severity: states.Severity
    scopes: tuple[str, ...]
    created_by: str
    created_at: datetime
    edited_at: datetime | None
    disabled_at: datetime | None
    disabled_reason: str
    waiting: int
    failures: int
    last_error: str
    next_attempt_at: datetime | None
    delivered: int
    delivered_at: datetime | None
    dead: int
    dead_letters: tuple[rows.DeadLetter, ...]
    is_replaying: bool
    version: int
    created_by_name: str | None = None  # null: erased, or not a person
    secret: str | None = None  # of a webhook, only right after the server made it


class TestAnswer(Struct, frozen=True, kw_only=True):
    """What a target returned for a test message."""

    name: str
    ok: bool
    detail: str


def list_all(
    request: routing.Request[inputs.Nothing, inputs.Paging, inputs.Nothing],
    subscriptions: operation_subscriptions.SubscriptionOperations,
    cursors: paging.Cursors,
    people: PeopleNames,
) -> routing.Response:
    """List the subscriptions of scopes that you may read, each with its queue."""
    after, limit = cursors.after(request), request.query.limit
    found = [item for item in subscriptions.list_readable(request.caller) if item.id > after]
    last = found[limit - 1].id if len(found) > limit else None
    shown = [_shown(item, subscriptions.queue(item.id), people) for item in found[:limit]]
    return routing.Response(cursors.list_page(request, shown, last))


def get(
    request: routing.Request[SubscriptionPath, inputs.Nothing, inputs.Nothing],
    subscriptions: operation_subscriptions.SubscriptionOperations,
    people: PeopleNames,
) -> routing.Response:
    """Get a subscription, its queue, and its dead letters."""
    found, queue = subscriptions.get(request.caller, request.path.subscription)
    return routing.Response(_shown(found, queue, people), version=found.version)


def create(
    request: routing.Request[inputs.Nothing, inputs.Nothing, NewSubscription],
    subscriptions: operation_subscriptions.SubscriptionOperations,
    people: PeopleNames,
) -> routing.Response:
    """Subscribe a target to events from now on. The response has a webhook's secret, once."""
    body = request.body
    changed = subscriptions.create(
        request.caller,
        body.name,
        kind=body.kind,
        target=operation_subscriptions.NewTarget(url=body.url, to=body.to, secret=body.secret),
        events=body.events,
        min_severity=body.min_severity,
        scopes=body.scopes,
    )
    return _changed(changed, subscriptions, people)


def edit(
    request: routing.Request[SubscriptionPath, inputs.Nothing, SubscriptionChanges],
    subscriptions: operation_subscriptions.SubscriptionOperations,
    people: PeopleNames,
) -> routing.Response:
    """Change a subscription's events or target, or rotate the secret of a webhook."""
    body = request.body
    given = (body.url, body.to, body.secret)
    target = operation_subscriptions.NewTarget(
        url=body.url or "", to=body.to or (), secret=body.secret or ""
    )
    changed = subscriptions.edit(
        request.caller,
        request.path.subscription,
        target=None if given == (None, None, None) else target,
        events=body.events,
        min_severity=body.min_severity,
        scopes=body.scopes,
        rotate_secret=body.rotate_secret,
    )
    return _changed(changed, subscriptions, people)


def delete(
    request: routing.Request[SubscriptionPath, inputs.Nothing, inputs.Nothing],
    subscriptions: operation_subscriptions.SubscriptionOperations,
) -> routing.Response:
    """Delete a subscription. Its queue is dropped, and the address is erased."""
    position = subscriptions.delete(request.caller, request.path.subscription)
    return routing.Response(shapes.Written(position), position=position)


def test(
    request: routing.Request[SubscriptionPath, inputs.Nothing, inputs.Nothing],
    subscriptions: operation_subscriptions.SubscriptionOperations,
) -> routing.Response:
    """Send a test message now, bypassing the queue."""
    name = request.path.subscription
    answer = subscriptions.test(request.caller, name)
    return routing.Response(TestAnswer(name=name, ok=answer.is_delivered, detail=answer.detail))


def skip(
    request: routing.Request[SubscriptionPath, inputs.Nothing, ReasonBody],
    subscriptions: operation_subscriptions.SubscriptionOperations,
) -> routing.Response:
    """Give up the first message in the queue, so that the next one is sent."""
    name, reason = request.path.subscription, request.body.reason
    position = subscriptions.skip(request.caller, name, reason)
    return routing.Response(shapes.Written(position), position=position)


def replay(
    request: routing.Request[SubscriptionPath, inputs.Nothing, ReplayAfter],
    subscriptions: operation_subscriptions.SubscriptionOperations,
) -> routing.Response:
    """Send the events after a position again."""
    name, after = request.path.subscription, request.body.after
    position = subscriptions.replay(request.caller, name, after)
    return routing.Response(shapes.Written(position), position=position)


def _changed(
    changed: operation_subscriptions.ChangedSubscription,
    subscriptions: operation_subscriptions.SubscriptionOperations,
    people: PeopleNames,
) -> routing.Response:
    row = changed.subscription
    queue = subscriptions.queue(row.name)
    shown = _shown(Found(row, changed.version, row.name), queue, people, changed.secret)
    return routing.Response(shown, version=changed.version, position=changed.position)


def _shown(
    found: Found[rows.Subscription], queue: rows.NoticeQueue, people: PeopleNames, secret: str = ""
) -> SubscriptionShown:
    row = found.row
    return SubscriptionShown(
        name=row.name,
        kind=row.kind,
        events=row.events,
        min_severity=row.min_severity,
        scopes=row.scopes,
        created_by=row.created_by,
        created_at=row.created_at,
        edited_at=row.edited_at,
        disabled_at=row.disabled_at,
        disabled_reason=row.disabled_reason,
        waiting=queue.waiting,
        failures=queue.failures,
        last_error=queue.last_error,
        next_attempt_at=queue.next_attempt_at,
        delivered=queue.delivered,
        delivered_at=queue.delivered_at,
        dead=queue.dead,
        dead_letters=queue.dead_letters,
        is_replaying=queue.replay_after is not None,
        version=found.version,
        created_by_name=people.find_name(row.created_by),
        secret=secret or None,
    )


_TERMS = (
    channel_refusals.ChannelNotFound,
    notification_refusals.InvalidSubscription,
    access_refusals.InvalidScope,
    public_addresses.DestinationRefused,
)
_PATH = "/v1/subscriptions/{subscription}"
# The operation checks the permission on each scope of the subscription.
ROUTES = (
    routing.Route(
        "GET",
        "/v1/subscriptions",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[SubscriptionShown],
    ),
    routing.Route(
        "POST",
        "/v1/subscriptions",
        create,
        routing.requires_step(steps.CREATE_SUBSCRIPTION, None),
        SubscriptionShown,
        status=201,
        errors=(*_TERMS, notification_refusals.SubscriptionExists),
    ),
    routing.Route(
        "GET",
        _PATH,
        get,
        routing.requires_step(steps.READ_SUBSCRIPTION, None),
        SubscriptionShown,
        errors=(notification_refusals.SubscriptionNotFound,),
    ),
    routing.Route(
        "PATCH",
        _PATH,
        edit,
        routing.requires_step(steps.EDIT_SUBSCRIPTION, None),
        SubscriptionShown,
        guard=steps.EDIT_SUBSCRIPTION.version,
        errors=(
            *_TERMS,
            notification_refusals.SubscriptionNotFound,
            notification_refusals.AddressMissing,
            errors.StaleVersion,
        ),
    ),
    routing.Route(
        "DELETE",
        _PATH,
        delete,
        routing.requires_step(steps.DELETE_SUBSCRIPTION, None),
        shapes.Written,
        errors=(notification_refusals.SubscriptionNotFound,),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/test",
        test,
        routing.requires_step(steps.TEST_SUBSCRIPTION, None),
        TestAnswer,
        errors=(notification_refusals.SubscriptionNotFound, notification_refusals.AddressMissing),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/skip",
        skip,
        routing.requires_step(steps.SKIP_NOTICE, None),
        shapes.Written,
        errors=(notification_refusals.SubscriptionNotFound, notification_refusals.NothingWaits),
    ),
    routing.Route(
        "POST",
        f"{_PATH}/replay",
        replay,
        routing.requires_step(steps.REPLAY_NOTICES, None),
        shapes.Written,
        errors=(
            notification_refusals.SubscriptionNotFound,
            notification_refusals.InvalidSubscription,
        ),
    ),
)
