"""A summary of the installation."""

from __future__ import annotations

from tidegate.control.queries.status import StatusReader, StatusReport
from tidegate.domain.access.roles import Verb
from tidegate.web import inputs, routing


def show(
    request: routing.Request[inputs.Nothing, inputs.ReadQuery, inputs.Nothing], status: StatusReader
) -> routing.Response:
    """Summarize the channels that you may read, what is under way, and what needs you."""
    return routing.Response(status.report(request.caller))


ROUTES = (
    routing.Route("GET", "/v1/status", show, routing.requires_somewhere(Verb.READ), StatusReport),
)
