"""Subscriptions: which events of which scopes go to which target, and what waits to be sent."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from tidegate.api.routes.channels import ReasonBody
from tidegate.control.operations.subscriptions import (
    ChangedSubscription,
    NewTarget,
    SubscriptionOperations,
)
from tidegate.control.queries.reads import Found
from tidegate.domain.access import steps
from tidegate.domain.access.refusals import InvalidScope
from tidegate.domain.access.roles import EVERYWHERE, SCOPE_CHARS_MAX, Verb
from tidegate.domain.notifications.refusals import (
    AddressMissing,
    InvalidSubscription,
    NothingWaits,
    SubscriptionExists,
    SubscriptionNotFound,
)
from tidegate.domain.notifications.rows import DeadLetter, NoticeQueue, Subscription
from tidegate.domain.notifications.slices import SCOPES_MAX
from tidegate.domain.notifications.states import Severity, TargetKind
from tidegate.errors import StaleVersion
from tidegate.kernel.model import POSITION_MAX
from tidegate.public_addresses import URL_CHARS_MAX, DestinationRefused
from tidegate.web.inputs import Input, Nothing, Paging
from tidegate.web.paging import Cursors
from tidegate.web.routing import Request, Response, Route, requires_somewhere, requires_step
from tidegate.web.shapes import Listed, Written

Name = Annotated[str, Meta(min_length=1, max_length=63)]
Events = Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=64)]
Scopes = Annotated[
    tuple[Annotated[str, Meta(max_length=SCOPE_CHARS_MAX)], ...],
    Meta(min_length=1, max_length=SCOPES_MAX),
]
Url = Annotated[str, Meta(max_length=URL_CHARS_MAX)]
Secret = Annotated[str, Meta(max_length=256)]
Recipients = Annotated[tuple[Annotated[str, Meta(max_length=320)], ...], Meta(max_length=20)]


class SubscriptionPath(Input, frozen=True):
    subscription: Name


class NewSubscription(Input, frozen=True, kw_only=True):
    """Without events: all of the severity. A webhook without a secret gets one, shown once."""

    name: Name
    kind: TargetKind
    url: Url = ""
    to: Recipients = ()
    secret: Secret = ""
    events: Events = ()
    min_severity: Severity = Severity.INFO
    scopes: Scopes = (EVERYWHERE,)


class SubscriptionChanges(Input, frozen=True, kw_only=True):
    """What changes; the rest stays. A disabled subscription is enabled again."""

    url: Url | None = None
    to: Recipients | None = None
    secret: Secret | None = None
    events: Events | None = None
    min_severity: Severity | None = None
    scopes: Scopes | None = None
    rotate_secret: bool = False


class ReplayAfter(Input, frozen=True, kw_only=True):
    """After which position of the log."""

    after: Annotated[int, Meta(ge=0, le=POSITION_MAX)]


class SubscriptionShown(Struct, frozen=True, kw_only=True):
    """A subscription and its queue, without its address."""

    name: str
    kind: TargetKind
    events: tuple[str, ...]
    min_severity: Severity
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
    dead_letters: tuple[DeadLetter, ...]
    is_replaying: bool
    version: int
    secret: str | None = None  # of a webhook, just after the server made it


class TestAnswer(Struct, frozen=True, kw_only=True):
    """What a target answered to a test message."""

    name: str
    ok: bool
    detail: str


def list_all(
    request: Request[Nothing, Paging, Nothing],
    subscriptions: SubscriptionOperations,
    cursors: Cursors,
) -> Response:
    """The subscriptions of scopes that you may read, each with its queue."""
    after, limit = cursors.after(request), request.query.limit
    found = [item for item in subscriptions.list_readable(request.caller) if item.id > after]
    last = found[limit - 1].id if len(found) > limit else None
    shown = [_shown(item, subscriptions.queue(item.id)) for item in found[:limit]]
    return Response(cursors.list_page(request, shown, last))


def get(
    request: Request[SubscriptionPath, Nothing, Nothing], subscriptions: SubscriptionOperations
) -> Response:
    """A subscription, what waits to be sent, and its dead letters."""
    found, queue = subscriptions.get(request.caller, request.path.subscription)
    return Response(_shown(found, queue), version=found.version)


def create(
    request: Request[Nothing, Nothing, NewSubscription], subscriptions: SubscriptionOperations
) -> Response:
    """Tell a target of events from now on. The answer has the secret of a webhook, once."""
    body = request.body
    changed = subscriptions.create(
        request.caller,
        body.name,
        kind=body.kind,
        target=NewTarget(url=body.url, to=body.to, secret=body.secret),
        events=body.events,
        min_severity=body.min_severity,
        scopes=body.scopes,
    )
    return _changed(changed, subscriptions)


def edit(
    request: Request[SubscriptionPath, Nothing, SubscriptionChanges],
    subscriptions: SubscriptionOperations,
) -> Response:
    """Change which events a target gets, or where it is; rotate the secret of a webhook."""
    body = request.body
    given = (body.url, body.to, body.secret)
    target = NewTarget(url=body.url or "", to=body.to or (), secret=body.secret or "")
    changed = subscriptions.edit(
        request.caller,
        request.path.subscription,
        target=None if given == (None, None, None) else target,
        events=body.events,
        min_severity=body.min_severity,
        scopes=body.scopes,
        rotate_secret=body.rotate_secret,
    )
    return _changed(changed, subscriptions)


def delete(
    request: Request[SubscriptionPath, Nothing, Nothing], subscriptions: SubscriptionOperations
) -> Response:
    """Stop telling a target. What waits is dropped, and the address is erased."""
    position = subscriptions.delete(request.caller, request.path.subscription)
    return Response(Written(position), position=position)


def test(
    request: Request[SubscriptionPath, Nothing, Nothing], subscriptions: SubscriptionOperations
) -> Response:
    """Send a test message now, past the queue."""
    name = request.path.subscription
    answer = subscriptions.test(request.caller, name)
    return Response(TestAnswer(name=name, ok=answer.is_delivered, detail=answer.detail))


def skip(
    request: Request[SubscriptionPath, Nothing, ReasonBody],
    subscriptions: SubscriptionOperations,
) -> Response:
    """Give up the first message that waits, so that the next one is sent."""
    name, reason = request.path.subscription, request.body.reason
    position = subscriptions.skip(request.caller, name, reason)
    return Response(Written(position), position=position)


def replay(
    request: Request[SubscriptionPath, Nothing, ReplayAfter], subscriptions: SubscriptionOperations
) -> Response:
    """Send again what happened after a position of the log."""
    name, after = request.path.subscription, request.body.after
    position = subscriptions.replay(request.caller, name, after)
    return Response(Written(position), position=position)


def _changed(changed: ChangedSubscription, subscriptions: SubscriptionOperations) -> Response:
    row = changed.subscription
    queue = subscriptions.queue(row.name)
    shown = _shown(Found(row, changed.version, row.name), queue, changed.secret)
    return Response(shown, version=changed.version, position=changed.position)


def _shown(found: Found[Subscription], queue: NoticeQueue, secret: str = "") -> SubscriptionShown:
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
        secret=secret or None,
    )


_TERMS = (InvalidSubscription, InvalidScope, DestinationRefused)
_PATH = "/v1/subscriptions/{subscription}"
# The operation asks for the permission on each scope of the subscription.
ROUTES = (
    Route(
        "GET",
        "/v1/subscriptions",
        list_all,
        requires_somewhere(Verb.READ),
        Listed[SubscriptionShown],
    ),
    Route(
        "POST",
        "/v1/subscriptions",
        create,
        requires_step(steps.CREATE_SUBSCRIPTION, None),
        SubscriptionShown,
        status=201,
        errors=(*_TERMS, SubscriptionExists),
    ),
    Route(
        "GET",
        _PATH,
        get,
        requires_step(steps.READ_SUBSCRIPTION, None),
        SubscriptionShown,
        errors=(SubscriptionNotFound,),
    ),
    Route(
        "PATCH",
        _PATH,
        edit,
        requires_step(steps.EDIT_SUBSCRIPTION, None),
        SubscriptionShown,
        guard=steps.EDIT_SUBSCRIPTION.version,
        errors=(*_TERMS, SubscriptionNotFound, AddressMissing, StaleVersion),
    ),
    Route(
        "DELETE",
        _PATH,
        delete,
        requires_step(steps.DELETE_SUBSCRIPTION, None),
        Written,
        errors=(SubscriptionNotFound,),
    ),
    Route(
        "POST",
        f"{_PATH}/test",
        test,
        requires_step(steps.TEST_SUBSCRIPTION, None),
        TestAnswer,
        errors=(SubscriptionNotFound, AddressMissing),
    ),
    Route(
        "POST",
        f"{_PATH}/skip",
        skip,
        requires_step(steps.SKIP_NOTICE, None),
        Written,
        errors=(SubscriptionNotFound, NothingWaits),
    ),
    Route(
        "POST",
        f"{_PATH}/replay",
        replay,
        requires_step(steps.REPLAY_NOTICES, None),
        Written,
        errors=(SubscriptionNotFound, InvalidSubscription),
    ),
)
