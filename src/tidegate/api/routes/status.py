"""The installation on one screen."""

from __future__ import annotations

from tidegate.control.queries.status import StatusReader, StatusReport
from tidegate.domain.access.roles import Verb
from tidegate.domain.access.scopes import channel_scope
from tidegate.web.inputs import Nothing, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires_somewhere


def show(request: Request[Nothing, ReadQuery, Nothing], status: StatusReader) -> Response:
    """Each channel that you may read, what is under way, and what needs a person."""
    may = request.principal.may
    return Response(
        status.report(
            lambda channel: may(Verb.READ, channel_scope(channel)),
            lambda scope: may(Verb.READ, scope),
        )
    )


ROUTES = (Route("GET", "/v1/status", show, requires_somewhere(Verb.READ), StatusReport),)
