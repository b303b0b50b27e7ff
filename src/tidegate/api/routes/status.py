"""The installation on one screen."""

from __future__ import annotations

from tidegate.control.queries.status import StatusReader, StatusReport
from tidegate.domain.access.roles import Verb
from tidegate.web.inputs import Nothing, ReadQuery
from tidegate.web.routing import Request, Response, Route, requires_somewhere


def show(request: Request[Nothing, ReadQuery, Nothing], status: StatusReader) -> Response:
    """Each channel that you may read, what is under way, and what needs you."""
    return Response(status.report(request.caller))


ROUTES = (Route("GET", "/v1/status", show, requires_somewhere(Verb.READ), StatusReport),)
