"""The outbox: what is owed to the world, what became of it, and how an operator tries again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from tidegate.api.routes.releases import ScopeName
from tidegate.control.operations.outbox import OutboxOperations
from tidegate.control.queries.documents import OutboxReader
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.access.steps import CANCEL_INTENT, REDRIVE_INTENT
from tidegate.domain.outbox.documents import OutboxDocument
from tidegate.domain.outbox.names import scope_of_intent
from tidegate.domain.outbox.refusals import NewerIntent
from tidegate.domain.outbox.states import IntentState
from tidegate.errors import IllegalTransition, NotFound
from tidegate.kernel.model import Position
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.paging import Cursors
from tidegate.web.routing import (
    Request,
    Response,
    Route,
    requires,
    requires_somewhere,
    requires_step,
)
from tidegate.web.shapes import Listed


class IntentPath(Input, frozen=True):
    intent_id: Annotated[str, Meta(min_length=1, max_length=512)]  # percent-encoded: it holds a /


class OutboxFilter(Paging, frozen=True, kw_only=True):
    """Of one scope, or of all in a state; without either, what is pending."""

    scope: ScopeName | None = None
    state: IntentState | None = None


class WhyAgain(Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


def list_all(
    request: Request[Nothing, OutboxFilter, Nothing], outbox_reader: OutboxReader, cursors: Cursors
) -> Response:
    """Intents with their attempts: of a scope by operation, of a state the longest first."""
    query = request.query
    after = cursors.after(request)
    found: tuple[OutboxDocument, ...]
    if query.scope is not None:
        found = outbox_reader.list_of_scope(query.scope, after=after, limit=query.limit)
        last = found[-1].id if len(found) == query.limit else None
    else:
        state = IntentState.PENDING if query.state is None else query.state
        seen = _seen(outbox_reader, after) if after else None
        found = outbox_reader.list_in_state(state, after=seen, limit=query.limit)
        last = None
        if len(found) == query.limit:
            last = f"{found[-1].updated_at.isoformat()} {found[-1].id}"
    items = [
        item
        for item in found
        if query.state in (None, item.state)
        and request.principal.may(Verb.READ, channel_scope(item.scope))
    ]
    return Response(cursors.list_page(request, items, last))


def _seen(outbox_reader: OutboxReader, cursor: str) -> OutboxDocument:
    """The last one of the page before, as it was then."""
    at, _, intent_id = cursor.partition(" ")
    found = outbox_reader.find(intent_id)
    return replace(found, updated_at=datetime.fromisoformat(at))


def get(request: Request[IntentPath, ReadQuery, Nothing], outbox_reader: OutboxReader) -> Response:
    """One intent and what became of it."""
    found = outbox_reader.find(request.path.intent_id)
    return Response(found, version=found.version)


def redrive(
    request: Request[IntentPath, Nothing, WhyAgain],
    outbox: OutboxOperations,
    outbox_reader: OutboxReader,
) -> Response:
    """Try a dead intent again, under the same idempotency key."""
    intent_id, reason = request.path.intent_id, request.body.reason
    position = outbox.redrive(request.caller, intent_id, reason)
    return _show(outbox_reader, intent_id, position)


def cancel(
    request: Request[IntentPath, Nothing, WhyAgain],
    outbox: OutboxOperations,
    outbox_reader: OutboxReader,
) -> Response:
    """Give an intent up, with a reason."""
    intent_id, reason = request.path.intent_id, request.body.reason
    position = outbox.cancel(request.caller, intent_id, reason)
    return _show(outbox_reader, intent_id, position)


def _show(outbox_reader: OutboxReader, intent_id: str, position: Position) -> Response:
    """The intent as it is after a verb."""
    found = outbox_reader.find(intent_id)
    return Response(found, version=found.version, position=position)


def _scope(request: Request[IntentPath, Any, Any]) -> str:
    return channel_scope(scope_of_intent(request.path.intent_id))


_STEERS = (NotFound, IllegalTransition, NewerIntent)

ROUTES = (
    Route("GET", "/v1/outbox", list_all, requires_somewhere(Verb.READ), Listed[OutboxDocument]),
    Route(
        "GET",
        "/v1/outbox/{intent_id}",
        get,
        requires(Verb.READ, _scope),
        OutboxDocument,
        cached=True,
        errors=(NotFound,),
    ),
    Route(
        "POST",
        "/v1/outbox/{intent_id}/redrive",
        redrive,
        requires_step(REDRIVE_INTENT, _scope),
        OutboxDocument,
        errors=_STEERS,
    ),
    Route(
        "POST",
        "/v1/outbox/{intent_id}/cancel",
        cancel,
        requires_step(CANCEL_INTENT, _scope),
        OutboxDocument,
        errors=_STEERS,
    ),
)
