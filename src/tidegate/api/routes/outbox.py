"""The outbox: intents, what became of them, and how an operator retries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, structs

from tidegate.api.routes.releases import ScopeName, demand_scope
from tidegate.control.operations.outbox import OutboxOperations
from tidegate.control.queries.outbox_reader import OutboxReader
from tidegate.control.queries.reads import Reads
from tidegate.domain.access import roles, scopes, steps
from tidegate.domain.channels.refusals import ChannelNotFound
from tidegate.domain.outbox import documents, names, refusals, states
from tidegate.errors import IllegalTransition, NotFound
from tidegate.kernel.model import Position
from tidegate.web import inputs, paging, routing, shapes


class IntentPath(inputs.Input, frozen=True):
    # percent-encoded, because it contains a /
    intent_id: Annotated[str, Meta(min_length=1, max_length=512)]


class OutboxFilter(inputs.Paging, frozen=True, kw_only=True):
    """By scope, or by state over all scopes; without either, pending intents."""

    scope: ScopeName | None = None
    state: states.IntentState | None = None


class WhyAgain(inputs.Input, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


def list_all(
    request: routing.Request[inputs.Nothing, OutboxFilter, inputs.Nothing],
    reads: Reads,
    outbox_reader: OutboxReader,
    cursors: paging.Cursors,
) -> routing.Response:
    """List intents with their attempts: a scope's by operation, a state's by age, oldest first."""
    query = request.query
    after = cursors.after(request)
    found: tuple[documents.OutboxDocument, ...]
    if query.scope is not None:
        found = outbox_reader.list_of_scope(query.scope, after=after, limit=query.limit)
        if not found and not after:
            demand_scope(reads, query.scope)
        last = found[-1].id if len(found) == query.limit else None
    else:
        state = states.IntentState.PENDING if query.state is None else query.state
        seen = _seen(outbox_reader, after) if after else None
        found = outbox_reader.list_in_state(state, after=seen, limit=query.limit)
        last = None
        if len(found) == query.limit:
            last = f"{found[-1].updated_at.isoformat()} {found[-1].id}"
    items = [
        item
        for item in found
        if query.state in (None, item.state)
        and request.principal.may(roles.Verb.READ, scopes.channel_scope(item.scope))
    ]
    return routing.Response(cursors.list_page(request, items, last))


def _seen(outbox_reader: OutboxReader, cursor: str) -> documents.OutboxDocument:
    """The last intent of the page before, as it was then."""
    at, _, intent_id = cursor.partition(" ")
    found = outbox_reader.find(intent_id)
    return structs.replace(found, updated_at=datetime.fromisoformat(at))


def get(
    request: routing.Request[IntentPath, inputs.ReadQuery, inputs.Nothing],
    outbox_reader: OutboxReader,
) -> routing.Response:
    """Get an intent and what became of it."""
    found = outbox_reader.find(request.path.intent_id)
    return routing.Response(found, version=found.version)


def redrive(
    request: routing.Request[IntentPath, inputs.Nothing, WhyAgain],
    outbox: OutboxOperations,
    outbox_reader: OutboxReader,
) -> routing.Response:
    """Retry a dead letter, with the same idempotency key."""
    intent_id, reason = request.path.intent_id, request.body.reason
    position = outbox.redrive(request.caller, intent_id, reason)
    return _show(outbox_reader, intent_id, position)


def cancel(
    request: routing.Request[IntentPath, inputs.Nothing, WhyAgain],
    outbox: OutboxOperations,
    outbox_reader: OutboxReader,
) -> routing.Response:
    """Cancel an intent, with a reason."""
    intent_id, reason = request.path.intent_id, request.body.reason
    position = outbox.cancel(request.caller, intent_id, reason)
    return _show(outbox_reader, intent_id, position)


def _show(outbox_reader: OutboxReader, intent_id: str, position: Position) -> routing.Response:
    """The intent after a command."""
    found = outbox_reader.find(intent_id)
    return routing.Response(found, version=found.version, position=position)


def _scope(request: routing.Request[IntentPath, Any, Any]) -> str:
    return scopes.channel_scope(names.scope_of_intent(request.path.intent_id))


_STEERS = (NotFound, IllegalTransition, refusals.NewerIntent)

ROUTES = (
    routing.Route(
        "GET",
        "/v1/outbox",
        list_all,
        routing.requires_somewhere(roles.Verb.READ),
        shapes.Listed[documents.OutboxDocument],
        errors=(ChannelNotFound,),
    ),
    routing.Route(
        "GET",
        "/v1/outbox/{intent_id}",
        get,
        routing.requires(roles.Verb.READ, _scope),
        documents.OutboxDocument,
        cached=True,
        errors=(NotFound,),
    ),
    routing.Route(
        "POST",
        "/v1/outbox/{intent_id}/redrive",
        redrive,
        routing.requires_step(steps.REDRIVE_INTENT, _scope),
        documents.OutboxDocument,
        errors=_STEERS,
    ),
    routing.Route(
        "POST",
        "/v1/outbox/{intent_id}/cancel",
        cancel,
        routing.requires_step(steps.CANCEL_INTENT, _scope),
        documents.OutboxDocument,
        errors=_STEERS,
    ),
)
