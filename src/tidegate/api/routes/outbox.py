"""The outbox: what is owed to the world, what became of it, and how an operator tries again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from tidegate.api.routes.releases import ScopeName
from tidegate.control.installation import Installation
from tidegate.control.queries import documents as queries_documents
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.domain.outbox.documents import OutboxDocument
from tidegate.domain.outbox.refusals import NewerIntent
from tidegate.domain.outbox.slices import CancelIntent, RedriveIntent, cancel_intent, redrive_intent
from tidegate.domain.outbox.states import IntentState
from tidegate.errors import IllegalTransition, NotFound
from tidegate.web import paging
from tidegate.web.inputs import Input, Nothing, Paging, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires, requires_somewhere
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
    request: Request[Nothing, OutboxFilter, Nothing], installation: Installation
) -> Response:
    """Intents with their attempts: of a scope by operation, of a state the longest first."""
    query = request.query
    after = paging.after(request, installation)
    found: tuple[OutboxDocument, ...]
    if query.scope is not None:
        found = queries_documents.list_of_scope(
            installation.store, query.scope, after=after, limit=query.limit
        )
        last = found[-1].id if len(found) == query.limit else None
    else:
        state = IntentState.PENDING if query.state is None else query.state
        seen = _seen(installation, after) if after else None
        found = queries_documents.list_in_state(
            installation.store, state, after=seen, limit=query.limit
        )
        last = None
        if len(found) == query.limit:
            last = f"{found[-1].updated_at.isoformat()} {found[-1].id}"
    items = [
        item
        for item in found
        if query.state in (None, item.state)
        and request.principal.may(Verb.READ, channel_scope(item.scope))
    ]
    return Response(paging.list_page(request, installation, items, last))


def _seen(installation: Installation, cursor: str) -> OutboxDocument:
    """The last one of the page before, as it stood then."""
    at, _, intent_id = cursor.partition(" ")
    found = queries_documents.find_document(installation.store, intent_id)
    return replace(found, updated_at=datetime.fromisoformat(at))


def get(request: Request[IntentPath, ReadQuery, Nothing], installation: Installation) -> Response:
    """One intent and what became of it."""
    found = queries_documents.find_document(installation.store, request.path.intent_id)
    return Response(found, version=found.version)


def redrive(
    request: Request[IntentPath, Nothing, WhyAgain], installation: Installation
) -> Response:
    """Try a dead intent again, under the same idempotency key."""
    intent_id = request.path.intent_id
    command = RedriveIntent(
        scope=scope_of(intent_id),
        intent_id=intent_id,
        by=request.by,
        reason=request.body.reason,
    )
    outcome = installation.run(redrive_intent, command, meta=request.meta, key=request.once)
    return _answer(installation, intent_id, outcome.position)


def cancel(request: Request[IntentPath, Nothing, WhyAgain], installation: Installation) -> Response:
    """Give an intent up, with a reason."""
    intent_id = request.path.intent_id
    command = CancelIntent(
        scope=scope_of(intent_id),
        intent_id=intent_id,
        by=request.by,
        reason=request.body.reason,
    )
    outcome = installation.run(cancel_intent, command, meta=request.meta, key=request.once)
    return _answer(installation, intent_id, outcome.position)


def _answer(installation: Installation, intent_id: str, position: int) -> Response:
    found = queries_documents.find_document(installation.store, intent_id)
    return Response(found, version=found.version, position=position or found.version)


def scope_of(intent_id: str) -> str:
    """The scope whose intent it is. Raises: NotFound."""
    prefix, _, rest = intent_id.partition("#")
    scope, slash, _ = rest.partition("/")
    if prefix != "RELEASE" or not slash or not scope:
        raise NotFound(f"there is no intent {intent_id[:200]}")
    return scope


def _scope(request: Request[IntentPath, Any, Any]) -> str:
    return channel_scope(scope_of(request.path.intent_id))


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
        requires(Verb.OPERATE, _scope),
        OutboxDocument,
        errors=_STEERS,
    ),
    Route(
        "POST",
        "/v1/outbox/{intent_id}/cancel",
        cancel,
        requires(Verb.OPERATE, _scope),
        OutboxDocument,
        errors=_STEERS,
    ),
)
